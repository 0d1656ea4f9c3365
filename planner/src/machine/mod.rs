//! One machine: from what is observed to a plan.
//!
//! [`plan`] runs the steps in the order in which they become true; each gives an [`steps::Outcome`], which is a condition,
//! and the actions that it can take now. Nothing is remembered between rounds but what stands in the objects.
//!
//! Words first: [`observed`], [`steps`], [`plan`], `named`. Then `situation`, what follows from them for every step, and the steps,
//! each of which names none that comes after it: [`claim`], `volumes`, `attach`, `boot`, `setup`, `power`, `guest`, `install`, `erase`, `release`, `status`.
//! [`leftovers`] plans for a machine that no longer exists, by the stages of a release.
//! Who may write a volume is decided in [`crate::writer`].

mod asks;
mod attach;
mod boot;
pub mod claim;
mod discover;
mod draft;
mod elsewhere;
mod erase;
mod guest;
mod install;
pub mod leftovers;
mod maintenance;
mod medium;
mod named;
mod netboot;
pub mod observed;
pub mod plan;
mod post;
mod power;
mod prepare;
mod release;
mod rung;
mod setup;
mod situation;
mod status;
pub mod steps;
mod volumes;

pub use crate::meta::target;
pub use crate::vnic::is_port_of;
pub use asks::{asks_for, needs_fresh_machine, needs_machine_of_this_moment};
pub use claim::strategy::{confirm_bare, netboot_mac};
pub use install::foreign as foreign_workflow;
pub use install::is_read as reads_cloud_init;
pub use named::{SEED_DISK, claim_name, import_name, is_by_disk, is_users_own, vnic_name};
pub use observed::{Belongings, Gone, Leftovers, Observed, OrphanOn};
pub use plan::{Action, BmcNeed, Disruptive, Plan};
pub use release::migrate::is_over as maintenance_is_over;
pub use situation::{action_name, state_name};
pub use volumes::{bound as bound_claim, snapshot_claim};

use crate::about::About;
use crate::meta::{has_finalizer, name};
use crate::own_bmc;
use crate::reason::{Reason, Waiting};
use crate::verbs;
use crate::writer::down;
use api::labels;
use api::tinkerbell::Hardware;
use attach::seen::{Seen, not_exposed};
use attach::{disks, nics, orphans, seed};
use draft::Draft;
use install::bare;
use jiff::Timestamp;
use release::migrate;
use situation::{Host, Place, Situation, Want, vetted, wrong_server};
use steps::{Outcome, Step};
use volumes::growth;

/// What to do for this machine now, and what its status is.
pub fn plan(o: &Observed, now: Timestamp) -> Plan {
    let vetted = vetted(o);
    let o = &Situation::of(vetted.as_ref());
    let mut draft = Draft::default();
    draft.glance(o);
    if o.deleting() {
        delete(o, now, &mut draft);
    } else if has_finalizer(&o.machine.metadata, labels::FINALIZER_MACHINE) {
        bring(o, now, &mut draft);
        migrate::migrate(o, &mut draft);
    } else {
        draft.act(Action::AddMachineFinalizer);
        draft.set(Step::HardwareClaimed, Outcome::Not(Waiting::Creating { what: About::MachineFinalizer }.into()));
    }
    if !o.orphans.is_empty() {
        // Nobody tells a machine what becomes of another DPU's.
        draft.wake(now + orphans::EVERY);
    }
    if o.lock_is_void {
        draft.act(Action::ClearLock);
    }
    if o.paused() {
        draft.actions.clear();
        draft.disruptive = None;
        draft.dpu_bmcs.clear();
    }
    if o.paused() || wrong_server(o).is_some() {
        // No reading would change anything now.
        draft.bmc = draft.bmc.min(BmcNeed::Slow);
    }
    status::finish(o, draft, now)
}

fn bring(o: &Situation<'_>, now: Timestamp, draft: &mut Draft) {
    let Some(hardware) = claim::claimed(o, draft) else {
        let reason = claim::choose(o, draft);
        draft.set(Step::HardwareClaimed, Outcome::Not(reason));
        rows(o, draft, None);
        return;
    };
    draft.set(Step::HardwareClaimed, Outcome::Done);
    draft.need_bmc(BmcNeed::Slow);
    if let Some(target) = o.moves_to {
        return leave(o, hardware, target, now, draft);
    }
    match &o.place {
        Some(Ok(Place::Dpu(host))) => bring_host(o, *host, now, draft),
        Some(Ok(Place::Bare(hardware))) => bare::bring(o, hardware, now, draft),
        Some(Err(reason)) => {
            draft.set(Step::DisksAttached, Outcome::Not(reason.clone()));
            rows(o, draft, None);
        }
        None => {}
    }
}

