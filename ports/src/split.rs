//! Two emulators for one host: one presents its disks, the other its NICs.

use crate::{
    Emulation, PortError,
    emulation::{BootController, DiskFunction, DiskStatistics, EmulationCapabilities, NicFunction},
};
use async_trait::async_trait;
use planner::exposure::{Exposure, ExposureId, FunctionKind, Limits};

/// Each has its own hot-plug places, so there are as many as both have.
pub struct Split<D, N> {
    pub disks: D,
    pub nics: N,
}

#[async_trait]
impl<D: Emulation, N: Emulation> Emulation for Split<D, N> {
    async fn capabilities(&self) -> Result<EmulationCapabilities, PortError> {
        let disks = self.disks.capabilities().await?;
        let nics = self.nics.capabilities().await?;
        let hot_plug_ports = disks.hot_plug_ports.saturating_add(nics.hot_plug_ports);
        Ok(EmulationCapabilities { nics: nics.nics, hot_plug_ports, ..disks })
    }

    async fn boot_controller(&self) -> Result<Option<BootController>, PortError> {
        self.disks.boot_controller().await
    }

    /// What either cannot tell is not known at all: half of the truth would make the other half look gone.
    async fn list(&self) -> Result<Vec<Exposure>, PortError> {
        let mut all = self.disks.list().await?;
        all.retain(|exposure| exposure.kind == FunctionKind::Disk);
        let nics = self.nics.list().await?;
        all.extend(nics.into_iter().filter(|exposure| exposure.kind == FunctionKind::Nic));
        Ok(all)
    }

    async fn expose_disk(&self, disk: &DiskFunction) -> Result<(), PortError> {
        self.disks.expose_disk(disk).await
    }

    async fn expose_nic(&self, nic: &NicFunction) -> Result<(), PortError> {
        self.nics.expose_nic(nic).await
    }

    async fn set_link(&self, id: &ExposureId, up: bool) -> Result<(), PortError> {
        self.nics.set_link(id, up).await
    }

    async fn hide(&self, id: &ExposureId, kind: FunctionKind) -> Result<(), PortError> {
        match kind {
            FunctionKind::Disk => self.disks.hide(id, kind).await,
            FunctionKind::Nic => self.nics.hide(id, kind).await,
        }
    }

    async fn resize_disk(&self, id: &ExposureId, size_bytes: u64) -> Result<(), PortError> {
        self.disks.resize_disk(id, size_bytes).await
    }

    async fn limit_disk(&self, id: &ExposureId, limits: &Limits) -> Result<(), PortError> {
        self.disks.limit_disk(id, limits).await
    }

    async fn statistics(&self) -> Result<Vec<DiskStatistics>, PortError> {
        self.disks.statistics().await
    }

    async fn changed(&self) {
        use std::future::poll_fn;
        use std::task::Poll;
        let (mut disks, mut nics) = (self.disks.changed(), self.nics.changed());
        poll_fn(|context| match disks.as_mut().poll(context) {
            Poll::Pending => nics.as_mut().poll(context),
            ready => ready,
        })
        .await
    }
}

#[cfg(all(test, feature = "conformance"))]
mod tests {
    use super::*;
    use crate::conformance::memory::{MemoryEmulation, MemoryStorage};
    use crate::conformance::{Sleep, emulation};
    use crate::emulation::Backend;
    use std::time::Duration;

    struct Bench {
        storage: MemoryStorage,
        disks: MemoryEmulation,
        nics: MemoryEmulation,
    }

    #[async_trait]
    impl Sleep for Bench {
        async fn sleep(&self, _: Duration) {}
    }

    #[async_trait]
    impl emulation::Bench for Bench {
        async fn connect(&self) -> Box<dyn Emulation> {
            Box::new(Split { disks: self.disks.clone(), nics: self.nics.clone() })
        }

        async fn backend(&self, size_bytes: u64) -> Backend {
            self.storage.create(size_bytes)
        }

        async fn grow(&self, backend: &Backend, size_bytes: u64) {
            self.storage.resize(backend, size_bytes);
        }

        async fn let_host_release(&self) {
            self.disks.let_go();
            self.nics.let_go();
        }

        async fn has_device(&self, name: &str) -> Option<bool> {
            Some(self.nics.devices().contains(name))
        }
    }

    #[tokio::test]
    async fn keeps_the_ports_promises() {
        let storage = MemoryStorage::default();
        // All hot-plug places of this pair are the disks': the suite fills what is announced.
        let (disks, nics) = (MemoryEmulation::new(storage.clone(), 4), MemoryEmulation::new(storage.clone(), 0));
        emulation::run(&Bench { storage, disks, nics }).await;
    }

    #[tokio::test]
    async fn each_kind_goes_its_way() {
        let storage = MemoryStorage::default();
        let (disks, nics) = (MemoryEmulation::new(storage.clone(), 4), MemoryEmulation::new(storage.clone(), 2));
        let both = Split { disks, nics };
        let all = both.capabilities().await.expect("capabilities");
        assert_eq!((all.disks, all.nics, all.hot_plug_ports), (6, 2, 6));
        let id = ExposureId { uid: "u".to_owned(), epoch: 1 };
        let nic = NicFunction { id: id.clone(), mac: String::new(), mtu: 1500, representor: "r".to_owned() };
        both.expose_nic(&nic).await.expect("expose");
        both.hide(&id, FunctionKind::Disk).await.expect("no such disk");
        assert_eq!(both.list().await.expect("list").len(), 1);
        assert_eq!(both.disks.list().await.expect("list").len(), 0);
        both.nics.set_down(true);
        assert!(both.list().await.is_err(), "half of the truth");
    }
}
