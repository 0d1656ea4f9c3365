//! What the user is told: conditions from the steps, `Ready` and `state` from the conditions, rows, power, addresses.

pub(super) mod power;
mod timeline;

use super::claim::local_disk;
use super::draft::Draft;
use super::named::vnic_name;
use super::observed::Observed;
use super::plan::{Action, Disruptive, Plan, PowerOrder, Told};
use super::situation::{Reading, Situation, Want, answered, heard_of, is_granted};
use super::steps::{Outcome, Step, Steps};
use super::{install, maintenance};
use crate::erase::PowerRecord;
use crate::host::PowerState;
use crate::install::strategy;
use crate::meta::name;
use crate::network;
use crate::reason::{Blocked, Reason, ReasonKind, Waiting};
use api::conditions::{self, ConditionStatus};
use api::machine::{AttachPhase, BareMetalMachineStatus, BootStrategy, MachineAddress, MachineState};
use api::report::GuestSeen;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

pub(super) fn finish(o: &Situation<'_>, draft: Draft, now: Timestamp) -> Plan {
    let none = BareMetalMachineStatus::default();
    let before = o.machine.status.as_ref().unwrap_or(&none);
    let mut status = before.clone();
    status.observed_generation = o.machine.metadata.generation;
    let ready = ready(o, &draft);
    status.state = Some(state(o, &draft));
    conditions_of(o, &draft, &ready, &mut status.conditions, now);
    // A host runs on when its Hardware is deleted.
    let runs_on = is_granted(o) || o.owned.was_installed();
    let kept = before.hardware_name.clone().filter(|_| runs_on);
    let hardware = o.owned.current.map(|hardware| name(&hardware.metadata).to_owned()).or(kept);
    if before.hardware_name.is_some() && before.hardware_name != hardware {
        // Of another server.
        (status.power, status.power_on_attempts) = (None, 0);
    }
    let boots_by = o.owned.current.and_then(|hardware| strategy(&hardware.metadata));
    let strategy = boots_by.or(before.boot_strategy).unwrap_or(BootStrategy::CloudDisk);
    status.boot_strategy = hardware.is_some().then_some(strategy);
    status.install = install::status(o, before.install.as_ref()).filter(|_| !draft.is_released);
    status.hardware_name = hardware;
    status.addresses = addresses(o);
    let before_plan = PowerRecord { power: status.power.take(), power_on_attempts: status.power_on_attempts };
    let is_stopped = o.want == Want::Off && matches!(draft.steps.get(Step::PoweredOn), Outcome::Off);
    let disruptive = (draft.disruptive.as_ref(), is_stopped);
    let after = power::record(&o.owned, before_plan, adopted(o, &draft.steps), disruptive, now);
    (status.power, status.power_on_attempts) = (after.power, after.power_on_attempts);
    if let Some(Disruptive::Power(PowerOrder { restart: Some(restart), .. })) = &draft.disruptive {
        status.last_restart_at = Some(Time(*restart));
    }
    timeline::advance(o, &draft, &mut status.timeline, now);
    (status.disks, status.interfaces) = (draft.disks, draft.interfaces);
    let mut tell = tell(o, before, &status, &ready, now);
    for action in &draft.actions {
        if let Action::CreateMigration(migration) = action {
            let hardware = status.hardware_name.clone().unwrap_or_default();
            tell.push(Told::Migrating { hardware, migration: name(&migration.metadata).to_owned() });
        }
    }
    let mut wake_at = draft.wake_at;
    if let Some(earlier) = wake_at {
        wake_at = Some(earlier.max(now));
    }
    Plan {
        actions: draft.actions,
        disruptive: draft.disruptive,
        steps: draft.steps,
        status,
        wake_at,
        bmc: draft.bmc,
        dpu_bmcs: draft.dpu_bmcs,
        tell,
    }
}

