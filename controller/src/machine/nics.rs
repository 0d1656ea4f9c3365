//! VNics and NicAttachments: the same protocol, with `status.holder` of the VNic as the hold.

use super::disks;
use crate::Controller;
use crate::dpu;
use crate::error::{Error, call, found};
use crate::objects;
use api::attachment::Grant;
use api::hold::Holder;
use api::{NicAttachment, VNic, labels};
use planner::machine::observed::{label, name};
use planner::machine::plan::{Seed, Target};
use serde_json::json;
use std::sync::Arc;

pub(super) async fn create_vnic(c: &Controller, vnic: &VNic) -> Result<(), Error> {
    let namespace = vnic.metadata.namespace.clone().unwrap_or_default();
    let machine = label(&vnic.metadata, labels::MACHINE_UID).map(str::to_owned);
    let ours = |there: &VNic| label(&there.metadata, labels::MACHINE_UID) == machine.as_deref();
    objects::create(&c.objects.namespaced(&namespace), &c.world.vnics, vnic, ours).await.map(drop)
}

pub(crate) async fn create(c: &Controller, attachment: &NicAttachment) -> Result<(), Error> {
    let namespace = attachment.metadata.namespace.clone().unwrap_or_default();
    let owner = attachment.spec.owner.uid.clone();
    let ours = |there: &NicAttachment| there.spec.owner.uid == owner && there.metadata.deletion_timestamp.is_none();
    objects::create(&c.objects.namespaced(&namespace), &c.world.nics, attachment, ours).await.map(drop)
}

fn vnic(c: &Controller, target: &Target) -> Result<Arc<VNic>, Error> {
    let what = format!("VNic '{}'", target.name);
    let there = c.world.vnics.get(&target.namespace, &target.name);
    there.filter(|there| there.metadata.uid.as_deref() == Some(&target.uid)).ok_or(Error::NotFound { what })
}

fn attachment(c: &Controller, target: &Target) -> Result<Arc<NicAttachment>, Error> {
    let what = format!("NicAttachment '{}'", target.name);
    let there = c.world.nics.get(&target.namespace, &target.name);
    there.filter(|there| there.metadata.uid.as_deref() == Some(&target.uid)).ok_or(Error::NotFound { what })
}

async fn patch(c: &Controller, there: &NicAttachment, change: serde_json::Value) -> Result<NicAttachment, Error> {
    let meta = &there.metadata;
    let api = c.objects.namespaced(meta.namespace.as_deref().unwrap_or_default());
    let uid = meta.uid.as_deref().unwrap_or_default();
    objects::patch(&api, &c.world.nics, name(meta), uid, meta.resource_version.as_deref(), change).await
}

pub(super) async fn set_groups(c: &Controller, target: &Target, groups: Option<&[String]>) -> Result<(), Error> {
    let there = vnic(c, target)?;
    patch_vnic(c, &there, json!({"spec": {"securityGroups": groups}})).await
}

/// The mark and the finalizer in one write.
pub(super) async fn protect(c: &Controller, machine_uid: &str, target: &Target, interface: &str) -> Result<(), Error> {
    let there = vnic(c, target)?;
    let finalizers = objects::finalizers(&there.metadata, labels::FINALIZER_IN_USE, true);
    let mark = format!("{}{machine_uid}", labels::IN_USE_BY);
    patch_vnic(c, &there, json!({"metadata": {"finalizers": finalizers, "annotations": {mark: interface}}})).await
}

/// The finalizer stays until the VNic's addresses are released (`crate::network`).
pub(super) async fn unprotect(c: &Controller, machine_uid: &str, target: &Target) -> Result<(), Error> {
    let there = vnic(c, target)?;
    let mark = format!("{}{machine_uid}", labels::IN_USE_BY);
    patch_vnic(c, &there, json!({"metadata": {"annotations": {mark: null}}})).await
}

