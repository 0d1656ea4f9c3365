//! Limits: what the class of a disk's claim allows is told to the DPU, and whether the DPU keeps it is told to the user.
//!
//! The class is the one that the volume *has* (`status.currentVolumeAttributesClassName`): its driver has accepted it.
//! Only classes of our own driver are read. Another driver's limits are its storage's to keep.
//!
//! A claim that was made for a disk is told the class that the disk's spec names, whatever driver that is for. It then is
//! external-resizer's to ask the driver; until that has accepted it the volume has the class before.

use crate::agent;
use crate::machine::draft::Draft;
use crate::machine::plan::Action;
use crate::meta::{name, target};
use crate::observed::Bound;
use crate::reason::{Blocked, Reason, Waiting};
use api::machine::Disk;
use api::{DiskAttachment, Limits, conditions, labels};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

/// What the claim's class allows, or why that cannot be known.
pub(in crate::machine) fn asked(bound: Bound<'_>) -> Result<Limits, Reason> {
    let Some(class) = bound.claim.class.as_ref().filter(|_| bound.volume.driver == labels::CSI_DRIVER) else {
        return Ok(Limits::default());
    };
    let (claim, name) = (bound.claim_name().to_owned(), class.name.clone());
    let Some((driver, parameters)) = &class.found else {
        return Err(Blocked::ClassMissing { claim, class: name }.into());
    };
    let not_understood = |message: String| Blocked::ClassNotUnderstood { claim, class: name, message };
    if *driver != bound.volume.driver {
        return Err(not_understood(format!("it is one of CSI driver '{driver}'")).into());
    }
    let parameters = parameters.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    Limits::parse(parameters).map_err(|error| not_understood(error.to_string()).into())
}

/// Asks for the class that the disk's spec names. One that is left out there is the claim's own business.
pub(in crate::machine) fn choose(disk: &Disk, claim: &PersistentVolumeClaim, draft: &mut Draft) {
    let Some(wanted) = &disk.volume_attributes_class_name else { return };
    let chosen = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_ref());
    let status = claim.status.as_ref();
    if chosen != Some(wanted) {
        draft.act(Action::ModifyClaim { target: target(&claim.metadata), class: wanted.clone() });
    }
    if status.and_then(|status| status.current_volume_attributes_class_name.as_ref()) != Some(wanted) {
        let modifying = status.and_then(|status| status.modify_volume_status.as_ref());
        let modifying = modifying.filter(|it| it.target_volume_attributes_class_name.as_ref() == Some(wanted));
        let message = modifying.map(|it| format!(": {}", it.status)).unwrap_or_default();
        let (claim, class) = (name(&claim.metadata).to_owned(), wanted.clone());
        draft.limited.push(Some(Waiting::ModifyingVolume { claim, class, message }.into()));
    }
}

/// Of a disk that is granted.
pub(in crate::machine) fn plan(disk: &Disk, attachment: &DiskAttachment, bound: Bound<'_>, draft: &mut Draft) {
    let asked = match asked(bound) {
        Ok(asked) => asked,
        Err(reason) => return draft.limited.push(Some(reason)),
    };
    let told = attachment.spec.qos.unwrap_or_default() == asked;
    if !told {
        draft.act(Action::LimitDisk { target: target(&attachment.metadata), limits: asked });
    }
    if !asked.is_empty() {
        draft.limited.push(not_kept(disk, attachment, asked, told));
    }
}

/// `None`: the DPU holds the disk to what it was told.
fn not_kept(disk: &Disk, attachment: &DiskAttachment, asked: Limits, told: bool) -> Option<Reason> {
    let all = attachment.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let of_now = |generation: Option<i64>| told && generation == attachment.metadata.generation;
    let said = conditions::get(all, conditions::LIMITED).filter(|said| of_now(said.observed_generation));
    let (disk, limits, dpu) = (disk.name.clone(), asked.to_string(), attachment.spec.dpu_name.clone());
    match said {
        Some(said) if said.status == "True" => None,
        Some(said) if said.reason == agent::Blocked::LimitsUnsupported.as_str() => {
            Some(Blocked::LimitsUnsupported { disk, limits, dpu, message: said.message.clone() }.into())
        }
        said => {
            let message = said.map(|said| format!(": {}", said.message)).unwrap_or_default();
            Some(Waiting::Limiting { disk, limits, dpu, message }.into())
        }
    }
}
