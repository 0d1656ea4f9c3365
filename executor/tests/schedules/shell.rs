//! A leader as the executor's sequences know it: each verb is a request that may be refused, come late, lose its answer, or be the
//! last one. Where a world is without a rule, the requests here lack what that rule is; the sequences are those that ship.

use super::caches::Watched;
use super::leader::Leader;
use super::rules::Rule;
use super::site::Volume as Stored;
use super::world::{Via, World, timestamp};
use super::{DRIVER, INVENTORY, SEEDS};
use api::{DiskAttachment, VolumeHold};
use executor::{Confirmed, Error, Part, Shell, Storage, Verbs};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::Preconditions;
use model::{Kind, Rests};
use planner::exposure::ExposureId;
use planner::machine::Action;
use planner::machine::observed::{label, name};
use ports::volume::Volume;
use ports::{ErrorClass, PortError};
use serde_json::Value;
use std::sync::Arc;

/// As a leader is told of it.
fn told(error: model::Error, what: String) -> Error {
    let message = format!("{error:?}");
    match error {
        model::Error::NotFound => Error::NotFound { what },
        model::Error::AlreadyExists => Error::AlreadyExists { what, message },
        model::Error::Conflict => Error::Conflict { what, message },
        model::Error::Refused => Error::Refused { what, message },
        model::Error::NoAnswer | model::Error::Unreachable => Error::Unavailable { what, message },
    }
}

fn is<K: Kind, Other: Kind>() -> bool {
    std::any::TypeId::of::<K>() == std::any::TypeId::of::<Other>()
}

impl Leader {
    /// `None` of the world: no answer.
    async fn send<T: 'static>(
        &self,
        what: impl Fn() -> String,
        act: impl FnOnce(&World) -> Result<T, model::Error> + 'static,
    ) -> Result<T, Error> {
        let sent = self.world.ask((&self.process, Via::ApiServer), &what, act).await;
        sent.unwrap_or(Err(model::Error::NoAnswer)).map_err(|error| told(error, what()))
    }

    /// What a patch rests on, unless the world is without the rule that it does.
    fn loosened<K: Kind>(&self, mut change: Value) -> Value {
        let of = |field: &str| change.get("spec").and_then(|spec| spec.get(field));
        let rule = match (of("holder"), of("grant")) {
            (Some(Value::Null), _) if is::<K, VolumeHold>() => Rule::HoldIsEmptiedBySwap,
            (Some(_), _) if is::<K, VolumeHold>() => Rule::HoldIsTakenBySwap,
            (_, Some(_)) if is::<K, DiskAttachment>() => Rule::GrantIsForOneAttachment,
            _ => return change,
        };
        if !self.world.keeps(rule)
            && let Some(metadata) = change.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.remove("uid");
            metadata.remove("resourceVersion");
        }
        change
    }

    /// What *GoneIsSeen* reads, unless the world is without the rule that it does: then nothing is there.
    fn looks<K: Kind>(&self, uid: Option<&String>) -> bool {
        let ended = |uid: &String| self.ended_pods.borrow().contains(uid);
        if is::<K, DiskAttachment>() {
            return self.world.keeps(Rule::GoneIsSeen);
        }
        !is::<K, Pod>() || self.world.keeps(Rule::PodEndIsSeen) || !uid.is_some_and(ended)
    }

    async fn storage<T: 'static>(
        &self,
        what: &str,
        handle: &str,
        act: impl FnOnce(&mut Stored) -> T + 'static,
    ) -> Result<T, PortError> {
        let of = handle.to_owned();
        let act = move |world: &World| act(world.site().volumes.get_mut(&of).expect("a volume of this site"));
        let sent = self.world.ask((&self.process, Via::Outside), || format!("{what} {handle}"), act).await;
        sent.ok_or_else(|| PortError::new(ErrorClass::Unreachable, format!("{what} {handle}: no answer")))
    }
}

impl<K: Watched> Verbs<K> for Leader {
    async fn get(&self, namespace: &str, name: &str) -> Result<K, Error> {
        let (of, called) = (namespace.to_owned(), name.to_owned());
        let read = move |world: &World| world.objects().get::<K>(&of, &called);
        let there = self.send(|| format!("get {name}"), read).await?;
        match self.looks::<K>(there.meta().uid.as_ref()) {
            true => Ok(K::clone(&there)),
            false => Err(Error::NotFound { what: format!("get {name}") }),
        }
    }

    async fn list(&self, of: Option<(&str, &str)>) -> Result<Vec<K>, Error> {
        let of = of.map(|(of, value)| (of.to_owned(), value.to_owned()));
        let list = move |world: &World| {
            let objects = world.objects();
            let has = |object: &K, (of, value): &(String, String)| label(object.meta(), of) == Some(value);
            let is_it = |object: &&Arc<K>| of.as_ref().is_none_or(|of| has(object, of));
            Ok(objects.all::<K>().filter(is_it).map(|object| K::clone(object)).collect())
        };
        self.send(|| format!("list {}", K::plural(&())), list).await
    }

