//! What an object of the network is in OVN's north-bound database (ovn-nb(5)), and what makes the rows that are there those that
//! are wanted. Pure: the rows that are there are an argument.
//!
//! | file | object | rows |
//! |---|---|---|
//! | `vpc.rs` | Vpc | a Logical_Router with its static routes |
//! | `subnet.rs` | Subnet | a Logical_Switch with its default deny, the port pair to the router, the metadata port, DHCP_Options |
//! | `port.rs` | VNic | a Logical_Switch_Port, in the Port_Groups of its groups; QoS for each limited direction |
//! | `group.rs` | SecurityGroup | a Port_Group with an ACL per rule and family |
//! | `outside.rs` | ProviderNetwork | a Logical_Switch with a localnet port |
//! | | NatGateway | the port pair of router and outside, Gateway_Chassis, NAT, the default route |
//! | | FloatingIP | NAT |
//! | `diff.rs` | each | wanted − there |
//!
//! Every row tells in `external_ids` whose it is: the site, the object's kind and UID, and which part of it. A row without our
//! site is never touched, nor a column that is not named here. Rows refer to each other by UID and part ([`RowId`]); only the driver
//! knows their UUIDs.

mod diff;
mod group;
mod outside;
mod port;
mod subnet;
#[cfg(test)]
mod tests;
mod vpc;

pub use diff::{Change, Found, Update, diff};
pub use group::{Direction, Group, Icmp, Peer, Protocol, Rule};
pub use outside::{Floating, Gateway, Provider, Vlan, WayOut};
pub use port::{Binding, CHASSIS, Port, Rates, UNBOUND, version_of};
pub use subnet::{DHCP4, DHCP6, Dhcp, Family, Subnet, metadata_port};
pub use vpc::{Hop, Vpc};

use std::collections::{BTreeMap, BTreeSet};

pub const SITE: &str = "metalplane-site";
pub const KIND: &str = "metalplane-kind";
pub const UID: &str = "metalplane-uid";
pub const PART: &str = "metalplane-part";
/// How the names of rows begin.
pub const PREFIX: &str = "mp-";
/// The guest's MAC address on a VNic's port.
pub const MAC: &str = "metalplane-mac";

/// The tables of ovn-nb(5) that have rows of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    LogicalRouter,
    LogicalRouterPort,
    LogicalSwitch,
    LogicalSwitchPort,
    DhcpOptions,
    PortGroup,
    Acl,
    Nat,
    StaticRoute,
    GatewayChassis,
    Qos,
}

impl Table {
    pub const ALL: [Self; 11] = [
        Self::LogicalRouter,
        Self::LogicalRouterPort,
        Self::LogicalSwitch,
        Self::LogicalSwitchPort,
        Self::DhcpOptions,
        Self::PortGroup,
        Self::Acl,
        Self::Nat,
        Self::StaticRoute,
        Self::GatewayChassis,
        Self::Qos,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::LogicalRouter => "Logical_Router",
            Self::LogicalRouterPort => "Logical_Router_Port",
            Self::LogicalSwitch => "Logical_Switch",
            Self::LogicalSwitchPort => "Logical_Switch_Port",
            Self::DhcpOptions => "DHCP_Options",
            Self::PortGroup => "Port_Group",
            Self::Acl => "ACL",
            Self::Nat => "NAT",
            Self::StaticRoute => "Logical_Router_Static_Route",
            Self::GatewayChassis => "Gateway_Chassis",
            Self::Qos => "QoS",
        }
    }

    /// A row of it stays although nothing refers to it (RFC 7047 section 3.2, "isRoot").
    pub fn is_root(self) -> bool {
        matches!(self, Self::LogicalRouter | Self::LogicalSwitch | Self::DhcpOptions | Self::PortGroup)
    }

    /// The database itself refuses a second row of one name.
    pub fn has_unique_name(self) -> bool {
        matches!(self, Self::LogicalRouterPort | Self::LogicalSwitchPort | Self::PortGroup | Self::GatewayChassis)
    }

    /// The columns that are written, `external_ids` apart; of the sets that rows of several objects are in, none
    /// ([`Row::member_of`]).
    pub fn columns(self) -> &'static [&'static str] {
        match self {
            Self::LogicalRouter => &["name", "options"],
            Self::LogicalRouterPort => &["name", "mac", "networks", "options", "ipv6_ra_configs"],
            Self::LogicalSwitch => &["name", "other_config"],
            Self::LogicalSwitchPort => {
                &["name", "type", "addresses", "port_security", "dhcpv4_options", "dhcpv6_options", "options", "tag"]
            }
            Self::DhcpOptions => &["cidr", "options"],
            Self::PortGroup => &["name"],
            Self::Acl => &["direction", "priority", "match", "action"],
            Self::Nat => &["type", "external_ip", "logical_ip", "logical_port", "external_mac"],
            Self::StaticRoute => &["ip_prefix", "nexthop", "output_port"],
            Self::GatewayChassis => &["name", "chassis_name", "priority"],
            Self::Qos => &["direction", "priority", "match", "bandwidth"],
        }
    }

    /// The sets that name rows, with the table of those.
    pub fn sets(self) -> &'static [(&'static str, Table)] {
        match self {
            Self::LogicalRouter => {
                &[("ports", Table::LogicalRouterPort), ("nat", Table::Nat), ("static_routes", Table::StaticRoute)]
            }
            Self::LogicalRouterPort => &[("gateway_chassis", Table::GatewayChassis)],
            Self::LogicalSwitch => {
                &[("ports", Table::LogicalSwitchPort), ("acls", Table::Acl), ("qos_rules", Table::Qos)]
            }
            Self::PortGroup => &[("ports", Table::LogicalSwitchPort), ("acls", Table::Acl)],
            Self::LogicalSwitchPort
            | Self::DhcpOptions
            | Self::Acl
            | Self::Nat
            | Self::StaticRoute
            | Self::GatewayChassis
            | Self::Qos => &[],
        }
    }
}

