//! [`Emulation`] by NVIDIA SNAP 4 on a BlueField.
//!
//! **The first function.** A host's firmware must find a controller behind each static function, or what it does is undefined: so the
//! lowest static NVMe function gets one as soon as the agent runs, without namespaces before any machine is ([`Emulation::recover`]).
//! Every disk that comes while the host has not enumerated its functions is a namespace there. The host needs nobody's consent to find
//! it, and no place behind the DPU's PCIe switch.
//!
//! **Functions of their own** (`plug.rs`). Nothing known says that SNAP tells a running host of a namespace. So what comes once the host runs
//! is a hot-plugged function with one namespace, where this SNAP has the methods for it; where it has not, a namespace all the same.
//!
//! **Recovery** (`recover.rs`). Functions outlive SNAP's process, controllers do not. They are made again suspended, get all of their
//! namespaces, and are resumed once. Nothing else ever resumes a controller, and nothing is presented before. A disk that SNAP refuses
//! for longer than a host waits for its disks is left out: the others are not its fault.
//!
//! *hide* detaches the namespace, destroys it, then deletes the bdev; a function is unplugged, and destroyed when the host has let go. A new
//! size is seen when the disk is presented anew: nothing known says that SNAP tells a host of it.
//!
//! Methods are asked for (`rpc_get_methods`) before they are called. This was never run on a BlueField, but on a fake that misbehaves as SNAP does.

mod functions;
mod plug;
mod recover;
mod seen;

use crate::places::Places;
use crate::rpc::methods::GetMethods;
use crate::rpc::methods::bdev::Bdev;
use crate::rpc::methods::snap::{
    AttachNamespace, CreateNamespace, CreateSubsystem, DestroyNamespace, DetachNamespace, FOR_HOT_PLUG, NEEDED,
    Namespace,
};
use crate::rpc::{Method, Rpc};
use crate::{backing, check_disk, names, statistics};
use async_trait::async_trait;
use functions::Functions;
use planner::exposure::{Bus, Exposure, ExposureId, FunctionKind, Limits, Presence, Slot};
use ports::emulation::{
    Backend, BootController, ByKind, DiskFunction, DiskStatistics, EmulationCapabilities, NicFunction,
};
use ports::{Emulation, ErrorClass, PortError};
use seen::Seen;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::{Mutex, OnceCell};

/// What NVIDIA's own driver gives a call: the DPU's firmware takes part in some.
const LIMIT: Duration = Duration::from_secs(60);
const MODEL: &str = "Metalplane disk";
const NO_FUNCTION: &str = "the DPU has no static NVMe function. Next: mlxconfig -d DEVICE set NVME_EMULATION_ENABLE=1 \
                           NVME_EMULATION_NUM_PF=1, and a power cycle of the host";

/// What [`SnapEmulation`] shows to its host.
#[derive(Debug, Clone)]
pub struct Config {
    /// Names the subsystem; the same for ever.
    pub nqn: String,
    /// The controller's, at most 20 letters and digits: what the firmware's boot option is known by.
    pub serial: String,
    /// Disks at a time on the first function, besides those of the fixed slots.
    pub hot_plug: u32,
    /// Ports of the DPU's PCIe switch, for disks that come once the host runs.
    pub switch_ports: u32,
}

pub struct SnapEmulation {
    rpc: Rpc,
    config: Config,
    /// Whether functions can be hot-plugged: asked once.
    hot_plugs: OnceCell<bool>,
    /// Holding it is what makes verbs exclusive.
    state: Mutex<State>,
}

struct State {
    places: Places,
    functions: Functions,
    /// Whom this process has plugged, and SNAP does not say so yet: the host takes its time.
    plugging: BTreeSet<ExposureId>,
}

fn port_error(class: ErrorClass, object: &str, what: impl std::fmt::Display) -> PortError {
    PortError::new(class, format!("{object}: {what}"))
}

