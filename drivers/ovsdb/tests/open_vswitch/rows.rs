//! [`ports::NorthBound`] on a real `ovsdb-server`; what somebody does by hand is done with OVN's own tool.

use crate::lab::{OpenVSwitchLab, in_namespace, missing_of_ovn};
use async_trait::async_trait;
use ovsdb::OvnNorthBound;
use ovsdb::north_bound::{DATABASE, monitored};
use planner::network::rows::{Found, RowId, Table, Vpc, diff};
use ports::NorthBound;
use ports::conformance::north_bound::{Bench, suite};
use ports::north_bound::Token;
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

/// In step, with a token.
pub async fn leader(lab: &OpenVSwitchLab, site: &str) -> OvnNorthBound {
    let handle = handle(lab, site);
    while handle.changes().await.link.is_err() {}
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
    in_namespace(name, || async {
        let lab = OpenVSwitchLab::ovn(DATABASE).await;
        lab.tool("ovn-nbctl", &["ls-add", "of-somebody-else"]);
        let bench = Real(Mutex::new(lab));
        suite(&bench).await;
        let left = bench.nbctl(&["show"]).await;
        assert!(left.starts_with("switch") && left.contains("of-somebody-else") && left.lines().count() == 1, "{left}");
    });
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
        let wanted = Vpc { uid: "v".to_owned() }.rows("site");
        let put = async || {
            north_bound.raise().await.expect("in step after it");
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
