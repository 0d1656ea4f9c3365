//! `csi.metalplane.io`: a CSI driver whose volumes are raw image files in a folder on a filesystem that can share
//! blocks between files (XFS, btrfs). Clones and snapshots are reflinks, made in milliseconds whatever the size.
//!
//! ```text
//!  external-provisioner, -attacher, -resizer, -snapshotter        kubelet
//!                 │                                                  │
//!            controller ──────────────┐                    node_service ── registration
//!                                     ▼                              │
//!                       pool: files and records  <── looks up ──  node: loop devices, mounts
//!                       <pool>/volumes/<handle>/{disk.img,volume.json}
//!                       <pool>/snapshots/<id>/{disk.img,snapshot.json}
//!                       <pool>/groups/<id>/{group.json,<snapshot id>/…}
//!                       <pool>/nodes/<node id>      "the node plugin of this node has this pool"
//!                       <pool>/readers/<handle>.<identity>   "a DPU shows it to its host, which reads only"
//! ```
//!
//! A bare-metal machine's disk does not pass through the node service: the DPU agent reads `volume_context`, which is
//! exactly `{pool, format: "raw"}`, and opens `<pool>/volumes/<handle>/disk.img` itself. The node service is for pods
//! on ordinary nodes: a loop device, and for `volumeMode: Filesystem` ext4 or XFS on it.
//!
//! * **Retries and crashes.** A handle is a hash of the CSI name, so a retry finds what the first try made. Everything is
//!   built in a `.tmp-` folder, synced and renamed into place: it is there whole or not at all. Leftovers are removed
//!   at start. All changes of a pool are made under one `flock` on it, so several processes may share a pool.
//! * **Sizes.** Sparse files, a multiple of 1 MiB. A pool may be overcommitted; one volume may not be larger than its pool.
//! * **Snapshots** report the image's size, so a restore cannot ask for less. They hold what the image's writer has
//!   flushed (crash consistent) and do not depend on the volume: either may be deleted first. Those of a group are of one
//!   moment (`pool/groups.rs` says how).
//! * **Use.** A node that has a volume stands in `volume.json`, by `ControllerPublishVolume` (external-attacher's call) and by
//!   `NodeStageVolume`: a cluster may do without an attacher. Such a volume is not deleted and goes to no second node. A
//!   node counts as long as its file is in `<pool>/nodes`. An attachment to a bare-metal machine is not recorded there: its
//!   agent keeps records of its own, `writer.json` or a file in `<pool>/readers`. Both sides look at all of them under the
//!   pool's lock. Who writes is alone; who only reads excludes who writes, and no other reader. Neither is deleted under.
//! * **Expansion** is online. The file grows here. Who has it open learns of it in its own way: a DPU agent by itself,
//!   an ordinary node by `NodeExpandVolume`, which is why `node_expansion_required` is true exactly while a node has the
//!   volume. Otherwise `NodeStageVolume` takes the new size and grows the filesystem.
//!
//! An **lvol pool** has the same records, and logical volumes of an SPDK storage node in place of images (`pool/lvols.rs`). Its
//! volumes are exported by NVMe over fabrics, and DPUs connect them; nodes do not. Who may is for the controller to say
//! (docs/design/fencing.md, TargetAcl).
//!
//! In proxy mode ([`proxy`]) the same program is another driver, without pools.

pub mod args;
mod authority;
mod busy;
mod codes;
pub mod controller;
pub mod identity;
pub mod node;
mod node_request;
pub mod node_service;
mod operation;
pub mod pool;
pub mod pools;
pub mod proxy;
pub mod registration;
pub mod server;
mod tend;
mod topology;
mod wire;
mod wire_up;

/// The driver's name: the CSIDriver object, `spec.csi.driver` of a PersistentVolume, folders below kubelet's.
pub const DRIVER: &str = api::labels::CSI_DRIVER;