/// Ready = what the spec asks for is so.
fn ready(o: &Situation<'_>, draft: &Draft) -> Outcome {
    if o.owned.gives_back {
        return draft.releasing.clone().map_or(Outcome::Off, Outcome::Not);
    }
    let steps = &draft.steps;
    let off = matches!(steps.get(Step::PoweredOn), Outcome::Off);
    match o.want {
        Want::Off => return steps.get(Step::PoweredOn).clone(),
        Want::Keep if off => return Outcome::Off,
        Want::Keep | Want::On => {}
    }
    let counted = |step: &Step| *step != Step::GuestReachable || is_probed(o);
    gravest(Step::ALL.into_iter().filter(counted).map(|step| steps.get(step)))
}

/// An answer of the guest counts. An empty probe, which is refused today, asks for none.
fn is_probed(o: &Observed) -> bool {
    o.machine.spec.readiness_probe.as_ref().is_some_and(|probe| probe.icmp.is_some())
}

/// The first that is not done; but what somebody has to do something about comes before what passes by itself.
fn gravest<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Outcome {
    let grave = |outcome: &Outcome| outcome.reason().map(|reason| reason.kind());
    let mut first: Option<&Outcome> = None;
    for outcome in outcomes.filter(|outcome| !outcome.is_done()) {
        if first.is_none_or(|first| grave(outcome) > grave(first).max(Some(ReasonKind::Waiting))) {
            first = Some(outcome);
        }
    }
    first.cloned().unwrap_or(Outcome::Done)
}

/// One word for people.
fn state(o: &Situation<'_>, draft: &Draft) -> MachineState {
    let steps = &draft.steps;
    if o.deleting() {
        let off = matches!(steps.get(Step::PoweredOn), Outcome::Off);
        return if off || draft.erases { MachineState::Releasing } else { MachineState::Terminating };
    }
    if o.target.is_some() {
        return MachineState::Migrating;
    }
    let power = steps.get(Step::PoweredOn);
    let off_meant = o.want == Want::Off || matches!(power, Outcome::Off);
    if off_meant && o.owned.held().is_empty() {
        return of_reason(steps.get(Step::HardwareClaimed), MachineState::Provisioning);
    }
    match power {
        Outcome::Done => match is_probed(o) && !steps.done(Step::GuestReachable) {
            true => MachineState::Starting,
            false => MachineState::Running,
        },
        Outcome::Off => MachineState::Stopped,
        Outcome::Unseen(reason) if steps.done(Step::DisksAttached) => match reason.kind() {
            ReasonKind::Waiting => MachineState::Starting,
            _ => MachineState::Unknown,
        },
        outcome if maintenance::is_why(outcome.reason()) => MachineState::Waiting,
        _ if off_meant => MachineState::Stopping,
        outcome => {
            let mut earlier = vec![Step::HardwareClaimed, Step::VolumesReady, Step::DisksAttached, Step::NicsAttached];
            earlier.extend(o.installs().then_some(Step::Installed));
            match gravest(earlier.into_iter().map(|step| steps.get(step))) {
                Outcome::Done => of_reason(outcome, MachineState::Starting),
                first => of_reason(&first, MachineState::Provisioning),
            }
        }
    }
}

fn of_reason(outcome: &Outcome, under_way: MachineState) -> MachineState {
    match outcome.reason() {
        Some(Reason::Blocked(_)) => MachineState::Waiting,
        Some(Reason::Failed(_)) => MachineState::Failed,
        Some(reason) if !is_passing(reason) => MachineState::Waiting,
        _ => under_way,
    }
}

/// Part of every machine's way; nobody is told about it.
fn is_passing(reason: &Reason) -> bool {
    let Reason::Waiting(waiting) = reason else { return false };
    !matches!(
        waiting,
        Waiting::HardwareTaken { .. }
            | Waiting::HardwareBusy { .. }
            | Waiting::NoFreeHardware { .. }
            | Waiting::HardwareBeingDeleted { .. }
            | Waiting::DpuNotReady { .. }
            | Waiting::DpuNotVerified { .. }
            | Waiting::DpuSilent { .. }
            | Waiting::DpuNotOff { .. }
            | Waiting::ImageNotReady { .. }
            | Waiting::SnapshotNotReady { .. }
            | Waiting::ClaimBeingDeleted { .. }
            | Waiting::VolumeInUse { .. }
            | Waiting::VolumeHeld { .. }
            | Waiting::VNicHeld { .. }
            | Waiting::GuestPoweredOff { .. }
            | Waiting::AgentLost { .. }
    )
}

