//! An answering service that keeps in mind what it would answer.

use super::lock;
use crate::metadata::MetadataPort;
use crate::{ErrorClass, Metadata, PortError};
use async_trait::async_trait;
use planner::metadata;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
pub struct MemoryMetadata(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    ports: Vec<MetadataPort>,
    refuses: Option<String>,
    made: u64,
    /// When each device was made, in the order of these.
    devices: BTreeMap<String, u64>,
}

impl MemoryMetadata {
    /// Where it answers now, and whom.
    pub fn ports(&self) -> Vec<MetadataPort> {
        lock(&self.0).ports.clone()
    }

    /// From now on no device can be made, for this cause; or again.
    pub fn refuse(&self, cause: Option<&str>) {
        lock(&self.0).refuses = cause.map(str::to_owned);
    }

    /// The device of that name, told apart from one that was made before it; `None`: there is none.
    pub fn device(&self, name: &str) -> Option<u64> {
        lock(&self.0).devices.get(name).copied()
    }

    /// What a guest is told at a path that asks by a device, from this MAC address and this address; `None`: nothing.
    pub fn ask(&self, device: &str, (mac, from): (&str, IpAddr), path: &str) -> Option<Vec<u8>> {
        let state = lock(&self.0);
        let port = state.ports.iter().find(|port| port.device == device)?;
        let guest =
            port.guests.iter().find(|guest| metadata::asker(std::slice::from_ref(&guest.nic), mac, from).is_some())?;
        metadata::answer(&guest.instance, mac, path).map(|told| told.into_owned())
    }
}

#[async_trait]
impl Metadata for MemoryMetadata {
    async fn answer(&self, ports: Vec<MetadataPort>) -> BTreeMap<String, PortError> {
        let mut state = lock(&self.0);
        let without = |port: &MetadataPort| MetadataPort { guests: Vec::new(), ..port.clone() };
        let stays = |old: &MetadataPort| ports.iter().any(|port| without(port) == without(old));
        let staying: Vec<String> = state.ports.iter().filter(|old| stays(old)).map(|old| old.device.clone()).collect();
        state.devices.retain(|device, _| staying.contains(device));
        let mut failed = BTreeMap::new();
        state.ports.clear();
        for port in ports {
            if !staying.contains(&port.device) {
                if let Some(cause) = &state.refuses {
                    failed.insert(port.device, PortError::new(ErrorClass::Busy, cause));
                    continue;
                }
                state.made += 1;
                let made = state.made;
                state.devices.insert(port.device.clone(), made);
            }
            state.ports.push(port);
        }
        failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::metadata::{Asked, Bench, suite};

    struct Memory(MemoryMetadata);

    #[async_trait]
    impl Bench for Memory {
        async fn open(&self) -> Box<dyn Metadata> {
            Box::new(self.0.clone())
        }

        async fn device(&self, name: &str) -> Option<u64> {
            self.0.device(name)
        }

        async fn ask(&self, device: &str, asked: Asked<'_>) -> Option<Vec<u8>> {
            self.0.ask(device, (asked.mac, asked.from), asked.path)
        }

        async fn set_refusing(&self, refusing: bool) {
            self.0.refuse(refusing.then_some("there is no such device"));
        }
    }

    #[tokio::test]
    async fn keeps_the_ports_promises() {
        suite(&Memory(MemoryMetadata::default())).await;
    }
}
