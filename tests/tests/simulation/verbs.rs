//! What is done to a whole machine, with the controller dying in between.

use super::{each, sample, seed, simulate, wide};
use std::time::Duration;
use tests::sim::faults::{Fault, Plan, Who};
use tests::sim::{Simulation, life, verbs};

/// Which effects lie in `run`: from the first to behind the last.
fn effects(
    hosts: usize,
    who: Who,
    before: impl AsyncFn(&Simulation),
    run: impl AsyncFn(&Simulation),
) -> (usize, usize) {
    simulate(async {
        let s = Simulation::start(hosts, seed(), Plan::None);
        before(&s).await;
        let first = s.scene.faults.count(who);
        run(&s).await;
        (first, s.scene.faults.count(who))
    })
}

async fn snapshots(s: &Simulation) -> Result<(), String> {
    verbs::snapshot(s, "bm-01", "s1").await?;
    life::start(s, "bm-01").await?;
    verbs::delete_snapshot(s, "s1").await?;
    life::delete(s, "bm-01").await
}

#[test]
fn several_disks_are_taken_together_whenever_the_controller_dies() {
    let (first, last) = effects(
        1,
        Who::Controller,
        async |s| verbs::two_disks(s, "bm-01").await.expect("it runs without a fault"),
        async |s| snapshots(s).await.expect("it is taken without a fault"),
    );
    let faults = [Fault::Crash, Fault::LoseAnswer, Fault::Refuse];
    let cases = sample(last - first, 6).map(|at| (first + at, faults[at / 6 % faults.len()]));
    each(cases, |(at, fault)| {
        simulate(async {
            let s = Simulation::start(1, seed(), Plan::At { who: Who::Controller, at: *at, fault: *fault });
            verbs::two_disks(&s, "bm-01").await?;
            snapshots(&s).await
        })
    });
}

async fn snapshots_of_one_that_runs(s: &Simulation) -> Result<(), String> {
    verbs::snapshot_running(s, "bm-01", "s1").await?;
    verbs::delete_snapshot(s, "s1").await?;
    // A MachineSnapshot is deleted between any two steps of the snapshot controller.
    for after in [50, 200, 350, 500, 700] {
        verbs::snapshot_taken_back(s, "bm-01", "s2", Duration::from_millis(after)).await?;
    }
    life::delete(s, "bm-01").await
}

#[test]
fn several_disks_of_a_machine_that_runs_are_taken_at_one_moment_whenever_the_controller_dies() {
    let (first, last) = effects(
        1,
        Who::Controller,
        async |s| verbs::two_disks(s, "bm-01").await.expect("it runs without a fault"),
        async |s| snapshots_of_one_that_runs(s).await.expect("it is taken without a fault"),
    );
    let faults = [Fault::Crash, Fault::LoseAnswer, Fault::Refuse, Fault::Late];
    let stride = wide(5);
    let cases = sample(last - first, stride).map(|at| (first + at, faults[at / stride % faults.len()]));
    each(cases, |(at, fault)| {
        simulate(async {
            let s = Simulation::start(1, seed(), Plan::At { who: Who::Controller, at: *at, fault: *fault });
            verbs::two_disks(&s, "bm-01").await?;
            snapshots_of_one_that_runs(&s).await
        })
    });
}

async fn stopped_with_a_snapshot(s: &Simulation) -> Result<(), String> {
    verbs::two_disks(s, "bm-01").await?;
    life::stop(s, "bm-01").await?;
    verbs::snapshot_stopped(s, "bm-01", "s1").await
}

async fn restores(s: &Simulation) -> Result<(), String> {
    verbs::restore(s, "bm-01", "s1", "r1").await?;
    life::delete(s, "bm-01").await?;
    verbs::delete_restore(s, "r1").await?;
    verbs::delete_snapshot(s, "s1").await
}

