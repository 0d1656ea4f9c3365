//! A container that waits, and ends when told to: the only one of a holder pod, by which kubelet connects a volume on a DPU; and in the
//! sandbox process 1 of each pod, which holds the pod's namespaces.

use nix::sys::signal::{SigSet, Signal};

fn main() {
    if std::env::args().nth(1).is_some_and(|argument| argument == "--version") {
        println!("pause {}", version::VERSION);
        return;
    }
    let mut ends = SigSet::empty();
    ends.add(Signal::SIGTERM);
    ends.add(Signal::SIGINT);
    // Blocked signals wait for us; process 1 would never be ended by one that has its default action.
    if ends.thread_block().is_ok() {
        let _ = ends.wait();
    }
}
