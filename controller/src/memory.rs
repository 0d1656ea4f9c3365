//! What a process remembers of objects between two looks at them. A new process begins with nothing, which is safe.

use crate::cache::key;
use crate::clock;
use api::Dpu;
use api::dpu::Orphan;
use api::tinkerbell::Workflow;
use jiff::Timestamp;
use planner::dpu::went_back;
use planner::event::Told;
use planner::exposure::ExposureId;
use planner::job::Sent;
use planner::workflow::{story, tells};
use runtime::queue::Key;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// UID and generation of those for which everything was applied by this process.
#[derive(Default)]
pub struct Prepared(Mutex<HashMap<String, Option<i64>>>);

impl Prepared {
    pub(crate) fn has(&self, uid: &str, generation: Option<i64>) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(uid) == Some(&generation)
    }

    pub(crate) fn put(&self, uid: String, generation: Option<i64>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(uid, generation);
    }
}

/// When each Dpu, by its UID, was seen to be asked what its host has, as `Liveness::now` counts.
#[derive(Default)]
pub struct Asked(Mutex<HashMap<String, u64>>);

impl Asked {
    /// One that is not asked any more is forgotten.
    pub(crate) fn at(&self, dpu: &Dpu, now: u64) -> Option<u64> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let uid = dpu.metadata.uid.clone().unwrap_or_default();
        if went_back::is_asked(dpu) {
            return Some(*all.entry(uid).or_insert(now));
        }
        all.remove(&uid);
        None
    }
}

/// After so long what was about to pass is told.
const MOMENT: Duration = Duration::from_secs(1);
/// One that is not looked at any more has passed.
const PASSED: Duration = Duration::from_secs(60);

/// The reason that would be said, and since when it is so.
type ReasonSince = (&'static str, Instant);

/// What nearly always passes within a moment: by the object's UID and the condition that would say it. To tell it at once would be a write
/// that nobody waits for, and that wakes others.
#[derive(Default)]
pub struct Passing(Mutex<Moments>);

#[derive(Default)]
struct Moments {
    all: HashMap<(String, &'static str), ReasonSince>,
    /// When those that have passed were last looked for: not each time, for there may be many.
    swept: Option<Instant>,
}

impl Passing {
    /// How long it is not told yet. Another reason begins anew.
    pub(crate) fn rest(&self, uid: &str, condition: &'static str, reason: &'static str) -> Option<Duration> {
        let mut moments = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if moments.swept.get_or_insert_with(Instant::now).elapsed() >= PASSED {
            moments.all.retain(|_, (_, since)| since.elapsed() < PASSED);
            moments.swept = Some(Instant::now());
        }
        let passing = moments.all.entry((uid.to_owned(), condition)).or_insert_with(|| (reason, Instant::now()));
        if passing.0 != reason {
            *passing = (reason, Instant::now());
        }
        MOMENT.checked_sub(passing.1.elapsed()).filter(|rest| !rest.is_zero())
    }

    /// It has passed.
    pub(crate) fn forget(&self, uid: &str, condition: &'static str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).all.remove(&(uid.to_owned(), condition));
    }
}

/// What was last told of each pod's NICs, by the pod's UID: a pod has no status of ours to compare with.
#[derive(Default)]
pub struct ToldPods(Mutex<HashMap<String, String>>);

impl ToldPods {
    /// Whether this is news. A pod of which there is nothing to tell is forgotten.
    pub(crate) fn is_news(&self, uid: &str, note: Option<&String>) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match note {
            Some(note) => all.insert(uid.to_owned(), note.clone()).as_ref() != Some(note),
            None => {
                all.remove(uid);
                false
            }
        }
    }
}

/// Each Workflow as it was when its Events were told: the cache's own copy, until that changes.
#[derive(Default)]
pub struct ToldWorkflows(Mutex<HashMap<Key, Arc<Workflow>>>);

impl ToldWorkflows {
    /// What has become of these was told by whoever led before, or by nobody.
    pub(crate) fn begin(&self, all: impl IntoIterator<Item = Arc<Workflow>>) {
        let known = all.into_iter().map(|workflow| (key(&workflow.metadata), workflow));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(known);
    }

    pub(crate) fn news(&self, key: &Key, workflow: &Arc<Workflow>) -> Vec<Told> {
        if !tells(workflow) {
            return Vec::new();
        }
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), workflow.clone());
        let before = before.filter(|before| before.metadata.uid == workflow.metadata.uid);
        story(before.as_deref(), workflow)
    }

    pub(crate) fn forget(&self, key: &Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

/// What was sent last for each Job, and the answer.
#[derive(Default)]
pub struct SentTasks(Mutex<HashMap<Key, Sent>>);

impl SentTasks {
    pub(crate) fn of(&self, job: &Key) -> Option<Sent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(job).cloned()
    }

    pub(crate) fn put(&self, job: &Key, sent: Sent) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(job.clone(), sent);
    }

    pub(crate) fn forget(&self, job: &Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(job);
    }
}

/// When each orphan was first seen reported, by the UID of the Dpu: a reading of its host that was begun before proves nothing.
#[derive(Default)]
pub struct FirstSeen(Mutex<HashMap<String, Since>>);

pub(crate) type Since = HashMap<ExposureId, Timestamp>;

impl FirstSeen {
    /// What is not reported any more is forgotten: it is another orphan when it is reported again.
    pub(crate) fn of(&self, dpu: &Dpu, orphans: &[Orphan]) -> Since {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let uid = dpu.metadata.uid.clone().unwrap_or_default();
        let before = all.remove(&uid).unwrap_or_default();
        let now = clock::now();
        let since = |orphan: &Orphan| {
            let id = id(orphan);
            let at = before.get(&id).copied().unwrap_or(now);
            (id, at)
        };
        let seen: Since = orphans.iter().map(since).collect();
        if !seen.is_empty() {
            all.insert(uid, seen.clone());
        }
        seen
    }
}

pub(crate) fn id(orphan: &Orphan) -> ExposureId {
    ExposureId { uid: orphan.uid.clone(), epoch: orphan.epoch }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::conditions::{DELETABLE, IN_FORCE};
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn what_has_not_passed_within_a_second_is_told_and_each_reason_has_its_own() {
        let passing = Passing::default();
        let rest = |condition, reason| passing.rest("n", condition, reason);
        assert_eq!(rest(IN_FORCE, "NotHeld"), Some(MOMENT));
        advance(MOMENT / 4).await;
        assert_eq!(rest(IN_FORCE, "NotHeld"), Some(MOMENT / 4 * 3));
        assert_eq!((rest(IN_FORCE, "NotBound"), rest(DELETABLE, "VNicInUse")), (Some(MOMENT), Some(MOMENT)));
        advance(MOMENT).await;
        assert_eq!((rest(IN_FORCE, "NotBound"), rest(DELETABLE, "VNicInUse")), (None, None));
        passing.forget("n", IN_FORCE);
        assert_eq!((rest(IN_FORCE, "NotBound"), rest(DELETABLE, "VNicInUse")), (Some(MOMENT), None));
        assert_eq!(passing.rest("other", DELETABLE, "VNicInUse"), Some(MOMENT));
        advance(PASSED).await;
        assert_eq!(passing.rest("last", IN_FORCE, "NotHeld"), Some(MOMENT));
        let left = passing.0.lock().expect("nobody has it").all.len();
        assert_eq!(left, 1, "nobody looks at the others any more");
    }
}
