//! The disks of a server are erased before it is given back: by a Workflow of ours in the installer that installed it, or, where a DPU is in
//! the server, by the same installer on a disk that the DPU presents ([`presented`]).
//!
//! Whether they are is part of the claim; a policy that says so later counts too. The host is read off, the beginning goes on record at
//! the Hardware, and from then on the server may boot the installer and run that Workflow alone ([`crate::netboot::verdict`]). What was
//! interrupted is run again, whole: the action is served anew, and a Workflow that was lost is made anew, for to erase twice
//! harms nobody. What failed waits for an administrator, who has it tried again or takes the server as it is.

pub(super) mod presented;

use crate::about::About;
use crate::boot_option::discovery;
use crate::dpu::eraser;
use crate::erase::{self, Disk, NO_WORKFLOW, Phase, Record, Report, is_recorded};
use crate::machine::claim;
use crate::machine::claim::strategy;
use crate::machine::draft::Draft;
use crate::machine::install::bare::{self, Run};
use crate::machine::install::{actions, creating, ended, failure, own_meta, remember, was_begun};
use crate::machine::plan::Action;
use crate::machine::power;
use crate::machine::situation::{Owned, dpu_of, host, is_bare};
use crate::meta::{annotation, name, target, uid};
use crate::reason::{Blocked, Failed, Reason, Waiting};
use crate::workflow::has_run;
use crate::writer::down;
use api::tinkerbell::template::TemplateSpec;
use api::tinkerbell::workflow::WorkflowSpec;
use api::tinkerbell::{Hardware, Template, Workflow};
use api::{labels, names};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// How often the host of a machine that is gone is read, perhaps for months.
pub(super) const GLANCE: SignedDuration = SignedDuration::from_secs(30);

/// `None`: nothing is to be erased, or it is over.
pub(super) fn plan(o: &Owned<'_>, hardware: &Hardware, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    let policy = due(o, hardware)?;
    let meta = &hardware.metadata;
    let record = Record::of(meta);
    if record.as_ref().is_some_and(Record::is_over) {
        return None;
    }
    draft.erases = true;
    if annotation(meta, labels::RELEASE_WITH_DATA) == Some(o.uid()) {
        draft.act(with_data(o, hardware, record, now));
        return Some(creating(About::ReleaseRecord));
    }
    let unserved = |why: String| Blocked::EraseNotServed { hardware: name(meta).to_owned(), policy, why };
    if !is_bare(hardware) {
        let host = match host(o, hardware) {
            Ok(host) => host,
            Err(reason) => return Some(reason),
        };
        let is_under_way = record.as_ref().is_some_and(|record| presented::reported(o, &record.workflow).is_some());
        return match eraser::missing(host.dpu, hardware).filter(|_| !is_under_way) {
            Some(why) => Some(unserved(why).into()),
            None => presented::plan(o, host, record, now, draft),
        };
    }
    // What a DPU presents to the host is no disk of the server, and the eraser could not tell.
    if let Some(dpu) = dpu_of(&o.dpus, name(meta)) {
        return Some(unserved(format!("Dpu '{}' was assigned to it since it was installed", dpu.name())).into());
    }
    if remember(o, hardware, draft) {
        return Some(creating(About::DisksRecord));
    }
    let number = record.as_ref().map_or(0, |record| record.number);
    let run = record.as_ref().and_then(|record| o.workflows.iter().find(|run| uid(&run.metadata) == record.workflow));
    let (Some(record), Some(run)) = (&record, run) else {
        return Some(prepare(o, hardware, number + 1, now, draft));
    };
    match follow(o, hardware, run, now, draft) {
        End::Erased(disks) => {
            let report = report(o, hardware, "Erased", disks, None, now);
            draft.act(write(hardware, Record { phase: Phase::Done, ..record.clone() }, Some(report)));
            Some(creating(About::EraseRecord(number)))
        }
        End::Not(_) if is_asked_again(hardware) => Some(prepare(o, hardware, number + 1, now, draft)),
        End::Not(message) => Some(Failed::EraseIncomplete { hardware: name(meta).to_owned(), message }.into()),
        End::Waits(reason) => Some(reason),
    }
}

