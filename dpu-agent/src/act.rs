//! One step, done. Each may be repeated, and each effect is observed before the next is planned.

use crate::cluster::{Cluster, bounded};
use crate::eraser::Erasers;
use crate::hold_disk::HoldDisks;
use crate::import::{Imports, Job, Place};
use crate::record::Record;
use crate::seed::Seeds;
use crate::status::Written;
use crate::watch::Desired;
use crate::{Ports, claim, finish};
use anyhow::Context;
use futures::future::join_all;
use planner::agent::{Import, Nic, Presentation, Recover, Shown, Step, Volume};
use planner::exposure::{ExposureId, Limits};
use ports::emulation::{Backend, DiskFunction, NicFunction};
use ports::switch::SwitchPort;
use ports::volume::Connection;
use ports::{ErrorClass, PortError, VolumeConnector};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// What is connected, by the driver: listed once for all that is presented in a round.
type Connected = BTreeMap<String, Result<Vec<Connection>, PortError>>;

/// All that a step needs but the API server.
pub struct Actor {
    pub dpu_name: String,
    pub boot_id: String,
    /// What no disk of this DPU may exceed.
    pub bounds: Limits,
    pub ports: Ports,
    pub record: Record,
    pub seeds: Seeds,
    pub erasers: Erasers,
    pub hold_disks: HoldDisks,
    pub imports: Imports,
    pub(crate) written: Written,
    pub wake: Arc<Notify>,
    /// The switch knows of this boot: what is left of another is gone. With the devices that were taken out by this run.
    sanitized: OnceLock<Vec<String>>,
}

/// The API server, once there is a session with it.
#[derive(Clone, Copy)]
pub(crate) struct Server<'a> {
    pub cluster: &'a Cluster,
    pub desired: &'a Desired,
}

