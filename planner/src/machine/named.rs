//! By which names the parts of a machine are found: the claim behind a disk, the VNic behind an interface, the disk for cloud-init.

use crate::meta::{annotation, name, uid};
use api::machine::{CloudInitSource, Disk, Interface};
use api::{BareMetalMachine, labels, names};
use std::collections::BTreeMap;

/// The claim behind a disk: since the last restore, of the user's own, or the one that was made for it.
pub fn claim_name(machine: &BareMetalMachine, disk: &Disk) -> String {
    match (restored(machine, disk), &disk.source.persistent_volume_claim) {
        (Some(claim), _) => claim.to_owned(),
        (None, Some(claim)) => claim.claim_name.clone(),
        (None, None) => names::claim(name(&machine.metadata), &disk.name),
    }
}

/// The claim that a restore put in the place of the first one.
pub(super) fn restored<'a>(machine: &'a BareMetalMachine, disk: &Disk) -> Option<&'a str> {
    annotation(&machine.metadata, &format!("{}{}", labels::CLAIM, disk.name))
}

/// The claim behind a disk is one that its user made.
pub fn is_users_own(machine: &BareMetalMachine, disk: &Disk) -> bool {
    disk.source.persistent_volume_claim.is_some() && restored(machine, disk).is_none()
}

/// Labels of everything that is made for a machine.
pub(super) fn own_labels(machine: &BareMetalMachine) -> BTreeMap<String, String> {
    labels_of(name(&machine.metadata), uid(&machine.metadata))
}

/// The same by name and UID.
pub(super) fn labels_of(machine: &str, uid: &str) -> BTreeMap<String, String> {
    [(labels::MANAGED_BY, labels::MANAGED_BY_VALUE), (labels::MACHINE, machine), (labels::MACHINE_UID, uid)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

/// The name of a cluster image's snapshot in a user's namespace.
pub fn import_name(image: &str, image_uid: &str) -> String {
    let readable: String = image.chars().take(200).collect();
    format!("metalplane-{}-{}", readable.trim_end_matches(['-', '.']), names::short(image_uid, 8))
}

/// The VNic behind an interface: one that its user made, or the one that is made for it.
pub fn vnic_name(machine: &BareMetalMachine, interface: &Interface) -> String {
    match &interface.vnic {
        Some(vnic) => vnic.name.clone(),
        None => names::vnic(name(&machine.metadata), &interface.name),
    }
}

/// The cloud-init disk's name in its attachment; no disk of a spec can have it.
pub const SEED_DISK: &str = "cloud-init.seed";

/// Whether the machine has such a disk.
pub fn is_by_disk(machine: &BareMetalMachine) -> bool {
    machine.spec.cloud_init.as_ref().is_none_or(|cloud_init| cloud_init.source == CloudInitSource::Disk)
}
