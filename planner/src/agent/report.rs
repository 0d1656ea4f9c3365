//! What the user is told of one attachment: pure, from the same observation that the plan rests on.

use super::{Attachment, Blocked, Function, Guest, Observed, Step, StepKind, Stuck, Waiting, Why, bring, nic, retry};
use crate::exposure::{Exposure, ExposureId, Limits, Presence};
use api::attachment::{
    DiskAttachmentStatus, EraserReport, FenceIdentity, GuestStatus, ImportStatus, NicAttachmentStatus,
};
use api::conditions::{self, ConditionStatus};
use api::machine::AttachPhase;
use api::quantity;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};

/// `None` in a field: not known now, so what was said before stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub phase: Option<AttachPhase>,
    pub exposed: Exposed,
    pub conditions: Vec<Mark>,
    pub fence: Option<FenceIdentity>,
    pub capacity_bytes: Option<u64>,
    /// What the storage has.
    pub stored_bytes: Option<u64>,
    /// What its I/O is held to.
    pub limits: Option<Limits>,
    /// Serial number and UUID, once claimed.
    pub names: Option<(String, String)>,
    pub import: Option<ImportStatus>,
    pub eraser: Option<EraserReport>,
    pub representor: Option<String>,
    pub guest: Option<Guest>,
    /// The first reason that stands in the way.
    pub stuck: Option<Stuck>,
}

/// Whether the host sees it, as claimed on this boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exposed {
    /// Since this boot: the bootID to report.
    On(String),
    No,
    /// It cannot be seen now: what was said before stands.
    Unseen,
}

impl Exposed {
    fn boot_id(&self, before: Option<&String>) -> Option<String> {
        match self {
            Self::On(boot_id) => Some(boot_id.clone()),
            Self::No => None,
            Self::Unseen => before.cloned(),
        }
    }
}

/// One condition.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    pub type_: &'static str,
    pub status: ConditionStatus,
    pub reason: &'static str,
    pub message: String,
}

/// What can be seen of an attachment; `None`: not now.
struct Sight {
    claimed: bool,
    connected: Option<bool>,
    exposed: Option<bool>,
    size_bytes: Option<u64>,
    limits: Option<Limits>,
}

impl Sight {
    fn of(observed: &Observed, attachment: &Attachment) -> Self {
        let nothing = Self {
            claimed: false,
            connected: Some(false),
            exposed: Some(false),
            size_bytes: None,
            limits: Some(Limits::default()),
        };
        let (Some(id), Ok(function)) = (attachment.id(), &attachment.function) else { return nothing };
        let connected = match function {
            Function::Seed(_) | Function::Eraser(_) | Function::HoldDisk(_) => Some(observed.seeds.contains(&id.uid)),
            Function::Nic(_) => nic::works(observed, &id),
            Function::Disk { volume, .. } | Function::Import(super::Import { volume, .. }) => {
                match observed.connections.get(volume.connector()) {
                    Some(seen) => seen.fresh().map(|all| all.iter().any(|c| c.id == id && c.size_bytes > 0)),
                    None => Some(false),
                }
            }
        };
        // Presented is what counts before a start; that the host has to be started for it is said beside.
        let presented = |e: &&Exposure| matches!(e.presence, Presence::Present | Presence::Stranded);
        let shown = |id: &ExposureId| observed.exposure(id).filter(presented);
        let told = observed.exposures.tells(attachment.key.kind.into());
        let exposed = match function {
            Function::Import(_) => Some(false),
            _ => told.then(|| shown(&id).is_some()),
        };
        let claimed = observed.record.get(&id.uid).is_some_and(|entry| entry.id == id);
        let limits = told.then(|| shown(&id).map(|e| e.limits).unwrap_or_default());
        Self { claimed, connected, exposed, size_bytes: shown(&id).and_then(|e| e.size_bytes), limits }
    }

    /// All of it, on this boot.
    fn complete(&self) -> Option<bool> {
        Some(self.claimed && self.connected? && self.exposed?)
    }
}

pub(super) fn report(
    observed: &Observed,
    attachment: &Attachment,
    step: Option<&Step>,
    stuck: Option<Stuck>,
) -> Report {
    let sight = Sight::of(observed, attachment);
    let function = attachment.function.as_ref().ok();
    let is_import = matches!(function, Some(Function::Import(_)));
    let entry = observed.record.get(&attachment.key.uid).filter(|entry| Some(entry.id.epoch) == attachment.epoch);
    let names = match function {
        Some(Function::Disk { presentation, .. }) => Some(presentation),
        Some(function) => function.made(),
        None => None,
    };
    Report {
        phase: phase(observed, attachment, &sight, stuck.as_ref()),
        exposed: match sight.complete() {
            Some(true) => Exposed::On(observed.boot_id.clone()),
            Some(false) => Exposed::No,
            None => Exposed::Unseen,
        },
        conditions: if is_import {
            import_marks(observed, attachment, &sight, stuck.as_ref())
        } else {
            marks(observed, attachment, &sight, step, stuck.as_ref())
        },
        fence: entry.map(|entry| FenceIdentity {
            boot_id: entry.boot_id.clone(),
            identity: entry.identity.clone(),
            epoch: entry.id.epoch,
        }),
        capacity_bytes: sight.size_bytes,
        stored_bytes: stored(observed, attachment),
        limits: sight.limits,
        names: names.filter(|_| sight.claimed).map(|p| (p.serial.clone(), p.uuid.clone())),
        import: is_import.then(|| import(observed, attachment)).flatten(),
        eraser: observed.erasers.get(&attachment.key.uid).cloned(),
        representor: match function {
            Some(Function::Nic(_)) if sight.claimed => observed.device(&attachment.key.uid),
            _ => None,
        },
        guest: observed.guests.get(&attachment.key.uid).cloned(),
        stuck,
    }
}

