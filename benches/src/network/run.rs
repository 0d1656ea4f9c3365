//! The phases: a small site and its changes; all VNics; an empty north-bound database; a start with nothing to do; the changes again.

use super::STUCK;
use super::change::{Changes, Kind, Times, plug};
use super::ground::{Ground, PLUGGED, WITHOUT_PORT};
use super::process::Controller;
use super::relay::{About, Relay, Transaction};
use super::south::{self, South};
use crate::Figures;
use crate::args::Network;
use crate::figure::{Figure, Unit};
use crate::scrape::{RECONCILES, REQUESTS};
use crate::stage::Story;
use anyhow::{Context, Result, ensure};
use ovsdb::client::{Connection, Limits};
use ovsdb::{Remotes, north_bound};
use sandbox::cluster::ovn::NORTH_BOUND;
use serde_json::json;
use std::collections::HashSet;
use std::time::{Duration, Instant};
use tests::site::Site;

/// Beside so many VNics the changes are made for the first time, so many of each.
const SMALL: usize = 100;
const SMALL_CHANGES: usize = 10;
/// To make all VNics, with a hold for each, or all their rows.
const ALL: Duration = Duration::from_secs(900);
/// Rows that nothing else holds; what is in their sets goes with them.
const ROOTS: [&str; 4] = ["Port_Group", "Logical_Switch", "Logical_Router", "DHCP_Options"];

pub struct Bench<'a> {
    pub site: &'a Site,
    pub story: &'a Story,
    pub relay: &'a Relay,
    pub ground: &'a Ground,
    pub south: &'a South,
    pub controller: &'a Controller<'a>,
}

impl<'a> Bench<'a> {
    pub async fn run(&self, options: &Network) -> Result<Figures> {
        let (vnics, changes) = (usize::from(options.vnics), usize::from(options.changes));
        let mut figures = Figures::new();
        let mut keep = |name: &str, figure: Figure| {
            figures.insert(name.to_owned(), figure);
        };
        let (mut uids, change) = self.small().await?;
        let small = change.each(0, SMALL_CHANGES).await?;
        for (kind, times) in &small {
            keep(&name(*kind, "TransactionsSmall"), figure(Unit::Count, &times.transactions)?);
            keep(&name(*kind, "BytesSmall"), figure(Unit::Count, &times.bytes)?);
        }

        self.story.say(&format!("{vnics} VNics"));
        let (first, began) = (self.relay.count(), Instant::now());
        let made: HashSet<String> = self.ground.vnics(SMALL..vnics).await?.into_iter().collect();
        if !made.is_empty() {
            let written = self.relay.until_all("the ports of new VNics in NB", first, &made, ALL).await?;
            let took = written.saturating_duration_since(began).as_secs_f64();
            self.story.say(&format!("all are written after {took:.1} s"));
            keep("vnicsPerMinute", Figure::one(Unit::Count, made.len() as f64 / took * 60.0));
            self.controller.counts(REQUESTS).await?.show(self.story, "requests per VNic", vnics as f64);
            self.controller.counts(RECONCILES).await?.show(self.story, "looks per VNic", vnics as f64);
        }
        uids.extend(made);
        self.controller.calm(vnics).await?;
        let mut most = self.controller.stop().await?;

        self.empty().await?;
        let (synced, written) = self.full_sync(&uids).await?;
        for (name, figure) in synced {
            keep(name, figure);
        }
        self.ports_in_south_bound(uids.len(), written).await.map(|figure| keep("fullSyncNorthd", figure))?;
        self.controller.calm(vnics).await?;
        most = most.max(self.controller.stop().await?);

        for (name, figure) in self.restart(vnics).await? {
            keep(name, figure);
        }

        self.story.say(&format!("{changes} times each change"));
        for (kind, times) in &change.each(SMALL_CHANGES, changes).await? {
            for (name, figure) in told(*kind, times)? {
                keep(&name, figure);
            }
        }
        most = most.max(self.controller.stop().await?);
        keep("memoryPeak", Figure::one(Unit::Mebibytes, most));
        Ok(figures)
    }

    /// The UIDs of what has rows, and what changes are made with.
    async fn small(&self) -> Result<(HashSet<String>, Changes<'a>)> {
        self.story.say(&format!("Vpcs, Subnets, SecurityGroups and {SMALL} VNics"));
        self.controller.start().await?;
        let first = self.relay.count();
        let mut uids = self.ground.make().await?;
        let vnics = self.ground.vnics(0..SMALL).await?;
        for (number, uid) in vnics.iter().take(PLUGGED).enumerate() {
            plug(self.site, &format!("nic{number}"), uid).await?;
        }
        let plugged: Vec<String> = vnics[..PLUGGED].to_vec();
        uids.extend(vnics);
        self.relay.until_all("the rows of the small site in NB", first, &uids, STUCK).await?;
        let all_up = |view: &ovsdb::session::View| plugged.iter().all(|uid| south::is_up(view, uid));
        self.south.until("the plugged ports are up", STUCK, all_up).await?;
        self.controller.calm(SMALL).await?;
        Ok((uids, Changes::new(self).await?))
    }

