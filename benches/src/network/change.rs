//! One change, from apply to the chassis.

use super::ground::Ground;
use super::process::process;
use super::relay::{About, Relay, Transaction};
use super::run::Bench;
use super::south::{self, South};
use super::{CHASSIS, STUCK};
use crate::processes::Process;
use crate::stage::Story;
use anyhow::{Result, ensure};
use sandbox::cluster::ovn::NORTHD;
use std::time::{Duration, Instant};
use tests::site::Site;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Made,
    Deleted,
    Rule,
}

/// Milliseconds, and what was sent to the north-bound database for it, whatever it was for.
#[derive(Debug, Default)]
pub struct Times {
    /// From apply to the answer of the north-bound database.
    pub ours: Vec<f64>,
    /// From there until it is in the south-bound database.
    pub northd: Vec<f64>,
    /// From there until the chassis says that it has it.
    pub chassis: Vec<f64>,
    pub whole: Vec<f64>,
    pub transactions: Vec<f64>,
    pub bytes: Vec<f64>,
}

pub struct Changes<'a> {
    pub site: &'a Site,
    pub story: &'a Story,
    pub relay: &'a Relay,
    pub ground: &'a Ground,
    pub south: &'a South,
    /// Northd and the chassis' controller, which are let come to rest before each change.
    pub others: [Process; 2],
}

/// When each step was done; the last one is not known of what the chassis does not tell.
struct Steps {
    applied: Instant,
    committed: Instant,
    translated: Instant,
    installed: Option<Instant>,
}

impl<'a> Changes<'a> {
    pub async fn new(bench: &Bench<'a>) -> Result<Self> {
        let Bench { site, story, relay, ground, south, .. } = *bench;
        let others = [process(site, NORTHD).await?, process(site, &format!("{CHASSIS}/ovn-controller")).await?];
        Ok(Self { site, story, relay, ground, south, others })
    }

    /// Each `times` times, one after the other. `first`: no turn is made twice.
    pub async fn each(&self, first: usize, times: usize) -> Result<[(Kind, Times); 3]> {
        let mut all = [Kind::Made, Kind::Deleted, Kind::Rule].map(|kind| (kind, Times::default()));
        self.rest().await?;
        for turn in first..first + times {
            for (kind, times) in &mut all {
                self.one(*kind, turn, times).await?;
            }
            if (turn + 1 - first).is_multiple_of(SAID) {
                self.story.say(&format!("{} of {times} times each change: {}", turn + 1 - first, said(&all)));
            }
        }
        Ok(all)
    }

    async fn one(&self, kind: Kind, turn: usize, times: &mut Times) -> Result<()> {
        let from = self.relay.count();
        let steps = match kind {
            Kind::Made => self.make(turn, from).await?,
            Kind::Deleted => self.delete(turn, from).await?,
            Kind::Rule => self.rule(turn, from).await?,
        };
        self.rest().await?;
        let sent = self.relay.since(from);
        ensure!(sent.iter().all(|one| !one.refused), "the database has refused one of {sent:?}");
        let passed = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1000.0;
        times.ours.push(passed(steps.applied, steps.committed));
        times.northd.push(passed(steps.committed, steps.translated));
        if let Some(installed) = steps.installed {
            times.chassis.push(passed(steps.translated, installed));
            times.whole.push(passed(steps.applied, installed));
        }
        times.transactions.push(sent.len() as f64);
        times.bytes.push(sent.iter().map(|one| one.bytes as f64).sum());
        Ok(())
    }

    async fn committed(&self, what: &str, from: usize, uid: &str) -> Result<Transaction> {
        let about = About::Object(uid.to_owned());
        self.relay.until(what, from, STUCK, |one| one.about == about).await
    }

