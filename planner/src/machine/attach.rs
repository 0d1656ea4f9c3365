//! Disks on their way to the host: claim protected, attachment, hold, the connector's claim, grant, presented.

use super::claim::Host;
use super::draft::Draft;
use super::observed::{Observed, in_use_by, name, uid};
use super::plan::{Action, CreateVolumeAttachment, Target};
use super::power::{self, Reading};
use super::volumes::{self, Bound, own_labels, target};
use super::{down, fencing, growth, holder_pod, holds, limits, orphans};
use crate::connector;
use crate::host::PowerState;
use crate::reason::{Blocked, Failed, Reason, Waiting};
use api::attachment::{
    ClaimIdentity, Consumer, DiskAttachmentSpec, DiskAttachmentStatus, DiskSlot, OwnerReference, VolumeSource,
};
use api::conditions;
use api::machine::{AttachPhase, Disk, DiskStatus};
use api::{DiskAttachment, labels, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use std::sync::Arc;

/// The attachment of a disk that is not being taken away.
pub(super) fn current<'a>(o: &'a Observed, disk: &str) -> Option<&'a Arc<DiskAttachment>> {
    o.disk_attachments.iter().find(|a| a.spec.disk_name == disk && a.metadata.deletion_timestamp.is_none())
}

pub(super) fn leaving<'a>(o: &'a Observed, disk: &str) -> Option<&'a Arc<DiskAttachment>> {
    o.disk_attachments.iter().find(|a| a.spec.disk_name == disk && a.metadata.deletion_timestamp.is_some())
}

pub(super) fn owner(o: &Observed) -> OwnerReference {
    OwnerReference {
        kind: "BareMetalMachine".to_owned(),
        namespace: Some(o.namespace().to_owned()),
        name: o.name().to_owned(),
        uid: o.uid().to_owned(),
    }
}

/// Plans one disk; `None`: the host can see it. `may_grant`: what forbids a grant at this time.
pub(super) fn plan(
    o: &Observed,
    host: Host<'_>,
    disk: &Disk,
    bound: Bound<'_>,
    may_grant: Option<&Reason>,
    draft: &mut Draft,
) -> Option<Reason> {
    if let Some(old) = leaving(o, &disk.name) {
        return Some(detaching(&format!("disk '{}'", disk.name), &old.spec.dpu_name));
    }
    let Some(attachment) = current(o, &disk.name) else {
        return Some(create(o, host, disk, bound, draft));
    };
    if attachment.spec.volume.as_ref().is_some_and(|volume| volume.claim.uid != uid(&bound.claim.claim.metadata)) {
        // Another claim is behind the disk by now.
        return Some(detaching(&format!("disk '{}'", disk.name), &attachment.spec.dpu_name));
    }
    if attachment.spec.grant.is_some() {
        if let Some(reason) = holder_pod::lost(o, host, attachment, draft) {
            return Some(reason);
        }
        keep(o, host, disk, bound, attachment, draft);
        if let Some(reason) = growth::give_back(o, disk, attachment, bound, draft) {
            return Some(reason);
        }
        growth::plan(disk, attachment, bound, draft);
        limits::plan(disk, attachment, bound, draft);
        stranded(o, disk, attachment, draft);
        return not_exposed(host, &format!("disk '{}'", disk.name), Seen::disk(attachment));
    }
    if let Some(reason) = may_grant {
        return Some(reason.clone());
    }
    if let Some(reason) = orphans::shown_elsewhere(o, bound.claim_name(), bound.volume) {
        return Some(reason);
    }
    let epoch = match disk.read_only {
        true => 1,
        false => match holds::take(o, host, attachment, bound, draft) {
            Ok(epoch) => epoch,
            Err(reason) => return Some(reason),
        },
    };
    if let Some(reason) = keep(o, host, disk, bound, attachment, draft) {
        return Some(reason);
    }
    // Somebody may have come while the hold was taken, or kubelet was connecting the volume.
    if let Some(by) = holds::other_user(o, bound) {
        return Some(Waiting::VolumeInUse { claim: bound.claim_name().to_owned(), by }.into());
    }
    let holder_pod_uid = match holder_pod::is_needed(attachment) {
        true => match holder_pod::running(o, host, attachment, bound, draft) {
            Ok(uid) => Some(uid),
            Err(reason) => return Some(reason),
        },
        false => None,
    };
    draft.act(Action::GrantDisk { target: target(&attachment.metadata), epoch, seed: None, holder_pod_uid });
    let problem = o.fence_problems.get(uid(&attachment.metadata));
    let problem = problem.map(|problem| format!("; its storage does not let it in yet: {problem}")).unwrap_or_default();
    Some(Waiting::Creating { what: format!("the grant of disk '{}'{problem}", disk.name) }.into())
}

