//! Holder pods and the kubelets that run them.

use super::act::Conflict;
use super::world::World;
use crate::machine::observed::{HolderPodSeen, label, name};
use crate::machine::plan::Target;
use api::labels;
use k8s_openapi::api::core::v1::Pod;

#[derive(Debug, Clone)]
pub struct HolderPod {
    machine_uid: String,
    attachment_uid: String,
    node: String,
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
        let pod = HolderPod {
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
    }

    /// Whether kubelet has a volume connected by the pod with this UID.
    pub fn is_connected_by(&self, pod_uid: &str) -> bool {
        self.holder_pods.values().any(|pod| pod.target.uid == pod_uid && pod.running && !pod.ended)
    }
}