    async fn make(&self, turn: usize, from: usize) -> Result<Steps> {
        let applied = Instant::now();
        let uid = self.ground.make_one(turn).await?;
        let committed = self.committed("the port of a new VNic in NB", from, &uid).await?.answered;
        plug(self.site, &device(turn), &uid).await?;
        let plugged = Instant::now();
        let there = self.south.until("a new port in SB", STUCK, |view| south::has_port(view, &uid)).await?;
        let up = self.south.until("a new port is up", STUCK, |view| south::is_up(view, &uid)).await?;
        // Where northd is faster than Open vSwitch's command, the chassis has waited for that.
        Ok(Steps { applied, committed, translated: there.max(plugged), installed: Some(up) })
    }

    async fn delete(&self, turn: usize, from: usize) -> Result<Steps> {
        let uid = self.ground.one_uid(turn).await?;
        let applied = Instant::now();
        self.ground.delete_one(turn).await?;
        let committed = self.committed("the port of a VNic leaves NB", from, &uid).await?.answered;
        let gone = self.south.until("a port leaves SB", STUCK, |view| !south::has_port(view, &uid)).await?;
        self.site.enter(CHASSIS, &["ovs-vsctl", "--if-exists", "del-port", "br-int", &device(turn)]).await?;
        Ok(Steps { applied, committed, translated: gone, installed: None })
    }

    /// What shows that rules are in force is the number that the controller asks for after them.
    async fn rule(&self, turn: usize, from: usize) -> Result<Steps> {
        let uid = self.ground.group_uid(turn).await?;
        let applied = Instant::now();
        self.ground.change_rule(turn).await?;
        let rows = self.committed("a changed rule in NB", from, &uid).await?;
        let is_number = |one: &Transaction| matches!(one.about, About::Number(_)) && one.answered >= rows.answered;
        let asked = self.relay.until("a number is asked for", from, STUCK, is_number).await?;
        let About::Number(number) = asked.about else { unreachable!("that is what was waited for") };
        let northd =
            self.south.until("northd has the number", STUCK, |view| south::northd_reached(view, number)).await?;
        let chassis =
            self.south.until("the chassis has the number", STUCK, |view| south::chassis_reached(view, number)).await?;
        Ok(Steps { applied, committed: rows.answered, translated: northd, installed: Some(chassis) })
    }

    /// Waits until northd and the chassis' controller have nothing to do: one change is measured, not the end of the last one.
    pub async fn rest(&self) -> Result<()> {
        let began = Instant::now();
        let used = || self.others.iter().map(|process| process.cpu_seconds()).sum::<Result<f64>>();
        let (mut before, mut same) = (used()?, 0);
        while same < RESTS {
            ensure!(began.elapsed() < STUCK, "northd or ovn-controller has work after {} s", STUCK.as_secs());
            tokio::time::sleep(LOOK).await;
            let now = used()?;
            same = if now > before { 0 } else { same + 1 };
            before = now;
        }
        Ok(())
    }
}

fn said(all: &[(Kind, Times)]) -> String {
    let worst = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
    let one = |(kind, times): &(Kind, Times)| {
        format!("{kind:?}: ours at most {:.0} ms, northd {:.0} ms", worst(&times.ours), worst(&times.northd))
    };
    all.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// After so many it is said how far it is.
const SAID: usize = 10;
/// So often in a row no processor time was used.
const RESTS: usize = 4;
const LOOK: Duration = Duration::from_millis(100);

fn device(turn: usize) -> String {
    format!("one{turn}")
}

/// As whoever is root on the VNic's node does it: the port is bound by the VNic's UID and epoch 0.
pub async fn plug(site: &Site, device: &str, vnic_uid: &str) -> Result<()> {
    let (id, version) =
        (format!("external_ids:iface-id=mp-{vnic_uid}"), format!("external_ids:iface-id-ver={vnic_uid}.0"));
    let add = ["ovs-vsctl", "add-port", "br-int", device, "--", "set", "interface", device, "type=internal"];
    site.enter(CHASSIS, &[&add[..], &[&id, &version]].concat()).await.map(drop)
}
