//! A SecurityGroup: a set of ports, and what each of them may receive and send beside the answers to it.

use super::{Cell, Maker, Row, RowId, Table};
use ipnet::IpNet;

/// Above all that a switch says of itself (`subnet.rs`).
const ALLOW: i64 = 2000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the port.
    Ingress,
    /// From the port.
    Egress,
}

impl Direction {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ingress => "to-lport",
            Self::Egress => "from-lport",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    Network {
        network: IpNet,
        except: Vec<IpNet>,
    },
    /// The members of the group with this UID.
    Group(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Icmp {
    pub v4: bool,
    pub kind: Option<u8>,
}

/// What passes. Nothing named is everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub direction: Direction,
    /// `None`: from, or to, anywhere. Empty: nobody.
    pub peers: Option<Vec<Peer>>,
    /// First and last port; `None`: every port.
    pub ports: Vec<(Protocol, Option<(u16, u16)>)>,
    /// In place of ports.
    pub icmp: Option<Icmp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub uid: String,
    pub rules: Vec<Rule>,
}

/// The name of a group's Port_Group. Matches name it, and know letters, digits, `_` and `.` only (ovn-sb(5), "Logical_Flow").
fn name(uid: &str) -> String {
    format!("mp_{}", uid.replace('-', "_"))
}

impl Group {
    /// Rules that differ in their peers alone are one rule with all of those peers, so one ACL for each family.
    pub fn merged(&self) -> Vec<Rule> {
        let mut merged: Vec<Rule> = Vec::new();
        for rule in &self.rules {
            let alike = |there: &&mut Rule| {
                (there.direction, &there.ports, there.icmp) == (rule.direction, &rule.ports, rule.icmp)
            };
            match merged.iter_mut().find(alike) {
                None => merged.push(rule.clone()),
                Some(there) => match (&mut there.peers, &rule.peers) {
                    (Some(all), Some(more)) => {
                        let new: Vec<Peer> = more.iter().filter(|peer| !all.contains(peer)).cloned().collect();
                        all.extend(new);
                    }
                    // From anywhere: whoever is named beside that is in it.
                    (all, _) => *all = None,
                },
            }
        }
        merged
    }

    pub fn rows(&self, site: &str) -> Vec<Row> {
        let maker = Maker { site, kind: "SecurityGroup", uid: &self.uid };
        let group = maker.row(Table::PortGroup, "", [("name", Cell::Text(name(&self.uid)))]);
        let mut rows = vec![group];
        for (number, rule) in self.merged().iter().enumerate() {
            for v4 in [true, false] {
                let Some(matches) = rule.matches(&self.uid, v4) else { continue };
                let part = format!("{}-{number}-ip{}", rule.direction.word(), if v4 { 4 } else { 6 });
                let acl = maker.acl(&part, rule.direction, ALLOW, matches, "allow-related");
                rows.push(acl.in_set(RowId::of(&self.uid), Table::PortGroup, "acls"));
            }
        }
        rows
    }
}

impl Rule {
    /// `None`: nothing of this family can match.
    fn matches(&self, group: &str, v4: bool) -> Option<String> {
        let (port, side) = match self.direction {
            Direction::Ingress => ("outport", "src"),
            Direction::Egress => ("inport", "dst"),
        };
        let family = if v4 { "ip4" } else { "ip6" };
        let mut all = vec![format!("{port} == @{}", name(group)), family.to_owned()];
        if let Some(peers) = &self.peers {
            let field = format!("{family}.{side}");
            let any: Vec<String> = peers.iter().filter_map(|peer| peer.matches(&field, v4)).collect();
            all.push(any_of(any)?);
        }
        match self.icmp {
            Some(icmp) if icmp.v4 != v4 => return None,
            Some(icmp) => {
                let protocol = if v4 { "icmp4" } else { "icmp6" };
                all.push(icmp.kind.map_or(protocol.to_owned(), |kind| format!("{protocol}.type == {kind}")));
            }
            None if self.ports.is_empty() => {}
            None => all.push(any_of(self.ports.iter().map(|(protocol, ports)| of_ports(*protocol, *ports)).collect())?),
        }
        Some(all.join(" && "))
    }
}

impl Peer {
    fn matches(&self, field: &str, v4: bool) -> Option<String> {
        let same = |network: &IpNet| network.network().is_ipv4() == v4;
        match self {
            // The set of the members' addresses, which OVN keeps by itself (ovn-nb(5), "Port_Group").
            Self::Group(uid) => Some(format!("{field} == ${}_ip{}", name(uid), if v4 { 4 } else { 6 })),
            Self::Network { network, .. } if !same(network) => None,
            Self::Network { network, except } => {
                let except: Vec<String> = except.iter().filter(|one| same(one)).map(ToString::to_string).collect();
                let inside = format!("{field} == {network}");
                Some(match except.is_empty() {
                    true => inside,
                    false => format!("({inside} && {field} != {{{}}})", except.join(", ")),
                })
            }
        }
    }
}

fn of_ports(protocol: Protocol, ports: Option<(u16, u16)>) -> String {
    let name = protocol.name();
    match ports {
        None => name.to_owned(),
        Some((first, last)) if first == last => format!("{name}.dst == {first}"),
        Some((first, last)) => format!("{first} <= {name}.dst <= {last}"),
    }
}

fn any_of(any: Vec<String>) -> Option<String> {
    match any.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        _ => Some(format!("({})", any.join(" || "))),
    }
}
