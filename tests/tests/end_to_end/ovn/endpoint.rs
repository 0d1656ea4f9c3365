//! Where packets come from and go to: a network namespace on a chassis, with a port of the chassis' bridge; a pod; or a guest.

use super::draw::PORTS;
use super::guest::{Console, InGuest};
use crate::flooded::FLOOD;
use crate::machine::SOON;
use crate::perl::Perl;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::net::IpAddr;
use std::process::Stdio;
use std::sync::Arc;
use tests::site::{ORDINARY_NODE, Site, until};
use tokio::io::AsyncWriteExt;

pub(super) const LISTEN: &str = include_str!("listen.pl");
pub(super) const SEND: &str = include_str!("send.pl");
const TALK: &str = include_str!("talk.pl");
/// A pair without what hardware would do: a checksum that is left out is never put in where the switch is a program.
const WITHOUT_OFFLOAD: &str = r#"use Socket; socket(my $s, AF_INET, SOCK_DGRAM, 0) or die $!; my $v = pack("LL", 0x17, 0); ioctl($s, 0x8946, pack("a16P", $ARGV[0], $v)) or die $!"#;

pub(super) struct Endpoint {
    /// The VNic's.
    pub name: String,
    pub uid: String,
    pub mac: String,
    pub subnet: String,
    at: At,
}

enum At {
    Namespace(Box<Namespace>),
    Guest(InGuest),
}

/// On a node.
struct Namespace {
    node: String,
    /// As nsenter is told.
    inside: String,
    /// Of the switch's end, and of the namespace; empty: a pod's, which kubelet made.
    device: String,
    listener: Option<Perl>,
}

impl Namespace {
    async fn perl(&self, site: &Site, name: &str, program: &str, arguments: &[&str]) -> Result<Perl> {
        let mut inside = site.sandbox.enter(&self.node);
        inside.args(["nsenter", &self.inside]);
        Perl::start(inside, name, program, arguments).await
    }

    async fn send(&self, site: &Site, lines: &str) -> Result<()> {
        let mut command = site.sandbox.enter(&self.node);
        command.args(["nsenter", &self.inside, "perl", "-e", SEND]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().context("start a sender")?;
        let mut stdin = child.stdin.take().context("its input")?;
        stdin.write_all(lines.as_bytes()).await?;
        drop(stdin);
        let output = child.wait_with_output().await.context("wait for a sender")?;
        ensure!(output.status.success(), "the sender ended with {}", output.status);
        Ok(())
    }

    async fn remove(&mut self, site: &Site) -> Result<()> {
        if let Some(listener) = self.listener.take() {
            listener.end().await?;
        }
        if !self.device.is_empty() {
            let device = &self.device;
            let remove = format!(
                "ovs-vsctl --if-exists del-port br-int {device}; ip link del {device} 2>/dev/null; ip netns del {device} 2>/dev/null; true"
            );
            site.enter(&self.node, &["sh", "-c", &remove]).await?;
        }
        Ok(())
    }
}

impl Endpoint {
    pub(super) fn port(&self) -> String {
        format!("mp-{}", self.uid)
    }

    /// Begins to hear; ends with this value.
    pub(super) async fn listen(&mut self, site: &Site) -> Result<()> {
        match &mut self.at {
            At::Guest(guest) => guest.listen().await,
            At::Namespace(namespace) => {
                let ports = PORTS.map(|port| port.to_string());
                let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
                namespace.listener = Some(namespace.perl(site, &self.name, LISTEN, &ports).await?);
                Ok(())
            }
        }
    }

    /// What only an endpoint outside of guests can.
    fn namespace(&self) -> Result<&Namespace> {
        match &self.at {
            At::Namespace(namespace) => Ok(namespace),
            At::Guest(_) => bail!("{} is in a guest, which only sends and listens", self.name),
        }
    }

    /// One end of a connection: `arguments` of `talk.pl`.
    pub(super) async fn talk(&self, site: &Site, arguments: &[&str]) -> Result<Talk> {
        Ok(Talk(self.namespace()?.perl(site, &self.name, TALK, arguments).await?))
    }

    /// Sends by UDP all the time, until the value ends.
    pub(super) async fn flood(&self, site: &Site, port: u16, payload: &str, to: &[String]) -> Result<Perl> {
        let port = port.to_string();
        let arguments: Vec<&str> = [port.as_str(), payload].into_iter().chain(to.iter().map(String::as_str)).collect();
        self.namespace()?.perl(site, &self.name, FLOOD, &arguments).await
    }

    pub(super) async fn run(&self, site: &Site, args: &[&str]) -> Result<String> {
        let namespace = self.namespace()?;
        site.enter(&namespace.node, &[&["nsenter", namespace.inside.as_str()], args].concat()).await
    }

    /// Everything since it began to.
    pub(super) fn heard(&self) -> Vec<String> {
        match &self.at {
            At::Namespace(namespace) => namespace.listener.as_ref().map(Perl::heard).unwrap_or_default(),
            At::Guest(guest) => guest.heard(),
        }
    }

    /// Sends and returns when everything is sent, or given up.
    pub(super) async fn send(&self, site: &Site, lines: String) -> Result<()> {
        let sent = match &self.at {
            At::Namespace(namespace) => namespace.send(site, &lines).await,
            At::Guest(guest) => guest.send(&lines).await,
        };
        sent.with_context(|| format!("send from {}", self.name))
    }

