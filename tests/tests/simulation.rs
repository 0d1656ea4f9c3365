//! The controller and the agent in simulated time, with one thing going wrong after the other.
//!
//! `SIM_SEED=<number>` runs with that seed; a failure names the seed and the fault.

use std::sync::OnceLock;
use tests::sim::Simulation;
use tests::sim::faults::{Fault, Plan, Who};
use tests::sim::life::{self, Record};

fn seed() -> u64 {
    std::env::var("SIM_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20261121)
}

/// Runs in a runtime of its own with a paused clock.
fn simulate<T>(run: impl Future<Output = T>) -> T {
    static START: OnceLock<()> = OnceLock::new();
    START.get_or_init(|| {
        // The wall clocks begin before any simulated one.
        controller::clock::now();
        dpu_agent::clock::now();
        let filter = std::env::var("SIM_LOG").unwrap_or_else(|_| "off".to_owned());
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(run)
}

fn reference() -> &'static (Record, usize, usize) {
    static REFERENCE: OnceLock<(Record, usize, usize)> = OnceLock::new();
    REFERENCE.get_or_init(|| {
        simulate(async {
            let s = Simulation::start(1, seed(), Plan::None);
            let record = life::whole(&s).await.unwrap_or_else(|e| panic!("SIM_SEED={}: no fault: {e}", seed()));
            (record, s.scene.faults.count(Who::Controller), s.scene.faults.count(Who::Agent))
        })
    })
}

/// One life with a fault, and what is wrong with it.
fn life_with(plan: Plan) -> Result<(), String> {
    let (expected, ..) = reference();
    simulate(async {
        let s = Simulation::start(1, seed(), plan);
        let record = life::whole(&s).await?;
        life::difference(expected, &record).map_or(Ok(()), |d| Err(format!("{d}\n{}", s.story())))
    })
}

/// Which effects are tried: all with `SIM_ALL=1`, else one in `stride`, other ones with another seed.
fn sample(all: usize, stride: usize) -> impl Iterator<Item = usize> {
    let stride = if std::env::var_os("SIM_ALL").is_some() { 1 } else { stride };
    (0..all).skip(seed() as usize % stride).step_by(stride)
}

/// Runs `one` for each, and fails with what was wrong and how to see it again.
fn each<T: std::fmt::Debug>(cases: impl Iterator<Item = T>, one: impl Fn(&T) -> Result<(), String>) {
    let mut wrong = Vec::new();
    let mut count = 0;
    for case in cases {
        count += 1;
        if let Err(message) = one(&case) {
            wrong.push(format!("{case:?}: {message}"));
        }
    }
    assert!(count > 0, "nothing was tried");
    let first = wrong.first().cloned().unwrap_or_default();
    let others: Vec<&str> = wrong.iter().skip(1).filter_map(|w| w.lines().next()).collect();
    assert!(
        wrong.is_empty(),
        "SIM_SEED={}: {} of {count} went wrong: {first}\n\nand: {}",
        seed(),
        wrong.len(),
        others.join("\n     ")
    );
}

fn every(who: Who, fault: Fault, stride: usize) {
    let (_, by_controller, by_agent) = reference();
    let all = if who == Who::Controller { *by_controller } else { *by_agent };
    let plans = sample(all, stride).map(|at| Plan::At { who, at, fault });
    each(plans, |plan| life_with(plan.clone()));
}

#[test]
fn a_life_without_faults_leaves_nothing() {
    let (record, by_controller, by_agent) = reference();
    eprintln!("{by_controller} effects of the controller, {by_agent} of the agent, power {:?}", record.power);
    assert!(*by_controller > 40 && *by_agent > 20);
}

#[test]
fn the_same_seed_gives_the_same_end() {
    life_with(Plan::None).unwrap_or_else(|e| panic!("SIM_SEED={}: {e}", seed()));
}

#[test]
fn the_controller_crashes_after_an_effect() {
    every(Who::Controller, Fault::Crash, 4);
}

#[test]
fn the_controller_crashes_before_an_effect() {
    every(Who::Controller, Fault::CrashBefore, 8);
}

#[test]
fn the_agent_crashes_after_an_effect() {
    every(Who::Agent, Fault::Crash, 3);
}

#[test]
fn the_agent_crashes_before_an_effect() {
    every(Who::Agent, Fault::CrashBefore, 6);
}

#[test]
fn an_answer_to_the_controller_is_lost() {
    every(Who::Controller, Fault::LoseAnswer, 4);
}

#[test]
fn an_answer_to_the_agent_is_lost() {
    every(Who::Agent, Fault::LoseAnswer, 3);
}

#[test]
fn one_write_meets_a_conflict() {
    every(Who::Controller, Fault::Refuse, 6);
    every(Who::Agent, Fault::Refuse, 6);
}

#[test]
fn every_write_meets_a_conflict_first() {
    each([Plan::RefuseFirst(Default::default())].into_iter(), |plan| life_with(plan.clone()));
}

#[test]
fn a_dead_controllers_request_arrives_late() {
    every(Who::Controller, Fault::Late, 5);
}

#[test]
fn a_dead_agents_request_arrives_late() {
    every(Who::Agent, Fault::Late, 4);
}
