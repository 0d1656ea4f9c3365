//! A host with PCIe ports.

use super::volume::MemoryStorage;
use super::{lock, reachable, refuse};
use crate::emulation::{Backend, ByKind, DiskFunction, DiskStatistics, EmulationCapabilities, NicFunction, Traffic};
use crate::{Emulation, ErrorClass, PortError};
use async_trait::async_trait;
use planner::exposure::{Bus, Exposure, ExposureId, FunctionKind, Limits, Presence, Slot};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

#[derive(Debug, Clone)]
pub struct MemoryEmulation {
    state: Arc<Mutex<State>>,
    storage: MemoryStorage,
    hot_plug_ports: u32,
    switch_ports: u32,
}

#[derive(Debug, Default)]
struct State {
    functions: Vec<Function>,
    down: bool,
    /// Functions leave as soon as they are asked to: the host is off.
    host_off: bool,
    /// All disks have to come at once.
    awaits_recovery: bool,
    /// How many disks each recovery was given.
    recovered: Vec<usize>,
}

#[derive(Debug, Clone)]
struct Function {
    exposure: Exposure,
    slot: Slot,
    bus: Option<Bus>,
    backend: Option<Backend>,
    /// Operations of the host.
    reads: u64,
}

impl MemoryEmulation {
    pub fn new(storage: MemoryStorage, hot_plug_ports: u32) -> Self {
        Self { state: Arc::default(), storage, hot_plug_ports, switch_ports: 0 }
    }

    /// There are ports of a switch besides, which others use too.
    pub fn with_switch(self, switch_ports: u32) -> Self {
        Self { switch_ports, ..self }
    }

    /// Cuts the emulator off, or puts it back.
    pub fn set_down(&self, down: bool) {
        lock(&self.state).down = down;
    }

    /// With the host off nobody has to let go of a function.
    pub fn set_host_off(&self, off: bool) {
        lock(&self.state).host_off = off;
    }

    /// The host lets go of everything that was asked to leave.
    pub fn let_go(&self) {
        lock(&self.state).functions.retain(|f| f.exposure.presence != Presence::Leaving);
    }

    /// The process that emulates crashes and comes back empty.
    pub fn crash(&self) {
        lock(&self.state).functions.clear();
    }

    /// The same, and the host is to be shown nothing before it is shown everything.
    pub fn restart(&self) {
        let mut state = lock(&self.state);
        state.functions.retain(|f| f.exposure.kind != FunctionKind::Disk);
        state.awaits_recovery = true;
    }

    /// How many disks were presented at once, each time.
    pub fn recovered(&self) -> Vec<usize> {
        lock(&self.state).recovered.clone()
    }

    /// The host reads the disk in its boot slot.
    pub fn boot(&self, reads: u64) {
        let mut state = lock(&self.state);
        state.functions.iter_mut().filter(|f| f.slot == Slot::Boot).for_each(|f| f.reads += reads);
    }

    /// Representors that are there.
    pub fn devices(&self) -> BTreeSet<String> {
        lock(&self.state).functions.iter().filter_map(|f| f.exposure.representor.clone()).collect()
    }

    /// What the host finds of this disk.
    fn function(&self, disk: &DiskFunction) -> Result<Function, PortError> {
        if disk.serial.is_empty() || disk.serial.len() > 20 || !disk.serial.is_ascii() {
            return refuse(ErrorClass::Invalid, format!("{:?}: serial {:?}", disk.id, disk.serial));
        }
        let Some(size) = self.storage.size(&disk.backend) else {
            return refuse(ErrorClass::NotFound, format!("{:?}: {:?} is not there", disk.id, disk.backend));
        };
        let exposure = Exposure {
            id: disk.id.clone(),
            kind: FunctionKind::Disk,
            presence: Presence::Present,
            size_bytes: Some(size),
            limits: if can_keep(&disk.limits) { disk.limits } else { Limits::default() },
            representor: None,
            link_up: None,
        };
        let (bus, backend) = (Some(disk.bus), Some(disk.backend.clone()));
        Ok(Function { exposure, slot: disk.slot, bus, backend, reads: 0 })
    }

