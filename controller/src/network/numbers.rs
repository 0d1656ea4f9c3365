//! Which objects wait for a number of the north-bound database (`nb_cfg`) or for the chassis to reach it (`planner::network::barrier`).
//! A new process begins with nothing: it asks anew for what no status has a number of.

use crate::work::Work;
use planner::network::barrier::{Known, has_reached};
use runtime::queue::Key;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// An object is counted at most this often while nothing else of it changes.
const COUNTS: Duration = Duration::from_secs(1);

/// How far a transaction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Commit {
    UnderWay,
    /// Whatever the answer was: what failed may have happened.
    Answered,
}

#[derive(Default)]
pub(super) struct Numbers {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By the object's UID.
    waiting: BTreeMap<String, Waiting>,
    /// When objects were counted last.
    counted: BTreeMap<String, Instant>,
    next: u64,
}

struct Waiting {
    object: (Work, Key),
    known: Known,
    since: Instant,
    chassis: BTreeSet<String>,
    /// Of the last commit: a number that was asked for before it proves nothing.
    commit: u64,
    /// Its answer is still to come. A number that is asked for meanwhile would prove nothing either, and cost northd a round.
    under_way: bool,
}

impl Waiting {
    fn needs_number(&self) -> bool {
        self.known == Known::Committed && !self.under_way
    }
}