#[test]
fn a_machine_is_put_back_whenever_controller_or_agent_dies() {
    for (who, stride) in [(Who::Controller, 6), (Who::Agent, 6)] {
        let (first, last) = effects(
            1,
            who,
            async |s| stopped_with_a_snapshot(s).await.expect("it is there without a fault"),
            async |s| restores(s).await.expect("it is put back without a fault"),
        );
        let faults = [Fault::Crash, Fault::LoseAnswer, Fault::Late];
        let cases = sample(last - first, stride).map(|at| (first + at, faults[at / stride % faults.len()]));
        each(cases, |(at, fault)| {
            simulate(async {
                let s = Simulation::start(1, seed(), Plan::At { who, at: *at, fault: *fault });
                stopped_with_a_snapshot(&s).await?;
                restores(&s).await
            })
        });
    }
}

async fn migrations(s: &Simulation) -> Result<(), String> {
    verbs::migrate(s, "bm-01", "there").await?;
    verbs::delete_migrations(s).await?;
    life::delete(s, "bm-01").await
}

/// Every fault at one effect in so many of a migration.
fn each_of_a_migration(who: Who, stride: usize, faults: &[Fault]) {
    let (first, last) = effects(
        2,
        who,
        async |s| verbs::two_disks(s, "bm-01").await.expect("it runs without a fault"),
        async |s| migrations(s).await.expect("it moves without a fault"),
    );
    let cases = sample(last - first, stride).map(|at| (first + at, faults[at / stride % faults.len()]));
    each(cases, |(at, fault)| {
        simulate(async {
            let s = Simulation::start(2, seed(), Plan::At { who, at: *at, fault: *fault });
            verbs::two_disks(&s, "bm-01").await?;
            migrations(&s).await
        })
    });
}

#[test]
fn a_machine_moves_whenever_the_controller_dies() {
    each_of_a_migration(Who::Controller, 4, &[Fault::Crash, Fault::LoseAnswer, Fault::Late, Fault::CrashBefore]);
}

#[test]
fn a_machine_moves_whenever_an_agent_dies() {
    each_of_a_migration(Who::Agent, 6, &[Fault::Crash, Fault::LoseAnswer, Fault::Late]);
}

async fn drains(s: &Simulation) -> Result<(), String> {
    verbs::drained(s, "bm-01").await?;
    verbs::delete_migrations(s).await?;
    life::delete(s, "bm-01").await
}

#[test]
fn a_machine_leaves_drained_dpus_whenever_the_controller_dies() {
    let (first, last) = effects(
        2,
        Who::Controller,
        async |s| verbs::two_disks(s, "bm-01").await.expect("it runs without a fault"),
        async |s| drains(s).await.expect("it moves without a fault"),
    );
    let faults = [Fault::Crash, Fault::LoseAnswer, Fault::Late, Fault::CrashBefore];
    let cases = sample(last - first, 12).map(|at| (first + at, faults[at / 12 % faults.len()]));
    each(cases, |(at, fault)| {
        simulate(async {
            let s = Simulation::start(2, seed(), Plan::At { who: Who::Controller, at: *at, fault: *fault });
            verbs::two_disks(&s, "bm-01").await?;
            drains(&s).await
        })
    });
}

#[test]
fn a_migration_is_asked_for_and_taken_back() {
    simulate(async {
        let s = Simulation::start(2, seed(), Plan::None);
        verbs::two_disks(&s, "bm-01").await?;
        verbs::change_of_mind(&s, "bm-01", "there").await?;
        life::delete(&s, "bm-01").await
    })
    .unwrap_or_else(|e: String| panic!("SIM_SEED={}: {e}", seed()));
}

#[test]
fn two_controllers_move_one_machine() {
    each(0..2u64, |more| {
        simulate(async {
            let mut s = Simulation::start(2, seed() + more, Plan::None);
            s.start_controller("controller-2", "default");
            verbs::two_disks(&s, "bm-01").await?;
            verbs::migrate(&s, "bm-01", "there").await?;
            verbs::migrate(&s, "bm-01", "back").await?;
            verbs::delete_migrations(&s).await?;
            life::delete(&s, "bm-01").await
        })
    });
}
