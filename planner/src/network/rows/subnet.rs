//! A Subnet: a switch on which nothing passes that no group allows.
//!
//! The deny belongs to the switch, not to a membership: a port that is in no group can reach nothing, whatever is written in
//! which order. It is in the transaction that makes the switch, so no port is ever there without it.

use super::outside::Vlan;
use super::{Cell, Direction, Maker, Row, RowId, Table};
use crate::metadata::{ADDRESS_V4, ADDRESS_V6, PORT};
use api::names;
use ipnet::IpNet;
use std::net::IpAddr;

pub const DHCP4: &str = "dhcp4";
pub const DHCP6: &str = "dhcp6";
const ROUTER: &str = "router";
const GATEWAY: &str = "gateway";
const METADATA: &str = "metadata";

/// Priorities of ACLs: the deny, what the router is allowed, what the switch itself answers. Those of groups are above (`group.rs`).
const DENY: i64 = 1000;
const TO_ROUTER: i64 = 1100;
const TO_SWITCH: i64 = 1500;

/// Addresses of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    pub network: IpNet,
    /// The router's address in it; `None`: there is no router for this family.
    pub gateway: Option<IpAddr>,
}

/// What DHCP tells beside the addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dhcp {
    pub lease_seconds: u32,
    /// Of IPv4: OVN's DHCPv6 knows none.
    pub ntp_servers: Vec<IpAddr>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subnet {
    pub uid: String,
    pub vpc_uid: String,
    /// At most one of each.
    pub families: Vec<Family>,
    /// Of the router's port, and of the servers that the switch itself is; another for each Subnet.
    pub router_mac: String,
    pub mtu: u16,
    /// `None`: nobody is answered.
    pub dhcp: Option<Dhcp>,
    /// IPv6 addresses come from the prefix that the router advertises, not by DHCPv6.
    pub slaac: bool,
    pub dns_servers: Vec<IpAddr>,
    pub domain: Option<String>,
    /// Whether guests may ask at the metadata address.
    pub metadata: bool,
    /// That it is on; the gateways are the data centre's then, and the Vpc's router has no port here.
    pub vlan: Option<Vlan>,
}

/// Name and MAC address of the port at which the guests of the Subnet with this UID ask about themselves.
pub fn metadata_port(uid: &str) -> (String, String) {
    (RowId::part(uid, METADATA).name(), names::mac(uid, 1))
}

impl Subnet {
    pub fn rows(&self, site: &str) -> Vec<Row> {
        let maker = Maker { site, kind: "Subnet", uid: &self.uid };
        let switch = RowId::of(&self.uid);
        let mut rows = vec![maker.row(Table::LogicalSwitch, "", [("name", Cell::Text(switch.name()))])];
        rows.extend(self.acls(&maker).into_iter().map(|acl| acl.in_set(switch.clone(), Table::LogicalSwitch, "acls")));
        match &self.vlan {
            Some(vlan) => rows.push(vlan.port(&maker)),
            None => rows.extend(self.to_the_router(&maker)),
        }
        rows.extend(self.metadata.then(|| self.metadata(&maker)));
        rows.extend(self.dhcp.iter().flat_map(|dhcp| {
            let served = self.families.iter().filter(|family| !self.slaac || family.network.network().is_ipv4());
            served.map(|family| self.dhcp(&maker, dhcp, family))
        }));
        rows
    }

    fn acls(&self, maker: &Maker<'_>) -> Vec<Row> {
        use Direction::{Egress, Ingress};
        let beyond = match &self.vlan {
            Some(_) => Vlan::port_name(&self.uid),
            None => RowId::part(&self.uid, ROUTER).name(),
        };
        let dhcp = "(ip4 && udp.src == 68 && udp.dst == 67) || (ip6 && udp.src == 546 && udp.dst == 547)";
        let mut acls = vec![
            maker.acl("deny-ingress", Ingress, DENY, "ip".to_owned(), "drop"),
            maker.acl("deny-egress", Egress, DENY, "ip".to_owned(), "drop"),
            // What comes from and goes to the router, or the data centre, has passed, or passes, the rules of the guests' own ports.
            maker.acl("router-ingress", Ingress, TO_ROUTER, format!("outport == \"{beyond}\""), "allow-stateless"),
            maker.acl("router-egress", Egress, TO_ROUTER, format!("inport == \"{beyond}\""), "allow-stateless"),
            maker.acl("dhcp", Egress, TO_SWITCH, dhcp.to_owned(), "allow-stateless"),
        ];
        if self.metadata {
            acls.extend(self.metadata_acls(maker));
        }
        acls
    }

    fn metadata_acls(&self, maker: &Maker<'_>) -> [Row; 4] {
        use Direction::{Egress, Ingress};
        let port = RowId::part(&self.uid, METADATA).name();
        let either =
            |side: &str| format!("(ip4.{side} == {ADDRESS_V4} || ip6.{side} == {ADDRESS_V6}) && tcp.{side} == {PORT}");
        // Nobody else can send from these addresses: each port is held to its own (`port.rs`).
        let (asked, told) = (either("dst"), either("src"));
        // Stateless: the switch in user space tracks no connection of a guest that leaves checksums to its hardware.
        [
            ("metadata-asked", Egress, asked),
            ("metadata-heard", Ingress, format!("outport == \"{port}\" && tcp")),
            ("metadata-answered", Egress, format!("inport == \"{port}\"")),
            ("metadata-told", Ingress, told),
        ]
        .map(|(name, direction, matches)| maker.acl(name, direction, TO_SWITCH, matches, "allow-stateless"))
    }