impl SnapEmulation {
    /// `socket`: SNAP's, for JSON-RPC. `state_folder`: where a reboot of the DPU forgets.
    pub fn new(socket: impl Into<PathBuf>, config: Config, state_folder: PathBuf) -> Self {
        let places = Places::open(state_folder.join("places"));
        let functions = Functions::open(state_folder.join("functions"));
        let state = Mutex::new(State { places, functions, plugging: BTreeSet::new() });
        Self { rpc: Rpc::new(socket, LIMIT), config, hot_plugs: OnceCell::new(), state }
    }

    async fn call<M: Method>(&self, method: &M, step: &str) -> Result<M::Answer, PortError> {
        self.rpc.call(method).await.map_err(|error| error.at(step))
    }

    /// With a function that a host sees, or the reason why there is none.
    async fn see(&self, step: &str) -> Result<Seen, PortError> {
        self.hot_plugs(step).await?;
        let seen = Seen::read(&self.rpc, &self.config.nqn).await.map_err(|error| error.at(step))?;
        if seen.first_function().is_none() {
            return Err(port_error(ErrorClass::Unsupported, step, NO_FUNCTION));
        }
        if let Some(other) = seen.taken_by_another() {
            let next = "take nvme_controller_create out of SNAP's start-up configuration (snap_rpc_init.conf)";
            let what = format!("subsystem {other} has the DPU's first NVMe function. Next: {next}");
            return Err(port_error(ErrorClass::Conflict, step, what));
        }
        Ok(seen)
    }

