//! The host's power: what it shall be, what it is, and the one action that leads from one to the other.
//!
//! Rests on a reading of this moment that is younger than the last action; the record of an action is written before it is
//! sent, so that a crash in between repeats nothing that interrupts a guest.

use super::attach::{disks, nics};
use super::draft::Draft;
use super::elsewhere::{self, Elsewhere};
use super::named::{SEED_DISK, is_by_disk};
use super::plan::{Action, Disruptive, PowerOrder};
use super::setup::Setup;
use super::situation::{
    Host, Owned, Power, Reading, SETTLE, Situation, Want, answered, is_granted, unread, wrong_server,
};
use super::steps::{Outcome, Step};
use crate::dpu::{not_ready, went_back};
use crate::host::{BmcNeed, Lack, PowerAction, PowerState};
use crate::reason::{Blocked, Failed, Reason, Waiting};
use crate::writer::claim::pod_is_made;
use api::machine::RunStrategy;
use jiff::{SignedDuration, Timestamp};

/// A machine that stayed on for so long is no longer in a loop of power-offs.
pub(super) const CALM: SignedDuration = SignedDuration::from_secs(600);

/// Why nothing may be granted yet. A disk must not appear in a system that somebody else started: a host on standby power
/// is off, or was started by us. (A DPU that shares its host's power lives only while the host is on.)
pub(super) fn forbids_grant(o: &Situation<'_>, host: Host<'_>, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    if let Some(reason) = wrong_server(o) {
        return Some(reason);
    }
    if let Some(reason) = &o.no_grants {
        if !all_granted(o, host) {
            draft.wake(now + went_back::EVERY);
        }
        return Some(reason.clone());
    }
    let is_off_with_host = host.shares_power() && host.dpu.silent;
    if host.dpu.silent && !is_off_with_host {
        // A grant that nobody reads now may be found by a DPU that comes back much later, and takes the fence's work with it.
        return Some(Waiting::DpuSilent { dpu: host.dpu.name().to_owned() }.into());
    }
    if host.dpu.boot_id().is_none() && !is_off_with_host {
        // What its host has already is known with its agent's first report.
        return Some(not_ready(host.dpu));
    }
    if host.shares_power() || is_granted(o) || o.owned.record.started_boot_id.is_some() {
        return None;
    }
    let hardware = host.name().to_owned();
    match o.owned.reading {
        Reading::Fresh(PowerState::Off) => None,
        Reading::Fresh(PowerState::On) => {
            let order = PowerOrder::plain(PowerAction::ForceOff);
            Some(send(&o.owned, &hardware, order, draft).unwrap_or_else(|| Waiting::HostStillOn { hardware }.into()))
        }
        Reading::Fresh(_) | Reading::Rising(_) => {
            draft.need_bmc(BmcNeed::Awaiting);
            Some(Waiting::HostStillOn { hardware }.into())
        }
        Reading::Old(_) | Reading::None => {
            draft.need_bmc(BmcNeed::Now);
            Some(unread(o, hardware))
        }
    }
}

/// Every disk, the seed and every interface of the spec has its grant, or gets it as soon as the DPU runs that starts with
/// its host: what its kubelet connects cannot be granted before.
pub(super) fn all_granted(o: &Situation<'_>, host: Host<'_>) -> bool {
    let spec = &o.machine.spec;
    let starts = |a: &api::DiskAttachment| host.shares_power() && pod_is_made(&o.holder_pods, a);
    let disk = |name: &str| disks::current(o, name).is_some_and(|a| a.spec.grant.is_some() || starts(a));
    spec.disks.iter().all(|d| disk(&d.name))
        && (!is_by_disk(&o.machine) || disk(SEED_DISK))
        && spec.interfaces.iter().all(|i| nics::current(o, &i.name).is_some_and(|a| a.spec.grant.is_some()))
}

/// Plans a power action; or says why it is none: the BMC does not offer it.
pub(super) fn send(o: &Owned<'_>, hardware: &str, order: PowerOrder, draft: &mut Draft) -> Option<Reason> {
    if lacks(o, order.action) {
        let (hardware, action) = (hardware.to_owned(), Lack::Power(order.action).noun().to_owned());
        return Some(Blocked::PowerActionUnsupported { hardware, action }.into());
    }
    draft.need_bmc(BmcNeed::Awaiting);
    draft.disrupt(Disruptive::Power(order));
    None
}

