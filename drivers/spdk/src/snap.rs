//! [`Emulation`] by NVIDIA SNAP 4 on a BlueField: disks are namespaces on one static NVMe function of the DPU.
//!
//! Hot-plug ports are few (31 at most, for disks and NICs together), and to unplug one needs the host's consent. A namespace
//! needs neither, so no function is ever plugged or unplugged: the lowest static one gets a controller, which stays when
//! its last namespace goes, since a host must not find a function without one.
//!
//! - *expose*: the bdev (AIO: SNAP does not work with io_uring), named after the attachment; the subsystem; the controller,
//!   suspended; the namespace, attached to it; then it is resumed. Interrupted in between, it leaves what no host sees,
//!   which the next `expose`, `hide` or `list` deals with.
//! - *hide* detaches the namespace, destroys it, then deletes the bdev.
//! - A new size is seen when the disk is presented anew: nothing known says that SNAP tells a host of it.
//!
//! This was never run on a BlueField: the calls are those of [`crate::rpc::methods::snap`], on a fake that checks their
//! shape.

use crate::places::Places;
use crate::rpc::methods::bdev::{Bdev, GetBdevs};
use crate::rpc::methods::snap::{
    AttachNamespace, CreateController, CreateNamespace, CreateSubsystem, DestroyNamespace, DetachNamespace, Function,
    ListFunctions, ListSubsystems, Namespace, ResumeController, Subsystem,
};
use crate::rpc::{Method, Rpc};
use crate::{backing, check_disk, names, statistics};
use async_trait::async_trait;
use planner::exposure::{Bus, Exposure, ExposureId, FunctionKind, Limits, Presence, Slot};
use ports::emulation::{BootController, DiskFunction, DiskStatistics, EmulationCapabilities, NicFunction};
use ports::{Emulation, ErrorClass, PortError};
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::Mutex;

/// What NVIDIA's own driver gives a call: the DPU's firmware takes part in some.
const LIMIT: Duration = Duration::from_secs(60);

pub struct SnapEmulation {
    rpc: Rpc,
    /// Names the subsystem; the same for ever.
    nqn: String,
    hot_plug: u32,
    /// Holding it is what makes verbs exclusive.
    places: Mutex<Places>,
}

/// What SNAP says of a function that the host has not enumerated.
const NOWHERE: &str = "00:00.0";

/// What SNAP has now.
struct Seen {
    functions: Vec<Function>,
    subsystems: Vec<Subsystem>,
    bdevs: Vec<Bdev>,
}

impl SnapEmulation {
    /// `socket`: SNAP's, for JSON-RPC. `state_folder`: where a reboot of the DPU forgets.
    pub fn new(socket: impl Into<PathBuf>, nqn: String, hot_plug: u32, state_folder: PathBuf) -> Self {
        let places = Mutex::new(Places::open(state_folder.join("places")));
        Self { rpc: Rpc::new(socket, LIMIT), nqn, hot_plug, places }
    }

    async fn call<M: Method>(&self, method: &M, step: &str) -> Result<M::Answer, PortError> {
        self.rpc.call(method).await.map_err(|error| error.at(step))
    }

    async fn see(&self, step: &str) -> Result<Seen, PortError> {
        let functions = self.call(&ListFunctions { all: true }, step).await?;
        let subsystems = self.call(&ListSubsystems {}, step).await?;
        let bdevs = self.call(&GetBdevs { name: None }, step).await?;
        Ok(Seen { functions, subsystems, bdevs })
    }

