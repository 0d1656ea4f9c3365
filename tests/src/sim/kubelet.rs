//! The kubelets of the DPUs' nodes: they run holder pods, and connect their volumes; and what an agent takes from one.

use super::api::path::Id;
use super::api::store::Part;
use super::host::Host;
use super::process::Process;
use super::scene::Scene;
use super::storage;
use async_trait::async_trait;
use planner::connector::{HolderPod, KUBELET};
use planner::exposure::ExposureId;
use ports::emulation::Backend;
use ports::volume::{Connection, Fence, Volume};
use ports::{ErrorClass, PortError, VolumeConnector};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const TAKES: Duration = Duration::from_millis(400);

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// For ever.
pub async fn run(scene: Arc<Scene>) {
    let mut changed = scene.server.changed.subscribe();
    loop {
        changed.borrow_and_update();
        for pod in scene.server.list("pods") {
            work(&scene, &pod);
        }
        if changed.changed().await.is_err() {
            return;
        }
        tokio::time::sleep(TAKES).await;
    }
}

fn work(scene: &Scene, pod: &Value) {
    let id = Id::new("pods", text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
    let node = text(pod, "/spec/nodeName");
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
        let volume = volume_of(scene, pod);
        let shown = |host: &Arc<Host>| {
            let device = Backend::Path(storage::path(&volume));
            host.dpu_name == node && host.dpu().disks().iter().any(|disk| disk.backend == device)
        };
        if scene.hosts.iter().any(shown) {
            scene.violated(format!("{id} is ended while {node} shows its volume"));
        }
        let now = json!({"gracePeriodSeconds": 0});
        scene.server.write(|store| store.delete(&id, &now).map(drop)).unwrap_or_default();
    } else if text(pod, "/status/phase").is_empty() {
        let mut running = pod.clone();
        running["status"] = json!({"phase": "Running"});
        // Deleted meanwhile: then there is nothing to say.
        let _ = scene.server.write(|store| store.update(&id, Part::Status, running));
    }
}

/// The PersistentVolume of a pod's claim.
fn volume_of(scene: &Scene, pod: &Value) -> String {
    let claim = text(pod, "/spec/volumes/0/persistentVolumeClaim/claimName");
    let claim = scene.server.get("persistentvolumeclaims", text(pod, "/metadata/namespace"), claim);
    claim.map(|claim| text(&claim, "/spec/volumeName").to_owned()).unwrap_or_default()
}

/// The agent's connector: what is mapped for the very pod that the grant names.
pub struct KubeletPart {
    pub process: Arc<Process>,
    pub host: Arc<Host>,
    pub dpu: Arc<super::host::Dpu>,
}

impl KubeletPart {
    fn is_mapped(&self, pod: &HolderPod) -> bool {
        let pods = self.process.scene.server.list("pods");
        pods.iter().any(|there| {
            text(there, "/metadata/uid") == pod.uid
                && text(there, "/status/phase") == "Running"
                && text(there, "/spec/nodeName") == self.host.dpu_name
        })
    }

    fn what(&self, verb: &str, id: &ExposureId) -> String {
        format!("{} {verb} {} {}", self.host.dpu_name, id.uid, id.epoch)
    }
}

fn lost<T>() -> Result<T, PortError> {
    Err(PortError::new(ErrorClass::Unreachable, "no answer in time"))
}

fn busy<T>() -> Result<T, PortError> {
    Err(PortError::new(ErrorClass::Busy, "not now"))
}

#[async_trait]
impl VolumeConnector for KubeletPart {
    fn driver(&self) -> &str {
        KUBELET
    }

    fn fence(&self) -> Fence {
        Fence::None
    }

    fn identity(&self, id: &ExposureId) -> String {
        format!("holder-pod.{}.{}", id.uid, id.epoch)
    }

    async fn connect(&self, id: &ExposureId, volume: &Volume) -> Result<Connection, PortError> {
        let pod = volume.holder.clone().unwrap_or_default();
        if !self.is_mapped(&pod) {
            let message = format!("no device of {} for pod {}", pod.persistent_volume_name, pod.uid);
            return Err(PortError::new(ErrorClass::NotFound, message));
        }
        let handle = storage::path(&pod.persistent_volume_name).display().to_string();
        let mapped = Volume { driver: KUBELET.to_owned(), handle, read_only: volume.read_only, ..Volume::default() };
        let (dpu, wanted) = (self.dpu.clone(), id.clone());
        let act = async move { dpu.kubelet.connect(&wanted, &mapped).await };
        self.process.effect(&self.what("connect", id), act, lost, busy).await
    }

    async fn list(&self) -> Result<Vec<Connection>, PortError> {
        self.process.travel().await;
        self.dpu.kubelet.list().await
    }

    async fn disconnect(&self, id: &ExposureId) -> Result<(), PortError> {
        let (dpu, wanted) = (self.dpu.clone(), id.clone());
        let act = async move { dpu.kubelet.disconnect(&wanted).await };
        self.process.effect(&self.what("disconnect", id), act, lost, busy).await
    }
}
