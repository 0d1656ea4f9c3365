//! A VNic: a port on its Subnet's switch, bound to one chassis and one grant. A VNic that nobody holds, and whose address others may
//! send from, is a virtual port of theirs (ovn-nb(5), type `virtual`): the router sends what is for the address to the one that has
//! announced it last.

use super::{Cell, DHCP4, DHCP6, Direction, Found, MAC, Maker, Row, RowId, Table};
use std::net::IpAddr;

/// Which chassis may bind the port (ovn-nb(5), options of Logical_Switch_Port).
pub const CHASSIS: &str = "requested-chassis";
/// By which grant the port may be bound.
const VERSION: &str = "iface-id-ver";
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

/// By which grant the port of the VNic with this UID may be bound, as these rows of it are there.
pub fn version_of<'a>(uid: &str, rows: &'a [Found]) -> Option<&'a str> {
    let own =
        rows.iter().find(|found| found.row.table == Table::LogicalSwitchPort && found.row.id == RowId::of(uid))?;
    match own.row.columns.get("options")? {
        Cell::Pairs(options) => options.get(VERSION).map(String::as_str),
        _ => None,
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
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
    /// Addresses and networks beside its own that its guest may send from and receive at.
    pub allowed: Vec<String>,
    /// Names of the ports that may send from its addresses, while nobody may bind it.
    pub parents: Vec<String>,
    pub rates: Rates,
}

/// In kbit/s. `None`: no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rates {
    pub ingress: Option<i64>,
    pub egress: Option<i64>,
}

/// Of a second: what of the rate may come at once. Less and TCP stays far below its rate, for it sends in bursts.
const BURST: i64 = 10;
/// At least as many kbit may come at once: some packets of any size, whatever the rate.
const LEAST_BURST: i64 = 1_000;
/// Any one: a switch has no QoS rules but those of its ports.
const PRIORITY: i64 = 1_000;

impl Port {
    pub fn rows(&self, site: &str) -> Vec<Row> {
        let maker = Maker { site, kind: "VNic", uid: &self.uid };
        if self.binding.is_none() && !self.parents.is_empty() {
            return self.shared(&maker);
        }
        let mut rows = vec![self.port(&maker)];
        rows.extend(self.rate(&maker, Direction::Ingress, self.rates.ingress));
        rows.extend(self.rate(&maker, Direction::Egress, self.rates.egress));
        rows
    }

    fn known(&self) -> String {
        let known = [self.mac.clone()].into_iter().chain(self.addresses.iter().map(ToString::to_string));
        known.collect::<Vec<_>>().join(" ")
    }

    /// On its switch, and in its groups.
    fn member(&self, mut row: Row) -> Row {
        row.external_ids.insert(MAC.to_owned(), self.mac.clone());
        row = row.in_set(RowId::of(&self.subnet_uid), Table::LogicalSwitch, "ports");
        self.groups.iter().fold(row, |row, group| row.in_set(RowId::of(group), Table::PortGroup, "ports"))
    }

    fn port(&self, maker: &Maker<'_>) -> Row {
        let known = self.known();
        let secured: Vec<&str> = [known.as_str()].into_iter().chain(self.allowed.iter().map(String::as_str)).collect();
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
            ("port_security", Cell::Text(secured.join(" "))),
            ("dhcpv4_options", dhcp(true, DHCP4)),
            ("dhcpv6_options", dhcp(false, DHCP6)),
            ("options", Cell::pairs([(CHASSIS, chassis), (VERSION, version)])),
        ];
        self.member(maker.row(Table::LogicalSwitchPort, "", columns))
    }

    /// A virtual port has one address. The first one of several has the place of the VNic's own port, and is in its groups: what
    /// comes from each of the addresses comes from a member.
    fn shared(&self, maker: &Maker<'_>) -> Vec<Row> {
        let virtual_port = |number: usize, address: &IpAddr| {
            let part = if number == 0 { String::new() } else { format!("virtual-{number}") };
            let name = if number == 0 { self.name.clone() } else { format!("{}.{part}", self.name) };
            let options = [("virtual-ip", address.to_string()), ("virtual-parents", self.parents.join(","))];
            let columns = [
                ("name", Cell::Text(name)),
                ("type", Cell::text("virtual")),
                ("addresses", if number == 0 { Cell::Text(self.known()) } else { Cell::Empty }),
                ("options", Cell::pairs(options)),
            ];
            let row = maker.row(Table::LogicalSwitchPort, &part, columns);
            match number {
                0 => self.member(row),
                _ => row.in_set(RowId::of(&self.subnet_uid), Table::LogicalSwitch, "ports"),
            }
        };
        self.addresses.iter().enumerate().map(|(number, address)| virtual_port(number, address)).collect()
    }

    /// `Ingress`: what the guest receives.
    fn rate(&self, maker: &Maker<'_>, direction: Direction, kbps: Option<i64>) -> Option<Row> {
        let kbps = kbps?;
        let (part, port) = match direction {
            Direction::Ingress => ("rate-in", "outport"),
            Direction::Egress => ("rate-out", "inport"),
        };
        let limits = [("rate", kbps), ("burst", (kbps / BURST).max(LEAST_BURST))];
        let columns = [
            ("direction", Cell::text(direction.name())),
            ("priority", Cell::Number(PRIORITY)),
            ("match", Cell::Text(format!("{port} == \"{}\"", self.name))),
            ("bandwidth", Cell::Numbers(limits.map(|(key, value)| (key.to_owned(), value)).into())),
        ];
        let row = maker.row(Table::Qos, part, columns);
        Some(row.in_set(RowId::of(&self.subnet_uid), Table::LogicalSwitch, "qos_rules"))
    }
}
