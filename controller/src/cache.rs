//! What the API server has told, and what we wrote ourselves: a watched copy of one kind.
//!
//! A reconcile that reads its own writes can go on at once; it need not wait for the watch to bring them back. So a
//! write's answer goes into the cache as well ([`Cache::put`], [`Cache::forget`]); an event that is older is ignored.
//! Nothing that is read here decides about a fence: those decisions compare-and-swap, or read from quorum.

use crate::echo::{self, Looker};
use crate::index::IndexKey;
use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::runtime::utils::Backoff;
use kube::runtime::{WatchStreamExt, watcher};
use runtime::queue::Key;
use runtime::unreadable::Unreadable;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::watch;

pub use executor::Object;

pub fn key(meta: &ObjectMeta) -> Key {
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

struct State<K> {
    objects: BTreeMap<Key, Arc<K>>,
    index: HashMap<IndexKey, BTreeSet<Key>>,
    /// UIDs that we saw the end of; an event about them that comes later is older.
    ended: HashSet<String>,
    /// How far the watch has told, in the order of resource versions.
    told: u64,
    /// A listing under way.
    listing: Option<BTreeMap<Key, Arc<K>>>,
    /// What a write of ours was answered about since it began.
    during: HashSet<Key>,
    /// How many objects it has seen the end of.
    ends: u64,
    /// By the UID: the version that somebody has written, of which the watch has not told yet.
    writers: HashMap<String, (u64, Looker)>,
}

pub struct Cache<K> {
    state: RwLock<State<K>>,
    index_of: fn(&K) -> Vec<IndexKey>,
    ready: watch::Sender<bool>,
}

impl<K: Object> Cache<K> {
    /// `index_of`: under what an object can be found with [`Cache::by`].
    pub fn new(index_of: fn(&K) -> Vec<IndexKey>) -> Arc<Self> {
        let state = State {
            objects: BTreeMap::new(),
            index: HashMap::new(),
            ended: HashSet::new(),
            told: 0,
            listing: None,
            during: HashSet::new(),
            ends: 0,
            writers: HashMap::new(),
        };
        Arc::new(Self { state: RwLock::new(state), index_of, ready: watch::Sender::new(false) })
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, State<K>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, State<K>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.read().objects.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    pub fn by(&self, index: &IndexKey) -> Vec<Arc<K>> {
        let state = self.read();
        let keys = state.index.get(index).into_iter().flatten();
        keys.filter_map(|key| state.objects.get(key).cloned()).collect()
    }

    pub fn all(&self) -> Vec<Arc<K>> {
        self.read().objects.values().cloned().collect()
    }

    /// How many objects it has told the end of: none that is not there has ended since that was as many.
    pub fn ends(&self) -> u64 {
        self.read().ends
    }

    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    pub async fn wait_ready(&self) {
        // The sender lives as long as `self`.
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// What a write of ours was answered with. Of an object that is not here although the watch has told of later ones, the
    /// watch has told the end: the write that takes the last finalizer away is answered with what it has ended.
    pub fn put(&self, mut object: K) {
        object.meta_mut().managed_fields = None;
        let mut state = self.write();
        if state.listing.is_some() {
            state.during.insert(key(object.meta()));
        }
        let meta = object.meta();
        let here = state.objects.get(&key(meta)).is_some_and(|here| here.meta().uid == meta.uid);
        let version = version(meta);
        if let (Some(uid), Some(writer), true) = (&meta.uid, echo::writer(), version > 0) {
            state.writers.insert(uid.clone(), (version, writer));
        }
        if here || version == 0 || version > state.told {
            self.apply(&mut state, Arc::new(object));
        }
    }

    /// A deletion of ours that ended the object.
    pub fn forget(&self, meta: &ObjectMeta) {
        let mut state = self.write();
        if state.listing.is_some() {
            state.during.insert(key(meta));
        }
        state.ended.extend(meta.uid.clone());
        self.remove(&mut state, &key(meta), meta.uid.as_deref());
    }

    fn apply(&self, state: &mut State<K>, object: Arc<K>) {
        let meta = object.meta();
        if meta.uid.as_ref().is_some_and(|uid| state.ended.contains(uid)) {
            return;
        }
        let key = key(meta);
        if let Some(old) = state.objects.get(&key) {
            if version(old.meta()) > version(meta) {
                return;
            }
            state.ends += u64::from(old.meta().uid != meta.uid);
            for index in (self.index_of)(old) {
                unindex(&mut state.index, &index, &key);
            }
        }
        for index in (self.index_of)(&object) {
            state.index.entry(index).or_default().insert(key.clone());
        }
        state.objects.insert(key, object);
    }

    fn remove(&self, state: &mut State<K>, key: &Key, uid: Option<&str>) {
        if state.objects.get(key).is_none_or(|old| old.meta().uid.as_deref() != uid) {
            return;
        }
        if let Some(old) = state.objects.remove(key) {
            state.ends += 1;
            for index in (self.index_of)(&old) {
                unindex(&mut state.index, &index, key);
            }
        }
    }

    /// Watches for ever; `changed` is told of every object that was added, changed or removed.
    pub async fn watch(
        self: Arc<Self>,
        api: Api<K>,
        config: watcher::Config,
        patience: impl Backoff,
        changed: impl Fn(&K) + Send,
    ) {
        let kind = K::kind(&());
        let stream = watcher(api.clone(), config.clone()).backoff(patience);
        let mut stream = std::pin::pin!(stream);
        let (mut failures, mut unreadable) = (Failures::default(), Unreadable::default());
        while let Some(event) = stream.next().await {
            match event {
                Ok(event) => {
                    // Init comes before each list, also before one that fails.
                    if !matches!(event, watcher::Event::Init) {
                        failures = Failures::default();
                    }
                    self.event(event, &changed);
                }
                Err(error) => {
                    if failures.is_news(&error) {
                        tracing::warn!("watching {kind}: {error}");
                        // Definitions may be upgraded before the controller, and stay when it is rolled back.
                        unreadable.tell(&error, &api, &config, "the controller").await;
                    }
                    // By which kube begins its own delays anew as well.
                    tokio::time::sleep(failures.more_patience(&error)).await;
                }
            }
        }
    }

    pub(crate) fn event(&self, event: watcher::Event<K>, changed: &impl Fn(&K)) {
        match event {
            watcher::Event::Apply(mut object) => {
                object.meta_mut().managed_fields = None;
                let object = Arc::new(object);
                let writer = {
                    let mut state = self.write();
                    state.told = state.told.max(version(object.meta()));
                    self.apply(&mut state, object.clone());
                    writer_of(&mut state.writers, object.meta())
                };
                echo::telling(writer, || changed(&object));
            }
            watcher::Event::Delete(object) => {
                let meta = object.meta();
                {
                    let mut state = self.write();
                    state.told = state.told.max(version(meta));
                    if let Some(uid) = &meta.uid {
                        state.ended.remove(uid);
                        state.writers.remove(uid);
                    }
                    self.remove(&mut state, &key(meta), meta.uid.as_deref());
                }
                changed(&object);
            }
            watcher::Event::Init => {
                let mut state = self.write();
                (state.listing, state.during) = (Some(BTreeMap::new()), HashSet::new());
            }
            watcher::Event::InitApply(mut object) => {
                object.meta_mut().managed_fields = None;
                if let Some(listing) = &mut self.write().listing {
                    listing.insert(key(object.meta()), Arc::new(object));
                }
            }
            watcher::Event::InitDone => {
                for object in self.listed() {
                    changed(&object);
                }
                self.ready.send_replace(true);
            }
        }
    }

    /// The listing becomes the contents. What changed or went is returned with what is there.
    fn listed(&self) -> Vec<Arc<K>> {
        let mut state = self.write();
        let listing = state.listing.take().unwrap_or_default();
        let gone: Vec<Key> = state.objects.keys().filter(|key| !listing.contains_key(*key)).cloned().collect();
        let mut touched = Vec::new();
        for key in gone {
            if let Some(old) = state.objects.get(&key).cloned() {
                self.remove(&mut state, &key, old.meta().uid.as_deref());
                touched.push(old);
            }
        }
        state.writers.clear();
        let during = std::mem::take(&mut state.during);
        let ended = listing.iter().filter(|(key, _)| during.contains(*key));
        let ended: HashSet<&String> = ended.filter_map(|(_, object)| object.meta().uid.as_ref()).collect();
        state.ended.retain(|uid| ended.contains(uid));
        let told = listing.values().map(|object| version(object.meta())).max().unwrap_or_default();
        for (key, object) in listing {
            // The list was read from quorum after it began. What was there before and is newer was never so: etcd was restored.
            let went_back = |old: &Arc<K>| version(old.meta()) > version(object.meta()) && !during.contains(&key);
            if let Some(old) = state.objects.get(&key).cloned().filter(went_back) {
                self.remove(&mut state, &key, old.meta().uid.as_deref());
                state.told = told;
            }
            self.apply(&mut state, object.clone());
            touched.push(object);
        }
        touched
    }
}

/// What a watch has met since it last worked.
#[derive(Default)]
struct Failures {
    told: String,
    /// How often the API server did not know the kind.
    unknown: u32,
}

impl Failures {
    /// The log has each of them once, however long it lasts.
    fn is_news(&mut self, error: &watcher::Error) -> bool {
        let text = error.to_string();
        let is_news = self.told != text;
        self.told = text;
        is_news
    }

    /// A kind that is not there, as Multus's is not in most clusters, is asked for less and less; one that is just being installed is
    /// not waited for.
    fn more_patience(&mut self, error: &watcher::Error) -> Duration {
        let watcher::Error::InitialListFailed(kube::Error::Api(status)) = error else { return Duration::ZERO };
        if status.code != 404 {
            return Duration::ZERO;
        }
        self.unknown += 1;
        Duration::from_secs(1 << self.unknown.min(6)) - Duration::from_secs(2)
    }
}

/// Who wrote this very version. Of an older one nothing more will be told.
fn writer_of(writers: &mut HashMap<String, (u64, Looker)>, meta: &ObjectMeta) -> Option<Looker> {
    let (uid, told) = (meta.uid.as_ref()?, version(meta));
    let written = writers.get(uid)?.0;
    let (_, writer) = if written <= told { writers.remove(uid) } else { None }?;
    (written == told).then_some(writer)
}

fn unindex(all: &mut HashMap<IndexKey, BTreeSet<Key>>, index: &IndexKey, key: &Key) {
    if let Some(keys) = all.get_mut(index) {
        keys.remove(key);
        if keys.is_empty() {
            all.remove(index);
        }
    }
}

/// Resource versions are comparable as numbers since Kubernetes 1.35 (KEP-5504); of another server's, the newer arrival
/// wins.
fn version(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
