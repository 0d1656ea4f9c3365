//! NetworkAttachmentDefinitions, the kind of the Network Plumbing Working Group, whose definition Multus brings. What one says is read
//! from quorum by whoever plans for a pod; it is watched so that a pod which names one waits for an event.

use super::namespace_of;
use crate::index::IndexKey;
use crate::world::{Kind, World};
use api::{Subnet, VNic};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use planner::network::pods::{self, Named};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// By hand: an object without `spec` is valid, and must not end the watch of all others.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct NetworkAttachmentDefinition {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<NetworkAttachmentDefinitionSpec>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct NetworkAttachmentDefinitionSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
}

impl NetworkAttachmentDefinition {
    /// Empty: Multus takes the configuration from a file of the node.
    pub fn config(&self) -> &str {
        self.spec.as_ref().and_then(|spec| spec.config.as_deref()).unwrap_or_default()
    }
}

impl Resource for NetworkAttachmentDefinition {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "NetworkAttachmentDefinition".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "k8s.cni.cncf.io".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "network-attachment-definitions".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Kind for NetworkAttachmentDefinition {
    const OPTIONAL: bool = true;

    /// By the Subnet or VNic that its configuration names: without a namespace, for it is that of the pod.
    fn index(&self) -> Vec<IndexKey> {
        let named = pods::named_by(self.config()).map(|named| match named {
            Named::VNic(vnic) => IndexKey::names::<VNic>("", &vnic),
            Named::Subnet(subnet) => IndexKey::names::<Subnet>("", &subnet),
        });
        named.into_iter().collect()
    }

    fn wake(&self, world: &World) {
        let name = self.metadata.name.as_deref().unwrap_or_default();
        world.pods_that_name::<Self>(namespace_of(&self.metadata), name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::NetworkedPod;
    use crate::work::Work;
    use api::network::VNicSpec;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    fn definition(config: &str) -> NetworkAttachmentDefinition {
        let object = json!({"metadata": {"namespace": "net", "name": "blue"}, "spec": {"config": config}});
        serde_json::from_value(object).expect("a definition")
    }

    fn pod(namespace: &str, uid: &str, networks: &str) -> NetworkedPod {
        let mut pod = Pod::default();
        (pod.metadata.namespace, pod.metadata.name) = (Some(namespace.to_owned()), Some(uid.to_owned()));
        pod.metadata.uid = Some(uid.to_owned());
        let asks = [("k8s.v1.cni.cncf.io/networks".to_owned(), networks.to_owned())];
        pod.metadata.annotations = Some(asks.into());
        NetworkedPod(pod)
    }

    /// A world in which these pods are watched.
    fn world() -> Arc<World> {
        let world = World::new(0);
        for pod in [pod("team-a", "one", "net/blue"), pod("team-b", "two", "net/blue"), pod("net", "three", "other")] {
            world.pods.put(pod);
        }
        world
    }

    async fn woken(world: &World) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        while world.queue(Work::Pod).depth() > 0 {
            all.insert(world.queue(Work::Pod).next().await.1);
        }
        all
    }

    fn those<const N: usize>(uids: [&str; N]) -> BTreeSet<String> {
        uids.map(str::to_owned).into()
    }

    #[tokio::test]
    async fn a_definition_wakes_the_pods_that_name_it() {
        let world = world();
        definition("").wake(&world);
        assert_eq!(woken(&world).await, those(["one", "two"]));
    }

    #[tokio::test]
    async fn what_a_definition_names_wakes_the_pods_of_its_own_namespace() {
        let world = world();
        world.definitions.put(definition(r#"{"plugins": [{"type": "metalplane", "subnet": "s"}]}"#));
        let subnet = json!({"metadata": {"namespace": "team-b", "name": "s"}, "spec": {"cidr": "10.20.0.0/24"}});
        let subnet: Subnet = serde_json::from_value(subnet).expect("a Subnet");
        subnet.wake(&world);
        assert_eq!(woken(&world).await, those(["two"]));

        let world = self::world();
        world.definitions.put(definition(r#"{"type": "metalplane", "vnic": "v"}"#));
        let mut vnic = VNic::new("v", VNicSpec::default());
        vnic.metadata.namespace = Some("team-a".to_owned());
        vnic.wake(&world);
        assert_eq!(woken(&world).await, those(["one"]));
    }

    #[test]
    fn one_without_a_configuration_is_read_and_names_nothing() {
        for object in
            [json!({"metadata": {}}), json!({"metadata": {}, "spec": null}), json!({"metadata": {}, "spec": {}})]
        {
            let definition: NetworkAttachmentDefinition = serde_json::from_value(object).expect("valid");
            assert!(definition.index().is_empty());
        }
        assert!(definition("no JSON").index().is_empty());
    }
}
