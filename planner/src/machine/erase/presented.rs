//! The disks of a server with a DPU are erased by the same installer, booted from a disk that the DPU presents in the boot slot: made by its
//! agent, and reported on, so that no network is needed (`imaging::eraser`). All that the machine had is detached before: what is left is the
//! server's own.
//!
//! The eraser is a DiskAttachment without a volume; its UID stands in the record where a Workflow's stands for a server without a DPU. It is
//! there as long as its erasing is on record and not over: nothing else of a release takes it away ([`keeps`]).

use super::{End, concluded, due, off, report, write};
use crate::about::About;
use crate::erase::{self, Phase, Record};
use crate::host::{BmcNeed, PowerAction, PowerState};
use crate::machine::attach::boot_slot::{self, Made};
use crate::machine::attach::orphans;
use crate::machine::attach::seen::{Seen, not_exposed};
use crate::machine::boot::{self, Disk, Next};
use crate::machine::draft::Draft;
use crate::machine::install::{bare, creating};
use crate::machine::plan::Action;
use crate::machine::power::{self, For};
use crate::machine::setup;
use crate::machine::situation::{Host, Owned, Reading, unread};
use crate::meta::{name, target, uid};
use crate::reason::{Blocked, Failed, Reason, Waiting};
use crate::writer;
use api::attachment::{EraserReport, EraserState, OwnerReference};
use api::tinkerbell::Hardware;
use api::{DiskAttachment, names};
use jiff::{SignedDuration, Timestamp};

/// From power-on to the first report, and from one report to the next: servers take 15 minutes to come up.
const LIMIT: SignedDuration = SignedDuration::from_mins(20);

/// It is an eraser, and what it is for is not over.
pub(in crate::machine) fn keeps(o: &Owned<'_>, attachment: &DiskAttachment) -> bool {
    let is_over = |hardware: &Hardware| Record::of(&hardware.metadata).is_some_and(|record| record.is_over());
    attachment.spec.eraser.is_some()
        && attachment.metadata.deletion_timestamp.is_none()
        && o.current.is_some_and(|hardware| due(o, hardware).is_some() && !is_over(hardware))
}

pub(super) fn plan(
    o: &Owned<'_>,
    host: Host<'_>,
    record: Option<Record>,
    now: Timestamp,
    draft: &mut Draft,
) -> Option<Reason> {
    if let Some(reason) = forbidden(o, host) {
        draft.wake(now + orphans::EVERY);
        return Some(reason);
    }
    let hardware = host.hardware;
    let number = record.as_ref().map_or(0, |record| record.number);
    let eraser = record.as_ref().and_then(|record| {
        let of_record = |a: &&DiskAttachment| uid(&a.metadata) == record.workflow;
        erasers(o).find(of_record).filter(|a| a.metadata.deletion_timestamp.is_none())
    });
    let (Some(record), Some(eraser)) = (&record, eraser) else {
        return Some(prepare(o, host, number + 1, now, draft));
    };
    match follow(o, host, eraser, now, draft) {
        End::Erased(disks) => {
            let report = report(o, hardware, "Erased", disks, None, now);
            draft.act(write(hardware, Record { phase: Phase::Done, ..record.clone() }, Some(report)));
            Some(creating(About::EraseRecord(number)))
        }
        End::Not(_) if super::is_asked_again(hardware) => Some(prepare(o, host, number + 1, now, draft)),
        End::Not(message) => Some(Failed::EraseIncomplete { hardware: host.name().to_owned(), message }.into()),
        End::Waits(reason) => Some(reason),
    }
}

/// Somebody's system may run on what nobody can explain: nothing is powered off under it, and no disk erased. So it is of a host with
/// orphans, and while nobody knows what hosts were shown.
fn forbidden(o: &Owned<'_>, host: Host<'_>) -> Option<Reason> {
    orphans::shown(o, host, |_| true).or_else(|| o.no_grants.clone())
}

fn erasers<'a>(o: &'a Owned<'_>) -> impl Iterator<Item = &'a DiskAttachment> {
    o.disk_attachments.iter().map(AsRef::as_ref).filter(|a| a.spec.eraser.is_some())
}

/// What the eraser with this UID reported.
pub(super) fn reported(o: &Owned<'_>, of: &str) -> Option<Vec<erase::Disk>> {
    let eraser = erasers(o).find(|a| uid(&a.metadata) == of)?;
    Some(told(eraser).map(|told| erase::disks(&told.message)).unwrap_or_default())
}