impl Numbers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rows of the object are being committed, or were, and no number that was asked for before covers them.
    pub(super) fn committed(&self, uid: &str, object: (Work, Key), since: Instant, commit: Commit) {
        let mut state = self.state();
        state.next += 1;
        let (known, under_way) = (Known::Committed, commit == Commit::UnderWay);
        let waiting = Waiting { object, known, since, chassis: BTreeSet::new(), commit: state.next, under_way };
        state.waiting.insert(uid.to_owned(), waiting);
    }

    /// A number is needed for rows that were committed before, by what was known when that was decided: one that was asked for since is
    /// for them, and whose object they are is looked at again. Who asks has no commit under way: one that ended without an answer was
    /// this object's.
    pub(super) fn ask(&self, uid: &str, object: (Work, Key), since: Instant, by: Known) {
        let asked = |waiting: &Waiting| waiting.needs_number() || waiting.known != by;
        let is_asked = self.state().waiting.get(uid).is_some_and(asked);
        if !is_asked {
            self.committed(uid, object, since, Commit::Answered);
        }
    }

    /// What is known, and since when.
    pub(super) fn known(&self, uid: &str) -> Option<(Known, Instant)> {
        self.state().waiting.get(uid).map(|waiting| (waiting.known, waiting.since))
    }

    pub(super) fn forget(&self, uid: &str) {
        let mut state = self.state();
        state.waiting.remove(uid);
        state.counted.remove(uid);
    }

    /// It is in force: nothing is waited for. How long it took, if anything was.
    pub(super) fn settled(&self, uid: &str) -> Option<Duration> {
        self.state().waiting.remove(uid).map(|waiting| waiting.since.elapsed())
    }

    pub(super) fn wait_for_number(&self) -> bool {
        self.state().waiting.values().any(Waiting::needs_number)
    }

    pub(super) fn wait_for_chassis(&self) -> bool {
        self.state().waiting.values().any(|waiting| matches!(waiting.known, Known::Number(_)))
    }

    /// The objects that a number which is asked for from now on covers, each with its commit.
    pub(super) fn before_number(&self) -> BTreeMap<String, u64> {
        let state = self.state();
        let committed = state.waiting.iter().filter(|(_, waiting)| waiting.needs_number());
        committed.map(|(uid, waiting)| (uid.clone(), waiting.commit)).collect()
    }

    /// The database was away, and may be another: every number is asked for anew.
    pub(super) fn void(&self) {
        let mut state = self.state();
        let State { waiting, next, .. } = &mut *state;
        for waiting in waiting.values_mut() {
            *next += 1;
            (waiting.known, waiting.commit) = (Known::Committed, *next);
        }
    }

    /// That number. Who is looked at again.
    pub(super) fn numbered(&self, covered: &BTreeMap<String, u64>, number: u64) -> Vec<(Work, Key)> {
        let mut state = self.state();
        let covered = |(uid, waiting): &(&String, &mut Waiting)| covered.get(*uid) == Some(&waiting.commit);
        let covered = state.waiting.iter_mut().filter(covered);
        covered
            .map(|(_, waiting)| {
                waiting.known = Known::Number(number);
                waiting.object.clone()
            })
            .collect()
    }

    /// These chassis have to reach the number of the object.
    pub(super) fn lags(&self, uid: &str, object: (Work, Key), number: u64, chassis: BTreeSet<String>, since: Instant) {
        let mut state = self.state();
        state.next += 1;
        let commit = state.next;
        let waiting = state.waiting.entry(uid.to_owned()).or_insert_with(|| Waiting {
            object,
            known: Known::Number(number),
            since,
            chassis: BTreeSet::new(),
            commit,
            under_way: false,
        });
        if waiting.known == Known::Number(number) {
            waiting.chassis = chassis;
        }
    }

    /// Those whose chassis all have reached their number.
    pub(super) fn reached(&self, installed: &BTreeMap<String, Option<u64>>) -> Vec<(Work, Key)> {
        let reached = |waiting: &&Waiting| match waiting.known {
            Known::Number(number) => waiting.chassis.iter().all(|chassis| has_reached(installed, chassis, number)),
            Known::Nothing | Known::Committed => false,
        };
        self.state().waiting.values().filter(reached).map(|waiting| waiting.object.clone()).collect()
    }

    pub(super) fn all(&self) -> Vec<(Work, Key)> {
        self.state().waiting.values().map(|waiting| waiting.object.clone()).collect()
    }

    /// How long counting has to wait; if not at all, it is done now.
    pub(super) fn counts_wait(&self, uid: &str) -> Option<Duration> {
        let mut state = self.state();
        let left = state.counted.get(uid).and_then(|said| COUNTS.checked_sub(said.elapsed()));
        let left = left.filter(|left| !left.is_zero());
        if left.is_none() {
            state.counted.insert(uid.to_owned(), Instant::now());
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> (Work, Key) {
        (Work::SecurityGroup, ("team".to_owned(), "web".to_owned()))
    }

    #[test]
    fn no_number_is_asked_for_while_a_commit_is_under_way() {
        let numbers = Numbers::default();
        numbers.committed("g", object(), Instant::now(), Commit::UnderWay);
        // What its rows are by now may have been told already: the answer comes behind.
        assert!(!numbers.wait_for_number() && numbers.before_number().is_empty());
        assert_eq!(numbers.known("g").map(|(known, _)| known), Some(Known::Committed));

        numbers.committed("g", object(), Instant::now(), Commit::Answered);
        assert!(numbers.wait_for_number());
        let covered = numbers.before_number();
        assert_eq!(numbers.numbered(&covered, 7), [object()]);
        assert!(!numbers.wait_for_number(), "one number is for one commit");
    }

    #[test]
    fn a_commit_without_an_answer_keeps_nobody_waiting() {
        let numbers = Numbers::default();
        numbers.committed("g", object(), Instant::now(), Commit::UnderWay);
        numbers.ask("g", object(), Instant::now(), Known::Committed);
        assert_eq!(numbers.before_number().len(), 1);
        let first = numbers.before_number();
        numbers.ask("g", object(), Instant::now(), Known::Committed);
        assert_eq!(numbers.before_number(), first, "that it is asked for once more is no other commit");
    }

    #[test]
    fn a_number_that_came_while_the_status_was_written_is_the_one() {
        let numbers = Numbers::default();
        numbers.committed("g", object(), Instant::now(), Commit::Answered);
        let (by, _) = numbers.known("g").expect("it waits");
        assert_eq!(numbers.numbered(&numbers.before_number(), 7), [object()], "it is looked at again");
        numbers.ask("g", object(), Instant::now(), by);
        assert!(!numbers.wait_for_number());
        // One of a database that is gone is asked for anew.
        numbers.ask("g", object(), Instant::now(), Known::Number(7));
        assert!(numbers.wait_for_number());
    }
}
