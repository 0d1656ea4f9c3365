//! What was seen of servers, into their HardwareReports: the loop around `planner::netboot::report::add`. Whoever sees something says so
//! and goes on; what comes of it is written by this loop alone, some of a moment together. A report that cannot be written is written
//! later, as it is by then.

use crate::dhcp::Leases;
use crate::world::World;
use api::report::{HardwareReportStatus, HeardBy};
use api::tinkerbell::Hardware;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use planner::enrol::{MOST_UNAPPROVED, report_name};
use planner::netboot::report::{Sight, add};
use planner::netboot::{Subject, Verdict, verdict};
use runtime::clock;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// More than a rack's worth of packets; what comes on top of it is dropped, for it comes again.
const ROOM: usize = 1024;
/// A boot's stages of a moment are one write.
const TOGETHER: Duration = Duration::from_millis(500);
/// After a write that failed.
const AGAIN: Duration = Duration::from_secs(5);

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
pub struct Eyes(mpsc::Sender<Seen>);

pub fn channel() -> (Eyes, Sights) {
    let (sender, receiver) = mpsc::channel(ROOM);
    (Eyes(sender), Sights(receiver))
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
        let seen = Seen { report, owner, mac: mac.to_owned(), sight };
        if self.0.try_send(seen).is_err() {
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

/// One server's report, as it was last written or is to be written.
pub struct Kept {
    owner: Option<OwnerReference>,
    status: HardwareReportStatus,
    is_written: bool,
}

impl Kept {
    /// Of a server that no Hardware names nothing is written before its agent has said what it is.
    fn is_due(&self) -> bool {
        !self.is_written && (self.owner.is_some() || self.status.agent_id.is_some())
    }
}

/// Reports, by their names.
pub type All = HashMap<String, Kept>;

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

/// Until nobody sees anything any more.
pub async fn run(world: &World, mut kept: All, mut sights: Sights) {
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
                    due = Some(due.unwrap_or_else(|| Instant::now() + TOGETHER));
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
                    // Conditions are the controller's, a session is written with each change of it.
                    let status = report.status.unwrap_or_default();
                    let status = HardwareReportStatus { conditions: Vec::new(), session: None, ..status };
                    Some((report.metadata.name?, Kept { owner, status, is_written: true }))
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
    let status = HardwareReportStatus::default();
    let report = kept.entry(name).or_insert_with(|| Kept { owner: owner.clone(), status, is_written: true });
    let uid = |owner: &Option<OwnerReference>| owner.as_ref().map(|owner| owner.uid.clone());
    if uid(&report.owner) != uid(&owner) {
        if report.owner.is_some() {
            // Another Hardware of that name: what was seen of the one before is none of its.
            (report.status, report.is_written) = (HardwareReportStatus::default(), true);
        }
        report.owner = owner;
    }
    let Some(status) = add(&report.status, &mac, &sight, clock::now()) else { return false };
    (report.status, report.is_written) = (status, false);
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
        match world.report(name, report.owner.as_ref(), &report.status).await {
            Ok(()) => report.is_written = true,
            Err(error) => {
                tracing::warn!("{error:#}");
                all = false;
            }
        }
    }
    // Of a server that is gone nothing more comes.
    kept.retain(|name, report| !report.is_written || report.owner.is_none() || world.hardware(name).is_some());
    all
}
