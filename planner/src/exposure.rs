//! Words for what a DPU presents to its host.

pub use api::Limits;
use serde::{Deserialize, Serialize};

const ALIAS: &str = "metalplane";

/// Who an exposure belongs to: the attachment's UID and the epoch of its grant. Adoption after a restart compares both.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ExposureId {
    pub uid: String,
    pub epoch: u64,
}

impl ExposureId {
    /// What names this very grant to OVN (`iface-id-ver`): a port that an earlier grant left on a switch is bound nowhere.
    pub fn version(&self) -> String {
        format!("{}.{}", self.uid, self.epoch)
    }

    /// What names the owner of a network device to the kernel (`ip link show`: `alias`), which forgets it at a reboot.
    pub fn alias(&self) -> String {
        format!("{ALIAS} {} {}", self.uid, self.epoch)
    }

    /// The inverse of [`ExposureId::alias`]; `None` for what is not ours.
    pub fn of_alias(alias: &str) -> Option<Self> {
        let mut words = alias.split(' ');
        let (ours, uid, epoch) = (words.next()?, words.next()?, words.next()?);
        (ours == ALIAS).then(|| epoch.parse().ok()).flatten().map(|epoch| Self { uid: uid.to_owned(), epoch })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Bus {
    NVMe,
    VirtioBlk,
}

/// Where on the host's PCIe tree. The boot disk and the seed have a fixed place, so that a UEFI path stays true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Slot {
    Boot,
    Seed,
    HotPlug,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FunctionKind {
    Disk,
    Nic,
}

/// Functions appear and leave asynchronously: a hot-unplug needs the host's acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Presence {
    Appearing,
    Present,
    /// Asked to leave; the host has not acknowledged yet.
    Leaving,
    /// Presented again, and the host lost it meanwhile: it has it back after its next power cycle.
    Stranded,
}

/// One function as the emulator reports it now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exposure {
    pub id: ExposureId,
    pub kind: FunctionKind,
    pub presence: Presence,
    /// Disks: what the host can read, in bytes.
    pub size_bytes: Option<u64>,
    /// Disks: what its I/O is held to.
    #[serde(default, skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
    /// NICs: the network device on the DPU that stands for the host's function.
    pub representor: Option<String>,
    /// NICs: the host sees its link up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_up: Option<bool>,
}