impl Actor {
    pub fn open(
        dpu_name: &str,
        boot_id: &str,
        bounds: Limits,
        (run_dir, erasers, hold_disks): (&Path, Erasers, HoldDisks),
        ports: Ports,
        wake: Arc<Notify>,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            dpu_name: dpu_name.to_owned(),
            boot_id: boot_id.to_owned(),
            bounds,
            ports,
            record: Record::open(run_dir, boot_id).context("opening the record")?,
            seeds: Seeds::open(run_dir.join("seeds")).context("opening the seeds")?,
            erasers,
            hold_disks,
            imports: Imports::new(wake.clone()),
            written: Written::default(),
            wake,
            sanitized: OnceLock::new(),
        })
    }

    pub(crate) fn is_sanitized(&self) -> bool {
        self.sanitized.get().is_some()
    }

    /// What the switch could forward for until this run took it out: it was of an earlier boot.
    pub(crate) fn taken_late(&self) -> &[String] {
        self.sanitized.get().map(Vec::as_slice).unwrap_or_default()
    }

    /// Before anything is plugged, and as soon as the switch can be written.
    pub(crate) async fn sanitize(&self) -> Result<(), PortError> {
        if !self.is_sanitized() {
            let known: Vec<ExposureId> = self.record.all().into_values().map(|entry| entry.id).collect();
            let taken = self.ports.switch.begin_boot(&self.boot_id, &known).await?;
            self.sanitized.get_or_init(|| taken);
        }
        Ok(())
    }

    /// All at the same time: each is of another attachment.
    pub(crate) async fn take_all(&self, steps: &[&Step], server: Option<Server<'_>>) -> Vec<Result<(), PortError>> {
        let drivers = steps.iter().filter_map(|step| match step {
            Step::ExposeDisk { driver, .. } => driver.as_deref(),
            Step::StartImport { import, .. } => Some(import.volume.connector()),
            _ => None,
        });
        let connected = self.connected(drivers).await;
        join_all(steps.iter().map(|step| self.take(step, server, &connected))).await
    }

    async fn take(&self, step: &Step, server: Option<Server<'_>>, connected: &Connected) -> Result<(), PortError> {
        let needs_server = || {
            let message = format!("{}: there is no session with the API server", step.uid());
            server.ok_or_else(|| PortError::new(ErrorClass::Unreachable, message))
        };
        match step {
            Step::Claim { key, id, shown } => claim::claim(self, needs_server()?, key, id, *shown).await,
            Step::Connect { id, volume } => self.connect(id, volume).await,
            Step::WriteSeed { id, secret } => self.write_seed(needs_server()?.cluster, id, secret).await,
            Step::WriteEraser { id, machine } => self.write_eraser(&id.uid, machine).await,
            Step::WriteHoldDisk { id, machine } => self.write_hold_disk(&id.uid, machine).await,
            Step::ExposeDisk { id, presentation, driver, limits } => {
                let disk = disk(id, presentation, self.backend(connected, id, driver.as_deref())?, limits);
                self.will_be_shown(id)?;
                self.ports.emulation.expose_disk(&disk).await
            }
            Step::ExposeNic { id, nic } => {
                self.will_be_shown(id)?;
                if self.ports.pods.is_some() {
                    // A pair goes with its pod's namespace. One that is made anew has the same name, and the switch may still
                    // have the device before: its port would be in force, and no packet would pass.
                    self.ports.switch.unplug(id).await?;
                }
                let (id, mac, device) = (id.clone(), nic.mac.clone(), nic.representor.clone());
                self.ports.emulation.expose_nic(&NicFunction { id, mac, mtu: nic.mtu, device }).await
            }
            Step::Plug { id, nic, device } => {
                self.sanitize().await?;
                self.ports.switch.plug(&switch_port(id, nic, device)).await
            }
            Step::LinkUp { id } => self.ports.emulation.set_link(id, true).await,
            Step::LinkDown { id } => self.ports.emulation.set_link(id, false).await,
            Step::Resize { id, size_bytes } => self.ports.emulation.resize_disk(id, *size_bytes).await,
            Step::Limit { id, asked, limits } => {
                // First: what a crash leaves undone is seen by the emulation's own list.
                let recorded = self.record.limits(&id.uid, *asked);
                recorded.map_err(|error| file_error("recording the limits of", &id.uid, &error))?;
                self.ports.emulation.limit_disk(id, limits).await
            }
            Step::StartImport { id, import } => self.start_import(id, import, connected).await,
            Step::StopImport { id } => {
                self.imports.stop(&id.uid).await;
                Ok(())
            }
            Step::NoteRelease { id } => {
                self.record.note_release(id).map_err(|error| file_error("noting the release of", &id.uid, &error))
            }
            Step::Hide { id, kind } => self.ports.emulation.hide(id, *kind).await,
            Step::Unplug { id } => self.ports.switch.unplug(id).await,
            Step::Disconnect { id, driver } => self.connector(driver)?.disconnect(id).await,
            Step::RemoveSeed { uid } => self.seeds.remove(uid).map_err(|e| file_error("removing the seed of", uid, &e)),
            Step::Forget { uid } => self.forget(uid),
            Step::Finish { key } => finish::finish(self, needs_server()?, key).await,
        }
    }

    pub(crate) fn forget(&self, uid: &str) -> Result<(), PortError> {
        self.record.remove(uid).map_err(|error| file_error("removing from the record", uid, &error))
    }

    /// Before it is: what a crash leaves undone is looked for, what it leaves unsaid is not.
    fn will_be_shown(&self, id: &ExposureId) -> Result<(), PortError> {
        self.record.shown(&id.uid).map_err(|error| file_error("recording that the host is shown", &id.uid, &error))
    }

    pub(crate) fn connector(&self, driver: &str) -> Result<&Arc<dyn VolumeConnector>, PortError> {
        let missing = || PortError::new(ErrorClass::NotFound, format!("no connector for volumes of {driver}"));
        self.ports.connector(driver).ok_or_else(missing)
    }

    async fn connect(&self, id: &ExposureId, volume: &Volume) -> Result<(), PortError> {
        let wanted = ports::volume::Volume {
            driver: volume.driver.clone(),
            handle: volume.handle.clone(),
            attributes: volume.attributes.clone(),
            read_only: volume.read_only,
            holder: volume.holder.clone(),
        };
        self.connector(volume.connector())?.connect(id, &wanted).await.map(drop)
    }

    /// What is connected by these drivers now.
    async fn connected<'a>(&self, drivers: impl Iterator<Item = &'a str>) -> Connected {
        let drivers: BTreeSet<&str> = drivers.collect();
        let lists = drivers.into_iter().map(async |driver| {
            let listed = match self.connector(driver) {
                Ok(connector) => connector.list().await,
                Err(missing) => Err(missing),
            };
            (driver.to_owned(), listed)
        });
        join_all(lists).await.into_iter().collect()
    }

    /// Every disk that the host is to find, at once.
    pub(crate) async fn recover(&self, Recover { disks, partial }: &Recover) -> Result<(), PortError> {
        let connected = self.connected(disks.iter().filter_map(|shown| shown.driver.as_deref())).await;
        let disks = disks.iter().map(|Shown { id, presentation, driver, limits }| {
            Ok(disk(id, presentation, self.backend(&connected, id, driver.as_deref())?, limits))
        });
        self.ports.emulation.recover(&disks.collect::<Result<Vec<_>, PortError>>()?, *partial).await
    }

    /// What a disk stands on. `driver`: `None` for one that the agent makes itself.
    fn backend(&self, connected: &Connected, id: &ExposureId, driver: Option<&str>) -> Result<Backend, PortError> {
        match driver {
            Some(driver) => connection(connected, id, driver).map(|connection| connection.backend.clone()),
            None => Ok(Backend::Path(self.seeds.path(&id.uid))),
        }
    }

    async fn write_seed(&self, cluster: &Cluster, id: &ExposureId, secret: &str) -> Result<(), PortError> {
        let what = format!("reading Secret {secret} for a seed");
        let data = bounded(&what, cluster.secrets().get(secret)).await?.data.unwrap_or_default();
        let data = data.into_iter().map(|(key, value)| (key, value.0)).collect();
        // In memory, as the record: a few milliseconds, which no thread of its own would make shorter.
        self.seeds
            .write(&id.uid, &data)
            .map_err(|error| file_error(&format!("making a seed from Secret {secret} for"), &id.uid, &error))
    }

    async fn write_eraser(&self, uid: &str, machine: &str) -> Result<(), PortError> {
        let (erasers, seeds) = (self.erasers.clone(), self.seeds.clone());
        let (made_for, machine) = (uid.to_owned(), machine.to_owned());
        made("an eraser", uid, move || erasers.write(&seeds, &made_for, &machine)).await
    }

    async fn write_hold_disk(&self, uid: &str, machine: &str) -> Result<(), PortError> {
        let (disks, seeds) = (self.hold_disks.clone(), self.seeds.clone());
        let (made_for, machine) = (uid.to_owned(), machine.to_owned());
        made("a hold disk", uid, move || disks.write(&seeds, &made_for, &machine)).await
    }

    async fn start_import(&self, id: &ExposureId, import: &Import, connected: &Connected) -> Result<(), PortError> {
        let connection = connection(connected, id, import.volume.connector())?;
        let place = match &connection.backend {
            Backend::Path(path) => Place::Path(path.clone()),
            Backend::Bdev(_) | Backend::Rbd(_) | Backend::Nbd(_) => {
                let connector = self.connector(import.volume.connector())?;
                if let Some(why) = connector.import_refusal().await {
                    let what = format!("{}: no image can be imported into it: {why}", import.volume.handle);
                    return Err(PortError::new(ErrorClass::Unsupported, what));
                }
                Place::Connected(connector.clone(), id.clone())
            }
        };
        self.imports.start(
            &id.uid,
            Job {
                url: import.url.clone(),
                sha256: import.sha256.clone(),
                ca_bundle: import.ca_bundle.clone(),
                format: import.format,
                volume: import.volume.handle.clone(),
                place,
                size_bytes: connection.size_bytes,
            },
        );
        Ok(())
    }
}