fn told(eraser: &DiskAttachment) -> Option<&EraserReport> {
    eraser.status.as_ref()?.eraser.as_ref()
}

/// Off first; then the eraser, made anew, and its beginning on record last.
fn prepare(o: &Owned<'_>, host: Host<'_>, number: u32, now: Timestamp, draft: &mut Draft) -> Reason {
    if let Some(reason) = off(o, host.hardware, now, draft) {
        return reason;
    }
    let disk = format!("eraser.{number}");
    let made = names::attachment(o.uid(), o.owner.name(), &disk);
    let there = erasers(o).find(|a| name(&a.metadata) == made);
    let mut old = erasers(o).filter(|a| name(&a.metadata) != made || a.metadata.deletion_timestamp.is_some());
    // One that was shown before its beginning was on record was made by nobody here.
    if let Some(old) = old.next().or_else(|| there.filter(|a| a.spec.grant.is_some())) {
        return writer::release(&o.writer(now), old, draft);
    }
    let Some(there) = there else {
        draft.act(Action::CreateDiskAttachment(Box::new(attachment(o, host, &made, &disk))));
        return creating(About::EraserAttachment);
    };
    let record = Record { number, phase: Phase::Begun, workflow: uid(&there.metadata).to_owned() };
    let mut begin = write(host.hardware, record, None);
    if let Action::RecordErase { eraser, .. } = &mut begin {
        *eraser = Some(target(&there.metadata));
    }
    draft.act(begin);
    creating(About::EraseRecord(number))
}

fn attachment(o: &Owned<'_>, host: Host<'_>, made: &str, disk: &str) -> DiskAttachment {
    let owner = OwnerReference {
        kind: "BareMetalMachine".to_owned(),
        namespace: Some(o.owner.namespace().to_owned()),
        name: o.owner.name().to_owned(),
        uid: o.uid().to_owned(),
    };
    boot_slot::attachment(o, host, (Made::Eraser, owner), made, disk)
}

fn follow(o: &Owned<'_>, host: Host<'_>, eraser: &DiskAttachment, now: Timestamp, draft: &mut Draft) -> End {
    let record = &o.record;
    let run = uid(&eraser.metadata);
    let started = record.asked_on() && record.started_for == Some(run);
    // What was there before is no installer's: a system of the server's own may have run beside the eraser, and written onto it.
    let is_of_this_start = |report: &&EraserReport| started && record.at.is_some_and(|at| report.at.0 > at);
    let report = told(eraser).filter(|report| is_of_this_start(report) && !is_to_be_reset(o, host));
    match report.map(|report| (report.state, &report.message)) {
        Some((EraserState::Success, message)) => return concluded(host.hardware, erase::disks(message), None),
        Some((EraserState::Failed, message)) => {
            return concluded(host.hardware, erase::disks(message), Some(newest(message)));
        }
        Some((EraserState::Running, _)) | None => {}
    }
    match o.reading {
        Reading::Fresh(PowerState::On | PowerState::PoweringOn) | Reading::Old(PowerState::On) if started => {
            running(o, host, eraser, now, draft)
        }
        Reading::Fresh(PowerState::Off) if started && record.attempts + 1 >= bare::POWER_ONS && record.went_off() => {
            End::Not(bare::power_lost())
        }
        Reading::Fresh(PowerState::Off) => End::Waits(start(o, host, eraser, now, draft)),
        // Whatever runs there was not started for this.
        _ => End::Waits(power::off(o, host.name(), now, draft).unwrap_or_else(|| {
            draft.need_bmc(BmcNeed::Now);
            unread(o, host.name().to_owned())
        })),
    }
}

/// Of a host that is off. One whose DPU comes up with it is powered on into its setup: it is reset once the eraser is presented.
fn start(o: &Owned<'_>, host: Host<'_>, eraser: &DiskAttachment, now: Timestamp, draft: &mut Draft) -> Reason {
    if eraser.spec.grant.is_none() {
        // No volume and no writer, so no hold, as the cloud-init disk.
        let target = target(&eraser.metadata);
        draft.act(Action::GrantDisk { target, epoch: 1, seed: None, holder_pod_uid: None });
        return Waiting::Granting { what: About::Eraser, message: String::new() }.into();
    }
    let not_exposed = not_exposed(host, About::Eraser, Seen::disk(eraser)).filter(|_| !host.shares_power());
    if let Some(reason) = not_exposed {
        return reason;
    }
    let disk = if host.shares_power() { Disk::ComesWithPower { starts: true } } else { Disk::Presented };
    let (into_setup, not) = match boot::plan(o, host, disk, now, draft) {
        Next::FromDpu => (false, None),
        Next::Setup | Next::SetupFirst => (true, None),
        Next::Not(reason) => (false, Some(reason)),
    };
    power::start_for(o, host.power(), not, For { run: uid(&eraser.metadata), into_setup, netboot_by: None }, now, draft)
}

