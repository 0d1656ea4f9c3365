//! Where packets come from and go to: a network namespace on a chassis, with a port of the chassis' bridge; a pod; or a guest.

use super::draw::PORTS;
use super::guest::{Console, InGuest};
use crate::flooded::FLOOD;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::net::IpAddr;
use std::sync::Arc;
use tests::site::{Netns, Perl, Site, Talk, Way, addresses};

pub(super) struct Endpoint {
    /// The VNic's.
    pub name: String,
    pub uid: String,
    pub mac: String,
    pub subnet: String,
    at: At,
}

enum At {
    Namespace(Box<Netns>),
    Guest(InGuest),
}

impl Endpoint {
    pub(super) fn port(&self) -> String {
        format!("mp-{}", self.uid)
    }

    /// Begins to hear; ends with this value.
    pub(super) async fn listen(&mut self, site: &Site) -> Result<()> {
        match &mut self.at {
            At::Guest(guest) => guest.listen().await,
            At::Namespace(namespace) => namespace.listen(site, &PORTS).await,
        }
    }

    /// What only an endpoint outside of guests can.
    fn namespace(&self) -> Result<&Netns> {
        match &self.at {
            At::Namespace(namespace) => Ok(namespace),
            At::Guest(_) => bail!("{} is in a guest, which only sends and listens", self.name),
        }
    }

    /// One end of a connection: `arguments` of `talk.pl`.
    pub(super) async fn talk(&self, site: &Site, arguments: &[&str]) -> Result<Talk> {
        self.namespace()?.talk(site, arguments).await
    }

    /// Sends by UDP all the time, until the value ends.
    pub(super) async fn flood(&self, site: &Site, port: u16, payload: &str, to: &[String]) -> Result<Perl> {
        let port = port.to_string();
        let arguments: Vec<&str> = [port.as_str(), payload].into_iter().chain(to.iter().map(String::as_str)).collect();
        self.namespace()?.perl(site, FLOOD, &arguments).await
    }

    pub(super) async fn run(&self, site: &Site, args: &[&str]) -> Result<String> {
        self.namespace()?.run(site, args).await
    }

    /// Everything since it began to.
    pub(super) fn heard(&self) -> Vec<String> {
        match &self.at {
            At::Namespace(namespace) => namespace.heard(),
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

/// One by `nodeName`, as whoever is root on that node makes it.
pub(super) async fn on_node(site: &Site, namespace: &str, name: &str, node: &str, place: usize) -> Result<Endpoint> {
    let vnic = site.assigned_vnic(namespace, name).await?;
    let made = site.netns_of_vnic(&vnic, node, &format!("judge{place}"), ways).await?;
    of(&vnic, At::Namespace(Box::new(made)))
}

/// Length of the prefix, the router, and what it leads to.
pub(super) fn ways(address: &str) -> Result<Way> {
    Ok(match address.parse::<IpAddr>()? {
        IpAddr::V4(address) => (24, format!("10.60.{}.1", address.octets()[2]), "10.60.0.0/16"),
        IpAddr::V6(address) => (64, format!("fd00:60:0:{:x}::1", address.segments()[3]), "fd00:60::/32"),
    })
}

/// A pod's, in the network namespace that the plugin noted.
pub(super) async fn in_pod(site: &Site, namespace: &str, vnic: &str, pod: &str) -> Result<Endpoint> {
    let inside = Netns::of_pod(&site.pod(namespace, pod).await?, pod);
    of(&site.assigned_vnic(namespace, vnic).await?, At::Namespace(Box::new(inside)))
}

/// In a guest that has booted.
pub(super) async fn in_guest(site: &Site, namespace: &str, vnic: &str, console: Arc<Console>) -> Result<Endpoint> {
    let vnic = site.assigned_vnic(namespace, vnic).await?;
    let text = |value: &Value| value.as_str().map(str::to_owned).context("a VNic lacks something");
    let (name, mac) = (text(&vnic["metadata"]["name"])?, text(&vnic["status"]["macAddress"])?);
    of(&vnic, At::Guest(InGuest::new(console, &name, &mac, &addresses(&vnic)).await?))
}
