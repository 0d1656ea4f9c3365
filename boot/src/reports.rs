//! What was seen of servers, into their HardwareReports: the loop around `planner::netboot::report::add`. Whoever sees something says so
//! and goes on; what comes of it is written by this loop alone, some of a moment together, and added to the report as the API server has
//! it then: other replicas write there too. A report that cannot be written is written later.

use crate::dhcp::Leases;
use crate::metrics::Metrics;
use crate::world::World;
use anyhow::{Context, Result, bail, ensure};
use api::report::{HardwareReportStatus, HeardBy, NetbootSeen, NetbootStage};
use api::tinkerbell::Hardware;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use planner::enrol::{MOST_UNAPPROVED, report_name, summary};
use planner::netboot::report::{Sight, add};
use planner::netboot::{Subject, Verdict, verdict};
use runtime::clock;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// More than a rack's worth of packets; what comes on top of it is dropped, for it comes again.
const ROOM: usize = 1024;
/// A boot's stages of a moment are one write.
const TOGETHER: Duration = Duration::from_millis(500);
/// Every replica hears a broadcast, and each waits so much longer than the one before: then it finds in the report what it was to write.
const IN_TURN: Duration = Duration::from_millis(300);
/// After a write that failed.
const AGAIN: Duration = Duration::from_secs(5);
/// Of one server that cannot be written yet; what is older is dropped.
const MOST_PENDING: usize = 32;
/// Writes of one report that met another one's.
const CONFLICTS: usize = 8;

struct Seen {
    /// The name of the Hardware, or of the one that discovery would make.
    report: String,
    /// `None`: no Hardware names the server.
    owner: Option<OwnerReference>,
    mac: String,
    sight: Sight,
}

/// By which it is said what was seen.
#[derive(Clone)]
pub struct Eyes {
    seen: mpsc::Sender<Seen>,
    metrics: Arc<Metrics>,
}

pub fn channel(metrics: Arc<Metrics>) -> (Eyes, Sights) {
    let (seen, receiver) = mpsc::channel(ROOM);
    (Eyes { seen, metrics }, Sights(receiver))
}

pub struct Sights(mpsc::Receiver<Seen>);

impl Eyes {
    pub fn saw(&self, subject: &Subject<'_>, sight: Sight) {
        self.saw_of(subject.hardware, subject.mac, sight);
    }

    /// A Hardware without a name stands for a server that none names: its agent is known by its MAC address.
    pub fn saw_of(&self, hardware: &Hardware, mac: &str, sight: Sight) {
        let owner = owner(hardware);
        let report = hardware.metadata.name.clone().unwrap_or_else(|| match &sight {
            Sight::Agent { id, .. } => report_name(id),
            _ => report_name(mac),
        });
        self.metrics.saw(&sight);
        let seen = Seen { report, owner, mac: mac.to_owned(), sight };
        if self.seen.try_send(seen).is_err() {
            self.metrics.dropped();
            tracing::debug!("more was seen than is told");
        }
    }
}

/// A report goes with its Hardware.
pub fn owner(hardware: &Hardware) -> Option<OwnerReference> {
    hardware.owner_ref(&()).map(|owner| OwnerReference { controller: None, ..owner })
}

/// That a server has sent something from its address: what runs there is its own system, unless it is being installed.
pub fn heard(subject: &Subject<'_>, from: IpAddr, by: HeardBy) -> Option<Sight> {
    let starts = by == HeardBy::Metadata;
    let is_own = matches!(verdict(subject), Verdict::LocalDisk(_) | Verdict::AddressOnly(_));
    is_own.then_some(Sight::Heard { address: from, by, starts })
}

/// One server's report, as this replica knows it.
pub struct Kept {
    owner: Option<OwnerReference>,
    status: HardwareReportStatus,
    /// What of it is not written: by which interface, what, and when it was seen.
    pending: VecDeque<(String, Sight, Timestamp)>,
}

impl Kept {
    fn new(owner: Option<OwnerReference>, status: HardwareReportStatus) -> Self {
        Self { owner, status, pending: VecDeque::new() }
    }

    /// Of a server that no Hardware names nothing is written before its agent has said what it is.
    fn is_due(&self) -> bool {
        !self.pending.is_empty() && (self.owner.is_some() || self.status.agent_id.is_some())
    }

