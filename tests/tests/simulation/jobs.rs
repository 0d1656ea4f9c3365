//! Jobs: whatever goes wrong, each ends, none touches a machine's server, and a reset happens once.

use super::kinds::{Kind, reference_of};
use super::{every_of, seed, simulate, wider};
use tests::sim::Simulation;
use tests::sim::faults::{Fault, Plan, Who};

#[test]
fn jobs_and_boot_options_without_faults() {
    let by_controller = reference_of(Kind::Jobs).effects(Who::Controller);
    assert!(by_controller > 30, "{by_controller}");
}

#[test]
fn everything_goes_wrong_with_jobs() {
    for (fault, stride) in
        [(Fault::Crash, 3), (Fault::CrashBefore, 5), (Fault::LoseAnswer, 4), (Fault::Refuse, 6), (Fault::Late, 7)]
    {
        every_of(Kind::Jobs, Who::Controller, fault, wider(stride));
    }
}

#[test]
fn a_job_that_fails_tells_no_query_of_its_url() {
    simulate(async { tests::sim::jobs::without_a_drive(&Simulation::start(1, seed(), Plan::None)).await })
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn events_tell_of_workflows_and_of_their_jobs() {
    simulate(async { tests::sim::events::of_workflows(&mut Simulation::start(1, seed(), Plan::None)).await })
        .unwrap_or_else(|e| panic!("{e}"));
}
