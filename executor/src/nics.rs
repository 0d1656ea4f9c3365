//! VNics and NicAttachments: the same protocol, with `status.holder` of the VNic as the hold.

use crate::disks;
use crate::hosts;
use crate::verbs::what;
use crate::writes;
use crate::{Error, Shell, forget, found, get, put, seen};
use api::attachment::Grant;
use api::hold::Holder;
use api::{BareMetalMachine, NicAttachment, VNic, labels};
use planner::machine::plan::Seed;
use planner::meta::{Target, label};
use planner::network::pods::Worker;
use planner::network::pods::worker::leaves;
use serde_json::json;

pub async fn create_vnic(c: &impl Shell, vnic: &VNic) -> Result<(), Error> {
    let machine = label(&vnic.metadata, labels::MACHINE_UID).map(str::to_owned);
    let ours = |there: &VNic| label(&there.metadata, labels::MACHINE_UID) == machine.as_deref();
    writes::create(c, vnic, ours).await.map(drop)
}

pub async fn create(c: &impl Shell, attachment: &NicAttachment) -> Result<(), Error> {
    let owner = attachment.spec.owner.uid.clone();
    let ours = |there: &NicAttachment| there.spec.owner.uid == owner && there.metadata.deletion_timestamp.is_none();
    writes::create(c, attachment, ours).await.map(drop)
}

pub async fn set_groups(c: &impl Shell, target: &Target, groups: Option<&[String]>) -> Result<(), Error> {
    let there = seen::<VNic>(c, target)?;
    patch_vnic(c, &there, json!({"spec": {"securityGroups": groups}})).await
}

/// The mark and the finalizer in one write. `user_uid`: a machine's, whose mark is the interface; or a pod's.
pub async fn protect(c: &impl Shell, user_uid: &str, target: &Target, mark: &str) -> Result<(), Error> {
    let there = seen::<VNic>(c, target)?;
    let finalizers = writes::finalizers(&there.metadata, labels::FINALIZER_IN_USE, true);
    let key = format!("{}{user_uid}", labels::IN_USE_BY);
    patch_vnic(c, &there, json!({"metadata": {"finalizers": finalizers, "annotations": {key: mark}}})).await
}

/// The finalizer stays until the VNic's addresses are released (`crate::network`).
pub async fn unprotect(c: &impl Shell, user_uid: &str, target: &Target) -> Result<(), Error> {
    let there = seen::<VNic>(c, target)?;
    let key = format!("{}{user_uid}", labels::IN_USE_BY);
    patch_vnic(c, &there, json!({"metadata": {"annotations": {key: null}}})).await
}

async fn patch_vnic(c: &impl Shell, there: &VNic, change: serde_json::Value) -> Result<(), Error> {
    let patched = writes::patch::<VNic>(c, &there.metadata, change).await?;
    if patched.metadata.deletion_timestamp.is_some() && patched.metadata.finalizers.iter().flatten().count() == 0 {
        forget::<VNic>(c, &patched.metadata);
    }
    Ok(())
}

/// Empty → this holder, epoch + 1, by compare-and-swap.
pub async fn take(c: &impl Shell, target: &Target, holder: &Holder, mac: &str) -> Result<(), Error> {
    let seen = seen::<VNic>(c, target)?;
    let mut there = VNic::clone(&seen);
    let status = there.status.get_or_insert_default();
    if status.holder.is_some() {
        return Ok(());
    }
    status.holder = Some(holder.clone());
    status.grant = Grant { epoch: status.grant.epoch + 1 };
    status.mac_address = Some(mac.to_owned());
    writes::change_status(c, &*seen, &there).await.map(drop)
}

pub async fn grant(c: &impl Shell, target: &Target, epoch: u64, metadata: Option<&Seed>) -> Result<(), Error> {
    let there = seen::<NicAttachment>(c, target)?;
    if let Some(metadata) = metadata {
        disks::write_seed(c, there.as_ref(), metadata).await?;
    }
    writes::patch::<NicAttachment>(c, &there.metadata, json!({"spec": {"grant": {"epoch": epoch}}})).await.map(drop)
}

/// Of a NIC at a machine that is the node of its pod. The attachment is there already, so a machine that begins to leave its server after it
/// was read here finds that attachment first ([`hosts::unclaim`]).
pub async fn grant_worker(c: &impl Shell, target: &Target, epoch: u64, worker: &Worker) -> Result<(), Error> {
    let machine = get::<BareMetalMachine>(c, &worker.namespace, &worker.name).await?;
    if machine.metadata.uid.as_deref() != Some(&worker.uid) || leaves(&machine) {
        put(c, machine);
        let what = what::<BareMetalMachine>("get", &worker.name);
        return Err(Error::NotConfirmed { what, message: "the machine leaves its server".to_owned() });
    }
    hosts::confirm_claim(c, &worker.uid, &worker.hardware).await?;
    grant(c, target, epoch, None).await
}

pub async fn release(c: &impl Shell, target: &Target) -> Result<(), Error> {
    let mut there = NicAttachment::clone(&*seen(c, target)?);
    if !there.spec.release {
        there = writes::patch(c, &there.metadata, json!({"spec": {"release": true}})).await?;
    }
    if there.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    writes::delete::<NicAttachment>(c, &there.metadata, false).await
}

pub async fn abandon(c: &impl Shell, target: &Target) -> Result<(), Error> {
    let there = seen::<NicAttachment>(c, target)?;
    if there.spec.grant.is_some() {
        c.confirm_silent(&target.namespace).await?;
    }
    let finalizers = writes::finalizers(&there.metadata, labels::FINALIZER_EXPOSED, false);
    match writes::patch::<NicAttachment>(c, &there.metadata, json!({"metadata": {"finalizers": finalizers}})).await {
        Ok(patched) if patched.metadata.finalizers.iter().flatten().count() > 0 => Ok(()),
        Ok(_) | Err(Error::NotFound { .. }) => {
            forget::<NicAttachment>(c, &there.metadata);
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// The attachment is gone (read from quorum): the holder is emptied.
pub async fn free(c: &impl Shell, target: &Target, holder: &Holder) -> Result<(), Error> {
    let (namespace, attachment) = (&holder.attachment_namespace, &holder.attachment_name);
    if let Some(still) = found(get::<NicAttachment>(c, namespace, attachment).await)?
        && still.metadata.uid.as_deref() == Some(&holder.attachment_uid)
    {
        put(c, still);
        let what = what::<NicAttachment>("get", attachment);
        return Err(Error::NotConfirmed { what, message: "it is still there".to_owned() });
    }
    let seen = seen::<VNic>(c, target)?;
    let mut there = VNic::clone(&seen);
    let status = there.status.get_or_insert_default();
    if status.holder.as_ref() != Some(holder) {
        return Ok(());
    }
    status.holder = None;
    writes::change_status(c, &*seen, &there).await.map(drop)
}

/// The garbage collector deletes that of a pod, too.
pub async fn delete_vnic(c: &impl Shell, target: &Target) -> Result<(), Error> {
    match seen::<VNic>(c, target) {
        Ok(there) if there.metadata.deletion_timestamp.is_some() => Ok(()),
        Ok(there) => writes::delete::<VNic>(c, &there.metadata, false).await,
        Err(Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
