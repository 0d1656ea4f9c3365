//! [`Emulation`] by SPDK: NVMe over vfio-user, for virtual servers, or over fabrics, for those that boot so.
//!
//! The target is a process of its own. This driver adopts what is there and keeps nothing that a restart would lose:
//! what is presented, where, and for whom is read from the target each time ([`observed`], [`names`]). All verbs of one
//! driver run one after the other, because a subsystem refuses a change while another one is under way.
//!
//! | file | what |
//! |---|---|
//! | [`rpc`] | the JSON-RPC client and the methods that are used |
//! | [`door`] | how the host reaches it: vfio-user, or NVMe over fabrics |
//! | [`host`] | the host's controller, a subsystem with a fixed place |
//! | [`backing`] | the bdev under a disk |
//! | [`expose`] | how a disk is presented, and many at once |
//! | [`explain`] | why the target refused, from what it has |
//! | [`snap`] | disks of a BlueField's host by NVIDIA SNAP, beside it |
//! | [`vhost`] | disks of virtual machines by vhost-user-blk, beside the controller |
//! | [`volumes`] | the other port of this crate: volumes that the target connects |
//! | [`writer`] | how an import writes one of them |
//! | [`fence`] | how an NVMe over fabrics target is made to refuse a holder |
//! | [`statistics`] | what the disks did |
//! | [`places`] | which namespace a disk has |
//! | [`attendance`] | whether the host lost its disks with the target |
//!
//! - *expose*: the bdev, named after the attachment; the subsystem; the namespace; then the socket that the host
//!   connects to. Interrupted in between, it leaves a bdev that no namespace shows, which the next `expose`, `hide` or
//!   `list` deals with.
//! - *hide* removes the namespace, which the host sees at once, then the bdev. The controller stays.
//! - *resize* lets the bdev take over the size of what is under it; the host hears of it by itself.
//!
//! SPDK often answers "Invalid parameters" and no more. What can be refused for the state's sake is therefore looked at
//! before it is asked for, and again after a refusal. Some requests are accepted and do harm; they are never sent: a
//! bdev is not deleted while a namespace shows it, and two subsystems never share a socket.

mod attendance;
mod backing;
pub mod door;
mod explain;
mod expose;
pub mod fence;
pub mod host;
pub mod lvols;
pub mod names;
mod observed;
mod places;
pub mod rpc;
pub mod snap;
mod statistics;
pub mod vhost;
pub mod volumes;
mod writer;

use async_trait::async_trait;
use attendance::Attendance;
use expose::Waiting;
use host::Host;
use observed::Observed;
use places::Places;
use planner::exposure::{Bus, Exposure, ExposureId, FunctionKind, Limits, Presence, Slot};
use ports::{
    Emulation, ErrorClass, PortError,
    emulation::{BootController, DiskFunction, DiskStatistics, EmulationCapabilities, NicFunction},
};
use rpc::{
    Rpc, RpcError,
    error::METHOD_NOT_FOUND,
    methods::bdev::Bdev,
    methods::nvme,
    methods::nvmf::{GetControllers, GetSubsystems, RemoveNamespace},
};
use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    sync::{Mutex, Notify},
    task::AbortHandle,
};

/// NVM Express Base Specification 2.0, figure 275 (SN).
pub(crate) const SERIAL_BYTES: usize = 20;
/// How often to look whether the target and the host are still there: neither says when it goes.
const WATCH: Duration = Duration::from_secs(1);

pub struct SpdkEmulation {
    inner: Arc<Inner>,
    watching: AbortHandle,
}

struct Inner {
    rpc: Rpc,
    host: Host,
    /// Holding it is what makes verbs exclusive.
    state: Mutex<State>,
    waiting: Waiting,
    changed: Notify,
}

struct State {
    /// `None`: the host finds back to a new target by itself.
    attendance: Option<Attendance>,
    places: Places,
    /// Asked to leave by this process, and the target has not finished: it waits for the host's last I/O.
    leaving: BTreeSet<ExposureId>,
}

