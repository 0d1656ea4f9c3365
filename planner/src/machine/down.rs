//! Why a silent DPU cannot be presenting anything any more: steps 12 and 13 of docs/design/fencing.md, and what is done until
//! that is known.

use super::claim;
use super::draft::Draft;
use super::fencing;
use super::observed::{DpuSeen, Observed, name};
use super::plan::BmcNeed;
use super::power::{self, Reading};
use crate::host::PowerState;
use crate::own_bmc;
use crate::reason::{Reason, Waiting};
use api::VolumeHold;
use api::dpu::PowerDomain;
use api::hold::{FenceProof, Holder};
use jiff::{SignedDuration, Timestamp};

/// How often the BMC of a DPU that is waited for is read.
const EVERY: SignedDuration = SignedDuration::from_secs(2);

pub(super) fn dpu<'a>(o: &'a Observed, dpu: &str) -> Option<&'a DpuSeen> {
    o.dpus.iter().find(|seen| seen.name() == dpu)
}

pub(super) fn proof(o: &Observed, dpu: &DpuSeen) -> Option<FenceProof> {
    if !dpu.silent {
        return None;
    }
    if goes_with_our_host(o, dpu) && power::reading(o) == Reading::Fresh(PowerState::Off) {
        return Some(FenceProof::HostPoweredOff);
    }
    if own_bmc::not_off(dpu).is_none() {
        return Some(FenceProof::DpuPoweredOff);
    }
    dpu.is_confirmed_down().then_some(FenceProof::ConfirmedDown)
}

/// It shares its power with the host that this machine has.
fn goes_with_our_host(o: &Observed, dpu: &DpuSeen) -> bool {
    let own_host = claim::current(o).is_some_and(|hw| dpu.hardware_name() == Some(name(&hw.metadata)));
    own_host && dpu.dpu.spec.power_domain == PowerDomain::Host
}

/// What a silent agent is waited for with, by whoever takes something away from it.
pub(super) fn silent(o: &Observed, name: &str) -> Option<Reason> {
    let dpu = dpu(o, name).filter(|dpu| dpu.silent)?;
    let name = name.to_owned();
    Some(match (own_bmc::name(&dpu.dpu), own_bmc::not_off(dpu)) {
        (Some(bmc), Some(why)) => Waiting::DpuNotOff { dpu: name, bmc: bmc.to_owned(), message: why.message() }.into(),
        _ => Waiting::DpuSilent { dpu: name }.into(),
    })
}

/// Whether it is off decides: its own BMC is read every two seconds, from when that may count, and the BMC of a host that it
/// goes down with.
pub(super) fn watch(o: &Observed, name: &str, now: Timestamp, draft: &mut Draft) {
    let Some(dpu) = dpu(o, name).filter(|dpu| dpu.silent) else { return };
    if goes_with_our_host(o, dpu) {
        read_host(o, EVERY, now, draft);
    }
    let Some(bmc) = own_bmc::name(&dpu.dpu) else { return };
    let counts = dpu.heard_at.map(|heard| heard + own_bmc::LAG);
    let due = dpu.bmc.read_at.map(|at| at + EVERY).max(counts).filter(|due| now < *due);
    draft.need_dpu_bmc(bmc, if due.is_some() { BmcNeed::Slow } else { BmcNeed::Now });
    if let Some(due) = due {
        draft.wake(due);
    }
}

/// Whether a host is off decides: its BMC is read for that, so often.
pub(super) fn read_host(o: &Observed, every: SignedDuration, now: Timestamp, draft: &mut Draft) {
    match o.bmc.read_at.map(|at| at + every).filter(|due| now < *due) {
        Some(due) => draft.wake(due),
        None => draft.need_bmc(BmcNeed::Now),
    }
}

/// Those that this machine has something on are looked at now and then.
pub(super) fn glance(o: &Observed, draft: &mut Draft) {
    let uses = |dpu: &&DpuSeen| {
        o.disk_attachments.iter().any(|a| a.spec.dpu_name == dpu.name())
            || o.nic_attachments.iter().any(|a| a.spec.dpu_name == dpu.name())
    };
    for dpu in o.dpus.iter().filter(|dpu| dpu.silent).filter(uses) {
        if let Some(bmc) = own_bmc::name(&dpu.dpu) {
            draft.need_dpu_bmc(bmc, BmcNeed::Slow);
        }
    }
}

/// Step 14: a DPU that was read off stays off until the hold is emptied, or is known to have lost everything. One that reads
/// on again with nothing heard of another boot may never have been off.
pub(super) fn back_on(
    o: &Observed,
    hold: &VolumeHold,
    holder: &Holder,
    now: Timestamp,
    draft: &mut Draft,
) -> Option<Reason> {
    let of_it = |fence: &&api::hold::FenceRecord| {
        fence.attachment_uid == holder.attachment_uid && fence.proof == FenceProof::DpuPoweredOff
    };
    let fence = hold.spec.fences.iter().find(of_it)?;
    // A Dpu that is deleted is nobody's word any more.
    let dpu = o.dpus.iter().find(|dpu| dpu.uid() == fence.dpu_uid)?;
    let another_boot = dpu.boot_id() != fence.boot_id.as_deref();
    if another_boot || fencing::presents_nothing(dpu) || proof(o, dpu).is_some() {
        return None;
    }
    watch(o, dpu.name(), now, draft);
    let what = format!("the hold of attachment '{}'", holder.attachment_name);
    Some(silent(o, dpu.name()).unwrap_or_else(|| super::attach::detaching(&what, dpu.name())))
}
