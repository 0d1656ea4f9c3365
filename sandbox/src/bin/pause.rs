//! Process 1 of a pod: holds the pod's namespaces, ends when told to.

use nix::sys::signal::{SigSet, Signal};

fn main() {
    let mut ends = SigSet::empty();
    ends.add(Signal::SIGTERM);
    ends.add(Signal::SIGINT);
    // Blocked signals wait for us; process 1 would never be ended by one that has its default action.
    if ends.thread_block().is_ok() {
        let _ = ends.wait();
    }
}