impl SpdkEmulation {
    /// `socket`: the target's, for JSON-RPC. `state_folder`: where a reboot of the DPU forgets. Must be called inside a
    /// tokio runtime.
    pub fn new(socket: impl Into<PathBuf>, host: Host, state_folder: PathBuf) -> Result<Self, PortError> {
        host.check()?;
        let watched = !host.door.is_found_again();
        let attendance = watched.then(|| Attendance::open(state_folder.join("host")));
        let inner = Arc::new(Inner {
            rpc: Rpc::new(socket, rpc::LIMIT),
            host,
            state: Mutex::new(State {
                attendance,
                places: Places::open(state_folder.join("places")),
                leaving: BTreeSet::new(),
            }),
            waiting: Waiting::default(),
            changed: Notify::new(),
        });
        let watching = tokio::spawn(watch(Arc::clone(&inner))).abort_handle();
        Ok(Self { inner, watching })
    }
}

impl Drop for SpdkEmulation {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

/// What can change without a verb: the target is there, it is the one that has our subsystem, the host is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    Silent,
    Empty,
    Presented { connected: bool },
}

async fn watch(inner: Arc<Inner>) {
    let mut before = None;
    loop {
        tokio::time::sleep(WATCH).await;
        let mut state = inner.state.lock().await;
        let sight = look(&inner, matches!(before, Some(Sight::Presented { .. }))).await;
        match sight {
            Sight::Silent => {}
            Sight::Empty => state.saw(false, false),
            Sight::Presented { connected } => state.saw(true, connected),
        }
        drop(state);
        if before.replace(sight) != Some(sight) {
            inner.changed.notify_one();
        }
    }
}

/// A target writes an error into its log for each question about a subsystem that it does not have, so that is asked only of one
/// that was there.
async fn look(inner: &Inner, was_there: bool) -> Sight {
    let (rpc, nqn) = (&inner.rpc, &inner.host.nqn);
    if !was_there {
        match rpc.call(&GetSubsystems {}).await {
            Ok(all) if all.iter().any(|subsystem| subsystem.nqn == *nqn) => {}
            Ok(_) | Err(RpcError::Refused { .. }) => return Sight::Empty,
            Err(_) => return Sight::Silent,
        }
    }
    match rpc.call(&GetControllers { nqn }).await {
        Ok(controllers) => Sight::Presented { connected: !controllers.is_empty() },
        Err(RpcError::Refused { .. }) => Sight::Empty,
        Err(_) => Sight::Silent,
    }
}

impl State {
    fn saw(&mut self, subsystem: bool, connected: bool) {
        let Some(attendance) = &mut self.attendance else { return };
        if let Err(error) = attendance.saw(subsystem, connected) {
            tracing::warn!(%error, "whether the host is connected cannot be written down");
        }
    }
}

impl Inner {
    async fn observe(&self, state: &mut State, step: &str) -> Result<Observed, PortError> {
        let observed = Observed::read(&self.rpc, &self.host).await.map_err(|e| e.at(step))?;
        state.saw(observed.subsystem().is_some(), observed.connected);
        Ok(observed)
    }

    /// What the host has asked of a volume whose storage does not answer, or lets this DPU in no more, waits for ever, and the target
    /// waits for that before it takes a namespace away: not even its subsystem can be looked at then. Without the connection it fails.
    async fn give_up_what_waits(&self, id: &ExposureId) -> Result<(), RpcError> {
        let controllers = match self.rpc.call(&nvme::GetControllers {}).await {
            // A target that connects no volumes.
            Err(refused) if refused.code() == Some(METHOD_NOT_FOUND) => return Ok(()),
            found => found?,
        };
        let of_this = |name: &str| names::parse_connection(name).as_ref() == Some(id);
        let lost = controllers.iter().filter(|one| of_this(&one.name) && !one.ctrlrs.iter().any(|way| way.is_up()));
        for controller in lost {
            self.rpc.call(&nvme::DetachController { name: &controller.name }).await?;
        }
        Ok(())
    }

    /// Deletes the bdevs that lost their namespace. What the target does not release yet remains for the next time.
    async fn settle(&self, state: &mut State) -> Result<Observed, PortError> {
        let mut observed = self.observe(state, "list").await?;
        let unused: Vec<_> = observed.unused().map(|(id, bdev)| (id, bdev.clone())).collect();
        for (id, bdev) in unused {
            match backing::delete(&self.rpc, &bdev).await {
                Ok(()) => observed.bdevs.retain(|b| b.name != bdev.name),
                Err(e) if e.class() == ErrorClass::Busy => drop(state.leaving.insert(id)),
                Err(e) => return Err(e.at(&format!("{}: deleting it, which no namespace shows", bdev.name))),
            }
        }
        let still = |id: &ExposureId| {
            let name = names::bdev(id);
            observed.bdev(&name).is_some() || observed.disks().any(|(shown, _)| shown == *id)
        };
        state.leaving.retain(still);
        Ok(observed)
    }