fn stored(observed: &Observed, attachment: &Attachment) -> Option<u64> {
    let (id, function) = (attachment.id()?, attachment.function.as_ref().ok()?);
    let connected = observed.connection(function.connector()?, &id)?;
    (connected.size_bytes > 0).then_some(connected.size_bytes)
}

fn phase(observed: &Observed, attachment: &Attachment, sight: &Sight, stuck: Option<&Stuck>) -> Option<AttachPhase> {
    match stuck.map(|stuck| stuck.why) {
        Some(Why::Blocked(Blocked::ResizeNeedsPowerCycle | Blocked::HostPowerCycleNeeded)) | None => {}
        Some(Why::Blocked(_)) => return Some(AttachPhase::Failed),
        Some(_) => {}
    }
    if attachment.deleting && attachment.release {
        return Some(AttachPhase::Detaching);
    }
    if attachment.epoch.is_none() {
        return Some(AttachPhase::Waiting);
    }
    if observed.import_done(attachment).is_some() {
        return Some(AttachPhase::Attached);
    }
    Some(if sight.complete()? { AttachPhase::Attached } else { AttachPhase::Attaching })
}

/// `reason` and `message` where there is nothing better to say than how far it is.
fn mark(type_: &'static str, seen: Option<bool>, step: Option<&Step>, stuck: Option<&Stuck>) -> Mark {
    let message = stuck.map(|stuck| stuck.message.clone()).unwrap_or_default();
    let reason = stuck.map(|stuck| stuck.why.as_str());
    match seen {
        Some(true) => {
            let stays = stuck.filter(|s| {
                matches!(s.why, Why::Waiting(Waiting::NotReleased) | Why::Blocked(Blocked::HostPowerCycleNeeded))
            });
            Mark {
                type_,
                status: ConditionStatus::True,
                reason: stays.map_or(type_, |s| s.why.as_str()),
                message: stays.map(|s| s.message.clone()).unwrap_or_default(),
            }
        }
        Some(false) => {
            let default = match step.map(Step::kind) {
                Some(
                    StepKind::LinkDown | StepKind::Unplug | StepKind::Hide | StepKind::Disconnect | StepKind::Finish,
                ) => "Released",
                _ => "InProgress",
            };
            Mark { type_, status: ConditionStatus::False, reason: reason.unwrap_or(default), message }
        }
        None => Mark { type_, status: ConditionStatus::Unknown, reason: reason.unwrap_or("Unreachable"), message },
    }
}

fn marks(
    observed: &Observed,
    attachment: &Attachment,
    sight: &Sight,
    step: Option<&Step>,
    stuck: Option<&Stuck>,
) -> Vec<Mark> {
    let exposed = sight.exposed.map(|exposed| exposed && sight.claimed);
    let mut marks = vec![
        mark(conditions::CONNECTED, sight.connected, step, stuck),
        mark(conditions::EXPOSED, exposed, step, stuck),
    ];
    if let (Some(wanted), Some(true)) = (attachment.size_bytes, sight.complete()) {
        let large = sight.size_bytes.map(|size| size >= wanted);
        marks.push(mark(conditions::RESIZED, large, step, stuck));
    }
    marks.extend(limited(observed, attachment, sight));
    marks.extend(fenced(stuck));
    marks.extend(observed.unanswered.get(&attachment.key.uid).map(|why| unanswered(why)));
    marks
}

/// The condition goes when the guest is answered.
fn unanswered(why: &str) -> Mark {
    Mark {
        type_: conditions::METADATA_SERVED,
        status: ConditionStatus::False,
        reason: "MetadataUnavailable",
        message: why.to_owned(),
    }
}

/// Of a disk that the host has and that is, or should be, limited.
fn limited(observed: &Observed, attachment: &Attachment, sight: &Sight) -> Option<Mark> {
    let (true, Some(Function::Disk { .. })) = (sight.complete()?, attachment.function.as_ref().ok()) else {
        return None;
    };
    let (held, wanted) = (sight.limits?, observed.bounds.and(attachment.limits));
    if held.is_empty() && wanted.is_empty() {
        return None;
    }
    let step = bring::limiting(observed, &attachment.id()?, attachment.limits);
    let (reason, message) = match observed.failure(&step) {
        _ if held == wanted => (conditions::LIMITED, held.to_string()),
        Some(failure) => (retry::why(failure).as_str(), failure.message.clone()),
        None => ("InProgress", format!("held to {held}, to be held to {wanted}")),
    };
    Some(Mark { type_: conditions::LIMITED, status: (held == wanted).into(), reason, message })
}