/// Step 6: our own VolumeAttachment keeps the PersistentVolume, for as long as the disk is attached; `None`: it is there. Where
/// kubelet connects, the holder pod does.
fn keep(
    o: &Observed,
    host: Host<'_>,
    disk: &Disk,
    bound: Bound<'_>,
    attachment: &DiskAttachment,
    draft: &mut Draft,
) -> Option<Reason> {
    if holder_pod::is_needed(attachment) {
        return None;
    }
    let volume_attachment = volume_attachment_name(o, disk.read_only, uid(&bound.claim.claim.metadata));
    if o.volume_attachments.iter().any(|va| name(&va.metadata) == volume_attachment) {
        return None;
    }
    draft.act(Action::CreateVolumeAttachment(CreateVolumeAttachment {
        name: volume_attachment,
        node: host.dpu.name().to_owned(),
        persistent_volume_name: bound.volume.name.clone(),
    }));
    Some(Waiting::Creating { what: format!("the VolumeAttachment of '{}'", bound.claim_name()) }.into())
}

pub(super) fn volume_attachment_name(o: &Observed, read_only: bool, claim_uid: &str) -> String {
    let name = names::volume_attachment(claim_uid);
    if read_only { format!("{name}-{}", names::short(o.uid(), 10)) } else { name }
}

pub(super) fn detaching(what: &str, dpu: &str) -> Reason {
    Waiting::Detaching { what: what.to_owned(), dpu: dpu.to_owned() }.into()
}

fn create(o: &Observed, host: Host<'_>, disk: &Disk, bound: Bound<'_>, draft: &mut Draft) -> Reason {
    let claim = bound.claim_name().to_owned();
    if let Some(by) = holds::other_user(o, bound) {
        return Waiting::VolumeInUse { claim, by }.into();
    }
    if let Some(reason) = growth::needs_stop(disk, bound) {
        return reason;
    }
    if !in_use_by(&bound.claim.claim.metadata, o.uid()) {
        draft.act(Action::ProtectClaim { target: bound.target() });
        return Waiting::Creating { what: format!("the protection of claim '{claim}'") }.into();
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
        import: None,
        bus: disk.bus,
        slot: if disk.boot_order == Some(1) { DiskSlot::Boot } else { DiskSlot::HotPlug },
        serial: match disk.boot_order {
            Some(1) => names::boot_serial(host.dpu.name()),
            _ => names::serial(uid(claim_meta)),
        },
        uuid: uid(claim_meta).to_owned(),
        read_only: disk.read_only,
        size: volumes::size(bound),
        qos: limits::asked(bound).ok().filter(|asked| !asked.is_empty()),
        grant: None,
        holder_pod_uid: None,
        release: false,
    };
    draft.act(Action::CreateDiskAttachment(Box::new(attachment(o, host.namespace, &disk.name, spec))));
    Waiting::Creating { what: format!("the attachment of disk '{}'", disk.name) }.into()
}

pub(super) fn attachment(o: &Observed, namespace: &str, part: &str, spec: DiskAttachmentSpec) -> DiskAttachment {
    let mut attachment = DiskAttachment::new(&names::attachment(o.uid(), o.name(), part), spec);
    own_attachment(o, namespace, &mut attachment.metadata);
    attachment
}

pub(super) fn own_attachment(o: &Observed, namespace: &str, meta: &mut ObjectMeta) {
    meta.namespace = Some(namespace.to_owned());
    meta.labels = Some(own_labels(o));
    meta.finalizers = Some(vec![labels::FINALIZER_EXPOSED.to_owned()]);
}

/// The host lost the disk. It is told, and never power-cycled unasked.
fn stranded(o: &Observed, disk: &Disk, attachment: &DiskAttachment, draft: &mut Draft) {
    let exposed = attachment.status.as_ref().and_then(|s| conditions::get(&s.conditions, conditions::EXPOSED));
    let is_off = power::reading(o) == Reading::Fresh(PowerState::Off);
    if exposed.is_some_and(|c| c.reason == crate::agent::Blocked::HostPowerCycleNeeded.as_str()) && !is_off {
        // Graver than a size that is to be seen later.
        draft.restart_required = Some(Blocked::HostPowerCycleNeeded { disk: disk.name.clone() }.into());
    }
}

/// What an attachment's status says, of either kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a> {
    phase: AttachPhase,
    boot_id: Option<&'a str>,
    conditions: &'a [Condition],
}

