//! An API server, as far as preconditions and merge patches go, and copies of what it has that lag behind it.

use super::time::{Notify, Time};
use api::tinkerbell::{Hardware, Template, Workflow};
use api::{BareMetalMachine, DiskAttachment, Dpu, MachineMigration, NicAttachment, VNic, VolumeHold};
use executor::snapshots::{VolumeSnapshot, VolumeSnapshotContent};
use executor::{Object, Part};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time as Moment};
use planner::machine::observed::name;
use serde_json::Value;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    NotFound,
    AlreadyExists,
    Conflict,
    /// It may have been done.
    NoAnswer,
    /// By the storage.
    Refused,
    Unreachable,
}

/// Of whatever kind: its namespace, if its kind has any, and its name.
pub fn names(meta: &ObjectMeta) -> (&str, &str) {
    (meta.namespace.as_deref().unwrap_or_default(), name(meta))
}

pub fn version(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn has_finalizers(meta: &ObjectMeta) -> bool {
    meta.finalizers.iter().flatten().count() > 0
}

/// The objects of one kind, in the order of namespace and name. Few are there, and they are looked for all the time.
#[derive(Debug)]
struct Sorted<K>(Vec<Arc<K>>);

impl<K: Kind> Sorted<K> {
    fn find(&self, wanted: (&str, &str)) -> Result<usize, usize> {
        self.0.binary_search_by(|there| names(there.meta()).cmp(&wanted))
    }

    fn get(&self, wanted: (&str, &str)) -> Option<&Arc<K>> {
        self.find(wanted).ok().map(|at| &self.0[at])
    }

    fn insert(&mut self, object: Arc<K>) {
        match self.find(names(object.meta())) {
            Ok(at) => self.0[at] = object,
            Err(at) => self.0.insert(at, object),
        }
    }

    fn remove(&mut self, wanted: (&str, &str)) {
        if let Ok(at) = self.find(wanted) {
            self.0.remove(at);
        }
    }
}

/// All of one kind, and every change of it.
#[derive(Debug)]
pub struct Table<K> {
    there: Sorted<K>,
    /// `true`: it ended with this.
    log: Vec<(Arc<K>, bool)>,
}

impl<K> Default for Table<K> {
    fn default() -> Self {
        Self { there: Sorted(Vec::new()), log: Vec::new() }
    }
}

/// As a leader knows one kind: the watch, and the answers to its own writes (controller/src/cache.rs).
#[derive(Debug)]
pub struct Cache<K> {
    there: Sorted<K>,
    ended: BTreeSet<String>,
    told: u64,
    position: usize,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self { there: Sorted(Vec::new()), ended: BTreeSet::new(), told: 0, position: 0 }
    }
}

impl<K: Kind> Cache<K> {
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.there.get((namespace, name)).cloned()
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<K>> {
        self.there.0.iter()
    }

    pub fn put(&mut self, object: Arc<K>) {
        let here = self.there.get(names(object.meta())).is_some_and(|here| here.meta().uid == object.meta().uid);
        if here || version(object.meta()) > self.told {
            self.apply(object);
        }
    }

    pub fn forget(&mut self, meta: &ObjectMeta) {
        self.ended.extend(meta.uid.clone());
        self.remove(meta);
    }

    fn apply(&mut self, object: Arc<K>) {
        let meta = object.meta();
        let ended = meta.uid.as_ref().is_some_and(|uid| self.ended.contains(uid));
        let newer = self.there.get(names(meta)).is_some_and(|old| version(old.meta()) > version(meta));
        if !ended && !newer {
            self.there.insert(object);
        }
    }

    fn remove(&mut self, meta: &ObjectMeta) {
        if self.there.get(names(meta)).is_some_and(|old| old.meta().uid == meta.uid) {
            self.there.remove(names(meta));
        }
    }

    /// The watch tells up to this one.
    fn follow(&mut self, table: &Table<K>, upto: usize, mut tell: impl FnMut(&K)) {
        while self.position < upto {
            let (object, ended) = &table.log[self.position];
            tell(object);
            self.position += 1;
            self.told = self.told.max(version(object.meta()));
            match ended {
                true => self.remove(object.meta()),
                false => self.apply(object.clone()),
            }
        }
    }
}

/// The number in the name of a server, of its DPU, and of its machine.
pub fn number(name: &str) -> &str {
    name.rsplit('-').next().unwrap_or_default()
}

