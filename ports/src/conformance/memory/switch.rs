//! A virtual switch with devices and guests behind them. Time is a counter: each look is one microsecond later.

use super::{lock, reachable, refuse};
use crate::switch::{GuestObserved, PortObserved, SwitchPort};
use crate::{ErrorClass, PortError, Switch};
use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use planner::exposure::ExposureId;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

/// Who is asked which devices there are.
type Devices = Arc<dyn Fn() -> BTreeSet<String> + Send + Sync>;

#[derive(Clone)]
pub struct MemorySwitch {
    state: Arc<Mutex<State>>,
    devices: Devices,
}

#[derive(Default)]
struct State {
    now: Timestamp,
    ports: Vec<SwitchPort>,
    foreign: BTreeSet<String>,
    /// By MAC.
    guests: BTreeMap<String, (IpAddr, GuestObserved)>,
    down: bool,
}

impl MemorySwitch {
    pub fn new(devices: impl Fn() -> BTreeSet<String> + Send + Sync + 'static) -> Self {
        Self { state: Arc::default(), devices: Arc::new(devices) }
    }

    /// Cuts the switch off, or puts it back.
    pub fn set_down(&self, down: bool) {
        lock(&self.state).down = down;
    }

    /// Somebody else has plugged this device.
    pub fn plug_foreign(&self, device: &str) {
        lock(&self.state).foreign.insert(device.to_owned());
    }

    pub fn start_guest(&self, mac: &str, address: IpAddr) {
        let mut state = lock(&self.state);
        state.now += SignedDuration::from_micros(1);
        let seen = GuestObserved {
            first_packet_at: Some(state.now),
            answered_at: Some(state.now),
            answered_address: Some(address),
        };
        state.guests.insert(mac.to_owned(), (address, seen));
    }

    pub fn stop_guest(&self, mac: &str) {
        lock(&self.state).guests.remove(mac);
    }
}

#[async_trait]
impl Switch for MemorySwitch {
    async fn list(&self) -> Result<Vec<PortObserved>, PortError> {
        let devices = (self.devices)();
        let state = lock(&self.state);
        reachable(state.down, "the switch")?;
        let seen = |port: &SwitchPort| {
            let forwarding = devices.contains(&port.device);
            let error = (!forwarding).then(|| format!("no device {}", port.device));
            PortObserved { port: port.clone(), forwarding, error }
        };
        Ok(state.ports.iter().map(seen).collect())
    }

    async fn plug(&self, port: &SwitchPort) -> Result<(), PortError> {
        let mut state = lock(&self.state);
        reachable(state.down, "the switch")?;
        if state.ports.contains(port) {
            return Ok(());
        }
        let taken = state.ports.iter().any(|p| p.device == port.device || p.id.uid == port.id.uid);
        if taken || state.foreign.contains(&port.device) {
            return refuse(ErrorClass::Conflict, format!("{:?}: {} is plugged", port.id, port.device));
        }
        state.ports.push(port.clone());
        Ok(())
    }

    async fn unplug(&self, id: &ExposureId) -> Result<(), PortError> {
        let mut state = lock(&self.state);
        reachable(state.down, "the switch")?;
        state.ports.retain(|port| port.id != *id);
        Ok(())
    }

    async fn observe_guest(&self, port: &SwitchPort, addresses: &[IpAddr]) -> Result<GuestObserved, PortError> {
        let state = lock(&self.state);
        reachable(state.down, "the switch")?;
        let seen = state.guests.get(&port.mac).filter(|_| state.ports.contains(port));
        Ok(match seen {
            Some((address, seen)) if addresses.contains(address) => seen.clone(),
            Some((_, seen)) => GuestObserved { first_packet_at: seen.first_packet_at, ..GuestObserved::default() },
            None => GuestObserved::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::switch;

    struct Bench(MemorySwitch);

    fn device(number: u8) -> String {
        format!("device{number}")
    }

    #[async_trait]
    impl switch::Bench for Bench {
        type Switch = MemorySwitch;

        async fn open(&self) -> MemorySwitch {
            self.0.clone()
        }

        async fn device(&self, number: u8) -> String {
            device(number)
        }

        async fn foreign_device(&self) -> String {
            self.0.plug_foreign("foreign0");
            "foreign0".to_owned()
        }

        async fn start_guest(&self, _: u8, mac: &str, address: IpAddr) {
            self.0.start_guest(mac, address);
        }

        async fn stop_guest(&self, _: u8) {
            lock(&self.0.state).guests.clear();
        }

        async fn pause(&self) {}
    }

    #[tokio::test]
    async fn keeps_the_ports_promises() {
        switch::suite(&Bench(MemorySwitch::new(|| (0..4).map(device).collect()))).await;
    }
}
