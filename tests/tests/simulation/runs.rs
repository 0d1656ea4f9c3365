//! Workflows on servers that no machine has: each runs once and in its turn, whatever goes wrong, as it was rendered when it began.

use super::kinds::{Kind, reference_of};
use super::{each, every_of, sample, seed, simulate, wider};
use std::time::Duration;
use tests::sim::faults::{Fault, Plan, Who};
use tests::sim::{Simulation, capt, runs};

#[test]
fn two_servers_and_a_workflow_behind_another_one() {
    let by_boot = reference_of(Kind::Runs).effects(Who::Boot);
    assert!(by_boot > 20, "{by_boot}");
}

#[test]
fn everything_goes_wrong_with_workflows_on_two_servers() {
    for (who, stride) in [(Who::Boot, 4), (Who::Controller, 6)] {
        for fault in [Fault::Crash, Fault::CrashBefore, Fault::LoseAnswer, Fault::Refuse, Fault::Late] {
            every_of(Kind::Runs, who, fault, wider(stride));
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Fate {
    Restart,
    /// For a minute.
    PowerLost,
    /// For five minutes.
    ApiServerAway,
}

/// Whatever its agent, and the Jobs by which the server boots, were at.
#[test]
fn the_server_of_a_workflow_restarts_or_loses_its_power_or_the_api_server_is_away() {
    let by_boot = reference_of(Kind::Runs).effects(Who::Boot);
    let fates = [Fate::Restart, Fate::PowerLost, Fate::ApiServerAway];
    let cases = sample(by_boot, wider(1)).zip(fates.into_iter().cycle());
    each(cases, |(at, fate)| {
        simulate(async {
            let s = Kind::Runs.start(Plan::At { who: Who::Boot, at: *at, fault: Fault::Mark });
            let reached = s.scene.faults.reached.subscribe();
            let befalls = async |s: &Simulation| match fate {
                Fate::Restart => s.scene.hosts[0].resets_itself(),
                Fate::PowerLost => {
                    s.scene.hosts[0].goes_off();
                    tokio::time::sleep(Duration::from_mins(1)).await;
                    s.scene.hosts[0].is_switched_on();
                }
                Fate::ApiServerAway => {
                    s.scene.api_server_is_away(true);
                    tokio::time::sleep(Duration::from_mins(5)).await;
                    s.scene.api_server_is_away(false);
                }
            };
            runs::life_befallen(&s, befalls, || *reached.borrow()).await
        })
    });
}

#[test]
fn two_controllers_lead_while_workflows_run() {
    each([1, 12].into_iter(), |at| {
        simulate(async {
            let mut s = Kind::Runs.start(Plan::None);
            tokio::time::sleep(Duration::from_secs(*at)).await;
            s.start_controller("controller-2", "default");
            runs::life(&s).await
        })
    });
}

#[test]
fn a_run_keeps_what_was_rendered_when_its_template_changes() {
    each(sample(18, 6).flat_map(|at| [(at, false), (at, true)]), |(at, is_deleted)| {
        simulate(async {
            let s = Simulation::start(1, seed(), Plan::At { who: Who::Boot, at: *at, fault: Fault::Mark });
            let reached = s.scene.faults.reached.subscribe();
            runs::template_changes(&s, *is_deleted, || *reached.borrow()).await
        })
    });
}

#[test]
fn a_workflow_whose_hardware_is_deleted_ends_and_says_why() {
    let cases = [
        ("PREPARING", ("FAILED", "names none that exists")),
        ("RUNNING", ("TIMEOUT", "the agent has not reported by the end of the action's timeout")),
    ];
    each(cases.into_iter(), |(once, ends)| {
        simulate(async { runs::hardware_goes(&Simulation::start(1, seed(), Plan::None), once, *ends).await })
    });
}

/// Cluster API's provider for Tinkerbell.
#[test]
fn what_capt_writes_becomes_what_capt_waits_for() {
    let modes = [None, Some("netboot"), Some("isoboot")];
    each(modes.into_iter(), |mode| {
        simulate(async { capt::life(&Simulation::start(1, seed(), Plan::None), *mode).await })
    });
}