    /// Also whether this is a SNAP that can be driven at all.
    async fn hot_plugs(&self, step: &str) -> Result<bool, PortError> {
        let ask = || async {
            let methods = self.call(&GetMethods {}, step).await?;
            let lacks = |needed: &[&'static str]| -> Vec<&'static str> {
                needed.iter().copied().filter(|name| !methods.iter().any(|there| there == name)).collect()
            };
            match lacks(&NEEDED).as_slice() {
                [] => Ok(lacks(&FOR_HOT_PLUG).is_empty() && self.config.switch_ports > 0),
                some => {
                    let what =
                        format!("{} has no method {}: SNAP 4 is needed", self.rpc.socket().display(), some.join(", "));
                    Err(port_error(ErrorClass::Unsupported, step, what))
                }
            }
        };
        self.hot_plugs.get_or_try_init(ask).await.copied()
    }

    fn nsid(&self, seen: &Seen, places: &Places, disk: &DiskFunction, object: &str) -> Result<u32, PortError> {
        let all = || seen.subsystem().into_iter().flat_map(|subsystem| &subsystem.namespaces);
        let is_free = |nsid: &u32| !all().any(|namespace| namespace.nsid == *nsid);
        let fixed = match disk.slot {
            Slot::Boot => names::BOOT_NSID,
            Slot::Seed => names::SEED_NSID,
            Slot::HotPlug => {
                let range = names::FIRST_HOT_PLUG_NSID..names::FIRST_HOT_PLUG_NSID + self.config.hot_plug;
                let mut free: Vec<_> = range.filter(is_free).collect();
                free.sort_by_key(|nsid| (places.of(&disk.id) != Some(*nsid), places.is_kept(*nsid), *nsid));
                let taken = || {
                    let what = format!("all {} hot-plug places are taken", self.config.hot_plug);
                    port_error(ErrorClass::Busy, object, what)
                };
                return free.first().copied().ok_or_else(taken);
            }
        };
        let taken = || port_error(ErrorClass::Busy, object, format!("namespace {fixed} is taken"));
        Some(fixed).filter(is_free).ok_or_else(taken)
    }

    /// With a serial number of ours, by whichever names this version takes them.
    async fn make_subsystem(&self, nqn: &str, serial: &str, object: &str) -> Result<(), PortError> {
        let plain = CreateSubsystem { nqn, sn: None, mn: None, serial_number: None, model_number: None };
        let short = CreateSubsystem { sn: Some(serial), mn: Some(MODEL), ..plain.clone() };
        let long = CreateSubsystem { serial_number: Some(serial), model_number: Some(MODEL), ..plain.clone() };
        let mut last = None;
        for create in [short, long, plain] {
            match self.rpc.call(&create).await {
                Ok(_) => return Ok(()),
                Err(error) if error.class() == ErrorClass::Invalid => last = Some(error),
                Err(error) => return Err(error.at(object)),
            }
        }
        last.map_or(Ok(()), |error| Err(error.at(object)))
    }

    /// The bdev, and a namespace of the subsystem on it, which no host sees yet.
    async fn make_namespace(
        &self,
        seen: &Seen,
        disk: &DiskFunction,
        nqn: &str,
        nsid: u32,
        object: &str,
    ) -> Result<(), PortError> {
        backing::make(&self.rpc, &seen.bdevs, disk, object).await.map_err(|error| explain(error, disk))?;
        backing::measure(&self.rpc, object, disk.limits).await?;
        let create = CreateNamespace { bdev_type: "spdk", bdev_name: object, nqn, nsid, uuid: &disk.uuid };
        self.call(&create, object).await.map(drop)
    }

    /// Takes a namespace from the host, if it has it, and from SNAP.
    async fn destroy(&self, nqn: &str, namespace: &Namespace) -> Result<(), PortError> {
        let (nsid, step) = (namespace.nsid, namespace.bdev.as_str());
        for showing in &namespace.controllers {
            self.call(&DetachNamespace { ctrl_id: &showing.ctrl_id, nsid }, step).await?;
        }
        self.call(&DestroyNamespace { nqn, nsid }, step).await.map(drop)
    }

    async fn delete_bdev(&self, bdev: &Bdev) -> Result<(), PortError> {
        backing::delete(&self.rpc, bdev).await.map_err(|e| e.at(&format!("{}: deleting it", bdev.name)))
    }

    /// Ends what an interrupted verb left, once the host sees a controller: what is attached to none goes, and bdevs on which nothing
    /// stands. Functions that the host has let go of, too.
    async fn settle(&self, state: &mut State) -> Result<Seen, PortError> {
        let mut seen = self.see("list").await?;
        if !seen.is_started() {
            return Ok(seen);
        }
        let unseen: Vec<_> =
            seen.namespaces().filter(|(_, ns)| ns.controllers.is_empty()).map(|(_, ns)| ns.clone()).collect();
        for namespace in &unseen {
            self.destroy(&self.config.nqn, namespace).await?;
        }
        let mut changed = !unseen.is_empty();
        changed |= self.finish_unplugs(state, &seen).await?;
        if changed {
            seen = self.see("list").await?;
        }
        for bdev in seen.unused() {
            self.delete_bdev(bdev).await?;
        }
        Ok(seen)
    }

    /// Whoever has this disk, and whether it may be presented.
    fn check_twins(seen: &Seen, disk: &DiskFunction, object: &str) -> Result<bool, PortError> {
        let conflict = |what: String| Err(port_error(ErrorClass::Conflict, object, what));
        let on_functions = seen.plugged().filter_map(|(id, plugged)| Some((id, plugged.namespace?)));
        for (there, namespace) in seen.namespaces().chain(on_functions) {
            if there == disk.id {
                return Ok(true);
            }
            if there.uid == disk.id.uid {
                return conflict(format!("the host has epoch {} of it as namespace {}", there.epoch, namespace.nsid));
            }
            if namespace.uuid.eq_ignore_ascii_case(&disk.uuid) {
                return conflict(format!("the host has UUID {} already, as {}", namespace.uuid, namespace.bdev));
            }
        }
        Ok(false)
    }

    fn exposures(seen: &Seen, state: &State) -> Vec<Exposure> {
        let exposure = |id: ExposureId, presence: Presence| {
            let bdev = seen.bdev(&names::bdev(&id));
            let (kind, size_bytes) = (FunctionKind::Disk, bdev.map(Bdev::size_bytes));
            let limits = bdev.map(Bdev::limits).unwrap_or_default();
            Exposure { id, kind, presence, size_bytes, limits, representor: None, link_up: None }
        };
        let first = seen.namespaces().map(|(id, _)| exposure(id, Presence::Present));
        let own = seen.plugged().map(|(id, plugged)| {
            let presence = plug::presence(state, &id, &plugged);
            exposure(id, presence)
        });
        first.chain(own).collect()
    }
}

/// SNAP's container sees a part of the DPU's files only, and says no more than that there is none.
fn explain(error: PortError, disk: &DiskFunction) -> PortError {
    let is_file = matches!(disk.backend, Backend::Path(_));
    if !is_file || !matches!(error.class, ErrorClass::NotFound | ErrorClass::Invalid) {
        return error;
    }
    let next = "does SNAP's container see this file under the same path? One of DPF's sees those below \
                /var/lib/nvidia/storage/snap/providers only";
    PortError::new(error.class, format!("{}. Next: {next}", error.message))
}

#[async_trait]
impl Emulation for SnapEmulation {
    async fn capabilities(&self) -> Result<EmulationCapabilities, PortError> {
        let switch_ports = if self.hot_plugs("capabilities").await? { self.config.switch_ports } else { 0 };
        Ok(EmulationCapabilities {
            disks: self.config.hot_plug + names::SEED_NSID,
            nics: 0,
            hot_plug_ports: self.config.hot_plug,
            switch_ports,
            buses: vec![Bus::NVMe],
            online_resize: Vec::new(),
        })
    }