/// Which row: of the object with this UID, this part. The row that is the object itself has no part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId {
    pub uid: String,
    pub part: String,
}

impl RowId {
    pub fn of(uid: &str) -> Self {
        Self::part(uid, "")
    }

    pub fn part(uid: &str, part: &str) -> Self {
        Self { uid: uid.to_owned(), part: part.to_owned() }
    }

    /// What the row is called in OVN.
    pub fn name(&self) -> String {
        let part = if self.part.is_empty() { String::new() } else { format!(".{}", self.part) };
        format!("{PREFIX}{}{part}", self.uid)
    }
}

/// The value of a column.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Cell {
    Empty,
    Text(String),
    Number(i64),
    Texts(BTreeSet<String>),
    Pairs(BTreeMap<String, String>),
    /// A map to integers.
    Numbers(BTreeMap<String, i64>),
    Row(RowId),
    /// A reference to a row that is not ours; never wanted.
    Foreign,
}

impl Cell {
    fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// OVSDB knows no difference between no text and an empty set of texts.
    fn texts(texts: impl IntoIterator<Item = String>) -> Self {
        let texts: BTreeSet<String> = texts.into_iter().collect();
        match texts.len() {
            0 => Self::Empty,
            1 => texts.into_iter().next().map_or(Self::Empty, Self::Text),
            _ => Self::Texts(texts),
        }
    }

    fn pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> Self {
        let pairs: BTreeMap<String, String> = pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        if pairs.is_empty() { Self::Empty } else { Self::Pairs(pairs) }
    }

    fn row(id: Option<RowId>) -> Self {
        id.map_or(Self::Empty, Self::Row)
    }
}

/// A set of another row that this row is in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Membership {
    pub row: RowId,
    pub table: Table,
    pub column: &'static str,
}

impl Membership {
    fn new(row: RowId, table: Table, column: &'static str) -> Self {
        Self { row, table, column }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Row {
    pub table: Table,
    pub id: RowId,
    pub external_ids: BTreeMap<String, String>,
    /// Those of [`Table::columns`], all of them.
    pub columns: BTreeMap<&'static str, Cell>,
    pub member_of: BTreeSet<Membership>,
}

/// Makes rows of one object.
struct Maker<'a> {
    site: &'a str,
    kind: &'static str,
    uid: &'a str,
}

impl Maker<'_> {
    /// Columns that are not named are empty.
    fn row(&self, table: Table, part: &str, columns: impl IntoIterator<Item = (&'static str, Cell)>) -> Row {
        let ids = [(SITE, self.site), (KIND, self.kind), (UID, self.uid), (PART, part)];
        let mut all: BTreeMap<&'static str, Cell> = table.columns().iter().map(|name| (*name, Cell::Empty)).collect();
        all.extend(columns);
        Row {
            table,
            id: RowId::part(self.uid, part),
            external_ids: ids.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            columns: all,
            member_of: BTreeSet::new(),
        }
    }

    fn acl(&self, part: &str, direction: Direction, priority: i64, matches: String, action: &str) -> Row {
        let columns = [
            ("direction", Cell::text(direction.name())),
            ("priority", Cell::Number(priority)),
            ("match", Cell::Text(matches)),
            ("action", Cell::text(action)),
        ];
        self.row(Table::Acl, part, columns)
    }
}

impl Row {
    fn in_set(mut self, row: RowId, table: Table, column: &'static str) -> Self {
        self.member_of.insert(Membership::new(row, table, column));
        self
    }
}
