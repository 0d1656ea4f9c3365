//! What is allowed, by the applied manifests alone: of nothing that Metalplane computes, and with none of its code.

use anyhow::{Context, Result};
use serde_json::Value;
use std::net::IpAddr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Packet {
    /// An echo request.
    Icmp,
    Tcp(u16),
    Udp(u16),
}

/// The objects as they were applied last.
#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    objects: Vec<Value>,
}

fn named<'a>(objects: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
    objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|text| Some(text.as_str()?.to_owned())).collect()
}

impl Model {
    /// One object takes the place of the one with its kind and name.
    pub(super) fn apply(&mut self, object: Value) {
        let same =
            |known: &Value| known["kind"] == object["kind"] && known["metadata"]["name"] == object["metadata"]["name"];
        self.objects.retain(|known| !same(known));
        self.objects.push(object);
    }

    pub(super) fn vpc(&self, vnic: &str) -> Result<String> {
        let vnic = named(&self.objects, "VNic", vnic).context("no such VNic")?;
        let subnet = named(&self.objects, "Subnet", vnic["spec"]["subnet"].as_str().unwrap_or_default());
        Ok(subnet.context("no such Subnet")?["spec"]["vpc"]["name"].as_str().context("no Vpc")?.to_owned())
    }

    pub(super) fn addresses(&self, vnic: &str) -> Vec<IpAddr> {
        let vnic = named(&self.objects, "VNic", vnic);
        let all = vnic.map(|vnic| strings(&vnic["spec"]["addresses"])).unwrap_or_default();
        all.iter().filter_map(|address| address.parse().ok()).collect()
    }

    /// Who has to receive what `from` sends to this address: one of its own Vpc, or nobody.
    pub(super) fn receiver(&self, from: &str, source: IpAddr, to: IpAddr, packet: Packet) -> Result<Option<String>> {
        let vpc = self.vpc(from)?;
        let vnics = self.objects.iter().filter(|object| object["kind"] == "VNic");
        for receiver in vnics.filter_map(|vnic| vnic["metadata"]["name"].as_str()) {
            if self.vpc(receiver)? == vpc && self.addresses(receiver).contains(&to) {
                let allowed =
                    self.passes(from, "egress", to, packet) && self.passes(receiver, "ingress", source, packet);
                return Ok(allowed.then(|| receiver.to_owned()));
            }
        }
        Ok(None)
    }

    /// One rule of one of the groups lets it pass; a group without `egress` lets everything out.
    fn passes(&self, vnic: &str, direction: &str, other: IpAddr, packet: Packet) -> bool {
        self.groups(vnic).iter().filter_map(|group| named(&self.objects, "SecurityGroup", group)).any(|group| {
            let Some(rules) = group["spec"][direction].as_array() else { return direction == "egress" };
            let peers = if direction == "ingress" { "from" } else { "to" };
            rules.iter().any(|rule| {
                self.is_peer(&rule[peers], other, &group["spec"]["vpc"]["name"]) && fits(rule, other, packet)
            })
        })
    }

    fn groups(&self, vnic: &str) -> Vec<String> {
        named(&self.objects, "VNic", vnic).map(|vnic| strings(&vnic["spec"]["securityGroups"])).unwrap_or_default()
    }

    fn is_peer(&self, peers: &Value, other: IpAddr, vpc: &Value) -> bool {
        let Some(peers) = peers.as_array() else { return true };
        peers.iter().any(|peer| match peer["securityGroup"]["name"].as_str() {
            Some(group) => self.objects.iter().filter(|object| object["kind"] == "VNic").any(|vnic| {
                let name = vnic["metadata"]["name"].as_str().unwrap_or_default();
                let is_member =
                    self.groups(name).iter().any(|of| of == group) && self.vpc(name).is_ok_and(|own| *vpc == own);
                is_member && self.addresses(name).contains(&other)
            }),
            None => {
                is_in(&peer["cidr"], other) && !peer["except"].as_array().into_iter().flatten().any(|e| is_in(e, other))
            }
        })
    }
}

fn is_in(network: &Value, address: IpAddr) -> bool {
    let Some((network, length)) = network.as_str().and_then(|text| text.split_once('/')) else { return false };
    let (Ok(network), Ok(length)) = (network.parse::<IpAddr>(), length.parse::<u32>()) else { return false };
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    };
    let ((network, width), (address, other_width)) = (bits(network), bits(address));
    width == other_width && (length == 0 || (network ^ address) >> (128 - length) == 0)
}

fn fits(rule: &Value, other: IpAddr, packet: Packet) -> bool {
    if let Some(icmp) = rule["icmp"].as_object() {
        let echo = if other.is_ipv4() { ("IPv4", 8) } else { ("IPv6", 128) };
        let of_type = icmp.get("type").and_then(Value::as_u64).is_none_or(|of| of == echo.1);
        return packet == Packet::Icmp && icmp["family"] == echo.0 && of_type;
    }
    let Some(ports) = rule["ports"].as_array() else { return true };
    let (protocol, port) = match packet {
        Packet::Icmp => return false,
        Packet::Tcp(port) => ("TCP", u64::from(port)),
        Packet::Udp(port) => ("UDP", u64::from(port)),
    };
    ports.iter().any(|range| {
        let first = range["port"].as_u64();
        let last = range["endPort"].as_u64().or(first);
        range["protocol"] == protocol && first.is_none_or(|first| first <= port) && last.is_none_or(|last| port <= last)
    })
}
