//! Whose turn it is: tests of different servers run at the same time, for most of their time is waiting. One that does
//! something to all of the site, or takes any server, has it to itself.
//!
//! Those of single servers come first: a test that waits for all of the site lets no server stand idle.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

static TURNS: Mutex<Turns> = Mutex::new(Turns { busy: [false; 3], site: false, waiting: 0 });
static CHANGED: Condvar = Condvar::new();

struct Turns {
    busy: [bool; 3],
    /// Somebody has all of the site.
    site: bool,
    /// Tests that wait for single servers.
    waiting: usize,
}

/// Ends with the test, also with one that fails.
pub struct Turn {
    servers: Vec<usize>,
}

fn turns() -> MutexGuard<'static, Turns> {
    TURNS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn until(turns: MutexGuard<'static, Turns>, free: impl Fn(&Turns) -> bool) -> MutexGuard<'static, Turns> {
    CHANGED.wait_while(turns, |turns| !free(turns)).unwrap_or_else(PoisonError::into_inner)
}

/// `servers`: 1, 2, 3.
pub fn of_servers(servers: &[usize]) -> Turn {
    let mut turns = turns();
    turns.waiting += 1;
    let mut turns = until(turns, |turns| !turns.site && servers.iter().all(|number| !turns.busy[number - 1]));
    turns.waiting -= 1;
    servers.iter().for_each(|number| turns.busy[number - 1] = true);
    Turn { servers: servers.to_vec() }
}

pub fn of_the_site() -> Turn {
    let mut turns = until(turns(), |turns| !turns.site && turns.waiting == 0 && turns.busy == [false; 3]);
    turns.site = true;
    Turn { servers: Vec::new() }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut turns = turns();
        match self.servers.is_empty() {
            true => turns.site = false,
            false => self.servers.iter().for_each(|number| turns.busy[number - 1] = false),
        }
        CHANGED.notify_all();
    }
}
