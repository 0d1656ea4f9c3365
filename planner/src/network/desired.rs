//! What a Vpc, a Subnet and a SecurityGroup are in OVN. Of a VNic: [`super::port`].

use super::rows::{self, Direction, Peer, Rule};
use super::{cidr, provider};
use crate::machine::observed::uid;
use api::network::{self as declared, Dhcp, IpFamily, Ipv6Mode, Metadata, PortRange, Protocol};
use api::{ProviderNetwork, SecurityGroup, Subnet, Vpc, names};
use std::net::IpAddr;

/// Of a Subnet: what an underlay of 1500 bytes leaves beside the headers of Geneve over IPv4 (RFC 8926; OVN's option included).
pub const MTU: u16 = 1442;
/// Of a Subnet on a VLAN: what Ethernet carries.
const ETHERNET: u16 = 1500;

/// Of its guests.
pub fn mtu(subnet: &Subnet) -> u16 {
    subnet.spec.mtu.unwrap_or(if subnet.spec.provider_network.is_some() { ETHERNET } else { MTU })
}

/// `hops`: of its routes, those that the router is told of (`super::routes`).
pub fn vpc(vpc: &Vpc, hops: Vec<rows::Hop>) -> rows::Vpc {
    rows::Vpc { uid: uid(&vpc.metadata).to_owned(), hops }
}

/// Its networks, each with the router that leads out of it.
pub(super) fn families(subnet: &Subnet, provider: Option<&ProviderNetwork>) -> Vec<rows::Family> {
    let mut families = cidr::families(&subnet.spec);
    let routers = provider.map(|network| provider::networks(&network.spec)).unwrap_or_default();
    for (network, router) in routers {
        families.iter_mut().filter(|family| family.network == network).for_each(|family| family.gateway = router);
    }
    families
}

/// Of the Vpc's router in the Subnet with this UID.
pub(super) fn router_mac(uid: &str) -> String {
    names::mac(uid, 0)
}

/// `None`: its cidr is none, which the API server refuses. `provider`: the network that it is on.
pub fn subnet(subnet: &Subnet, vpc: &Vpc, provider: Option<&ProviderNetwork>) -> Option<rows::Subnet> {
    let families = families(subnet, provider);
    let (dns, ntp_servers) = (&vpc.spec.dns, addresses(&dhcp_of(subnet).ntp_servers).collect());
    (!families.is_empty()).then(|| rows::Subnet {
        uid: uid(&subnet.metadata).to_owned(),
        vpc_uid: uid(&vpc.metadata).to_owned(),
        families,
        router_mac: router_mac(uid(&subnet.metadata)),
        mtu: mtu(subnet),
        dhcp: dhcp(subnet).then(|| rows::Dhcp { lease_seconds: dhcp_of(subnet).lease_seconds, ntp_servers }),
        slaac: subnet.spec.ipv6_mode == Some(Ipv6Mode::SLAAC),
        dns_servers: dns.iter().flat_map(|dns| addresses(&dns.servers)).collect(),
        domain: dns.as_ref().and_then(|dns| dns.domain.clone()),
        metadata: metadata(subnet),
        vlan: provider.map(provider::vlan),
    })
}

/// Whether its guests are answered at the metadata address.
pub fn metadata(subnet: &Subnet) -> bool {
    subnet.spec.metadata == Metadata::Enabled
}

fn dhcp_of(subnet: &Subnet) -> Dhcp {
    subnet.spec.dhcp.clone().unwrap_or_default()
}

/// Whether its guests are answered who ask by DHCP.
pub fn dhcp(subnet: &Subnet) -> bool {
    dhcp_of(subnet).enabled
}

fn addresses(texts: &[String]) -> impl Iterator<Item = IpAddr> {
    texts.iter().filter_map(|text| text.parse().ok())
}

