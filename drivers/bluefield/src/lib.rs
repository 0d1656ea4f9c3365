//! [`ports::Emulation`] of NICs on a DPU whose embedded switch has a representor for each function of the host: NVIDIA's BlueField, and
//! whatever else tells of its functions by devlink.
//!
//! - [`fixed`]: the physical functions that the host has in any case, one or two of them. Nothing is hot-plugged.
//! - [`virtnet`]: virtio-net functions that NVIDIA's virtio-net-controller hot-plugs.
//!
//! Of a SmartNIC in a node, [`vf`] are [`ports::PodDevices`]: its virtual functions.
//!
//! All know their own by the alias of the representor (`ip link show`: `alias metalplane UID EPOCH`), which the kernel forgets at a
//! reboot of the DPU, and set a NIC's link by the representor's own administrative state: mlx5 takes the vport, and with it what
//! the host sees, up and down with it. The carrier of a representor therefore says nothing of the host.
//!
//! None was ever run on a BlueField or a SmartNIC: docs/hardware.md says what only that can prove.

pub mod devlink;
pub mod fixed;
mod links;
mod representor;
pub mod vf;
pub mod virtnet;
