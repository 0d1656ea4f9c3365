//! One writer per volume (docs/design/fencing.md) over random schedules, by the thousand: the real plans of controller and
//! agent, and a model of everything else.
//!
//! `tests/tests/simulation/fences.rs` runs the real programs, and takes seconds for one schedule. Here only what decides is
//! real, `planner::machine`, `planner::agent` and `planner::dpu`, and what the controller sends for it, `executor`, request by request
//! ([`shell`]). The API server is its preconditions ([`objects`]), the agent's shell is written down once more ([`agent`]), and
//! time is simulated ([`time`]). A schedule takes milliseconds.
//!
//! **What befalls them.** Two or three servers, with DPUs on standby power or their hosts', with a BMC of their own or none; one or
//! two volumes on storage whose fence is a list of who may come, a list of who may not, or none, natively or by a holder pod;
//! one or two controllers, neither of which knows that the other leads, with caches that lag by up to five seconds or stand
//! still. Volumes pass from machine to machine, and agents, controllers and kube-controller-manager pause, die, start
//! again or are cut off, DPUs reboot or lose their power, hosts go off, an SPDK target crashes, BMCs fall silent, an
//! administrator confirms that a DPU is down. Users want a volume on all machines at once. Any request is refused,
//! loses its answer, comes up to 30 s late, or is the last one that its sender sent.
//!
//! **What is checked**, after every single step: at most one identity that the storage accepts may write a volume, be it that
//! a host sees it or that the record of a DPU's boot names it, so that its agent would connect it again ([`site`]). And when the
//! faults are over: the volumes come to where they are asked for, every host is on, no plan has anything left to do; and when
//! the machines are deleted, nothing is left.
//!
//! **What is left out:** NICs, imports, disks that are only read, growth and limits, moves of machines, storage that
//! forgets whom it let in, holder pods that end by themselves, and data on their way: who may write counts, not what was written. Kubernetes collects no
//! garbage: the Secret of a seed stays. When a controller gathers, and what an agent sends, are written down a second time: an
//! error there is the simulation's to find.
//!
//! **What it finds.** [`rules`] takes out one rule after the other, and knows a schedule that goes wrong without it. For one of
//! them chance would need too long: its schedule stands step by step in [`directed`].
//!
//! The digest that is printed tells whether two versions of all this go the same ways.
//!
//! `SIM_SCHEDULES=<n>`: how many, `SIM_FIRST=<k>` from which on, `SIM_MINUTES=<m>` for how long at most, `SIM_SEED=<s>` other
//! ones. A schedule that goes wrong is run once more, and tells its story.

#![expect(
    clippy::disallowed_methods,
    reason = "which schedules, and for how long, is asked of the environment and a clock"
)]

mod agent;
mod bmc;
mod caches;
mod cluster;
mod dice;
mod directed;
mod gather;
mod leader;
mod lives;
mod rules;
mod schedule;
mod shell;
mod site;
mod time;
mod told;
mod world;

use rules::Rule;
use schedule::Schedule;
use std::cell::Cell;
use std::time::{Duration, Instant};

const USER: &str = "team";
const INVENTORY: &str = "inventory";
const SEEDS: &str = "seeds";
const DRIVER: &str = api::labels::CSI_DRIVER;
/// Its volumes only kubelet can connect.
const FOREIGN: &str = "foreign.example.com";
/// So much of the story is told.
const LINES: usize = 4_000;

fn asked(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text}: write a number")))
}

fn seed() -> u64 {
    asked("SIM_SEED").unwrap_or(20_261_122)
}

/// What came of it.
struct Outcome {
    result: Result<(), String>,
    digest: u64,
    /// If asked for.
    story: Vec<String>,
}

/// `without`: the rule that does not hold in it.
fn run(number: u64, without: Option<Rule>, tells: bool) -> Outcome {
    let schedule = Schedule::new(seed().wrapping_mul(0x1_0000_0001).wrapping_add(number), without, tells);
    let result = schedule.run();
    let (digest, story) = (schedule.world.digest(), schedule.world.story());
    schedule.world.end();
    Outcome { result, digest, story }
}

/// The numbers of the schedules; the next one only while there is time. How many it were is printed, with a digest of how they
/// went: one that is the same before and after a change says that it changed nothing that matters here.
fn schedules(digest: &Cell<u64>) -> impl Iterator<Item = u64> {
    let (first, count) = (asked("SIM_FIRST").unwrap_or(0), asked("SIM_SCHEDULES").unwrap_or(12));
    let ends = asked("SIM_MINUTES").map(|minutes| Instant::now() + Duration::from_secs(60 * minutes));
    (first..=first + count).take_while(move |number| {
        let run = number - first;
        let over = run == count || ends.is_some_and(|ends| Instant::now() >= ends);
        if over || run.is_multiple_of(1000) {
            eprintln!("random schedules from {first} on: {run}, digest {:016x}", digest.get());
        }
        !over
    })
}

#[test]
fn random_schedules() {
    let digest = Cell::new(0);
    for number in schedules(&digest) {
        let outcome = run(number, None, false);
        digest.set(digest.get().rotate_left(1) ^ outcome.digest);
        if let Err(wrong) = outcome.result {
            let story = run(number, None, true).story;
            let tail = story[story.len().saturating_sub(LINES)..].join("\n");
            panic!("{tail}\nSIM_SEED={} SIM_FIRST={number}: {wrong}", seed());
        }
    }
}
