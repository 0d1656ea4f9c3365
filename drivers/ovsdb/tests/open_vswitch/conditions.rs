//! Monitor conditions on a real north-bound database that two sites share: what of another site's rows arrives, and what of rows that
//! come to be ours or cease to.

use crate::cluster::Server;
use crate::lab::{OpenVSwitchLab, in_namespace, run, skipped};
use crate::northd::{A, port, subnet};
use crate::pki::{Pki, SERVER};
use crate::proxy::Proxy;
use crate::rows::{handle_at, leader, refreshed};
use ovsdb::OvnNorthBound;
use ovsdb::north_bound::DATABASE;
use planner::network::rows::{Direction, Group, Row, Rule, SITE, Table, Vpc, diff};
use ports::NorthBound;
use std::collections::{BTreeMap, BTreeSet};

const OURS: &str = "site";
const THEIRS: &str = "site-b";

fn of_site(rows: Vec<Row>, site: &str) -> Vec<Row> {
    let mut rows = rows;
    rows.iter_mut().for_each(|row| drop(row.external_ids.insert(SITE.to_owned(), site.to_owned())));
    rows
}

fn group() -> Vec<Row> {
    let open = |direction| Rule { direction, peers: None, ports: Vec::new(), icmp: None };
    Group { uid: "g".to_owned(), rules: vec![open(Direction::Ingress), open(Direction::Egress)] }.rows(OURS)
}

/// A Vpc, a Subnet, a group and a port.
fn network() -> Vec<(&'static str, Vec<Row>)> {
    let vpc = Vpc { uid: "v".to_owned(), hops: Vec::new() }.rows(OURS);
    vec![("v", vpc), ("s1", subnet("s1")), ("g", group()), (A.uid, port(&A, &["g"]))]
}

async fn put(north_bound: &OvnNorthBound, uid: &str, wanted: &[Row]) {
    let change = diff(wanted, &north_bound.rows(uid).expect("in step"));
    north_bound.apply(&change).await.expect("a change of what was just read");
}

/// How many rows of each table the copy has.
fn copied(north_bound: &OvnNorthBound) -> BTreeMap<Table, usize> {
    let view = north_bound.session().view();
    Table::ALL.into_iter().map(|table| (table, view.cache.rows(table.name()).count())).collect()
}

#[test]
fn rows_of_another_site_do_not_arrive() {
    let name = "rows_of_another_site_do_not_arrive";
    if skipped(name) {
        return;
    }
    in_namespace(name, || async {
        let lab = OpenVSwitchLab::ovn(DATABASE).await;
        let theirs = leader(&lab, THEIRS).await;
        for (uid, rows) in network() {
            put(&theirs, uid, &of_site(rows, THEIRS)).await;
        }
        let own = copied(&theirs);
        assert!(
            [Table::LogicalSwitchPort, Table::Acl, Table::DhcpOptions].iter().all(|table| own[table] > 0),
            "{own:?}"
        );
        let whole = [Table::LogicalRouter, Table::LogicalRouterPort, Table::LogicalSwitch, Table::PortGroup];
        let refused: [&'static [&'static str]; 3] =
            [&[], &["monitor_cond_since"], &["monitor_cond_since", "monitor_cond"]];
        for (number, refused) in refused.into_iter().enumerate() {
            let proxy = Proxy::before(lab.path("db.sock"), lab.path(&format!("{number}.sock")), refused);
            let ours = handle_at(&proxy.address, OURS);
            refreshed(&ours).await;
            assert_eq!(ours.uids(), Ok(BTreeSet::new()), "{refused:?}: nothing of another site is ours");
            for (table, there) in copied(&ours) {
                // RFC 7047 has no conditions.
                let arrives = refused.len() == 2 || whole.contains(&table);
                assert_eq!(there, if arrives { own[&table] } else { 0 }, "{refused:?}: {}", table.name());
            }
        }
        // In the network of others a site of ours finds what is its own, and no more.
        let ours = leader(&lab, OURS).await;
        let before = copied(&ours);
        put(&ours, "w", &Vpc { uid: "w".to_owned(), hops: Vec::new() }.rows(OURS)).await;
        refreshed(&theirs).await;
        assert_eq!(copied(&theirs)[&Table::LogicalRouter], own[&Table::LogicalRouter] + 1);
        assert_eq!(copied(&ours)[&Table::LogicalRouter], before[&Table::LogicalRouter] + 1);
        assert_eq!((theirs.rows("w"), ours.uids()), (Ok(Vec::new()), Ok(BTreeSet::from(["w".to_owned()]))));
    });
}

