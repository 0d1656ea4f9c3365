//! A server with a BMC, and the DPU in it: firmware, guest, PCIe slots, switch, and the way to the storage.
//!
//! The host takes time for everything: power, firmware, the guest's start, its own shutdown, letting go of a function.
//! A DPU is on standby power, or shares its host's: then it goes down with it, and boots beside it, into empty slots.

mod bmc;
mod eraser;
mod firmware;

pub use bmc::{DpuBmc, HostBmc, Manners};
pub use eraser::LocalDisk;
pub use firmware::Listing;

use super::random::Random;
use api::dpu::PowerDomain;
use futures::FutureExt;
use jiff::Timestamp;
use planner::connector::KUBELET;
use planner::exposure::{Exposure, ExposureId, Presence};
use planner::host::{BootConfiguration, BootOption, BootSource, Lack, Medium, PowerAction, PowerState};
use ports::conformance::memory::{
    MemoryChassis, MemoryEmulation, MemoryNorthBound, MemoryStorage, MemorySwitch, MemoryVolumes,
};
use ports::emulation::DiskFunction;
use ports::{Emulation, ErrorClass, PortError};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

const POWER: Duration = Duration::from_millis(800);
/// Until the agent of a DPU that got its power with the host runs.
const DPU: Duration = Duration::from_secs(4);
const GUEST: Duration = Duration::from_secs(5);
const SHUTDOWN: Duration = Duration::from_secs(2);
const LET_GO: Duration = Duration::from_millis(300);
/// From the last look at what a DPU presents to the power command.
const ON_ITS_WAY: Duration = Duration::from_millis(50);
/// Of a start.
const READS: u64 = 200;
const HOT_PLUG_PORTS: u32 = 64;
/// What erasers are made of, below the agent's folder.
const ERASER: &str = "erasers/eraser-x86_64.efi";
/// What hold disks are made of.
const HOLD_DISK: [&str; 2] = ["erasers/hold-disk-x86_64/shim.efi", "erasers/hold-disk-x86_64/grub.efi"];
/// The boot option of the server's own NIC.
const NIC: &str = "Boot0001";
/// The boot option of the DPU's disk.
const SLOT: &str = "Boot0003";
pub const DRIVER: &str = "csi.metalplane.io";
/// Of a StorageClass whose volumes only kubelet can connect.
pub const FOREIGN: &str = "foreign.example.com";

fn option(reference: &str, display: &str, path: &str) -> BootOption {
    BootOption {
        reference: reference.to_owned(),
        display_name: display.to_owned(),
        uefi_device_path: Some(path.to_owned()),
        enabled: true,
        present: true,
    }
}

fn nvme(root: &str) -> String {
    format!("{root}/NVMe(0x1,00-00-00-00-00-00-00-00)")
}

/// As a firmware after EDK2 names it: model, serial number, NSID.
fn slot(dpu_name: &str) -> BootOption {
    let disk = format!("UEFI QEMU NVMe Ctrl {} 1", api::names::boot_serial(dpu_name));
    option(SLOT, &disk, &nvme("PciRoot(0x0)/Pci(0x4,0x0)/Pci(0x0,0x0)"))
}

/// What all servers reach.
#[derive(Clone, Default)]
pub struct Shared {
    pub storage: MemoryStorage,
    pub north_bound: MemoryNorthBound,
}

/// What a reboot of the DPU forgets.
pub struct Dpu {
    pub boot_id: String,
    pub run_dir: PathBuf,
    pub emulation: MemoryEmulation,
    pub volumes: MemoryVolumes,
    /// What this node's kubelet has connected.
    pub kubelet: MemoryVolumes,
    pub switch: MemorySwitch,
    /// Every disk that was presented on this boot, as it was asked for.
    pub asked: Mutex<BTreeMap<ExposureId, DiskFunction>>,
}

impl Dpu {
    fn new(name: &str, boot: u32, dir: &Path, shared: &Shared) -> Arc<Self> {
        let Shared { storage, north_bound } = shared;
        let emulation = MemoryEmulation::new(storage.clone(), HOT_PLUG_PORTS);
        let devices = emulation.clone();
        let boot_id = super::api::store::uid(&format!("{name} boot {boot}"));
        let run_dir = dir.join(format!("{name}-{boot}"));
        std::fs::create_dir_all(&run_dir).expect("the simulation's folder is writable");
        std::fs::write(run_dir.join("boot-id"), &boot_id).expect("the simulation's folder is writable");
        for program in [ERASER].iter().chain(&HOLD_DISK) {
            let program = run_dir.join(program);
            std::fs::create_dir_all(program.parent().expect("a folder")).expect("the simulation's folder is writable");
            std::fs::write(program, proto::argument_area::empty()).expect("the simulation's folder is writable");
        }
        Arc::new(Self {
            boot_id,
            run_dir,
            volumes: MemoryVolumes::new(DRIVER, storage.clone()),
            kubelet: MemoryVolumes::new(KUBELET, storage.clone()),
            switch: MemorySwitch::new(move || devices.devices(), MemoryChassis::new(name, north_bound)),
            emulation,
            asked: Mutex::default(),
        })
    }

