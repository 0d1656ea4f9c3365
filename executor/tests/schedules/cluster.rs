//! What Kubernetes does beside: kubelets that connect volumes for holder pods, and the controller that attaches them.

use super::FOREIGN;
use super::time::{Ms, Process};
use super::world::{World, timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::{VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use model::Rests;
use planner::machine::observed::{name, uid};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

fn node(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

/// The claim's name, which is the volume's handle.
fn handle(pod: &Pod) -> Option<String> {
    let mut volumes = pod.spec.as_ref()?.volumes.iter().flatten();
    volumes.find_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.clone()))
}

fn attachment(pod: &Pod) -> String {
    format!("csi-{}", name(&pod.metadata))
}

fn pods(world: &World) -> Vec<Arc<Pod>> {
    world.objects().all::<Pod>().cloned().collect()
}

/// For ever, with a pause of the dice between two looks.
async fn every(world: Rc<World>, most: Ms, look: impl Fn(&World)) {
    loop {
        look(&world);
        world.time.sleep(200 + world.dice.below(most)).await;
    }
}

/// `down_until`: kube-controller-manager does not run before.
pub fn start(world: &Rc<World>, down_until: Rc<Cell<Ms>>) {
    let kubernetes = Process::new("kubernetes");
    let dpus: Vec<String> = world.site().servers.keys().cloned().collect();
    for dpu in dpus {
        let look = move |world: &World| kubelet(world, &dpu);
        world.time.spawn(&kubernetes, every(world.clone(), 800, look));
    }
    let look = move |world: &World| {
        if world.now() >= down_until.get() {
            attach_detach(world);
        }
    };
    world.time.spawn(&kubernetes, every(world.clone(), 800, look));
}

fn kubelet(world: &World, dpu: &str) {
    let server = world.server(dpu);
    let reaches = server.dpu_on && world.now() >= server.cut_until;
    drop(server);
    if !reaches {
        return;
    }
    let pods = pods(world);
    let own: Vec<&Arc<Pod>> = pods.iter().filter(|pod| node(pod) == dpu).collect();
    let stays = |pod_uid: &String| {
        own.iter().any(|pod| uid(&pod.metadata) == pod_uid && pod.metadata.deletion_timestamp.is_none())
    };
    let ends = !world.server(dpu).pods.keys().all(stays);
    if ends {
        world.server(dpu).pods.retain(|pod_uid, _| stays(pod_uid));
    }
    for pod in own {
        let names = (pod.metadata.namespace.as_deref().unwrap_or_default(), name(&pod.metadata));
        let rests = Rests::on_uid(uid(&pod.metadata));
        if pod.metadata.deletion_timestamp.is_some() {
            // It is gone already, or is deleted in the next look.
            let _ = world.objects().delete::<Pod>(names, &rests, Time(timestamp(world.now())), false);
            continue;
        }
        let attached = |handle: &String| {
            !world.site().volumes[handle].attaches
                || world.objects().get::<VolumeAttachment>("", &attachment(pod)).is_ok()
        };
        if let Some(handle) = handle(pod).filter(attached) {
            world.server(dpu).pods.insert(uid(&pod.metadata).to_owned(), handle);
            if pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running") {
                continue;
            }
            let runs = |pod: &mut Pod| pod.status.get_or_insert_default().phase = Some("Running".to_owned());
            // As above.
            let _ = world.objects().change(names, &rests, runs);
        }
    }
}

/// One VolumeAttachment for each pod; of a volume for one node, none for another's while there is one. Pods of a node that is
/// out of service are ended.
fn attach_detach(world: &World) {
    let pods = pods(world);
    let all: Vec<Arc<VolumeAttachment>> = world.objects().all::<VolumeAttachment>().cloned().collect();
    let own: Vec<&Arc<VolumeAttachment>> = all.iter().filter(|va| va.spec.attacher == FOREIGN).collect();
    let now = Time(timestamp(world.now()));
    for va in &own {
        let pod = pods.iter().find(|pod| attachment(pod) == name(&va.metadata));
        let volume = va.spec.source.persistent_volume_name.clone().unwrap_or_default();
        let in_use = world.server(&va.spec.node_name).pods.values().any(|handle| format!("pv-{handle}") == volume);
        if pod.is_none() && !in_use {
            let names = ("", name(&va.metadata));
            let _ = world.objects().delete::<VolumeAttachment>(names, &Rests::default(), now.clone(), false);
        }
    }
    for pod in &pods {
        let dpu = node(pod).to_owned();
        if world.server(&dpu).tainted && pod.metadata.deletion_timestamp.is_some() {
            let names = (pod.metadata.namespace.as_deref().unwrap_or_default(), name(&pod.metadata));
            let _ = world.objects().delete::<Pod>(names, &Rests::default(), now.clone(), false);
            continue;
        }
        let attaches = |handle: &String| world.site().volumes[handle].attaches;
        let Some(volume) = handle(pod).filter(attaches).map(|handle| format!("pv-{handle}")) else { continue };
        let taken = own.iter().any(|va| va.spec.source.persistent_volume_name.as_ref() == Some(&volume));
        if !taken {
            let metadata = ObjectMeta { name: Some(attachment(pod)), ..ObjectMeta::default() };
            let persistent_volume_name = Some(volume);
            let source = VolumeAttachmentSource { persistent_volume_name, ..VolumeAttachmentSource::default() };
            let spec = VolumeAttachmentSpec { attacher: FOREIGN.to_owned(), node_name: dpu, source };
            let _ = world.objects().create(VolumeAttachment { metadata, spec, status: None });
        }
    }
}
