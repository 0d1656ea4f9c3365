//! The API server, as the executor's verbs ([`executor::Verbs`]): each request by a client of the cluster, and its answer into the
//! cache of its kind.

use crate::Controller;
use crate::cache::{Cache, Object};
use crate::error::{Error, call};
use crate::liveness::LEASE;
use crate::world::World;
use api::tinkerbell::{Hardware, Template, Workflow};
use api::{BareMetalMachine, DiskAttachment, Dpu, MachineMigration, NicAttachment, VNic, VolumeHold};
use executor::snapshots::{VolumeSnapshot, VolumeSnapshotContent};
use executor::{Confirmed, Part, Shell, Verbs, what, writes};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ClusterResourceScope, PartialObjectMeta};
use kube::{Api, Client, Resource};
use planner::machine::Action;
use serde_json::Value;
use std::sync::Arc;

/// The Secrets by which installed systems are told about themselves. What they say is nobody's here.
pub type InstallSeed = PartialObjectMeta<Secret>;

#[derive(Clone)]
pub struct Objects {
    pub client: Client,
}

impl Objects {
    pub fn namespaced<K: Object + Resource<Scope = NamespaceResourceScope>>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub fn cluster<K: Object + Resource<Scope = ClusterResourceScope>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }
}

/// One kind where `api` reaches it. What nobody watches has no cache.
struct Of<'a, K> {
    api: &'a Api<K>,
    cache: Option<&'a Cache<K>>,
}

impl<K: Object> Verbs<K> for Of<'_, K> {
    async fn get(&self, _: &str, name: &str) -> Result<K, Error> {
        call(&what::<K>("get", name), self.api.get(name)).await
    }

    async fn list(&self, label: Option<(&str, &str)>) -> Result<Vec<K>, Error> {
        let selector = label.map(|(label, value)| format!("{label}={value}"));
        let of = selector.as_ref().map(|selector| format!(" with {selector}")).unwrap_or_default();
        let params = ListParams { label_selector: selector, ..ListParams::default() };
        Ok(call(&format!("list {}{of}", K::plural(&())), self.api.list(&params)).await?.items)
    }

    async fn create(&self, object: &K) -> Result<K, Error> {
        let name = object.meta().name.as_deref().unwrap_or_default();
        call(&what::<K>("create", name), self.api.create(&PostParams::default(), object)).await
    }

    async fn patch(&self, _: &str, name: &str, part: Part, change: Value) -> Result<K, Error> {
        let (params, change) = (PatchParams::default(), Patch::Merge(&change));
        match part {
            Part::Object => call(&what::<K>("patch", name), self.api.patch(name, &params, &change)).await,
            Part::Status => {
                call(&what::<K>("patch status of", name), self.api.patch_status(name, &params, &change)).await
            }
        }
    }

    async fn delete(
        &self,
        _: &str,
        name: &str,
        rests_on: Preconditions,
        grace_period_seconds: Option<u32>,
    ) -> Result<Option<K>, Error> {
        let params = DeleteParams { preconditions: Some(rests_on), grace_period_seconds, ..DeleteParams::default() };
        Ok(call(&what::<K>("delete", name), self.api.delete(name, &params)).await?.left())
    }

    fn known(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.cache?.get(namespace, name)
    }

    fn put(&self, object: K) {
        self.cache.iter().for_each(|cache| cache.put(object.clone()));
    }

    fn forget(&self, meta: &ObjectMeta) {
        self.cache.iter().for_each(|cache| cache.forget(meta));
    }
}

/// Creates, or adopts what `is_ours` accepts under that name.
pub async fn create<K: Object>(
    api: &Api<K>,
    cache: &Cache<K>,
    object: &K,
    is_ours: impl Fn(&K) -> bool,
) -> Result<K, Error> {
    writes::create(&Of { api, cache: Some(cache) }, object, is_ours).await
}

/// A merge patch of one object and no other: UID, and where it was seen the resourceVersion, are preconditions.
pub async fn patch<K: Object>(
    api: &Api<K>,
    cache: &Cache<K>,
    name: &str,
    uid: &str,
    resource_version: Option<&str>,
    change: Value,
) -> Result<K, Error> {
    let seen = ObjectMeta {
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        resource_version: resource_version.map(str::to_owned),
        ..ObjectMeta::default()
    };
    writes::patch(&Of { api, cache: Some(cache) }, &seen, change).await
}

/// The same of a status.
pub async fn patch_status<K: Object>(
    api: &Api<K>,
    cache: &Cache<K>,
    meta: &ObjectMeta,
    status: Value,
) -> Result<K, Error> {
    writes::patch_status(&Of { api, cache: Some(cache) }, meta, status).await
}

/// Makes a status of `before` that of `after`, in the version that was read.
pub async fn change_status<K: Object>(api: &Api<K>, cache: &Cache<K>, before: &K, after: &K) -> Result<K, Error> {
    writes::change_status(&Of { api, cache: Some(cache) }, before, after).await
}

/// Deletes exactly the object with this UID (and, if given, in this version).
pub async fn delete<K: Object>(
    api: &Api<K>,
    cache: &Cache<K>,
    meta: &ObjectMeta,
    with_version: bool,
) -> Result<(), Error> {
    writes::delete(&Of { api, cache: Some(cache) }, meta, with_version).await
}

/// Puts the finalizer of what is in use on the object that was seen, or takes it off.
pub async fn keep<K>(objects: &Objects, cache: &Cache<K>, meta: &ObjectMeta, present: bool) -> Result<(), Error>
where
    K: Object + Resource<Scope = NamespaceResourceScope>,
{
    let api = objects.namespaced::<K>(meta.namespace.as_deref().unwrap_or_default());
    writes::keep(&Of { api: &api, cache: Some(cache) }, meta, present).await
}