    fn subsystem<'a>(&self, seen: &'a Seen) -> Option<&'a Subsystem> {
        seen.subsystems.iter().find(|subsystem| subsystem.nqn == self.nqn)
    }

    /// Ours, by their bdev.
    fn namespaces<'a>(&self, seen: &'a Seen) -> impl Iterator<Item = (ExposureId, &'a Namespace)> {
        let all = self.subsystem(seen).into_iter().flat_map(|subsystem| &subsystem.namespaces);
        all.filter_map(|namespace| Some((names::parse_bdev(&namespace.bdev)?, namespace)))
    }

    /// The lowest static NVMe function.
    fn function<'a>(&self, seen: &'a Seen) -> Option<&'a Function> {
        let is_ours = |f: &&Function| !f.hotplugged && f.emulation_type.eq_ignore_ascii_case("NVME");
        seen.functions.iter().filter(is_ours).min_by_key(|f| f.pf_index)
    }

    /// The host's controller, and whether it was made, so that it has to be resumed.
    async fn controller(&self, seen: &Seen, object: &str) -> Result<(String, bool), PortError> {
        let error = |class, what: String| Err(PortError::new(class, format!("{object}: {what}")));
        let Some(function) = self.function(seen) else {
            let what = "the DPU has no static NVMe function: its firmware has to be told to emulate one";
            return error(ErrorClass::Unsupported, what.to_owned());
        };
        if function.ctrl_id.is_empty() {
            if self.subsystem(seen).is_none() {
                self.call(&CreateSubsystem { nqn: &self.nqn }, object).await?;
            }
            let create = CreateController { nqn: &self.nqn, suspended: true, vuid: &function.vuid };
            return Ok((self.call(&create, object).await?.ctrl_id, true));
        }
        let mut own = self.subsystem(seen).into_iter().flat_map(|subsystem| &subsystem.controllers);
        match own.find(|controller| controller.ctrl_id == function.ctrl_id) {
            Some(controller) => Ok((controller.ctrl_id.clone(), false)),
            None => error(ErrorClass::Conflict, format!("{} is another subsystem's", function.ctrl_id)),
        }
    }

    fn nsid(&self, seen: &Seen, places: &Places, disk: &DiskFunction, object: &str) -> Result<u32, PortError> {
        let busy = |what: String| PortError::new(ErrorClass::Busy, format!("{object}: {what}"));
        let all = || self.subsystem(seen).into_iter().flat_map(|subsystem| &subsystem.namespaces);
        let is_free = |nsid: &u32| !all().any(|namespace| namespace.nsid == *nsid);
        let fixed = match disk.slot {
            Slot::Boot => names::BOOT_NSID,
            Slot::Seed => names::SEED_NSID,
            Slot::HotPlug => {
                let range = names::FIRST_HOT_PLUG_NSID..names::FIRST_HOT_PLUG_NSID + self.hot_plug;
                let mut free: Vec<_> = range.filter(is_free).collect();
                free.sort_by_key(|nsid| (places.of(&disk.id) != Some(*nsid), places.is_kept(*nsid), *nsid));
                let taken = || busy(format!("all {} hot-plug places are taken", self.hot_plug));
                return free.first().copied().ok_or_else(taken);
            }
        };
        Some(fixed).filter(is_free).ok_or_else(|| busy(format!("namespace {fixed} is taken")))
    }

    /// Takes a namespace from the host, if it has it, and from SNAP.
    async fn destroy(&self, namespace: &Namespace) -> Result<(), PortError> {
        let (nsid, step) = (namespace.nsid, namespace.bdev.as_str());
        for showing in &namespace.controllers {
            self.call(&DetachNamespace { ctrl_id: &showing.ctrl_id, nsid }, step).await?;
        }
        self.call(&DestroyNamespace { nqn: &self.nqn, nsid }, step).await.map(drop)
    }

    /// Ends what an interrupted verb left: a controller that is still suspended is resumed; namespaces that are attached
    /// to none, and bdevs without a namespace, are seen by no host and go.
    async fn settle(&self) -> Result<Seen, PortError> {
        let mut seen = self.see("list").await?;
        let own = self.subsystem(&seen).into_iter().flat_map(|subsystem| &subsystem.controllers);
        for suspended in own.filter(|controller| !controller.is_started()) {
            self.call(&ResumeController { ctrl_id: &suspended.ctrl_id }, &suspended.ctrl_id).await?;
        }
        let unseen: Vec<_> =
            self.namespaces(&seen).filter(|(_, ns)| ns.controllers.is_empty()).map(|(_, ns)| ns.clone()).collect();
        for namespace in &unseen {
            self.destroy(namespace).await?;
        }
        let ended = |namespace: &Namespace| unseen.iter().any(|unseen| unseen.bdev == namespace.bdev);
        for subsystem in seen.subsystems.iter_mut().filter(|subsystem| subsystem.nqn == self.nqn) {
            subsystem.namespaces.retain(|namespace| !ended(namespace));
        }
        let shown = |bdev: &Bdev| self.namespaces(&seen).any(|(_, namespace)| namespace.bdev == bdev.name);
        let unused = seen.bdevs.iter().filter(|bdev| names::parse_bdev(&bdev.name).is_some() && !shown(bdev));
        for bdev in unused {
            backing::delete(&self.rpc, bdev).await.map_err(|e| e.at(&format!("{}: deleting it", bdev.name)))?;
        }
        Ok(seen)
    }
}

#[async_trait]
impl Emulation for SnapEmulation {
    async fn capabilities(&self) -> Result<EmulationCapabilities, PortError> {
        Ok(EmulationCapabilities {
            disks: self.hot_plug + names::SEED_NSID,
            nics: 0,
            hot_plug_ports: self.hot_plug,
            buses: vec![Bus::NVMe],
            online_resize: Vec::new(),
        })
    }

    /// With the serial number that SNAP gave to the subsystem. Whether SNAP gives a namespace an EUI-64 is not known.
    async fn boot_controller(&self) -> Result<Option<BootController>, PortError> {
        let seen = self.see("the controller of the boot disk").await?;
        let Some(subsystem) = self.subsystem(&seen).filter(|subsystem| !subsystem.sn.is_empty()) else {
            return Ok(None);
        };
        let place = self.function(&seen).map(|function| function.pci_bdf.clone());
        Ok(Some(BootController {
            serial: subsystem.sn.clone(),
            model: Some(subsystem.mn.clone()).filter(|model| !model.is_empty()),
            nsid: names::BOOT_NSID,
            eui64: None,
            pci_address: place.filter(|place| !place.is_empty() && !place.ends_with(NOWHERE)),
        }))
    }