    /// The north-bound database as northd makes it when there is none.
    async fn empty(&self) -> Result<()> {
        self.story.say("emptying the north-bound database");
        let address = format!("unix:{}", NORTH_BOUND.socket(self.site.sandbox.layout()).display());
        let remotes = Remotes::new(address.parse()?, None)?;
        let limits = Limits { call: STUCK, ..Limits::default() };
        let (connection, _notifications) = Connection::open(&remotes, &address.parse()?, limits).await?;
        let mut operations = vec![json!(north_bound::DATABASE)];
        operations.extend(ROOTS.map(|table| json!({"op": "delete", "table": table, "where": []})));
        operations
            .push(json!({"op": "update", "table": "NB_Global", "where": [], "row": {"external_ids": ["map", []]}}));
        let outcomes = connection.call("transact", json!(operations)).await?;
        let failed = outcomes.as_array().into_iter().flatten().find(|outcome| outcome.get("error").is_some());
        ensure!(failed.is_none(), "the north-bound database was not emptied: {outcomes}");
        self.south.until("SB is empty", STUCK, |view| south::objects(view) == 0).await.map(drop)
    }

    /// And when everything was written.
    async fn full_sync(&self, uids: &HashSet<String>) -> Result<([(&'static str, Figure); 3], Instant)> {
        self.story.say("starting the controller on it");
        let first = self.relay.count();
        let began = self.controller.start().await?;
        let written = self.relay.until_all("all rows in NB", first, uids, ALL).await?;
        let took = written.saturating_duration_since(began).as_secs_f64();
        let sent = self.relay.since(first);
        let bytes = sent.iter().map(|one| one.bytes as f64).sum::<f64>() / f64::from(1 << 20);
        let refused = sent.iter().filter(|one| one.refused).count();
        self.story.say(&format!(
            "full sync after {took:.1} s: {} transactions, {refused} refused, {bytes:.1} MiB",
            sent.len()
        ));
        let figures = [
            ("fullSync", Figure::one(Unit::Milliseconds, took * 1000.0)),
            ("fullSyncTransactions", Figure::one(Unit::Count, sent.len() as f64)),
            ("fullSyncBytes", Figure::one(Unit::Mebibytes, bytes)),
        ];
        Ok((figures, written))
    }

    async fn ports_in_south_bound(&self, objects: usize, written: Instant) -> Result<Figure> {
        let all = objects - WITHOUT_PORT;
        let there = self.south.until("all ports in SB", STUCK, |view| south::objects(view) >= all).await?;
        let passed = there.saturating_duration_since(written).as_secs_f64() * 1000.0;
        Ok(Figure::one(Unit::Milliseconds, passed))
    }

    /// Everything is as it should be: what is written all the same.
    async fn restart(&self, vnics: usize) -> Result<[(&'static str, Figure); 3]> {
        self.story.say("starting the controller anew, with nothing to do");
        let first = self.relay.count();
        let began = self.controller.start().await?;
        let took = began.elapsed().as_secs_f64();
        self.controller.calm(vnics).await?;
        let sent: Vec<Transaction> =
            self.relay.since(first).into_iter().filter(|one| one.about != About::Token).collect();
        let writes = self.controller.counts(REQUESTS).await?.only(is_write);
        self.story.say(&format!("token after {took:.1} s; then written: {sent:?}"));
        writes.show(self.story, "writes to the API server", 1.0);
        let resident = self.controller.process().await?.memory("VmRSS")?;
        Ok([
            ("restartTransactions", Figure::one(Unit::Count, sent.len() as f64)),
            ("restartWrites", Figure::one(Unit::Count, writes.total())),
            ("memory", Figure::one(Unit::Mebibytes, resident)),
        ])
    }
}

/// A request that changes something else than the leader's Lease.
fn is_write(labels: &str) -> bool {
    !labels.starts_with("method=GET,") && !labels.contains("resource=leases")
}

fn figure(unit: Unit, samples: &[f64]) -> Result<Figure> {
    Figure::of(unit, samples).context("there are samples")
}

fn name(kind: Kind, what: &str) -> String {
    let kind = match kind {
        Kind::Made => "made",
        Kind::Deleted => "deleted",
        Kind::Rule => "rule",
    };
    format!("{kind}{what}")
}

fn told(kind: Kind, times: &Times) -> Result<Vec<(String, Figure)>> {
    let all = [
        ("Ours", Unit::Milliseconds, &times.ours),
        ("Northd", Unit::Milliseconds, &times.northd),
        ("Chassis", Unit::Milliseconds, &times.chassis),
        ("Whole", Unit::Milliseconds, &times.whole),
        ("Transactions", Unit::Count, &times.transactions),
        ("Bytes", Unit::Count, &times.bytes),
    ];
    // What the chassis does not tell has no samples.
    let measured = all.into_iter().filter(|(.., samples)| !samples.is_empty());
    measured.map(|(what, unit, samples)| Ok((name(kind, what), figure(unit, samples)?))).collect()
}
