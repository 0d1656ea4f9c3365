//! Which objects are to be looked at: each once at a time, at once or later, with a back-off of its own.
//!
//! An object that is added while it is worked on is worked on again afterwards, so no event is lost.

use crate::clock;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Namespace (empty for cluster-scoped kinds) and name.
pub type Key = (String, String);

const FIRST_DELAY: Duration = Duration::from_millis(100);
const LAST_DELAY: Duration = Duration::from_secs(60);

#[derive(Default)]
struct State {
    ready: VecDeque<Key>,
    queued: BTreeSet<Key>,
    running: BTreeSet<Key>,
    /// Added while running.
    again: BTreeSet<Key>,
    timers: BTreeSet<(Instant, Key)>,
    due: BTreeMap<Key, Instant>,
    /// Of those the ones that the next look takes back ([`Next::Unless`]).
    unless: BTreeMap<Key, Instant>,
    failures: HashMap<Key, u32>,
}

#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    wake: Notify,
}

/// What becomes of an object after it was worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Until something happens.
    Wait,
    After(Duration),
    /// As `After`, unless the object is worked on before: then only what comes of that counts. For whoever says each time how long to wait.
    Unless(Duration),
    /// It failed: after its back-off.
    BackOff,
}

impl Next {
    /// Then, and a moment later: what is due is looked at when it is.
    pub fn at(time: Option<Timestamp>) -> Self {
        let Some(at) = time else { return Self::Wait };
        let left = Duration::try_from(at.duration_since(clock::now())).unwrap_or_default();
        Self::After(left + Duration::from_millis(5))
    }

    /// Of two that one object asks for.
    pub fn sooner(self, other: Self) -> Self {
        match (self, other) {
            (Self::After(one), Self::After(other)) => Self::After(one.min(other)),
            (Self::Unless(one), Self::Unless(other)) => Self::Unless(one.min(other)),
            (Self::After(one), Self::Unless(other)) | (Self::Unless(other), Self::After(one)) => {
                // Whoever says `Unless` says the later time again by then.
                if one <= other { Self::After(one) } else { Self::Unless(other) }
            }
            (Self::Wait, other) => other,
            (this, Self::Wait) => this,
            // What failed has its own back-off.
            (Self::BackOff, _) | (_, Self::BackOff) => Self::BackOff,
        }
    }
}

impl Queue {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, key: Key) {
        let mut state = self.state();
        if state.running.contains(&key) {
            state.again.insert(key);
        } else if state.queued.insert(key.clone()) {
            state.ready.push_back(key);
            drop(state);
            self.wake.notify_one();
        }
    }

    /// The earliest of several wins.
    pub fn add_after(&self, key: Key, delay: Duration) {
        self.add_at(key, Instant::now() + delay);
    }

    fn add_at(&self, key: Key, at: Instant) {
        let mut state = self.state();
        if let Some(earlier) = state.due.get(&key).copied() {
            if earlier <= at {
                return;
            }
            state.timers.remove(&(earlier, key.clone()));
        }
        state.due.insert(key.clone(), at);
        state.timers.insert((at, key));
        drop(state);
        self.wake.notify_one();
    }

    pub fn depth(&self) -> usize {
        self.state().ready.len()
    }

    pub fn running(&self) -> usize {
        self.state().running.len()
    }

    /// How many failed when they were last worked on.
    pub fn failing(&self) -> usize {
        self.state().failures.len()
    }

    /// The next object; it counts as running until [`Queue::done`].
    pub async fn next(&self) -> Key {
        loop {
            let timer = {
                let mut state = self.state();
                let now = Instant::now();
                while let Some((at, key)) = state.timers.first().cloned().filter(|(at, _)| *at <= now) {
                    state.timers.remove(&(at, key.clone()));
                    state.due.remove(&key);
                    if state.running.contains(&key) {
                        state.again.insert(key);
                    } else if state.queued.insert(key.clone()) {
                        state.ready.push_back(key);
                    }
                }
                if let Some(key) = state.ready.pop_front() {
                    state.queued.remove(&key);
                    state.running.insert(key.clone());
                    return key;
                }
                state.timers.first().map(|(at, _)| *at)
            };
            match timer {
                Some(at) => tokio::select! {
                    biased;
                    () = self.wake.notified() => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                None => self.wake.notified().await,
            }
        }
    }

    fn done(&self, key: Key, next: Next) {
        let again = {
            let mut state = self.state();
            state.running.remove(&key);
            if let Some(at) = state.unless.remove(&key)
                && state.due.get(&key) == Some(&at)
            {
                state.due.remove(&key);
                state.timers.remove(&(at, key.clone()));
            }
            state.again.remove(&key)
        };
        match next {
            Next::Wait => self.succeeded(&key),
            Next::After(delay) => {
                self.succeeded(&key);
                self.add_after(key.clone(), delay);
            }
            Next::Unless(delay) => {
                self.succeeded(&key);
                let at = Instant::now() + delay;
                self.add_at(key.clone(), at);
                self.state().unless.insert(key.clone(), at);
            }
            Next::BackOff => {
                let delay = self.failed(&key);
                // What failed is often cured by an event, but our own writes are events too.
                self.add_after(key, if again { delay.min(Duration::from_secs(1)) } else { delay });
                return;
            }
        }
        if again {
            self.add(key);
        }
    }

    fn succeeded(&self, key: &Key) {
        self.state().failures.remove(key);
    }

    fn failed(&self, key: &Key) -> Duration {
        let mut state = self.state();
        let failures = state.failures.entry(key.clone()).or_default();
        let delay = FIRST_DELAY.saturating_mul(1 << (*failures).min(16)).min(LAST_DELAY);
        *failures += 1;
        delay
    }
}

