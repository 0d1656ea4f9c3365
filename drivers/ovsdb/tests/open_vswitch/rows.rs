//! [`ports::NorthBound`] on a real `ovsdb-server`; what somebody does by hand is done with OVN's own tool.

use crate::another;
use crate::lab::{OpenVSwitchLab, config, in_namespace, missing_of_ovn};
use async_trait::async_trait;
use ovsdb::OvnNorthBound;
use ovsdb::north_bound::{DATABASE, monitored};
use planner::network::rows::{
    Dhcp, Direction, Family, Found, Group, Port, Protocol, Row, RowId, Rule, Subnet, Table, Vpc, diff,
};
use ports::NorthBound;
use ports::conformance::north_bound::{Bench, suite};
use ports::north_bound::{NorthBoundError, Token};
use std::time::Duration;
use tokio::sync::Mutex;

struct Real(Mutex<OpenVSwitchLab>);

impl Real {
    async fn nbctl(&self, arguments: &[&str]) -> String {
        self.0.lock().await.tool("ovn-nbctl", arguments)
    }
}

pub fn handle(lab: &OpenVSwitchLab, site: &str) -> OvnNorthBound {
    let mut config = lab.config(monitored());
    config.database = DATABASE.to_owned();
    OvnNorthBound::new(config, site)
}

/// The same by an address.
pub fn handle_at(address: &str, site: &str) -> OvnNorthBound {
    let mut config = config(address, monitored());
    config.database = DATABASE.to_owned();
    OvnNorthBound::new(config, site)
}

/// Until the copy follows the database.
pub async fn in_step(handle: &OvnNorthBound) {
    let followed = async { while handle.changes().await.link.is_err() {} };
    tokio::time::timeout(Duration::from_secs(60), followed).await.expect("a database that can be followed");
}

/// Until the copy is as new as this call, by whichever connection.
pub async fn refreshed(handle: &OvnNorthBound) {
    let connected = async {
        while handle.session().refresh().await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), connected).await.expect("a database that can be followed");
}

/// In step, with a token.
pub async fn leader(lab: &OpenVSwitchLab, site: &str) -> OvnNorthBound {
    let handle = handle(lab, site);
    in_step(&handle).await;
    let before = handle.token().expect("in step");
    let transitions = before.as_ref().map_or(1, |token| token.transitions + 1);
    let token = Token { lease_uid: "lease".to_owned(), transitions };
    handle.take_token(&token, before.as_ref()).await.expect("the next leader");
    handle
}

#[async_trait]
impl Bench for Real {
    type NorthBound = OvnNorthBound;

    async fn open(&self, site: &str) -> OvnNorthBound {
        handle(&*self.0.lock().await, site)
    }

    async fn set_by_hand(&self, found: &Found, column: &'static str, text: &str) {
        self.nbctl(&["set", found.row.table.name(), &found.uuid, &format!("{column}=\"{text}\"")]).await;
    }

    async fn delete_port_by_hand(&self, found: &Found) {
        self.nbctl(&["lsp-del", &found.uuid]).await;
    }

    async fn come_up(&self, found: &Found) {
        self.nbctl(&["set", found.row.table.name(), &found.uuid, "up=true"]).await;
    }

    async fn set_down(&self, down: bool) {
        let mut lab = self.0.lock().await;
        if down { lab.stop_server() } else { lab.start_server().await }
    }

