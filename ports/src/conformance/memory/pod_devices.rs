//! A node's devices in memory.

use super::{lock, refuse};
use crate::emulation::NicFunction;
use crate::pod_devices::PodDevice;
use crate::{ErrorClass, PodDevices, PortError};
use async_trait::async_trait;
use planner::exposure::ExposureId;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
pub struct MemoryPodDevices(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    devices: Vec<PodDevice>,
    foreign: BTreeSet<String>,
}

impl MemoryPodDevices {
    /// The pod's end is moved into a pod, as a plugin does.
    pub fn move_away(&self, pod_end: &str) {
        let mut state = lock(&self.0);
        let moved = state.devices.iter_mut().find(|device| device.pod_end.as_deref() == Some(pod_end));
        moved.expect("there").pod_end = None;
    }

    /// Every pod ends, and takes what it has with it.
    pub fn end_pods(&self) {
        lock(&self.0).devices.retain(|device| device.pod_end.is_some());
    }

    pub fn add_foreign(&self, name: &str) {
        lock(&self.0).foreign.insert(name.to_owned());
    }
}

#[async_trait]
impl PodDevices for MemoryPodDevices {
    async fn list(&self) -> Result<Vec<PodDevice>, PortError> {
        Ok(lock(&self.0).devices.clone())
    }

    async fn make(&self, nic: &NicFunction) -> Result<(), PortError> {
        let mut state = lock(&self.0);
        if let Some(there) = state.devices.iter().find(|device| device.id.uid == nic.id.uid) {
            let same = there.id == nic.id;
            return if same { Ok(()) } else { refuse(ErrorClass::Conflict, format!("{} is there", nic.device)) };
        }
        if state.foreign.contains(&nic.device) {
            return refuse(ErrorClass::Conflict, format!("{} is somebody else's", nic.device));
        }
        let pod_end = Some(format!("pod-{}", nic.device));
        state.devices.push(PodDevice { id: nic.id.clone(), device: nic.device.clone(), pod_end, up: false });
        Ok(())
    }

    async fn set_link(&self, id: &ExposureId, up: bool) -> Result<(), PortError> {
        match lock(&self.0).devices.iter_mut().find(|device| device.id == *id) {
            Some(device) => {
                device.up = up;
                Ok(())
            }
            None => refuse(ErrorClass::NotFound, format!("{} is not there", id.uid)),
        }
    }

    async fn remove(&self, id: &ExposureId) -> Result<(), PortError> {
        lock(&self.0).devices.retain(|device| device.id != *id);
        Ok(())
    }

    async fn most(&self) -> Result<u32, PortError> {
        Ok(8)
    }

    fn are_functions(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::pod_devices::{Bench, suite};

    #[async_trait]
    impl Bench for MemoryPodDevices {
        async fn open(&self) -> Box<dyn PodDevices> {
            Box::new(self.clone())
        }

        async fn move_away(&self, device: &str) {
            MemoryPodDevices::move_away(self, device);
        }

        async fn end_pod(&self) {
            self.end_pods();
        }

        async fn foreign_device(&self, name: &str) {
            self.add_foreign(name);
        }

        async fn is_prepared(&self, _: &str, _: &str) -> bool {
            true
        }
    }

    #[tokio::test]
    async fn keeps_the_ports_promises() {
        suite(&MemoryPodDevices::default()).await;
    }
}
