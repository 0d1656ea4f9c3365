//! A machine with `maintenancePolicy: ColdMigrate` whose DPU is taken out of service.

use super::*;
use proptest::prelude::*;

fn of_a_machine_that_moves() -> (Move, String) {
    let (mut m, first) = Move::of_a_running_machine();
    m.policy(MaintenancePolicy::ColdMigrate);
    settle_with_claims(&mut m.world);
    assert!(m.world.migrations.is_empty());
    (m, first)
}

fn open(world: &World) -> usize {
    let is_open = |m: &&MachineMigration| m.status.as_ref().is_none_or(|status| !status.operation.phase.is_over());
    world.migrations.values().filter(is_open).count()
}

fn runs_on(m: &Move, hardware: &str) -> bool {
    on(&m.world) == hardware
        && state(&m.world, "a") == Some(MachineState::Running)
        && open(&m.world) == 0
        && !locked(&m.world)
}

#[test]
fn it_is_moved_each_time_and_the_migration_is_its_own() {
    for maintenance in [Maintenance::Drain, Maintenance::OutOfService] {
        let (mut m, first) = of_a_machine_that_moves();
        let second = other(&first);
        m.maintain(&first, maintenance);
        m.until(|m| runs_on(m, &second));
        m.maintain(&first, Maintenance::None);
        m.maintain(&second, maintenance);
        m.until(|m| runs_on(m, &first));
        // The same DPU again.
        m.maintain(&second, Maintenance::None);
        m.maintain(&first, maintenance);
        m.until(|m| runs_on(m, &second));
        assert_eq!(m.world.migrations.len(), 3, "{:?}", m.world.migrations.names());
        let machine = uid(&m.world.machines["a"].metadata).to_owned();
        for migration in m.world.migrations.values() {
            let owners = migration.metadata.owner_references.clone().unwrap_or_default();
            assert_eq!(owners.iter().map(|owner| owner.uid.as_str()).collect::<Vec<_>>(), [machine.as_str()]);
            assert!(name(&migration.metadata).starts_with("a-"), "{}", name(&migration.metadata));
        }
    }
}

#[test]
fn a_machine_that_is_off_moves_too_and_stays_off() {
    let (mut m, first) = of_a_machine_that_moves();
    m.world.machines.get_mut("a").expect("there").spec.run_strategy = RunStrategy::Halted;
    settle_with_claims(&mut m.world);
    m.maintain(&first, Maintenance::Drain);
    m.until(|m| on(&m.world) == other(&first) && open(&m.world) == 0);
    m.go_on(20);
    assert_eq!(state(&m.world, "a"), Some(MachineState::Stopped));
}

#[test]
fn where_nothing_is_free_it_runs_on_says_why_and_stays_if_the_dpu_does() {
    type Change = fn(&mut Move);
    let taken: Change = |m| {
        let free = other(&on(&m.world));
        m.annotate(&free, labels::CLAIMED_BY, Some("another"));
    };
    let drained: Change = |m| {
        let free = other(&on(&m.world));
        m.maintain(&free, Maintenance::Drain);
    };
    let pinned: Change = |m| {
        let hardware = named(&on(&m.world));
        m.world.machines.get_mut("a").expect("there").spec.hardware = hardware;
    };
    for (change, reason) in [(taken, "NoFreeHardware"), (drained, "NoFreeHardware"), (pinned, "HardwarePinned")] {
        let (mut m, first) = of_a_machine_that_moves();
        change(&mut m);
        m.maintain(&first, Maintenance::Drain);
        m.go_on(10);
        assert_eq!(m.said(), (OperationPhase::Pending, reason.to_owned()));
        assert_eq!((on(&m.world), state(&m.world, "a")), (first.clone(), Some(MachineState::Running)), "{reason}");
        assert!(!locked(&m.world), "{reason}");
        m.maintain(&first, Maintenance::None);
        m.go_on(10);
        assert!(m.world.migrations.is_empty(), "{reason}: it is taken back");
        assert!(runs_on(&m, &first), "{reason}");
    }
}

