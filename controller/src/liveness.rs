//! Which agents are alive: an agent renews the Lease `agent` in its DPU's namespace every second.
//!
//! Silent is one whose `renewTime` has not *changed* for four and a half seconds of our own monotonic clock; what the clocks of
//! other machines say is never compared. A watch that is behind must not make an agent look silent, so before the word
//! is spoken the Lease is read from quorum ([`Liveness::quiet`], then [`Liveness::confirm`]).

use crate::cache::key;
use crate::clock;
use crate::error::{Error, call, found};
use api::labels;
use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::runtime::utils::Backoff;
use kube::runtime::{WatchStreamExt, watcher};
use planner::dpu::boot_disk::BootDiskReads;
use planner::dpu::went_back::Heard;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

pub const LEASE: &str = "agent";
/// A lost DPU is noticed within five seconds of its loss: this, the next look, and the quorum read.
pub const SILENT_AFTER: Duration = Duration::from_millis(4500);

/// `renewTime` and `holderIdentity`.
type Value = (Option<MicroTime>, Option<String>);

#[derive(Debug, Clone)]
struct Beat {
    /// As it was last seen.
    value: Value,
    since: Instant,
    /// Which of all changes that this process has heard of was its last.
    changed: u64,
    /// The agent's word that the API server went back (`planner::dpu::went_back`).
    went_back: u64,
    /// What the agent has counted of its host's reads.
    boot_disk_reads: Option<BootDiskReads>,
    /// The silence has been confirmed by a quorum read.
    confirmed: bool,
}

/// By namespace.
#[derive(Default)]
struct Beats {
    all: BTreeMap<String, Beat>,
    /// How often any of them has changed, and how often when this process began to lead.
    changes: u64,
    led_at: u64,
    /// Agents that have said that the API server went back.
    went_back: BTreeSet<String>,
    /// Agents that are not silent, and have not renewed since this process began to lead.
    unheard: BTreeSet<String>,
}

impl Beats {
    fn put(&mut self, namespace: &str, beat: Beat) {
        match beat.went_back > 0 {
            true => self.went_back.insert(namespace.to_owned()),
            false => self.went_back.remove(namespace),
        };
        self.unheard.remove(namespace);
        self.all.insert(namespace.to_owned(), beat);
    }

    fn remove(&mut self, namespace: &str) {
        self.went_back.remove(namespace);
        self.unheard.remove(namespace);
        self.all.remove(namespace);
    }
}

pub struct Liveness {
    beats: Mutex<Beats>,
    ready: watch::Sender<bool>,
    /// Namespaces whose agent has come back, or whose Lease is gone.
    turned: Mutex<Vec<String>>,
    wake: Notify,
}

