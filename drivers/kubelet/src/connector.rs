//! The port itself: each verb runs on a blocking thread with a time limit, since whatever is below kubelet's folder may hang.

use crate::device::{self, Places};
use crate::records::{Record, Records};
use async_trait::async_trait;
use planner::connector::{HolderPod, KUBELET};
use planner::exposure::ExposureId;
use ports::emulation::Backend;
use ports::volume::{Connection, Fence, Volume};
use ports::{ErrorClass, PortError, VolumeConnector};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// After this kubelet's folder counts as unreachable; the thread that hangs is left to the kernel.
const LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug, Clone)]
pub struct KubeletConnector {
    places: Places,
    records: Records,
}

impl KubeletConnector {
    /// `kubelet`: its root directory, `/var/lib/kubelet`. `records` has to be forgotten by a reboot; it is made if it is
    /// missing.
    pub fn new(kubelet: PathBuf, records: PathBuf) -> Self {
        let places = Places { kubelet, block_devices: "/sys/dev/block".into() };
        Self { places, records: Records::new(records) }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        what: String,
        step: impl FnOnce(&Self, &str) -> Result<T, PortError> + Send + 'static,
    ) -> Result<T, PortError> {
        let this = self.clone();
        let named = what.clone();
        let thread = tokio::task::spawn_blocking(move || step(&this, &named));
        match tokio::time::timeout(LIMIT, thread).await {
            Ok(Ok(result)) => result,
            Ok(Err(join)) => Err(PortError::new(ErrorClass::Invalid, format!("{what}: {join}"))),
            Err(_) => {
                let cause = format!("kubelet's folder did not answer within {} s", LIMIT.as_secs());
                Err(PortError::new(ErrorClass::Unreachable, format!("{what}: {cause}")))
            }
        }
    }
}

#[async_trait]
impl VolumeConnector for KubeletConnector {
    fn driver(&self) -> &str {
        KUBELET
    }

    fn fence(&self) -> Fence {
        Fence::None
    }

    /// What the storage sees is the CSI driver's own identity on this node; this one names the attachment, for people.
    fn identity(&self, id: &ExposureId) -> String {
        format!("holder-pod.{}.{}", id.uid, id.epoch)
    }

    async fn connect(&self, id: &ExposureId, volume: &Volume) -> Result<Connection, PortError> {
        let (id, volume) = (id.clone(), volume.clone());
        let what = format!("taking volume {} from kubelet for {} epoch {}", volume.handle, id.uid, id.epoch);
        self.blocking(what, move |this, what| connect(this, &id, &volume, what)).await
    }

    /// A connection whose device has gone is listed with size 0: it may still be exposed.
    async fn list(&self) -> Result<Vec<Connection>, PortError> {
        let what = "listing the volumes that kubelet has connected".to_owned();
        self.blocking(what, |this, what| {
            let records = this.records.all().map_err(|error| failed(what, &error))?;
            records.iter().map(|record| connection(&this.places, record, what)).collect()
        })
        .await
    }

    /// kubelet disconnects when the holder pod goes, after this.
    async fn disconnect(&self, id: &ExposureId) -> Result<(), PortError> {
        let id = id.clone();
        let what = format!("giving the volume of {} epoch {} back to kubelet", id.uid, id.epoch);
        self.blocking(what, move |this, what| {
            check_name("the UID", &id.uid, what)?;
            let io = |error: io::Error| failed(what, &error);
            let _lock = this.records.lock().map_err(io)?;
            this.records.remove(&id).map_err(io)
        })
        .await
    }
}

fn failed(what: &str, error: &io::Error) -> PortError {
    let class = match error.kind() {
        io::ErrorKind::NotFound => ErrorClass::NotFound,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ErrorClass::Busy,
        io::ErrorKind::InvalidData => ErrorClass::Invalid,
        io::ErrorKind::StorageFull | io::ErrorKind::ResourceBusy => ErrorClass::Busy,
        _ => ErrorClass::Unreachable,
    };
    PortError::new(class, format!("{what}: {error}"))
}

/// It becomes part of a path.
fn check_name(which: &str, name: &str, what: &str) -> Result<(), PortError> {
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    if (1..=253).contains(&name.len()) && name.bytes().all(known) && !name.starts_with('.') {
        return Ok(());
    }
    let cause = format!("{which} {name:?} is not 1 to 253 of a-z, 0-9, - and .");
    Err(PortError::new(ErrorClass::Invalid, format!("{what}: {cause}")))
}

fn connect(this: &KubeletConnector, id: &ExposureId, volume: &Volume, what: &str) -> Result<Connection, PortError> {
    let io = |error: io::Error| failed(what, &error);
    let refused = |cause: String| PortError::new(ErrorClass::Conflict, format!("{what}: {cause}"));
    let none = || PortError::new(ErrorClass::Invalid, format!("{what}: no holder pod is named"));
    let pod = volume.holder.as_ref().ok_or_else(none)?;
    for (which, name) in
        [("the UID", &id.uid), ("the pod's UID", &pod.uid), ("the volume", &pod.persistent_volume_name)]
    {
        check_name(which, name, what)?;
    }
    let _lock = this.records.lock().map_err(io)?;
    let all = this.records.all().map_err(io)?;
    if let Some(there) = all.iter().find(|record| record.id == *id) {
        if (&there.pod, there.read_only) != (pod, volume.read_only) {
            let name = &there.pod.persistent_volume_name;
            return Err(refused(format!("connected already, to {name} (read-only: {})", there.read_only)));
        }
        let connection = connection(&this.places, there, what)?;
        return if connection.size_bytes > 0 { Ok(connection) } else { Err(not_mapped(pod, what)) };
    }
    let shared = |record: &&Record| {
        record.pod.persistent_volume_name == pod.persistent_volume_name && !(record.read_only && volume.read_only)
    };
    if let Some(other) = all.iter().find(shared) {
        return Err(refused(format!("{} epoch {} has it connected on this DPU", other.id.uid, other.id.epoch)));
    }
    let device = device::find(&this.places, pod).map_err(io)?.ok_or_else(|| not_mapped(pod, what))?;
    let record = Record { id: id.clone(), pod: pod.clone(), device, read_only: volume.read_only };
    let connection = connection(&this.places, &record, what)?;
    if connection.size_bytes == 0 {
        return Err(not_mapped(pod, what));
    }
    this.records.write(&record).map_err(io)?;
    Ok(connection)
}

fn not_mapped(pod: &HolderPod, what: &str) -> PortError {
    let (name, uid) = (&pod.persistent_volume_name, &pod.uid);
    let cause = format!("kubelet has no block device of PersistentVolume {name} for the pod with UID {uid}");
    PortError::new(ErrorClass::NotFound, format!("{what}: {cause}"))
}

fn connection(places: &Places, record: &Record, what: &str) -> Result<Connection, PortError> {
    let size_bytes = device::size(places, &record.device).map_err(|error| failed(what, &error))?;
    Ok(Connection { id: record.id.clone(), backend: Backend::Path(record.device.clone()), size_bytes })
}