/// Who is woken by changes of these kinds that are about that server, or about all.
#[derive(Clone)]
pub struct Listener {
    pub wake: Rc<Notify>,
    pub kinds: &'static [&'static str],
    /// Empty: all.
    pub server: String,
}

impl Listener {
    fn hears(&self, about: &str) -> bool {
        self.server.is_empty() || about.is_empty() || self.server == number(about)
    }
}

pub trait Kind: Object + PartialEq {
    /// Something with the number of the server that it is about, or nothing if all may care.
    fn about(&self) -> &str;
    fn table(objects: &Objects) -> &Table<Self>;
    fn table_mut(objects: &mut Objects) -> &mut Table<Self>;
    fn cache(caches: &Caches) -> &Cache<Self>;
    fn cache_mut(caches: &mut Caches) -> &mut Cache<Self>;
}

macro_rules! kinds {
    ($($field:ident: $kind:ty, $about:expr;)*) => {
        #[derive(Debug, Default)]
        pub struct Objects { counter: u64, $($field: Table<$kind>,)* }

        #[derive(Debug, Default)]
        pub struct Caches { $(pub $field: Cache<$kind>,)* }

        /// In the order of [`Objects::extent`].
        pub const KINDS: &[&str] = &[$(stringify!($field),)*];

        $(impl Kind for $kind {
            fn about(&self) -> &str {
                let about: fn(&$kind) -> &str = $about;
                about(self)
            }
            fn table(objects: &Objects) -> &Table<Self> { &objects.$field }
            fn table_mut(objects: &mut Objects) -> &mut Table<Self> { &mut objects.$field }
            fn cache(caches: &Caches) -> &Cache<Self> { &caches.$field }
            fn cache_mut(caches: &mut Caches) -> &mut Cache<Self> { &mut caches.$field }
        })*

        impl Objects {
            /// How far each kind's changes go.
            pub fn extent(&self) -> Vec<usize> {
                vec![$(self.$field.log.len(),)*]
            }
        }

        impl Caches {
            /// One kind's watch tells up to there.
            pub fn follow(&mut self, objects: &Objects, kind: usize, upto: usize, listeners: &[Listener], time: &Time) {
                let mut number = 0;
                $(
                    if kind == number {
                        self.$field.follow(&objects.$field, upto, |object| {
                            let hears = |l: &&Listener| l.kinds.contains(&KINDS[kind]) && l.hears(object.about());
                            listeners.iter().filter(hears).for_each(|listener| listener.wake.notify(time));
                        });
                    }
                    number += 1;
                )*
                debug_assert!(kind < number);
            }
        }
    };
}

kinds! {
    machines: BareMetalMachine, |machine| name(&machine.metadata);
    hardware: Hardware, |hardware| name(&hardware.metadata);
    dpus: Dpu, |dpu| name(&dpu.metadata);
    claims: PersistentVolumeClaim, |_| "";
    holds: VolumeHold, |_| "";
    disks: DiskAttachment, |disk| &disk.spec.dpu_name;
    volume_attachments: VolumeAttachment, |_| "";
    volumes: PersistentVolume, |_| "";
    secrets: Secret, |_| "";
    nics: NicAttachment, |nic| &nic.spec.dpu_name;
    vnics: VNic, |_| "";
    migrations: MachineMigration, |_| "";
    snapshots: VolumeSnapshot, |_| "";
    contents: VolumeSnapshotContent, |_| "";
    templates: Template, |_| "";
    workflows: Workflow, |_| "";
    pods: Pod, |pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
}

/// What a write rests on.
#[derive(Debug, Clone, Default)]
pub struct Rests {
    pub uid: Option<String>,
    pub version: Option<String>,
}

impl Rests {
    pub fn on(meta: &ObjectMeta) -> Self {
        Self { uid: meta.uid.clone(), version: meta.resource_version.clone() }
    }

    pub fn on_uid(uid: &str) -> Self {
        Self { uid: Some(uid.to_owned()), version: None }
    }

    fn check(&self, there: &ObjectMeta) -> Result<(), Error> {
        let uid = self.uid.is_none() || self.uid == there.uid;
        let version = self.version.is_none() || self.version == there.resource_version;
        if uid && version { Ok(()) } else { Err(Error::Conflict) }
    }
}

impl Objects {
    pub fn get<K: Kind>(&self, namespace: &str, name: &str) -> Result<Arc<K>, Error> {
        K::table(self).there.get((namespace, name)).cloned().ok_or(Error::NotFound)
    }