fn conditions_of(o: &Situation<'_>, draft: &Draft, ready: &Outcome, all: &mut Vec<Condition>, now: Timestamp) {
    let generation = o.machine.metadata.generation;
    let mut set = |type_: &str, (status, reason, message): (ConditionStatus, &str, String)| {
        conditions::set(all, type_, status, reason, &message, generation, now);
    };
    for (step, outcome) in draft.steps.iter().filter(|(step, _)| *step != Step::Installed || o.installs()) {
        let mut said = words(o.name(), outcome, done_word(o, draft, step));
        if step == Step::HardwareClaimed && outcome.is_done() {
            said.2 = local_disk::told(o);
        }
        set(step.condition(), said);
    }
    let ready = match (ready, o.want) {
        // A machine that shall be off and is off is as it was asked to be.
        (Outcome::Off, _) if !o.deleting() => {
            (ConditionStatus::True, "Stopped", "the machine is off, as asked".to_owned())
        }
        (Outcome::Off, _) => {
            (ConditionStatus::False, "Released", "the disks, NICs and server of the machine are released".to_owned())
        }
        (outcome, _) => words(o.name(), outcome, "Running"),
    };
    set(conditions::READY, ready);
    set(
        conditions::PAUSED,
        match o.paused() {
            true => (ConditionStatus::True, "Paused", Reason::from(Blocked::Paused {}).told_of(o.name())),
            false => (ConditionStatus::False, "NotPaused", String::new()),
        },
    );
    set(
        conditions::RESTART_REQUIRED,
        match &draft.restart_required {
            Some(reason) => (ConditionStatus::True, reason.name(), reason.told_of(o.name())),
            None => (ConditionStatus::False, "NotRequired", String::new()),
        },
    );
    match draft.limited.iter().flatten().max_by_key(|reason| reason.kind()) {
        _ if draft.limited.is_empty() => conditions::remove(all, conditions::DISKS_LIMITED),
        None => set(conditions::DISKS_LIMITED, (ConditionStatus::True, "Limited", String::new())),
        Some(reason) => {
            set(conditions::DISKS_LIMITED, (ConditionStatus::False, reason.name(), reason.told_of(o.name())))
        }
    }
}

fn done_word(o: &Situation<'_>, draft: &Draft, step: Step) -> &'static str {
    match step {
        Step::VolumesReady | Step::DisksAttached | Step::NicsAttached if o.installs() => "NoneAsked",
        Step::BootConfigured if draft.falls_through => "FallsThrough",
        Step::Installed => "Installed",
        Step::HardwareClaimed => "Claimed",
        Step::VolumesReady => "Bound",
        Step::DisksAttached | Step::NicsAttached => "Exposed",
        Step::BootConfigured => "BootOrderSet",
        Step::PoweredOn => "HostPoweredOn",
        Step::GuestReachable => "GuestAnswered",
    }
}

fn words<'a>(machine: &str, outcome: &'a Outcome, done: &'a str) -> (ConditionStatus, &'a str, String) {
    match outcome {
        Outcome::Done => (ConditionStatus::True, done, String::new()),
        Outcome::Off => (ConditionStatus::False, "HostPoweredOff", "the host is powered off, as asked".to_owned()),
        Outcome::Not(reason) => (ConditionStatus::False, reason.name(), reason.told_of(machine)),
        Outcome::Unseen(reason) => (ConditionStatus::Unknown, reason.name(), reason.told_of(machine)),
        Outcome::Later => (ConditionStatus::Unknown, "EarlierStepFirst", "an earlier step comes first".to_owned()),
    }
}

