//! A cable from the clients to each server, which has a namespace of its own; `boot` is beside the control plane.
//!
//! ```text
//! clients (10.120.0.1: the relay)   to0 10.92.0.2/24 ── load 10.92.0.1/24   cp: boot
//!                                   to1 10.92.1.2/24 ── load 10.92.1.1/24   dnsmasq
//!                                   to2 10.92.2.2/24 ── load 10.92.2.1/24   Kea
//!                                   to3 10.92.3.2/24 ── load 10.92.3.1/24   TFTP and HTTP
//! ```

use anyhow::{Context, Result, ensure};
use sandbox::layout::{CONTROL_PLANE, Layout};
use std::net::Ipv4Addr;
use tokio::process::Command;

/// The interface of every server.
pub const INTERFACE: &str = "load";
/// In whose name the clients ask.
pub const RELAY: Ipv4Addr = Ipv4Addr::new(10, 120, 0, 1);
/// Of which their addresses are.
pub const NETWORK: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 120, 0, 0), 16);
pub const NETMASK: &str = "255.255.0.0";
/// The address that is reserved for the first client.
pub const FIRST: Ipv4Addr = Ipv4Addr::new(10, 120, 1, 0);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Boot,
    Dnsmasq,
    Kea,
    Files,
}

impl Place {
    pub const fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 92, self as u8, 1)
    }

    const fn client(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 92, self as u8, 2)
    }
}

/// Removed with all that is in them, but for the control plane's.
pub struct Network {
    pub clients: String,
    control_plane: String,
    others: [String; 3],
}

impl Network {
    pub async fn make(layout: &Layout) -> Result<Self> {
        let name = |what: &str| layout.netns(&format!("load-{what}"));
        let control_plane = layout.netns(CONTROL_PLANE);
        let network = Self { clients: name("clients"), control_plane, others: ["dnsmasq", "kea", "files"].map(name) };
        // Of a run that was killed.
        network.remove();
        for namespace in network.others.iter().chain([&network.clients]) {
            ip(&format!("netns add {namespace}")).await?;
            ip(&format!("-n {namespace} link set lo up")).await?;
        }
        let clients = &network.clients;
        ip(&format!("-n {clients} addr add {RELAY}/32 dev lo")).await?;
        for place in [Place::Boot, Place::Dnsmasq, Place::Kea, Place::Files] {
            let server = network.namespace(place);
            let (own, number) = (format!("to{}", place as u8), place.client());
            ip(&format!("-n {server} link add {INTERFACE} type veth peer name {own} netns {clients}")).await?;
            ip(&format!("-n {server} addr add {}/24 dev {INTERFACE}", place.address())).await?;
            ip(&format!("-n {server} link set {INTERFACE} up")).await?;
            ip(&format!("-n {clients} addr add {number}/24 dev {own}")).await?;
            ip(&format!("-n {clients} link set {own} up")).await?;
            ip(&format!("-n {server} route add {RELAY}/32 via {number}")).await?;
        }
        Ok(network)
    }

    pub fn namespace(&self, place: Place) -> &str {
        let [dnsmasq, kea, files] = &self.others;
        match place {
            Place::Boot => &self.control_plane,
            Place::Dnsmasq => dnsmasq,
            Place::Kea => kea,
            Place::Files => files,
        }
    }

    fn remove(&self) {
        for namespace in self.others.iter().chain([&self.clients]) {
            // It may be that it was never made.
            let _ = std::process::Command::new("ip").args(["netns", "del", namespace]).output();
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.remove();
    }
}

async fn ip(words: &str) -> Result<()> {
    let done = Command::new("ip").args(words.split(' ')).output().await.context("start ip")?;
    ensure!(done.status.success(), "ip {words}: {}", String::from_utf8_lossy(&done.stderr).trim());
    Ok(())
}