    async fn pause(&self) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn the_north_bound_database_keeps_the_ports_promises() {
    let name = "the_north_bound_database_keeps_the_ports_promises";
    if let Some(reason) = missing_of_ovn() {
        eprintln!("SKIP {name}: {reason}");
        return;
    }
    if let Some(folder) = another::named() {
        eprintln!("SKIP {name}: the distribution's OVN is not run: OVN_DIR={} names another", folder.display());
        return;
    }
    in_namespace(name, promises);
}

pub async fn promises() {
    let mut lab = OpenVSwitchLab::ovn(DATABASE).await;
    lab.tool("ovn-nbctl", &["ls-add", "of-somebody-else"]);
    lab.listen_by_tls().await;
    let bench = Real(Mutex::new(lab));
    suite(&bench).await;
    let left = bench.nbctl(&["show"]).await;
    assert!(left.starts_with("switch") && left.contains("of-somebody-else") && left.lines().count() == 1, "{left}");
}

/// Keys of others in our rows, and rows that two leaders made.
#[test]
fn what_others_add_to_our_rows_stays_and_a_second_row_goes() {
    let name = "what_others_add_to_our_rows_stays_and_a_second_row_goes";
    if let Some(reason) = missing_of_ovn() {
        eprintln!("SKIP {name}: {reason}");
        return;
    }
    in_namespace(name, || async {
        let lab = OpenVSwitchLab::ovn(DATABASE).await;
        let north_bound = leader(&lab, "site").await;
        let wanted = Vpc { uid: "v".to_owned(), hops: Vec::new() }.rows("site");
        let put = async || {
            north_bound.raise(0).await.expect("in step after it");
            let change = diff(&wanted, &north_bound.rows("v").expect("in step"));
            north_bound.apply(&change).await.expect("a change of what was just read");
            change
        };
        put().await;
        lab.tool("ovn-nbctl", &["set", "logical_router", "mp-v", "external_ids:theirs=1"]);
        assert!(put().await.is_empty(), "a key of somebody else is no difference");
        lab.tool("ovn-nbctl", &["set", "logical_router", "mp-v", "external_ids:metalplane-kind=Other"]);
        assert_eq!(put().await.updates.len(), 1);
        let ids = lab.tool("ovn-nbctl", &["get", "logical_router", "mp-v", "external_ids"]);
        assert!(ids.contains("theirs=\"1\"") && ids.contains("metalplane-kind=Vpc"), "{ids}");

        let second = ["external_ids:metalplane-site=site", "external_ids:metalplane-uid=v"];
        lab.tool("ovn-nbctl", &[&["create", "logical_router"], second.as_slice()].concat());
        assert_eq!(put().await.deletes.len(), 1, "of two rows with one id one goes");
        let rows = north_bound.rows("v").expect("in step");
        assert_eq!((rows.len(), rows[0].row.table, &rows[0].row.id), (1, Table::LogicalRouter, &RowId::of("v")));
    });
}

fn subnet() -> Vec<Row> {
    let network = "10.20.0.0/24".parse().expect("a network");
    let subnet = Subnet {
        uid: "s".to_owned(),
        vpc_uid: "v".to_owned(),
        families: vec![Family { network, gateway: None }],
        router_mac: "02:00:00:00:00:01".to_owned(),
        mtu: 1442,
        dhcp: Some(Dhcp { lease_seconds: 3600, ntp_servers: Vec::new() }),
        slaac: false,
        dns_servers: Vec::new(),
        domain: None,
        metadata: true,
        vlan: None,
    };
    subnet.rows("site")
}

fn group(uid: &str, rules: usize) -> Vec<Row> {
    let rule = |port: u16| Rule {
        direction: Direction::Ingress,
        peers: None,
        ports: vec![(Protocol::Tcp, Some((port, port)))],
        icmp: None,
    };
    Group { uid: uid.to_owned(), rules: (80..).take(rules).map(rule).collect() }.rows("site")
}

fn port(groups: &[&str], last: u8) -> Vec<Row> {
    let port = Port {
        uid: "p".to_owned(),
        name: "mp-p".to_owned(),
        subnet_uid: "s".to_owned(),
        mac: "02:00:00:00:00:07".to_owned(),
        addresses: vec![[10, 20, 0, last].into()],
        dhcp: (true, true),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        ..Port::default()
    };
    port.rows("site")
}

/// The copy is one write behind, as it may always be: this thread runs nothing else while `ovn-nbctl` does. So it is the server that
/// refuses.
#[test]
fn the_server_refuses_what_an_old_copy_says() {
    let name = "the_server_refuses_what_an_old_copy_says";
    if let Some(reason) = missing_of_ovn() {
        eprintln!("SKIP {name}: {reason}");
        return;
    }
    in_namespace(name, || async {
        let lab = OpenVSwitchLab::ovn(DATABASE).await;
        let north_bound = leader(&lab, "site").await;
        let plan = |uid: &str, wanted: &[Row]| diff(wanted, &north_bound.rows(uid).expect("in step"));
        let all = [("s", subnet()), ("g", group("g", 1)), ("h", group("h", 0)), ("p", port(&["g"], 7))];
        let restore = async || {
            north_bound.raise(0).await.expect("in step after it");
            for (uid, wanted) in &all {
                north_bound.apply(&plan(uid, wanted)).await.expect("a change of what was just read");
            }
        };
        let by_hand: [(&str, Vec<Row>, &[&str]); 7] = [
            ("p", port(&["g"], 8), &["lsp-set-addresses", "mp-p", "02:00:00:00:00:07 10.20.0.9"]),
            ("p", port(&["g"], 8), &["lsp-del", "mp-p"]),
            ("p", Vec::new(), &["lsp-set-addresses", "mp-p", "02:00:00:00:00:07 10.20.0.9"]),
            ("p", Vec::new(), &["remove", "logical_switch_port", "mp-p", "external_ids", "metalplane-site"]),
            ("p", port(&["g", "h"], 7), &["pg-del", "mp_h"]),
            ("g", group("g", 2), &["--type=port-group", "acl-add", "mp_g", "to-lport", "7", "ip", "drop"]),
            ("g", Vec::new(), &["clear", "port_group", "mp_g", "ports"]),
        ];
        for (uid, wanted, by_hand) in by_hand {
            restore().await;
            let change = plan(uid, &wanted);
            lab.tool("ovn-nbctl", by_hand);
            let dump = || {
                ["lsp-list mp-s", "--columns=name,ports,acls list port_group", "list acl"]
                    .map(|command| lab.tool("ovn-nbctl", &command.split(' ').collect::<Vec<_>>()))
            };
            let before = dump();
            let refused = north_bound.apply(&change).await.expect_err("planned from what is no more");
            assert!(matches!(refused, NorthBoundError::Contended(_)), "{by_hand:?}: {refused}");
            assert!(refused.to_string().contains("OVSDB transaction, step"), "by the server: {refused}");
            assert_eq!(dump(), before, "{by_hand:?}: nothing was written");
            if by_hand[0] == "remove" {
                lab.tool("ovn-nbctl", &["lsp-del", "mp-p"]);
            }
        }
    });
}