    /// With the serial number that SNAP gave to the subsystem. Whether SNAP gives a namespace an EUI-64 is not known.
    async fn boot_controller(&self) -> Result<Option<BootController>, PortError> {
        let seen = self.see("the controller of the boot disk").await?;
        let Some(subsystem) = seen.subsystem().filter(|subsystem| !subsystem.sn.is_empty()) else {
            return Ok(None);
        };
        Ok(Some(BootController {
            serial: subsystem.sn.clone(),
            model: Some(subsystem.mn.clone()).filter(|model| !model.is_empty()),
            nsid: names::BOOT_NSID,
            eui64: None,
            pci_address: seen.place(),
        }))
    }

    async fn list(&self) -> Result<Vec<Exposure>, PortError> {
        let mut state = self.state.lock().await;
        let seen = self.settle(&mut state).await?;
        Ok(if seen.is_started() { Self::exposures(&seen, &state) } else { Vec::new() })
    }

    async fn list_by_kind(&self) -> ByKind {
        let mut state = self.state.lock().await;
        match self.settle(&mut state).await {
            Ok(seen) if seen.is_started() => ByKind::of_one(Ok(Self::exposures(&seen, &state))),
            Ok(_) => ByKind { awaits_recovery: true, ..ByKind::of_one(Ok(Vec::new())) },
            Err(error) => ByKind::of_one(Err(error)),
        }
    }

    async fn recover(&self, wanted: &[DiskFunction], partial: bool) -> Result<(), PortError> {
        let mut state = self.state.lock().await;
        self.recover_all(&mut state, wanted, partial).await
    }