fn bring_host(o: &Situation<'_>, host: Host<'_>, now: Timestamp, draft: &mut Draft) {
    let w = &o.owned.writer(now);
    let leaving = release::strays(o, now, draft);
    let no_grant = power::forbids_grant(o, host, now, draft).or_else(|| post::forbids_grant(o, host, now, draft));
    let mut volumes = Vec::new();
    let mut disks: Vec<Reason> = leaving.iter().cloned().collect();
    for disk in &o.machine.spec.disks {
        // Before a claim is made for a disk that this DPU cannot present.
        let presented = match disks::current(o, &disk.name) {
            Some(_) => Ok(()),
            None => claim::presents(host.dpu, disk),
        };
        let reason = match presented.and_then(|()| volumes::plan(o, disk, draft)) {
            Ok(bound) => {
                let reason = disks::plan(o, w, host, (disk, bound), no_grant.as_ref(), draft);
                disks.extend(reason.clone());
                if matches!(reason, Some(Reason::Waiting(Waiting::HolderPodStarting { .. }))) {
                    // What its kubelet says is no event of ours.
                    draft.wake(now + volumes::PENDING);
                }
                reason.or_else(|| growth::expanding(o, w, disk, bound))
            }
            Err(reason) => {
                let reason = volumes::pending(o, host, disk, reason, now, draft);
                volumes.push(reason.clone());
                // A disk that the host already has does not leave it because its claim is in a strange state.
                let there = disks::current(o, &disk.name).filter(|a| a.spec.grant.is_some());
                let exposed = there.map(|a| not_exposed(host, About::Disk(disk.name.clone()), Seen::disk(a)));
                match exposed {
                    Some(other) => {
                        disks.extend(other.clone());
                        other
                    }
                    None => {
                        disks.push(Waiting::Creating { what: About::VolumeOfDisk(disk.name.clone()) }.into());
                        Some(reason)
                    }
                }
            }
        };
        let row = disks::row(o, disk, reason.as_ref());
        draft.disks.push(row);
    }
    disks.extend(seed::plan(o, host, no_grant.as_ref(), draft));
    let mut nics = Vec::new();
    for interface in &o.machine.spec.interfaces {
        let reason = nics::plan(o, host, interface, no_grant.as_ref(), now, draft);
        nics.extend(reason.clone());
        let row = nics::row(o, interface, reason.as_ref());
        draft.interfaces.push(row);
    }
    draft.set(Step::VolumesReady, Outcome::of(volumes));
    let (disks, nics) = (seen(host, Outcome::of(disks)), seen(host, Outcome::of(nics)));
    let gates = start(o, host, leaving, (&disks, &nics), now, draft);
    draft.set(Step::DisksAttached, disks);
    draft.set(Step::NicsAttached, nics);
    draft.set(Step::Installed, Outcome::Done);
    power::plan(o, host.power(), &gates, now, draft);
    let reachable = guest::plan(o, now, draft);
    draft.set(Step::GuestReachable, reachable);
}

/// What a silent agent was last told cannot be seen; what was never there is not there.
fn seen(host: Host<'_>, outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Not(reason @ Reason::Waiting(Waiting::DpuSilent { .. } | Waiting::DpuNotOff { .. }))
            if host.dpu.silent =>
        {
            Outcome::Unseen(reason)
        }
        other => other,
    }
}

