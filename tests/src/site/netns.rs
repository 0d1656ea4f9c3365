//! Network namespaces on nodes that are members of a Vpc: that of a VNic with `nodeName`, made as whoever is root on the node makes it, or a
//! pod's. Programs in Perl send and listen in them, and keep connections open.

use super::{ORDINARY_NODE, Perl, Pod, Site, until};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::net::IpAddr;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// Prints every payload that arrives: a word and two numbers, `judge-1-2`.
pub const LISTEN: &str = include_str!("listen.pl");
/// Sends the lines that it is given.
pub const SEND: &str = include_str!("send.pl");
const TALK: &str = include_str!("talk.pl");
/// A pair without what hardware would do: a checksum that is left out is never put in where the switch is a program.
const WITHOUT_OFFLOAD: &str = r#"use Socket; socket(my $s, AF_INET, SOCK_DGRAM, 0) or die $!; my $v = pack("LL", 0x17, 0); ioctl($s, 0x8946, pack("a16P", $ARGV[0], $v)) or die $!"#;
/// The controller has been told of a VNic, and kubelet of nothing.
const SOON: Duration = Duration::from_secs(150);

/// Length of the prefix, the router, and what it leads to.
pub type Way = (u8, String, &'static str);

/// By the router of a /24 or a /64 that is its first address, to everywhere.
pub fn by_first_address(address: &str) -> Result<Way> {
    Ok(match address.parse::<IpAddr>()? {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            (24, format!("{a}.{b}.{c}.1"), "default")
        }
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            (64, format!("{a:x}:{b:x}:{c:x}:{d:x}::1"), "default")
        }
    })
}

