//! Pods that ask for NICs. No other pod is watched for that.

use super::{NetworkAttachmentDefinition, namespace_of, own_uid};
use crate::cache::key;
use crate::index::IndexKey;
use crate::objects::Objects;
use crate::work::Work;
use crate::world::{Kind, Namespaces, World};
use api::{Dpu, Subnet, VNic, labels};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Resource};
use planner::network::pods;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A pod with the label by which it is watched: a kind of its own, for a watch cannot select by one label or another.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NetworkedPod(pub Pod);

impl Resource for NetworkedPod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Pod::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Pod::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Pod::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Pod::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}

impl Kind for NetworkedPod {
    fn watched(objects: &Objects, _: &Namespaces) -> (Api<Self>, watcher::Config) {
        (Api::all(objects.client.clone()), watcher::Config::default().labels(labels::NETWORKS))
    }

    /// By its UID, its node, and the Subnets, VNics and NetworkAttachmentDefinitions that it names. What these name in turn is theirs
    /// ([`World::pods_that_name`]).
    fn index(&self) -> Vec<IndexKey> {
        let (namespace, _) = key(self.meta());
        let mut all: Vec<IndexKey> = own_uid(self.meta()).into_iter().collect();
        all.extend(pods::node(&self.0).map(|node| IndexKey::names::<Dpu>("", node)));
        let asked = pods::requests(&self.meta().annotations.clone().unwrap_or_default()).unwrap_or_default();
        all.extend(asked.iter().map(|request| match &request.vnic {
            Some(vnic) => IndexKey::names::<VNic>(&namespace, vnic),
            None => IndexKey::names::<Subnet>(&namespace, &request.subnet),
        }));
        let definitions = pods::selections(self.meta()).unwrap_or_default();
        let named =
            |(namespace, name): &(String, String)| IndexKey::names::<NetworkAttachmentDefinition>(namespace, name);
        all.extend(definitions.iter().map(named));
        all.dedup();
        all
    }

    fn wake(&self, world: &World) {
        self.meta().uid.iter().for_each(|uid| world.of_pod(uid));
    }
}

impl World {
    /// The pod with this UID, which may have ended, or something of it, has changed.
    pub(super) fn of_pod(&self, uid: &str) {
        self.look(Work::Pod, (String::new(), uid.to_owned()));
    }

    /// Those that name this object, or a NetworkAttachmentDefinition that does.
    pub(super) fn pods_that_name<K: Resource<DynamicType = ()>>(&self, namespace: &str, name: &str) {
        let named = IndexKey::names::<K>(namespace, name);
        self.pods.by(&named).iter().for_each(|pod| pod.wake(self));
        for definition in self.definitions.by(&IndexKey::names::<K>("", name)) {
            let (of, definition) = key(&definition.metadata);
            let mut pods = self.pods.by(&IndexKey::names::<NetworkAttachmentDefinition>(&of, &definition));
            pods.retain(|pod| namespace_of(pod.meta()) == namespace);
            pods.iter().for_each(|pod| pod.wake(self));
        }
    }

    /// What pods, ended ones too, have at this machine.
    pub(super) fn pods_at(&self, machine: &str) {
        let nics = self.nics.by(&IndexKey::Worker(machine.to_owned()));
        nics.iter().for_each(|nic| self.of_pod(&nic.spec.owner.uid));
    }

    /// What pods, ended ones too, have on this node.
    pub(super) fn pods_on(&self, dpu: &str) {
        self.pods_that_name::<Dpu>("", dpu);
        for attachment in self.nics.by(&IndexKey::names::<Dpu>("", dpu)) {
            if super::is_pod(&attachment.spec.owner) {
                self.of_pod(&attachment.spec.owner.uid);
            }
        }
    }
}