    pub fn all<K: Kind>(&self) -> impl Iterator<Item = &Arc<K>> {
        K::table(self).there.0.iter()
    }

    /// Grows with each.
    pub fn changes(&self) -> u64 {
        self.counter
    }

    fn count(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    pub fn create<K: Kind>(&mut self, mut object: K) -> Result<Arc<K>, Error> {
        if K::table(self).there.get(names(object.meta())).is_some() {
            return Err(Error::AlreadyExists);
        }
        let uid = format!("00000000-0000-4000-8000-{:012}", self.count());
        let version = self.count();
        let meta = object.meta_mut();
        (meta.uid, meta.resource_version) = (Some(uid), Some(version.to_string()));
        meta.generation = Some(1);
        let object = Arc::new(object);
        let table = K::table_mut(self);
        table.there.insert(object.clone());
        table.log.push((object.clone(), false));
        Ok(object)
    }

    /// An update or a patch; one that takes the last finalizer of what is being deleted ends it.
    pub fn change<K: Kind>(
        &mut self,
        (namespace, name): (&str, &str),
        rests: &Rests,
        change: impl FnOnce(&mut K),
    ) -> Result<Arc<K>, Error> {
        let old = self.get::<K>(namespace, name)?;
        rests.check(old.meta())?;
        let mut new = K::clone(&old);
        change(&mut new);
        if new == *old {
            return Ok(old);
        }
        let ends = new.meta().deletion_timestamp.is_some() && !has_finalizers(new.meta());
        Ok(self.put(new, ends))
    }

    /// A merge patch; the UID and the resourceVersion in it are what it rests on.
    pub fn patch<K: Kind>(&mut self, at: (&str, &str), part: Part, mut change: Value) -> Result<Arc<K>, Error> {
        let mut metadata = change.get_mut("metadata").map(Value::take).unwrap_or_default();
        let mut rests_on = |field: &str| metadata.as_object_mut()?.remove(field)?.as_str().map(str::to_owned);
        let rests = Rests { uid: rests_on("uid"), version: rests_on("resourceVersion") };
        let parts = change.as_object_mut().ok_or(Error::Refused)?;
        match part {
            Part::Object => {
                parts.remove("status");
                parts.insert("metadata".to_owned(), metadata);
            }
            Part::Status => parts.retain(|field, _| field == "status"),
        }
        let old = self.get::<K>(at.0, at.1)?;
        rests.check(old.meta())?;
        let mut value = serde_json::to_value(&*old).map_err(|_| Error::Refused)?;
        merge(&mut value, change);
        let mut new: K = serde_json::from_value(value).map_err(|_| Error::Refused)?;
        let meta = new.meta_mut();
        meta.finalizers = meta.finalizers.take().filter(|all| !all.is_empty());
        meta.annotations = meta.annotations.take().filter(|all| !all.is_empty());
        self.change(at, &Rests::default(), |there: &mut K| *there = new)
    }

    fn put<K: Kind>(&mut self, mut new: K, ends: bool) -> Arc<K> {
        new.meta_mut().resource_version = Some(self.count().to_string());
        let new = Arc::new(new);
        let table = K::table_mut(self);
        match ends {
            true => table.there.remove(names(new.meta())),
            false => table.there.insert(new.clone()),
        }
        table.log.push((new.clone(), ends));
        new
    }

    /// With finalizers it stays, marked. `lingers`: something has to end it first.
    pub fn delete<K: Kind>(
        &mut self,
        (namespace, name): (&str, &str),
        rests: &Rests,
        at: Moment,
        lingers: bool,
    ) -> Result<Arc<K>, Error> {
        let old = self.get::<K>(namespace, name)?;
        rests.check(old.meta())?;
        let stays = lingers || has_finalizers(old.meta());
        if stays && old.meta().deletion_timestamp.is_some() {
            return Ok(old);
        }
        let mut last = K::clone(&old);
        last.meta_mut().deletion_timestamp.get_or_insert(at);
        Ok(self.put(last, !stays))
    }
}

/// RFC 7386.
fn merge(there: &mut Value, change: Value) {
    let Value::Object(change) = change else {
        *there = change;
        return;
    };
    if !there.is_object() {
        *there = Value::Object(serde_json::Map::new());
    }
    let Value::Object(there) = there else { return };
    for (field, change) in change {
        match change {
            Value::Null => drop(there.remove(&field)),
            change => merge(there.entry(field).or_insert(Value::Null), change),
        }
    }
}