fn lacks(o: &Owned<'_>, action: PowerAction) -> bool {
    o.bmc.host.last().is_some_and(|host| host.lacks(Lack::Power(action)))
}

/// What forbids to power on, and what forbids a reset.
pub(super) struct Gates {
    pub start: Option<Reason>,
    pub reset: Option<Reason>,
    pub setup: Option<Setup>,
}

pub(super) fn plan(o: &Situation<'_>, host: Power<'_>, gates: &Gates, now: Timestamp, draft: &mut Draft) {
    let wanted = o.want;
    let outcome = match wanted {
        Want::On => on(o, host, gates, now, draft),
        Want::Off => match off(&o.owned, host.name, now, draft).or_else(|| stopped_for_maintenance(o)) {
            Some(reason) => Outcome::Not(reason),
            None => Outcome::Off,
        },
        Want::Keep => match o.owned.reading {
            Reading::Fresh(PowerState::Off) | Reading::Old(PowerState::Off) if !o.owned.record.booted_elsewhere => {
                Outcome::Off
            }
            _ => on(o, host, gates, now, draft),
        },
    };
    if wanted != Want::Keep
        && o.run_strategy() == RunStrategy::Manual
        && matches!(outcome, Outcome::Done | Outcome::Off)
    {
        draft.act(Action::ClearPowerRequest);
    }
    draft.set(Step::PoweredOn, outcome);
}

/// It is off, and not because its spec says so.
fn stopped_for_maintenance(o: &Situation<'_>) -> Option<Reason> {
    o.stopped.clone().filter(|_| o.run_strategy() != RunStrategy::Halted)
}

fn on(o: &Situation<'_>, host: Power<'_>, gates: &Gates, now: Timestamp, draft: &mut Draft) -> Outcome {
    // What a Manual machine was last started by is gone by then: a request is a new one.
    let asked_again =
        o.owned.owner.restart_request().is_some() || (o.run_strategy() == RunStrategy::Manual && o.want == Want::On);
    if o.owned.record.booted_elsewhere && !asked_again {
        let reason = off(&o.owned, host.name, now, draft);
        return Outcome::Not(
            reason.unwrap_or_else(|| Failed::BootedElsewhere { hardware: host.name.to_owned() }.into()),
        );
    }
    let is_on = matches!(o.owned.reading, Reading::Fresh(PowerState::On) | Reading::Old(PowerState::On));
    match &gates.setup {
        Some(Setup::Running) if is_on => {
            return Outcome::Not(Waiting::BootOptionAwaited { hardware: host.name.to_owned() }.into());
        }
        Some(Setup::Over) => {
            if let Some(reason) = off(&o.owned, host.name, now, draft) {
                return Outcome::Not(reason);
            }
        }
        Some(Setup::Running | Setup::Next) | None => {}
    }
    match o.owned.reading {
        Reading::Fresh(PowerState::On) | Reading::Old(PowerState::On) => running(o, host, gates, now, draft),
        Reading::Fresh(PowerState::Off) => start(o, host, gates, now, draft),
        Reading::Fresh(PowerState::PoweringOn | PowerState::PoweringOff) => {
            draft.need_bmc(BmcNeed::Awaiting);
            Outcome::Not(Waiting::PoweringOn { hardware: host.name.to_owned() }.into())
        }
        Reading::Rising(settled) => Outcome::Not(rising(host.name, settled, draft)),
        // Nothing can be started yet: the reading can wait as well.
        Reading::Old(_) if gates.start.is_some() => gates.start.clone().map_or(Outcome::Later, Outcome::Not),
        Reading::Old(_) | Reading::None => {
            draft.need_bmc(if o.owned.record.asked_on() { BmcNeed::Awaiting } else { BmcNeed::Now });
            match under_way(&o.owned, host.name, now, draft) {
                Some(reason) => Outcome::Not(reason),
                None => Outcome::Unseen(unread(o, host.name.to_owned())),
            }
        }
    }
}

