//! [`ports::VolumeConnector`] for volumes of any CSI driver: kubelet connects them.
//!
//! The controller runs a holder pod on the DPU's node with the claim as its block device. kubelet attaches, stages and
//! publishes the volume with the driver's own node plugin, reads the Secrets and grows it; the agent takes the block device
//! that kubelet made for that very pod (`<kubelet>/pods/<pod UID>/volumeDevices/kubernetes.io~csi/<PersistentVolume>`, a
//! link to it). Nothing is opened here: whoever emulates the disk opens the device, and as long as it is open kubelet
//! cannot take it away.
//!
//! Connecting takes a record below `/run`, as the file connector does (docs/design/fencing.md, *RecordIsAdopted*, *RebootForgets*). The identity
//! that the storage sees is the CSI driver's, so there is no fence.
//!
//! The size is read from the kernel's list of block devices: an agent in a pod without privileges may look at a device and
//! not open it.

mod connector;
mod device;
mod records;

pub use connector::KubeletConnector;
