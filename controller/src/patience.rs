//! How long a watch waits that failed: as long as kube's own would, with a jitter that follows from the process and the kind. So no two
//! processes come back together, and a process that is run again, in a simulation, comes back as it did before.

use backon::ExponentialBuilder;
use kube::runtime::utils::{Backoff, ResetTimerBackoff};
use kube::runtime::watcher::ExponentialBackoff;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(800);
const LONGEST: Duration = Duration::from_secs(30);
/// After so long without a failure the next one is a first one.
const FORGOTTEN: Duration = Duration::from_secs(120);

/// `nonce`: differs between any two processes.
pub fn patience(nonce: u64, kind: &str) -> impl Backoff + use<> {
    let mut hasher = DefaultHasher::new();
    (nonce, kind).hash(&mut hasher);
    let builder = ExponentialBuilder::default()
        .with_min_delay(FIRST)
        .with_max_delay(LONGEST)
        .with_factor(2.0)
        .without_max_times()
        .with_jitter()
        .with_jitter_seed(hasher.finish());
    ResetTimerBackoff::new(ExponentialBackoff::from(builder), FORGOTTEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(nonce: u64, kind: &str) -> Vec<Duration> {
        patience(nonce, kind).take(8).collect()
    }

    #[test]
    fn a_process_waits_alike_each_time_and_no_two_wait_alike() {
        assert_eq!(first(1, "Pod"), first(1, "Pod"));
        assert_ne!(first(1, "Pod"), first(2, "Pod"));
        assert_ne!(first(1, "Pod"), first(1, "Node"));
        assert!(first(1, "Pod").iter().all(|delay| (FIRST..=LONGEST * 2).contains(delay)));
    }
}
