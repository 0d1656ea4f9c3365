//! A VNic: a port on its Subnet's switch, bound to one chassis and one grant.

use super::{Cell, DHCP4, DHCP6, MAC, Maker, Row, RowId, Table};
use std::net::IpAddr;

/// Which chassis may bind the port (ovn-nb(5), options of Logical_Switch_Port).
pub const CHASSIS: &str = "requested-chassis";
/// No chassis is called so, and no grant.
pub const UNBOUND: &str = "none";

/// Where the port may be bound, and by which grant: what an earlier grant left on a switch binds nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    pub chassis: String,
    pub attachment_uid: String,
    pub epoch: u64,
}

impl Binding {
    /// What the interface on the chassis must say in `iface-id-ver`.
    pub fn version(&self) -> String {
        format!("{}.{}", self.attachment_uid, self.epoch)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    pub uid: String,
    /// What a chassis knows the port by (`iface-id`).
    pub name: String,
    pub subnet_uid: String,
    pub mac: String,
    pub addresses: Vec<IpAddr>,
    /// Whether the Subnet has DHCP options, for IPv4 and IPv6.
    pub dhcp: (bool, bool),
    /// UIDs of SecurityGroups.
    pub groups: Vec<String>,
    /// `None`: nobody may bind it.
    pub binding: Option<Binding>,
}

impl Port {
    pub fn rows(&self, site: &str) -> Vec<Row> {
        let maker = Maker { site, kind: "VNic", uid: &self.uid };
        let known: Vec<String> =
            [self.mac.clone()].into_iter().chain(self.addresses.iter().map(ToString::to_string)).collect();
        let known = known.join(" ");
        let dhcp = |v4: bool, part: &str| {
            let served = if v4 { self.dhcp.0 } else { self.dhcp.1 };
            let has = served && self.addresses.iter().any(|address| address.is_ipv4() == v4);
            Cell::row(has.then(|| RowId::part(&self.subnet_uid, part)))
        };
        // A chassis of no name and a version that nothing has: left out, any chassis could bind the port.
        let (chassis, version) = match &self.binding {
            Some(binding) => (binding.chassis.clone(), binding.version()),
            None => (UNBOUND.to_owned(), UNBOUND.to_owned()),
        };
        let columns = [
            ("name", Cell::Text(self.name.clone())),
            ("addresses", Cell::Text(known.clone())),
            ("port_security", Cell::Text(known)),
            ("dhcpv4_options", dhcp(true, DHCP4)),
            ("dhcpv6_options", dhcp(false, DHCP6)),
            ("options", Cell::pairs([(CHASSIS, chassis), ("iface-id-ver", version)])),
        ];
        let mut row = maker.row(Table::LogicalSwitchPort, "", columns);
        row.external_ids.insert(MAC.to_owned(), self.mac.clone());
        row = row.in_set(RowId::of(&self.subnet_uid), Table::LogicalSwitch, "ports");
        vec![self.groups.iter().fold(row, |row, group| row.in_set(RowId::of(group), Table::PortGroup, "ports"))]
    }
}