    pub(super) async fn remove(&mut self, site: &Site) -> Result<()> {
        match &mut self.at {
            At::Namespace(namespace) => namespace.remove(site).await,
            // It ends with its machine or pod.
            At::Guest(_) => Ok(()),
        }
    }
}

/// One end of a connection that is open.
pub(super) struct Talk(Perl);

impl Talk {
    pub(super) async fn says(&self, protocol: &str, text: &str) -> Result<()> {
        self.0.is_told(&format!("{protocol} {text}")).await
    }

    pub(super) fn has_heard(&self, protocol: &str, text: &str) -> bool {
        self.0.heard().contains(&format!("{protocol} {text}"))
    }

    pub(super) async fn hears(&self, protocol: &str, text: &str) -> Result<()> {
        let what = format!("{} hears '{text}' by {protocol}", self.0.name());
        until(&what, SOON, async || Ok(if self.has_heard(protocol, text) { Ok(()) } else { Err("nothing".to_owned()) }))
            .await
    }
}

/// A VNic that has its addresses.
async fn assigned(site: &Site, namespace: &str, name: &str) -> Result<Value> {
    until(&format!("VNic {name} has its addresses"), SOON, async || {
        let vnic = site.get(&["vnic", name, "-n", namespace]).await?.context("the VNic no longer exists")?;
        let has = vnic["status"]["macAddress"].is_string() && vnic["status"]["addresses"].is_array();
        Ok(if has { Ok(vnic.clone()) } else { Err(vnic["status"].to_string()) })
    })
    .await
}

fn of(vnic: &Value, at: At) -> Result<Endpoint> {
    let text = |value: &Value| value.as_str().map(str::to_owned).context("a VNic lacks something");
    Ok(Endpoint {
        name: text(&vnic["metadata"]["name"])?,
        uid: text(&vnic["metadata"]["uid"])?,
        mac: text(&vnic["status"]["macAddress"])?,
        subnet: text(&vnic["spec"]["subnet"])?,
        at,
    })
}

fn in_namespace(vnic: &Value, node: &str, inside: String, device: String) -> Result<Endpoint> {
    let namespace = Namespace { node: node.to_owned(), inside, device, listener: None };
    of(vnic, At::Namespace(Box::new(namespace)))
}

fn addresses(vnic: &Value) -> Vec<&str> {
    vnic["status"]["addresses"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// One by `nodeName`, as whoever is root on that node makes it.
pub(super) async fn on_node(site: &Site, namespace: &str, name: &str, node: &str, place: usize) -> Result<Endpoint> {
    let vnic = assigned(site, namespace, name).await?;
    let device = format!("judge{place}");
    let mut endpoint = in_namespace(&vnic, node, format!("--net=/run/netns/{device}"), device.clone())?;
    endpoint.remove(site).await?;
    let (uid, mac, port) = (&endpoint.uid, &endpoint.mac, endpoint.port());
    let mut make = format!(
        "set -e
ip netns add {device}
ip link add {device} type veth peer name eth0 netns {device}
perl -e \"$1\" {device}
ip netns exec {device} perl -e \"$1\" eth0
inside() {{ ip -n {device} \"$@\"; }}
inside link set eth0 address {mac} mtu 1442
"
    );
    for address in addresses(&vnic) {
        let (length, gateway, all) = ways(address)?;
        make += &format!(
            "inside address add {address}/{length} dev eth0 {}\n",
            if address.contains(':') { "nodad" } else { "" }
        );
        make +=
            &format!("inside link set lo up; inside link set eth0 up; inside route add {all} via {gateway} dev eth0\n");
    }
    make += &format!(
        "ip link set {device} up
ovs-vsctl add-port br-int {device} -- set interface {device} external_ids:iface-id={port} \
external_ids:iface-id-ver={uid}.0 external_ids:attached-mac=\\\"{mac}\\\"\n"
    );
    site.enter(node, &["sh", "-c", &make, "sh", WITHOUT_OFFLOAD])
        .await
        .with_context(|| format!("make {name} on {node}"))?;
    Ok(endpoint)
}

/// Length of the prefix, the router, and what it leads to.
pub(super) fn ways(address: &str) -> Result<(u8, String, &'static str)> {
    Ok(match address.parse::<IpAddr>()? {
        IpAddr::V4(address) => (24, format!("10.60.{}.1", address.octets()[2]), "10.60.0.0/16"),
        IpAddr::V6(address) => (64, format!("fd00:60:0:{:x}::1", address.segments()[3]), "fd00:60::/32"),
    })
}

/// A pod's, in the network namespace that the plugin noted.
pub(super) async fn in_pod(site: &Site, namespace: &str, vnic: &str, pod: &str) -> Result<Endpoint> {
    let netns = site.pod(namespace, pod).await?.netns;
    in_namespace(&assigned(site, namespace, vnic).await?, ORDINARY_NODE, format!("--net={netns}"), String::new())
}

/// In a guest that has booted.
pub(super) async fn in_guest(site: &Site, namespace: &str, vnic: &str, console: Arc<Console>) -> Result<Endpoint> {
    let vnic = assigned(site, namespace, vnic).await?;
    let text = |value: &Value| value.as_str().map(str::to_owned).context("a VNic lacks something");
    let (name, mac) = (text(&vnic["metadata"]["name"])?, text(&vnic["status"]["macAddress"])?);
    of(&vnic, At::Guest(InGuest::new(console, &name, &mac, &addresses(&vnic)).await?))
}