fn connection<'a>(connected: &'a Connected, id: &ExposureId, driver: &str) -> Result<&'a Connection, PortError> {
    let gone = || PortError::new(ErrorClass::NotFound, format!("{} epoch {} is not connected", id.uid, id.epoch));
    let listed = connected.get(driver).ok_or_else(gone)?.as_ref().map_err(PortError::clone)?;
    listed.iter().find(|connection| connection.id == *id).ok_or_else(gone)
}

fn disk(id: &ExposureId, presentation: &Presentation, backend: Backend, limits: &Limits) -> DiskFunction {
    DiskFunction {
        id: id.clone(),
        bus: presentation.bus,
        slot: presentation.slot,
        serial: presentation.serial.clone(),
        uuid: presentation.uuid.clone(),
        backend,
        read_only: presentation.read_only,
        limits: *limits,
    }
}

/// A NIC's port, as it is plugged and as its guest is observed.
pub(crate) fn switch_port(id: &ExposureId, nic: &Nic, device: &str) -> SwitchPort {
    SwitchPort {
        id: id.clone(),
        device: device.to_owned(),
        mac: nic.mac.clone(),
        logical_port: nic.logical_port.clone(),
        version: id.version(),
    }
}

/// A disk of megabytes, by a thread of its own.
async fn made(what: &str, uid: &str, write: impl FnOnce() -> io::Result<()> + Send + 'static) -> Result<(), PortError> {
    let made = tokio::task::spawn_blocking(write).await;
    let made = made.unwrap_or_else(|panic| Err(io::Error::other(panic)));
    made.map_err(|error| file_error(&format!("making {what} for"), uid, &error))
}

pub(crate) fn file_error(what: &str, object: &str, error: &io::Error) -> PortError {
    port_error(imaging::Error::file(what, object, error))
}

pub(crate) fn port_error(error: imaging::Error) -> PortError {
    let class = match error.kind {
        imaging::Kind::Invalid => ErrorClass::Invalid,
        imaging::Kind::Unauthorized => ErrorClass::Unauthorized,
        imaging::Kind::NotFound => ErrorClass::NotFound,
        imaging::Kind::Busy => ErrorClass::Busy,
        imaging::Kind::Unreachable => ErrorClass::Unreachable,
    };
    PortError::new(class, error.message)
}