fn running(o: &Situation<'_>, host: Power<'_>, gates: &Gates, now: Timestamp, draft: &mut Draft) -> Outcome {
    let record = &o.owned.record;
    let hardware = host.name.to_owned();
    if let (Some(PowerAction::ForceOff | PowerAction::SoftOff), Some(at)) = (record.action, record.at)
        && now < at + SETTLE
    {
        // Its effect may still come.
        draft.need_bmc(BmcNeed::Awaiting);
        draft.wake(at + SETTLE);
        return Outcome::Not(Waiting::PoweringOff { hardware }.into());
    }
    let started_here = host.boot_id.is_some() && record.started_boot_id == host.boot_id;
    let lost = host.shares_power && record.reset_may_be_lost() && answered(o, now).is_none();
    if let (true, true, Some(at)) = (started_here, lost, record.at)
        && now < at + SETTLE
    {
        draft.wake(at + SETTLE);
        return Outcome::Not(Waiting::Resetting { hardware }.into());
    }
    let must_reset = host.shares_power && (!started_here || lost);
    let restart = o.owned.owner.restart_request();
    if !must_reset && restart.is_none() {
        if let Some(dpu) = host.dpu
            && record.started_boot_id.is_some()
            && host.boot_id.is_some()
            && !started_here
        {
            let dpu = dpu.to_owned();
            draft.restart_required.get_or_insert(Blocked::DpuRestarted { dpu }.into());
        }
        let stuck = elsewhere::left_in_setup(o, host.name, now, draft);
        return stuck.or_else(|| elsewhere(o, host, now, draft)).map_or(Outcome::Done, Outcome::Not);
    }
    if let Some(reason) = &gates.reset {
        return if must_reset { Outcome::Not(reason.clone()) } else { Outcome::Done };
    }
    if o.owned.reading != Reading::Fresh(PowerState::On) {
        draft.need_bmc(BmcNeed::Now);
        return if must_reset { Outcome::Unseen(unread(o, hardware)) } else { Outcome::Done };
    }
    let into_setup = gates.setup == Some(Setup::Next);
    let order = PowerOrder {
        // What is reset into its setup was started for nothing yet.
        started_boot_id: host.boot_id.filter(|_| !into_setup).map(str::to_owned),
        restart,
        attempts: record.attempts,
        into_setup,
        ..PowerOrder::plain(PowerAction::WarmReset)
    };
    match send(&o.owned, &hardware, order, draft) {
        None => Outcome::Not(Waiting::Resetting { hardware }.into()),
        Some(reason) if must_reset => Outcome::Not(reason),
        // It runs, and cannot be restarted as its user asks.
        Some(reason) => {
            draft.restart_required.get_or_insert(reason);
            Outcome::Done
        }
    }
}

/// The host runs, but not from its boot disk: it is powered off, and why.
fn elsewhere(o: &Situation<'_>, host: Power<'_>, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    let found = elsewhere::judge(o, host, now, draft)?;
    let hardware = host.name.to_owned();
    if found.answers {
        let Elsewhere { disk, minutes, .. } = found;
        draft.restart_required.get_or_insert(Blocked::BootDiskUnread { hardware, disk, minutes }.into());
        return None;
    }
    if o.owned.reading != Reading::Fresh(PowerState::On) {
        draft.need_bmc(BmcNeed::Now);
        return None;
    }
    let order = PowerOrder { booted_elsewhere: true, ..PowerOrder::plain(PowerAction::ForceOff) };
    Some(send(&o.owned, &hardware, order, draft).unwrap_or_else(|| Failed::BootedElsewhere { hardware }.into()))
}

/// It is waited for, whatever comes next.
fn rising(hardware: &str, settled: Timestamp, draft: &mut Draft) -> Reason {
    draft.need_bmc(BmcNeed::Awaiting);
    draft.wake(settled);
    Waiting::PoweringOn { hardware: hardware.to_owned() }.into()
}

fn start(o: &Situation<'_>, host: Power<'_>, gates: &Gates, now: Timestamp, draft: &mut Draft) -> Outcome {
    let into_setup = gates.setup == Some(Setup::Next);
    let boot_disk_reads = if into_setup { None } else { elsewhere::before(o, host) };
    let start = Start { run: None, boot_disk_reads, into_setup, netboot_by: None };
    Outcome::Not(started(&o.owned, host, gates.start.as_ref(), start, now, draft))
}

