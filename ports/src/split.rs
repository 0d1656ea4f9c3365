//! Two emulators for one host: one presents its disks, the other its NICs.

use crate::{
    Emulation, PortError,
    emulation::{BootController, ByKind, DiskFunction, DiskStatistics, EmulationCapabilities, NicFunction},
};
use async_trait::async_trait;
use planner::exposure::{Exposure, ExposureId, FunctionKind, Limits};
use std::sync::Arc;

pub struct Split {
    pub disks: Arc<dyn Emulation>,
    pub nics: Arc<dyn Emulation>,
}

impl Split {
    fn of(&self, kind: FunctionKind) -> &dyn Emulation {
        match kind {
            FunctionKind::Disk => self.disks.as_ref(),
            FunctionKind::Nic => self.nics.as_ref(),
        }
    }

    async fn list_of(&self, kind: FunctionKind) -> Result<Vec<Exposure>, PortError> {
        let mut listed = self.of(kind).list().await?;
        listed.retain(|exposure| exposure.kind == kind);
        Ok(listed)
    }
}

#[async_trait]
impl Emulation for Split {
    /// As many places as both have; the ports of the one switch count once. NICs that cannot be told of now are none, so that disks can be
    /// presented meanwhile.
    async fn capabilities(&self) -> Result<EmulationCapabilities, PortError> {
        let disks = self.disks.capabilities().await?;
        let Ok(nics) = self.nics.capabilities().await else {
            let hot_plug_ports = disks.hot_plug_ports.saturating_add(disks.switch_ports);
            return Ok(EmulationCapabilities { nics: 0, hot_plug_ports, switch_ports: 0, ..disks });
        };
        let switch_ports = disks.switch_ports.max(nics.switch_ports);
        let own = disks.hot_plug_ports.saturating_add(nics.hot_plug_ports);
        let hot_plug_ports = own.saturating_add(switch_ports);
        Ok(EmulationCapabilities { nics: nics.nics, hot_plug_ports, switch_ports: 0, ..disks })
    }

    async fn boot_controller(&self) -> Result<Option<BootController>, PortError> {
        self.disks.boot_controller().await
    }

    /// What either cannot tell is not known at all: half of the truth would make the other half look gone.
    async fn list(&self) -> Result<Vec<Exposure>, PortError> {
        let mut all = self.list_of(FunctionKind::Disk).await?;
        all.extend(self.list_of(FunctionKind::Nic).await?);
        Ok(all)
    }

    async fn list_by_kind(&self) -> ByKind {
        let ByKind { disks, awaits_recovery, .. } = self.disks.list_by_kind().await;
        ByKind { disks, nics: self.list_of(FunctionKind::Nic).await, awaits_recovery }
    }

    async fn recover(&self, wanted: &[DiskFunction], partial: bool) -> Result<(), PortError> {
        self.disks.recover(wanted, partial).await
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
        self.of(kind).hide(id, kind).await
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

    async fn reads(&self, id: &ExposureId) -> Result<Option<u64>, PortError> {
        self.disks.reads(id).await
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
    use crate::ErrorClass;
    use crate::conformance::memory::{MemoryEmulation, MemoryStorage};
    use crate::conformance::{Sleep, emulation};
    use crate::emulation::Backend;
    use crate::nothing::Nothing;
    use std::time::Duration;

    fn split(disks: &MemoryEmulation, nics: &MemoryEmulation) -> Split {
        Split { disks: Arc::new(disks.clone()), nics: Arc::new(nics.clone()) }
    }

    struct Bench {
        storage: MemoryStorage,
        disks: MemoryEmulation,
    }

    #[async_trait]
    impl Sleep for Bench {
        async fn sleep(&self, _: Duration) {}
    }

    #[async_trait]
    impl emulation::Bench for Bench {
        async fn connect(&self) -> Box<dyn Emulation> {
            let nics = Arc::new(Nothing { why: "--nics-by=none" });
            Box::new(Split { disks: Arc::new(self.disks.clone()), nics })
        }

        async fn backend(&self, size_bytes: u64) -> Backend {
            self.storage.create(size_bytes)
        }

        async fn grow(&self, backend: &Backend, size_bytes: u64) {
            self.storage.resize(backend, size_bytes);
        }

        async fn let_host_release(&self) {
            self.disks.let_go();
        }

        async fn has_device(&self, _: &str) -> Option<bool> {
            None
        }
    }

    #[tokio::test]
    async fn keeps_the_ports_promises() {
        let storage = MemoryStorage::default();
        // All hot-plug places of this pair are the disks': the suite fills what is announced.
        let disks = MemoryEmulation::new(storage.clone(), 4);
        emulation::run(&Bench { storage, disks }).await;
    }

    #[tokio::test]
    async fn each_kind_goes_its_way() {
        let storage = MemoryStorage::default();
        let (disks, nics) = (MemoryEmulation::new(storage.clone(), 4), MemoryEmulation::new(storage.clone(), 2));
        let both = split(&disks, &nics);
        let all = both.capabilities().await.expect("capabilities");
        assert_eq!((all.disks, all.nics, all.hot_plug_ports), (6, 2, 6));
        let id = ExposureId { uid: "u".to_owned(), epoch: 1 };
        let nic = NicFunction { id: id.clone(), mac: String::new(), mtu: 1500, device: "r".to_owned() };
        both.expose_nic(&nic).await.expect("expose");
        both.hide(&id, FunctionKind::Disk).await.expect("no such disk");
        assert_eq!(both.list().await.expect("list").len(), 1);
        assert_eq!(disks.list().await.expect("list").len(), 0);
        nics.set_down(true);
        assert!(both.list().await.is_err(), "half of the truth");
        let ByKind { disks, nics, .. } = both.list_by_kind().await;
        assert!(disks.is_ok() && nics.is_err(), "what NICs come from does not hide the disks");
        assert_eq!(both.capabilities().await.map(|all| (all.disks, all.nics)), Ok((6, 0)));
    }

    #[tokio::test]
    async fn one_switch_is_counted_once() {
        let storage = MemoryStorage::default();
        let behind_switch = |ports| MemoryEmulation::new(storage.clone(), ports).with_switch(31);
        let all = split(&behind_switch(62), &behind_switch(0)).capabilities().await.expect("capabilities");
        assert_eq!((all.disks, all.hot_plug_ports), (64, 62 + 31));
    }

    #[tokio::test]
    async fn a_half_that_is_not_there_refuses_and_hides_nothing() {
        let disks = Arc::new(MemoryEmulation::new(MemoryStorage::default(), 4));
        let both = Split { disks, nics: Arc::new(Nothing { why: "--nics-by=none" }) };
        let all = both.capabilities().await.expect("capabilities");
        assert_eq!((all.disks, all.nics, all.hot_plug_ports), (6, 0, 4));
        let id = ExposureId { uid: "u".to_owned(), epoch: 1 };
        let nic = NicFunction { id, mac: String::new(), mtu: 1500, device: "r".to_owned() };
        let refused = both.expose_nic(&nic).await.expect_err("no NICs");
        assert!(refused.class == ErrorClass::Unsupported && refused.message.contains("--nics-by=none"), "{refused}");
        assert_eq!(both.list().await, Ok(Vec::new()));
    }
}
