//! What the ranges of a Subnet say of an address.

use super::rows::Family;
use crate::mac::eui64;
use api::names;
use api::network::SubnetSpec;
use ipnet::{IpNet, Ipv6Net};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How many addresses that a hash gives are preferred in an IPv6 network.
const HASHES: u32 = 4;

/// The ranges of the Subnet, at most one of each family.
pub fn networks(subnet: &SubnetSpec) -> Vec<IpNet> {
    [Some(&subnet.cidr), subnet.ipv6_cidr.as_ref()].into_iter().flatten().filter_map(|cidr| cidr.parse().ok()).collect()
}

/// The same, with the router's address in each.
pub fn families(subnet: &SubnetSpec) -> Vec<Family> {
    let written: Option<IpAddr> = subnet.gateway.as_deref().and_then(|gateway| gateway.parse().ok());
    let gateway = |network: IpNet| {
        let gateway = written.filter(|gateway| network.contains(gateway));
        subnet.routed.then(|| gateway.unwrap_or_else(|| first(network)))
    };
    networks(subnet).into_iter().map(|network| Family { network, gateway: gateway(network) }).collect()
}

/// The one that an address is of.
pub fn family_of(subnet: &SubnetSpec, address: &str) -> Option<Family> {
    let address = address.parse::<IpAddr>().ok()?;
    families(subnet).into_iter().find(|family| family.network.contains(&address))
}

/// Behind the network's own address.
fn first(network: IpNet) -> IpAddr {
    let step = u32::from(ends(network).is_some());
    match network {
        IpNet::V4(network) => Ipv4Addr::from(u32::from(network.network()) + step).into(),
        IpNet::V6(network) => Ipv6Addr::from(u128::from(network.network()) + u128::from(step)).into(),
    }
}

/// How many IPv4 addresses there are for VNics and the router.
pub fn total(network: IpNet) -> Option<u32> {
    let IpNet::V4(network) = network else { return None };
    let all = u64::from(u32::from(network.hostmask())) + 1;
    u32::try_from(if ends(network.into()).is_some() { all - 2 } else { all }).ok()
}

/// What an address is that no VNic can have. A range of one or two addresses has none but the gateway (RFC 3021, RFC 6164).
pub(super) fn reserved(subnet: &SubnetSpec, address: &str) -> Option<&'static str> {
    let family = family_of(subnet, address)?;
    let address = address.parse::<IpAddr>().ok()?;
    if family.gateway == Some(address) {
        return Some("gateway");
    }
    let (network, broadcast) = ends(family.network)?;
    match address {
        _ if address == network => Some("network address"),
        _ if Some(address) == broadcast => Some("broadcast address"),
        _ => None,
    }
}

/// The network's own address, or that of all.
pub(super) fn is_end(network: IpNet, address: IpAddr) -> bool {
    ends(network).is_some_and(|(own, broadcast)| address == own || broadcast == Some(address))
}

/// The network's own address, and that of all (IPv4).
fn ends(network: IpNet) -> Option<(IpAddr, Option<IpAddr>)> {
    let has_ends = network.max_prefix_len() - network.prefix_len() >= 2;
    let broadcast = network.network().is_ipv4().then(|| network.broadcast());
    has_ends.then(|| (network.network(), broadcast))
}

/// First and last of what is given to nobody, or only to who asks for it.
pub(super) fn not_chosen(subnet: &SubnetSpec, network: IpNet) -> Vec<(IpAddr, IpAddr)> {
    let (own, broadcast) = ends(network).unzip();
    let gateway = families(subnet).into_iter().filter(|family| family.network == network).find_map(|one| one.gateway);
    let single = own.into_iter().chain(broadcast.flatten()).chain(gateway).map(|address| (address, address));
    single.chain(subnet.reserved.iter().filter_map(|range| within(range, network))).collect()
}

/// `10.20.0.100-10.20.0.199`, or one address.
pub(super) fn within(range: &str, network: IpNet) -> Option<(IpAddr, IpAddr)> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (network.contains(&first) && network.contains(&last)).then_some((first, last))
}