    /// The newest report with what is pending.
    fn added_to(&self, newest: &HardwareReportStatus) -> HardwareReportStatus {
        let mut status = newest.clone();
        for (mac, sight, at) in &self.pending {
            let seen = status.netboot.as_ref();
            if seen.is_some_and(|seen| is_past(sight, *at, seen)) {
                continue;
            }
            let at = seen.map_or(*at, |seen| seen.at.0.max(*at));
            status = add(&status, mac, sight, at).unwrap_or(status);
        }
        status
    }
}

/// Another replica has written what came later: a boot is not to begin anew by what was seen before.
fn is_past(sight: &Sight, at: Timestamp, seen: &NetbootSeen) -> bool {
    let begins = match sight {
        Sight::Asked { .. } | Sight::Turned { .. } | Sight::Unserved { .. } => true,
        Sight::Came(_) => seen.stage > NetbootStage::Agent,
        Sight::Agent { .. } | Sight::AgentRefused { .. } | Sight::Heard { .. } => false,
    };
    begins && at < seen.at.0
}

/// Reports, by their names.
pub type All = BTreeMap<String, Kept>;

/// The addresses that agents report from.
pub fn leases(kept: &All) -> Leases {
    let mut leases = Leases::default();
    for seen in kept.values().filter_map(|report| report.status.netboot.as_ref()) {
        if let Some(address) = seen.address.as_ref().and_then(|address| address.parse().ok()) {
            leases.know(&seen.mac_address, address, seen.at.0);
        }
    }
    leases
}