/// A leader that is gone asked for it when the DPU was drained; its request arrives when that is over.
#[test]
fn one_that_comes_late_does_not_begin() {
    let (mut m, first) = of_a_machine_that_moves();
    let second = other(&first);
    m.annotate(&second, labels::CLAIMED_BY, Some("another"));
    m.maintain(&first, Maintenance::Drain);
    m.go_on(10);
    let mut late = m.world.migrations.values().next().expect("it is asked for").clone();
    late.status = None;
    m.maintain(&first, Maintenance::None);
    m.annotate(&second, labels::CLAIMED_BY, None);
    m.go_on(10);
    m.world.migrations.insert(late);
    m.go_on(10);
    assert!(m.world.migrations.is_empty(), "it is taken back");
    assert!(runs_on(&m, &first));
}

#[test]
fn a_server_that_becomes_free_is_taken() {
    let (mut m, first) = of_a_machine_that_moves();
    let second = other(&first);
    m.annotate(&second, labels::CLAIMED_BY, Some("another"));
    m.maintain(&first, Maintenance::Drain);
    m.go_on(10);
    assert_eq!(on(&m.world), first);
    m.annotate(&second, labels::CLAIMED_BY, None);
    m.until(|m| runs_on(m, &second));
}

#[test]
fn another_policy_and_somebodys_own_migration_are_left_alone() {
    for policy in [MaintenancePolicy::Wait, MaintenancePolicy::Stop] {
        let (mut m, first) = of_a_machine_that_moves();
        m.policy(policy);
        m.maintain(&first, Maintenance::Drain);
        m.go_on(10);
        assert!(m.world.migrations.is_empty());
    }
    let (mut m, first) = of_a_machine_that_moves();
    let second = other(&first);
    m.annotate(&second, labels::CLAIMED_BY, Some("another"));
    m.ask(None);
    m.maintain(&first, Maintenance::Drain);
    m.go_on(10);
    assert_eq!(m.world.migrations.names(), ["move"]);
    m.maintain(&first, Maintenance::None);
    m.go_on(10);
    assert_eq!(m.world.migrations.names(), ["move"], "it is not ours to take back");
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Maintain(usize, Maintenance),
    Policy(MaintenancePolicy),
    Fault(Fault),
    /// The machine's plan, and a crash after so many actions.
    Crash(usize),
    GoOn,
}

fn event() -> impl Strategy<Value = Event> {
    let maintenance = prop_oneof![Just(Maintenance::None), Just(Maintenance::Drain), Just(Maintenance::OutOfService)];
    let policy = prop_oneof![3 => Just(MaintenancePolicy::ColdMigrate), 1 => Just(MaintenancePolicy::Wait), 1 => Just(MaintenancePolicy::Stop)];
    let fault = prop_oneof![
        (0..2usize).prop_map(Fault::AgentDies),
        (0..2usize).prop_map(Fault::DpuReboots),
        (0..2usize).prop_map(Fault::BmcGoesAway),
    ];
    prop_oneof![
        4 => (0..2usize, maintenance).prop_map(|(server, maintenance)| Event::Maintain(server, maintenance)),
        1 => policy.prop_map(Event::Policy),
        1 => fault.prop_map(Event::Fault),
        3 => (0..4usize).prop_map(Event::Crash),
        8 => Just(Event::GoOn),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 500, ..ProptestConfig::default() })]

    /// However DPUs are drained and come back, and whoever dies meanwhile: there is never more than one migration under way, no two DPUs
    /// present a volume (checked at every step), and when all is in service the machine runs, with nothing open behind it.
    #[test]
    fn however_dpus_come_and_go_the_machine_runs_in_the_end(events in proptest::collection::vec(event(), 0..40)) {
        let (mut m, _) = of_a_machine_that_moves();
        for event in events {
            match event {
                Event::Maintain(server, maintenance) => m.maintain(["hw-1", "hw-2"][server], maintenance),
                Event::Policy(policy) => m.policy(policy),
                Event::Fault(fault) => m.world.suffer(fault),
                Event::Crash(after) => {
                    round(&mut m.world, "a", after);
                }
                Event::GoOn => m.go_on(1),
            }
            // One that is being taken back may have a successor.
            let wanted = m.world.migrations.values().filter(|x| x.metadata.deletion_timestamp.is_none());
            let under_way = wanted.filter(|x| x.status.as_ref().is_none_or(|status| !status.operation.phase.is_over()));
            prop_assert!(under_way.count() <= 1);
        }
        m.world.heal();
        for hardware in ["hw-1", "hw-2"] {
            m.maintain(hardware, Maintenance::None);
        }
        m.until(|m| state(&m.world, "a") == Some(MachineState::Running) && open(&m.world) == 0 && !locked(&m.world));
        prop_assert_eq!(held(&m.world).len(), 1);
    }
}