impl<'a> Seen<'a> {
    pub fn disk(attachment: &'a DiskAttachment) -> Self {
        let status: Option<&'a DiskAttachmentStatus> = attachment.status.as_ref();
        Self {
            phase: status.map(|s| s.phase).unwrap_or_default(),
            boot_id: status.and_then(|s| s.exposed_boot_id.as_deref()),
            conditions: status.map(|s| s.conditions.as_slice()).unwrap_or_default(),
        }
    }

    pub fn nic(attachment: &'a api::NicAttachment) -> Self {
        let status = attachment.status.as_ref();
        Self {
            phase: status.map(|s| s.phase).unwrap_or_default(),
            boot_id: status.and_then(|s| s.exposed_boot_id.as_deref()),
            conditions: status.map(|s| s.conditions.as_slice()).unwrap_or_default(),
        }
    }

    /// What the first condition that is not true says.
    fn message(&self) -> Option<String> {
        [conditions::CONNECTED, conditions::EXPOSED]
            .iter()
            .filter_map(|type_| conditions::get(self.conditions, type_))
            .find(|condition| condition.status != "True" && !condition.message.is_empty())
            .map(|condition| format!("{}: {}", condition.reason, condition.message))
    }
}

/// Why the host cannot see it on this boot of the DPU; `None`: it can.
pub(super) fn not_exposed(host: Host<'_>, what: &str, seen: Seen<'_>) -> Option<Reason> {
    let (what, dpu) = (what.to_owned(), host.dpu.name().to_owned());
    let Some(boot_id) = host.boot_id() else {
        return Some(match host.shares_power() {
            true => Waiting::DpuStarting { dpu }.into(),
            false => Waiting::DpuSilent { dpu }.into(),
        });
    };
    if seen.phase == AttachPhase::Failed {
        let message = seen.message().unwrap_or_else(|| "no reason was given".to_owned());
        return Some(Failed::AttachFailed { what, dpu, message }.into());
    }
    if seen.phase == AttachPhase::Attached && seen.boot_id == Some(boot_id) {
        return None;
    }
    let message = seen.message().map(|message| format!(" ({message})")).unwrap_or_default();
    Some(Waiting::Attaching { what, dpu, message }.into())
}

/// The row of `status.disks`.
pub(super) fn row(o: &Observed, disk: &Disk, reason: Option<&Reason>) -> DiskStatus {
    let attachment = leaving(o, &disk.name).or_else(|| current(o, &disk.name));
    let status = attachment.and_then(|a| a.status.as_ref());
    DiskStatus {
        name: disk.name.clone(),
        claim_name: Some(volumes::claim_name(&o.machine, disk)),
        dpu_name: attachment.map(|a| a.spec.dpu_name.clone()),
        serial: attachment.map(|a| a.spec.serial.clone()),
        wwid: attachment.map(|a| format!("uuid.{}", a.spec.uuid)),
        capacity: status.and_then(|s| s.capacity.clone()),
        qos: status.and_then(|s| s.qos),
        phase: phase(attachment.map(|a| (&a.metadata, a.spec.grant.is_some())), reason),
    }
}

pub(super) fn phase(attachment: Option<(&ObjectMeta, bool)>, reason: Option<&Reason>) -> AttachPhase {
    match (attachment, reason) {
        (Some((meta, _)), _) if meta.deletion_timestamp.is_some() => AttachPhase::Detaching,
        (_, Some(Reason::Failed(_))) => AttachPhase::Failed,
        (None, _) => AttachPhase::Pending,
        (Some((_, false)), _) => AttachPhase::Waiting,
        (Some((_, true)), Some(_)) => AttachPhase::Attaching,
        (Some((_, true)), None) => AttachPhase::Attached,
    }
}

/// Taken away: released, or, where the DPU is proven down, abandoned.
pub(super) fn detach(o: &Observed, attachment: &DiskAttachment, now: jiff::Timestamp, draft: &mut Draft) -> Reason {
    let what = format!("disk '{}'", attachment.spec.disk_name);
    let target: Target = target(&attachment.metadata);
    if attachment.metadata.deletion_timestamp.is_none() || !attachment.spec.release {
        draft.act(Action::ReleaseDisk { target });
    } else if let Some(fence) = holds::proof_of_end(o, attachment, now) {
        let hold = attachment.spec.volume.as_ref().map(|v| names::hold(&v.driver, &v.volume_handle));
        draft.act(Action::AbandonDisk { target, hold, fence });
    } else {
        down::watch(o, &attachment.spec.dpu_name, now, draft);
        if let Some(reason) = fencing::plan(o, attachment, now, draft) {
            return reason;
        }
        if let Some(reason) = down::silent(o, &attachment.spec.dpu_name) {
            return reason;
        }
    }
    detaching(&what, &attachment.spec.dpu_name)
}
