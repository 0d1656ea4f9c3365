//! Proxy mode: `proxy.csi.metalplane.io`, for Kubernetes workers that are bare-metal machines. A pod's volume is a disk of the
//! worker's own machine: the storage's protocol and its credentials stay on the DPU, whatever CSI driver made the volume.
//!
//! ```text
//!  workers' cluster                                  cluster with the machines
//!  PVC ── external-provisioner ─> CreateVolume ────> PersistentVolumeClaim (any StorageClass, volumeMode: Block)
//!  Pod ── external-attacher ────> ControllerPublish > BareMetalMachine spec.disks += that claim ── Metalplane's own way
//!      <─ publish context: serial, wwid ──────────── status.disks[].{phase: Attached, serial, wwid}
//!      ── kubelet ─> NodeStage: the disk with that wwid or serial, by /sys; filesystem; mount
//! ```
//!
//! The two clusters may be one. A node's id is the name of its machine. A volume's id is the name of its claim; the driver touches no
//! claim and no disk of a machine that it has not made. The reasons are in docs/design/proxy.md.

mod controller;
mod disks;
mod machines;
mod node;

pub use controller::ProxyControllerService;
pub use disks::Disks;
pub use machines::Machines;
pub use node::ProxyNodeService;

/// The CSIDriver object, and `spec.csi.driver` of a PersistentVolume.
pub const PROXY_DRIVER: &str = "proxy.csi.metalplane.io";

/// The keys of the publish context.
const SERIAL: &str = "serial";
const WWID: &str = "wwid";
