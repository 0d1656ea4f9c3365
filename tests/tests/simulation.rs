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

#[test]
fn a_life_without_faults_leaves_nothing() {
    let (record, by_controller, by_agent) = reference();
    eprintln!("{by_controller} effects of the controller, {by_agent} of the agent, power {:?}", record.power);
    assert!(*by_controller > 40 && *by_agent > 20);
}