    async fn expose_disk(&self, disk: &DiskFunction) -> Result<(), PortError> {
        let object = names::bdev(&disk.id);
        check_disk(disk, Bus::NVMe, &object)?;
        let mut state = self.state.lock().await;
        let seen = self.settle(&mut state).await?;
        let Some(controller) = seen.controller().filter(|controller| controller.is_started()) else {
            let what = "the host's controller is not started: all of its disks have to be presented at once first";
            return Err(port_error(ErrorClass::Busy, &object, what));
        };
        if Self::check_twins(&seen, disk, &object)? {
            let leaving = state.functions.of(&disk.id).is_some_and(|kept| kept.leaving);
            let refused = || port_error(ErrorClass::Busy, &object, "the host has not let go of it");
            return if leaving { Err(refused()) } else { Ok(()) };
        }
        if disk.slot == Slot::HotPlug && seen.is_enumerated() && self.hot_plugs(&object).await? {
            return self.plug(&mut state, &seen, disk, &object).await;
        }
        let nsid = self.nsid(&seen, &state.places, disk, &object)?;
        if disk.slot == Slot::HotPlug {
            let kept = state.places.keep(&disk.id, nsid);
            kept.map_err(|e| port_error(ErrorClass::Busy, &object, format!("writing down its place: {e}")))?;
        }
        self.make_namespace(&seen, disk, &self.config.nqn, nsid, &object).await?;
        self.call(&AttachNamespace { ctrl_id: &controller.ctrl_id, nsid }, &object).await.map(drop)
    }

    async fn expose_nic(&self, nic: &NicFunction) -> Result<(), PortError> {
        let what = format!("{:?}: SNAP presents disks only", nic.id);
        Err(PortError::new(ErrorClass::Unsupported, what))
    }

    async fn set_link(&self, id: &ExposureId, _: bool) -> Result<(), PortError> {
        Err(PortError::new(ErrorClass::NotFound, format!("{id:?}: SNAP presents no NIC")))
    }

    async fn hide(&self, id: &ExposureId, kind: FunctionKind) -> Result<(), PortError> {
        if kind != FunctionKind::Disk {
            return Ok(());
        }
        let mut state = self.state.lock().await;
        let seen = self.settle(&mut state).await?;
        let object = names::bdev(id);
        if let Some((_, plugged)) = seen.plugged().find(|(shown, _)| shown == id) {
            return self.unplug(&mut state, &seen, id, &plugged, &object).await;
        }
        let Some((_, namespace)) = seen.namespaces().find(|(shown, _)| shown == id) else { return Ok(()) };
        if let Err(error) = state.places.forget(id) {
            tracing::warn!(%error, "{object}: its place stays written down");
        }
        self.destroy(&self.config.nqn, namespace).await?;
        match seen.bdev(&object) {
            Some(bdev) => self.delete_bdev(bdev).await,
            None => Ok(()),
        }
    }

    async fn resize_disk(&self, id: &ExposureId, size_bytes: u64) -> Result<(), PortError> {
        let object = self.shown(id).await?;
        let seen = self.see(&object).await?;
        if seen.bdev(&object).is_some_and(|bdev| bdev.size_bytes() == size_bytes) {
            return Ok(());
        }
        let what = "it grows when it is taken away and presented again";
        Err(port_error(ErrorClass::Unsupported, &object, what))
    }

    async fn limit_disk(&self, id: &ExposureId, limits: &Limits) -> Result<(), PortError> {
        let object = self.shown(id).await?;
        let _turn = self.state.lock().await;
        backing::limit(&self.rpc, &object, *limits).await
    }

    async fn statistics(&self) -> Result<Vec<DiskStatistics>, PortError> {
        statistics::read(&self.rpc).await.map_err(|error| error.at("statistics of the disks"))
    }

    async fn reads(&self, id: &ExposureId) -> Result<Option<u64>, PortError> {
        statistics::reads(&self.rpc, id).await.map_err(|error| error.at("reads of a disk"))
    }
}

impl SnapEmulation {
    /// What the disk's bdev is called, if the host has the disk.
    async fn shown(&self, id: &ExposureId) -> Result<String, PortError> {
        let object = names::bdev(id);
        match self.list().await?.iter().any(|exposure| exposure.id == *id) {
            true => Ok(object),
            false => Err(port_error(ErrorClass::NotFound, &object, "the host does not have it")),
        }
    }
}
