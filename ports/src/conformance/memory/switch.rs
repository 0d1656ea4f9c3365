//! A virtual switch with devices and guests behind them, and a chassis of OVN ([`Chassis`]). Time is a counter: each look is one
//! microsecond later.

use super::chassis::Chassis;
use super::{lock, reachable, refuse};
use crate::switch::{GuestObserved, MetadataPlug, PortObserved, SwitchPort};
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
    chassis: Arc<dyn Chassis>,
}

#[derive(Default)]
struct State {
    now: Timestamp,
    ports: Vec<SwitchPort>,
    metadata: Vec<MetadataPlug>,
    boot_id: Option<String>,
    not_secure: Option<String>,
    foreign: BTreeSet<String>,
    /// By MAC.
    guests: BTreeMap<String, (IpAddr, GuestObserved)>,
    /// By device: the state of the network that the chassis had reached when it was first seen to have installed the port.
    installed: BTreeMap<String, u64>,
    told: Vec<PortObserved>,
    down: bool,
}

impl State {
    fn observe(&mut self, devices: &BTreeSet<String>, chassis: &dyn Chassis) -> Vec<PortObserved> {
        let (installed, number) = chassis.read(&self.ports);
        self.installed.retain(|device, at| {
            *at = number.min(*at);
            installed.contains(device)
        });
        for device in installed {
            self.installed.entry(device).or_insert(number);
        }
        let seen = |port: &SwitchPort| {
            let forwarding = devices.contains(&port.device);
            let error = (!forwarding).then(|| format!("no device {}", port.device));
            let at = self.installed.get(&port.device);
            let (installed, in_force) = (at.is_some(), at.is_some_and(|at| number > *at));
            PortObserved { port: port.clone(), forwarding, installed, in_force, error }
        };
        self.ports.iter().map(seen).collect()
    }
}

impl MemorySwitch {
    pub fn new(
        devices: impl Fn() -> BTreeSet<String> + Send + Sync + 'static,
        chassis: impl Chassis + 'static,
    ) -> Self {
        Self { state: Arc::default(), devices: Arc::new(devices), chassis: Arc::new(chassis) }
    }

    /// Cuts the switch off, or puts it back.
    pub fn set_down(&self, down: bool) {
        lock(&self.state).down = down;
    }

    /// Somebody has set the bridge up so, or put it right.
    pub fn set_not_secure(&self, why: Option<&str>) {
        lock(&self.state).not_secure = why.map(str::to_owned);
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
        let mut state = lock(&self.state);
        reachable(state.down, "the switch")?;
        state.told = state.observe(&devices, &*self.chassis);
        Ok(state.told.clone())
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
            state.installed.remove(&port.device);
        }
        Ok(())
    }

    async fn plug_metadata(&self, plugs: &[MetadataPlug]) -> Result<(), PortError> {
        let mut state = lock(&self.state);
        reachable(state.down, "the switch")?;
        if let Some(taken) = plugs.iter().find(|plug| state.foreign.contains(&plug.device)) {
            return refuse(ErrorClass::Conflict, format!("{} is plugged", taken.device));
        }
        state.metadata = plugs.to_vec();
        Ok(())
    }

    async fn metadata_plugs(&self) -> Result<Vec<MetadataPlug>, PortError> {
        let state = lock(&self.state);
        reachable(state.down, "the switch")?;
        Ok(state.metadata.clone())
    }

    async fn begin_boot(&self, boot_id: &str, known: &[ExposureId]) -> Result<Vec<String>, PortError> {
        let state = &mut *lock(&self.state);
        reachable(state.down, "the switch")?;
        if state.boot_id.as_deref() == Some(boot_id) {
            return Ok(Vec::new());
        }
        let is_new = state.boot_id.is_none();
        let stale = state.ports.extract_if(.., |port| !(is_new && known.contains(&port.id))).map(|port| port.device);
        let taken = stale.chain(state.metadata.drain(..).map(|plug| plug.device)).collect();
        let ports = &state.ports;
        state.installed.retain(|device, _| ports.iter().any(|port| port.device == *device));
        state.boot_id = Some(boot_id.to_owned());
        Ok(taken)
    }

    async fn not_secure(&self) -> Result<Option<String>, PortError> {
        let state = lock(&self.state);
        reachable(state.down, "the switch")?;
        Ok(state.not_secure.clone())
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
        reachable(lock(&self.state).down, "the switch")?;
        Ok(self.chassis.name())
    }

    async fn changed(&self) {
        loop {
            self.chassis.changed().await;
            let devices = (self.devices)();
            let mut state = lock(&self.state);
            if !state.down && state.observe(&devices, &*self.chassis) != state.told {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::switch;
    use tokio::sync::Notify;

    struct Bench {
        switch: MemorySwitch,
        chassis: Arc<ByHand>,
    }

    /// A chassis that says what it is told to say.
    #[derive(Default)]
    struct ByHand {
        said: Mutex<(Option<String>, BTreeSet<String>, u64)>,
        told: Notify,
    }

    impl ByHand {
        fn say(&self, change: impl FnOnce(&mut (Option<String>, BTreeSet<String>, u64))) {
            change(&mut lock(&self.said));
            self.told.notify_one();
        }
    }

    #[async_trait]
    impl Chassis for Arc<ByHand> {
        fn name(&self) -> Option<String> {
            lock(&self.said).0.clone()
        }

        fn read(&self, ports: &[SwitchPort]) -> (BTreeSet<String>, u64) {
            let (_, installed, number) = &*lock(&self.said);
            let plugged = |device: &String| ports.iter().any(|port| port.device == *device);
            (installed.iter().filter(|device| plugged(device)).cloned().collect(), *number)
        }

        async fn changed(&self) {
            self.told.notified().await;
        }
    }

    fn device(number: u8) -> String {
        format!("device{number}")
    }

    #[async_trait]
    impl switch::Bench for Bench {
        type Switch = MemorySwitch;

        async fn open(&self) -> MemorySwitch {
            self.switch.clone()
        }

        async fn device(&self, number: u8) -> String {
            device(number)
        }

        async fn foreign_device(&self) -> String {
            self.switch.plug_foreign("foreign0");
            "foreign0".to_owned()
        }

        async fn start_guest(&self, _: u8, mac: &str, address: IpAddr) {
            self.switch.start_guest(mac, address);
        }

        async fn stop_guest(&self, _: u8) {
            lock(&self.switch.state).guests.clear();
        }

        async fn join_ovn(&self, chassis: &str) {
            self.chassis.say(|said| said.0 = Some(chassis.to_owned()));
        }

        async fn ovn_installs(&self, number: u8, installed: bool) {
            self.chassis.say(|said| {
                match installed {
                    true => said.1.insert(device(number)),
                    false => said.1.remove(&device(number)),
                };
            });
        }

        async fn ovn_reaches(&self, number: u64) {
            self.chassis.say(|said| said.2 = number);
        }

        async fn pause(&self) {}
    }

    #[tokio::test]
    async fn keeps_the_ports_promises() {
        let chassis = Arc::<ByHand>::default();
        let switch = MemorySwitch::new(|| (0..4).map(device).collect(), Arc::clone(&chassis));
        switch::suite(&Bench { switch, chassis }).await;
    }
}
