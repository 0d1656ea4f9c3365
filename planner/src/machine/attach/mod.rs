//! Disks, the cloud-init disk and NICs on their way to the host: attachment, hold, the connector's claim, grant, presented.

pub(super) mod boot_slot;
pub(super) mod disks;
mod holder_pod;
mod made;
pub(super) mod nics;
pub(super) mod orphans;
pub(super) mod seed;
pub(super) mod seen;
