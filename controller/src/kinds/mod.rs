//! Each watched kind: what its objects are found by, and who is looked at again when one of them changes. An event wakes the
//! objects that name what has changed, and no others.

mod attachments;
mod definitions;
mod images;
mod inventory;
mod machine;
mod network;
mod operations;
mod outside;
mod pods;
mod storage;
mod tinkerbell;

pub use definitions::NetworkAttachmentDefinition;
pub(crate) use inventory::claimed_by;
pub use pods::NetworkedPod;

use crate::index::IndexKey;
use api::attachment::OwnerReference;
use api::labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use planner::netboot::SAME_MAC;

fn label(meta: &ObjectMeta, label: &str) -> Option<String> {
    meta.labels.as_ref()?.get(label).cloned()
}

/// The UIDs of the machine, the image and the pod for which something was made.
fn made_for(meta: &ObjectMeta) -> impl Iterator<Item = String> {
    [labels::MACHINE_UID, labels::IMAGE_UID, labels::POD_UID].into_iter().filter_map(|name| label(meta, name))
}

/// The UIDs by which a claim or VNic is annotated as in use, each with its mark.
fn users(meta: &ObjectMeta) -> impl Iterator<Item = (&str, &str)> {
    let marks = meta.annotations.iter().flatten();
    marks.filter_map(|(key, mark)| Some((key.strip_prefix(labels::IN_USE_BY)?, mark.as_str())))
}

/// The UIDs of those that use a claim or VNic, and of the one that it was made for.
fn owners(meta: &ObjectMeta) -> Vec<IndexKey> {
    let mut all: Vec<IndexKey> = users(meta).map(|(user, _)| IndexKey::owner(user)).collect();
    for own in made_for(meta).map(IndexKey::Owner) {
        if !all.contains(&own) {
            all.push(own);
        }
    }
    all
}

/// A machine's, not an image's.
pub(crate) fn is_machine(owner: &OwnerReference) -> bool {
    owner.kind == "BareMetalMachine"
}

/// An image's, of either kind.
pub(crate) fn is_image(owner: &OwnerReference) -> bool {
    matches!(owner.kind.as_str(), "MachineImage" | "ClusterMachineImage")
}

/// A pod's, on an ordinary node or on a machine.
pub(crate) fn is_pod(owner: &OwnerReference) -> bool {
    owner.kind == "Pod"
}

/// Of what has conditions with these reasons.
fn shares_mac<'a>(mut reasons: impl Iterator<Item = &'a str>) -> Option<IndexKey> {
    reasons.any(|reason| reason == SAME_MAC).then_some(IndexKey::SharesMac)
}

fn namespace_of(meta: &ObjectMeta) -> &str {
    meta.namespace.as_deref().unwrap_or_default()
}

fn own_uid(meta: &ObjectMeta) -> Option<IndexKey> {
    meta.uid.as_deref().map(IndexKey::uid)
}
