//! The kubelets of the DPUs' nodes: they run holder pods, and connect their volumes; and what an agent takes from one.

use super::api::path::Id;
use super::api::store::Part;
use super::csi::{Answer, Call, Manners};
use super::host::{FOREIGN, Host};
use super::process::Process;
use super::scene::Scene;
use super::storage;
use api::labels;
use async_trait::async_trait;
use planner::connector::{HolderPod, KUBELET};
use planner::exposure::ExposureId;
use ports::emulation::Backend;
use ports::volume::{Connection, Fence, Volume};
use ports::{ErrorClass, PortError, VolumeConnector};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const ATTACHMENTS: &str = "storage.k8s.io/volumeattachments";
const TAKES: Duration = Duration::from_millis(400);
/// How soon a driver is asked again that has not answered, or refused.
const AGAIN: Duration = Duration::from_secs(2);

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// For ever.
pub async fn run(scene: Arc<Scene>) {
    loop {
        let turn = scene.server.changed.turn();
        let pods = scene.server.list("pods");
        // Other pods connect nothing.
        let holders = pods.iter().filter(|pod| pod["metadata"]["labels"].get(labels::HOLDER_POD).is_some());
        let pending = holders.filter(|pod| !work(&scene, pod)).count();
        detach(&scene);
        let again = if pending > 0 { AGAIN } else { Duration::MAX };
        if tokio::time::timeout(again, scene.server.changed.changed(turn)).await.is_ok() {
            tokio::time::sleep(TAKES).await;
        }
    }
}

/// `false`: it is to be looked at again.
fn work(scene: &Arc<Scene>, pod: &Value) -> bool {
    let id = Id::new("pods", text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
    let (node, uid) = (text(pod, "/spec/nodeName"), text(pod, "/metadata/uid"));
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
        let volume = volume_of(scene, pod);
        let shown = |host: &Arc<Host>| {
            let device = Backend::Path(storage::path(&volume));
            host.dpu_name == node && host.dpu().disks().iter().any(|disk| disk.backend == device)
        };
        if scene.hosts.iter().any(shown) {
            scene.violated(format!("{id} is ended while {node} shows its volume"));
        }
        if !answered(scene, pod, Call::Unmap) {
            return false;
        }
        let now = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
        scene.server.write(|store| store.delete(&id, &now).map(drop)).unwrap_or_default();
    } else if text(pod, "/status/phase").is_empty() {
        if !attached(scene, pod) || !answered(scene, pod, Call::Map) {
            return false;
        }
        let mut running = pod.clone();
        running["status"] = json!({"phase": "Running"});
        running["metadata"].as_object_mut().expect("it has one").remove("resourceVersion");
        let tell = move |scene: &Scene| {
            // Deleted meanwhile: then there is nothing to say.
            let _ = scene.server.write(|store| store.update(&id, Part::Status, running.clone()));
        };
        tell(scene);
        if scene.driver.manners() == Manners::Twice {
            let scene = scene.clone();
            tokio::spawn(async move {
                tokio::time::sleep(AGAIN).await;
                tell(&scene);
            });
        }
    }
    true
}

/// Asks the driver's plug-in; what it refuses with is told.
fn answered(scene: &Scene, pod: &Value, call: Call) -> bool {
    match scene.driver.ask(text(pod, "/metadata/uid"), call) {
        Answer::Done => true,
        Answer::None => false,
        Answer::Failed(message) => {
            let (namespace, count) = (text(pod, "/metadata/namespace"), scene.server.list("events").len());
            let id = Id::new("events", namespace, &format!("{}.{count}", text(pod, "/metadata/name")));
            let event = json!({
                "apiVersion": "v1", "kind": "Event", "metadata": {"name": id.name},
                "involvedObject": {"uid": text(pod, "/metadata/uid")},
                "message": format!("MapVolume failed: {message}"),
                "lastTimestamp": runtime::clock::now().to_string(),
            });
            scene.server.write(|store| store.create(&id, event)).expect("its name is new");
            false
        }
    }
}

/// kube-controller-manager's part: one node at a time has a volume, by a VolumeAttachment in its driver's name.
fn attached(scene: &Scene, pod: &Value) -> bool {
    let (volume, node) = (volume_of(scene, pod), text(pod, "/spec/nodeName"));
    let all = scene.server.list(ATTACHMENTS);
    let of_it = |va: &&Arc<Value>| {
        text(va, "/spec/source/persistentVolumeName") == volume && text(va, "/spec/attacher") == FOREIGN
    };
    let nodes: Vec<&str> = all.iter().filter(of_it).map(|va| text(va, "/spec/nodeName")).collect();
    if !nodes.is_empty() {
        return nodes.contains(&node);
    }
    let id = Id::new(ATTACHMENTS, "", &format!("csi-{volume}"));
    let va = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": id.name},
        "spec": {"attacher": FOREIGN, "nodeName": node, "source": {"persistentVolumeName": volume}},
        "status": {"attached": true},
    });
    scene.server.write(|store| store.create(&id, va)).expect("its name is new");
    true
}

/// Of the nodes that are DPUs: what no pod needs any more.
fn detach(scene: &Scene) {
    let pods = scene.server.list("pods");
    for va in scene.server.list(ATTACHMENTS) {
        let (volume, node) = (text(&va, "/spec/source/persistentVolumeName"), text(&va, "/spec/nodeName"));
        let ours = text(&va, "/spec/attacher") == FOREIGN && scene.hosts.iter().any(|host| host.dpu_name == node);
        let needed = pods.iter().any(|pod| text(pod, "/spec/nodeName") == node && volume_of(scene, pod) == volume);
        if ours && !needed {
            let id = Id::new(ATTACHMENTS, "", text(&va, "/metadata/name"));
            scene.server.write(|store| store.delete(&id, &Value::Null)).expect("it was listed");
        }
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
