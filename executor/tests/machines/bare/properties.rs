//! What holds on a server without a DPU for every sequence of faults.

use super::{Round, Subject, World};
use api::dpu::LocalDisks;
use api::labels;
use api::machine::RunStrategy;
use jiff::SignedDuration;
use proptest::prelude::*;

#[derive(Debug, Clone, Copy)]
enum Event {
    Round,
    /// After so many requests.
    Crash(usize),
    /// Carries out what was planned earlier: a leader that was deposed.
    Late,
    Step,
    /// So many seconds.
    Waits(i64),
    PowerLost,
    BmcAway,
    WorkflowDeleted,
    StatusLost,
    HardwareAnew,
    AgentFails,
    /// From now on nothing is heard of it, or it is back.
    AgentHangs,
    Halt,
    Start,
    Reinstall,
    Delete,
    /// Its finalizer is taken away by force.
    Forced,
    EraseAgain,
    DiskHidden,
    DiskBack,
    /// One of the same name.
    MadeAnew,
    WithData,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        14 => Just(Event::Round),
        4 => (0..6usize).prop_map(Event::Crash),
        3 => Just(Event::Late),
        14 => Just(Event::Step),
        1 => Just(Event::PowerLost),
        1 => Just(Event::BmcAway),
        1 => Just(Event::WorkflowDeleted),
        1 => Just(Event::StatusLost),
        1 => Just(Event::HardwareAnew),
        1 => Just(Event::AgentFails),
        2 => Just(Event::AgentHangs),
        2 => (0..400i64).prop_map(Event::Waits),
        1 => Just(Event::Halt),
        2 => Just(Event::Start),
        1 => Just(Event::Reinstall),
        2 => Just(Event::Delete),
        1 => Just(Event::Forced),
        1 => Just(Event::EraseAgain),
        1 => Just(Event::DiskHidden),
        1 => Just(Event::DiskBack),
        2 => Just(Event::MadeAnew),
        1 => Just(Event::WithData),
    ]
}

fn happens(world: &mut World, event: Event, late: &mut Option<Round>) {
    match event {
        Event::Round => {
            let rounds = world.round(usize::MAX);
            *late = rounds.into_iter().last().or(late.take());
        }
        Event::Crash(limit) => drop(world.round(limit)),
        Event::Late => {
            if let Some(round) = late.take() {
                round.carry_out(world, usize::MAX);
            }
        }
        Event::Step => world.step(),
        Event::PowerLost => world.goes_off(),
        Event::BmcAway => world.bmc_answers = !world.bmc_answers,
        Event::WorkflowDeleted => {
            world.workflows.clear();
            world.forgets();
        }
        Event::StatusLost => world.change(|m| {
            // Conditions and rows are derived; what it keeps of an installation is the Hardware's to say.
            if let Some(status) = &mut m.status {
                (status.power, status.conditions) = (None, Vec::new());
            }
        }),
        Event::HardwareAnew => {
            world.register_anew();
            world.forgets();
        }
        Event::AgentFails => world.agent_fails = !world.agent_fails,
        Event::AgentHangs => world.hangs = !world.hangs,
        Event::Waits(seconds) => world.now += SignedDuration::from_secs(seconds),
        Event::Halt => world.change(|m| m.spec.run_strategy = RunStrategy::Halted),
        Event::Start => world.change(|m| m.spec.run_strategy = RunStrategy::Always),
        Event::Reinstall => world.ask(),
        Event::Delete => world.delete(),
        Event::Forced => {
            world.forced();
            world.forgets();
        }
        Event::EraseAgain => world.erase_again(),
        Event::DiskHidden => drop(world.disks.hidden.insert("DISK-2")),
        Event::DiskBack => world.disks.hidden.clear(),
        Event::MadeAnew if world.machine().is_none() => {
            world.requests += 1;
            world.create_machine();
        }
        Event::MadeAnew => {}
        Event::WithData => world.with_data(),
    }
    assert!(world.installations() <= 1 + world.requests);
}

/// What an administrator does: an erasing that failed is asked for again, and what a machine that is gone has left on is switched off, for
/// nobody is for a machine that is not there.
fn ends(world: &mut World) {
    world.erase_again();
    if world.subjects().iter().any(|subject| matches!(subject, Subject::Gone(_))) {
        world.goes_off();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 2000, ..ProptestConfig::default() })]

    /// Whatever happens, and in whatever order: nothing is installed that was not asked for, and a machine that is deleted gives
    /// its server back, switched off; erased, if the policy says so.
    #[test]
    fn whatever_happens_nothing_is_installed_that_was_not_asked_for(
        events in proptest::collection::vec(event(), 0..120),
        (erases, hides) in any::<(bool, bool)>(),
    ) {
        let (mut world, mut late) = (World::new(), None);
        world.local_disks = if erases { LocalDisks::Erase } else { LocalDisks::Keep };
        for event in events {
            happens(&mut world, event, &mut late);
        }
        (world.bmc_answers, world.agent_fails, world.hangs) = (true, false, false);
        world.disks.hidden.clear();
        world.change(|m| m.spec.run_strategy = RunStrategy::Always);
        ends(&mut world);
        if world.machine().is_some_and(|m| m.metadata.deletion_timestamp.is_none()) {
            world.ask();
            world.until("it runs", World::is_running);
            world.delete();
        }
        ends(&mut world);
        // A disk that is not there keeps it, until it is back.
        world.disks.hidden.extend(hides.then_some("DISK-2"));
        for _ in 0..60 {
            world.step();
            world.round(usize::MAX);
        }
        world.disks.hidden.clear();
        ends(&mut world);
        world.until("it no longer exists", |world| world.subjects().is_empty());
        prop_assert!(world.workflows.is_empty() && world.copies() == 0);
        let free = world.hardware["hw"].metadata.annotations.as_ref().is_none_or(|all| !all.contains_key(labels::CLAIMED_BY));
        prop_assert!(free);
    }
}
