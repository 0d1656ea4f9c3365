//! Disks on their way to the host: claim protected, attachment, hold, the connector's claim, grant, presented.

use super::holder_pod;
use super::made::{disk_attachment, owner};
use super::seen::{Seen, detaching, not_exposed, phase};
use crate::about::About;
use crate::connector;
use crate::machine::draft::Draft;
use crate::machine::named::claim_name;
use crate::machine::observed::Observed;
use crate::machine::plan::Action;
use crate::machine::situation::{Host, Situation};
use crate::machine::volumes::{growth, limits};
use crate::meta::{in_use_by, target, uid};
use crate::observed::Bound;
use crate::reason::{Blocked, Reason, Waiting};
use crate::writer::claim::is_pod;
use crate::writer::{self, user};
use api::attachment::{ClaimIdentity, Consumer, DiskAttachmentSpec, DiskSlot, VolumeSource};
use api::conditions;
use api::machine::{Disk, DiskStatus};
use api::{DiskAttachment, names};
use std::sync::Arc;

/// The attachment of a disk that is not being taken away.
pub(in crate::machine) fn current<'a>(o: &'a Observed, disk: &str) -> Option<&'a Arc<DiskAttachment>> {
    o.disk_attachments.iter().find(|a| a.spec.disk_name == disk && a.metadata.deletion_timestamp.is_none())
}

pub(in crate::machine) fn leaving<'a>(o: &'a Observed, disk: &str) -> Option<&'a Arc<DiskAttachment>> {
    o.disk_attachments.iter().find(|a| a.spec.disk_name == disk && a.metadata.deletion_timestamp.is_some())
}