impl Liveness {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            beats: Mutex::default(),
            ready: watch::Sender::new(false),
            turned: Mutex::default(),
            wake: Notify::new(),
        })
    }

    fn beats(&self) -> std::sync::MutexGuard<'_, Beats> {
        self.beats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self, namespace: &str) {
        self.turned.lock().unwrap_or_else(PoisonError::into_inner).push(namespace.to_owned());
        self.wake.notify_one();
    }

    /// Waits until an agent comes back (or a moment), and tells which did.
    pub async fn turned(&self, moment: Duration) -> Vec<String> {
        // A moment that passes is not an error: it is when the quiet ones are looked at.
        let _ = tokio::time::timeout(moment, self.wake.notified()).await;
        std::mem::take(&mut self.turned.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What a watch or a quorum read showed. True: it is news.
    pub fn saw(&self, namespace: &str, lease: &Lease) -> bool {
        let spec = lease.spec.as_ref();
        let value = spec.map(|spec| (spec.renew_time.clone(), spec.holder_identity.clone())).unwrap_or_default();
        let went_back = number(lease, labels::WENT_BACK);
        let mut beats = self.beats();
        let before = beats.all.get(namespace);
        let news = before.is_none_or(|beat| beat.value != value);
        if news {
            let turned = before.is_none_or(|beat| beat.confirmed || beat.went_back != went_back);
            beats.changes += 1;
            let (changed, since) = (beats.changes, Instant::now());
            let boot_disk_reads = text(lease, labels::BOOT_DISK_READS).and_then(BootDiskReads::parse);
            beats.put(namespace, Beat { value, since, changed, went_back, boot_disk_reads, confirmed: false });
            drop(beats);
            if turned {
                self.turn(namespace);
            }
        }
        news
    }

    /// This process leads from now on: what was heard before says nothing about what is so now.
    pub fn lead(&self) {
        let mut beats = self.beats();
        beats.led_at = beats.changes;
        let heard = beats.all.iter().filter(|(_, beat)| !beat.confirmed).map(|(namespace, _)| namespace.clone());
        beats.unheard = heard.collect();
    }

    /// How many changes this process has heard of, of whatever agent.
    pub fn now(&self) -> u64 {
        self.beats().changes
    }

    /// The namespaces of agents that may forbid grants to all (*TimeWentBack*): most often none.
    pub fn noteworthy(&self) -> Vec<String> {
        let beats = self.beats();
        beats.went_back.union(&beats.unheard).cloned().collect()
    }

    /// `asked_at`: the moment, as [`Liveness::now`] counts, at which the agent's Dpu was seen to be asked.
    pub fn heard(&self, namespace: &str, asked_at: Option<u64>) -> Heard {
        let beats = self.beats();
        let Some(beat) = beats.all.get(namespace) else { return Heard::default() };
        Heard {
            went_back: beat.went_back,
            since_leading: beat.changed > beats.led_at,
            since_asked: asked_at.is_some_and(|asked_at| beat.changed > asked_at),
        }
    }

    /// From quorum: it has not renewed its Lease since it was last seen to.
    pub async fn is_unchanged(&self, leases: &Api<Lease>, namespace: &str) -> Result<bool, Error> {
        let lease = found(call(&format!("get Lease '{namespace}/{LEASE}'"), leases.get(LEASE)).await)?;
        Ok(!lease.is_some_and(|lease| self.saw(namespace, &lease)))
    }

    /// A quorum read showed nothing newer: it is silent, until a beat comes.
    pub fn confirm(&self, namespace: &str) {
        let mut beats = self.beats();
        if let Some(beat) = beats.all.get_mut(namespace) {
            beat.confirmed = true;
        }
        beats.unheard.remove(namespace);
    }

    /// Silent, and confirmed; an agent that never had a Lease is silent.
    pub fn is_silent(&self, namespace: &str) -> bool {
        self.beats().all.get(namespace).is_none_or(|beat| beat.confirmed)
    }

    /// When its Lease was last seen to change.
    pub fn heard_at(&self, namespace: &str) -> Option<Timestamp> {
        let since = self.beats().all.get(namespace)?.since;
        clock::now().checked_sub(SignedDuration::try_from(since.elapsed()).ok()?).ok()
    }

    /// As its last beat told.
    pub fn boot_disk_reads(&self, namespace: &str) -> Option<BootDiskReads> {
        self.beats().all.get(namespace)?.boot_disk_reads.clone()
    }

    /// Namespaces that have been quiet for too long and are not confirmed.
    pub fn quiet(&self) -> Vec<String> {
        let quiet = |beat: &Beat| !beat.confirmed && beat.since.elapsed() >= SILENT_AFTER;
        self.beats().all.iter().filter(|(_, beat)| quiet(beat)).map(|(namespace, _)| namespace.clone()).collect()
    }

    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    pub async fn wait_ready(&self) {
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    pub async fn watch(self: Arc<Self>, leases: Api<Lease>, patience: impl Backoff) {
        let config = watcher::Config::default().fields(&format!("metadata.name={LEASE}"));
        let stream = watcher(leases, config).backoff(patience);
        let mut stream = std::pin::pin!(stream);
        while let Some(event) = stream.next().await {
            match event {
                Ok(watcher::Event::Apply(lease) | watcher::Event::InitApply(lease)) => {
                    self.saw(&key(&lease.metadata).0, &lease);
                }
                Ok(watcher::Event::Delete(lease)) => {
                    let namespace = key(&lease.metadata).0;
                    self.beats().remove(&namespace);
                    self.turn(&namespace);
                }
                Ok(watcher::Event::Init) => {}
                Ok(watcher::Event::InitDone) => {
                    self.ready.send_replace(true);
                }
                Err(error) => tracing::warn!("watching Leases: {error}"),
            }
        }
    }
}

fn text<'a>(lease: &'a Lease, annotation: &str) -> Option<&'a str> {
    lease.metadata.annotations.as_ref()?.get(annotation).map(String::as_str)
}

fn number(lease: &Lease, annotation: &str) -> u64 {
    text(lease, annotation).and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::coordination::v1::LeaseSpec;

    fn lease(beat: i64, went_back: u64) -> Lease {
        let at = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(beat);
        let mut lease = Lease {
            spec: Some(LeaseSpec { renew_time: Some(MicroTime(at)), ..LeaseSpec::default() }),
            ..Lease::default()
        };
        let said = [(labels::WENT_BACK.to_owned(), went_back.to_string())];
        lease.metadata.annotations = (went_back > 0).then(|| said.into());
        lease
    }

    /// *TimeWentBack* is asked for every plan, of every Dpu: only by these it can be so.
    #[tokio::test(start_paused = true)]
    async fn agents_are_noteworthy_until_they_are_heard_and_once_they_have_said_that_time_went_back() {
        let all = Liveness::new();
        for agent in ["a", "b", "c"] {
            assert!(all.saw(agent, &lease(1, 0)) && !all.saw(agent, &lease(1, 0)));
        }
        assert!(all.noteworthy().is_empty());
        all.lead();
        assert_eq!(all.noteworthy(), ["a", "b", "c"]);
        assert!(!all.heard("a", None).since_leading);
        all.saw("a", &lease(2, 0));
        assert!(all.heard("a", None).since_leading);
        all.confirm("b");
        all.beats().remove("c");
        assert!(all.noteworthy().is_empty(), "one was heard, one is silent, one has no Lease any more");
        all.lead();
        assert_eq!(all.noteworthy(), ["a"], "what is silent is not waited for");
        all.saw("b", &lease(2, 1));
        assert_eq!(all.noteworthy(), ["a", "b"]);
        all.saw("a", &lease(3, 0));
        all.saw("b", &lease(3, 1));
        assert_eq!(all.noteworthy(), ["b"]);
        all.saw("b", &lease(4, 0));
        assert!(all.noteworthy().is_empty(), "its Lease was made anew");
    }
}
