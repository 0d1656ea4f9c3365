//! What makes a PCIe function appear in the host: SPDK, SNAP, or QEMU's device model for a virtual server.

use crate::PortError;
use async_trait::async_trait;
use planner::exposure::{Bus, Exposure, ExposureId, FunctionKind, Limits, Slot};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskFunction {
    pub id: ExposureId,
    pub bus: Bus,
    pub slot: Slot,
    /// At most 20 bytes (NVM Express Base Specification 2.0, figure 275: SN).
    pub serial: String,
    /// The volume's UUID: becomes the namespace's UUID, so the guest has `/dev/disk/by-id/nvme-uuid.<uuid>`.
    pub uuid: String,
    pub backend: Backend,
    pub read_only: bool,
    /// What it is held to from the start. It is presented, too, where the emulation cannot keep them: [`Emulation::list`]
    /// says what is kept, and [`Emulation::limit_disk`] says why not.
    pub limits: Limits,
}

/// Where the blocks are, as a [`crate::VolumeConnector`] handed it out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backend {
    /// A regular file or block device on the DPU.
    Path(PathBuf),
    /// A bdev of the target that the emulation drives, by name.
    Bdev(String),
    /// An image of a Ceph cluster, which the emulator opens itself.
    Rbd(RbdSource),
    /// Blocks that another process of the DPU has open, by NBD.
    Nbd(NbdExport),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NbdExport {
    /// The emulator sees it under the same path.
    pub socket: PathBuf,
    /// Of one connection only: it is gone with it, and another has another.
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RbdSource {
    pub pool: String,
    pub namespace: Option<String>,
    pub image: String,
    /// Without `client.`.
    pub user: String,
    /// Names the monitors and the key ring; the emulator sees it under the same path.
    pub config_file: PathBuf,
}

impl Backend {
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) => Some(path),
            Self::Bdev(_) | Self::Rbd(_) | Self::Nbd(_) => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicFunction {
    pub id: ExposureId,
    /// `02:xx:…`, lower case, colons.
    pub mac: String,
    pub mtu: u16,
    /// What a driver that makes the network device itself calls it, at most 15 bytes (IFNAMSIZ - 1). Hardware's devices have names
    /// of their own: which one stands for the function, [`Emulation::list`] tells.
    pub device: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmulationCapabilities {
    pub disks: u32,
    pub nics: u32,
    /// Places for what has no fixed slot: one pool for disks and NICs.
    pub hot_plug_ports: u32,
    /// Places besides, behind the DPU's one PCIe switch: shared with whatever else presents functions there.
    pub switch_ports: u32,
    pub buses: Vec<Bus>,
    /// Buses on which the host sees a new size without a power cycle.
    pub online_resize: Vec<Bus>,
}

/// What the host sees, by kind.
#[derive(Debug)]
pub struct ByKind {
    pub disks: Result<Vec<Exposure>, PortError>,
    pub nics: Result<Vec<Exposure>, PortError>,
    /// What presents disks waits for [`Emulation::recover`] and presents none before.
    pub awaits_recovery: bool,
}

impl ByKind {
    /// Of an emulation that presents both.
    pub fn of_one(listed: Result<Vec<Exposure>, PortError>) -> Self {
        let (disks, nics) = match listed {
            Ok(all) => {
                let (disks, nics) = all.into_iter().partition(|exposure| exposure.kind == FunctionKind::Disk);
                (Ok(disks), Ok(nics))
            }
            Err(error) => (Err(error.clone()), Err(error)),
        };
        Self { disks, nics, awaits_recovery: false }
    }
}

/// Upper bounds of the classes in which latencies are counted; one class more is for what took longer.
pub const LATENCY_BOUNDS: [Duration; 12] = [
    Duration::from_micros(25),
    Duration::from_micros(50),
    Duration::from_micros(100),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(250),
    Duration::from_secs(1),
];

/// Operations by class of [`LATENCY_BOUNDS`], not added up.
pub type Latencies = [u64; LATENCY_BOUNDS.len() + 1];

/// In one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    pub operations: u64,
    pub bytes: u64,
    /// The latencies of all operations, added up.
    pub busy: Duration,
}

/// What a disk did. Counters, which start anew with what presents it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskStatistics {
    pub id: ExposureId,
    pub read: Traffic,
    pub written: Traffic,
    /// Where they are counted.
    pub latencies: Option<Latencies>,
}