    async fn create(&self, object: &K) -> Result<K, Error> {
        let (called, object) = (name(object.meta()).to_owned(), object.clone());
        let create = move |world: &World| world.objects().create(object);
        self.send(|| format!("create {called}"), create).await.map(|made| K::clone(&made))
    }

    async fn patch(&self, namespace: &str, name: &str, part: Part, change: Value) -> Result<K, Error> {
        let (of, called, change) = (namespace.to_owned(), name.to_owned(), self.loosened::<K>(change));
        let patch = move |world: &World| {
            let done = world.objects().patch::<K>((&of, &called), part, change);
            world.note(|| format!("    {called}: {:?}", done.as_ref().map(|object| &object.meta().resource_version)));
            done
        };
        self.send(|| format!("change {name}"), patch).await.map(|patched| K::clone(&patched))
    }

    async fn delete(
        &self,
        namespace: &str,
        name: &str,
        rests_on: Preconditions,
        grace_seconds: Option<u32>,
    ) -> Result<Option<K>, Error> {
        let (of, called) = (namespace.to_owned(), name.to_owned());
        if is::<K, Pod>() {
            self.ended_pods.borrow_mut().extend(rests_on.uid.clone());
        }
        let rests = Rests { uid: rests_on.uid, version: rests_on.resource_version };
        // kubelet has to end a pod first.
        let lingers = is::<K, Pod>() && grace_seconds != Some(0);
        let delete = move |world: &World| {
            let at = Time(timestamp(world.now()));
            let mut objects = world.objects();
            let last = objects.delete::<K>((&of, &called), &rests, at, lingers)?;
            let is_it = |there: &Arc<K>| there.meta().uid == last.meta().uid;
            Ok(objects.get::<K>(&of, &called).ok().filter(is_it))
        };
        let there = self.send(|| format!("delete {name}"), delete).await?;
        Ok(there.map(|there| K::clone(&there)))
    }

    fn known(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        K::cache(&self.watch.caches.borrow()).get(namespace, name)
    }

    fn put(&self, object: K) {
        K::cache_mut(&mut self.watch.caches.borrow_mut()).put(Arc::new(object));
    }

    fn forget(&self, meta: &ObjectMeta) {
        K::cache_mut(&mut self.watch.caches.borrow_mut()).forget(meta);
    }
}

/// The grant of an identity ([`super::agent::identity`]).
fn grant_of(identity: &str) -> ExposureId {
    let mut parts = identity.split('.').skip(1);
    let mut next = || parts.next().unwrap_or_default();
    ExposureId { uid: next().to_owned(), epoch: next().parse().expect("an identity of this model") }
}

impl Storage for Leader {
    fn is_told(&self) -> bool {
        !self.fences.is_empty()
    }

    fn identity(&self, volume: &Volume, id: &ExposureId) -> Option<String> {
        (volume.driver == DRIVER && self.is_told()).then(|| super::agent::identity(id))
    }

    async fn admit(&self, volume: &Volume, identity: &str) -> Result<(), PortError> {
        let id = grant_of(identity);
        match self.storage("admit", &volume.handle, move |stored| stored.admit(&id)).await? {
            true => Ok(()),
            false => Err(PortError::new(ErrorClass::Conflict, "an earlier epoch")),
        }
    }

    async fn dismiss(&self, volume: &Volume, identity: &str) -> Result<(), PortError> {
        let id = grant_of(identity);
        self.storage("dismiss", &volume.handle, move |stored| stored.dismiss(&id)).await
    }

    async fn fence(&self, volume: &Volume, identity: &str) -> Result<(), PortError> {
        if !self.world.keeps(Rule::StorageRefuses) {
            return Ok(());
        }
        let id = grant_of(identity);
        self.storage("fence", &volume.handle, move |stored| stored.refuse(&id)).await
    }

    async fn verify_fenced(&self, volume: &Volume, identity: &str) -> Result<bool, PortError> {
        if !self.world.keeps(Rule::StorageRefuses) {
            return Ok(true);
        }
        let id = grant_of(identity);
        self.storage("verify", &volume.handle, move |stored| !stored.accepts(&id)).await
    }

    fn problem(&self, attachment_uid: &str, problem: Option<String>) {
        let mut problems = self.problems.borrow_mut();
        match problem {
            Some(problem) => problems.insert(attachment_uid.to_owned(), problem),
            None => problems.remove(attachment_uid),
        };
    }
}

impl Shell for Leader {
    fn inventory(&self) -> &str {
        INVENTORY
    }

    fn seeds(&self) -> &str {
        SEEDS
    }

    fn confirmed(&self) -> Option<(&Confirmed, u64)> {
        Some((&self.confirmed, self.watch.caches.borrow().ends()))
    }

    async fn confirm_silent(&self, dpu_namespace: &str) -> Result<(), Error> {
        let dpu = self.bmcs.keys().find(|dpu| api::names::dpu_namespace(dpu) == dpu_namespace);
        self.lease_is_old(dpu.expect("a DPU of this site")).await
    }

    fn acted(&self, _: &Action, _: Option<&Error>) {}
}