/// Which IPv6 addresses a VNic gets before others: in a /64 that which SLAAC makes of its MAC address (RFC 4291 appendix A), so that
/// a guest which takes the one way has what the other would give; then what a hash of its UID says.
pub(super) fn preferred(network: IpNet, mac: &str, vnic_uid: &str) -> Vec<IpAddr> {
    let IpNet::V6(network) = network else { return Vec::new() };
    let hashed = (0..HASHES).map(|attempt| host(network, names::bits(vnic_uid, attempt)));
    let own = (network.prefix_len() == 64).then(|| eui64(mac)).flatten().map(|id| host(network, id.into()));
    own.into_iter().chain(hashed).map(IpAddr::V6).collect()
}

fn host(network: Ipv6Net, bits: u128) -> Ipv6Addr {
    Ipv6Addr::from(u128::from(network.network()) | (bits & u128::from(network.hostmask())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnet(cidr: &str, gateway: Option<&str>) -> SubnetSpec {
        serde_json::from_value(serde_json::json!({"cidr": cidr, "gateway": gateway})).expect("a spec")
    }

    #[test]
    fn the_ends_of_a_range_and_its_gateway_are_reserved() {
        let blue = subnet("10.20.0.0/24", Some("10.20.0.1"));
        assert_eq!(reserved(&blue, "10.20.0.1"), Some("gateway"));
        assert_eq!(reserved(&blue, "10.20.0.0"), Some("network address"));
        assert_eq!(reserved(&blue, "10.20.0.255"), Some("broadcast address"));
        assert_eq!(reserved(&blue, "10.20.0.7"), None);
        let two = subnet("10.20.0.0/31", None);
        assert_eq!((reserved(&two, "10.20.0.0"), reserved(&two, "10.20.0.1")), (Some("gateway"), None));
        let mut both = subnet("10.20.0.0/24", None);
        (both.ipv6_cidr, both.gateway) = (Some("fd00:20::/64".to_owned()), Some("10.20.0.254".to_owned()));
        assert_eq!((reserved(&both, "10.20.0.254"), reserved(&both, "10.20.0.1")), (Some("gateway"), None));
        assert_eq!(reserved(&both, "fd00:20::1"), Some("gateway"), "in the other family the first one");
        (both.routed, both.gateway) = (false, None);
        assert_eq!((reserved(&both, "10.20.0.1"), reserved(&both, "fd00:20::1")), (None, None), "no router");
        assert_eq!(networks(&both).into_iter().map(total).collect::<Vec<_>>(), [Some(254), None]);
        let six = subnet("fd00:20::/64", Some("fd00:20::1"));
        assert_eq!(reserved(&six, "fd00:20:0:0::1"), Some("gateway"));
        assert_eq!(reserved(&six, "fd00:20::"), Some("network address"));
        assert_eq!(reserved(&six, "fd00:20::ffff:ffff:ffff:ffff"), None, "IPv6 has no broadcast");
    }

    #[test]
    fn an_address_is_inside_or_not() {
        let blue = subnet("10.20.0.0/24", None);
        let inside = |address: &str| family_of(&blue, address).is_some();
        assert!(inside("10.20.0.7") && !inside("10.20.1.7") && !inside("fd00::7"));
        assert!(family_of(&subnet("fd00:20::/64", None), "FD00:20::7").is_some());
    }

    #[test]
    fn an_ipv6_address_is_that_of_the_mac_address_and_else_a_hash() {
        let wanted = |network: &str| preferred(network.parse().expect("a network"), "02:00:00:00:00:07", "uid");
        let of_64 = wanted("fd00:20::/64");
        assert_eq!(of_64[0].to_string(), "fd00:20::ff:fe00:7");
        let of_112 = wanted("fd00:20::/112");
        assert_eq!(of_112.len(), of_64.len() - 1, "no interface identifier fits");
        for (network, all) in [("fd00:20::/64", of_64), ("fd00:20::/112", of_112)] {
            let network: IpNet = network.parse().expect("a network");
            assert!(all.iter().all(|address| network.contains(address)), "{all:?}");
        }
        assert_eq!(wanted("10.20.0.0/24"), Vec::<IpAddr>::new());
    }
}
