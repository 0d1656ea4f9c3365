//! Network devices for the pods of this node: one end of each stays here, for the switch, the other is moved into the pod.

use crate::emulation::{DiskFunction, EmulationCapabilities, NicFunction};
use crate::{Emulation, ErrorClass, PortError};
use async_trait::async_trait;
use planner::exposure::{Exposure, ExposureId, FunctionKind, Limits, Presence};
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodDevice {
    pub id: ExposureId,
    /// The end for the switch, in the node's network namespace.
    pub device: String,
    /// The other end, while it is in the node's network namespace too; `None`: it was moved into a pod.
    pub pod_end: Option<String>,
    /// Packets can pass: the end for the switch is up. The pod sees it as the carrier.
    pub up: bool,
}

#[async_trait]
pub trait PodDevices: Send + Sync {
    /// Everything of ours that is there now.
    async fn list(&self) -> Result<Vec<PodDevice>, PortError>;

    /// Makes both ends, down, in the node's network namespace: `nic.device` for the switch, the other with the MAC address, and
    /// such that a switch in user space can forward what the pod sends. Where devices are not made but found, the switch's has the name that
    /// it has, and none that is free: `Busy`. There already with the same id: nothing happens. The same UID with another epoch, or a device
    /// of somebody else with that name: `Conflict`.
    async fn make(&self, nic: &NicFunction) -> Result<(), PortError>;

    /// Sets the end for the switch up or down. As it is already: nothing happens. Not there: `NotFound`.
    async fn set_link(&self, id: &ExposureId, up: bool) -> Result<(), PortError>;

    /// Takes both ends away, wherever the other one is; of what was found the other one is useless from then on. Not there: success.
    async fn remove(&self, id: &ExposureId) -> Result<(), PortError>;

    /// How many there can be at one time.
    async fn most(&self) -> Result<u32, PortError>;

    /// The pod's ends are hardware, which goes back to the node when a pod ends.
    fn are_functions(&self) -> bool;
}

/// An ordinary node: what it shows are the devices of its pods, and there is no host.
#[derive(Clone)]
pub struct AsEmulation(pub Arc<dyn PodDevices>);

fn no_disks<T>() -> Result<T, PortError> {
    Err(PortError::new(ErrorClass::Unsupported, "an ordinary node presents no disk to any host"))
}

#[async_trait]
impl Emulation for AsEmulation {
    async fn capabilities(&self) -> Result<EmulationCapabilities, PortError> {
        let (buses, online_resize) = (Vec::new(), Vec::new());
        let most = self.0.most().await?;
        Ok(EmulationCapabilities { disks: 0, nics: most, hot_plug_ports: most, switch_ports: 0, buses, online_resize })
    }

    async fn list(&self) -> Result<Vec<Exposure>, PortError> {
        let exposure = |device: PodDevice| Exposure {
            id: device.id,
            kind: FunctionKind::Nic,
            presence: Presence::Present,
            size_bytes: None,
            limits: Limits::default(),
            representor: Some(device.device),
            link_up: Some(device.up),
        };
        Ok(self.0.list().await?.into_iter().map(exposure).collect())
    }

    async fn expose_disk(&self, _: &DiskFunction) -> Result<(), PortError> {
        no_disks()
    }

    async fn expose_nic(&self, nic: &NicFunction) -> Result<(), PortError> {
        self.0.make(nic).await
    }

    async fn set_link(&self, id: &ExposureId, up: bool) -> Result<(), PortError> {
        self.0.set_link(id, up).await
    }

    async fn hide(&self, id: &ExposureId, kind: FunctionKind) -> Result<(), PortError> {
        match kind {
            FunctionKind::Disk => Ok(()),
            FunctionKind::Nic => self.0.remove(id).await,
        }
    }

    async fn resize_disk(&self, _: &ExposureId, _: u64) -> Result<(), PortError> {
        no_disks()
    }

    async fn limit_disk(&self, _: &ExposureId, _: &Limits) -> Result<(), PortError> {
        no_disks()
    }
}