/// By which policy; of a server without a DPU only once something was begun there.
fn due(o: &Owned<'_>, hardware: &Hardware) -> Option<String> {
    // Nobody has run there.
    if discovery::is_under_way(&hardware.metadata) {
        return None;
    }
    // Of a machine that is gone nobody knows more than the Hardware, which may have been registered anew.
    if !o.owner.is_gone() {
        // A power action is on record before it is sent.
        let was_started = if is_bare(hardware) { was_begun(o, hardware) } else { o.record.action.is_some() };
        if !was_started && !is_recorded(&hardware.metadata) {
            return None;
        }
    }
    let claimed = annotation(&hardware.metadata, labels::LOCAL_DISKS) == Some("Erase");
    claim::erased_by(o, hardware).or_else(|| claimed.then(|| "of the time of the claim".to_owned()))
}

/// An administrator has what failed tried once more.
fn is_asked_again(hardware: &Hardware) -> bool {
    annotation(&hardware.metadata, labels::ERASE_REQUESTED_AT).is_some()
}

/// An erasing is under way: its host may be on.
pub(super) fn is_begun(hardware: &Hardware) -> bool {
    Record::of(&hardware.metadata).is_some_and(|record| record.phase == Phase::Begun)
}

enum End {
    Erased(Vec<Disk>),
    /// Nothing goes on by itself.
    Not(String),
    Waits(Reason),
}

fn follow(o: &Owned<'_>, hardware: &Hardware, run: &Workflow, now: Timestamp, draft: &mut Draft) -> End {
    if let Some(ended) = ended(run) {
        let failed = ended.err().map(|reason| {
            let failed = run.status.as_ref().map(failure).filter(|failed| !failed.is_empty());
            failed.unwrap_or_else(|| reason.message())
        });
        return concluded(hardware, reported(run), failed);
    }
    let (hardware_name, workflow) = (name(&hardware.metadata).to_owned(), name(&run.metadata).to_owned());
    let nothing = "within 20 minutes";
    match bare::run(o, hardware, run, now, draft) {
        Run::Comes(reason) => End::Waits(reason),
        Run::NetbootAwaited(seen) => End::Waits(Waiting::NetbootAwaited { hardware: hardware_name, seen }.into()),
        Run::At { action, at, of } => {
            let (by, what) = (format!("Workflow '{workflow}'"), format!("action '{action}' ({at} of {of})"));
            End::Waits(Waiting::Erasing { hardware: hardware_name, by, what }.into())
        }
        Run::NetbootNotTaken { seen, cause } => {
            let why = cause.map_or(seen, |cause| cause.message());
            End::Not(format!(
                "the host was powered on to boot from the network, and no agent asked for an action {nothing}: {why}"
            ))
        }
        Run::InstallerLost { action } => End::Not(format!("the agent has not begun action '{action}' {nothing}")),
        Run::PowerLost => End::Not(bare::power_lost()),
        Run::AgentLost(message) => End::Waits(Waiting::AgentLost { workflow, message }.into()),
        Run::WrongServer { told, expected } => {
            End::Waits(Blocked::WrongServerBooted { hardware: hardware_name, told, expected }.into())
        }
    }
}

fn reported(run: &Workflow) -> Vec<Disk> {
    let Some(status) = &run.status else { return Vec::new() };
    let report = actions(status).find(|action| action.name.as_deref() == Some(erase::ACTION));
    report.and_then(|action| action.message.as_deref()).map(erase::disks).unwrap_or_default()
}

/// How the run ended that reported this; `failed`: what it says of itself, if it failed.
fn concluded(hardware: &Hardware, disks: Vec<Disk>, failed: Option<String>) -> End {
    match (judge(hardware, &disks), failed) {
        (Ok(()), None) => End::Erased(disks),
        (Err(why), None) => End::Not(why),
        // The disks, by their serial numbers, say more.
        (Err(why), Some(_)) if !disks.is_empty() => End::Not(why),
        (_, Some(failed)) => End::Not(failed),
    }
}

fn judge(hardware: &Hardware, report: &[Disk]) -> Result<(), String> {
    let devices: Vec<&str> = hardware.spec.disks.iter().filter_map(|disk| disk.device.as_deref()).collect();
    // With a DPU a server need not have a disk of its own.
    erase::judge(report, &devices, &erase::seen(&hardware.metadata)?, is_bare(hardware))
}

/// `None`: the host of a server that is given back is off. Nobody is switched off for a machine that is not there, but for what the
/// erasing itself has started: once that is done there is nothing else on it.
pub(super) fn off(o: &Owned<'_>, hardware: &Hardware, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    let is_erased = Record::of(&hardware.metadata).is_some_and(|record| record.phase == Phase::Done);
    let hardware = name(&hardware.metadata);
    if o.owner.is_gone() && !o.is_off() && !o.is_in_installer() && !is_erased {
        down::read_host(o.bmc.read_at, GLANCE, now, draft);
        return Some(Waiting::HostLeftOn { hardware: hardware.to_owned() }.into());
    }
    power::off(o, hardware, now, draft)
}

