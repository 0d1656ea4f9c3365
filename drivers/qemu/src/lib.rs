//! [`Emulation`] by QEMU's own device models, for virtual servers.
//!
//! The driver keeps no state that a restart would lose. What is presented, where, and for whom is read from QEMU each
//! time: device ids carry the attachment's UID and epoch ([`names`]). All verbs of one driver run one after the other.
//!
//! - *expose*: `blockdev-add` or `netdev_add`, then `device_add` into a port, then `block_set_io_throttle` for a disk with
//!   limits. Interrupted in between, it leaves a block node or a back end without a device, which the next `expose`,
//!   `hide` or `list` deals with; or a disk without its limits, which `list` tells.
//! - A NIC's *link* is down when its device is added, and `list` tells it ([`link`]).
//! - *hide* asks the host (`device_del`); a NIC loses its back end first, so that its traffic ends at once. When the
//!   host has let go, the block node is deleted, and only then does `list` stop to name the disk: its file is closed.
//!
//! Commands used: `qom-list`, `qom-get` (`parent_bus`, `drive`, `netdev`), `query-named-block-nodes`, `blockdev-add`,
//! `blockdev-del`, `block_resize`, `query-block`, `query-blockstats`, `block_set_io_throttle`, `netdev_add`, `netdev_del`, `set_link`, `object-add`, `object-del`, `device_add`,
//! `device_del`, and, if offered,
//! `human-monitor-command` with `info network`. Event: `DEVICE_DELETED`.

mod arguments;
pub mod images;
mod link;
pub mod names;
mod nbd;
mod observed;
pub mod qmp;
mod statistics;
mod throttle;

use async_trait::async_trait;
use observed::{Function, Observed};
use planner::exposure::{Bus, Exposure, ExposureId, FunctionKind, Limits, Presence, Slot};
use ports::{
    Emulation, ErrorClass, PortError,
    emulation::{Backend, BootController, DiskFunction, DiskStatistics, EmulationCapabilities, NicFunction},
};
use qmp::{Qmp, QmpError};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::{Mutex, broadcast::error::RecvError},
    task::AbortHandle,
};

/// QEMU answers in milliseconds; a `blockdev-add` on slow storage may take longer.
const LIMIT: Duration = Duration::from_secs(10);
/// How long QEMU may keep a block node after its device has gone, and how often to look.
const RELEASE_LIMIT: Duration = Duration::from_secs(10);
const RELEASE_LOOK: Duration = Duration::from_millis(50);
/// NVM Express Base Specification 2.0, figure 275 (SN); virtio 1.2 section 5.2.6 (VIRTIO_BLK_T_GET_ID) has the same.
const SERIAL_BYTES: usize = 20;
/// The port of the boot slot.
const BOOT_PORT: &str = "boot";
/// IFNAMSIZ - 1.
const INTERFACE_BYTES: usize = 15;

pub struct QemuEmulation {
    inner: Arc<Inner>,
    cleaning: AbortHandle,
}

struct Inner {
    qmp: Qmp,
    /// What the boot disk's controller will be called.
    boot_serial: Option<String>,
    /// Holding it is what makes verbs exclusive. The content: devices that this process asked to leave; QEMU does not
    /// tell. After a restart they count as present until they are hidden again.
    leaving: Mutex<BTreeSet<String>>,
}

impl QemuEmulation {
    /// `slots_socket`: a QMP socket of QEMU, or of a virtual server, which answers also while the host is off. Must be
    /// called inside a tokio runtime.
    pub fn new(slots_socket: impl Into<PathBuf>) -> Self {
        Self::with_boot_serial(slots_socket, None)
    }

    /// `boot_serial`: the serial number that boot disks come with, for as long as there is none.
    pub fn with_boot_serial(slots_socket: impl Into<PathBuf>, boot_serial: Option<String>) -> Self {
        let qmp = Qmp::new(slots_socket, LIMIT);
        let inner = Arc::new(Inner { qmp, boot_serial, leaving: Mutex::default() });
        let cleaning = tokio::spawn(clean_up_after_departures(inner.clone())).abort_handle();
        Self { inner, cleaning }
    }
}

impl Drop for QemuEmulation {
    fn drop(&mut self) {
        self.cleaning.abort();
    }
}