    pub fn exposures(&self) -> Vec<Exposure> {
        self.emulation.list().now_or_never().and_then(Result::ok).unwrap_or_default()
    }

    /// Disks that the host can see now.
    pub fn disks(&self) -> Vec<DiskFunction> {
        let there = self.exposures();
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.iter().filter(|(id, _)| there.iter().any(|e| e.id == **id)).map(|(_, disk)| disk.clone()).collect()
    }
}

struct State {
    power: PowerState,
    boot: BootConfiguration,
    medium: Medium,
    order_is_pending: bool,
    /// Grows with every power action: what was begun before it does not end.
    turn: u64,
    guest_since: Option<Timestamp>,
    manners: Manners,
    serial_number: String,
    /// What the BMC does not offer.
    lacks: BTreeSet<Lack>,
    /// How often a session with the BMC was opened.
    sessions: u32,
    boots: u32,
    /// When the DPU lost what it presented.
    lost: Option<Instant>,
    dpu: Arc<Dpu>,
    /// The firmware found the boot disk when it looked last.
    found: bool,
    /// The firmware boots a disk of the server's own, whatever the order says; and whether that speaks as the guest does.
    own_disk: Option<bool>,
    listing: Listing,
    strays: u32,
    /// What presents disks counts what the host does to them.
    counts: bool,
    /// A guest has run, and nothing has erased the server's own disk since.
    is_dirty: bool,
    local_disk: LocalDisk,
    /// An override to the network for one boot is shown, and not followed.
    ignores_once: bool,
    /// It boots something else, whatever leads to the network.
    knows_no_network: bool,
    /// What the firmware took when it looked last: what it was told once or always, else the network where that is first in its order.
    booted: Option<BootSource>,
    /// The start whose POST was the last one.
    posted: Option<u64>,
    /// Actions that had an effect.
    actions: Vec<PowerAction>,
}

pub struct Host {
    pub name: String,
    pub dpu_name: String,
    shared: Shared,
    dir: PathBuf,
    pub power_domain: PowerDomain,
    /// The boot of the DPU that runs; none while it is off.
    running: watch::Sender<Option<u32>>,
    pub random: Random,
    state: Mutex<State>,
}

