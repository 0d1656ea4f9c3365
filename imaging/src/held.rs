//! A disk that is written by a thread, and can be taken away from that thread at any moment by whoever asked for the copy.
//!
//! A future can be dropped, a thread cannot: it would go on writing a disk that is another one's by then. So the thread has no disk, but a
//! [`Lent`], which asks for the disk with each call; and the future has [`Held`], whose drop takes the disk out of there. That waits for
//! the call under way, and no other one begins. What was begun and is not whole has zeros at its ends then, as after any other failure.

use crate::disk::wipe;
use crate::{Disk, Target};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Default)]
struct Shared {
    /// Set before the disk is taken: who calls it again and again would always be faster at the lock.
    given_up: AtomicBool,
    state: Mutex<Option<State>>,
}

struct State {
    disk: Box<dyn Disk>,
    /// Something was written, or discarded, since the disk was whole.
    begun: bool,
    /// What is zeroed of a disk that is not whole.
    size_bytes: u64,
    wipe: bool,
}

impl State {
    /// A disk that failed is not tried twice.
    fn wipe(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.begun) && self.wipe {
            true => wipe(self.disk.as_mut(), self.size_bytes),
            false => Ok(()),
        }
    }
}

impl Shared {
    /// A thread that panicked in a call of the disk leaves it as a failure does.
    fn with<T>(&self, act: impl FnOnce(&mut Option<State>) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(crate) struct Held(Arc<Shared>);

impl Held {
    pub(crate) fn new(disk: Box<dyn Disk>, target: &Target) -> Self {
        let state = State { disk, begun: false, size_bytes: target.size_bytes, wipe: target.wipe };
        Self(Arc::new(Shared { state: Mutex::new(Some(state)), ..Shared::default() }))
    }

    pub(crate) fn lend(&self) -> Lent {
        Lent(self.0.clone())
    }
}

impl Drop for Held {
    /// When this returns nobody writes the disk any more, and this process has closed it.
    fn drop(&mut self) {
        self.0.given_up.store(true, Ordering::Relaxed);
        if let Some(mut state) = self.0.with(Option::take) {
            // Nobody is there who could be told.
            let _ = state.wipe();
        }
    }
}

/// The disk, for a thread.
pub(crate) struct Lent(Arc<Shared>);

impl Lent {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let given_up = || io::Error::other("the copy was given up");
        if self.0.given_up.load(Ordering::Relaxed) {
            return Err(given_up());
        }
        self.0.with(|state| act(state.as_mut().ok_or_else(given_up)?))
    }

    fn begin(&self, act: impl FnOnce(&mut dyn Disk) -> io::Result<()>) -> io::Result<()> {
        self.with(|state| {
            state.begun = true;
            act(state.disk.as_mut())
        })
    }

    /// An image is there, to its end.
    pub(crate) fn whole(&self) -> io::Result<()> {
        self.with(|state| {
            state.begun = false;
            Ok(())
        })
    }

    /// Zeros at its ends, if it was begun.
    pub(crate) fn wipe(&self) -> io::Result<()> {
        self.with(State::wipe)
    }
}

impl Disk for Lent {
    fn discard(&mut self) -> io::Result<()> {
        self.begin(|disk| disk.discard())
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.begin(|disk| disk.write(offset, data))
    }

    fn zero(&mut self, offset: u64, length: u64) -> io::Result<()> {
        self.begin(|disk| disk.zero(offset, length))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.with(|state| state.disk.sync())
    }
}