/// A row of the copy, by its name.
fn has(north_bound: &OvnNorthBound, port: &str) -> bool {
    north_bound.session().view().cache.find(Table::LogicalSwitchPort.name(), "name", port).is_some()
}

#[test]
fn a_row_arrives_when_it_becomes_ours_and_leaves_when_it_ceases_to_be() {
    let name = "a_row_arrives_when_it_becomes_ours_and_leaves_when_it_ceases_to_be";
    if skipped(name) {
        return;
    }
    for refused in [&[] as &'static [&'static str], &["monitor_cond_since"]] {
        in_namespace(name, move || async move {
            let lab = OpenVSwitchLab::ovn(DATABASE).await;
            let proxy = Proxy::before(lab.path("db.sock"), lab.path("proxy.sock"), refused);
            let north_bound = handle_at(&proxy.address, OURS);
            lab.tool("ovn-nbctl", &["ls-add", "theirs", "--", "lsp-add", "theirs", "p"]);
            refreshed(&north_bound).await;
            assert!(!has(&north_bound, "p"));
            let touched = async || {
                refreshed(&north_bound).await;
                north_bound.session().touched().await
            };
            touched().await;
            let ids = |id: &str| format!("external_ids:{id}");
            let (site, uid) = (ids("metalplane-site=site"), ids("metalplane-uid=u"));
            lab.tool("ovn-nbctl", &["set", "logical_switch_port", "p", &site, &uid]);
            assert_eq!(touched().await, BTreeSet::from(["u".to_owned()]), "who is woken");
            let rows = north_bound.rows("u").expect("in step");
            assert!(has(&north_bound, "p") && rows.len() == 1, "{rows:?}");
            lab.tool("ovn-nbctl", &["lsp-set-addresses", "p", "02:00:00:00:00:09"]);
            assert_eq!(touched().await, BTreeSet::from(["u".to_owned()]), "as long as it is ours");
            lab.tool("ovn-nbctl", &["set", "logical_switch_port", "p", &ids("metalplane-site=site-b")]);
            assert_eq!(touched().await, BTreeSet::from(["u".to_owned()]), "who is woken");
            assert!(!has(&north_bound, "p"));
            assert_eq!(north_bound.uids(), Ok(BTreeSet::new()));
            lab.tool("ovn-nbctl", &["lsp-set-addresses", "p", "02:00:00:00:00:10"]);
            lab.tool(
                "ovn-nbctl",
                &["lsp-add", "theirs", "q", "--", "set", "logical_switch_port", "q", &site, &ids("metalplane-uid=q")],
            );
            assert_eq!(touched().await, BTreeSet::from(["q".to_owned()]), "the other one is nobody's any more");
        });
    }
}