/// The same of any finalizer.
pub async fn finalize<K: Object>(
    api: &Api<K>,
    cache: &Cache<K>,
    meta: &ObjectMeta,
    finalizer: &str,
    present: bool,
) -> Result<(), Error> {
    writes::finalize(&Of { api, cache: Some(cache) }, meta, finalizer, present).await
}

/// A kind that sequences of the executor touch: where it is reached, and where what is known of it stands.
trait Reached: Object {
    fn api(objects: &Objects, namespace: &str) -> Api<Self>;
    fn cache(world: &World) -> Option<&Cache<Self>>;
}

macro_rules! reached {
    ($($kind:ty: $api:expr, $cache:expr;)*) => {$(
        impl Reached for $kind {
            fn api(objects: &Objects, namespace: &str) -> Api<Self> {
                let api: fn(&Objects, &str) -> Api<Self> = $api;
                api(objects, namespace)
            }

            fn cache(world: &World) -> Option<&Cache<Self>> {
                let cache: fn(&World) -> Option<&Cache<Self>> = $cache;
                cache(world)
            }
        }
    )*};
}

reached! {
    BareMetalMachine: |to, at| to.namespaced(at), |world| Some(&world.machines);
    DiskAttachment: |to, at| to.namespaced(at), |world| Some(&world.disks);
    Dpu: |to, _| to.cluster(), |world| Some(&world.dpus);
    Hardware: |to, at| to.namespaced(at), |world| Some(&world.hardware);
    MachineMigration: |to, at| to.namespaced(at), |world| Some(&world.migrations);
    NicAttachment: |to, at| to.namespaced(at), |world| Some(&world.nics);
    PersistentVolume: |to, _| to.cluster(), |_| None;
    PersistentVolumeClaim: |to, at| to.namespaced(at), |world| Some(&world.claims);
    Pod: |to, at| to.namespaced(at), |world| Some(&world.holder_pods);
    Secret: |to, at| to.namespaced(at), |_| None;
    Template: |to, at| to.namespaced(at), |world| Some(&world.templates);
    VNic: |to, at| to.namespaced(at), |world| Some(&world.vnics);
    VolumeAttachment: |to, _| to.cluster(), |world| Some(&world.volume_attachments);
    VolumeHold: |to, _| to.cluster(), |world| Some(&world.holds);
    VolumeSnapshot: |to, at| to.namespaced(at), |world| Some(&world.snapshots);
    VolumeSnapshotContent: |to, _| to.cluster(), |_| None;
    Workflow: |to, at| to.namespaced(at), |world| Some(&world.workflows);
}

impl<K: Reached> Verbs<K> for Controller {
    async fn get(&self, namespace: &str, name: &str) -> Result<K, Error> {
        let api = K::api(&self.objects, namespace);
        Of { api: &api, cache: None }.get(namespace, name).await
    }

    async fn list(&self, label: Option<(&str, &str)>) -> Result<Vec<K>, Error> {
        let api = Api::all(self.objects.client.clone());
        Of { api: &api, cache: None }.list(label).await
    }

    async fn create(&self, object: &K) -> Result<K, Error> {
        let api = K::api(&self.objects, object.meta().namespace.as_deref().unwrap_or_default());
        Of { api: &api, cache: None }.create(object).await
    }

    async fn patch(&self, namespace: &str, name: &str, part: Part, change: Value) -> Result<K, Error> {
        let api = K::api(&self.objects, namespace);
        Of { api: &api, cache: None }.patch(namespace, name, part, change).await
    }

    async fn delete(
        &self,
        namespace: &str,
        name: &str,
        rests_on: Preconditions,
        grace_seconds: Option<u32>,
    ) -> Result<Option<K>, Error> {
        let api = K::api(&self.objects, namespace);
        Of { api: &api, cache: None }.delete(namespace, name, rests_on, grace_seconds).await
    }

    fn known(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        K::cache(&self.world)?.get(namespace, name)
    }

    fn put(&self, object: K) {
        if object.meta().deletion_timestamp.is_some() {
            self.volumes.forget(object.meta().uid.as_deref().unwrap_or_default());
        }
        K::cache(&self.world).iter().for_each(|cache| cache.put(object.clone()));
    }

    fn forget(&self, meta: &ObjectMeta) {
        self.volumes.forget(meta.uid.as_deref().unwrap_or_default());
        K::cache(&self.world).iter().for_each(|cache| cache.forget(meta));
    }
}

impl Shell for Controller {
    fn inventory(&self) -> &str {
        &self.inventory
    }

    fn seeds(&self) -> &str {
        &self.seeds
    }

    fn confirmed(&self) -> Option<(&Confirmed, u64)> {
        Some((&self.confirmed, self.world.ends()))
    }

    /// *LeaseIsUnchanged*: before a proof that a DPU is down takes effect its agent has not renewed its Lease. What the proof rests
    /// on may be of the time before the DPU came back, and an agent claims nothing before it has renewed. So of one that is
    /// unresponsive here a claim comes later, and is another version of the attachment than the one that was seen before.
    async fn confirm_silent(&self, dpu_namespace: &str) -> Result<(), Error> {
        let (liveness, api) = (&self.world.liveness, self.objects.namespaced(dpu_namespace));
        if liveness.is_unchanged(&api, dpu_namespace).await? && liveness.is_silent(dpu_namespace) {
            return Ok(());
        }
        let what = format!("get Lease '{dpu_namespace}/{LEASE}'");
        Err(Error::NotConfirmed { what, message: "the agent has renewed it".to_owned() })
    }

    fn acted(&self, action: &Action, failed: Option<&Error>) {
        self.metrics.acted(action, failed.map(Error::class));
    }
}