/// For what a host is started that is not the machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct For<'a> {
    /// The UID of a Workflow, which is booted from the network, or of the DiskAttachment that the host boots from.
    pub run: &'a str,
    pub into_setup: bool,
    /// By what the BMC was asked for a boot from the network.
    pub netboot_by: Option<&'a str>,
}

/// Powers a host on that is off.
pub(super) fn start_for(
    o: &Owned<'_>,
    host: Power<'_>,
    forbids: Option<Reason>,
    what: For<'_>,
    now: Timestamp,
    draft: &mut Draft,
) -> Reason {
    let For { run, into_setup, netboot_by } = what;
    let start = Start { run: Some(run), boot_disk_reads: None, into_setup, netboot_by };
    started(o, host, forbids.as_ref(), start, now, draft)
}

/// Resets a host that is on. What is reset into its setup was started for nothing yet.
pub(super) fn reset_for(o: &Owned<'_>, host: Power<'_>, what: For<'_>, draft: &mut Draft) -> Reason {
    let hardware = host.name.to_owned();
    let order = PowerOrder {
        started_boot_id: host.boot_id.filter(|_| !what.into_setup).map(str::to_owned),
        started_for: Some(what.run.to_owned()),
        attempts: o.record.attempts,
        into_setup: what.into_setup,
        ..PowerOrder::plain(PowerAction::WarmReset)
    };
    send(o, &hardware, order, draft).unwrap_or_else(|| Waiting::Resetting { hardware }.into())
}

/// Powers a host off whose installer is no longer heard: it has nothing to save, and is started anew.
pub(super) fn off_for_lost_agent(o: &Owned<'_>, hardware: &str, draft: &mut Draft) -> Reason {
    let order = PowerOrder { for_agent: true, ..PowerOrder::plain(PowerAction::ForceOff) };
    let hardware = hardware.to_owned();
    send(o, &hardware, order, draft).unwrap_or_else(|| Waiting::PoweringOff { hardware }.into())
}

/// What is written into the record of a power-on.
struct Start<'a> {
    run: Option<&'a str>,
    boot_disk_reads: Option<String>,
    into_setup: bool,
    netboot_by: Option<&'a str>,
}

fn started(
    o: &Owned<'_>,
    host: Power<'_>,
    forbids: Option<&Reason>,
    start: Start<'_>,
    now: Timestamp,
    draft: &mut Draft,
) -> Reason {
    let record = &o.record;
    let hardware = host.name.to_owned();
    let went_off = record.asked_on() && record.went_off();
    let not_taken = record.asked_on() && !went_off;
    if let Some(reason) = forbids {
        return reason.clone();
    }
    if went_off && !record.in_setup {
        let due = record.off_since(now) + back_off(record.attempts);
        if now < due {
            draft.wake(due);
            let seconds = due.duration_since(now).as_secs() + 1;
            return Waiting::GuestPoweredOff { attempt: record.attempts + 1, seconds }.into();
        }
    }
    let attempts = record.attempts + u32::from(record.asked_on());
    let started_boot_id = (!host.shares_power).then(|| host.boot_id.map(str::to_owned)).flatten();
    let (restart, started_for) = (o.owner.restart_request(), start.run.map(str::to_owned));
    let (on, boot_disk_reads) = (PowerOrder::plain(PowerAction::On), start.boot_disk_reads);
    let (into_setup, netboot_by) = (start.into_setup, start.netboot_by.map(str::to_owned));
    let order =
        PowerOrder { started_boot_id, started_for, restart, attempts, boot_disk_reads, into_setup, netboot_by, ..on };
    if let Some(reason) = send(o, &hardware, order, draft) {
        return reason;
    }
    match not_taken {
        true => Failed::PowerNotTaken { hardware, action: "On".to_owned(), attempts }.into(),
        false => Waiting::PoweringOn { hardware }.into(),
    }
}

/// 5 s, doubling, at most 5 minutes.
fn back_off(attempts: u32) -> SignedDuration {
    SignedDuration::from_secs((5i64 << attempts.min(6)).min(300))
}

