//! A Vpc: a router between its Subnets, and its static routes.

use super::{Cell, Maker, Row, RowId, Table};
use ipnet::IpNet;
use std::net::IpAddr;

/// One next hop of one destination. Those of one destination share its connections (ECMP), as northd does with routes of one prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    pub destination: IpNet,
    pub hop: IpAddr,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vpc {
    pub uid: String,
    pub hops: Vec<Hop>,
}

impl Vpc {
    pub fn rows(&self, site: &str) -> Vec<Row> {
        let maker = Maker { site, kind: "Vpc", uid: &self.uid };
        let own = RowId::of(&self.uid);
        let mut rows = vec![maker.row(Table::LogicalRouter, "", [("name", Cell::Text(own.name()))])];
        // By which of its ports the hop is reached northd knows: its Subnet's.
        rows.extend(self.hops.iter().map(|Hop { destination, hop }| {
            let columns =
                [("ip_prefix", Cell::Text(destination.to_string())), ("nexthop", Cell::Text(hop.to_string()))];
            let row = maker.row(Table::StaticRoute, &format!("route-{destination}-{hop}"), columns);
            row.in_set(own.clone(), Table::LogicalRouter, "static_routes")
        }));
        rows
    }
}