/// The addresses that a VNic has been given.
pub fn addresses(vnic: &Value) -> Vec<&str> {
    vnic["status"]["addresses"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

pub struct Netns {
    /// In messages.
    name: String,
    node: String,
    /// As nsenter is told.
    inside: String,
    /// Of the switch's end, and of the namespace; empty: a pod's, which kubelet made.
    device: String,
    listener: Option<Perl>,
}

impl Site {
    /// A VNic that has its addresses.
    pub async fn assigned_vnic(&self, namespace: &str, name: &str) -> Result<Value> {
        until(&format!("VNic {name} has its addresses"), SOON, async || {
            let vnic = self.get(&["vnic", name, "-n", namespace]).await?.context("the VNic no longer exists")?;
            let has = vnic["status"]["macAddress"].is_string() && vnic["status"]["addresses"].is_array();
            Ok(if has { Ok(vnic.clone()) } else { Err(vnic["status"].to_string()) })
        })
        .await
    }

    /// That of a VNic with `nodeName`, which has its addresses. `device`: a name that no other has on that node.
    pub async fn netns_of_vnic(
        &self,
        vnic: &Value,
        node: &str,
        device: &str,
        way: impl Fn(&str) -> Result<Way>,
    ) -> Result<Netns> {
        let text = |value: &Value| value.as_str().map(str::to_owned).context("a VNic lacks something");
        let name = text(&vnic["metadata"]["name"])?;
        let (uid, mac) = (text(&vnic["metadata"]["uid"])?, text(&vnic["status"]["macAddress"])?);
        let inside = format!("--net=/run/netns/{device}");
        let mut made = Netns { name, node: node.to_owned(), inside, device: device.to_owned(), listener: None };
        // Of a run that was killed.
        made.remove(self).await?;
        let mut make = format!(
            "set -e
ip netns add {device}
ip link add {device} type veth peer name eth0 netns {device}
perl -e \"$1\" {device}
ip netns exec {device} perl -e \"$1\" eth0
inside() {{ ip -n {device} \"$@\"; }}
inside link set eth0 address {mac} mtu 1442
# It has the VNic's addresses alone: by one that it makes itself it would not be let out.
ip netns exec {device} sh -c 'echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_ra'
"
        );
        for address in addresses(vnic) {
            let (length, gateway, all) = way(address)?;
            let nodad = if address.contains(':') { "nodad" } else { "" };
            make += &format!(
                "inside address add {address}/{length} dev eth0 {nodad}
inside link set lo up; inside link set eth0 up; inside route add {all} via {gateway} dev eth0
"
            );
        }
        make += &format!(
            "ip link set {device} up
ovs-vsctl add-port br-int {device} -- set interface {device} external_ids:iface-id=mp-{uid} \
external_ids:iface-id-ver={uid}.0 external_ids:attached-mac=\\\"{mac}\\\"\n"
        );
        self.enter(node, &["sh", "-c", &make, "sh", WITHOUT_OFFLOAD])
            .await
            .with_context(|| format!("make {} on {node}", made.name))?;
        Ok(made)
    }

    /// Every port of these VNics is up on its chassis, and every chassis has what was written until now.
    pub async fn ports_are_up(&self, vnic_uids: &[&str]) -> Result<()> {
        for uid in vnic_uids {
            self.nbctl(&["wait-until", "Logical_Switch_Port", &format!("mp-{uid}"), "up=true"]).await?;
        }
        self.nbctl(&["--wait=hv", "sync"]).await.map(drop)
    }
}

impl Netns {
    /// A pod's, on the ordinary node.
    pub fn of_pod(pod: &Pod, name: &str) -> Self {
        let (node, inside) = (ORDINARY_NODE.to_owned(), format!("--net={}", pod.netns));
        Self { name: name.to_owned(), node, inside, device: String::new(), listener: None }
    }

    /// A program that runs until the value ends.
    pub async fn perl(&self, site: &Site, program: &str, arguments: &[&str]) -> Result<Perl> {
        let mut inside = site.sandbox.enter(&self.node);
        inside.args(["nsenter", &self.inside]);
        Perl::start(inside, &self.name, program, arguments).await
    }

    /// Begins to hear on these ports of TCP and UDP, and echo requests; ends with this value.
    pub async fn listen(&mut self, site: &Site, ports: &[u16]) -> Result<()> {
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
        self.listener = Some(self.perl(site, LISTEN, &ports).await?);
        Ok(())
    }

    /// Everything since it began to: PROTOCOL PAYLOAD.
    pub fn heard(&self) -> Vec<String> {
        self.listener.as_ref().map(Perl::heard).unwrap_or_default()
    }

    /// Sends lines of PROTOCOL ADDRESS PORT PAYLOAD; returns when everything is sent, or given up.
    pub async fn send(&self, site: &Site, lines: &str) -> Result<()> {
        let mut command = site.sandbox.enter(&self.node);
        command.args(["nsenter", &self.inside, "perl", "-e", SEND]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().context("start a sender")?;
        let mut stdin = child.stdin.take().context("its input")?;
        stdin.write_all(lines.as_bytes()).await?;
        drop(stdin);
        let output = child.wait_with_output().await.context("wait for a sender")?;
        ensure!(output.status.success(), "the sender of {} ended with {}", self.name, output.status);
        Ok(())
    }

    /// One end of a connection: `arguments` of `talk.pl`.
    pub async fn talk(&self, site: &Site, arguments: &[&str]) -> Result<Talk> {
        Ok(Talk(self.perl(site, TALK, arguments).await?))
    }

    pub async fn run(&self, site: &Site, args: &[&str]) -> Result<String> {
        site.enter(&self.node, &[&["nsenter", self.inside.as_str()], args].concat()).await
    }

    pub async fn remove(&mut self, site: &Site) -> Result<()> {
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

/// One end of a connection that is open.
pub struct Talk(Perl);

impl Talk {
    pub async fn says(&self, protocol: &str, text: &str) -> Result<()> {
        self.0.is_told(&format!("{protocol} {text}")).await
    }

    pub fn has_heard(&self, protocol: &str, text: &str) -> bool {
        self.0.heard().contains(&format!("{protocol} {text}"))
    }

    pub async fn hears(&self, protocol: &str, text: &str) -> Result<()> {
        let what = format!("{} hears '{text}' by {protocol}", self.0.name());
        until(&what, SOON, async || Ok(if self.has_heard(protocol, text) { Ok(()) } else { Err("nothing".to_owned()) }))
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_router_is_the_first_address() {
        assert_eq!(by_first_address("10.30.1.7").expect("an address"), (24, "10.30.1.1".to_owned(), "default"));
        let six = by_first_address("fd00:30:0:1::7").expect("an address");
        assert_eq!(six, (64, "fd00:30:0:1::1".to_owned(), "default"));
        assert!(by_first_address("10.30.1.7/24").is_err());
    }
}
