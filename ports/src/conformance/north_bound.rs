//! What every [`NorthBound`] promises, run on a [`Bench`] that the driver's test provides.

use crate::north_bound::{Changes, NorthBoundError, Token};
use crate::{ErrorClass, NorthBound};
use async_trait::async_trait;
use planner::network::rows::{
    Binding, Cell, Change, Dhcp, Direction, Family, Found, Group, Port, Protocol, Row, Rule, Subnet, Table, Vpc, diff,
};
use std::collections::BTreeSet;

/// A north-bound database that nobody else uses and that no `ovn-northd` follows.
#[async_trait]
pub trait Bench: Send + Sync {
    type NorthBound: NorthBound;

    /// A new handle on the same database, as of another controller.
    async fn open(&self, site: &str) -> Self::NorthBound;

    /// Somebody writes a text into a column of a row.
    async fn set_by_hand(&self, found: &Found, column: &'static str, text: &str);

    /// Somebody deletes a Logical_Switch_Port.
    async fn delete_port_by_hand(&self, found: &Found);

    /// A chassis has the Logical_Switch_Port: OVN sets `up`.
    async fn come_up(&self, found: &Found);

    /// Ends the database's server, or starts it again.
    async fn set_down(&self, down: bool);

    /// Lets a little time pass: about 20 ms, or a step of a simulated clock.
    async fn pause(&self);
}

/// How many pauses an eventual promise may take: 20 s on a real database.
const PATIENCE: usize = 1_000;
const SITE: &str = "site-a";

/// Runs every check, each from an empty database to an empty one.
pub async fn suite(bench: &impl Bench) {
    objects_are_written_and_read_back(bench).await;
    a_change_touches_what_differs(bench).await;
    what_is_missing_is_named_and_nothing_is_written(bench).await;
    a_switch_with_ports_of_others_stays(bench).await;
    only_the_leader_writes(bench).await;
    an_old_plan_fails_as_a_whole(bench).await;
    another_sites_rows_are_nobodys(bench).await;
    whoever_changes_a_row_wakes_its_object(bench).await;
    members_are_counted(bench).await;
    numbers_only_grow(bench).await;
    what_is_sent_is_counted(bench).await;
    a_lost_database_is_told(bench).await;
}

fn vpc() -> Vec<Row> {
    Vpc { uid: "v".to_owned(), hops: Vec::new() }.rows(SITE)
}

fn subnet(mtu: u16) -> Vec<Row> {
    let family = |network: &str, gateway: &str| Family {
        network: network.parse().expect("a network"),
        gateway: Some(gateway.parse().expect("an address")),
    };
    let subnet = Subnet {
        uid: "s".to_owned(),
        vpc_uid: "v".to_owned(),
        families: vec![family("10.20.0.0/24", "10.20.0.1"), family("fd00:20::/64", "fd00:20::1")],
        router_mac: "02:00:00:00:00:01".to_owned(),
        mtu,
        dhcp: Some(Dhcp { lease_seconds: 3600, ntp_servers: Vec::new() }),
        slaac: false,
        dns_servers: vec!["10.20.0.53".parse().expect("an address")],
        domain: Some("blue.example".to_owned()),
        metadata: true,
        vlan: None,
    };
    subnet.rows(SITE)
}

fn group(uid: &str, rules: usize) -> Vec<Row> {
    let rule = |port: u16| Rule {
        direction: if port.is_multiple_of(2) { Direction::Ingress } else { Direction::Egress },
        peers: None,
        ports: vec![(Protocol::Tcp, Some((port, port)))],
        icmp: None,
    };
    Group { uid: uid.to_owned(), rules: (80..).take(rules).map(rule).collect() }.rows(SITE)
}

fn port(groups: &[&str], epoch: Option<u64>) -> Vec<Row> {
    let port = Port {
        uid: "p".to_owned(),
        name: "mp-p".to_owned(),
        subnet_uid: "s".to_owned(),
        mac: "02:00:00:00:00:07".to_owned(),
        addresses: vec!["10.20.0.7".parse().expect("an address"), "fd00:20::7".parse().expect("an address")],
        dhcp: (true, true),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        binding: epoch.map(|epoch| Binding { chassis: "dpu-1".to_owned(), attachment_uid: "a".to_owned(), epoch }),
        ..Port::default()
    };
    port.rows(SITE)
}

fn token(transitions: u64) -> Token {
    Token { lease_uid: "lease".to_owned(), transitions }
}

/// The next look, with a limit.
async fn next(bench: &impl Bench, north_bound: &impl NorthBound, what: &str) -> Changes {
    let patience = async {
        for _ in 0..PATIENCE {
            bench.pause().await;
        }
    };
    tokio::select! {
        biased;
        changes = north_bound.changes() => changes,
        () = patience => panic!("{what}: never told"),
    }
}

/// A handle whose copy follows the database.
async fn open<B: Bench>(bench: &B, site: &str) -> B::NorthBound {
    let handle = bench.open(site).await;
    let mut told = BTreeSet::new();
    loop {
        let changes = next(bench, &handle, "the first connection").await;
        told.extend(changes.uids);
        if changes.link.is_ok() {
            let there = handle.uids().expect("in step");
            assert!(there.is_subset(&told), "the first look tells every UID: {told:?} of {there:?}");
            return handle;
        }
    }
}

/// A handle that writes, with a token above all before.
async fn leader<B: Bench>(bench: &B) -> B::NorthBound {
    let handle = open(bench, SITE).await;
    let before = handle.token().expect("in step");
    let after = token(before.as_ref().map_or(1, |token| token.transitions + 1));
    handle.take_token(&after, before.as_ref()).await.expect("the next leader");
    assert_eq!(handle.token(), Ok(Some(after)));
    handle
}

fn plan(north_bound: &impl NorthBound, wanted: &[Row], uid: &str) -> Change {
    diff(wanted, &north_bound.rows(uid).expect("in step"))
}

/// Makes the rows of an object those that are wanted.
async fn put(north_bound: &impl NorthBound, wanted: &[Row], uid: &str) {
    let change = plan(north_bound, wanted, uid);
    north_bound.apply(&change).await.expect("a change of what was just read");
    let left = plan(north_bound, wanted, uid);
    assert!(left.is_empty(), "{uid}: what was written is not what is read: {left:#?}");
    assert_eq!(north_bound.rows(uid).expect("in step").len(), wanted.len(), "{uid}: each row once");
}

async fn put_all(north_bound: &impl NorthBound) {
    put(north_bound, &vpc(), "v").await;
    put(north_bound, &subnet(1442), "s").await;
    put(north_bound, &group("g", 2), "g").await;
    put(north_bound, &group("h", 0), "h").await;
    put(north_bound, &port(&["g"], Some(1)), "p").await;
}

/// Children first.
async fn clear(north_bound: &impl NorthBound) {
    for uid in ["p", "g", "h", "s", "v"] {
        put(north_bound, &[], uid).await;
    }
    assert_eq!(north_bound.uids(), Ok(BTreeSet::new()));
}

fn only(north_bound: &impl NorthBound, uid: &str, table: Table) -> Found {
    let mut rows = north_bound.rows(uid).expect("in step");
    rows.retain(|found| found.row.table == table && found.row.id.part.is_empty());
    assert_eq!(rows.len(), 1, "{uid}: one row in {}", table.name());
    rows.remove(0)
}

async fn objects_are_written_and_read_back(bench: &impl Bench) {
    let north_bound = leader(bench).await;
    assert_eq!(north_bound.uids(), Ok(BTreeSet::new()), "an empty database has no objects");
    north_bound.apply(&Change::default()).await.expect("nothing to do");
    put_all(&north_bound).await;
    assert_eq!(north_bound.uids(), Ok(["g", "h", "p", "s", "v"].map(str::to_owned).into()));
    let other = open(bench, SITE).await;
    for uid in ["g", "p", "s", "v"] {
        assert_eq!(other.rows(uid), north_bound.rows(uid), "{uid}: the same from every handle");
    }
    clear(&north_bound).await;
}

async fn a_change_touches_what_differs(bench: &impl Bench) {
    let north_bound = leader(bench).await;
    put_all(&north_bound).await;
    let before = only(&north_bound, "p", Table::LogicalSwitchPort);
    put(&north_bound, &port(&["h"], Some(2)), "p").await;
    let after = only(&north_bound, "p", Table::LogicalSwitchPort);
    assert_eq!(before.uuid, after.uuid, "a row that differs is the same row");
    put(&north_bound, &port(&[], None), "p").await;
    put(&north_bound, &port(&["g", "h"], Some(3)), "p").await;

    let acls = |rows: Vec<Found>| -> BTreeSet<String> { rows.into_iter().map(|found| found.uuid).collect() };
    let two = acls(north_bound.rows("g").expect("in step"));
    put(&north_bound, &group("g", 5), "g").await;
    let five = acls(north_bound.rows("g").expect("in step"));
    assert!(two.is_subset(&five), "rules that stay keep their rows");
    put(&north_bound, &group("g", 0), "g").await;
    put(&north_bound, &subnet(1342), "s").await;

    // A group leaves its members, and is made anew: they are put back by their own change.
    put(&north_bound, &[], "h").await;
    assert!(!plan(&north_bound, &port(&["g", "h"], Some(3)), "p").is_empty());
    put(&north_bound, &group("h", 1), "h").await;
    put(&north_bound, &port(&["g", "h"], Some(3)), "p").await;
    clear(&north_bound).await;
}

async fn what_is_missing_is_named_and_nothing_is_written(bench: &impl Bench) {
    let north_bound = leader(bench).await;
    let attempt = async |wanted: Vec<Row>| {
        let error = north_bound.apply(&diff(&wanted, &[])).await.expect_err("refers to nothing");
        assert_eq!(error.class(), ErrorClass::NotFound, "{error}");
        error.to_string()
    };
    let error = attempt(subnet(1442)).await;
    assert!(error.contains("Logical_Router") && error.contains("mp-v"), "names what is missing: {error}");
    attempt(port(&[], None)).await;
    put(&north_bound, &vpc(), "v").await;
    put(&north_bound, &subnet(1442), "s").await;
    let error = attempt(port(&["g"], None)).await;
    assert!(error.contains("Port_Group"), "names what is missing: {error}");
    assert_eq!(north_bound.uids(), Ok(["s", "v"].map(str::to_owned).into()), "all or nothing");
    clear(&north_bound).await;
}

async fn a_switch_with_ports_of_others_stays(bench: &impl Bench) {
    let north_bound = leader(bench).await;
    put_all(&north_bound).await;
    for uid in ["s", "v"] {
        let error = north_bound.apply(&plan(&north_bound, &[], uid)).await.expect_err("in use");
        assert_eq!(error.class(), ErrorClass::Busy, "{error}");
    }
    assert!(plan(&north_bound, &port(&["g"], Some(1)), "p").is_empty(), "the port is as it was");
    clear(&north_bound).await;
}

async fn only_the_leader_writes(bench: &impl Bench) {
    let late = open(bench, SITE).await;
    let change = diff(&vpc(), &[]);
    let refused = late.apply(&change).await.expect_err("no token was taken");
    assert!(matches!(refused, NorthBoundError::NotLeader(_)), "{refused}");

    let (first, second) = (leader(bench).await, leader(bench).await);
    for refused in [first.apply(&change).await, first.raise(0).await.map(|_| ())] {
        let refused = refused.expect_err("another leads");
        assert!(matches!(refused, NorthBoundError::NotLeader(_)), "{refused}");
    }
    second.apply(&change).await.expect("the leader writes");
    assert_eq!(second.uids(), Ok(BTreeSet::from(["v".to_owned()])), "only the leader has written");

    let there = second.token().expect("in step").expect("taken");
    let lower = token(there.transitions - 1);
    let refused = first.take_token(&lower, Some(&there)).await.expect_err("only upwards");
    assert!(matches!(refused, NorthBoundError::NotLeader(_)), "{refused}");
    let higher = token(there.transitions + 1);
    for stale in [None, Some(&lower)] {
        let refused = open(bench, SITE).await.take_token(&higher, stale).await.expect_err("not what is there");
        assert!(matches!(refused, NorthBoundError::Contended(_)), "{refused}");
    }
    let restarted = open(bench, SITE).await;
    restarted.take_token(&there, Some(&there)).await.expect("the same leader after a restart");
    let other = Token { lease_uid: "other".to_owned(), transitions: 0 };
    restarted.take_token(&other, Some(&there)).await.expect("another Lease, which was read");
    let refused = second.apply(&plan(&second, &[], "v")).await.expect_err("of another Lease");
    assert!(matches!(refused, NorthBoundError::NotLeader(_)), "{refused}");
    restarted.take_token(&higher, Some(&other)).await.expect("and back");
    clear(&restarted).await;
}

async fn what_is_sent_is_counted(bench: &impl Bench) {
    let north_bound = leader(bench).await;
    let token = north_bound.sent();
    assert!(token > 0, "the token was sent");
    north_bound.apply(&Change::default()).await.expect("nothing to do");
    assert_eq!(north_bound.sent(), token, "what has nothing to do sends nothing");
    put(&north_bound, &group("g", 1), "g").await;
    let one = north_bound.sent() - token;
    put(&north_bound, &group("h", 20), "h").await;
    let twenty = north_bound.sent() - token - one;
    assert!(one > 0 && twenty > 5 * one, "{one} bytes for one rule, {twenty} for twenty");
    let before = north_bound.sent();
    north_bound.apply(&diff(&group("g", 1), &[])).await.expect_err("it is there");
    assert!(north_bound.sent() > before, "what is refused was sent");
    north_bound.raise(0).await.expect("in step");
    let after = north_bound.sent();
    assert!(after > before);
    let _ = north_bound.rows("g");
    assert_eq!(north_bound.sent(), after, "reading asks nobody");
    clear(&north_bound).await;
}

async fn an_old_plan_fails_as_a_whole(bench: &impl Bench) {
    let north_bound = leader(bench).await;
    put_all(&north_bound).await;
    let contended = async |change: &Change| {
        let refused = north_bound.apply(change).await.expect_err("planned from what is no more");
        assert!(matches!(refused, NorthBoundError::Contended(_)), "{refused}");
    };
    let insert = diff(&vpc(), &[]);
    contended(&insert).await;
    contended(&diff(&group("g", 1), &[])).await;
    contended(&diff(&port(&[], None), &[])).await;

    let update = plan(&north_bound, &port(&["h"], Some(2)), "p");
    let delete = plan(&north_bound, &[], "p");
    let found = only(&north_bound, "p", Table::LogicalSwitchPort);
    bench.set_by_hand(&found, "addresses", "02:00:00:00:00:99 10.20.0.99").await;
    bench.set_by_hand(&found, "port_security", "").await;
    let mut changed = update.clone();
    changed.updates[0].after.columns.insert("addresses", Cell::Text("02:00:00:00:00:07".to_owned()));
    contended(&changed).await;
    contended(&delete).await;
    put(&north_bound, &port(&["g"], Some(1)), "p").await;

    bench.delete_port_by_hand(&found).await;
    contended(&update).await;
    contended(&delete).await;
    put(&north_bound, &[], "p").await;
    clear(&north_bound).await;
}

async fn another_sites_rows_are_nobodys(bench: &impl Bench) {
    let here = leader(bench).await;
    let there = open(bench, "site-b").await;
    there.take_token(&token(1), None).await.expect("a token for each site");
    put(&here, &vpc(), "v").await;
    put(&there, &Vpc { uid: "w".to_owned(), hops: Vec::new() }.rows("site-b"), "w").await;
    put(&here, &group("g", 1), "g").await;
    assert_eq!(here.uids(), Ok(["g", "v"].map(str::to_owned).into()));
    assert_eq!(here.rows("w"), Ok(Vec::new()));
    let theirs = there.rows("w").expect("in step");
    let refused = here.apply(&diff(&[], &theirs)).await.expect_err("a row of another site");
    assert!(matches!(refused, NorthBoundError::Contended(_)), "{refused}");
    put(&there, &[], "w").await;
    clear(&here).await;
}

async fn whoever_changes_a_row_wakes_its_object(bench: &impl Bench) {
    let north_bound = leader(bench).await;
    put_all(&north_bound).await;
    let watcher = open(bench, SITE).await;
    let told = async |uid: &str, what: &str| while !next(bench, &watcher, what).await.uids.contains(uid) {};

    put(&north_bound, &port(&["h"], Some(1)), "p").await;
    told("p", "another handle's write").await;
    let port_row = only(&watcher, "p", Table::LogicalSwitchPort);
    assert_eq!(watcher.is_up("p"), Ok(false));
    bench.come_up(&port_row).await;
    told("p", "the port came up").await;
    assert_eq!(watcher.is_up("p"), Ok(true));
    assert_eq!(watcher.is_up("never"), Ok(false));
    bench.set_by_hand(&only(&watcher, "s", Table::LogicalSwitch), "name", "mine").await;
    told("s", "a row changed by hand").await;
    assert!(!plan(&watcher, &subnet(1442), "s").is_empty(), "what was told is there to be read");
    // Its members are not in it any more.
    put(&north_bound, &[], "h").await;
    told("h", "an object was deleted").await;
    bench.delete_port_by_hand(&port_row).await;
    told("p", "a row deleted by hand").await;
    assert_eq!(watcher.rows("p"), Ok(Vec::new()));
    north_bound.raise(0).await.expect("after it this handle has seen what the other one was told");
    put(&north_bound, &port(&["g"], Some(1)), "p").await;
    clear(&north_bound).await;
}

async fn members_are_counted(bench: &impl Bench) {
    let north_bound = leader(bench).await;
    put_all(&north_bound).await;
    let members = |uid: &str| {
        let members = north_bound.members(uid).expect("in step");
        (members.count, members.chassis.into_iter().collect::<Vec<_>>())
    };
    let bound = (1, vec!["dpu-1".to_owned()]);
    assert_eq!((members("g"), members("s")), (bound.clone(), bound), "the router's port is no member of the Subnet");
    for nobody in ["h", "p", "never"] {
        assert_eq!(members(nobody), (0, Vec::new()), "{nobody}");
    }
    put(&north_bound, &port(&["h"], None), "p").await;
    assert_eq!((members("g"), members("h")), ((0, Vec::new()), (1, Vec::new())), "no chassis may bind it");
    clear(&north_bound).await;
}

async fn numbers_only_grow(bench: &impl Bench) {
    let north_bound = leader(bench).await;
    let before = north_bound.number().expect("in step");
    let first = north_bound.raise(0).await.expect("raise");
    let second = north_bound.raise(0).await.expect("raise");
    assert!(before < first && first < second, "{before} {first} {second}");
    let third = north_bound.raise(second + 7).await.expect("raise");
    assert!(third > second + 7, "{third}: above what a chassis still tells of a database that was replaced");
    assert_eq!(north_bound.number(), Ok(third));
    assert!(north_bound.raise(first).await.expect("raise") > third);
}

async fn a_lost_database_is_told(bench: &impl Bench) {
    let north_bound = leader(bench).await;
    put(&north_bound, &vpc(), "v").await;
    let change = plan(&north_bound, &[], "v");
    bench.set_down(true).await;
    while next(bench, &north_bound, "the loss").await.link.is_ok() {}
    assert_eq!(north_bound.rows("v").map_err(|error| error.class), Err(ErrorClass::Unreachable));
    assert_eq!(north_bound.token().map_err(|error| error.class), Err(ErrorClass::Unreachable));
    let refused = north_bound.apply(&change).await.expect_err("cut off");
    assert_eq!(refused.class(), ErrorClass::Unreachable);
    assert_eq!(north_bound.raise(0).await.map_err(|error| error.class()), Err(ErrorClass::Unreachable));

    bench.set_down(false).await;
    while next(bench, &north_bound, "the return").await.link.is_err() {}
    assert!(plan(&north_bound, &vpc(), "v").is_empty(), "nothing was lost");
    north_bound.apply(&change).await.expect("the token is kept");
    clear(&north_bound).await;
}
