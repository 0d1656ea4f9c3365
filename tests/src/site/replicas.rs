//! Two replicas of the boot service: a second node with a leg in the provisioning network, and what a client there sees of each.

use super::netboot::{BOOT_NODES, NODE};
use super::{Perl, SYSTEM_NAMESPACE, Site, run};
use anyhow::{Context, Result};
use sandbox::layout::{CONTROL_PLANE, NodeId, PROVISIONING_LEG, Provisioned};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::time::Instant;

/// What a replica makes an offer within, on a network without delay; and what the first offer is waited for, where the machine is busy.
const OFFERED: Duration = Duration::from_secs(1);
const FIRST: Duration = Duration::from_secs(5);
/// As curl is told it: a question by TFTP to a node that has nobody there is answered by nothing.
const CURL_LIMIT: &str = "3";
/// The control plane's leg.
const BRIDGE: &str = "br-prov";
const DISCOVER: &str = include_str!("discover.pl");

impl Site {
    /// The node beside the one that the boot service runs on ever; both addresses, in the nodes' order.
    pub async fn second_boot_node(&self, node: &str) -> Result<[Ipv4Addr; 2]> {
        let addresses = [NodeId::parse(NODE)?.provisioning_address(), NodeId::parse(node)?.provisioning_address()];
        let (here, netns) = (format!("p-{node}"), self.sandbox.layout().netns(node));
        let outside = format!(
            "ip link add {here} type veth peer name {PROVISIONING_LEG} netns {netns} && ip link set {here} master {BRIDGE} && \
             ip link set {here} up"
        );
        self.enter(CONTROL_PLANE, &["sh", "-c", &outside]).await?;
        let inside =
            format!("ip address add {}/24 dev {PROVISIONING_LEG} && ip link set {PROVISIONING_LEG} up", addresses[1]);
        self.enter(node, &["sh", "-c", &inside]).await?;
        self.kubectl(&["label", "node", node, "--overwrite", BOOT_NODES]).await?;
        Ok(addresses)
    }

    /// No pod of the boot service is put onto that node any more.
    pub async fn no_boot_node(&self, node: &str) -> Result<()> {
        let (label, _) = BOOT_NODES.split_once('=').context("a label")?;
        self.kubectl(&["label", "node", node, &format!("{label}-")]).await.map(drop)
    }

    /// Once no pod of the boot service is there.
    pub async fn no_provisioning_leg(&self, node: &str) -> Result<()> {
        self.enter(CONTROL_PLANE, &["ip", "link", "del", &format!("p-{node}")]).await.map(drop)
    }

    /// By helm, with these values besides those of before. kubelets replace the pods afterwards.
    pub async fn change_boot(&self, values: &[&str]) -> Result<()> {
        let flags = values.iter().map(|value| format!("--set={value}"));
        let flags: Vec<String> = ["--reuse-values".to_owned()].into_iter().chain(flags).collect();
        self.chart("metalplane", &flags).await
    }

    pub async fn boot_set(&self) -> Result<Value> {
        let set = self.get(&["statefulset", "metalplane-boot", "-n", SYSTEM_NAMESPACE]).await?;
        set.context("the boot service's StatefulSet does not exist")
    }
}

/// A client at the control plane's leg in the provisioning network, that asks in a server's name.
pub struct BootClient<'a> {
    site: &'a Site,
    mac: String,
    replicas: [Ipv4Addr; 2],
    asks: Perl,
    asked: u32,
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// Each with an OFFER, and the address in it.
    pub dhcp: BTreeSet<(Ipv4Addr, Ipv4Addr)>,
    pub http: BTreeSet<Ipv4Addr>,
    pub tftp: BTreeSet<Ipv4Addr>,
}

impl<'a> BootClient<'a> {
    pub async fn of(site: &'a Site, server: &str, replicas: [Ipv4Addr; 2]) -> Result<Self> {
        let mac = Provisioned::of(server)?.mac;
        let inside = site.sandbox.enter(CONTROL_PLANE);
        let asks = Perl::start(inside, "the provisioning network", DISCOVER, &[BRIDGE, &mac]).await?;
        Ok(Self { site, mac, replicas, asks, asked: 0 })
    }

    /// Each protocol is asked of both replicas at the same moment: one that was ready before the other was ended answers.
    pub async fn answered(&mut self) -> Result<Answered> {
        let dhcp = self.offers().await?;
        let script = self.ask(|replica| format!("http://{replica}:7080/ipxe/script/{}/auto.ipxe", self.mac)).await;
        let program = self.ask(|replica| format!("tftp://{replica}/{}/ipxe.efi", self.mac)).await;
        let agent = format!("worker_id={}", self.mac);
        let http = script.into_iter().filter(|(_, text)| text.contains(&agent)).map(|(replica, _)| replica).collect();
        Ok(Answered { dhcp, http, tftp: program.into_keys().collect() })
    }

    /// What those answer that do.
    async fn ask(&self, url: impl Fn(Ipv4Addr) -> String) -> BTreeMap<Ipv4Addr, String> {
        let [first, second] = self.replicas.map(url);
        let (first, second) = tokio::join!(self.curl(&first), self.curl(&second));
        self.replicas.into_iter().zip([first, second]).filter_map(|(replica, text)| Some((replica, text?))).collect()
    }

    /// Until both have made an offer, or the time is over in which the other one had if it ran.
    async fn offers(&mut self) -> Result<BTreeSet<(Ipv4Addr, Ipv4Addr)>> {
        self.asked += 1;
        self.asks.is_told(&self.asked.to_string()).await?;
        let asked = Instant::now();
        loop {
            let mut offers = BTreeSet::new();
            for line in self.asks.heard() {
                let [number, server, address] = line.split(' ').collect::<Vec<_>>()[..] else { continue };
                if number.parse() == Ok(self.asked) {
                    offers.insert((server.parse()?, address.parse()?));
                }
            }
            let patience = if offers.is_empty() { FIRST } else { OFFERED };
            if offers.len() == self.replicas.len() || asked.elapsed() > patience {
                return Ok(offers);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// `None`: no answer, or none that serves.
    async fn curl(&self, url: &str) -> Option<String> {
        let words = ["curl", "-sS", "--fail", "--tftp-blksize", "1428", "--max-time", CURL_LIMIT, url];
        run(self.site.sandbox.enter(CONTROL_PLANE), &words, None).await.ok()
    }
}