async fn patch_vnic(c: &Controller, there: &VNic, change: serde_json::Value) -> Result<(), Error> {
    let meta = &there.metadata;
    let api = c.objects.namespaced(meta.namespace.as_deref().unwrap_or_default());
    let uid = meta.uid.as_deref().unwrap_or_default();
    let patched =
        objects::patch(&api, &c.world.vnics, name(meta), uid, meta.resource_version.as_deref(), change).await?;
    if patched.metadata.deletion_timestamp.is_some() && patched.metadata.finalizers.iter().flatten().count() == 0 {
        c.world.vnics.forget(&patched.metadata);
    }
    Ok(())
}

/// Empty → this holder, epoch + 1, by compare-and-swap.
pub(crate) async fn take(c: &Controller, target: &Target, holder: &Holder, mac: &str) -> Result<(), Error> {
    let seen = vnic(c, target)?;
    let mut there = VNic::clone(&seen);
    let status = there.status.get_or_insert_default();
    if status.holder.is_some() {
        return Ok(());
    }
    status.holder = Some(holder.clone());
    status.grant = Grant { epoch: status.grant.epoch + 1 };
    status.mac_address = Some(mac.to_owned());
    let api = c.objects.namespaced(&target.namespace);
    objects::change_status(&api, &c.world.vnics, &*seen, &there).await.map(drop)
}

pub(crate) async fn grant(c: &Controller, target: &Target, epoch: u64, metadata: Option<&Seed>) -> Result<(), Error> {
    let there = attachment(c, target)?;
    if let Some(metadata) = metadata {
        disks::write_seed(c, there.as_ref(), metadata).await?;
    }
    patch(c, &there, json!({"spec": {"grant": {"epoch": epoch}}})).await.map(drop)
}

pub(crate) async fn release(c: &Controller, target: &Target) -> Result<(), Error> {
    let mut there = NicAttachment::clone(&*attachment(c, target)?);
    if !there.spec.release {
        there = patch(c, &there, json!({"spec": {"release": true}})).await?;
    }
    if there.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    objects::delete(&c.objects.namespaced(&target.namespace), &c.world.nics, &there.metadata, false).await
}

pub(crate) async fn abandon(c: &Controller, target: &Target) -> Result<(), Error> {
    let there = attachment(c, target)?;
    if there.spec.grant.is_some() {
        dpu::confirm_silent(c, &target.namespace).await?;
    }
    let finalizers = objects::finalizers(&there.metadata, labels::FINALIZER_EXPOSED, false);
    match patch(c, &there, json!({"metadata": {"finalizers": finalizers}})).await {
        Ok(patched) if patched.metadata.finalizers.iter().flatten().count() > 0 => Ok(()),
        Ok(_) | Err(Error::NotFound { .. }) => {
            c.world.nics.forget(&there.metadata);
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// The attachment is gone (read from quorum): the holder is emptied.
pub(crate) async fn free(c: &Controller, target: &Target, holder: &Holder) -> Result<(), Error> {
    let what = format!("get NicAttachment '{}'", holder.attachment_name);
    let api = c.objects.namespaced::<NicAttachment>(&holder.attachment_namespace);
    if let Some(there) = found(call(&what, api.get(&holder.attachment_name)).await)?
        && there.metadata.uid.as_deref() == Some(&holder.attachment_uid)
    {
        c.world.nics.put(there);
        return Err(Error::NotConfirmed { what, message: "it is still there".to_owned() });
    }
    let seen = vnic(c, target)?;
    let mut there = VNic::clone(&seen);
    let status = there.status.get_or_insert_default();
    if status.holder.as_ref() != Some(holder) {
        return Ok(());
    }
    status.holder = None;
    let api = c.objects.namespaced(&target.namespace);
    objects::change_status(&api, &c.world.vnics, &*seen, &there).await.map(drop)
}

pub(crate) async fn delete_vnic(c: &Controller, target: &Target) -> Result<(), Error> {
    match vnic(c, target) {
        Ok(there) => {
            objects::delete(&c.objects.namespaced(&target.namespace), &c.world.vnics, &there.metadata, false).await
        }
        Err(Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