/// Leads the host to off; `None`: it is off.
pub(super) fn off(o: &Owned<'_>, hardware: &str, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    let hardware = hardware.to_owned();
    match o.reading {
        Reading::Fresh(PowerState::Off) => None,
        Reading::Old(PowerState::Off) if !o.gives_back => None,
        // Nothing is sent meanwhile: a power-off to a host that is off yet would be the last that is on record.
        Reading::Rising(settled) => Some(rising(&hardware, settled, draft)),
        Reading::Fresh(PowerState::On | PowerState::PoweringOn) => Some(stop(o, hardware, now, draft)),
        Reading::Fresh(PowerState::PoweringOff) => {
            draft.need_bmc(BmcNeed::Awaiting);
            Some(Waiting::PoweringOff { hardware }.into())
        }
        Reading::Old(_) | Reading::None => {
            let pending = matches!(o.record.action, Some(PowerAction::SoftOff | PowerAction::ForceOff));
            draft.need_bmc(if pending { BmcNeed::Awaiting } else { BmcNeed::Now });
            Some(under_way(o, &hardware, now, draft).unwrap_or_else(|| unread(o, hardware)))
        }
    }
}

fn stop(o: &Owned<'_>, hardware: String, now: Timestamp, draft: &mut Draft) -> Reason {
    let record = &o.record;
    let grace = o.owner.grace();
    match (record.action, record.at) {
        (Some(PowerAction::SoftOff), Some(at)) if now < at + grace => {
            let deadline = at + grace;
            draft.need_bmc(BmcNeed::Awaiting);
            draft.wake(deadline);
            let seconds = deadline.duration_since(now).as_secs() + 1;
            Waiting::ShuttingDown { hardware, seconds }.into()
        }
        (Some(PowerAction::ForceOff), Some(at)) if now < at + SETTLE => {
            draft.need_bmc(BmcNeed::Awaiting);
            draft.wake(at + SETTLE);
            Waiting::PoweringOff { hardware }.into()
        }
        (Some(PowerAction::ForceOff), _) => {
            let attempts = record.attempts + 1;
            let netboot_by = record.netboot_by.map(str::to_owned);
            let order = PowerOrder { attempts, netboot_by, ..PowerOrder::plain(PowerAction::ForceOff) };
            send(o, &hardware, order, draft)
                .unwrap_or_else(|| Failed::PowerNotTaken { hardware, action: "ForceOff".to_owned(), attempts }.into())
        }
        (last, _) => {
            // A system that was never started through us has nobody to ask, and a firmware in its setup is none.
            let asked_before = last == Some(PowerAction::SoftOff) || !record.asked_on();
            let nobody = asked_before || o.is_in_setup() || o.is_in_installer();
            let ask = !grace.is_zero() && !nobody && !lacks(o, PowerAction::SoftOff);
            let order = PowerOrder::plain(if ask { PowerAction::SoftOff } else { PowerAction::ForceOff });
            send(o, &hardware, order, draft).unwrap_or_else(|| match ask {
                true => Waiting::ShuttingDown { hardware, seconds: grace.as_secs() }.into(),
                false => Waiting::PoweringOff { hardware }.into(),
            })
        }
    }
}

/// The last action, while nothing was read since it was sent and its effect may still come: that is what is waited for, and not a
/// reading.
fn under_way(o: &Owned<'_>, hardware: &str, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    let (action, sent) = (o.record.action?, o.record.at?);
    let grace = o.owner.grace();
    let until = sent + if action == PowerAction::SoftOff { grace } else { SETTLE };
    if o.bmc.problem.is_some() || o.bmc.read_at > Some(sent) || now >= until {
        return None;
    }
    draft.wake(until);
    let hardware = hardware.to_owned();
    Some(match action {
        PowerAction::On => Waiting::PoweringOn { hardware }.into(),
        PowerAction::WarmReset => Waiting::Resetting { hardware }.into(),
        PowerAction::ForceOff => Waiting::PoweringOff { hardware }.into(),
        PowerAction::SoftOff => {
            Waiting::ShuttingDown { hardware, seconds: until.duration_since(now).as_secs() + 1 }.into()
        }
    })
}