/// Closes a disk's file as soon as the host has let go, without waiting for the next `list`.
async fn clean_up_after_departures(inner: Arc<Inner>) {
    let mut events = inner.qmp.events();
    loop {
        match events.recv().await {
            Ok(event) if event.name == "DEVICE_DELETED" && event.data["device"].is_string() => {
                inner.clean_up(&event.data["device"]).await;
            }
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}

impl Inner {
    async fn observe(&self, step: &str) -> Result<Observed, PortError> {
        Observed::read(&self.qmp).await.map_err(|e| port_error(&self.qmp, step, &e))
    }

    async fn command(&self, command: &str, arguments: Value, object: &str) -> Result<(), PortError> {
        let result = self.qmp.execute(command, arguments).await;
        result.map(drop).map_err(|e| port_error(&self.qmp, &format!("{object}: {command}"), &e))
    }

    /// QEMU reports a device's end a moment before it releases the block node.
    async fn clean_up(&self, device: &Value) {
        let started = Instant::now();
        while started.elapsed() < RELEASE_LIMIT {
            let settled = self.settle(&mut *self.leaving.lock().await).await;
            match settled {
                Ok(observed) if observed.unused_nodes().is_empty() => return,
                Ok(_) => tokio::time::sleep(RELEASE_LOOK).await,
                Err(e) => {
                    tracing::warn!("cleaning up after {device}: {e}");
                    return;
                }
            }
        }
        tracing::warn!("cleaning up after {device}: QEMU still uses its block node after {RELEASE_LIMIT:?}");
    }

    /// Reads what is there and deletes what has lost its device; what QEMU does not release yet remains for the next
    /// time. Forgets departures that are complete.
    async fn settle(&self, leaving: &mut BTreeSet<String>) -> Result<Observed, PortError> {
        let mut observed = self.observe("list").await?;
        for node in observed.unused_nodes() {
            match self.command("blockdev-del", json!({"node-name": node}), &node).await {
                Ok(()) => observed.nodes.remove(&node),
                Err(e) if e.class == ErrorClass::Busy => continue,
                Err(e) => return Err(e),
            };
        }
        let netdevs = observed::unused_netdevs(&self.qmp).await.map_err(|e| port_error(&self.qmp, "list", &e))?;
        for netdev in netdevs {
            self.delete_netdev(&netdev).await?;
        }
        for id in observed.links_of_nobody() {
            self.note_link(&id, false, "list").await?;
        }
        leaving.retain(|name| observed.still_has(name));
        Ok(observed)
    }

    async fn delete_netdev(&self, netdev: &str) -> Result<(), PortError> {
        match self.qmp.execute("netdev_del", json!({"id": netdev})).await {
            Err(e) if !e.is_device_not_found() => Err(port_error(&self.qmp, &format!("{netdev}: netdev_del"), &e)),
            _ => Ok(()),
        }
    }

    /// `undo`: takes back what was made for the device, if QEMU refuses it.
    async fn add_device(&self, object: &str, device: Value, undo: (&str, Value)) -> Result<(), PortError> {
        let added = self.command("device_add", device, object).await;
        if let Err(e) = &added
            && e.class != ErrorClass::Unreachable
        {
            let (command, arguments) = undo;
            self.command(command, arguments, object).await?;
        }
        added
    }
}

/// `Ok(true)`: it is there already.
fn already_there(
    observed: &Observed,
    leaving: &BTreeSet<String>,
    kind: FunctionKind,
    id: &ExposureId,
) -> Result<bool, PortError> {
    let name = names::device(kind, id);
    let Some(present) = observed.function(kind, &id.uid) else { return Ok(false) };
    if present.id.epoch != id.epoch {
        let message = format!("{name}: QEMU presents epoch {} of it in port {}", present.id.epoch, present.port);
        return Err(PortError::new(ErrorClass::Conflict, message));
    }
    if leaving.contains(&name) {
        let message = format!("{name}: it is still leaving port {}; the host has not let go of it", present.port);
        return Err(PortError::new(ErrorClass::Busy, message));
    }
    Ok(true)
}

fn free_port(observed: &Observed, slot: Slot, object: &str) -> Result<String, PortError> {
    let fixed = match slot {
        Slot::HotPlug => {
            let ports = observed.hot_plug_ports();
            let free = ports.iter().find(|(_, occupant)| occupant.is_none());
            let none =
                || PortError::new(ErrorClass::Busy, format!("{object}: all {} hot-plug ports are taken", ports.len()));
            return free.map(|(name, _)| (*name).clone()).ok_or_else(none);
        }
        Slot::Boot => BOOT_PORT,
        Slot::Seed => "seed",
    };
    match observed.ports.get(fixed) {
        Some(None) => Ok(fixed.to_owned()),
        Some(Some(occupant)) => {
            Err(PortError::new(ErrorClass::Busy, format!("{object}: {occupant} sits in port {fixed}")))
        }
        None => Err(PortError::new(ErrorClass::Unsupported, format!("{object}: the host has no PCIe port {fixed}"))),
    }
}

fn invalid(object: &str, what: &str) -> PortError {
    PortError::new(ErrorClass::Invalid, format!("{object}: {what}"))
}

/// The class follows from QEMU's words: its error classes say no more than `GenericError`.
fn port_error(qmp: &Qmp, step: &str, error: &QmpError) -> PortError {
    let class = match error {
        QmpError::Unreachable(_) => ErrorClass::Unreachable,
        QmpError::Refused { class, .. } if class == "DeviceNotFound" => ErrorClass::NotFound,
        QmpError::Refused { class, .. } if class == "CommandNotFound" => ErrorClass::Unsupported,
        QmpError::Refused { description, .. } => classify(description),
    };
    match error {
        QmpError::Unreachable(cause) => PortError::new(class, format!("{step}: {cause}")),
        QmpError::Refused { description, .. } => {
            PortError::new(class, format!("{step}: QEMU at {}: {description}", qmp.socket().display()))
        }
    }
}

fn classify(description: &str) -> ErrorClass {
    let says = |words: &[&str]| words.iter().any(|w| description.contains(w));
    // A virtual server's words when its QEMU ends under a command.
    if says(&["went off during", "did not answer"]) {
        ErrorClass::Unreachable
    } else if says(&["No such file", "Failed to find node", "not found"]) {
        ErrorClass::NotFound
    } else if says(&["in use", "lock", "guest is busy", "busy", "starting"]) {
        ErrorClass::Busy
    } else if says(&["Duplicate"]) {
        ErrorClass::Conflict
    } else {
        ErrorClass::Invalid
    }
}

fn exposure(function: &Function, observed: &Observed, leaving: &BTreeSet<String>) -> Exposure {
    let is_leaving = leaving.contains(&names::device(function.kind, &function.id));
    let presence = if is_leaving { Presence::Leaving } else { Presence::Present };
    let representor = names::parse_netdev(&function.backend).map(|(_, representor)| representor.to_owned());
    let size_bytes = observed.size(&function.backend);
    let limits = observed.limits.get(&function.backend).copied().unwrap_or_default();
    let link_up = (function.kind == FunctionKind::Nic).then(|| observed.links.contains(&function.id));
    Exposure { id: function.id.clone(), kind: function.kind, presence, size_bytes, limits, representor, link_up }
}

#[async_trait]
impl Emulation for QemuEmulation {
    async fn capabilities(&self) -> Result<EmulationCapabilities, PortError> {
        let observed = self.inner.observe("capabilities").await?;
        let hot_plug_ports = u32::try_from(observed.hot_plug_ports().len()).unwrap_or(u32::MAX);
        let fixed = [BOOT_PORT, "seed"].iter().filter(|port| observed.ports.contains_key(**port)).count();
        Ok(EmulationCapabilities {
            disks: hot_plug_ports.saturating_add(u32::try_from(fixed).unwrap_or(0)),
            nics: hot_plug_ports,
            hot_plug_ports,
            switch_ports: 0,
            buses: vec![Bus::NVMe, Bus::VirtioBlk],
            online_resize: vec![Bus::VirtioBlk],
        })
    }

    /// QEMU's NVMe device with a drive of its own has one namespace, without an EUI-64.
    async fn boot_controller(&self) -> Result<Option<BootController>, PortError> {
        let step = "the controller of the boot disk";
        let observed = self.inner.observe(step).await?;
        let serial = match observed.functions.iter().find(|f| f.kind == FunctionKind::Disk && f.port == BOOT_PORT) {
            Some(disk) => {
                let serial = observed::serial(&self.inner.qmp, &names::device(disk.kind, &disk.id)).await;
                serial.map_err(|e| port_error(&self.inner.qmp, step, &e))?
            }
            None => None,
        };
        let serial = serial.or_else(|| self.inner.boot_serial.clone());
        Ok(serial.map(|serial| BootController {
            serial,
            model: Some("QEMU NVMe Ctrl".to_owned()),
            nsid: 1,
            eui64: None,
            pci_address: None,
        }))
    }

    async fn list(&self) -> Result<Vec<Exposure>, PortError> {
        let mut leaving = self.inner.leaving.lock().await;
        let observed = self.inner.settle(&mut leaving).await?;
        let mut exposures: Vec<_> = observed.functions.iter().map(|f| exposure(f, &observed, &leaving)).collect();
        // Their devices are gone and their files are still open.
        let lingering = leaving.iter().filter_map(|name| names::parse_device(name));
        for (kind, id) in lingering.filter(|(kind, id)| observed.function(*kind, &id.uid).is_none()) {
            let presence = Presence::Leaving;
            let limits = Limits::default();
            let (size_bytes, representor, link_up) = (None, None, None);
            exposures.push(Exposure { id, kind, presence, size_bytes, limits, representor, link_up });
        }
        Ok(exposures)
    }

    async fn statistics(&self) -> Result<Vec<DiskStatistics>, PortError> {
        statistics::read(&self.inner.qmp).await.map_err(|e| port_error(&self.inner.qmp, "statistics of the disks", &e))
    }

    async fn expose_disk(&self, disk: &DiskFunction) -> Result<(), PortError> {
        let object = names::device(FunctionKind::Disk, &disk.id);
        if !names::is_valid_uid(&disk.id.uid) {
            return Err(invalid(&object, "its UID may hold letters, digits, - and _ only"));
        }
        if disk.serial.is_empty() || disk.serial.len() > SERIAL_BYTES || !disk.serial.is_ascii() {
            return Err(invalid(&object, &format!("serial {:?} is not 1 to {SERIAL_BYTES} ASCII bytes", disk.serial)));
        }
        let leaving = self.inner.leaving.lock().await;
        let observed = self.inner.observe(&object).await?;
        if already_there(&observed, &leaving, FunctionKind::Disk, &disk.id)? {
            return Ok(());
        }
        let port = free_port(&observed, disk.slot, &object)?;
        let node = names::node(&disk.id.uid);
        let drop_node = || ("blockdev-del", json!({"node-name": node}));
        if observed.nodes.contains_key(&node) {
            // Left by an interrupted expose, perhaps of another epoch with another file.
            let (command, arguments) = drop_node();
            self.inner.command(command, arguments, &object).await?;
        }
        let layer = match &disk.backend {
            Backend::Path(path) => arguments::file(path, is_block_device(path).await),
            Backend::Rbd(source) => arguments::rbd(source),
            Backend::Nbd(export) => arguments::nbd(export),
            Backend::Bdev(_) => {
                let what = format!("{object}: QEMU presents files, block devices and images, not {:?}", disk.backend);
                return Err(PortError::new(ErrorClass::Unsupported, what));
            }
        };
        self.inner.command("blockdev-add", arguments::block_node(disk, layer), &object).await?;
        self.inner.add_device(&object, arguments::disk(disk, &port), drop_node()).await?;
        match throttle::arguments(&object, arguments::disk_model(disk.bus), &disk.limits) {
            Some(arguments) if !disk.limits.is_empty() => {
                self.inner.command("block_set_io_throttle", arguments, &object).await
            }
            _ => Ok(()),
        }
    }

    async fn expose_nic(&self, nic: &NicFunction) -> Result<(), PortError> {
        let object = names::device(FunctionKind::Nic, &nic.id);
        if !names::is_valid_uid(&nic.id.uid) {
            return Err(invalid(&object, "its UID may hold letters, digits, - and _ only"));
        }
        if nic.device.is_empty() || nic.device.len() > INTERFACE_BYTES {
            return Err(invalid(&object, &format!("{:?} is not 1 to {INTERFACE_BYTES} bytes", nic.device)));
        }
        let leaving = self.inner.leaving.lock().await;
        let observed = self.inner.observe(&object).await?;
        if already_there(&observed, &leaving, FunctionKind::Nic, &nic.id)? {
            return Ok(());
        }
        let port = free_port(&observed, Slot::HotPlug, &object)?;
        let netdev = names::netdev(&nic.id, &nic.device);
        // An interrupted expose may have left it; no device uses it.
        self.inner.delete_netdev(&netdev).await?;
        if observed.links.contains(&nic.id) {
            self.inner.note_link(&nic.id, false, &object).await?;
        }
        self.inner.command("netdev_add", arguments::tap(nic), &object).await?;
        // Before there is a device, so that nothing ever passes; and once more for the device's own, which the host sees.
        self.inner.set_link(&netdev, false, &object).await?;
        let undo = ("netdev_del", json!({"id": netdev}));
        self.inner.add_device(&object, arguments::nic(nic, &port), undo).await?;
        self.inner.set_link(&netdev, false, &object).await
    }

    async fn set_link(&self, id: &ExposureId, up: bool) -> Result<(), PortError> {
        let object = names::device(FunctionKind::Nic, id);
        let _exclusive = self.inner.leaving.lock().await;
        let observed = self.inner.observe(&object).await?;
        let Some(function) = observed.function(FunctionKind::Nic, &id.uid).filter(|f| f.id == *id) else {
            return Err(PortError::new(ErrorClass::NotFound, format!("{object}: QEMU does not present it")));
        };
        self.inner.set_link(&function.backend, up, &object).await?;
        if observed.links.contains(id) == up {
            return Ok(());
        }
        self.inner.note_link(id, up, &object).await
    }

    async fn hide(&self, id: &ExposureId, kind: FunctionKind) -> Result<(), PortError> {
        let object = names::device(kind, id);
        let mut leaving = self.inner.leaving.lock().await;
        let observed = self.inner.settle(&mut leaving).await?;
        let Some(function) = observed.function(kind, &id.uid).filter(|f| f.id.epoch == id.epoch) else {
            return Ok(());
        };
        if kind == FunctionKind::Nic && !function.backend.is_empty() {
            self.inner.delete_netdev(&function.backend).await?;
        }
        match self.inner.qmp.execute("device_del", json!({"id": object})).await {
            Ok(_) => {}
            Err(e) if e.is_device_not_found() || e.description().contains("process of unplug") => {}
            Err(e) => return Err(port_error(&self.inner.qmp, &format!("{object}: device_del"), &e)),
        }
        leaving.insert(object);
        Ok(())
    }

    async fn resize_disk(&self, id: &ExposureId, size_bytes: u64) -> Result<(), PortError> {
        let object = names::device(FunctionKind::Disk, id);
        let _exclusive = self.inner.leaving.lock().await;
        let observed = self.inner.observe(&object).await?;
        let Some(function) = observed.function(FunctionKind::Disk, &id.uid).filter(|f| f.id == *id) else {
            return Err(PortError::new(ErrorClass::NotFound, format!("{object}: QEMU does not present it")));
        };
        if observed.nodes.get(&function.backend) == Some(&size_bytes) {
            return Ok(());
        }
        if function.model == arguments::disk_model(Bus::NVMe) {
            let why =
                "QEMU cannot resize under its own NVMe device; the host sees the new size at its next power cycle";
            return Err(PortError::new(ErrorClass::Unsupported, format!("{object}: {why}")));
        }
        self.inner.command("block_resize", json!({"node-name": function.backend, "size": size_bytes}), &object).await
    }

    async fn limit_disk(&self, id: &ExposureId, limits: &Limits) -> Result<(), PortError> {
        let object = names::device(FunctionKind::Disk, id);
        let _exclusive = self.inner.leaving.lock().await;
        let observed = self.inner.observe(&object).await?;
        let Some(function) = observed.function(FunctionKind::Disk, &id.uid).filter(|f| f.id == *id) else {
            return Err(PortError::new(ErrorClass::NotFound, format!("{object}: QEMU does not present it")));
        };
        let Some(arguments) = throttle::arguments(&object, &function.model, limits) else {
            let why = "QEMU limits the bandwidth in both directions together, or in each, but not both at once";
            return Err(PortError::new(ErrorClass::Unsupported, format!("{object}: {limits}: {why}")));
        };
        self.inner.command("block_set_io_throttle", arguments, &object).await
    }
}

/// QEMU wants another driver for a block device. What cannot be read here is reported by QEMU, which opens it.
async fn is_block_device(path: &std::path::Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    tokio::fs::metadata(path).await.is_ok_and(|m| m.file_type().is_block_device())
}
