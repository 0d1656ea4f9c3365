//! Holder pods, the kubelets that run them, and what Kubernetes attaches for them.

use super::act::Conflict;
use super::world::{DRIVER, World};
use crate::machine::observed::{HolderPodSeen, label, name};
use crate::machine::plan;
use crate::machine::plan::Target;
use api::labels;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::{VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;

/// What Kubernetes' own attachments are called.
const ATTACHED: &str = "csi-";

#[derive(Debug, Clone)]
pub struct HolderPod {
    machine_uid: String,
    attachment_uid: String,
    node: String,
    volume: Option<String>,
    target: Target,
    running: bool,
    ended: bool,
    deleting: bool,
}

impl World {
    pub fn holder_pods_of(&self, machine_uid: &str) -> Vec<HolderPodSeen> {
        let seen = |pod: &HolderPod| HolderPodSeen {
            target: pod.target.clone(),
            attachment_uid: pod.attachment_uid.clone(),
            node: pod.node.clone(),
            // A pod has one phase.
            running: pod.running && !pod.ended,
            ended: pod.ended,
            deleting: pod.deleting,
            message: String::new(),
        };
        self.holder_pods.values().filter(|pod| pod.machine_uid == machine_uid).map(seen).collect()
    }

    pub fn create_holder_pod(&mut self, pod: &Pod) -> Result<(), Conflict> {
        let (meta, spec) = (&pod.metadata, pod.spec.as_ref().expect("a spec"));
        let name = name(meta).to_owned();
        if self.holder_pods.contains_key(&name) {
            return Err(Conflict);
        }
        let word = |key: &str| label(meta, key).unwrap_or_default().to_owned();
        let target = Target { namespace: "team".to_owned(), name: name.clone(), uid: self.fresh_uid() };
        let claim = spec.volumes.iter().flatten().find_map(|volume| volume.persistent_volume_claim.as_ref());
        let claim = claim.and_then(|claim| self.claims.get(&claim.claim_name));
        let volume = claim.and_then(|claim| claim.spec.as_ref()?.volume_name.clone());
        let pod = HolderPod {
            volume,
            machine_uid: word(labels::MACHINE_UID),
            attachment_uid: word(labels::ATTACHMENT_UID),
            node: spec.node_name.clone().expect("it names its node"),
            target,
            running: false,
            ended: false,
            deleting: false,
        };
        self.holder_pods.insert(name, pod);
        Ok(())
    }

    pub fn delete_holder_pod(&mut self, target: &Target, node_is_down: bool) -> Result<(), Conflict> {
        let pod = self.holder_pods.get_mut(&target.name).filter(|pod| pod.target.uid == target.uid);
        pod.ok_or(Conflict)?.deleting = true;
        if node_is_down {
            self.holder_pods.remove(&target.name);
        }
        Ok(())
    }

    /// Step 10: gone, or asked to go; at once where its node is proven down.
    pub fn end_holder_pod(&mut self, recorded: &str, node_is_down: bool) -> Result<(), Conflict> {
        let name = recorded.rsplit('/').next().unwrap_or_default();
        if node_is_down {
            self.holder_pods.remove(name);
        }
        match self.holder_pods.get_mut(name) {
            Some(pod) => {
                pod.deleting = true;
                Err(Conflict)
            }
            None => Ok(()),
        }
    }

    /// The `n`th pod fails, or is gone.
    pub fn lose_holder_pod(&mut self, n: usize) {
        let Some(name) = self.holder_pods.keys().nth(n / 2).cloned() else { return };
        match n % 2 {
            0 => drop(self.holder_pods.remove(&name)),
            _ => self.holder_pods.get_mut(&name).expect("it was found").ended = true,
        }
    }

    /// What the kubelets do in one second. A node that is down for good gives its pods to the cluster's collector.
    pub fn kubelets(&mut self) {
        let servers = &self.servers;
        let lives = |pod: &HolderPod| servers[&pod.node].agent_lives && !servers[&pod.node].confirmed_down;
        self.holder_pods.retain(|_, pod| !pod.deleting || !(lives(pod) || servers[&pod.node].confirmed_down));
        for pod in self.holder_pods.values_mut().filter(|pod| lives(pod) && !pod.ended) {
            pod.running = true;
        }
        self.attach_detach();
    }

    /// The driver has an attacher: Kubernetes has a VolumeAttachment for each pod that is there, and none for others.
    fn attach_detach(&mut self) {
        self.volume_attachments.retain(|name, _| !name.starts_with(ATTACHED));
        let made: BTreeMap<String, VolumeAttachment> = self.holder_pods.values().map(attached).collect();
        self.volume_attachments.extend(made);
    }

    /// Whether kubelet has a volume connected by the pod with this UID.
    pub fn is_connected_by(&self, pod_uid: &str) -> bool {
        self.holder_pods.values().any(|pod| pod.target.uid == pod_uid && pod.running && !pod.ended)
    }
}

fn attached(pod: &HolderPod) -> (String, VolumeAttachment) {
    let name = format!("{ATTACHED}{}", pod.target.name);
    let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
    let source =
        VolumeAttachmentSource { persistent_volume_name: pod.volume.clone(), ..VolumeAttachmentSource::default() };
    let spec = VolumeAttachmentSpec { attacher: DRIVER.to_owned(), node_name: pod.node.clone(), source };
    (name, VolumeAttachment { metadata, spec, status: None })
}

fn round(world: &mut World) {
    let o = world.observe("a").expect("there");
    let plan = plan(&o, world.now);
    world.carry_out("a", &o, &plan, usize::MAX);
}

/// A machine whose holder pod is attached, whose disk is not granted yet, and whose hold somebody took away.
fn without_its_hold() -> World {
    let mut world = World::new();
    world.machine("a", true);
    world.hardware.remove("hw-2");
    for _ in 0..40 {
        round(&mut world);
        if !world.holder_pods.is_empty() {
            break;
        }
        world.step();
        world.bind_claims();
    }
    world.attach_detach();
    let volume = world.holder_pods.values().next().expect("a holder pod is made").volume.clone();
    let made = |va: &VolumeAttachment| va.spec.attacher == DRIVER && va.spec.source.persistent_volume_name == volume;
    assert!(volume.is_some() && world.volume_attachments.values().any(made), "Kubernetes attaches it");
    world.holds.retain(|_, hold| hold.spec.persistent_volume_name != volume);
    world
}

fn is_granted(world: &World) -> bool {
    world.disks.values().any(|disk| disk.spec.holder_pod_uid.is_some() && disk.spec.grant.is_some())
}

#[test]
fn the_attachment_of_the_own_holder_pod_is_nobody_else_s() {
    let mut world = without_its_hold();
    for _ in 0..40 {
        world.step();
        round(&mut world);
    }
    assert!(is_granted(&world), "it waits for itself");
}

#[test]
fn an_attachment_on_another_node_is_somebody_else_s() {
    let mut world = without_its_hold();
    let (name, mut other) = attached(world.holder_pods.values().next().expect("a holder pod"));
    other.spec.node_name = "worker-1".to_owned();
    for _ in 0..40 {
        world.step();
        world.volume_attachments.insert(format!("{name}-other"), other.clone());
        round(&mut world);
    }
    assert!(!is_granted(&world), "two nodes have it");
}