    /// The host can come in to its disks: the last step of an expose, which may have been interrupted before it.
    async fn open(&self, observed: &Observed) -> bool {
        if observed.namespaces().is_empty() {
            return true;
        }
        let opened = self.host.listen(&self.rpc, &observed.subsystems).await;
        opened.inspect_err(|error| tracing::warn!(%error, "the host cannot come in to its disks")).is_ok()
    }
}

/// What the port promises to refuse.
pub(crate) fn check_disk(disk: &DiskFunction, bus: Bus, object: &str) -> Result<(), PortError> {
    let invalid = |what: &str| Err(PortError::new(ErrorClass::Invalid, format!("{object}: {what}")));
    if !names::is_valid_uid(&disk.id.uid) {
        return invalid("its UID may hold letters, digits, - and _ only");
    }
    if disk.serial.is_empty() || disk.serial.len() > SERIAL_BYTES || !disk.serial.is_ascii() {
        return invalid(&format!("serial {:?} is not 1 to {SERIAL_BYTES} ASCII bytes", disk.serial));
    }
    if uuid::Uuid::try_parse(&disk.uuid).is_err() {
        return invalid(&format!("{:?} is no UUID", disk.uuid));
    }
    if disk.bus != bus {
        let what = format!("{object}: this DPU presents disks as {bus:?}, not as {:?}", disk.bus);
        return Err(PortError::new(ErrorClass::Unsupported, what));
    }
    Ok(())
}

#[async_trait]
impl Emulation for SpdkEmulation {
    async fn capabilities(&self) -> Result<EmulationCapabilities, PortError> {
        let host = &self.inner.host;
        Ok(EmulationCapabilities {
            disks: host.namespaces(),
            nics: 0,
            hot_plug_ports: host.hot_plug,
            switch_ports: 0,
            buses: vec![Bus::NVMe],
            online_resize: vec![Bus::NVMe],
        })
    }

    /// Of a target that an agent before this one has made, what that was given.
    async fn boot_controller(&self) -> Result<Option<BootController>, PortError> {
        let mut state = self.inner.state.lock().await;
        let observed = self.inner.observe(&mut state, "the controller of the boot disk").await?;
        let host = &self.inner.host;
        let there = observed.subsystem().map(|subsystem| &subsystem.serial_number).filter(|serial| !serial.is_empty());
        Ok(Some(BootController {
            serial: there.unwrap_or(&host.serial).clone(),
            model: Some(host::MODEL.to_owned()),
            nsid: names::BOOT_NSID,
            eui64: names::eui64(&host.nqn, Slot::Boot),
            pci_address: None,
        }))
    }

    async fn list(&self) -> Result<Vec<Exposure>, PortError> {
        let mut state = self.inner.state.lock().await;
        let observed = self.inner.settle(&mut state).await?;
        let stranded = state.attendance.as_ref().is_some_and(Attendance::is_stranded);
        let open = self.inner.open(&observed).await;
        let exposure = |id: ExposureId, bdev: Option<&Bdev>| {
            let presence = match (state.leaving.contains(&id), stranded) {
                (true, _) => Presence::Leaving,
                (false, true) => Presence::Stranded,
                (false, false) if !open => Presence::Appearing,
                (false, false) => Presence::Present,
            };
            let (kind, size_bytes) = (FunctionKind::Disk, bdev.map(Bdev::size_bytes));
            let limits = bdev.map(Bdev::limits).unwrap_or_default();
            Exposure { id, kind, presence, size_bytes, limits, representor: None, link_up: None }
        };
        let shown = observed.disks().map(|(id, ns)| exposure(id, observed.bdev(&ns.bdev_name)));
        let mut listed: Vec<_> = shown.collect();
        // Gone from the host, and the storage under them is still in use.
        let lingering = state.leaving.iter().filter(|id| !observed.disks().any(|(shown, _)| shown == **id));
        listed.extend(lingering.map(|id| exposure(id.clone(), None)));
        Ok(listed)
    }

