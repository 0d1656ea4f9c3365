//! What OVN itself says of a packet: ovn-trace, over the logical flows that northd has compiled, with a new connection at every stage of
//! connection tracking. With one stage fewer it says yes to what is dropped later.

use super::model::Packet;
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;
use tests::site::Site;

/// More than any path has: switch, router and switch with two each.
const STAGES: usize = 12;
const MARK: &str = "@judge ";

#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub switch: String,
    pub port: String,
    pub source_mac: String,
    pub destination_mac: String,
    pub source: IpAddr,
    pub destination: IpAddr,
    pub packet: Packet,
}

impl Asked {
    fn flow(&self) -> String {
        let Self { port, source_mac, destination_mac, source, destination, packet, .. } = self;
        let (ip, icmp) = match destination {
            IpAddr::V4(_) => ("ip4", "icmp4.type == 8"),
            IpAddr::V6(_) => ("ip6", "icmp6.type == 128"),
        };
        let what = match packet {
            Packet::Icmp => icmp.to_owned(),
            Packet::Tcp(port) => format!("tcp.src == 40000 && tcp.dst == {port}"),
            Packet::Udp(port) => format!("udp.src == 40000 && udp.dst == {port}"),
        };
        format!(
            "inport == \"{port}\" && eth.src == {source_mac} && eth.dst == {destination_mac} && {ip}.src == {source} && \
             {ip}.dst == {destination} && ip.ttl == 64 && {what}"
        )
    }
}

/// What one argument of a program has room for (128 KiB).
const AT_ONCE: usize = 100;

/// To which ports each is given, in order. Friendly names would be cut to six digits of a UID.
pub(super) async fn outputs(site: &Site, asked: &[Asked]) -> Result<Vec<BTreeSet<String>>> {
    let mut all = Vec::with_capacity(asked.len());
    for some in asked.chunks(AT_ONCE) {
        all.extend(some_outputs(site, some).await?);
    }
    Ok(all)
}

async fn some_outputs(site: &Site, asked: &[Asked]) -> Result<Vec<BTreeSet<String>>> {
    let states = "--ct=new ".repeat(STAGES);
    let mut script = String::from("set -e\n");
    for (number, one) in asked.iter().enumerate() {
        writeln!(script, "echo '{MARK}{number}'")?;
        writeln!(script, "ovn-trace --no-friendly-names --minimal {states}'{}' '{}'", one.switch, one.flow())?;
    }
    let said = site.enter("cp", &["sh", "-c", &script]).await.context("ovn-trace")?;
    let mut answers: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
    let mut number = 0;
    for line in said.lines() {
        if let Some(next) = line.strip_prefix(MARK) {
            number = next.trim().parse()?;
            answers.entry(number).or_default();
        } else if let Some((port, _)) = line.trim().strip_prefix("output(\"").and_then(|rest| rest.split_once('"')) {
            answers.entry(number).or_default().insert(port.to_owned());
        }
    }
    ensure!(answers.len() == asked.len(), "ovn-trace answered {} of {}", answers.len(), asked.len());
    Ok(answers.into_values().collect())
}
