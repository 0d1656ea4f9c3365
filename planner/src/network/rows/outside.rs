//! The way out: a ProviderNetwork is a switch that each gateway's chassis joins to a bridge of its own, a NatGateway the port of a
//! Vpc's router on it, a FloatingIP a translation on that router.
//!
//! The switch has no deny: no guest has a port on it, routers and the data centre meet there. What reaches a guest passes the
//! rules of its own Subnet's switch. The switch of a Subnet that is on the network joins the VLAN by a port of its own.

use super::{Cell, Maker, Row, RowId, Table};
use ipnet::IpNet;
use std::net::IpAddr;

const LOCALNET: &str = "localnet";
const OUTSIDE: &str = "outside";
const PORT: &str = "port";
/// That of the first of a NatGateway's chassis; those behind it have less (ovn-nb(5): 0 to 32,767).
const FIRST: usize = 100;

/// A network of the data centre, as it comes to a chassis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vlan {
    /// As chassis name it in `ovn-bridge-mappings`.
    pub physical_network: String,
    pub tag: Option<u16>,
}

impl Vlan {
    /// The port by which the switch of this object joins it (ovn-nb(5), "localnet").
    pub(super) fn port(&self, maker: &Maker<'_>) -> Row {
        let columns = [
            ("name", Cell::Text(Self::port_name(maker.uid))),
            ("type", Cell::text("localnet")),
            ("addresses", Cell::text("unknown")),
            ("options", Cell::pairs([("network_name", self.physical_network.clone())])),
            ("tag", self.tag.map_or(Cell::Empty, |tag| Cell::Number(tag.into()))),
        ];
        let port = maker.row(Table::LogicalSwitchPort, LOCALNET, columns);
        port.in_set(RowId::of(maker.uid), Table::LogicalSwitch, "ports")
    }

    pub(super) fn port_name(uid: &str) -> String {
        RowId::part(uid, LOCALNET).name()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    pub uid: String,
    pub vlan: Vlan,
}

impl Provider {
    pub fn rows(&self, site: &str) -> Vec<Row> {
        let maker = Maker { site, kind: "ProviderNetwork", uid: &self.uid };
        let switch = RowId::of(&self.uid);
        vec![maker.row(Table::LogicalSwitch, "", [("name", Cell::Text(switch.name()))]), self.vlan.port(&maker)]
    }
}

/// One family of a NatGateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WayOut {
    pub address: IpAddr,
    /// The ProviderNetwork's.
    pub network: IpNet,
    /// The data centre's router.
    pub gateway: Option<IpAddr>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateway {
    pub uid: String,
    pub vpc_uid: String,
    pub network_uid: String,
    pub mac: String,
    pub families: Vec<WayOut>,
    /// Which carry it: the first one that is alive does.
    pub chassis: Vec<String>,
}

impl Gateway {
    pub fn rows(&self, site: &str) -> Vec<Row> {
        let maker = Maker { site, kind: "NatGateway", uid: &self.uid };
        let (inner, outer) = (RowId::part(&self.uid, PORT), RowId::part(&self.uid, OUTSIDE));
        let router = |row: Row, set| row.in_set(RowId::of(&self.vpc_uid), Table::LogicalRouter, set);
        let networks = self.families.iter().map(|one| format!("{}/{}", one.address, one.network.prefix_len()));
        let port = [
            ("name", Cell::Text(inner.name())),
            ("mac", Cell::Text(self.mac.clone())),
            ("networks", Cell::texts(networks)),
        ];
        let of_switch = [
            ("name", Cell::Text(outer.name())),
            ("type", Cell::text("router")),
            ("addresses", Cell::text("router")),
            // The chassis that carries it announces each translated address as its own.
            ("options", Cell::pairs([("router-port", inner.name()), ("nat-addresses", "router".to_owned())])),
        ];
        let mut rows = vec![
            router(maker.row(Table::LogicalRouterPort, PORT, port), "ports"),
            maker.row(Table::LogicalSwitchPort, OUTSIDE, of_switch).in_set(
                RowId::of(&self.network_uid),
                Table::LogicalSwitch,
                "ports",
            ),
        ];
        for (place, chassis) in self.chassis.iter().enumerate() {
            let part = format!("chassis-{chassis}");
            let columns = [
                ("name", Cell::Text(RowId::part(&self.uid, &part).name())),
                ("chassis_name", Cell::Text(chassis.clone())),
                ("priority", Cell::Number(FIRST.saturating_sub(place).try_into().unwrap_or_default())),
            ];
            rows.push(maker.row(Table::GatewayChassis, &part, columns).in_set(
                inner.clone(),
                Table::LogicalRouterPort,
                "gateway_chassis",
            ));
        }
        for family in &self.families {
            let (name, all) = match family.network {
                IpNet::V4(_) => ("ipv4", "0.0.0.0/0"),
                IpNet::V6(_) => ("ipv6", "::/0"),
            };
            // Whatever leaves by it, a network behind an appliance of the Vpc included.
            let columns = [
                ("type", Cell::text("snat")),
                ("external_ip", Cell::Text(family.address.to_string())),
                ("logical_ip", Cell::text(all)),
            ];
            rows.push(router(maker.row(Table::Nat, &format!("snat-{name}"), columns), "nat"));
            if let Some(gateway) = family.gateway {
                let columns = [
                    ("ip_prefix", Cell::text(all)),
                    ("nexthop", Cell::Text(gateway.to_string())),
                    ("output_port", Cell::Text(inner.name())),
                ];
                rows.push(router(maker.row(Table::StaticRoute, &format!("default-{name}"), columns), "static_routes"));
            }
        }
        rows
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Floating {
    pub uid: String,
    pub vpc_uid: String,
    pub outer: IpAddr,
    /// The VNic's.
    pub inner: IpAddr,
    /// The port of the VNic, and a MAC address for the outer address: the chassis of the port, which has the network, translates
    /// itself. `None`: the NatGateway's does.
    pub here: Option<(String, String)>,
}

impl Floating {
    pub fn rows(&self, site: &str) -> Vec<Row> {
        let maker = Maker { site, kind: "FloatingIP", uid: &self.uid };
        let (port, mac) = match &self.here {
            Some((port, mac)) => (Cell::Text(port.clone()), Cell::Text(mac.clone())),
            None => (Cell::Empty, Cell::Empty),
        };
        let columns = [
            ("type", Cell::text("dnat_and_snat")),
            ("external_ip", Cell::Text(self.outer.to_string())),
            ("logical_ip", Cell::Text(self.inner.to_string())),
            ("logical_port", port),
            ("external_mac", mac),
        ];
        vec![maker.row(Table::Nat, "", columns).in_set(RowId::of(&self.vpc_uid), Table::LogicalRouter, "nat")]
    }
}