    async fn expose_disk(&self, disk: &DiskFunction) -> Result<(), PortError> {
        check_disk(disk, Bus::NVMe, &names::bdev(&disk.id))?;
        let told = self.inner.waiting.ask(disk);
        let mut state = self.inner.state.lock().await;
        self.inner.present(&mut state).await;
        drop(state);
        let given_up = || PortError::new(ErrorClass::Busy, format!("{}: another call gave up", names::bdev(&disk.id)));
        told.await.unwrap_or_else(|_| Err(given_up()))
    }

    async fn expose_nic(&self, nic: &NicFunction) -> Result<(), PortError> {
        let what = format!("{:?}: SPDK presents disks only", nic.id);
        Err(PortError::new(ErrorClass::Unsupported, what))
    }

    async fn set_link(&self, id: &ExposureId, _: bool) -> Result<(), PortError> {
        Err(PortError::new(ErrorClass::NotFound, format!("{id:?}: SPDK presents no NIC")))
    }

    async fn hide(&self, id: &ExposureId, kind: FunctionKind) -> Result<(), PortError> {
        if kind != FunctionKind::Disk {
            return Ok(());
        }
        let object = names::bdev(id);
        let mut state = self.inner.state.lock().await;
        self.inner.give_up_what_waits(id).await.map_err(|error| error.at(&object))?;
        let observed = self.inner.observe(&mut state, &object).await?;
        if let Some((_, ns)) = observed.disks().find(|(shown, _)| shown == id) {
            // From now on it must not count as present, even if no answer comes.
            state.leaving.insert(id.clone());
            if let Err(error) = state.places.forget(id) {
                tracing::warn!(%error, "{object}: its place stays written down");
            }
            let removed = self.inner.rpc.call(&RemoveNamespace { nqn: &self.inner.host.nqn, nsid: ns.nsid }).await;
            if let Err(error) = removed {
                // The storage may have gone under the request.
                self.inner.give_up_what_waits(id).await.map_err(|e| e.at(&object))?;
                let now = Observed::read(&self.inner.rpc, &self.inner.host).await.map_err(|e| e.at(&object))?;
                if now.disks().any(|(shown, _)| shown == *id) {
                    return Err(error.at(&object));
                }
            }
        }
        if let Some(bdev) = observed.bdevs.iter().find(|b| b.name == object) {
            match backing::delete(&self.inner.rpc, bdev).await {
                Ok(()) => drop(state.leaving.remove(id)),
                Err(e) if e.class() == ErrorClass::Busy => drop(state.leaving.insert(id.clone())),
                Err(e) => return Err(e.at(&object)),
            }
        }
        Ok(())
    }

    async fn resize_disk(&self, id: &ExposureId, size_bytes: u64) -> Result<(), PortError> {
        let object = names::bdev(id);
        let mut state = self.inner.state.lock().await;
        let observed = self.inner.observe(&mut state, &object).await?;
        let shown = observed.disks().find(|(shown, _)| shown == id);
        let Some(bdev) = shown.and_then(|(_, ns)| observed.bdev(&ns.bdev_name)) else {
            return Err(PortError::new(ErrorClass::NotFound, format!("{object}: the host does not have it")));
        };
        if bdev.size_bytes() == size_bytes {
            return Ok(());
        }
        backing::grow(&self.inner.rpc, bdev, size_bytes).await
    }

    async fn limit_disk(&self, id: &ExposureId, limits: &Limits) -> Result<(), PortError> {
        let object = names::bdev(id);
        let mut state = self.inner.state.lock().await;
        let observed = self.inner.observe(&mut state, &object).await?;
        if !observed.disks().any(|(shown, _)| shown == *id) {
            return Err(PortError::new(ErrorClass::NotFound, format!("{object}: the host does not have it")));
        }
        backing::limit(&self.inner.rpc, &object, *limits).await
    }

    async fn statistics(&self) -> Result<Vec<DiskStatistics>, PortError> {
        statistics::read(&self.inner.rpc).await.map_err(|error| error.at("statistics of the disks"))
    }

    async fn reads(&self, id: &ExposureId) -> Result<Option<u64>, PortError> {
        statistics::reads(&self.inner.rpc, id).await.map_err(|error| error.at("reads of a disk"))
    }

    async fn changed(&self) {
        self.inner.changed.notified().await;
    }
}