/// Plans one disk; `None`: the host can see it.
pub(in crate::machine) fn plan(
    o: &Situation<'_>,
    w: &writer::Observed<'_>,
    host: Host<'_>,
    (disk, bound): (&Disk, Bound<'_>),
    grant_blocked_by: Option<&Reason>,
    draft: &mut Draft,
) -> Option<Reason> {
    if let Some(old) = leaving(o, &disk.name) {
        return Some(detaching(About::Disk(disk.name.clone()), &old.spec.dpu_name));
    }
    let Some(attachment) = current(o, &disk.name) else {
        return Some(create(o, w, host, disk, bound, draft));
    };
    if attachment.spec.volume.as_ref().is_some_and(|volume| volume.claim.uid != uid(&bound.claim.claim.metadata)) {
        // Another claim is behind the disk by now.
        return Some(detaching(About::Disk(disk.name.clone()), &attachment.spec.dpu_name));
    }
    if attachment.spec.grant.is_some() {
        if let Some(reason) = holder_pod::lost(o, host, attachment, draft) {
            return Some(reason);
        }
        writer::keep(w, host.dpu, attachment, bound, draft);
        if let Some(reason) = growth::give_back(o, disk, attachment, bound, draft) {
            return Some(reason);
        }
        growth::plan(disk, attachment, bound, draft);
        limits::plan(disk, attachment, bound, draft);
        stranded(o, disk, attachment, draft);
        return not_exposed(host, About::Disk(disk.name.clone()), Seen::disk(attachment));
    }
    if let Some(reason) = grant_blocked_by {
        return Some(reason.clone());
    }
    Some(grant(o, w, host, attachment, bound, draft).unwrap_or_else(|reason| reason))
}

fn grant(
    o: &Situation<'_>,
    w: &writer::Observed<'_>,
    host: Host<'_>,
    attachment: &DiskAttachment,
    bound: Bound<'_>,
    draft: &mut Draft,
) -> Result<Reason, Reason> {
    let epoch = writer::admit(w, host.dpu, attachment, bound, draft)?;
    let holder_pod_uid = match is_pod(attachment) {
        true => Some(holder_pod::running(o, host, attachment, bound, draft)?),
        false => None,
    };
    draft.act(Action::GrantDisk { target: target(&attachment.metadata), epoch, seed: None, holder_pod_uid });
    Ok(w.granting(attachment))
}

fn create(
    o: &Situation<'_>,
    w: &writer::Observed<'_>,
    host: Host<'_>,
    disk: &Disk,
    bound: Bound<'_>,
    draft: &mut Draft,
) -> Reason {
    let claim = bound.claim_name().to_owned();
    if let Some(by) = user(w, bound) {
        return Waiting::VolumeInUse { claim, by }.into();
    }
    if let Some(reason) = growth::needs_stop(disk, bound) {
        return reason;
    }
    if !in_use_by(&bound.claim.claim.metadata, o.uid()) {
        draft.act(Action::ProtectClaim { target: bound.target() });
        return Waiting::Creating { what: About::ClaimProtection(claim.to_owned()) }.into();
    }
    let connector = match connector::choose(&claim, bound.volume, host.dpu) {
        Ok(connector) => connector,
        Err(reason) => return reason,
    };
    let claim_meta = &bound.claim.claim.metadata;
    let spec = DiskAttachmentSpec {
        owner: owner(o),
        dpu_name: host.dpu.name().to_owned(),
        disk_name: disk.name.clone(),
        consumer: Consumer::Host,
        volume: Some(VolumeSource {
            driver: bound.volume.driver.clone(),
            volume_handle: bound.volume.handle.clone(),
            attributes: bound.volume.attributes.clone(),
            persistent_volume_name: bound.volume.name.clone(),
            claim: ClaimIdentity { namespace: o.namespace().to_owned(), name: claim, uid: uid(claim_meta).to_owned() },
            connector,
        }),
        seed_secret_name: None,
        eraser: None,
        hold_disk: None,
        import: None,
        bus: disk.bus,
        slot: if disk.boot_order == Some(1) { DiskSlot::Boot } else { DiskSlot::HotPlug },
        serial: match disk.boot_order {
            Some(1) => names::boot_serial(host.dpu.name()),
            _ => names::serial(uid(claim_meta)),
        },
        uuid: uid(claim_meta).to_owned(),
        read_only: disk.read_only,
        size: bound.size(),
        qos: limits::asked(bound).ok().filter(|asked| !asked.is_empty()),
        grant: None,
        holder_pod_uid: None,
        release: false,
    };
    draft.act(Action::CreateDiskAttachment(Box::new(disk_attachment(o, host.namespace, &disk.name, spec))));
    Waiting::Creating { what: About::DiskAttachment(disk.name.clone()) }.into()
}

/// The host lost the disk. It is told, and never power-cycled unasked.
fn stranded(o: &Situation<'_>, disk: &Disk, attachment: &DiskAttachment, draft: &mut Draft) {
    let exposed = attachment.status.as_ref().and_then(|s| conditions::get(&s.conditions, conditions::EXPOSED));
    if exposed.is_some_and(|c| c.reason == crate::agent::Blocked::HostPowerCycleNeeded.as_str()) && !o.owned.is_off() {
        // Graver than a size that is to be seen later.
        draft.restart_required = Some(Blocked::HostPowerCycleNeeded { disk: disk.name.clone() }.into());
    }
}

/// The row of `status.disks`.
pub(in crate::machine) fn row(o: &Observed, disk: &Disk, reason: Option<&Reason>) -> DiskStatus {
    let attachment = leaving(o, &disk.name).or_else(|| current(o, &disk.name));
    let status = attachment.and_then(|a| a.status.as_ref());
    DiskStatus {
        name: disk.name.clone(),
        claim_name: Some(claim_name(&o.machine, disk)),
        dpu_name: attachment.map(|a| a.spec.dpu_name.clone()),
        serial: attachment.map(|a| a.spec.serial.clone()),
        wwid: attachment.map(|a| format!("uuid.{}", a.spec.uuid)),
        capacity: status.and_then(|s| s.capacity.clone()),
        qos: status.and_then(|s| s.qos),
        phase: phase(attachment.map(|a| (&a.metadata, a.spec.grant.is_some())), reason),
    }
}
