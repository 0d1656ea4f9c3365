//! *OrphanIsNotGranted* of docs/design/fencing.md: what a host still has, though no attachment explains it, is nobody else's.

use super::claim::Host;
use super::nics;
use super::observed::{DpuSeen, Observed, VolumeSeen, name};
use crate::own_bmc;
use crate::reason::{Reason, Waiting};
use api::VNic;
use api::dpu::{Orphan, OrphanKind, OrphanVolume};
use api::hold::FenceProof;
use jiff::SignedDuration;

/// How often it is looked whether an orphan is still there.
pub(super) const EVERY: SignedDuration = SignedDuration::from_secs(5);

/// An orphan, and the DPU whose host has it.
#[derive(Debug, Clone)]
pub struct OrphanOn {
    pub dpu: DpuSeen,
    pub orphan: Orphan,
}

impl OrphanOn {
    pub fn is_of(&self, volume: &VolumeSeen) -> bool {
        let of_it = |of: &OrphanVolume| of.driver == volume.driver && of.volume_handle == volume.handle;
        self.orphan.volume.as_ref().is_some_and(of_it)
    }

    /// It may stand in the way of this machine: a volume of its claims, one of its VNics, or whatever its own host has.
    pub fn concerns(&self, o: &Observed) -> bool {
        let own_host = o.dpus.iter().any(|dpu| dpu.uid() == self.dpu.uid());
        own_host
            || o.claims.values().filter_map(|claim| claim.volume.as_ref()).any(|volume| self.is_of(volume))
            || o.vnics.values().any(|vnic| self.is_at(vnic))
    }

    /// What the network knows by this VNic's name, or has its MAC address.
    fn is_at(&self, vnic: &VNic) -> bool {
        let port = self.orphan.logical_port.as_deref();
        let mac = self.orphan.mac_address.as_deref();
        port.is_some_and(|port| nics::is_port_of(port, &vnic.metadata)) || mac == Some(&nics::mac(vnic))
    }

    /// The DPU went down since it reported: a boot forgets what no attachment explains.
    pub(crate) fn is_down(&self) -> bool {
        own_bmc::is_down(&self.dpu)
    }
}

/// Why a VNic may not be granted to anybody now.
pub(super) fn vnic_shown_elsewhere(o: &Observed, vnic: &VNic) -> Option<Reason> {
    let there = o.orphans.iter().find(|one| one.is_at(vnic) && !one.is_down())?;
    let (vnic, dpu, uid) = (name(&vnic.metadata).to_owned(), there.dpu.name().to_owned(), there.orphan.uid.clone());
    Some(Waiting::VNicShownElsewhere { vnic, dpu, uid }.into())
}

/// Why this host gets no cloud-init disk now: it has one that no attachment explains, in the one place for it.
pub(super) fn seed_shown(o: &Observed, host: Host<'_>) -> Option<Reason> {
    let is_seed = |one: &&OrphanOn| one.orphan.kind == OrphanKind::Disk && one.orphan.volume.is_none();
    let here = |one: &&OrphanOn| one.dpu.uid() == host.dpu.uid() && !one.is_down();
    let count = o.orphans.iter().filter(here).filter(is_seed).count();
    let (hardware, dpu) = (host.name().to_owned(), host.dpu.name().to_owned());
    (count > 0).then(|| Waiting::HardwareHasOrphans { hardware, dpu, count }.into())
}

/// Why a volume may not be granted to anybody now.
pub(super) fn shown_elsewhere(o: &Observed, claim: &str, volume: &VolumeSeen) -> Option<Reason> {
    let fences = o.holds.get(&volume.hold_name()).map(|hold| hold.spec.fences.as_slice()).unwrap_or_default();
    let refused = |of: &OrphanOn| {
        fences.iter().any(|fence| {
            fence.attachment_uid == of.orphan.uid
                && fence.epoch == of.orphan.epoch
                && fence.proof == FenceProof::StorageFenced
        })
    };
    let there = o.orphans.iter().find(|one| one.is_of(volume) && !one.is_down() && !refused(one))?;
    let (claim, dpu, uid) = (claim.to_owned(), there.dpu.name().to_owned(), there.orphan.uid.clone());
    Some(Waiting::VolumeShownElsewhere { claim, dpu, uid }.into())
}