impl Host {
    pub fn new(number: usize, power_domain: PowerDomain, dir: &Path, shared: &Shared, random: Random) -> Arc<Self> {
        let (name, dpu_name) = (format!("server-{number}"), format!("dpu-{number}"));
        let boot = BootConfiguration {
            order: [NIC, "Boot0002", SLOT].map(str::to_owned).to_vec(),
            options: vec![
                option(NIC, "UEFI PXEv4", "PciRoot(0x0)/Pci(0x2,0x0)/MAC(525400000001,0x1)/IPv4(0.0.0.0)"),
                option("Boot0002", "UEFI Micron_7450_MTFDKCE7T6TFR 241147900A8C 1", &nvme("PciRoot(0x0)/Pci(0x3,0x0)")),
                slot(&dpu_name),
            ],
            allowed_next: vec![BootSource::Pxe, BootSource::Cd, BootSource::Setup],
            allowed_always: vec![BootSource::Hdd],
            ..BootConfiguration::default()
        };
        let state = State {
            power: PowerState::Off,
            boot,
            medium: Medium::Ejected,
            order_is_pending: false,
            turn: 0,
            guest_since: None,
            lost: None,
            manners: Manners::Good,
            serial_number: serial_number(&name),
            lacks: BTreeSet::new(),
            sessions: 0,
            boots: 1,
            dpu: Dpu::new(&dpu_name, 1, dir, shared),
            found: false,
            own_disk: None,
            listing: Listing::Known,
            strays: 0,
            counts: true,
            is_dirty: false,
            local_disk: LocalDisk::Works,
            ignores_once: false,
            knows_no_network: false,
            booted: None,
            posted: None,
            actions: Vec::new(),
        };
        let running = watch::Sender::new(Some(1));
        let (shared, dir, state) = (shared.clone(), dir.to_owned(), Mutex::new(state));
        let host = Self { name, dpu_name, shared, dir, power_domain, running, random, state };
        host.dpu().emulation.set_host_off(true);
        Arc::new(host)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn dpu(&self) -> Arc<Dpu> {
        self.state().dpu.clone()
    }

    pub fn power(&self) -> PowerState {
        self.state().power
    }

    pub fn actions(&self) -> Vec<PowerAction> {
        self.state().actions.clone()
    }

    pub fn boot_order(&self) -> Vec<String> {
        self.state().boot.order.clone()
    }

    /// The firmware takes a boot order over in its next POST, and not before.
    pub fn takes_orders_in_post(&self) {
        self.state().order_is_pending = true;
    }

    /// Which start it is, once its POST is over; and whether the firmware took the network in it, or the medium in its virtual drive.
    pub fn started(&self) -> Option<(u64, Option<BootSource>)> {
        let state = self.state();
        let is_over = state.power == PowerState::On && state.posted == Some(state.turn);
        is_over.then_some((state.turn, state.booted))
    }

    pub fn medium(&self) -> Medium {
        self.state().medium.clone()
    }

    /// From its next start on; see `State`.
    pub fn boots_own_disk(&self, own_disk: Option<bool>) {
        self.state().own_disk = own_disk;
    }

    /// The firmware has not seen the disk of the DPU yet.
    pub fn is_new(&self, listing: Listing) {
        let mut state = self.state();
        state.listing = listing;
        state.forget_the_slot();
    }

    /// How often the firmware went on to boot something else than the disk of the DPU, by its own boot order.
    pub fn strays(&self) -> u32 {
        self.state().strays
    }

    /// Only a continuous override leads to the network.
    pub fn ignores_once(&self) {
        let mut state = self.state();
        state.ignores_once = true;
        state.boot.allowed_always.push(BootSource::Pxe);
    }

    /// Nothing leads to the network.
    pub fn knows_no_network(&self) {
        self.state().knows_no_network = true;
    }

    /// No override to the firmware's setup.
    pub fn knows_no_setup(&self) {
        self.state().boot.allowed_next.retain(|source| *source != BootSource::Setup);
    }

    pub fn counts_nothing(&self) {
        self.state().counts = false;
    }

    pub fn counts(&self) -> bool {
        self.state().counts
    }

    /// What runs there, if anything does, restarts the server.
    pub fn resets_itself(self: &Arc<Self>) {
        let mut state = self.state();
        if state.power != PowerState::On {
            return;
        }
        state.turn += 1;
        self.start(&mut state, Duration::ZERO);
    }

    /// So short a time ago that a command which is on its way was sent before: nobody can know.
    pub fn has_just_lost_its_dpu(&self) -> bool {
        self.state().lost.is_some_and(|lost| lost.elapsed() < ON_ITS_WAY)
    }

    pub fn guest_since(&self) -> Option<Timestamp> {
        self.state().guest_since
    }

    /// The BMC answers for the server with this serial number from now on.
    pub fn answers_for(&self, serial_number: &str) {
        self.state().serial_number = serial_number.to_owned();
    }

    /// The BMC answers for the server that the DPU sits in.
    pub fn is_itself(&self) -> bool {
        self.state().serial_number == serial_number(&self.name)
    }

    /// The BMC does not offer this from now on.
    pub fn lacks(&self, lacks: &[Lack]) {
        self.state().lacks = lacks.iter().copied().collect();
    }

    /// A session with the BMC begins.
    pub fn opened(&self) {
        self.state().sessions += 1;
    }

    pub fn sessions(&self) -> u32 {
        self.state().sessions
    }

    pub fn behave(&self, manners: Manners) {
        self.state().manners = manners;
    }

    /// Tells which boot of the DPU runs.
    pub fn running(&self) -> watch::Receiver<Option<u32>> {
        self.running.subscribe()
    }

    /// The DPU starts anew.
    pub fn reboot_dpu(&self) {
        let mut state = self.state();
        self.lose_dpu(&mut state);
        self.running.send_replace(Some(state.boots));
    }

    /// The DPU loses its power, or gets it back and starts anew. The host keeps its own.
    pub fn power_dpu(&self, on: bool) {
        let mut state = self.state();
        if on {
            self.running.send_replace(Some(state.boots));
        } else {
            self.lose_dpu(&mut state);
        }
    }

    /// Nothing is presented, connected or plugged any more, and `/run` is empty.
    fn lose_dpu(&self, state: &mut State) {
        state.boots += 1;
        state.lost = Some(Instant::now());
        let dpu = Dpu::new(&self.dpu_name, state.boots, &self.dir, &self.shared);
        dpu.emulation.set_host_off(state.power == PowerState::Off);
        // Its disks went away under it.
        state.guest_since = None;
        state.dpu = dpu;
        self.running.send_replace(None);
    }

    /// A DPU that got its power with the host is there after a while, if nobody took it away again.
    fn boot_dpu(self: &Arc<Self>, boot: u32) {
        let host = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(POWER + DPU).await;
            let state = host.state();
            if state.boots == boot && state.power != PowerState::Off {
                host.running.send_replace(Some(boot));
            }
        });
    }

    /// Somebody pulled the plug, or the guest switched itself off.
    pub fn goes_off(&self) {
        let mut state = self.state();
        state.turn += 1;
        self.off(&mut state);
    }

    fn off(&self, state: &mut State) {
        state.power = PowerState::Off;
        (state.guest_since, state.booted) = (None, None);
        state.dpu.emulation.set_host_off(true);
        if state.dpu.exposures().iter().any(|exposure| exposure.presence == Presence::Leaving) {
            state.dpu.emulation.let_go();
        }
        if self.power_domain == PowerDomain::Host {
            self.lose_dpu(state);
        }
    }

    fn later(self: &Arc<Self>, after: Duration, turn: u64, change: impl FnOnce(&Self, &mut State) + Send + 'static) {
        let host = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            let mut state = host.state();
            if state.turn == turn {
                change(&host, &mut state);
            }
        });
    }

    fn start(self: &Arc<Self>, state: &mut State, after: Duration) {
        (state.guest_since, state.booted) = (None, None);
        self.later(after, state.turn, |host, state| {
            state.posts(&host.dpu_name);
            if state.found {
                state.dpu.emulation.boot(READS);
            }
        });
        let own = self.clone();
        self.later(after + GUEST, state.turn, move |_, state| {
            if state.power == PowerState::On && state.found && (own.erases(state) || eraser::waits(state)) {
                return;
            }
            if state.power == PowerState::On && (state.found || state.own_disk == Some(true)) {
                state.is_dirty = state.local_disk != LocalDisk::Absent;
                state.guest_since = Some(runtime::clock::now());
            }
        });
    }

    /// A function was asked to leave: a running guest lets go of it after a moment.
    pub fn asked_to_leave(self: &Arc<Self>) {
        let host = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(LET_GO).await;
            host.dpu().emulation.let_go();
        });
    }

    /// On its way up, from the beginning.
    fn rise(self: &Arc<Self>, state: &mut State) {
        state.turn += 1;
        self.later(POWER, state.turn, |_, state| {
            state.power = PowerState::On;
            state.dpu.emulation.set_host_off(false);
        });
        self.start(state, POWER);
    }

    fn act(self: &Arc<Self>, action: PowerAction) -> Result<(), PortError> {
        let mut state = self.state();
        let is_off = matches!(state.power, PowerState::Off);
        match (action, is_off) {
            (PowerAction::On, false) | (PowerAction::SoftOff | PowerAction::ForceOff, true) => return Ok(()),
            (PowerAction::WarmReset, true) => {
                return Err(PortError::new(ErrorClass::Conflict, format!("{}: it is off", self.name)));
            }
            _ if state.lacks.contains(&Lack::Power(action)) => {
                return Err(PortError::new(ErrorClass::Unsupported, format!("{}: no {action:?}", self.name)));
            }
            _ => {}
        }
        state.actions.push(action);
        match action {
            PowerAction::On => {
                state.power = PowerState::PoweringOn;
                self.rise(&mut state);
                if self.power_domain == PowerDomain::Host {
                    self.boot_dpu(state.boots);
                }
            }
            PowerAction::WarmReset if state.power == PowerState::PoweringOn => self.rise(&mut state),
            PowerAction::WarmReset if state.power == PowerState::On => {
                state.turn += 1;
                self.start(&mut state, Duration::ZERO);
            }
            // It is on its way down.
            PowerAction::WarmReset => {}
            PowerAction::SoftOff if state.guest_since.is_some() => {
                state.turn += 1;
                state.power = PowerState::PoweringOff;
                self.later(SHUTDOWN, state.turn, Self::off);
            }
            // Nobody is there to obey.
            PowerAction::SoftOff => {}
            PowerAction::ForceOff => {
                state.turn += 1;
                state.power = PowerState::PoweringOff;
                self.later(POWER, state.turn, Self::off);
            }
        }
        Ok(())
    }
}

/// What is engraved on it.
pub fn serial_number(server: &str) -> String {
    server.to_uppercase()
}
