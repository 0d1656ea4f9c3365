//! A virtual switch with devices and guests behind them. Time is a counter: each look is one microsecond later.
//!
//! It has no OVN, so what forwards is in force, until a test says otherwise ([`MemorySwitch::join_ovn`]).

use super::{lock, reachable, refuse};
use crate::switch::{GuestObserved, PortObserved, SwitchPort};
use crate::{ErrorClass, PortError, Switch};
use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use planner::exposure::ExposureId;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// Who is asked which devices there are.
type Devices = Arc<dyn Fn() -> BTreeSet<String> + Send + Sync>;

#[derive(Clone)]
pub struct MemorySwitch {
    state: Arc<Mutex<State>>,
    devices: Devices,
    told: Arc<Notify>,
}

/// What `ovn-controller` has said.
#[derive(Default)]
struct Ovn {
    /// The state of the network that it has reached.
    number: u64,
    /// The number when each device was installed.
    installed: BTreeMap<String, u64>,
}

#[derive(Default)]
struct State {
    now: Timestamp,
    ports: Vec<SwitchPort>,
    foreign: BTreeSet<String>,
    /// By MAC.
    guests: BTreeMap<String, (IpAddr, GuestObserved)>,
    ovn: Option<Ovn>,
    chassis: Option<String>,
    down: bool,
}

impl MemorySwitch {
    pub fn new(devices: impl Fn() -> BTreeSet<String> + Send + Sync + 'static) -> Self {
        Self { state: Arc::default(), devices: Arc::new(devices), told: Arc::default() }
    }

    /// From now on OVN knows the switch by this name, and nothing is in force but what OVN installs.
    pub fn join_ovn(&self, chassis: &str) {
        let mut state = lock(&self.state);
        (state.ovn, state.chassis) = (Some(Ovn::default()), Some(chassis.to_owned()));
        self.told.notify_one();
    }

    pub fn leave_ovn(&self) {
        let mut state = lock(&self.state);
        (state.ovn, state.chassis) = (None, None);
        self.told.notify_one();
    }

    /// OVN has installed the port of this device, or has no longer.
    pub fn ovn_installs(&self, device: &str, installed: bool) {
        if let Some(ovn) = &mut lock(&self.state).ovn {
            match installed {
                true => drop(ovn.installed.entry(device.to_owned()).or_insert(ovn.number)),
                false => drop(ovn.installed.remove(device)),
            }
        }
        self.told.notify_one();
    }

    /// OVN has reached this state of the network; a smaller one than before: its database was restored.
    pub fn ovn_reaches(&self, number: u64) {
        if let Some(ovn) = &mut lock(&self.state).ovn {
            ovn.number = number;
            ovn.installed.values_mut().for_each(|at| *at = number.min(*at));
        }
        self.told.notify_one();
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
            let (installed, in_force) = match &state.ovn {
                None => (forwarding, forwarding),
                Some(ovn) => {
                    let at = ovn.installed.get(&port.device);
                    (at.is_some(), at.is_some_and(|at| ovn.number > *at))
                }
            };
            PortObserved { port: port.clone(), forwarding, installed, in_force, error }
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
        let state = &mut *lock(&self.state);
        reachable(state.down, "the switch")?;
        for port in state.ports.extract_if(.., |port| port.id == *id) {
            if let Some(ovn) = &mut state.ovn {
                ovn.installed.remove(&port.device);
            }
        }
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

    async fn chassis(&self) -> Result<Option<String>, PortError> {
        let state = lock(&self.state);
        reachable(state.down, "the switch")?;
        Ok(state.chassis.clone())
    }

    async fn changed(&self) {
        self.told.notified().await;
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

        async fn join_ovn(&self, chassis: &str) {
            self.0.join_ovn(chassis);
        }

        async fn leave_ovn(&self) {
            self.0.leave_ovn();
        }

        async fn ovn_installs(&self, number: u8, installed: bool) {
            self.0.ovn_installs(&device(number), installed);
        }

        async fn ovn_reaches(&self, number: u64) {
            self.0.ovn_reaches(number);
        }

        async fn pause(&self) {}
    }

    #[tokio::test]
    async fn keeps_the_ports_promises() {
        switch::suite(&Bench(MemorySwitch::new(|| (0..4).map(device).collect()))).await;
    }
}
