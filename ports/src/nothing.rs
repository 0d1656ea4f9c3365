//! A DPU that presents only disks, or only NICs: the half that is not there.

use crate::emulation::{DiskFunction, EmulationCapabilities, NicFunction};
use crate::switch::{GuestObserved, MetadataPlug, PortObserved, SwitchPort};
use crate::{Emulation, ErrorClass, PortError, Switch};
use async_trait::async_trait;
use planner::exposure::{Exposure, ExposureId, FunctionKind, Limits};
use std::net::IpAddr;

/// Presents no function of a kind, and says why. As a [`Switch`]: one that has no port and needs none.
#[derive(Debug, Clone, Copy)]
pub struct Nothing {
    /// For example `--nics-by=none: this DPU presents no NIC`.
    pub why: &'static str,
}

impl Nothing {
    fn refuse<T>(self, id: &ExposureId) -> Result<T, PortError> {
        Err(PortError::new(ErrorClass::Unsupported, format!("{} epoch {}: {}", id.uid, id.epoch, self.why)))
    }

    fn not_here<T>(self, id: &ExposureId) -> Result<T, PortError> {
        Err(PortError::new(ErrorClass::NotFound, format!("{} epoch {}: {}", id.uid, id.epoch, self.why)))
    }
}

#[async_trait]
impl Emulation for Nothing {
    async fn capabilities(&self) -> Result<EmulationCapabilities, PortError> {
        let (buses, online_resize) = (Vec::new(), Vec::new());
        Ok(EmulationCapabilities { disks: 0, nics: 0, hot_plug_ports: 0, switch_ports: 0, buses, online_resize })
    }

    async fn list(&self) -> Result<Vec<Exposure>, PortError> {
        Ok(Vec::new())
    }

    async fn expose_disk(&self, disk: &DiskFunction) -> Result<(), PortError> {
        self.refuse(&disk.id)
    }

    async fn expose_nic(&self, nic: &NicFunction) -> Result<(), PortError> {
        self.refuse(&nic.id)
    }

    async fn set_link(&self, id: &ExposureId, _: bool) -> Result<(), PortError> {
        self.not_here(id)
    }

    async fn hide(&self, _: &ExposureId, _: FunctionKind) -> Result<(), PortError> {
        Ok(())
    }

    async fn resize_disk(&self, id: &ExposureId, _: u64) -> Result<(), PortError> {
        self.not_here(id)
    }

    async fn limit_disk(&self, id: &ExposureId, _: &Limits) -> Result<(), PortError> {
        self.not_here(id)
    }
}

#[async_trait]
impl Switch for Nothing {
    async fn list(&self) -> Result<Vec<PortObserved>, PortError> {
        Ok(Vec::new())
    }

    async fn plug(&self, port: &SwitchPort) -> Result<(), PortError> {
        self.refuse(&port.id)
    }

    async fn unplug(&self, _: &ExposureId) -> Result<(), PortError> {
        Ok(())
    }

    async fn plug_metadata(&self, plugs: &[MetadataPlug]) -> Result<(), PortError> {
        match plugs {
            [] => Ok(()),
            [plug, ..] => Err(PortError::new(ErrorClass::Unsupported, format!("{}: {}", plug.device, self.why))),
        }
    }

    async fn metadata_plugs(&self) -> Result<Vec<MetadataPlug>, PortError> {
        Ok(Vec::new())
    }

    async fn begin_boot(&self, _: &str, _: &[ExposureId]) -> Result<Vec<String>, PortError> {
        Ok(Vec::new())
    }

    async fn not_secure(&self) -> Result<Option<String>, PortError> {
        Ok(None)
    }

    async fn observe_guest(&self, port: &SwitchPort, _: &[IpAddr]) -> Result<GuestObserved, PortError> {
        self.not_here(&port.id)
    }

    async fn chassis(&self) -> Result<Option<String>, PortError> {
        Ok(None)
    }

    async fn changed(&self) {
        std::future::pending().await
    }
}
