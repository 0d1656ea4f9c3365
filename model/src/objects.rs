//! What is there, and how a write changes it.

use crate::table::{Kind, Table, names};
use executor::Part;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time as Moment};
use serde_json::Value;
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

pub fn version(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn has_finalizers(meta: &ObjectMeta) -> bool {
    meta.finalizers.iter().flatten().count() > 0
}

/// Calls a macro with every kind that there is: the name of its table, and its type.
#[macro_export]
macro_rules! each_kind {
    ($then:ident) => {
        $then! {
            machines: $crate::api::BareMetalMachine;
            hardware: $crate::api::tinkerbell::Hardware;
            dpus: $crate::api::Dpu;
            claims: $crate::k8s_openapi::api::core::v1::PersistentVolumeClaim;
            holds: $crate::api::VolumeHold;
            disks: $crate::api::DiskAttachment;
            volume_attachments: $crate::k8s_openapi::api::storage::v1::VolumeAttachment;
            volumes: $crate::k8s_openapi::api::core::v1::PersistentVolume;
            secrets: $crate::k8s_openapi::api::core::v1::Secret;
            nics: $crate::api::NicAttachment;
            vnics: $crate::api::VNic;
            migrations: $crate::api::MachineMigration;
            snapshots: $crate::executor::snapshots::VolumeSnapshot;
            contents: $crate::executor::snapshots::VolumeSnapshotContent;
            templates: $crate::api::tinkerbell::Template;
            workflows: $crate::api::tinkerbell::Workflow;
            pods: $crate::k8s_openapi::api::core::v1::Pod;
        }
    };
}

macro_rules! tables {
    ($($field:ident: $kind:ty;)*) => {
        /// Every object there is. A clone knows what is there, and not how that came.
        #[derive(Debug, Clone, Default)]
        pub struct Objects { counter: u64, $(pub $field: Table<$kind>,)* }

        $(impl Kind for $kind {
            fn table(objects: &Objects) -> &Table<Self> { &objects.$field }
            fn table_mut(objects: &mut Objects) -> &mut Table<Self> { &mut objects.$field }
        })*

        impl Objects {
            /// How far each kind's changes go, in the order of [`crate::each_kind`].
            pub fn extent(&self) -> Vec<usize> {
                vec![$(self.$field.changes().len(),)*]
            }
        }
    };
}

each_kind!(tables);

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
        K::table(self).find((namespace, name)).cloned().ok_or(Error::NotFound)
    }

    pub fn all<K: Kind>(&self) -> impl Iterator<Item = &Arc<K>> {
        K::table(self).all()
    }

    /// Grows with each change.
    pub fn changes(&self) -> u64 {
        self.counter
    }

    fn count(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    pub fn fresh_uid(&mut self) -> String {
        format!("00000000-0000-4000-8000-{:012}", self.count())
    }

    pub fn create<K: Kind>(&mut self, mut object: K) -> Result<Arc<K>, Error> {
        if K::table(self).find(names(object.meta())).is_some() {
            return Err(Error::AlreadyExists);
        }
        let uid = self.fresh_uid();
        let version = self.count();
        let meta = object.meta_mut();
        (meta.uid, meta.resource_version) = (Some(uid), Some(version.to_string()));
        meta.generation = Some(1);
        Ok(K::table_mut(self).set(object, false))
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
        K::table_mut(self).set(new, ends)
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
