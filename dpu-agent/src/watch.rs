//! What the API server last told: this namespace's attachments and this DPU's Dpu. Any change wakes the reconciler.

use crate::clock;
use crate::cluster::Cluster;
use api::{DiskAttachment, Dpu, NicAttachment};
use futures::StreamExt;
use jiff::Timestamp;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use planner::agent::{Attachment, Word};
use planner::seen::Seen;
use runtime::patience::Patience;
use runtime::unreadable::Unreadable;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The longest time between two tries to watch: an API server that is back should not wait for its DPUs.
const LONGEST: Duration = Duration::from_secs(5);
pub struct Desired {
    pub disks: Mirror<DiskAttachment>,
    pub nics: Mirror<NicAttachment>,
    pub dpu: Mirror<Dpu>,
}

impl Desired {
    pub fn new(wake: Arc<Notify>) -> Self {
        let (disks, nics) = (Mirror::new(wake.clone()), Mirror::new(wake.clone()));
        Self { disks, nics, dpu: Mirror::new(wake) }
    }

    /// Unknown until both kinds were listed once.
    pub fn attachments(&self) -> Seen<Vec<Attachment>> {
        let disks = self.disks.all(Attachment::from_disk);
        let nics = self.nics.all(Attachment::from_nic);
        match (disks, nics) {
            (Some((disks, a)), Some((nics, b))) => {
                Seen::Stale { value: disks.into_iter().chain(nics).collect(), since: a.min(b) }
            }
            _ => Seen::Unknown,
        }
    }

    /// What our Dpu says of orphans.
    pub fn word(&self) -> Word {
        self.dpu.single().as_ref().map(Word::of).unwrap_or_default()
    }

    /// What was listed was told by an API server that is not asked any more, or that went back: it stands, but is not known to be so.
    pub fn unlist(&self) {
        self.disks.lock().listed = false;
        self.nics.lock().listed = false;
        self.dpu.lock().listed = false;
    }

    /// All was listed since.
    pub fn is_listed(&self) -> bool {
        self.disks.lock().listed && self.nics.lock().listed && self.dpu.lock().listed
    }

    /// Follows until the first stream ends, which none does by itself.
    pub async fn follow(&self, cluster: &Cluster, dpu_name: &str) {
        let own = watcher::Config::default().fields(&format!("metadata.name={dpu_name}"));
        tokio::join!(
            self.disks.follow(cluster.disks(), dpu_name, watcher::Config::default()),
            self.nics.follow(cluster.nics(), dpu_name, watcher::Config::default()),
            self.dpu.follow(cluster.dpus(), dpu_name, own),
        );
    }
}

/// Objects of one kind by UID.
pub struct Mirror<K> {
    known: Mutex<Known<K>>,
    wake: Arc<Notify>,
}

struct Known<K> {
    /// `None` until the first list is complete.
    objects: Option<BTreeMap<String, K>>,
    /// A list that is under way.
    listing: BTreeMap<String, K>,
    /// A list is complete since the session began.
    listed: bool,
    heard_at: Timestamp,
}

impl<K> Mirror<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    fn new(wake: Arc<Notify>) -> Self {
        let known = Known { objects: None, listing: BTreeMap::new(), listed: false, heard_at: Timestamp::UNIX_EPOCH };
        Self { known: Mutex::new(known), wake }
    }

    fn lock(&self) -> MutexGuard<'_, Known<K>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn all<T>(&self, read: impl Fn(&K) -> T) -> Option<(Vec<T>, Timestamp)> {
        let known = self.lock();
        let objects = known.objects.as_ref()?;
        Some((objects.values().map(read).collect(), known.heard_at))
    }

    pub fn get(&self, uid: &str) -> Option<K> {
        self.lock().objects.as_ref()?.get(uid).cloned()
    }

    /// The only object, where a field selector leaves one.
    pub fn single(&self) -> Option<K> {
        self.lock().objects.as_ref()?.values().next().cloned()
    }

    /// What a write of our own answered is as good as an event, and here earlier; unless a later event was faster.
    pub fn wrote(&self, object: K) {
        let (Some(uid), written) = (object.uid(), version(&object)) else { return };
        if let Some(known) = self.lock().objects.as_mut().and_then(|objects| objects.get_mut(&uid))
            && version(known) < written
        {
            *known = object;
        }
    }

    /// It was seen to be gone.
    pub fn forget(&self, uid: &str) {
        if let Some(objects) = self.lock().objects.as_mut() {
            objects.remove(uid);
        }
    }

    async fn follow(&self, api: Api<K>, dpu_name: &str, config: watcher::Config) {
        let slim = |object: &mut K| object.managed_fields_mut().clear();
        let patience = Patience::at_most(LONGEST, dpu_name, &K::kind(&()));
        let mut unreadable = Unreadable::default();
        let mut events = pin!(watcher(api.clone(), config.clone()).backoff(patience).modify(slim));
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.heard(event),
                Err(error) => {
                    tracing::warn!(kind = %K::kind(&()), %error, "watching the API server");
                    unreadable.tell(&error, &api, &config, "the agent").await;
                }
            }
        }
    }

    fn heard(&self, event: watcher::Event<K>) {
        let mut known = self.lock();
        known.heard_at = clock::now();
        match event {
            watcher::Event::Init => known.listing.clear(),
            watcher::Event::InitApply(object) => {
                known.listing.insert(object.uid().unwrap_or_default(), object);
                return;
            }
            watcher::Event::InitDone => {
                known.objects = Some(std::mem::take(&mut known.listing));
                known.listed = true;
            }
            watcher::Event::Apply(object) => {
                let uid = object.uid().unwrap_or_default();
                let objects = known.objects.get_or_insert_default();
                // An event from before a write of our own does not undo it.
                if objects.get(&uid).is_none_or(|there| version(there) <= version(&object)) {
                    objects.insert(uid, object);
                }
            }
            watcher::Event::Delete(object) => {
                let uid = object.uid().unwrap_or_default();
                known.objects.get_or_insert_default().remove(&uid);
            }
        }
        self.wake.notify_one();
    }
}

/// Resource versions of one kind are numbers that grow (Kubernetes API concepts, since 1.35).
fn version(object: &impl ResourceExt) -> u128 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0)
}
