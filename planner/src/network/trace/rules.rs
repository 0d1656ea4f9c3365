//! What the rules of a VNic's SecurityGroups say of a packet.

use super::{Network, Nic, Packet, Path, Step, addresses, step};
use crate::machine::observed::{name, uid};
use crate::network::rows::{Direction, Peer, Protocol, Rule};
use crate::network::{barrier, desired, groups};
use api::{SecurityGroup, Vpc};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

fn title(group: &SecurityGroup) -> String {
    format!("SecurityGroup '{}'", name(&group.metadata))
}

impl Network {
    /// The first rule that lets the packet pass, or the switch, which drops it.
    pub(super) fn rules(&self, nic: &Nic<'_>, direction: Direction, other: IpAddr, packet: Packet) -> Step {
        let word = if direction == Direction::Ingress { "ingress" } else { "egress" };
        for group in self.groups_of(nic) {
            for (number, rule) in self.rules_of(group, direction).iter().enumerate() {
                if !self.lets_pass(nic.vpc, rule, other, packet) {
                    continue;
                }
                let message = match (direction, &group.spec.egress) {
                    (Direction::Egress, None) => "spec.egress is left out: everything".to_owned(),
                    _ => format!("spec.{word}[{number}]"),
                };
                let groups = vec![uid(&group.metadata).to_owned()];
                return Step { groups, ..step(true, title(group), message) };
            }
        }
        let named: Vec<String> = self.groups_of(nic).map(title).collect();
        let (own, to_or_from) = (name(&nic.vnic.metadata), if direction == Direction::Ingress { "from" } else { "to" });
        let message = match named.as_slice() {
            [] => format!("default deny: VNic '{own}' is in no SecurityGroup"),
            named => {
                format!("default deny: no {word} rule of {} allows {packet} {to_or_from} {other}", named.join(", "))
            }
        };
        let groups = self.groups_of(nic).map(|group| uid(&group.metadata).to_owned()).collect();
        Step { groups, ..step(false, format!("Subnet '{}'", name(&nic.subnet.metadata)), message) }
    }

    /// Those that a VNic is in: they are there, and of its Vpc.
    fn groups_of<'a>(&'a self, nic: &Nic<'a>) -> impl Iterator<Item = &'a SecurityGroup> {
        let vpc = name(&nic.vpc.metadata);
        groups::named(nic.vnic, nic.vpc).iter().filter_map(move |named| self.group(vpc, named))
    }

    fn group(&self, vpc: &str, named: &str) -> Option<&SecurityGroup> {
        let is_it = |group: &&Arc<SecurityGroup>| name(&group.metadata) == named && group.spec.vpc.name == vpc;
        self.groups.iter().find(is_it).map(Arc::as_ref)
    }

    fn rules_of(&self, group: &SecurityGroup, direction: Direction) -> Vec<Rule> {
        let uid_of = |named: &str| self.group(&group.spec.vpc.name, named).map(|peer| uid(&peer.metadata).to_owned());
        let mut rules = desired::group(group, uid_of).rules;
        rules.retain(|rule| rule.direction == direction);
        rules
    }

    fn lets_pass(&self, vpc: &Vpc, rule: &Rule, other: IpAddr, packet: Packet) -> bool {
        let peer = |peer: &Peer| match peer {
            Peer::Network { network, except } => {
                network.contains(&other) && !except.iter().any(|except| except.contains(&other))
            }
            Peer::Group(group) => self.nics(vpc).any(|nic| {
                addresses(nic.vnic).contains(&other) && self.groups_of(&nic).any(|own| uid(&own.metadata) == group)
            }),
        };
        let from_peer = rule.peers.as_ref().is_none_or(|peers| peers.iter().any(peer));
        let port = |protocol: Protocol, asked: u16| {
            let fits = |(known, range): &(Protocol, Option<(u16, u16)>)| {
                *known == protocol && range.is_none_or(|(first, last)| (first..=last).contains(&asked))
            };
            rule.icmp.is_none() && (rule.ports.is_empty() || rule.ports.iter().any(fits))
        };
        from_peer
            && match packet {
                Packet::Tcp(asked) => port(Protocol::Tcp, asked),
                Packet::Udp(asked) => port(Protocol::Udp, asked),
                Packet::Icmp => match rule.icmp {
                    None => rule.ports.is_empty(),
                    Some(icmp) => {
                        let echo = if icmp.v4 { 8 } else { 128 };
                        icmp.v4 == other.is_ipv4() && icmp.kind.is_none_or(|kind| kind == echo)
                    }
                },
            }
    }

    /// Groups on the way whose rules are not known to be in force.
    pub(super) fn notes(&self, paths: &[Path]) -> Vec<String> {
        let asked: BTreeSet<&str> =
            paths.iter().flat_map(|path| &path.steps).flat_map(|step| &step.groups).map(String::as_str).collect();
        let decides = |group: &&Arc<SecurityGroup>| asked.contains(uid(&group.metadata));
        let not_yet = |group: &&Arc<SecurityGroup>| {
            let said = group.status.as_ref().map_or(&[][..], |status| &status.conditions);
            !barrier::is_said(group.metadata.generation, said)
        };
        let late = self.groups.iter().filter(decides).filter(not_yet);
        late.map(|group| {
            let (own, short) = (title(group), name(&group.metadata));
            format!("the rules of {own} are not in force everywhere. Next: kubectl describe sg {short}")
        })
        .collect()
    }
}