/// Until nobody sees anything any more. `number`: of the replica.
pub async fn run(world: &World, mut kept: All, mut sights: Sights, number: usize) {
    let together = TOGETHER + IN_TURN * u32::try_from(number).unwrap_or_default();
    let mut due: Option<Instant> = None;
    loop {
        let wait = async {
            match due {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            seen = sights.0.recv() => {
                let Some(seen) = seen else { return };
                if note(&mut kept, seen) {
                    due = Some(due.unwrap_or_else(|| Instant::now() + together));
                }
            }
            () = wait => due = (!write(world, &mut kept).await).then(|| Instant::now() + AGAIN),
        }
    }
}

/// What an earlier process wrote.
pub async fn read(world: &World) -> All {
    loop {
        match world.reports().await {
            Ok(all) => {
                let known = all.into_iter().filter_map(|report| {
                    let owner = report.metadata.owner_references.unwrap_or_default().pop();
                    Some((report.metadata.name?, Kept::new(owner, report.status.unwrap_or_default())))
                });
                return known.collect();
            }
            Err(error) => {
                tracing::warn!("{error:#}");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// Whether there is something to write.
fn note(kept: &mut All, seen: Seen) -> bool {
    let Seen { report: name, owner, mac, sight } = seen;
    if owner.is_none() && !kept.contains_key(&name) && !make_room(kept) {
        tracing::warn!(mac, "more servers that no Hardware names than are told of: approve or delete those that are");
        return false;
    }
    let report = kept.entry(name).or_insert_with(|| Kept::new(owner.clone(), HardwareReportStatus::default()));
    let uid = |owner: &Option<OwnerReference>| owner.as_ref().map(|owner| owner.uid.clone());
    if uid(&report.owner) != uid(&owner) {
        if report.owner.is_some() {
            // Another Hardware of that name: what was seen of the one before is none of its.
            *report = Kept::new(None, HardwareReportStatus::default());
        }
        report.owner = owner;
    }
    let now = clock::now();
    let Some(status) = add(&report.status, &mac, &sight, now) else { return false };
    report.status = status;
    if report.pending.len() == MOST_PENDING {
        report.pending.pop_front();
    }
    report.pending.push_back((mac, sight, now));
    report.is_due()
}

/// Whoever has a cable can send as many MAC addresses as he likes. `false`: all that are kept have an agent.
fn make_room(kept: &mut All) -> bool {
    let strangers = || kept.iter().filter(|(_, report)| report.owner.is_none());
    if strangers().count() < MOST_UNAPPROVED {
        return true;
    }
    let at = |report: &Kept| report.status.netboot.as_ref().map(|seen| seen.at.0);
    let silent = strangers().filter(|(_, report)| report.status.agent_id.is_none());
    let oldest = silent.min_by_key(|(_, report)| at(report)).map(|(name, _)| name.clone());
    oldest.is_some_and(|name| kept.remove(&name).is_some())
}

/// Whether all was written.
async fn write(world: &World, kept: &mut All) -> bool {
    let mut all = true;
    for (name, report) in kept.iter_mut().filter(|(_, report)| report.is_due()) {
        match write_one(world, name, report).await {
            Ok(status) => {
                report.status = status;
                report.pending.clear();
            }
            Err(error) => {
                tracing::warn!("{error:#}");
                all = false;
            }
        }
    }
    // Of a server that is gone nothing more comes.
    kept.retain(|name, report| !report.pending.is_empty() || report.owner.is_none() || world.hardware(name).is_some());
    all
}

/// The report as it is then.
async fn write_one(world: &World, name: &str, kept: &Kept) -> Result<HardwareReportStatus> {
    for _ in 0..CONFLICTS {
        let Some(newest) = world.read_report(name).await.with_context(|| format!("read HardwareReport '{name}'"))?
        else {
            world.make_report(name, kept.owner.clone()).await?;
            continue;
        };
        let owners = newest.metadata.owner_references.iter().flatten();
        let is_of_other = |owner: &OwnerReference| kept.owner.as_ref().is_some_and(|own| own.uid != owner.uid);
        ensure!(
            !owners.into_iter().any(is_of_other),
            "HardwareReport '{name}' is of a Hardware that was deleted, and goes with it"
        );
        let mut status = kept.added_to(&newest.status.clone().unwrap_or_default());
        status.summary = status.attributes.as_ref().map(summary);
        if world.write_report(&newest, status.clone()).await?.is_some() {
            return Ok(status);
        }
    }
    bail!("HardwareReport '{name}' is written by others")
}

#[cfg(test)]
mod tests {
    use super::*;
    use planner::netboot::Client;

    const MAC: &str = "52:54:00:00:00:01";

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).expect("a time")
    }

    fn asked() -> Sight {
        Sight::Asked { client: Client::default(), uuid: None }
    }

    fn kept(pending: &[(i64, Sight)]) -> Kept {
        let mut kept = Kept::new(None, HardwareReportStatus::default());
        kept.pending = pending.iter().map(|(second, sight)| (MAC.to_owned(), sight.clone(), at(*second))).collect();
        kept
    }

    fn stage(status: &HardwareReportStatus) -> (Option<NetbootStage>, Option<Timestamp>) {
        let seen = status.netboot.as_ref();
        (seen.map(|seen| seen.stage), seen.map(|seen| seen.began_at.0))
    }

    /// The firmware is heard by both; the second serves it.
    #[test]
    fn what_two_replicas_saw_of_one_boot_is_one_boot() {
        use NetbootStage::{Agent, Dhcp, Kernel, LocalDisk, Program, Script};
        let empty = HardwareReportStatus::default();
        let second =
            kept(&[(0, asked()), (2, Sight::Came(Program)), (5, Sight::Came(Script)), (6, Sight::Came(Kernel))]);
        let written = second.added_to(&empty);
        assert_eq!(stage(&written), (Some(Kernel), Some(at(0))));
        let late = kept(&[(0, asked()), (1, asked())]);
        assert_eq!(late.added_to(&written), written, "the first has heard the firmware too, and writes that late");
        let by_both = late.added_to(&empty);
        assert_eq!(stage(&second.added_to(&by_both)), (Some(Kernel), Some(at(0))));
        // A clock that is behind loses no stage.
        let behind = kept(&[(3, Sight::Came(Agent))]).added_to(&written);
        assert_eq!(stage(&behind), (Some(Agent), Some(at(0))));
        let why = "it is installed".to_owned();
        let turned =
            kept(&[(100, Sight::Turned { stage: LocalDisk, why, client: None, uuid: None })]).added_to(&behind);
        assert_eq!(kept(&[(90, Sight::Came(Kernel))]).added_to(&turned), turned, "a file of the boot before");
        assert_eq!(stage(&kept(&[(900, asked())]).added_to(&turned)), (Some(Dhcp), Some(at(900))));
    }
}
