//! Everything that a plan rests on.

use super::{Attachment, Exposures, Function, ImportDone, Key, Step, StepKind};
use crate::exposure::{Exposure, ExposureId, Limits, Presence};
use crate::seen::Seen;
use api::Dpu;
use api::attachment::EraserReport;
use api::dpu::Orphan;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

const ASK_AGAIN_AFTER: SignedDuration = SignedDuration::from_secs(10);

/// What presents disks was started anew: seen in this life of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    pub since: Timestamp,
    /// Why the last attempt failed.
    pub error: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub struct Observed {
    pub now: Timestamp,
    /// The name of this DPU.
    pub dpu_name: String,
    /// The present boot.
    pub boot_id: String,
    /// What no disk of this DPU may exceed, whatever is asked for it.
    pub bounds: Limits,
    /// `Fresh`: read from quorum in this round. `Stale`: as a watch told. `Unknown`: the API server never answered.
    pub attachments: Seen<Vec<Attachment>>,
    /// What was claimed on this boot, by UID.
    pub record: BTreeMap<String, Entry>,
    pub exposures: Exposures,
    /// What presents disks waits for the whole set of them.
    pub recovery: Option<Recovery>,
    /// By CSI driver: one entry for each connector that there is.
    pub connections: BTreeMap<String, Seen<Vec<Connected>>>,
    pub ports: Seen<Vec<Plugged>>,
    /// Whose release was seen to be asked for on this boot, or which orphan was seen to be free to go: that is never taken back.
    pub released: BTreeSet<ExposureId>,
    /// What this DPU's Dpu says of orphans.
    pub word: Word,
    /// UIDs of the seeds whose image is on disk.
    pub seeds: BTreeSet<String>,
    /// What is on the disks of erasers, by UID.
    pub erasers: BTreeMap<String, EraserReport>,
    /// The imports that run, by UID.
    pub imports: BTreeMap<String, ImportRun>,
    /// When this life of the agent last asked the host to let go of a function, by UID.
    pub hidden_at: BTreeMap<String, Timestamp>,
    /// Since when this life of the agent has seen a port not in force, by UID.
    pub not_in_force_since: BTreeMap<String, Timestamp>,
    /// Since when the agent has known each attachment that is not granted.
    pub ungranted_since: BTreeMap<String, Timestamp>,
    /// Whose guest asks for its metadata and is not answered, by UID: why.
    pub unanswered: BTreeMap<String, String>,
    /// What the guests behind our NICs were seen to do, by UID.
    pub guests: BTreeMap<String, Guest>,
    /// The last failed step of each kind, by UID.
    pub failures: BTreeMap<(String, StepKind), Failure>,
}

/// One line of the record: a claimed grant. The record is in memory that a reboot of the DPU forgets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub key: Key,
    pub id: ExposureId,
    pub boot_id: String,
    /// As the storage knows it: the same as in `status.fence`.
    pub identity: String,
    pub function: Function,
    /// What was asked for last: a replay without the API server keeps to it.
    #[serde(default, skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import_done: Option<ImportDone>,
    /// The host was shown it, or is about to be. Without it nobody would know that after a crash of what presents it.
    #[serde(default)]
    pub shown: bool,
}

/// What the Dpu that the agent joined as says of orphans: the controller's word, an administrator's, and the agent's own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Word {
    /// `status.releasable`.
    pub releasable: BTreeSet<ExposureId>,
    /// `spec.forget`.
    pub forget: BTreeSet<String>,
    /// `status.orphans`: what was reported last.
    pub reported: Vec<Orphan>,
}

impl Word {
    pub fn of(dpu: &Dpu) -> Self {
        let status = dpu.status.as_ref();
        let releasable = status.into_iter().flat_map(|status| &status.releasable);
        Self {
            releasable: releasable.map(|one| ExposureId { uid: one.uid.clone(), epoch: one.epoch }).collect(),
            forget: dpu.spec.forget.iter().cloned().collect(),
            reported: status.map(|status| status.orphans.clone()).unwrap_or_default(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportRun {
    pub bytes_written: u64,
}

/// A volume that a connector has connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connected {
    pub id: ExposureId,
    pub size_bytes: u64,
}

/// A port of ours on the switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plugged {
    pub id: ExposureId,
    /// The network device that is plugged.
    pub device: String,
    /// Which grant the switch has it for: [`ExposureId::version`], or what an older agent left there.
    pub version: String,
    pub forwarding: bool,
    /// OVN says that it has installed the port: too early to rely on.
    pub installed: bool,
    /// OVN has installed everything for the port.
    pub in_force: bool,
    pub error: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Guest {
    pub first_packet_at: Option<Timestamp>,
    pub answered_at: Option<Timestamp>,
    pub answered_address: Option<std::net::IpAddr>,
}

/// A step that failed, and how often in a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    pub step: Step,
    pub class: FailureClass,
    pub message: String,
    pub count: u32,
    pub at: Timestamp,
}

/// As `ports::ErrorClass`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureClass {
    Unreachable,
    Unauthorized,
    Busy,
    NotFound,
    Conflict,
    Unsupported,
    Invalid,
}

impl Observed {
    /// What the record has of this very grant.
    pub(super) fn entry(&self, id: &ExposureId) -> Option<&Entry> {
        self.record.get(&id.uid).filter(|entry| entry.id == *id)
    }

