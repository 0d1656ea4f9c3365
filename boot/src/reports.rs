//! What was seen of servers, into their HardwareReports: the loop around `planner::netboot::report::add`. Whoever sees something says so
//! and goes on; what comes of it is written by this loop alone, some of a moment together. A report that cannot be written is written
//! later, as it is by then.

use crate::world::World;
use api::report::{HardwareReportStatus, HeardBy};
use api::tinkerbell::Hardware;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
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
    hardware: String,
    owner: OwnerReference,
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

    pub fn saw_of(&self, hardware: &Hardware, mac: &str, sight: Sight) {
        // A server that no Hardware names has no report.
        let (Some(name), Some(mut owner)) = (hardware.metadata.name.clone(), hardware.owner_ref(&())) else { return };
        owner.controller = None;
        let seen = Seen { hardware: name, owner, mac: mac.to_owned(), sight };
        if self.0.try_send(seen).is_err() {
            tracing::debug!("more was seen than is told");
        }
    }
}

/// That a server has sent something from its address: what runs there is its own system, unless it is being installed.
pub fn heard(subject: &Subject<'_>, from: IpAddr, by: HeardBy) -> Option<Sight> {
    let starts = by == HeardBy::Metadata;
    let is_own = matches!(verdict(subject), Verdict::LocalDisk(_) | Verdict::AddressOnly(_));
    is_own.then_some(Sight::Heard { address: from, by, starts })
}

/// One server's report, as it was last written or is to be written.
struct Kept {
    owner: OwnerReference,
    status: HardwareReportStatus,
    is_written: bool,
}

/// Until nobody sees anything any more.
pub async fn run(world: &World, mut sights: Sights) {
    let mut kept = read(world).await;
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
async fn read(world: &World) -> HashMap<String, Kept> {
    loop {
        match world.reports().await {
            Ok(all) => {
                let known = all.into_iter().filter_map(|report| {
                    let owner = report.metadata.owner_references.unwrap_or_default().pop()?;
                    let status = report.status.unwrap_or_default();
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
fn note(kept: &mut HashMap<String, Kept>, seen: Seen) -> bool {
    let Seen { hardware, owner, mac, sight } = seen;
    let status = HardwareReportStatus::default();
    let report = kept.entry(hardware).or_insert_with(|| Kept { owner: owner.clone(), status, is_written: true });
    if report.owner.uid != owner.uid {
        // Another Hardware of that name: what was seen of the one before is none of its.
        *report = Kept { owner, status: HardwareReportStatus::default(), is_written: true };
    }
    let Some(status) = add(&report.status, &mac, &sight, clock::now()) else { return false };
    (report.status, report.is_written) = (status, false);
    true
}

/// Whether all was written.
async fn write(world: &World, kept: &mut HashMap<String, Kept>) -> bool {
    let mut all = true;
    for (hardware, report) in kept.iter_mut().filter(|(_, report)| !report.is_written) {
        match world.report(hardware, &report.owner, &report.status).await {
            Ok(()) => report.is_written = true,
            Err(error) => {
                tracing::warn!("{error:#}");
                all = false;
            }
        }
    }
    // Of a server that is gone nothing more comes.
    kept.retain(|hardware, report| !report.is_written || world.hardware(hardware).is_some());
    all
}
