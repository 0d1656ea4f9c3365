//! What the range of a Subnet says of an address.

use api::network::SubnetSpec;
use ipnet::IpNet;
use std::net::IpAddr;

/// Addresses and their length, of `10.20.0.0/24`.
pub fn network(subnet: &SubnetSpec) -> Option<IpNet> {
    subnet.cidr.parse().ok()
}

pub(super) fn contains(subnet: &SubnetSpec, address: &str) -> bool {
    network(subnet).zip(address.parse::<IpAddr>().ok()).is_some_and(|(network, address)| network.contains(&address))
}

/// What an address is that no VNic can have. A range of one or two addresses has none but the gateway (RFC 3021, RFC 6164).
pub(super) fn reserved(subnet: &SubnetSpec, address: &str) -> Option<&'static str> {
    let address = address.parse::<IpAddr>().ok()?;
    if subnet.gateway.as_deref().and_then(|gateway| gateway.parse::<IpAddr>().ok()) == Some(address) {
        return Some("gateway");
    }
    let network = network(subnet)?;
    if network.max_prefix_len() - network.prefix_len() < 2 {
        return None;
    }
    match network {
        _ if address == network.network() => Some("network address"),
        IpNet::V4(network) if address == network.broadcast() => Some("broadcast address"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnet(cidr: &str, gateway: Option<&str>) -> SubnetSpec {
        SubnetSpec { vpc: api::network::default_vpc(), cidr: cidr.to_owned(), gateway: gateway.map(str::to_owned) }
    }

    #[test]
    fn the_ends_of_a_range_and_its_gateway_are_reserved() {
        let blue = subnet("10.20.0.0/24", Some("10.20.0.1"));
        assert_eq!(reserved(&blue, "10.20.0.1"), Some("gateway"));
        assert_eq!(reserved(&blue, "10.20.0.0"), Some("network address"));
        assert_eq!(reserved(&blue, "10.20.0.255"), Some("broadcast address"));
        assert_eq!(reserved(&blue, "10.20.0.7"), None);
        let two = subnet("10.20.0.0/31", None);
        assert_eq!((reserved(&two, "10.20.0.0"), reserved(&two, "10.20.0.1")), (None, None));
        let six = subnet("fd00:20::/64", Some("fd00:20::1"));
        assert_eq!(reserved(&six, "fd00:20:0:0::1"), Some("gateway"));
        assert_eq!(reserved(&six, "fd00:20::"), Some("network address"));
        assert_eq!(reserved(&six, "fd00:20::ffff:ffff:ffff:ffff"), None, "IPv6 has no broadcast");
    }

    #[test]
    fn an_address_is_inside_or_not() {
        let blue = subnet("10.20.0.0/24", None);
        assert!(contains(&blue, "10.20.0.7") && !contains(&blue, "10.20.1.7") && !contains(&blue, "fd00::7"));
        assert!(contains(&subnet("fd00:20::/64", None), "FD00:20::7"));
    }
}