    async fn list(&self) -> Result<Vec<Exposure>, PortError> {
        let _turn = self.places.lock().await;
        let seen = self.settle().await?;
        let exposure = |(id, namespace): (ExposureId, &Namespace)| {
            let bdev = seen.bdevs.iter().find(|bdev| bdev.name == namespace.bdev);
            let (kind, size_bytes) = (FunctionKind::Disk, bdev.map(Bdev::size_bytes));
            let limits = bdev.map(Bdev::limits).unwrap_or_default();
            Exposure { id, kind, presence: Presence::Present, size_bytes, limits, representor: None, link_up: None }
        };
        Ok(self.namespaces(&seen).map(exposure).collect())
    }

    async fn expose_disk(&self, disk: &DiskFunction) -> Result<(), PortError> {
        let object = names::bdev(&disk.id);
        check_disk(disk, Bus::NVMe, &object)?;
        let mut places = self.places.lock().await;
        let seen = self.settle().await?;
        let conflict = |what: String| Err(PortError::new(ErrorClass::Conflict, format!("{object}: {what}")));
        if let Some((there, ns)) = self.namespaces(&seen).find(|(id, _)| id.uid == disk.id.uid)
            && there.epoch != disk.id.epoch
        {
            return conflict(format!("the host has epoch {} of it as namespace {}", there.epoch, ns.nsid));
        }
        if self.namespaces(&seen).any(|(id, _)| id == disk.id) {
            return Ok(());
        }
        let twin = self.namespaces(&seen).find(|(id, ns)| *id != disk.id && ns.uuid.eq_ignore_ascii_case(&disk.uuid));
        if let Some((_, twin)) = twin {
            return conflict(format!("the host has UUID {} already, as {}", twin.uuid, twin.bdev));
        }
        let nsid = self.nsid(&seen, &places, disk, &object)?;
        if disk.slot == Slot::HotPlug {
            let kept = places.keep(&disk.id, nsid);
            kept.map_err(|e| PortError::new(ErrorClass::Busy, format!("{object}: writing down its place: {e}")))?;
        }
        backing::make(&self.rpc, &seen.bdevs, disk, &object).await?;
        backing::measure(&self.rpc, &object, disk.limits).await?;
        let (ctrl_id, suspended) = self.controller(&seen, &object).await?;
        let (nqn, uuid) = (self.nqn.as_str(), disk.uuid.as_str());
        self.call(&CreateNamespace { bdev_type: "spdk", bdev_name: &object, nqn, nsid, uuid }, &object).await?;
        self.call(&AttachNamespace { ctrl_id: &ctrl_id, nsid }, &object).await?;
        if suspended {
            self.call(&ResumeController { ctrl_id: &ctrl_id }, &object).await?;
        }
        Ok(())
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
        let mut places = self.places.lock().await;
        let seen = self.settle().await?;
        let object = names::bdev(id);
        let Some((_, namespace)) = self.namespaces(&seen).find(|(shown, _)| shown == id) else { return Ok(()) };
        if let Err(error) = places.forget(id) {
            tracing::warn!(%error, "{object}: its place stays written down");
        }
        self.destroy(namespace).await?;
        match seen.bdevs.iter().find(|bdev| bdev.name == object) {
            Some(bdev) => backing::delete(&self.rpc, bdev).await.map_err(|error| error.at(&object)),
            None => Ok(()),
        }
    }

    async fn resize_disk(&self, id: &ExposureId, size_bytes: u64) -> Result<(), PortError> {
        let object = names::bdev(id);
        let _turn = self.places.lock().await;
        let seen = self.settle().await?;
        if !self.namespaces(&seen).any(|(shown, _)| shown == *id) {
            return Err(PortError::new(ErrorClass::NotFound, format!("{object}: the host does not have it")));
        }
        if seen.bdevs.iter().any(|bdev| bdev.name == object && bdev.size_bytes() == size_bytes) {
            return Ok(());
        }
        let what = format!("{object}: it grows when it is taken away and presented again");
        Err(PortError::new(ErrorClass::Unsupported, what))
    }

    async fn limit_disk(&self, id: &ExposureId, limits: &Limits) -> Result<(), PortError> {
        let object = names::bdev(id);
        let _turn = self.places.lock().await;
        let seen = self.settle().await?;
        if !self.namespaces(&seen).any(|(shown, _)| shown == *id) {
            return Err(PortError::new(ErrorClass::NotFound, format!("{object}: the host does not have it")));
        }
        backing::limit(&self.rpc, &object, *limits).await
    }

    async fn statistics(&self) -> Result<Vec<DiskStatistics>, PortError> {
        statistics::read(&self.rpc).await.map_err(|error| error.at("statistics of the disks"))
    }
}