    /// Whatever is exposed, connected, plugged or recorded.
    pub(super) fn present(&self) -> impl Iterator<Item = &ExposureId> {
        let exposed = self.exposures.last().into_iter().flatten().map(|e| &e.id);
        let connected = self.all_connections().map(|(_, c)| &c.id);
        let plugged = self.all_ports().map(|p| &p.id);
        exposed.chain(connected).chain(plugged).chain(self.record.values().map(|e| &e.id))
    }

    pub(super) fn exposure(&self, id: &ExposureId) -> Option<&Exposure> {
        self.exposures.last()?.iter().find(|e| e.id == *id)
    }

    /// The network device of the DPU that stands for a NIC.
    pub(super) fn device(&self, uid: &str) -> Option<String> {
        self.exposures_of(uid).find_map(|exposure| exposure.representor.clone())
    }

    /// How this very step failed when it was last taken.
    pub(super) fn failure(&self, step: &Step) -> Option<&Failure> {
        self.failures.get(&(step.uid().to_owned(), step.kind())).filter(|failure| failure.step == *step)
    }

    pub(super) fn exposures_of(&self, uid: &str) -> impl Iterator<Item = &Exposure> {
        self.exposures.last().into_iter().flatten().filter(move |e| e.id.uid == uid)
    }

    /// The host sees it, or saw it before what presents it crashed.
    pub(super) fn is_shown(&self, id: &ExposureId) -> bool {
        self.exposure(id).is_some() || self.entry(id).is_some_and(|entry| entry.shown)
    }

    /// What of this UID the host was shown and is not yet noted as released.
    pub(super) fn to_note(&self, uid: &str) -> Option<&ExposureId> {
        let recorded = self.record.get(uid).map(|entry| &entry.id);
        let mut all = self.exposures_of(uid).map(|exposure| &exposure.id).chain(recorded);
        all.find(|id| self.is_shown(id) && !self.released.contains(id))
    }

    /// What to hide of these: not asked to leave yet, or so long ago that the host may have missed it. A guest without
    /// a driver for it (firmware, an early boot) drops the request.
    pub(super) fn to_hide<'a>(&self, mut shown: impl Iterator<Item = &'a Exposure>) -> Option<&'a Exposure> {
        shown.find(|exposure| {
            let asked = self.hidden_at.get(&exposure.id.uid);
            exposure.presence != Presence::Leaving
                || asked.is_none_or(|at| self.now.duration_since(*at) >= ASK_AGAIN_AFTER)
        })
    }

    pub(super) fn connection(&self, driver: &str, id: &ExposureId) -> Option<&Connected> {
        self.connections.get(driver)?.last()?.iter().find(|c| c.id == *id)
    }

    pub(super) fn all_connections(&self) -> impl Iterator<Item = (&str, &Connected)> {
        self.connections
            .iter()
            .flat_map(|(driver, seen)| seen.last().into_iter().flatten().map(move |c| (driver.as_str(), c)))
    }

    pub(super) fn port(&self, id: &ExposureId) -> Option<&Plugged> {
        self.ports.last()?.iter().find(|p| p.id == *id)
    }

    pub(super) fn all_ports(&self) -> impl Iterator<Item = &Plugged> {
        self.ports.last().into_iter().flatten()
    }

    /// Another epoch of the same attachment that is exposed, connected or plugged, or that the host was shown before what
    /// presents it crashed: nothing else tells of a NIC then, and a claim would take its place in the record.
    pub(super) fn other_epoch(&self, id: &ExposureId) -> Option<u64> {
        let exposed = self.exposures_of(&id.uid).map(|e| &e.id);
        let connected = self.all_connections().map(|(_, c)| &c.id);
        let plugged = self.all_ports().map(|p| &p.id);
        let shown = self.record.get(&id.uid).filter(|entry| entry.shown).map(|entry| &entry.id);
        let mut all = exposed.chain(connected).chain(plugged).chain(shown);
        all.find(|other| other.uid == id.uid && other.epoch != id.epoch).map(|other| other.epoch)
    }

    /// Whether the import has ended well, as the record or the status says.
    pub(super) fn import_done<'a>(&'a self, attachment: &'a Attachment) -> Option<&'a ImportDone> {
        let recorded = self.record.get(&attachment.key.uid).filter(|e| Some(e.id.epoch) == attachment.epoch);
        recorded.and_then(|e| e.import_done.as_ref()).or(attachment.import_done.as_ref())
    }
}