/// `uid_of`: of the SecurityGroups of its Vpc, by name. A peer that is none of them is nobody.
pub fn group(group: &SecurityGroup, uid_of: impl Fn(&str) -> Option<String>) -> rows::Group {
    let peers = |peers: &Option<Vec<declared::Peer>>| {
        peers.as_ref().map(|peers| peers.iter().filter_map(|one| peer(one, &uid_of)).collect())
    };
    let ingress = group.spec.ingress.iter().map(|rule| Rule {
        direction: Direction::Ingress,
        peers: peers(&rule.from),
        ports: ports(&rule.ports),
        icmp: rule.icmp.as_ref().map(icmp),
    });
    let everything = vec![declared::EgressRule::default()];
    let egress = group.spec.egress.as_ref().unwrap_or(&everything).iter().map(|rule| Rule {
        direction: Direction::Egress,
        peers: peers(&rule.to),
        ports: ports(&rule.ports),
        icmp: rule.icmp.as_ref().map(icmp),
    });
    rows::Group { uid: uid(&group.metadata).to_owned(), rules: ingress.chain(egress).collect() }
}

/// The SecurityGroups that its rules name.
pub fn peers(group: &SecurityGroup) -> impl Iterator<Item = &str> {
    let ingress = group.spec.ingress.iter().filter_map(|rule| rule.from.as_ref());
    let egress = group.spec.egress.iter().flatten().filter_map(|rule| rule.to.as_ref());
    ingress.chain(egress).flatten().filter_map(|peer| peer.security_group.as_ref()).map(|group| group.name.as_str())
}

fn peer(peer: &declared::Peer, uid_of: impl Fn(&str) -> Option<String>) -> Option<Peer> {
    match (&peer.cidr, &peer.security_group) {
        (Some(cidr), _) => Some(Peer::Network {
            network: cidr.parse().ok()?,
            // One that is none leaves nobody: without it more would be let in than was asked for.
            except: peer.except.iter().map(|except| except.parse().ok()).collect::<Option<_>>()?,
        }),
        (None, group) => group.as_ref().and_then(|group| uid_of(&group.name)).map(Peer::Group),
    }
}

fn ports(ports: &Option<Vec<PortRange>>) -> Vec<(rows::Protocol, Option<(u16, u16)>)> {
    let protocol = |protocol| match protocol {
        Protocol::Tcp => rows::Protocol::Tcp,
        Protocol::Udp => rows::Protocol::Udp,
        Protocol::Sctp => rows::Protocol::Sctp,
    };
    let range = |range: &PortRange| range.port.map(|first| (first, range.end_port.unwrap_or(first)));
    ports.iter().flatten().map(|one| (protocol(one.protocol), range(one))).collect()
}

fn icmp(icmp: &declared::Icmp) -> rows::Icmp {
    rows::Icmp { v4: icmp.family == IpFamily::IPv4, kind: icmp.kind }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(spec: serde_json::Value) -> Vec<Rule> {
        let spec = serde_json::from_value(spec).expect("a spec");
        let uid_of = |name: &str| (name == "web").then(|| "w".to_owned());
        group(&SecurityGroup::new("g", spec), uid_of).rules
    }

    #[test]
    fn what_is_left_out_is_nothing_in_and_everything_out() {
        let vpc = serde_json::json!({"name": "blue"});
        let open = Rule { direction: Direction::Egress, peers: None, ports: vec![], icmp: None };
        assert_eq!(rules(serde_json::json!({"vpc": vpc})), [open]);
        assert_eq!(rules(serde_json::json!({"vpc": vpc, "egress": []})), []);
    }

    #[test]
    fn a_peer_that_is_missing_is_nobody() {
        let from = |group: &str| {
            let from = serde_json::json!([{"securityGroup": {"name": group}}]);
            rules(serde_json::json!({"vpc": {"name": "blue"}, "ingress": [{"from": from}], "egress": []}))
        };
        assert_eq!(from("web")[0].peers, Some(vec![Peer::Group("w".to_owned())]));
        assert_eq!(from("missing")[0].peers, Some(vec![]), "not `None`, which is anywhere");
    }

    #[test]
    fn ports_are_ranges() {
        let ports = serde_json::json!([{"protocol": "TCP", "port": 443, "endPort": 445}, {"protocol": "UDP", "port": 53},
            {"protocol": "SCTP"}]);
        let rules = rules(serde_json::json!({"vpc": {"name": "blue"}, "ingress": [{"ports": ports}], "egress": []}));
        let (tcp, udp, sctp) = (rows::Protocol::Tcp, rows::Protocol::Udp, rows::Protocol::Sctp);
        assert_eq!(rules[0].ports, [(tcp, Some((443, 445))), (udp, Some((53, 53))), (sctp, None)]);
    }
}
