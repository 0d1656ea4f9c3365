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

pub struct Patience {
    delays: ResetTimerBackoff<ExponentialBackoff>,
    /// No delay is longer than this, its jitter included.
    most: Duration,
}

impl Patience {
    /// `process`: differs between any two processes.
    pub fn new(process: impl Hash, kind: &str) -> Self {
        Self::with(process, kind, LONGEST, Duration::MAX)
    }

    /// For those whose watch matters at once: an API server that is back should not wait for its DPUs.
    pub fn at_most(longest: Duration, process: impl Hash, kind: &str) -> Self {
        Self::with(process, kind, longest, longest)
    }

    fn with(process: impl Hash, kind: &str, longest: Duration, most: Duration) -> Self {
        let mut hasher = DefaultHasher::new();
        (process, kind).hash(&mut hasher);
        let builder = ExponentialBuilder::default()
            .with_min_delay(FIRST)
            .with_max_delay(longest)
            .with_factor(2.0)
            .without_max_times()
            .with_jitter()
            .with_jitter_seed(hasher.finish());
        Self { delays: ResetTimerBackoff::new(ExponentialBackoff::from(builder), FORGOTTEN), most }
    }
}

impl Iterator for Patience {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.delays.next().map(|delay| delay.min(self.most))
    }
}

impl Backoff for Patience {
    fn reset(&mut self) {
        self.delays.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(nonce: u64, kind: &str) -> Vec<Duration> {
        Patience::new(nonce, kind).take(8).collect()
    }

    #[test]
    fn a_process_waits_alike_each_time_and_no_two_wait_alike() {
        assert_eq!(first(1, "Pod"), first(1, "Pod"));
        assert_ne!(first(1, "Pod"), first(2, "Pod"));
        assert_ne!(first(1, "Pod"), first(1, "Node"));
        assert!(first(1, "Pod").iter().all(|delay| (FIRST..=LONGEST * 2).contains(delay)));
    }

    #[test]
    fn a_longest_time_holds_with_its_jitter() {
        let longest = Duration::from_secs(5);
        let delays: Vec<_> = Patience::at_most(longest, "dpu-1", "Dpu").take(8).collect();
        assert!(delays.iter().all(|delay| (FIRST..=longest).contains(delay)), "{delays:?}");
        assert_ne!(delays, Patience::at_most(longest, "dpu-2", "Dpu").take(8).collect::<Vec<_>>());
    }
}