fn addresses(o: &Situation<'_>) -> Vec<MachineAddress> {
    // A server's own NIC has no name in the spec.
    let own =
        |guest: &GuestSeen| MachineAddress { interface: guest.mac_address.clone(), address: guest.address.clone() };
    let mut all: Vec<_> = heard_of(o).map(own).into_iter().collect();
    for interface in &o.machine.spec.interfaces {
        let made = o.vnics.get(&vnic_name(&o.machine, interface)).map(|vnic| network::addresses::fixed(vnic));
        for address in made.or_else(|| interface.addresses.clone()).unwrap_or_default() {
            all.push(MachineAddress { interface: interface.name.clone(), address });
        }
    }
    all
}

/// A host that runs with everything presented although no start of ours is recorded: the record was lost. It is left alone.
fn adopted(o: &Situation<'_>, steps: &Steps) -> Option<String> {
    let host = o.host?;
    let on = o.owned.reading == Reading::Fresh(PowerState::On);
    let presented = steps.done(Step::PoweredOn) && steps.done(Step::DisksAttached) && steps.done(Step::NicsAttached);
    (on && presented && !host.shares_power()).then(|| host.boot_id().map(str::to_owned)).flatten()
}

/// What has become so since the last status.
fn tell(
    o: &Situation<'_>,
    before: &BareMetalMachineStatus,
    after: &BareMetalMachineStatus,
    ready: &Outcome,
    now: Timestamp,
) -> Vec<Told> {
    let mut all = Vec::new();
    let became =
        |type_: &str| conditions::is_true(&after.conditions, type_) && !conditions::is_true(&before.conditions, type_);
    if became(conditions::HARDWARE_CLAIMED) {
        all.push(Told::HardwareClaimed { hardware: after.hardware_name.clone().unwrap_or_default() });
    }
    if became(conditions::INSTALLED) {
        let workflow = after.install.as_ref().map(|install| install.workflow_name.clone()).unwrap_or_default();
        all.push(Told::Installed { hardware: after.hardware_name.clone().unwrap_or_default(), workflow });
    }
    for row in &after.disks {
        let old = before.disks.iter().find(|old| old.name == row.name).map(|old| old.phase).unwrap_or_default();
        let dpu = row.dpu_name.clone().unwrap_or_default();
        if old == AttachPhase::Pending && !matches!(row.phase, AttachPhase::Pending | AttachPhase::Failed) {
            let claim = row.claim_name.clone().unwrap_or_default();
            all.push(Told::VolumeCloned { disk: row.name.clone(), claim });
        }
        if old != AttachPhase::Attached && row.phase == AttachPhase::Attached {
            all.push(Told::DiskAttached { disk: row.name.clone(), dpu });
        }
    }
    for row in &after.interfaces {
        let old = before.interfaces.iter().find(|old| old.name == row.name).map(|old| old.phase).unwrap_or_default();
        if old != AttachPhase::Attached && row.phase == AttachPhase::Attached {
            let (interface, dpu) = (row.name.clone(), row.dpu_name.clone().unwrap_or_default());
            let runs = conditions::is_true(&before.conditions, conditions::POWERED_ON);
            all.push(if runs { Told::NicPlugged { interface, dpu } } else { Told::NicAttached { interface, dpu } });
        }
    }
    if became(conditions::GUEST_REACHABLE)
        && let Some((interface, address)) = answered(o, now)
    {
        all.push(Told::Reachable { interface, address });
    }
    let old_reason = conditions::get(&before.conditions, conditions::READY).map(|c| c.reason.as_str());
    if let Some(reason) = ready.reason().filter(|reason| old_reason != Some(reason.name())) {
        match reason.kind() {
            _ if matches!(reason, Reason::Waiting(Waiting::GuestPoweredOff { .. })) => {
                all.push(Told::GuestPoweredOff { message: reason.told_of(o.name()) });
            }
            ReasonKind::Failed => all.push(Told::Failed { reason: reason.name(), message: reason.told_of(o.name()) }),
            ReasonKind::Blocked => all.push(Told::Waiting { reason: reason.name(), message: reason.told_of(o.name()) }),
            ReasonKind::Waiting if !is_passing(reason) => {
                all.push(Told::Waiting { reason: reason.name(), message: reason.told_of(o.name()) });
            }
            ReasonKind::Waiting => {}
        }
    }
    all
}