/// Works on the queue for ever, on at most `concurrency` objects at a time. What is under way ends with the future.
pub async fn work<F, Fut>(queue: Arc<Queue>, concurrency: usize, reconcile: F)
where
    F: Fn(Key) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Next> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(concurrency));
    let mut under_way = JoinSet::new();
    loop {
        while under_way.try_join_next().is_some() {}
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        let key = queue.next().await;
        let (queue, reconcile) = (queue.clone(), reconcile.clone());
        under_way.spawn(async move {
            let mut running = Running { queue, key: Some(key.clone()) };
            let next = reconcile(key).await;
            running.finish(next);
            drop(permit);
        });
    }
}

/// A reconcile that panics must not keep its object for ever.
struct Running {
    queue: Arc<Queue>,
    key: Option<Key>,
}

impl Running {
    fn finish(&mut self, next: Next) {
        if let Some(key) = self.key.take() {
            self.queue.done(key, next);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.finish(Next::BackOff);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        (String::new(), name.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_is_worked_on_once_at_a_time_and_again_if_it_changed_meanwhile() {
        let queue = Queue::default();
        queue.add(key("a"));
        queue.add(key("a"));
        assert_eq!(queue.next().await, key("a"));
        assert_eq!(queue.depth(), 0);
        queue.add(key("a"));
        assert_eq!(queue.depth(), 0, "it runs");
        queue.done(key("a"), Next::Wait);
        assert_eq!(queue.next().await, key("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn back_off_doubles_and_ends_with_success() {
        let queue = Queue::default();
        let mut delays = Vec::new();
        queue.add(key("a"));
        for _ in 0..12 {
            let began = Instant::now();
            assert_eq!(queue.next().await, key("a"));
            delays.push(began.elapsed());
            queue.done(key("a"), Next::BackOff);
        }
        assert!(delays[0].is_zero());
        assert_eq!(delays[1], FIRST_DELAY);
        assert_eq!(delays[3], FIRST_DELAY * 4);
        assert_eq!(delays[11], LAST_DELAY);
        queue.next().await;
        queue.done(key("a"), Next::Wait);
        queue.add(key("a"));
        queue.next().await;
        queue.done(key("a"), Next::BackOff);
        let began = Instant::now();
        queue.next().await;
        assert_eq!(began.elapsed(), FIRST_DELAY);
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_of_several_timers_wins() {
        let queue = Queue::default();
        queue.add_after(key("a"), Duration::from_secs(9));
        queue.add_after(key("a"), Duration::from_secs(3));
        queue.add_after(key("a"), Duration::from_secs(6));
        let began = Instant::now();
        queue.next().await;
        assert_eq!(began.elapsed(), Duration::from_secs(3));
        queue.done(key("a"), Next::Wait);
        assert!(tokio::time::timeout(Duration::from_secs(60), queue.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_takes_back_what_the_one_before_has_said_unless() {
        let queue = Queue::default();
        let (soon, later, long) = (Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(60));
        for (next, then) in [(Next::Wait, None), (Next::Unless(later), Some(later)), (Next::After(later), Some(later))]
        {
            queue.add(key("a"));
            queue.next().await;
            queue.done(key("a"), Next::Unless(soon));
            let began = Instant::now();
            queue.add(key("a"));
            queue.next().await;
            queue.done(key("a"), next);
            let looked = tokio::time::timeout(long, queue.next()).await.ok().map(|_| began.elapsed());
            assert_eq!(looked, then, "{next:?}");
            queue.done(key("a"), Next::Wait);
        }
        queue.add(key("a"));
        queue.next().await;
        queue.done(key("a"), Next::After(soon));
        queue.add(key("a"));
        queue.next().await;
        queue.done(key("a"), Next::Unless(later));
        queue.next().await;
        queue.done(key("a"), Next::Wait);
        assert!(
            tokio::time::timeout(long, queue.next()).await.is_err(),
            "the earlier time stood, and was the last one"
        );
        let sooner = |one: Next, other: Next| (one.sooner(other), other.sooner(one));
        assert_eq!(sooner(Next::Unless(soon), Next::After(later)), (Next::Unless(soon), Next::Unless(soon)));
        assert_eq!(sooner(Next::Unless(later), Next::After(soon)), (Next::After(soon), Next::After(soon)));
        assert_eq!(sooner(Next::Unless(soon), Next::Wait), (Next::Unless(soon), Next::Unless(soon)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_a_failure_and_not_the_end() {
        let queue = Arc::new(Queue::default());
        queue.add(key("a"));
        let tries = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let seen = tries.clone();
        let worker = tokio::spawn(work(queue, 4, move |_| {
            let tries = seen.clone();
            async move {
                assert!(tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst) > 0, "the first one");
                Next::Wait
            }
        }));
        tokio::time::sleep(Duration::from_secs(1)).await;
        worker.abort();
        assert_eq!(tries.load(std::sync::atomic::Ordering::SeqCst), 2);
    }
}
