//! Holder pods, the kubelets that run them, and what Kubernetes attaches for them.

use super::world::{DRIVER, World};
use api::labels;
use executor::holder_pods::{is_ended, is_one, target};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::{VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use planner::machine::observed::{HolderPodSeen, label, name, uid};
use planner::machine::plan;

/// What Kubernetes' own attachments are called.
const ATTACHED: &str = "csi-";

fn node(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

fn runs(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}

fn has_phase(pod: &mut Pod, phase: &str) {
    pod.status.get_or_insert_default().phase = Some(phase.to_owned());
}

impl World {
    pub fn holder_pods_of(&self, machine_uid: &str) -> Vec<HolderPodSeen> {
        let seen = |pod: &Pod| HolderPodSeen {
            target: target(&pod.metadata),
            attachment_uid: label(&pod.metadata, labels::ATTACHMENT_UID).unwrap_or_default().to_owned(),
            node: node(pod).to_owned(),
            running: runs(pod),
            ended: is_ended(pod),
            deleting: pod.metadata.deletion_timestamp.is_some(),
            message: String::new(),
        };
        let own = |pod: &&Pod| label(&pod.metadata, labels::MACHINE_UID) == Some(machine_uid) && is_one(&pod.metadata);
        self.pods.values().filter(own).map(seen).collect()
    }

    /// The `n`th pod fails, or is gone.
    pub fn lose_holder_pod(&mut self, n: usize) {
        let Some(name) = self.pods.names().get(n / 2).cloned() else { return };
        match n % 2 {
            0 => drop(self.pods.remove(&name)),
            _ => has_phase(self.pods.get_mut(&name).expect("it was found"), "Failed"),
        }
    }

    /// What the kubelets do in one second. A node that is down for good gives its pods to the cluster's collector.
    pub fn kubelets(&mut self) {
        let servers = &self.servers;
        let lives = |pod: &Pod| servers[node(pod)].agent_lives && !servers[node(pod)].confirmed_down;
        let ends = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
        self.objects.pods.retain(|pod| !ends(pod) || !(lives(pod) || servers[node(pod)].confirmed_down));
        for pod in self.objects.pods.values_mut().filter(|pod| lives(pod) && !is_ended(pod)) {
            has_phase(pod, "Running");
        }
        self.attach_detach();
    }

    /// The driver has an attacher: Kubernetes has a VolumeAttachment for each pod that is there, and none for others.
    fn attach_detach(&mut self) {
        self.volume_attachments.retain(|va| !name(&va.metadata).starts_with(ATTACHED));
        let made: Vec<VolumeAttachment> = self.pods.values().map(|pod| self.attachment_of(pod)).collect();
        made.into_iter().for_each(|va| self.create(va));
    }

    fn volume_of(&self, pod: &Pod) -> Option<String> {
        let mut volumes = pod.spec.as_ref()?.volumes.iter().flatten();
        let claim = volumes.find_map(|volume| volume.persistent_volume_claim.as_ref())?;
        self.claims.get(&claim.claim_name)?.spec.as_ref()?.volume_name.clone()
    }

    fn attachment_of(&self, pod: &Pod) -> VolumeAttachment {
        let name = format!("{ATTACHED}{}", name(&pod.metadata));
        let persistent_volume_name = self.volume_of(pod);
        let source = VolumeAttachmentSource { persistent_volume_name, ..VolumeAttachmentSource::default() };
        let spec = VolumeAttachmentSpec { attacher: DRIVER.to_owned(), node_name: node(pod).to_owned(), source };
        VolumeAttachment { metadata: ObjectMeta { name: Some(name), ..ObjectMeta::default() }, spec, status: None }
    }

    /// Whether kubelet has a volume connected by the pod with this UID.
    pub fn is_connected_by(&self, pod_uid: &str) -> bool {
        self.pods.values().any(|pod| uid(&pod.metadata) == pod_uid && runs(pod))
    }
}

fn round(world: &mut World) {
    let o = world.observe("a").expect("there");
    let plan = plan(&o, world.now);
    world.carry_out(&o, &plan, usize::MAX);
}

/// A machine whose holder pod is attached, whose disk is not granted yet, and whose hold somebody took away.
fn without_its_hold() -> World {
    let mut world = World::new();
    world.machine("a", true);
    world.hardware.remove("hw-2");
    for _ in 0..40 {
        round(&mut world);
        if !world.pods.is_empty() {
            break;
        }
        world.step();
        world.bind_claims();
    }
    world.attach_detach();
    let volume = world.volume_of(world.pods.values().next().expect("a holder pod is made"));
    let made = |va: &VolumeAttachment| va.spec.attacher == DRIVER && va.spec.source.persistent_volume_name == volume;
    assert!(volume.is_some() && world.volume_attachments.values().any(made), "Kubernetes attaches it");
    world.holds.retain(|hold| hold.spec.persistent_volume_name != volume);
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
    let mut other = world.attachment_of(world.pods.values().next().expect("a holder pod"));
    other.metadata.name = other.metadata.name.map(|name| format!("{name}-other"));
    other.spec.node_name = "worker-1".to_owned();
    for _ in 0..40 {
        world.step();
        world.volume_attachments.insert(other.clone());
        round(&mut world);
    }
    assert!(!is_granted(&world), "two nodes have it");
}
