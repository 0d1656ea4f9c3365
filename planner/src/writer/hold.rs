//! A hold: who may use a thing, and under which epoch. Of a volume it is the `VolumeHold`, of a VNic its status.

use crate::meta::{name, uid};
use crate::observed::DpuSeen;
use api::hold::Holder;
use api::{VNic, VolumeHold};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Where it is written who holds a thing.
pub(crate) trait HoldStore {
    fn holder(&self) -> Option<&Holder>;
    /// It grows with every holder.
    fn epoch(&self) -> u64;
}

impl HoldStore for VolumeHold {
    fn holder(&self) -> Option<&Holder> {
        self.spec.holder.as_ref()
    }

    fn epoch(&self) -> u64 {
        self.spec.epoch
    }
}

impl HoldStore for VNic {
    fn holder(&self) -> Option<&Holder> {
        self.status.as_ref()?.holder.as_ref()
    }

    fn epoch(&self) -> u64 {
        self.status.as_ref().map(|status| status.grant.epoch).unwrap_or_default()
    }
}

/// *HoldIsRespected*: how a hold stands to one attachment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The attachment holds it, and may be granted this epoch.
    Own { epoch: u64 },
    /// Another one does; in the words of people.
    Others { by: String },
    /// Nobody does: whoever takes it gets a later epoch than this one.
    Empty { epoch: u64 },
}

/// `hold`: there may be none yet.
pub(crate) fn standing<H: HoldStore>(hold: Option<&H>, attachment: &ObjectMeta) -> Standing {
    let epoch = hold.map(HoldStore::epoch).unwrap_or_default();
    match hold.and_then(HoldStore::holder) {
        Some(holder) if holder.attachment_uid == uid(attachment) => Standing::Own { epoch },
        Some(holder) => Standing::Others { by: words(holder) },
        None => Standing::Empty { epoch },
    }
}

pub(crate) fn words(holder: &Holder) -> String {
    format!("attachment '{}' on Dpu '{}'", holder.attachment_name, holder.dpu_name)
}

/// Who an attachment is as a holder.
pub(crate) fn holder(dpu: &DpuSeen, attachment: &ObjectMeta) -> Holder {
    Holder {
        attachment_uid: uid(attachment).to_owned(),
        attachment_namespace: attachment.namespace.clone().unwrap_or_default(),
        attachment_name: name(attachment).to_owned(),
        dpu_uid: dpu.uid().to_owned(),
        dpu_name: dpu.name().to_owned(),
    }
}