    fn to_the_router(&self, maker: &Maker<'_>) -> Vec<Row> {
        let networks: Vec<String> = self
            .families
            .iter()
            .filter_map(|family| family.gateway.map(|gateway| format!("{gateway}/{}", family.network.prefix_len())))
            .collect();
        if networks.is_empty() {
            return Vec::new();
        }
        let (port, gateway) = (RowId::part(&self.uid, ROUTER), RowId::part(&self.uid, GATEWAY));
        let of_switch = [
            ("name", Cell::Text(port.name())),
            ("type", Cell::text("router")),
            ("addresses", Cell::text("router")),
            ("options", Cell::pairs([("router-port", gateway.name())])),
        ];
        let mut of_router = vec![
            ("name", Cell::Text(gateway.name())),
            ("mac", Cell::Text(self.router_mac.clone())),
            ("networks", Cell::texts(networks)),
            ("options", Cell::pairs([("gateway_mtu", self.mtu.to_string())])),
        ];
        if self.families.iter().any(|family| matches!(family.gateway, Some(IpAddr::V6(_)))) {
            // Addresses come by DHCPv6, and the router's advertisement says so (RFC 4861 section 4.2, flag M), or from its prefix.
            let mode = if self.slaac { "slaac" } else { "dhcpv6_stateful" };
            let mut said = vec![
                ("address_mode", mode.to_owned()),
                ("send_periodic", "true".to_owned()),
                ("mtu", self.mtu.to_string()),
            ];
            said.extend(self.dns(false).first().map(|server| ("rdnss", server.to_string())));
            said.extend(self.domain.iter().map(|domain| ("dnssl", domain.clone())));
            of_router.push(("ipv6_ra_configs", Cell::pairs(said)));
        }
        vec![
            maker.row(Table::LogicalSwitchPort, ROUTER, of_switch).in_set(
                RowId::of(&self.uid),
                Table::LogicalSwitch,
                "ports",
            ),
            maker.row(Table::LogicalRouterPort, GATEWAY, of_router).in_set(
                RowId::of(&self.vpc_uid),
                Table::LogicalRouter,
                "ports",
            ),
        ]
    }

    /// Where each chassis answers its own guests, and no other chassis' (ovn-nb(5), "localport").
    fn metadata(&self, maker: &Maker<'_>) -> Row {
        let (name, mac) = metadata_port(&self.uid);
        let port = [
            ("name", Cell::Text(name)),
            ("type", Cell::text("localport")),
            ("addresses", Cell::Text(format!("{mac} {ADDRESS_V4} {ADDRESS_V6}"))),
        ];
        maker.row(Table::LogicalSwitchPort, METADATA, port).in_set(RowId::of(&self.uid), Table::LogicalSwitch, "ports")
    }

    fn dns(&self, v4: bool) -> Vec<IpAddr> {
        self.dns_servers.iter().copied().filter(|server| server.is_ipv4() == v4).collect()
    }

    fn dhcp(&self, maker: &Maker<'_>, dhcp: &Dhcp, family: &Family) -> Row {
        let set = |option: &'static str, servers: &[IpAddr]| {
            let all: Vec<String> = servers.iter().map(ToString::to_string).collect();
            (!all.is_empty()).then(|| (option, format!("{{{}}}", all.join(", "))))
        };
        // A text of OVN's flows.
        let domain = |option: &'static str| self.domain.iter().map(move |domain| (option, format!("\"{domain}\"")));
        let v4 = family.network.network().is_ipv4();
        let (part, options) = if v4 {
            // A server has an address (RFC 2131 section 4.3.1, option 54): the router's, or the network's last but one host.
            let server = family
                .gateway
                .unwrap_or_else(|| family.network.hosts().next_back().unwrap_or(family.network.network()));
            let mut options = vec![
                ("server_id", server.to_string()),
                ("server_mac", self.router_mac.clone()),
                ("lease_time", dhcp.lease_seconds.to_string()),
                ("mtu", self.mtu.to_string()),
            ];
            // Clients that read option 121 ignore option 3 (RFC 3442): all routes stand in it. The metadata address is on the link.
            let mut routes: Vec<String> =
                self.metadata.then(|| format!("{ADDRESS_V4}/32,0.0.0.0")).into_iter().collect();
            if let Some(gateway) = family.gateway {
                options.push(("router", gateway.to_string()));
                routes.push(format!("0.0.0.0/0,{gateway}"));
            }
            if !routes.is_empty() {
                options.push(("classless_static_route", format!("{{{}}}", routes.join(", "))));
            }
            options.extend(set("dns_server", &self.dns(true)));
            options.extend(set("ntp_server", &dhcp.ntp_servers));
            options.extend(domain("domain_name"));
            (DHCP4, options)
        } else {
            let mut options = vec![("server_id", self.router_mac.clone())];
            options.extend(set("dns_server", &self.dns(false)));
            options.extend(domain("domain_search"));
            (DHCP6, options)
        };
        let columns = [("cidr", Cell::Text(family.network.to_string())), ("options", Cell::pairs(options))];
        maker.row(Table::DhcpOptions, part, columns)
    }
}