/// The NVMe controller of the boot slot, as the host's firmware sees it: what the firmware's boot option is known by. It is
/// the same for every disk that takes the slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootController {
    pub serial: String,
    pub model: Option<String>,
    /// The namespace of the boot disk.
    pub nsid: u32,
    /// Of that namespace, as 16 hexadecimal digits; `None`: it has none that identifies it.
    pub eui64: Option<String>,
    /// The PCIe address that the host gave to the function, as `26:00.2`, where the emulation knows it.
    pub pci_address: Option<String>,
}

#[async_trait]
pub trait Emulation: Send + Sync {
    async fn capabilities(&self) -> Result<EmulationCapabilities, PortError>;

    /// `None`: nothing that a firmware shows would identify the boot disk.
    async fn boot_controller(&self) -> Result<Option<BootController>, PortError> {
        Ok(None)
    }

    /// Everything of ours that is presented now, whoever asked for it: the truth that adoption and the removal of
    /// orphans start from.
    async fn list(&self) -> Result<Vec<Exposure>, PortError>;

    /// [`Emulation::list`], each kind as far as it can be told: where disks and NICs are presented by drivers of their own, what one
    /// of them cannot tell does not hide the other.
    async fn list_by_kind(&self) -> ByKind {
        ByKind::of_one(self.list().await)
    }

    /// What presents disks has no controller that a host sees: it was started anew, under a running host perhaps. Presents all of
    /// `wanted`, which is every disk that the host is to find, and only then lets the host see them: once, for a host that sees some of
    /// its disks takes the others for gone. Interrupted, it goes on with the next call; where the host sees a controller, nothing happens.
    /// A disk that is refused holds all others back; with `partial` it is left out of the set, unless nothing answers (`Unreachable`).
    async fn recover(&self, _wanted: &[DiskFunction], _partial: bool) -> Result<(), PortError> {
        Ok(())
    }

    /// Presents a disk. Already presented with the same id: nothing happens. The same UID with another epoch: `Conflict`.
    /// No free port: `Busy`.
    async fn expose_disk(&self, disk: &DiskFunction) -> Result<(), PortError>;

    /// Presents a NIC with its link down. The network device that stands for it exists on the DPU when this returns, and
    /// [`Emulation::list`] tells its name.
    async fn expose_nic(&self, nic: &NicFunction) -> Result<(), PortError>;

    /// Sets the link that the host sees. While it is down nothing passes in either direction. It stays as it was set for as
    /// long as the NIC is presented, over power cycles of the host too, and [`Emulation::list`] tells it. As it is already:
    /// nothing happens. Not presented: `NotFound`.
    async fn set_link(&self, id: &ExposureId, up: bool) -> Result<(), PortError>;

    /// Starts to take a function away. Not presented: success. Gone when [`Emulation::list`] no longer names it.
    async fn hide(&self, id: &ExposureId, kind: FunctionKind) -> Result<(), PortError>;

    /// Tells the host the backend's present size. `Unsupported` where only a power cycle shows it.
    async fn resize_disk(&self, id: &ExposureId, size_bytes: u64) -> Result<(), PortError>;

    /// Holds a disk to these limits and no other from now on, without an error to what is under way. `Unsupported`, with
    /// nothing changed, where they cannot be kept.
    async fn limit_disk(&self, id: &ExposureId, limits: &Limits) -> Result<(), PortError>;

    /// What the disks did; nothing where nobody counts.
    async fn statistics(&self) -> Result<Vec<DiskStatistics>, PortError> {
        Ok(Vec::new())
    }

    /// How often the host has read this disk, of what [`Emulation::statistics`] tells; `None`: nobody counts it.
    async fn reads(&self, id: &ExposureId) -> Result<Option<u64>, PortError> {
        Ok(self.statistics().await?.into_iter().find(|disk| disk.id == *id).map(|disk| disk.read.operations))
    }

    /// Returns when [`Emulation::list`] may say something else than before although no verb was called. Where nothing
    /// tells, it never returns.
    async fn changed(&self) {
        std::future::pending().await
    }
}