    fn present(&self, function: Function) -> Result<(), PortError> {
        let mut state = lock(&self.state);
        reachable(state.down, "the emulator")?;
        let id = &function.exposure.id;
        if let Some(known) = state.functions.iter().find(|f| f.exposure.id.uid == id.uid) {
            return match (known.exposure.id.epoch == id.epoch, known.exposure.presence) {
                (false, _) => refuse(ErrorClass::Conflict, format!("{id:?}: {:?} is presented", known.exposure.id)),
                (true, Presence::Leaving) => refuse(ErrorClass::Busy, format!("{id:?} is still leaving")),
                (true, _) => Ok(()),
            };
        }
        let taken = state.functions.iter().filter(|f| f.slot == function.slot).count();
        let room = if function.slot == Slot::HotPlug { self.hot_plug_ports as usize } else { 1 };
        if taken >= room {
            return refuse(ErrorClass::Busy, format!("{id:?}: no free port for {:?}", function.slot));
        }
        if let Some(backend) = &function.backend
            && state.functions.iter().any(|f| f.backend.as_ref() == Some(backend))
        {
            return refuse(ErrorClass::Busy, format!("{id:?}: {backend:?} is in use"));
        }
        state.functions.push(function);
        Ok(())
    }
}

#[async_trait]
impl Emulation for MemoryEmulation {
    async fn capabilities(&self) -> Result<EmulationCapabilities, PortError> {
        reachable(lock(&self.state).down, "the emulator")?;
        Ok(EmulationCapabilities {
            disks: self.hot_plug_ports + 2,
            nics: self.hot_plug_ports,
            hot_plug_ports: self.hot_plug_ports,
            switch_ports: self.switch_ports,
            buses: vec![Bus::NVMe, Bus::VirtioBlk],
            online_resize: vec![Bus::VirtioBlk],
        })
    }

    async fn list(&self) -> Result<Vec<Exposure>, PortError> {
        let state = lock(&self.state);
        reachable(state.down, "the emulator")?;
        Ok(state.functions.iter().map(|f| f.exposure.clone()).collect())
    }

    async fn statistics(&self) -> Result<Vec<DiskStatistics>, PortError> {
        let state = lock(&self.state);
        reachable(state.down, "the emulator")?;
        let disks = state.functions.iter().filter(|f| f.exposure.kind == FunctionKind::Disk);
        let counted = |f: &Function| DiskStatistics {
            id: f.exposure.id.clone(),
            read: Traffic { operations: f.reads, ..Traffic::default() },
            written: Traffic::default(),
            latencies: None,
        };
        Ok(disks.map(counted).collect())
    }

    async fn list_by_kind(&self) -> ByKind {
        let awaits_recovery = lock(&self.state).awaits_recovery;
        ByKind { awaits_recovery, ..ByKind::of_one(self.list().await) }
    }

    async fn recover(&self, wanted: &[DiskFunction], partial: bool) -> Result<(), PortError> {
        reachable(lock(&self.state).down, "the emulator")?;
        if !lock(&self.state).awaits_recovery {
            return Ok(());
        }
        let functions: Result<Vec<_>, _> = match partial {
            true => Ok(wanted.iter().filter_map(|disk| self.function(disk).ok()).collect()),
            false => wanted.iter().map(|disk| self.function(disk)).collect(),
        };
        let functions = functions?;
        let mut state = lock(&self.state);
        state.awaits_recovery = false;
        state.recovered.push(functions.len());
        state.functions.extend(functions);
        Ok(())
    }

    async fn expose_disk(&self, disk: &DiskFunction) -> Result<(), PortError> {
        if lock(&self.state).awaits_recovery {
            return refuse(ErrorClass::Busy, format!("{:?}: all disks have to come at once", disk.id));
        }
        self.present(self.function(disk)?)
    }

