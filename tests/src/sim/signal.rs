//! A value that many wait for. Unlike those of `tokio::sync::watch`, which puts each of them into one of eight queues at random, they are
//! woken in the order in which they began to wait.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

pub struct Signal<T> {
    state: Mutex<(T, u64)>,
    wake: Notify,
}

impl<T: Copy + PartialEq> Signal<T> {
    pub fn new(value: T) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new((value, 0)), wake: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, (T, u64)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self) -> T {
        self.state().0
    }

    /// Wakes those who wait, if it is another value.
    pub fn set(&self, value: T) {
        let mut state = self.state();
        if state.0 == value {
            return;
        }
        *state = (value, state.1 + 1);
        drop(state);
        self.wake.notify_waiters();
    }

    /// How often it has changed, for [`Signal::changed`].
    pub fn turn(&self) -> u64 {
        self.state().1
    }

    /// Waits until it has changed more often than that.
    pub async fn changed(&self, since: u64) {
        loop {
            // Before the look: what changes in between is not missed.
            let woken = self.wake.notified();
            if self.turn() > since {
                return;
            }
            woken.await;
        }
    }

    pub async fn wait_for(&self, wanted: T) {
        loop {
            let turn = self.turn();
            if self.get() == wanted {
                return;
            }
            self.changed(turn).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Signal;
    use std::sync::{Arc, Mutex};

    #[tokio::test(start_paused = true)]
    async fn those_who_wait_are_woken_in_their_order() {
        let (signal, woken) = (Signal::new(false), Arc::new(Mutex::new(Vec::new())));
        let wait = |number| {
            let (signal, woken) = (signal.clone(), woken.clone());
            tokio::spawn(async move {
                signal.wait_for(true).await;
                woken.lock().expect("nobody panics").push(number);
            })
        };
        let tasks: Vec<_> = (0..32).map(wait).collect();
        tokio::task::yield_now().await;
        signal.set(true);
        for task in tasks {
            task.await.expect("nobody panics");
        }
        assert_eq!(*woken.lock().expect("nobody panics"), (0..32).collect::<Vec<_>>());
    }
}