/// The boot order, and what forbids a start or a reset.
fn start(
    o: &Situation<'_>,
    host: Host<'_>,
    leaving: Option<Reason>,
    (disks, nics): (&Outcome, &Outcome),
    now: Timestamp,
    draft: &mut Draft,
) -> power::Gates {
    let all_presented = disks.is_done() && nics.is_done();
    let held = verbs::forbids_start(&o.machine.metadata).or_else(|| maintenance::forbids_start(host));
    let presented = match all_presented {
        true => None,
        false => Some(Waiting::AttachmentsFirst {}.into()),
    };
    // A DPU that shares its host's power presents nothing before the host is on: there all is granted first, but for what
    // waits for that DPU's own kubelet.
    let granted = match power::all_granted(o, host) {
        true => None,
        false => Some(Waiting::AttachmentsFirst {}.into()),
    };
    let start = if host.shares_power() { granted } else { presented.clone() };
    let (setup, boot) = match (o.want, setup::stage(o, host, all_presented, now, draft)) {
        (Want::Off, _) => (None, None),
        (_, Some(stage)) => (Some(stage), Some(awaited(host))),
        _ => {
            let first = if o.owned.was_off() { &start } else { &presented };
            let starts = first.is_none() && leaving.is_none() && held.is_none();
            let begin = setup::begin(o, host, starts, now, draft);
            let disk = match begin {
                setup::Begin::Now => boot::Disk::MayBeShown,
                _ if all_presented => boot::Disk::Presented,
                // Its disk was seen in an earlier start, or is not listed.
                _ if host.shares_power() => {
                    boot::Disk::ComesWithPower { starts: starts && o.want == Want::On && o.owned.is_off() }
                }
                _ => boot::Disk::NotPresented,
            };
            match boot::plan(&o.owned, host, disk, now, draft) {
                boot::Next::FromDpu => (None, None),
                boot::Next::SetupFirst => (Some(setup::Setup::Next), None),
                boot::Next::Setup => (Some(setup::Setup::Next), Some(awaited(host))),
                boot::Next::Not(_) if begin == setup::Begin::Soon => (None, Some(awaited(host))),
                boot::Next::Not(reason) => (None, Some(reason)),
            }
        }
    };
    draft.set(Step::BootConfigured, boot.clone().map_or(Outcome::Done, Outcome::Not));
    let unordered = boot.filter(|_| setup != Some(setup::Setup::Next));
    power::Gates {
        start: leaving.clone().or(start).or(unordered.clone()).or(held),
        reset: leaving.or(presented).or(unordered),
        setup,
    }
}

fn awaited(host: Host<'_>) -> Reason {
    Waiting::BootOptionAwaited { hardware: host.name().to_owned() }.into()
}

/// The machine moves: all is given back here, then this Hardware itself.
fn leave(o: &Situation<'_>, hardware: &Hardware, target: &Hardware, now: Timestamp, draft: &mut Draft) {
    let left = release::leave(o, hardware, target, now, draft);
    let (from, to) = (name(&hardware.metadata).to_owned(), name(&target.metadata).to_owned());
    let why = format!("the controller releases Hardware '{from}'");
    let reason = left.unwrap_or_else(|| Waiting::Moving { from, to, why }.into());
    for step in [Step::DisksAttached, Step::NicsAttached, Step::BootConfigured, Step::PoweredOn, Step::GuestReachable] {
        draft.set(step, Outcome::Not(reason.clone()));
    }
    if o.owned.is_off() {
        draft.set(Step::PoweredOn, Outcome::Off);
    }
    rows(o, draft, Some(&reason));
    draft.releasing = Some(reason);
}

/// The DPU of the machine's Hardware, if it does not answer and cannot be proven down. One that shares its host's power is
/// down whenever the host is.
pub fn silent_dpu(o: &Observed) -> Option<String> {
    let o = &Situation::of(o);
    let host = o.host?;
    let down =
        host.shares_power() || down::proof(host.dpu, o.owned.host_power()).is_some() || own_bmc::was_off(host.dpu);
    (host.dpu.silent && !down).then(|| host.dpu.name().to_owned())
}

fn delete(o: &Situation<'_>, now: Timestamp, draft: &mut Draft) {
    draft.need_bmc(if o.owned.held().is_empty() { BmcNeed::None } else { BmcNeed::Slow });
    draft.releasing = release::plan(o, now, draft);
    for step in Step::ALL {
        draft.set(step, draft.releasing.clone().map_or(Outcome::Off, Outcome::Not));
    }
    if o.owned.is_off() || o.owned.held().is_empty() {
        draft.set(Step::PoweredOn, Outcome::Off);
    }
    if !o.owned.held().is_empty() {
        draft.set(Step::HardwareClaimed, Outcome::Done);
    }
    let releasing = draft.releasing.clone();
    rows(o, draft, releasing.as_ref());
}

/// Rows of disks and interfaces where their steps were not planned.
fn rows(o: &Observed, draft: &mut Draft, reason: Option<&Reason>) {
    let spec = &o.machine.spec;
    draft.disks = spec.disks.iter().map(|disk| disks::row(o, disk, reason)).collect();
    draft.interfaces = spec.interfaces.iter().map(|interface| nics::row(o, interface, reason)).collect();
}
