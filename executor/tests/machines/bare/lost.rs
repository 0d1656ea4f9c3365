//! An agent that is no longer heard: its Workflow says so, and its server is restarted where that helps.

use super::{MAC, TEXT, World, cases, sights};
use api::conditions;
use api::dpu::LocalDisks;
use api::machine::RunStrategy;
use api::report::AgentSession;
use api::tinkerbell::Workflow;
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use planner::host::PowerState;
use planner::netboot::session::SILENT;
use planner::workflow::{Heard, told};

impl World {
    /// The installer runs, and its heartbeats come: `boot` has the newest on record.
    pub(super) fn beats(&mut self) {
        let run = "of this start".to_owned();
        sights::change(self, |status, now| {
            let before = status.session.take();
            status.session = Some(AgentSession {
                key: "sha256:0".to_owned(),
                began_at: before.map_or(MicroTime(now), |before| before.began_at),
                run,
                address: None,
                heard_at: MicroTime(now),
                ended_at: None,
                doing: None,
            });
        });
    }

    /// As `boot` tells it of every Workflow.
    pub(super) fn listens(&mut self) {
        let session = self.report.as_ref().and_then(|report| report.status.as_ref()?.session.clone());
        let heard = match session.map(|session| session.heard_at.0) {
            None => Heard::Unknown,
            Some(at) if self.now >= at + SILENT => Heard::Silent { since: at },
            Some(_) => Heard::Now,
        };
        let all: Vec<Workflow> = self.workflows.values().cloned().collect();
        for mut workflow in all {
            if let Some(status) = told(&workflow, |_| None, |_| heard, self.now) {
                workflow.status = Some(status);
                self.workflows.insert(workflow);
            }
        }
    }

    /// How long nothing was heard of the installer.
    pub(super) fn silence(&self) -> SignedDuration {
        let session = self.report.as_ref().and_then(|report| report.status.as_ref()?.session.clone());
        session.map_or(SignedDuration::ZERO, |session| self.now.duration_since(session.heard_at.0))
    }
}

fn resets(world: &World) -> u32 {
    let status = world.machine().and_then(|machine| machine.status.as_ref());
    status.and_then(|status| status.power.as_ref()).map_or(0, |power| power.agent_resets)
}

/// An image that takes its time, and an agent that falls silent while it writes.
fn hangs(text: &str) -> World {
    let mut world = World::new();
    cases::show(&mut world, Some(text));
    world.until("it writes", |world| world.reason(conditions::INSTALLED) == "Installing" && world.begun.is_some());
    world.hangs = true;
    world.until("it is told", |world| world.reason(conditions::INSTALLED) == "AgentLost");
    world
}

fn long() -> String {
    TEXT.replace("timeout: 60,", "timeout: 4500,").replace("global_timeout: 600", "global_timeout: 9000")
}

fn is_on(world: &World) -> bool {
    world.power == PowerState::On
}

#[test]
fn who_comes_back_goes_on_and_nothing_is_restarted() {
    let mut world = hangs(&long());
    assert!(world.silence() < SignedDuration::from_secs(100));
    let said = world.message(conditions::READY);
    for part in [MAC, "action 'write' of task 'os' (1 of 2)", "was last heard at", "powers the server off and on at"] {
        assert!(said.contains(part), "{said}");
    }
    world.hangs = false;
    world.until("it goes on", |world| world.reason(conditions::INSTALLED) != "AgentLost");
    world.until("it runs", World::is_running);
    assert_eq!((resets(&world), world.installations()), (0, 1));
}

#[test]
fn its_server_is_powered_off_and_on_twice_and_left_to_its_time_then() {
    let mut world = hangs(&long());
    for number in 1..=2 {
        world.until("it is powered off", |world| !is_on(world));
        assert_eq!(resets(&world), number, "on record before it is sent");
        assert!(world.silence() >= SignedDuration::from_mins(5));
        let silence = world.silence();
        world.until("it is started again", is_on);
        assert!(world.in_installer, "from the network");
        world.until("it is awaited", |world| world.reason(conditions::INSTALLED) == "NetbootAwaited");
        if number == 2 {
            assert!(silence >= SignedDuration::from_mins(25), "a server takes its time to come up");
        }
    }
    world.until("it is left", |world| world.message(conditions::INSTALLED).contains("off and on 2 times"));
    assert_eq!(world.reason(conditions::INSTALLED), "AgentLost");
    world.until("its time is over", |world| world.reason(conditions::INSTALLED) == "InstallFailed");
    assert!(resets(&world) == 2 && is_on(&world));
}

