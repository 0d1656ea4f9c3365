//! Copies of what the API server has that lag behind it, and who is woken by what they are told.

use super::time::{Notify, Time};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use model::{Kind, Objects, Sorted, Table, names, version};
use planner::machine::observed::name;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

/// As a leader knows one kind: the watch, and the answers to its own writes (controller/src/cache.rs).
#[derive(Debug)]
pub struct Cache<K> {
    there: Sorted<K>,
    ended: BTreeSet<String>,
    told: u64,
    position: usize,
    ends: u64,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self { there: Sorted::default(), ended: BTreeSet::new(), told: 0, position: 0, ends: 0 }
    }
}

impl<K: Kind> Cache<K> {
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.there.get((namespace, name)).cloned()
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<K>> {
        self.there.all()
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
            self.ends += u64::from(self.replaces(meta));
            self.there.insert(object);
        }
    }

    fn remove(&mut self, meta: &ObjectMeta) {
        if self.there.get(names(meta)).is_some_and(|old| old.meta().uid == meta.uid) {
            self.there.remove(names(meta));
            self.ends += 1;
        }
    }

    fn replaces(&self, meta: &ObjectMeta) -> bool {
        self.there.get(names(meta)).is_some_and(|old| old.meta().uid != meta.uid)
    }

    /// The watch tells up to this one.
    fn follow(&mut self, table: &Table<K>, upto: usize, mut tell: impl FnMut(&K)) {
        while self.position < upto {
            let (object, ended) = &table.changes()[self.position];
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

pub trait Watched: Kind {
    fn cache(caches: &Caches) -> &Cache<Self>;
    fn cache_mut(caches: &mut Caches) -> &mut Cache<Self>;
}

/// Something with the number of the server that the object is about, or nothing if all may care.
trait About {
    fn about(&self) -> &str;
}

macro_rules! about {
    ($($kind:ty: $about:expr;)*) => {
        $(impl About for $kind {
            fn about(&self) -> &str {
                let about: fn(&$kind) -> &str = $about;
                about(self)
            }
        })*
    };
}

about! {
    api::BareMetalMachine: |machine| name(&machine.metadata);
    api::tinkerbell::Hardware: |hardware| name(&hardware.metadata);
    api::Dpu: |dpu| name(&dpu.metadata);
    api::DiskAttachment: |disk| &disk.spec.dpu_name;
    api::NicAttachment: |nic| &nic.spec.dpu_name;
    Pod: |pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    PersistentVolumeClaim: |_| "";
    api::VolumeHold: |_| "";
    VolumeAttachment: |_| "";
    PersistentVolume: |_| "";
    Secret: |_| "";
    api::VNic: |_| "";
    api::MachineMigration: |_| "";
    executor::snapshots::VolumeSnapshot: |_| "";
    executor::snapshots::VolumeSnapshotContent: |_| "";
    api::tinkerbell::Template: |_| "";
    api::tinkerbell::Workflow: |_| "";
}

macro_rules! caches {
    ($($field:ident: $kind:ty;)*) => {
        #[derive(Debug, Default)]
        pub struct Caches { $(pub $field: Cache<$kind>,)* }

        /// In the order of [`Objects::extent`].
        pub const KINDS: &[&str] = &[$(stringify!($field),)*];

        $(impl Watched for $kind {
            fn cache(caches: &Caches) -> &Cache<Self> { &caches.$field }
            fn cache_mut(caches: &mut Caches) -> &mut Cache<Self> { &mut caches.$field }
        })*

        impl Caches {
            /// How many objects they have told the end of.
            pub fn ends(&self) -> u64 {
                0 $(+ self.$field.ends)*
            }

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

model::each_kind!(caches);
