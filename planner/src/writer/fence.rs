//! *StorageRefuses* of docs/design/fencing.md: the storage itself refuses an unresponsive holder.
//!
//! Only an attachment that is being taken away is fenced, and only while its agent is unresponsive: with an agent that answers, a
//! volume is detached in good order. The identity is the one that the agent wrote into `status.fence` for this very grant before its
//! first write; without it nobody knows what to refuse, and only *DpuIsDown* is left. So it is where the agent says of its own
//! connector that it cannot be fenced that way: the storage may know it by another client than the one that is refused.

use super::{Action, FenceOrder, Observed, Sink, down};
use crate::connector;
use crate::exposure::ExposureId;
use crate::meta::{target, uid};
use crate::observed::{DpuSeen, VolumeSeen};
use crate::reason::{Reason, Waiting};
use api::attachment::Connector;
use api::hold::{FenceProof, FenceRecord};
use api::{DiskAttachment, names};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// An agent that is only being replaced is back before: the volume is then detached in good order.
const PATIENCE: SignedDuration = SignedDuration::from_secs(20);

/// `None`: this way is not open.
pub(super) fn plan(o: &Observed<'_>, attachment: &DiskAttachment, sink: &mut dyn Sink) -> Option<Reason> {
    let dpu = down::dpu(o.site.dpus, &attachment.spec.dpu_name).filter(|dpu| dpu.silent)?;
    let order = order(o, attachment, dpu)?;
    let due = attachment.metadata.deletion_timestamp.as_ref()?.0 + PATIENCE;
    if o.site.now < due {
        sink.wake(due);
        return None;
    }
    let hold = names::hold(&order.volume.driver, &order.volume.handle);
    sink.act(Action::Fence { target: target(&attachment.metadata), hold, order: Box::new(order) });
    let message = o.problem(attachment, "not yet");
    let disk = attachment.spec.disk_name.clone();
    Some(Waiting::Fencing { disk, dpu: dpu.name().to_owned(), message }.into())
}

fn order(o: &Observed<'_>, attachment: &DiskAttachment, dpu: &DpuSeen) -> Option<FenceOrder> {
    let (grant, volume) = (attachment.spec.grant.as_ref()?, attachment.spec.volume.as_ref()?);
    // A reader holds nothing; a holder pod's identity is its driver's.
    let native = volume.connector == Connector::Native && !attachment.spec.read_only;
    let driver = crate::target::connector(&volume.driver, &volume.attributes);
    let kind = o.fences.get(driver).filter(|_| native)?;
    if connector::fence(dpu, driver) != Some(kind) {
        return None;
    }
    let written = attachment.status.as_ref()?.fence.as_ref().filter(|fence| fence.epoch == grant.epoch)?;
    let own = uid(&attachment.metadata).to_owned();
    Some(FenceOrder {
        volume: VolumeSeen {
            name: volume.persistent_volume_name.clone(),
            driver: volume.driver.clone(),
            handle: volume.volume_handle.clone(),
            attributes: volume.attributes.clone(),
        },
        id: ExposureId { uid: own.clone(), epoch: grant.epoch },
        identity: written.identity.clone(),
        record: FenceRecord {
            attachment_uid: own,
            epoch: grant.epoch,
            dpu_uid: dpu.uid().to_owned(),
            boot_id: Some(written.boot_id.clone()),
            proof: FenceProof::StorageFenced,
            at: Time(o.site.now),
        },
    })
}