/// Of a host that is on, and was powered on for this.
fn running(o: &Owned<'_>, host: Host<'_>, eraser: &DiskAttachment, now: Timestamp, draft: &mut Draft) -> End {
    if host.dpu.silent && !host.shares_power() {
        // What is reported meanwhile nobody reads.
        return End::Waits(Waiting::DpuSilent { dpu: host.dpu.name().to_owned() }.into());
    }
    let is_of_before = |started| host.boot_id().is_some_and(|now| now != started);
    if !host.shares_power() && o.record.started_boot_id.is_some_and(is_of_before) {
        // The DPU was started anew: the host has lost what it was booted from.
        let off = power::off(o, host.name(), now, draft);
        return End::Waits(off.unwrap_or_else(|| unread(o, host.name().to_owned())));
    }
    let reported = told(eraser);
    let since = o.record.at.max(reported.map(|report| report.at.0));
    let over = since.map_or(now, |since| since + LIMIT);
    let due = if over > now { None } else { Some(LIMIT.as_mins()) };
    draft.wake(over.max(now));
    let hardware = host.name().to_owned();
    if is_to_be_reset(o, host) {
        let reason = reset(o, host, eraser, now, draft);
        return match due {
            None => End::Waits(reason),
            Some(minutes) => End::Not(format!(
                "the host could not be started from the eraser within {minutes} minutes: {}",
                reason.message()
            )),
        };
    }
    match (due, reported) {
        (None, Some(report)) => {
            let (by, what) = (format!("DiskAttachment '{}'", name(&eraser.metadata)), newest(&report.message));
            End::Waits(Waiting::Erasing { hardware, by, what }.into())
        }
        (None, None) => End::Waits(Waiting::EraserAwaited { hardware, dpu: host.dpu.name().to_owned() }.into()),
        (Some(minutes), _) => {
            let last = reported.map_or("nothing".to_owned(), |report| newest(&report.message));
            End::Not(format!(
                "the host was powered on from the eraser, and the eraser has reported nothing for {minutes} minutes; the last that it reported: {last}"
            ))
        }
    }
}

/// The DPU came up with the host, which was not reset since.
fn is_to_be_reset(o: &Owned<'_>, host: Host<'_>) -> bool {
    let is_reset = o.record.action == Some(PowerAction::WarmReset) && o.record.started_boot_id.is_some();
    let is_of_before = |started| host.boot_id().is_some_and(|now| now != started);
    host.shares_power() && (!is_reset || o.record.started_boot_id.is_some_and(is_of_before))
}

fn newest(message: &str) -> String {
    message.lines().last().unwrap_or_default().to_owned()
}

/// The host of a DPU that came up with it: reset, from the eraser once its firmware lists that.
fn reset(o: &Owned<'_>, host: Host<'_>, eraser: &DiskAttachment, now: Timestamp, draft: &mut Draft) -> Reason {
    let hardware = host.name().to_owned();
    if let Some(reason) = not_exposed(host, About::Eraser, Seen::disk(eraser)) {
        return reason;
    }
    let once = o.record.action == Some(PowerAction::On);
    let disk = if once { Disk::MayBeShown } else { Disk::Presented };
    let into_setup = match boot::plan(o, host, disk, now, draft) {
        Next::FromDpu | Next::SetupFirst => false,
        Next::Setup => true,
        // Firmware lists a disk at the end of the POST that saw it.
        Next::Not(Reason::Blocked(Blocked::BootOptionNotListed { .. })) if o.record.in_setup => {
            setup::look(o, now, draft);
            return Waiting::BootOptionAwaited { hardware }.into();
        }
        Next::Not(reason) => return reason,
    };
    if o.reading != Reading::Fresh(PowerState::On) {
        draft.need_bmc(BmcNeed::Now);
        return unread(o, hardware);
    }
    power::reset_for(o, host.power(), For { run: uid(&eraser.metadata), into_setup, netboot_by: None }, draft)
}