/// Off first; then all that erasing `number` needs, and its beginning on record last.
fn prepare(o: &Owned<'_>, hardware: &Hardware, number: u32, now: Timestamp, draft: &mut Draft) -> Reason {
    if let Some(reason) = off(o, hardware, now, draft) {
        return reason;
    }
    // A Workflow that has run is none to begin with: its record may have been lost with its Hardware.
    let is_used = |made: &str| o.workflows.iter().any(|run| name(&run.metadata) == made && has_run(run));
    let mut number = number;
    while is_used(&names::erase(o.uid(), number)) {
        number += 1;
    }
    let made = names::erase(o.uid(), number);
    let meta = own_meta(o.owner, hardware, &made);
    let spec = TemplateSpec { data: Some(erase::TEXT.to_owned()) };
    let copy = o.templates.iter().find(|copy| name(&copy.metadata) == made);
    let Some(copy) = copy.filter(|copy| copy.metadata.deletion_timestamp.is_none()) else {
        draft.act(Action::CreateTemplate(Box::new(Template { metadata: meta, spec, status: None })));
        return creating(About::Template(made));
    };
    let wanted = self::spec(hardware, &made);
    let there = o.workflows.iter().find(|run| name(&run.metadata) == made);
    // Made by an earlier version, or for another server; nothing of it has begun.
    let old = copy.spec != spec;
    if old || there.is_some_and(|there| there.spec != wanted) {
        there.into_iter().for_each(|there| draft.act(Action::DeleteWorkflow { target: target(&there.metadata) }));
        if old {
            draft.act(Action::DeleteTemplate { target: target(&copy.metadata) });
        }
        return creating(About::Workflow(made));
    }
    let Some(there) = there.filter(|there| there.metadata.deletion_timestamp.is_none()) else {
        draft.act(Action::CreateWorkflow(Box::new(Workflow { metadata: meta, spec: wanted, status: None })));
        return creating(About::Workflow(made));
    };
    let record = Record { number, phase: Phase::Begun, workflow: uid(&there.metadata).to_owned() };
    draft.act(write(hardware, record, None));
    creating(About::EraseRecord(number))
}

fn spec(hardware: &Hardware, made: &str) -> WorkflowSpec {
    WorkflowSpec {
        template_ref: Some(made.to_owned()),
        hardware_ref: Some(name(&hardware.metadata).to_owned()),
        hardware_map: BTreeMap::from_iter(strategy::agent(hardware).map(|agent| ("device_1".to_owned(), agent))),
        ..WorkflowSpec::default()
    }
}

/// An administrator's decision, and what was known not to be erased.
fn with_data(o: &Owned<'_>, hardware: &Hardware, record: Option<Record>, now: Timestamp) -> Action {
    let run = record.as_ref().and_then(|record| o.workflows.iter().find(|run| uid(&run.metadata) == record.workflow));
    let presented = record.as_ref().and_then(|record| presented::reported(o, &record.workflow));
    let disks = run.map(|run| reported(run)).or(presented);
    let why = match &disks {
        None => Some("nothing was erased".to_owned()),
        Some(disks) => judge(hardware, disks).err(),
    };
    let disks = disks.unwrap_or_default();
    let record =
        record.unwrap_or_else(|| Record { number: 0, phase: Phase::WithData, workflow: NO_WORKFLOW.to_owned() });
    let report = report(o, hardware, "WithData", disks, why, now);
    write(hardware, Record { phase: Phase::WithData, ..record }, Some(report))
}

fn report(
    o: &Owned<'_>,
    hardware: &Hardware,
    result: &str,
    disks: Vec<Disk>,
    why: Option<String>,
    now: Timestamp,
) -> Report {
    let by = annotation(&hardware.metadata, labels::CLAIMED_BY_NAME);
    let machine = by.map_or_else(|| format!("{}/{}", o.owner.namespace(), o.owner.name()), str::to_owned);
    Report { result: result.to_owned(), at: now, machine, disks, why }
}

fn write(hardware: &Hardware, record: Record, report: Option<Report>) -> Action {
    let meta = &hardware.metadata;
    Action::RecordErase {
        name: name(meta).to_owned(),
        uid: uid(meta).to_owned(),
        resource_version: meta.resource_version.clone().unwrap_or_default(),
        record,
        eraser: None,
        report: report.map(Box::new),
    }
}
