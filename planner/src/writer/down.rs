//! *DpuIsDown* of docs/design/fencing.md: why an unresponsive DPU cannot be presenting anything any more, and what is done until
//! that is known.

use super::Sink;
use crate::about::About;
use crate::host::BmcNeed;
use crate::observed::DpuSeen;
use crate::own_bmc;
use crate::reason::{Reason, Waiting};
use api::VolumeHold;
use api::dpu::PowerDomain;
use api::hold::{FenceProof, FenceRecord, Holder};
use jiff::{SignedDuration, Timestamp};

/// How often the BMC of a DPU that is waited for is read.
const EVERY: SignedDuration = SignedDuration::from_secs(2);

/// What a proof rests on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site<'a> {
    pub now: Timestamp,
    /// At least those that the owner's attachments are on.
    pub dpus: &'a [DpuSeen],
    /// The owner's host, if it has one.
    pub host: Option<HostPower<'a>>,
}

/// A server and its power.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostPower<'a> {
    pub hardware: &'a str,
    /// Its BMC reports it off, in a reading of this moment that is younger than the last power action.
    pub is_off: bool,
    /// When its BMC was last read.
    pub read_at: Option<Timestamp>,
}

pub(crate) fn dpu<'a>(dpus: &'a [DpuSeen], name: &str) -> Option<&'a DpuSeen> {
    dpus.iter().find(|seen| seen.name() == name)
}

/// By what an unresponsive DPU is known to be down; `host`: the owner's.
pub(crate) fn proof(dpu: &DpuSeen, host: Option<HostPower<'_>>) -> Option<FenceProof> {
    if !dpu.silent {
        return None;
    }
    if host.is_some_and(|host| host.is_off && goes_with(dpu, host)) {
        return Some(FenceProof::HostPoweredOff);
    }
    if own_bmc::not_off(dpu).is_none() {
        return Some(FenceProof::DpuPoweredOff);
    }
    dpu.is_confirmed_down().then_some(FenceProof::ConfirmedDown)
}

/// It shares its power with this host.
fn goes_with(dpu: &DpuSeen, host: HostPower<'_>) -> bool {
    dpu.hardware_name() == Some(host.hardware) && dpu.dpu.spec.power_domain == PowerDomain::Host
}

impl Site<'_> {
    pub fn proof(&self, dpu: &DpuSeen) -> Option<FenceProof> {
        proof(dpu, self.host)
    }

    /// What an unresponsive agent is waited for with, by whoever takes something away from it.
    pub fn unresponsive(&self, name: &str) -> Option<Reason> {
        let dpu = dpu(self.dpus, name).filter(|dpu| dpu.silent)?;
        let name = name.to_owned();
        Some(match (own_bmc::name(&dpu.dpu), own_bmc::not_off(dpu)) {
            (Some(bmc), Some(why)) => {
                Waiting::DpuNotOff { dpu: name, bmc: bmc.to_owned(), message: why.message() }.into()
            }
            _ => Waiting::DpuSilent { dpu: name }.into(),
        })
    }

    /// Whether it is off decides: its own BMC is read every two seconds, from when that may count, and the BMC of a host that it
    /// goes down with.
    pub fn watch(&self, name: &str, sink: &mut dyn Sink) {
        let Some(dpu) = dpu(self.dpus, name).filter(|dpu| dpu.silent) else { return };
        if let Some(host) = self.host.filter(|host| goes_with(dpu, *host)) {
            read_host(host.read_at, EVERY, self.now, sink);
        }
        let Some(bmc) = own_bmc::name(&dpu.dpu) else { return };
        let counts = dpu.heard_at.map(|heard| heard + own_bmc::LAG);
        let due = dpu.bmc.read_at.map(|at| at + EVERY).max(counts).filter(|due| self.now < *due);
        sink.need_dpu_bmc(bmc, if due.is_some() { BmcNeed::Slow } else { BmcNeed::Now });
        if let Some(due) = due {
            sink.wake(due);
        }
    }

    /// *DpuStaysDown*: a DPU that was read off stays off until the hold is emptied, or is known to have lost everything. One that
    /// reads on again with nothing heard of another boot may never have been off. What is waited for, if it is so.
    pub(super) fn back_on(&self, hold: &VolumeHold, holder: &Holder, sink: &mut dyn Sink) -> Option<Reason> {
        let of_it = |fence: &&FenceRecord| {
            fence.attachment_uid == holder.attachment_uid && fence.proof == FenceProof::DpuPoweredOff
        };
        let fence = hold.spec.fences.iter().find(of_it)?;
        // A Dpu that is deleted is nobody's word any more.
        let dpu = self.dpus.iter().find(|dpu| dpu.uid() == fence.dpu_uid)?;
        if is_lifted(fence, dpu) || self.proof(dpu).is_some() {
            return None;
        }
        self.watch(dpu.name(), sink);
        let what = About::HoldOf(holder.attachment_name.clone());
        let detaching = || Waiting::Detaching { what, dpu: dpu.name().to_owned() }.into();
        Some(self.unresponsive(dpu.name()).unwrap_or_else(detaching))
    }
}

/// *FenceIsLifted*: the DPU has lost what it had, by another boot, or presents nothing.
pub(super) fn is_lifted(fence: &FenceRecord, dpu: &DpuSeen) -> bool {
    dpu.boot_id() != fence.boot_id.as_deref() || presents_nothing(dpu)
}

/// The agent answers and says that all it could present is free: so none of what was ever granted is presented.
fn presents_nothing(dpu: &DpuSeen) -> bool {
    let status = dpu.dpu.status.as_ref();
    let (capacity, free) = (status.and_then(|s| s.capacity.as_ref()), status.and_then(|s| s.allocatable.as_ref()));
    !dpu.silent && capacity.is_some() && capacity == free
}

/// Whether a host is off decides: its BMC is read for that, so often.
pub(crate) fn read_host(read_at: Option<Timestamp>, every: SignedDuration, now: Timestamp, sink: &mut dyn Sink) {
    match read_at.map(|at| at + every).filter(|due| now < *due) {
        Some(due) => sink.wake(due),
        None => sink.need_host_bmc(BmcNeed::Now),
    }
}

/// Those that the owner has something on are looked at now and then.
pub(crate) fn glance(dpus: &[DpuSeen], uses: impl Fn(&str) -> bool, sink: &mut dyn Sink) {
    for dpu in dpus.iter().filter(|dpu| dpu.silent && uses(dpu.name())) {
        if let Some(bmc) = own_bmc::name(&dpu.dpu) {
            sink.need_dpu_bmc(bmc, BmcNeed::Slow);
        }
    }
}