/// The server tells what was missed since the last transaction's id: it has that history for a cluster's database, of one member here.
#[test]
fn what_became_ours_while_the_connection_was_lost_is_told_after_it() {
    let name = "what_became_ours_while_the_connection_was_lost_is_told_after_it";
    if skipped(name) {
        return;
    }
    in_namespace(name, || async {
        run("ip", &["link", "set", "lo", "up"]);
        let files = Pki::new("ovn").sign("server", SERVER);
        let directory = tempfile::Builder::new().prefix("ovn").tempdir_in("/var/tmp").expect("a directory");
        let server = Server::start(directory.path(), 1, &files).await;
        let nbctl = |arguments: &str| {
            let database = format!("--db={}", server.socket());
            run("ovn-nbctl", &[&["--timeout=60", &database], &*arguments.split(' ').collect::<Vec<_>>()].concat())
        };
        nbctl("init");
        nbctl("ls-add sw");
        // The server remembers no more of its transactions than the database is large.
        let addresses: Vec<String> = (0..4_000).map(|n| format!("10.0.{}.{}", n / 200, n % 200)).collect();
        nbctl(&format!("create Address_Set name=large addresses={}", addresses.join(",")));
        let set = |port: &str, site: &str| {
            let ids = format!("external_ids:metalplane-site={site} external_ids:metalplane-uid={port}");
            nbctl(&format!("set logical_switch_port {port} {ids}"));
        };
        for (port, site) in
            [("kept", OURS), ("changed", OURS), ("leaving", OURS), ("deleted", OURS), ("coming", THEIRS)]
        {
            nbctl(&format!("lsp-add sw {port}"));
            set(port, site);
        }
        let path = |file: &str| directory.path().join(file).to_str().expect("a plain path").to_owned();
        let proxy = Proxy::before(path("db1.sock"), path("proxy.sock"), &[]);
        let north_bound = handle_at(&proxy.address, OURS);
        refreshed(&north_bound).await;
        assert_eq!(north_bound.session().touched().await.len(), 4);

        // This thread runs nothing else meanwhile: the connection is cut before anything of it is told.
        proxy.cut_after_answers(0);
        nbctl("lsp-set-addresses changed 02:00:00:00:00:09");
        nbctl("lsp-set-addresses coming 02:00:00:00:00:10");
        set("coming", OURS);
        nbctl("lsp-set-addresses coming 02:00:00:00:00:11");
        set("leaving", THEIRS);
        nbctl("lsp-set-addresses leaving 02:00:00:00:00:12");
        nbctl("lsp-del deleted");
        nbctl("lsp-add sw made");
        set("made", OURS);
        nbctl("lsp-add sw foreign");
        set("foreign", THEIRS);
        refreshed(&north_bound).await;
        assert!(proxy.has_cut(), "by another connection");
        let named = |all: &[&str]| all.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(
            north_bound.session().touched().await,
            named(&["changed", "coming", "leaving", "deleted", "made"]),
            "what was missed and no more: nothing was fetched afresh"
        );
        assert_eq!(north_bound.uids(), Ok(named(&["kept", "changed", "coming", "made"])));
        let there = ["kept", "changed", "coming", "made", "leaving", "deleted", "foreign"];
        assert_eq!(there.map(|port| has(&north_bound, port)), [true, true, true, true, false, false, false]);
        let afresh = handle_at(&server.socket(), OURS);
        refreshed(&afresh).await;
        for uid in ["kept", "changed", "coming", "made"] {
            assert_eq!(north_bound.rows(uid), afresh.rows(uid), "{uid}: as one that was told everything");
        }
    });
}

/// The server keeps a child row that any set names: the sets of others are known, so that of ours nothing is left behind in them.
#[test]
fn a_row_of_ours_in_a_set_of_somebody_elses_is_deleted_all_the_same() {
    let name = "a_row_of_ours_in_a_set_of_somebody_elses_is_deleted_all_the_same";
    if skipped(name) {
        return;
    }
    in_namespace(name, || async {
        let lab = OpenVSwitchLab::ovn(DATABASE).await;
        let north_bound = leader(&lab, OURS).await;
        put(&north_bound, "g", &group()).await;
        let acls = || lab.tool("ovn-nbctl", &["--bare", "--columns=_uuid", "list", "acl"]);
        for theirs in ["ls-add theirs", "pg-add theirs"] {
            lab.tool("ovn-nbctl", &theirs.split(' ').collect::<Vec<_>>());
        }
        for acl in acls().split_whitespace() {
            for table in ["logical_switch", "port_group"] {
                lab.tool("ovn-nbctl", &["add", table, "theirs", "acls", acl]);
            }
        }
        refreshed(&north_bound).await;
        put(&north_bound, "g", &[]).await;
        assert_eq!(acls(), "", "the database has none of the group's any more");
        let left =
            ["logical_switch", "port_group"].map(|table| lab.tool("ovn-nbctl", &["get", table, "theirs", "acls"]));
        assert_eq!(left, ["[]", "[]"], "and the rows of others are there still");
    });
}
