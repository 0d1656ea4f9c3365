//! What is to be done by the protocol, as data.

use crate::exposure::ExposureId;
use crate::meta::Target;
use crate::observed::VolumeSeen;
use api::hold::{FenceProof, FenceRecord, Holder};

/// Each may be carried out again and ends in the same state.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// *HoldIsTakenBySwap*.
    TakeHold(TakeHold),
    CreateVolumeAttachment(CreateVolumeAttachment),
    /// `release`, then the deletion.
    Release {
        target: Target,
    },
    /// The proof into the hold's `fences`, then the attachment's finalizer goes. Without a proof: it was never granted.
    Abandon {
        target: Target,
        hold: Option<String>,
        fence: Option<FenceRecord>,
    },
    /// *StorageRefuses*: the storage refuses the identity, which is verified; only then the attachment is abandoned.
    Fence {
        target: Target,
        hold: String,
        order: Box<FenceOrder>,
    },
    /// *GoneIsSeen*, *PodEndIsSeen*, *HoldIsEmptiedBySwap*.
    FreeVolume(FreeVolume),
    /// Our own, which no attachment needs any more.
    DeleteVolumeAttachment {
        name: String,
    },
    DeleteHolderPod {
        target: Target,
        /// Proven: nobody is there to end it.
        node_is_down: bool,
    },
    UnprotectClaim {
        target: Target,
        hold: Option<String>,
    },
}

/// Quorum read says gone, the connector's claim goes, then the hold is emptied.
#[derive(Debug, Clone, PartialEq)]
pub struct FreeVolume {
    pub hold: String,
    pub holder: Holder,
    /// The connector's claim: one of these two.
    pub volume_attachment: String,
    pub holder_pod: Option<String>,
    /// The holder pod's node went down after the agent had detached: the proof goes on record, for by that the pod ends.
    pub fence: Option<FenceRecord>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TakeHold {
    pub name: String,
    pub driver: String,
    pub volume_handle: String,
    pub persistent_volume_name: String,
    pub volume_attachment: String,
    /// `namespace/name`, where kubelet connects it: then there is no VolumeAttachment of ours.
    pub holder_pod: Option<String>,
    pub holder: Holder,
    /// Of the empty hold that was seen; none: there was no hold.
    pub resource_version: Option<String>,
    pub epoch: u64,
    /// Fences that are still of use: their DPU has not booted since.
    pub fences: Vec<FenceRecord>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateVolumeAttachment {
    pub name: String,
    pub node: String,
    pub persistent_volume_name: String,
}

/// Whom the storage shall refuse.
#[derive(Debug, Clone, PartialEq)]
pub struct FenceOrder {
    pub volume: VolumeSeen,
    pub id: ExposureId,
    /// As the agent wrote it before its first write.
    pub identity: String,
    pub record: FenceRecord,
}

/// Whether an attachment is abandoned because its DPU is down: its Lease, read from quorum, is looked at first (*LeaseIsUnchanged*).
/// What the storage refuses is refused whatever the DPU does. Also where nothing was granted, if a proof goes on record: that
/// names a boot, and the DPU may have told of another one meanwhile.
pub fn rests_on_silence(granted: bool, fence: Option<&FenceRecord>) -> bool {
    fence.map_or(granted, |fence| fence.proof != FenceProof::StorageFenced)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    #[test]
    fn only_what_the_storage_refuses_or_nobody_was_granted_rests_on_no_silence() {
        let fence = |proof| FenceRecord {
            attachment_uid: "attachment".to_owned(),
            epoch: 1,
            dpu_uid: "dpu".to_owned(),
            boot_id: None,
            proof,
            at: Time(jiff::Timestamp::UNIX_EPOCH),
        };
        assert!(rests_on_silence(true, None));
        assert!(!rests_on_silence(false, None));
        for granted in [true, false] {
            assert!(!rests_on_silence(granted, Some(&fence(FenceProof::StorageFenced))));
            for down in [FenceProof::DpuPoweredOff, FenceProof::HostPoweredOff, FenceProof::ConfirmedDown] {
                assert!(rests_on_silence(granted, Some(&fence(down))), "{down:?}");
            }
        }
    }
}
