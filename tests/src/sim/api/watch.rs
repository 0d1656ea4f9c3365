//! One watch: the events of a collection from a version on, as JSON lines.
//!
//! The API server promises the order of one watch, and nothing about how late it is or how two watches relate. It may
//! end a watch with 410 at any time; after that the client lists again and has missed what happened between.

use super::Server;
use super::path::{Target, selects};
use super::store::{Change, Event};
use crate::sim::random::Random;
use crate::sim::signal::Signal;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt, unfold};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How a watch behaves; each is what a real API server may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Manners {
    #[default]
    Prompt,
    /// Each batch of events comes up to so much later, each watch by itself.
    Late(Duration),
    /// Nothing comes before this moment.
    Frozen(Instant),
    /// Nothing of this resource comes before this moment, all else at once.
    Behind(&'static str, Instant),
    /// Ends with 410 after a few events: what happens until the next list is never told.
    Gone,
    /// Every event comes twice, as after a reconnect from an older version.
    Twice,
}

/// The manners of all watches of one process; they may change while watches are open.
#[derive(Clone)]
pub struct Shared {
    pub manners: Arc<Mutex<Manners>>,
    pub random: Random,
    /// Nothing comes through while this is true.
    pub cut: Option<Arc<Signal<bool>>>,
}

struct Watch {
    server: Arc<Server>,
    target: Target,
    shared: Shared,
    from: u64,
    seen: usize,
    ready: VecDeque<Value>,
    ends: Instant,
    /// Events until it is gone.
    left: u64,
    ended: bool,
    era: u32,
}

pub fn open(server: &Arc<Server>, target: &Target, shared: Shared) -> BoxStream<'static, Bytes> {
    let seconds = target.query.get("timeoutSeconds").and_then(|text| text.parse().ok()).unwrap_or(290);
    let asked = target.query.get("resourceVersion").and_then(|text| text.parse().ok());
    let mut ready = VecDeque::new();
    let (version, seen, era) = {
        let store = server.store();
        (store.version(), store.log.len(), store.era)
    };
    let initial = target.query.get("sendInitialEvents").is_some_and(|text| text == "true");
    if initial || asked.is_none_or(|version| version == 0) {
        let all = server.store().list(&target.id);
        ready.extend(all.iter().filter(|o| selects(&target.query, o)).map(|o| line("ADDED", Value::clone(o))));
        if initial {
            let mut bookmark = bookmark(version);
            bookmark["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
            ready.push_back(line("BOOKMARK", bookmark));
        }
    }
    let from = asked.filter(|asked| *asked > 0 && !initial).unwrap_or(version);
    let told = |event: &Event| event.era == era && event.version > from;
    let seen = server.store().log[..seen].iter().position(told).unwrap_or(seen);
    if from > version {
        ready.push_back(too_large(from, version));
    }
    let left = 1 + shared.random.below(6);
    let ends = Instant::now() + Duration::from_secs(seconds);
    let watch = Watch {
        server: server.clone(),
        target: target.clone(),
        shared,
        from,
        seen,
        ready,
        ends,
        left,
        ended: from > version,
        era,
    };
    unfold(watch, |mut watch| async move {
        let value = watch.next().await?;
        let mut line = value.to_string();
        line.push('\n');
        Some((Bytes::from(line), watch))
    })
    .boxed()
}

fn line(change: &str, object: Value) -> Value {
    json!({"type": change, "object": object})
}

fn bookmark(version: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "Bookmark", "metadata": {"resourceVersion": version.to_string()}})
}

/// As an API server answers one who knows more than etcd does.
fn too_large(from: u64, version: u64) -> Value {
    let message = format!("Too large resource version: {from}, current: {version}");
    line(
        "ERROR",
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": 504, "reason": "Timeout", "message": message}),
    )
}

impl Watch {
    fn manners(&self) -> Manners {
        *self.shared.manners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn next(&mut self) -> Option<Value> {
        let changed = self.server.changed.clone();
        loop {
            if let Some(value) = self.ready.pop_front() {
                return Some(value);
            }
            if self.ended {
                return None;
            }
            let turn = changed.turn();
            if self.server.store().era != self.era {
                self.expire();
                continue;
            }
            if self.is_behind() {
                self.pause().await;
                self.read();
                continue;
            }
            let ends = tokio::time::sleep_until(self.ends);
            tokio::select! {
                biased;
                () = changed.changed(turn) => {}
                () = ends => {
                    self.ended = true;
                    return Some(line("BOOKMARK", bookmark(self.server.store().version())));
                }
            }
        }
    }

    fn is_mine(&self, event: &Event) -> bool {
        event.era == self.era
            && event.version > self.from
            && event.id.resource == self.target.id.resource
            && (self.target.id.namespace.is_empty() || event.id.namespace == self.target.id.namespace)
            && selects(&self.target.query, &event.object)
    }

    /// Skips what is not for this watch.
    fn is_behind(&mut self) -> bool {
        let server = self.server.clone();
        let store = server.store();
        match store.log[self.seen..].iter().position(|event| self.is_mine(event)) {
            Some(next) => {
                self.seen += next;
                true
            }
            None => {
                self.seen = store.log.len();
                false
            }
        }
    }

    async fn pause(&self) {
        if let Some(cut) = &self.shared.cut {
            cut.wait_for(false).await;
        }
        match self.manners() {
            Manners::Late(most) => tokio::time::sleep(most.mul_f64(self.shared.random.part())).await,
            Manners::Frozen(until) => tokio::time::sleep_until(until).await,
            Manners::Behind(resource, until) if resource == self.target.id.resource => {
                tokio::time::sleep_until(until).await;
            }
            Manners::Prompt | Manners::Gone | Manners::Twice | Manners::Behind(..) => {}
        }
    }

    fn expire(&mut self) {
        let gone = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "code": 410, "reason": "Expired", "message": "too old resource version"});
        self.ready.push_back(line("ERROR", gone));
        self.ended = true;
    }

    fn read(&mut self) {
        let server = self.server.clone();
        let store = server.store();
        let manners = self.manners();
        let mine: Vec<&Event> = store.log[self.seen..].iter().filter(|event| self.is_mine(event)).collect();
        for event in mine {
            if manners == Manners::Gone && self.left == 0 {
                self.expire();
                break;
            }
            self.left = self.left.saturating_sub(1);
            let change = match event.change {
                Change::Added => "ADDED",
                Change::Modified => "MODIFIED",
                Change::Deleted => "DELETED",
            };
            let told = line(change, Value::clone(&event.object));
            if manners == Manners::Twice && event.change != Change::Deleted {
                self.ready.push_back(told.clone());
            }
            self.ready.push_back(told);
        }
        self.seen = store.log.len();
    }
}