#[test]
fn what_is_restarted_is_installed() {
    let mut world = hangs(&long());
    world.until("it is powered off", |world| !is_on(world));
    world.hangs = false;
    world.until("it runs", World::is_running);
    assert_eq!((resets(&world), world.installations()), (1, 1));
    world.ask();
    world.until("it is installed once more", |world| world.installations() == 2 && world.is_running());
    assert_eq!(resets(&world), 0, "another Workflow has its own");
}

#[test]
fn what_may_not_run_twice_is_left_to_its_time() {
    let once = long().replace("timeout: 4500, environment", "timeout: 900, idempotent: false, environment");
    let mut world = hangs(&once);
    assert!(world.message(conditions::INSTALLED).contains("is not to run once more"));
    world.until("its time is over", |world| world.reason(conditions::INSTALLED) == "InstallFailed");
    assert!(resets(&world) == 0 && is_on(&world));
}

/// Without a reading of this moment nothing is sent.
#[test]
fn a_bmc_that_does_not_answer_is_waited_for() {
    let mut world = hangs(&long());
    world.bmc_answers = false;
    for _ in 0..100 {
        world.step();
        world.round(usize::MAX);
    }
    assert!(world.silence() > SignedDuration::from_mins(10) && resets(&world) == 0);
    world.bmc_answers = true;
    world.until("it is powered off", |world| !is_on(world));
}

/// The heartbeat is newer than what its Workflow says.
#[test]
fn what_the_report_says_counts_more_than_the_condition() {
    let mut world = hangs(&long());
    world.now += SignedDuration::from_mins(10);
    world.beats();
    let planned = world.round(usize::MAX);
    assert!(planned.len() == 1 && is_on(&world) && resets(&world) == 0);
    assert_eq!(world.reason(conditions::INSTALLED), "Installing");
}

#[test]
fn an_erasing_whose_agent_is_lost_is_done_again() {
    let mut world = World::new();
    world.local_disks = LocalDisks::Erase;
    world.until("it runs", World::is_running);
    world.delete();
    world.until("it erases", |world| world.reason(conditions::READY) == "Erasing" && world.begun.is_some());
    world.hangs = true;
    world.until("it is told", |world| world.reason(conditions::READY) == "AgentLost");
    world.until("it is powered off", |world| !is_on(world));
    world.hangs = false;
    world.until("it no longer exists", |world| world.machine().is_none());
    assert!(world.disks.dirty.is_empty());
}

/// By a boot service that had not heard yet of the end of its installation.
#[test]
fn an_installer_that_runs_after_the_end_is_reset_a_few_times() {
    let mut world = World::new();
    world.until("it runs", World::is_running);
    for number in 1..=2 {
        world.in_installer = true;
        world.until("it is reset", |world| !world.in_installer);
        assert_eq!(resets(&world), number, "on record before it is sent");
        world.until("it runs", World::is_running);
    }
    world.in_installer = true;
    world.until("it is left", |world| world.reason(conditions::POWERED_ON) == "InstallerStays");
    assert!(is_on(&world) && resets(&world) == 2 && world.installations() == 1);
    world.change(|machine| machine.spec.run_strategy = RunStrategy::Halted);
    world.until("it is stopped", |world| !is_on(world));
    world.change(|machine| machine.spec.run_strategy = RunStrategy::Always);
    world.until("it runs", World::is_running);
    assert!(!world.in_installer);
}

/// What was heard a while ago is no reason: the server may have restarted by itself since.
#[test]
fn an_installer_that_was_heard_before_is_none_that_is_reset() {
    let mut world = World::new();
    world.until("it runs", World::is_running);
    (world.now, world.bmc_answers) = (world.now + SignedDuration::from_mins(2), false);
    world.beats();
    while world.silence() < SILENT {
        world.step();
        world.round(usize::MAX);
    }
    world.bmc_answers = true;
    world.until("it runs", World::is_running);
    assert!(is_on(&world) && resets(&world) == 0);
}