fn import_marks(observed: &Observed, attachment: &Attachment, sight: &Sight, stuck: Option<&Stuck>) -> Vec<Mark> {
    let done = observed.import_done(attachment).is_some();
    let mut marks = vec![
        mark(conditions::CONNECTED, sight.connected, None, stuck),
        mark(conditions::IMPORTED, Some(done), None, stuck),
    ];
    marks.extend(fenced(stuck));
    marks
}

/// The storage refuses the identity that was granted. Only ever true: the condition goes when the storage accepts.
fn fenced(stuck: Option<&Stuck>) -> Option<Mark> {
    let stuck = stuck.filter(|stuck| stuck.why == Why::Blocked(Blocked::Fenced))?;
    Some(Mark {
        type_: conditions::FENCED,
        status: ConditionStatus::True,
        reason: stuck.why.as_str(),
        message: stuck.message.clone(),
    })
}

fn import(observed: &Observed, attachment: &Attachment) -> Option<ImportStatus> {
    if let Some(done) = observed.import_done(attachment) {
        return Some(ImportStatus { bytes_written: done.bytes, done: true, checksum: Some(done.checksum.clone()) });
    }
    let run = observed.imports.get(&attachment.key.uid)?;
    Some(ImportStatus { bytes_written: run.bytes_written, done: false, checksum: None })
}

fn set_conditions(previous: &[Condition], attachment: &Attachment, marks: &[Mark], now: Timestamp) -> Vec<Condition> {
    let mut all: Vec<_> = previous.iter().filter(|c| marks.iter().any(|m| m.type_ == c.type_)).cloned().collect();
    for mark in marks {
        let generation = attachment.generation;
        conditions::set(&mut all, mark.type_, mark.status, mark.reason, &mark.message, generation, now);
    }
    all
}

/// The whole status, as it is to be applied.
pub fn disk_status(
    previous: &DiskAttachmentStatus,
    attachment: &Attachment,
    report: &Report,
    now: Timestamp,
) -> DiskAttachmentStatus {
    let names = report.names.as_ref();
    DiskAttachmentStatus {
        phase: report.phase.unwrap_or(previous.phase),
        fence: report.fence.clone().or_else(|| previous.fence.clone()),
        exposed_boot_id: report.exposed.boot_id(previous.exposed_boot_id.as_ref()),
        capacity: report.capacity_bytes.map(quantity::quantity).or_else(|| previous.capacity.clone()),
        qos: report.limits.map_or(previous.qos, |limits| (!limits.is_empty()).then_some(limits)),
        volume_capacity: report.stored_bytes.map(quantity::quantity).or_else(|| previous.volume_capacity.clone()),
        serial: names.map(|(serial, _)| serial.clone()),
        wwid: names.map(|(_, uuid)| format!("uuid.{uuid}")),
        import: report.import.clone().or_else(|| previous.import.clone()),
        eraser: eraser(previous, report),
        conditions: set_conditions(&previous.conditions, attachment, &report.conditions, now),
    }
}

/// One that says what was said before was seen then.
fn eraser(previous: &DiskAttachmentStatus, report: &Report) -> Option<EraserReport> {
    let before = previous.eraser.as_ref();
    let Some(now) = &report.eraser else { return before.cloned() };
    let said = |report: &EraserReport| (report.number, report.state, report.message.clone());
    let same = before.filter(|before| said(before) == said(now));
    same.or(Some(now)).cloned()
}

/// The whole status, as it is to be applied.
pub fn nic_status(
    previous: &NicAttachmentStatus,
    attachment: &Attachment,
    report: &Report,
    now: Timestamp,
) -> NicAttachmentStatus {
    let exposed_boot_id = report.exposed.boot_id(previous.exposed_boot_id.as_ref());
    // Nothing seen since the agent started: what it said before stands, on the same boot of the DPU.
    let earlier = previous.guest.clone().filter(|_| previous.exposed_boot_id == exposed_boot_id);
    let seen = report.guest.as_ref().map(|guest| GuestStatus {
        first_packet_at: guest.first_packet_at.map(MicroTime),
        answered_at: guest.answered_at.map(MicroTime),
        answered_address: guest.answered_address.map(|address| address.to_string()),
    });
    NicAttachmentStatus {
        phase: report.phase.unwrap_or(previous.phase),
        fence: report.fence.clone().or_else(|| previous.fence.clone()),
        exposed_boot_id,
        representor: report.representor.clone(),
        guest: seen.or(earlier),
        conditions: set_conditions(&previous.conditions, attachment, &report.conditions, now),
    }
}