    async fn expose_nic(&self, nic: &NicFunction) -> Result<(), PortError> {
        if nic.device.is_empty() || nic.device.len() > 15 {
            return refuse(ErrorClass::Invalid, format!("{:?}: representor {:?}", nic.id, nic.device));
        }
        let exposure = Exposure {
            id: nic.id.clone(),
            kind: FunctionKind::Nic,
            presence: Presence::Present,
            size_bytes: None,
            limits: Limits::default(),
            representor: Some(nic.device.clone()),
            link_up: Some(false),
        };
        self.present(Function { exposure, slot: Slot::HotPlug, bus: None, backend: None, reads: 0 })
    }

    async fn set_link(&self, id: &ExposureId, up: bool) -> Result<(), PortError> {
        let mut state = lock(&self.state);
        reachable(state.down, "the emulator")?;
        let is_it = |f: &&mut Function| f.exposure.id == *id && f.exposure.kind == FunctionKind::Nic;
        let Some(function) = state.functions.iter_mut().find(is_it) else {
            return refuse(ErrorClass::NotFound, format!("{id:?}: no such NIC is presented"));
        };
        function.exposure.link_up = Some(up);
        Ok(())
    }

    async fn hide(&self, id: &ExposureId, kind: FunctionKind) -> Result<(), PortError> {
        let mut state = lock(&self.state);
        reachable(state.down, "the emulator")?;
        if state.host_off {
            state.functions.retain(|f| f.exposure.id != *id || f.exposure.kind != kind);
        }
        let hidden = state.functions.iter_mut().find(|f| f.exposure.id == *id && f.exposure.kind == kind);
        if let Some(function) = hidden {
            function.exposure.presence = Presence::Leaving;
        }
        Ok(())
    }

    async fn resize_disk(&self, id: &ExposureId, size_bytes: u64) -> Result<(), PortError> {
        let mut state = lock(&self.state);
        reachable(state.down, "the emulator")?;
        let Some(function) = state.functions.iter_mut().find(|f| f.exposure.id == *id) else {
            return refuse(ErrorClass::NotFound, format!("{id:?} is not presented"));
        };
        if function.exposure.size_bytes == Some(size_bytes) {
            return Ok(());
        }
        if function.bus != Some(Bus::VirtioBlk) {
            return refuse(ErrorClass::Unsupported, format!("{id:?}: the host sees it at its next power cycle"));
        }
        function.exposure.size_bytes = Some(size_bytes);
        Ok(())
    }

    async fn limit_disk(&self, id: &ExposureId, limits: &Limits) -> Result<(), PortError> {
        let mut state = lock(&self.state);
        reachable(state.down, "the emulator")?;
        let Some(function) = state.functions.iter_mut().find(|f| f.exposure.id == *id) else {
            return refuse(ErrorClass::NotFound, format!("{id:?} is not presented"));
        };
        if !can_keep(limits) {
            return refuse(
                ErrorClass::Unsupported,
                format!("{id:?}: in both directions together, or in each: not both"),
            );
        }
        function.exposure.limits = *limits;
        Ok(())
    }
}

/// As QEMU.
fn can_keep(limits: &Limits) -> bool {
    limits.bandwidth_mib.is_none() || limits.read_mib.or(limits.write_mib).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{Sleep, emulation};
    use std::time::Duration;

    struct Bench(MemoryEmulation);

    #[async_trait]
    impl Sleep for Bench {
        async fn sleep(&self, _: Duration) {}
    }

    #[async_trait]
    impl emulation::Bench for Bench {
        async fn connect(&self) -> Box<dyn Emulation> {
            Box::new(self.0.clone())
        }

        async fn backend(&self, size_bytes: u64) -> Backend {
            self.0.storage.create(size_bytes)
        }

        async fn grow(&self, backend: &Backend, size_bytes: u64) {
            self.0.storage.resize(backend, size_bytes);
        }

        async fn let_host_release(&self) {
            self.0.let_go();
        }

        async fn has_device(&self, name: &str) -> Option<bool> {
            Some(self.0.devices().contains(name))
        }

        async fn restart(&self) -> bool {
            self.0.restart();
            true
        }
    }

    #[tokio::test]
    async fn keeps_the_ports_promises() {
        emulation::run(&Bench(MemoryEmulation::new(MemoryStorage::default(), 4))).await;
    }
}
