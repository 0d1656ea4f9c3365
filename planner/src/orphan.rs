//! *OrphanIsNotGranted* of docs/design/fencing.md: what a host still has, though no attachment explains it, is nobody else's.

use crate::meta::name;
use crate::observed::{OrphanOn, VolumeSeen};
use crate::reason::{Reason, Waiting};
use crate::{own_bmc, vnic};
use api::dpu::OrphanVolume;
use api::hold::{FenceProof, FenceRecord};
use api::{VNic, VolumeHold};

impl OrphanOn {
    pub fn is_of(&self, volume: &VolumeSeen) -> bool {
        let of_it = |of: &OrphanVolume| of.driver == volume.driver && of.volume_handle == volume.handle;
        self.orphan.volume.as_ref().is_some_and(of_it)
    }

    /// What the network knows by this VNic's name, or has its MAC address.
    pub(crate) fn is_at(&self, of: &VNic) -> bool {
        let port = self.orphan.logical_port.as_deref();
        let mac = self.orphan.mac_address.as_deref();
        port.is_some_and(|port| vnic::is_port_of(port, &of.metadata)) || mac == Some(&vnic::mac(of))
    }

    /// The DPU went down since it reported: a boot forgets what no attachment explains.
    pub(crate) fn is_down(&self) -> bool {
        own_bmc::is_down(&self.dpu)
    }

    fn is_refused(&self, fences: &[FenceRecord]) -> bool {
        fences.iter().any(|fence| {
            fence.attachment_uid == self.orphan.uid
                && fence.epoch == self.orphan.epoch
                && fence.proof == FenceProof::StorageFenced
        })
    }
}

/// Why a volume may not be granted to anybody now. `hold`: of that volume.
pub(crate) fn shown_elsewhere(
    orphans: &[OrphanOn],
    hold: Option<&VolumeHold>,
    claim: &str,
    volume: &VolumeSeen,
) -> Option<Reason> {
    let fences = hold.map(|hold| hold.spec.fences.as_slice()).unwrap_or_default();
    let there = orphans.iter().find(|one| one.is_of(volume) && !one.is_down() && !one.is_refused(fences))?;
    let (claim, dpu, uid) = (claim.to_owned(), there.dpu.name().to_owned(), there.orphan.uid.clone());
    Some(Waiting::VolumeShownElsewhere { claim, dpu, uid }.into())
}

/// Why a VNic may not be granted to anybody now.
pub(crate) fn vnic_shown_elsewhere(orphans: &[OrphanOn], vnic: &VNic) -> Option<Reason> {
    let there = orphans.iter().find(|one| one.is_at(vnic) && !one.is_down())?;
    let (vnic, dpu, uid) = (name(&vnic.metadata).to_owned(), there.dpu.name().to_owned(), there.orphan.uid.clone());
    Some(Waiting::VNicShownElsewhere { vnic, dpu, uid }.into())
}
