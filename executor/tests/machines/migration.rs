//! A migration beside the machine that it moves, with what befalls both.

use super::USER;
use super::outside::Fault;
use super::properties::{check, nothing_is_left, ready, round, settle_with_claims, state};
use super::requests::send;
use super::world::World;
use api::dpu::{HardwarePolicySpec, Maintenance};
use api::labels;
use api::machine::{HardwareChoice, MachineState, MaintenancePolicy, RunStrategy};
use api::tinkerbell::Hardware;
use api::verbs::OperationPhase;
use api::verbs::migration::{MachineMigrationSpec, MachineMigrationStatus};
use api::{BareMetalMachine, HardwarePolicy, MachineMigration};
use executor::{hosts, writes};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time};
use planner::host::PowerState;
use planner::machine::observed::Observed as Machine;
use planner::machine::observed::{name, uid};
use planner::verbs::migration::{Observed, plan};
use planner::verbs::operation::MachineVersion;
use planner::verbs::{Action, Lock, Plan, Verb, lock};
use serde_json::json;
use std::sync::Arc;

/// The model with a migration in it: the one that is open, or was last.
pub struct Move {
    world: World,
    object: Option<MachineMigration>,
}

impl Move {
    /// A machine that runs on one of the two servers, and where.
    fn of_a_running_machine() -> (Self, String) {
        let mut world = World::new();
        world.machine("a", true);
        settle_with_claims(&mut world);
        assert_eq!(state(&world, "a"), Some(MachineState::Running), "{:?}", ready(&world, "a"));
        let on = on(&world);
        (Self { world, object: None }, on)
    }

    fn ask(&mut self, target: Option<HardwareChoice>) {
        let spec = MachineMigrationSpec { machine_name: "a".into(), target };
        let mut object = MachineMigration::new("move", spec);
        object.metadata.namespace = Some(USER.to_owned());
        self.world.migrations.clear();
        self.world.create(object);
        self.object = self.world.migrations.get("move").cloned();
    }

    fn observe(&self) -> Option<Observed> {
        let machine = self.world.observe("a").map(|mut o: Machine| {
            o.hardware = self.world.hardware.all().cloned().collect();
            let mut policy = HardwarePolicy::new("all", HardwarePolicySpec::default());
            policy.metadata.namespace = Some("inventory".into());
            o.policies = vec![Arc::new(policy)];
            o
        });
        Some(Observed { object: Arc::new(self.object.clone()?), machine })
    }

    /// One round of every migration's plan, with the one that is open, or was last, as `object`. The machine's own plan may
    /// have asked for one, or have taken it back.
    fn plan(&mut self) -> Option<Plan<MachineMigrationStatus>> {
        let mut plan = None;
        for name in self.world.migrations.names() {
            self.object = self.world.migrations.get(&name).cloned();
            plan = self.plan_one();
            if let Some(object) = &self.object {
                self.world.migrations.insert(object.clone());
            }
        }
        let open = |m: &&MachineMigration| m.status.as_ref().is_none_or(|status| !status.operation.phase.is_over());
        let all = &self.world.migrations;
        self.object = all.values().find(open).or_else(|| all.values().last()).cloned();
        plan
    }

    fn plan_one(&mut self) -> Option<Plan<MachineMigrationStatus>> {
        let o = self.observe()?;
        let plan = plan(&o, self.world.now);
        self.object.as_mut()?.status = Some(plan.status.clone());
        for action in &plan.actions {
            self.act(action);
        }
        Some(plan)
    }

    /// By somebody else.
    fn annotate(&mut self, hardware: &str, key: &str, value: Option<&str>) {
        let meta = &mut self.world.hardware.get_mut(hardware).expect("racked").metadata;
        let annotations = meta.annotations.get_or_insert_default();
        match value {
            Some(value) => annotations.insert(key.to_owned(), value.to_owned()),
            None => annotations.remove(key),
        };
    }

    /// As the controller does it (controller/src/verbs/operation.rs).
    fn act(&mut self, action: &Action) {
        let Some(object) = self.object.as_mut() else { return };
        let own = uid(&object.metadata).to_owned();
        match action {
            Action::AddFinalizer => object.metadata.finalizers = Some(vec![labels::FINALIZER_OPERATION.into()]),
            Action::RemoveFinalizer => {
                self.world.migrations.remove(name(&object.metadata));
                self.object = None;
            }
            Action::Lock(seen) => {
                let lock = Lock { verb: Verb::Migration, name: name(&object.metadata).to_owned(), uid: own };
                self.lock(seen, Some(lock.to_string()));
            }
            Action::Unlock(seen) => self.lock(seen, None),
            Action::ClaimTarget { machine, hardware } => {
                let Some(machine) = self.world.machines.get(&machine.name).cloned() else { return };
                send(&mut self.world, async |c| hosts::claim_target(c, &machine, hardware, &own).await);
            }
            Action::GiveTargetBack { name, .. } => {
                let Some(machine_uid) = self.world.machines.get("a").map(|m| uid(&m.metadata).to_owned()) else {
                    return;
                };
                send(&mut self.world, async |c| hosts::unclaim(c, &machine_uid, name).await);
            }
            Action::KeepTarget { name } => send(&mut self.world, async |c| hosts::keep_target(c, name, &own).await),
            other => panic!("{other:?}"),
        }
    }

    fn lock(&mut self, seen: &MachineVersion, lock: Option<String>) {
        let meta = ObjectMeta {
            namespace: Some(USER.to_owned()),
            name: Some(seen.name.clone()),
            uid: Some(seen.uid.clone()),
            resource_version: Some(seen.resource_version.clone()),
            ..ObjectMeta::default()
        };
        let change = json!({"metadata": {"annotations": {labels::OPERATION: lock}}});
        send(&mut self.world, async |c| writes::patch::<BareMetalMachine>(c, &meta, change).await.map(drop));
    }

    /// Until the migration says no more.
    fn until(&mut self, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..800 {
            if is_so(self) {
                return;
            }
            self.go_on(1);
        }
        panic!("never: {:?}, {:?}", self.said(), ready(&self.world, "a"));
    }

    fn said(&self) -> (OperationPhase, String) {
        let status = self.object.as_ref().and_then(|object| object.status.clone()).unwrap_or_default();
        let reason = status.operation.conditions.first().map(|condition| condition.reason.clone());
        (status.operation.phase, reason.unwrap_or_default())
    }

    fn is_over(&self) -> bool {
        self.said().0.is_over() && !locked(&self.world)
    }

    fn delete(&mut self) {
        let now = self.world.now;
        let object = self.object.as_mut().expect("there");
        object.metadata.deletion_timestamp = Some(Time(now));
        self.world.migrations.insert(object.clone());
    }

    /// What the administrator says of a DPU.
    fn maintain(&mut self, hardware: &str, maintenance: Maintenance) {
        let dpu = self.world.dpus.get_mut(&hardware.replace("hw-", "dpu-")).expect("racked");
        dpu.spec.maintenance = maintenance;
        dpu.metadata.generation = Some(dpu.metadata.generation.unwrap_or_default() + 1);
    }

    fn policy(&mut self, policy: MaintenancePolicy) {
        self.world.machines.get_mut("a").expect("there").spec.maintenance_policy = policy;
    }

    /// Some rounds of everything.
    fn go_on(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.world.step();
            check(&self.world);
            for _ in 0..6 {
                self.plan();
                round(&mut self.world, "a", usize::MAX);
            }
        }
    }
}

fn locked(world: &World) -> bool {
    world.machines.get("a").is_some_and(|machine| lock(&machine.metadata).is_some())
}

fn on(world: &World) -> String {
    let status = world.machines["a"].status.clone().unwrap_or_default();
    status.hardware_name.unwrap_or_default()
}

fn other(hardware: &str) -> String {
    if hardware == "hw-1" { "hw-2".to_owned() } else { "hw-1".to_owned() }
}

fn named(name: &str) -> Option<HardwareChoice> {
    Some(HardwareChoice { name: Some(name.to_owned()), selector: None })
}

/// With anything of a machine's on record.
fn held(world: &World) -> Vec<String> {
    let is_of_a_machine =
        |h: &&Hardware| h.metadata.annotations.iter().flatten().any(|(key, _)| key != labels::BOOT_PATH);
    world.hardware.values().filter(is_of_a_machine).map(|h| name(&h.metadata).to_owned()).collect()
}

#[test]
fn a_machine_moves_there_and_back_with_all_that_it_has() {
    let (mut m, first) = Move::of_a_running_machine();
    for target in [other(&first), first] {
        let from = on(&m.world);
        let claims: Vec<String> = m.world.volumes().into_iter().collect();
        let macs = |world: &World| world.nics.values().map(|nic| nic.spec.mac_address.clone()).collect::<Vec<_>>();
        let before = (claims, macs(&m.world));
        m.ask(None);
        m.until(|m| state(&m.world, "a") == Some(MachineState::Migrating));
        m.until(Move::is_over);
        assert_eq!(m.said(), (OperationPhase::Succeeded, "Succeeded".to_owned()));
        assert_eq!((on(&m.world), state(&m.world, "a")), (target.clone(), Some(MachineState::Running)));
        assert_eq!((m.world.volumes().into_iter().collect(), macs(&m.world)), before, "nothing is lost or new");
        assert_eq!(
            held(&m.world),
            std::slice::from_ref(&target),
            "the other server is free, and nothing is left on it"
        );
        let status = m.object.as_ref().and_then(|o| o.status.clone()).expect("a status");
        assert_eq!((status.source_hardware_name, status.target_hardware_name), (Some(from), Some(target)));
        let times = [
            status.started_at,
            status.power_off_sent_at,
            status.powered_off_at,
            status.moved_at,
            status.power_on_sent_at,
            status.finished_at,
        ];
        assert!(
            times.iter().all(Option::is_some) && times.is_sorted_by_key(|at| at.clone().map(|at| at.0)),
            "{times:?}"
        );
    }
}

#[test]
fn a_machine_that_is_off_moves_and_stays_off() {
    let (mut m, first) = Move::of_a_running_machine();
    m.world.machines.get_mut("a").expect("there").spec.run_strategy = RunStrategy::Halted;
    settle_with_claims(&mut m.world);
    m.ask(None);
    m.until(Move::is_over);
    settle_with_claims(&mut m.world);
    assert_eq!((on(&m.world), state(&m.world, "a")), (other(&first), Some(MachineState::Stopped)));
    assert!(m.world.servers.values().all(|server| server.power == PowerState::Off));
}

#[test]
fn a_target_that_is_not_to_be_had_leaves_the_machine_as_it_was() {
    let selects = |value: &str| {
        let match_labels = Some([("class".to_owned(), value.to_owned())].into());
        Some(HardwareChoice { name: None, selector: Some(LabelSelector { match_labels, match_expressions: None }) })
    };
    type Change = fn(&mut Move);
    let nothing: Change = |_| {};
    let taken: Change = |m| {
        let free = other(&on(&m.world));
        m.annotate(&free, labels::CLAIMED_BY, Some("another"));
    };
    let unapproved: Change = |m| {
        let free = other(&on(&m.world)).replace("hw-", "dpu-");
        m.world.dpus.get_mut(&free).expect("there").spec.approved = false;
    };
    let pinned: Change = |m| {
        let hardware = named(&on(&m.world));
        m.world.machines.get_mut("a").expect("there").spec.hardware = hardware;
    };
    let silent: Change = |m| {
        let n = if on(&m.world) == "hw-1" { 0 } else { 1 };
        m.world.suffer(Fault::AgentDies(n));
    };
    let cases = [
        ("HardwareMissing", named("hw-9"), nothing),
        ("NoHardwareFits", selects("gpu"), nothing),
        ("NoFreeHardware", None, taken),
        ("NoFreeHardware", None, unapproved),
        ("HardwarePinned", None, pinned),
        ("DpuSilent", None, silent),
    ];
    for (reason, target, change) in cases {
        let (mut m, first) = Move::of_a_running_machine();
        if reason == "DpuSilent" && first == "hw-2" {
            continue;
        }
        change(&mut m);
        m.ask(target);
        for _ in 0..5 {
            m.plan();
        }
        assert_eq!(m.said(), (OperationPhase::Pending, reason.to_owned()));
        assert!(!locked(&m.world), "{reason}");
        m.delete();
        m.until(|m| m.object.is_none());
        assert_eq!((on(&m.world), state(&m.world, "a")), (first, Some(MachineState::Running)), "{reason}");
    }
}

#[test]
fn a_name_moves_a_machine_that_is_bound_to_another_server() {
    let (mut m, first) = Move::of_a_running_machine();
    m.world.machines.get_mut("a").expect("there").spec.hardware = named(&first);
    m.ask(named(&other(&first)));
    m.until(Move::is_over);
    assert_eq!(on(&m.world), other(&first));
}

#[test]
fn a_migration_to_the_server_that_the_machine_is_on_has_succeeded_at_once() {
    let (mut m, first) = Move::of_a_running_machine();
    m.ask(named(&first));
    m.until(Move::is_over);
    assert_eq!(m.said(), (OperationPhase::Succeeded, "Succeeded".to_owned()));
    assert_eq!((on(&m.world), state(&m.world, "a")), (first.clone(), Some(MachineState::Running)));
    let status = m.object.as_ref().and_then(|o| o.status.clone()).expect("a status");
    let message = format!("machine 'a' was on Hardware '{first}' already: nothing was moved");
    assert_eq!(status.operation.conditions[0].message, message);
    assert_eq!((status.started_at, status.moved_at), (None, None), "no time of a move that was none");
    assert!(status.finished_at.is_some());
    assert_eq!(held(&m.world), std::slice::from_ref(&first));
}

#[test]
fn it_is_cancelled_while_the_machine_has_its_disks_and_not_later() {
    let (mut m, first) = Move::of_a_running_machine();
    m.ask(None);
    // The host has been told to go off.
    m.until(|m| state(&m.world, "a") == Some(MachineState::Migrating));
    assert!(m.world.disks.values().all(|disk| !disk.spec.release));
    m.delete();
    m.until(|m| m.object.is_none());
    settle_with_claims(&mut m.world);
    assert_eq!((on(&m.world), state(&m.world, "a")), (first.clone(), Some(MachineState::Running)));
    assert_eq!(held(&m.world), std::slice::from_ref(&first));
    assert!(!locked(&m.world));

    m.ask(None);
    m.until(|m| m.world.disks.values().any(|disk| disk.spec.release));
    m.delete();
    m.plan();
    assert_eq!(m.said().1, "TooLateToCancel");
    m.until(|m| m.object.is_none());
    settle_with_claims(&mut m.world);
    assert_eq!((on(&m.world), state(&m.world, "a")), (other(&first), Some(MachineState::Running)));
    assert!(!locked(&m.world));
}

#[test]
fn a_machine_that_is_deleted_on_its_way_leaves_nothing() {
    for part in 0..4 {
        let (mut m, _) = Move::of_a_running_machine();
        m.ask(None);
        m.until(|m| match part {
            0 => state(&m.world, "a") == Some(MachineState::Migrating),
            1 => m.world.disks.values().any(|disk| disk.spec.release),
            2 => m.world.disks.is_empty(),
            _ => m.object.as_ref().is_some_and(|o| o.status.as_ref().is_some_and(|s| s.moved_at.is_some())),
        });
        let now = m.world.now;
        m.world.machines.get_mut("a").expect("there").metadata.deletion_timestamp = Some(Time(now));
        m.until(|m| m.world.machines.is_empty());
        nothing_is_left(&m.world);
    }
}

/// Whatever goes wrong on the way, and whoever dies in between: at no time do two DPUs present a volume (checked at every
/// step), and when all is well again the machine runs on the target.
#[test]
fn faults_on_the_way_delay_it_and_no_more() {
    let faults: [fn(usize) -> Fault; 5] =
        [Fault::AgentDies, Fault::DpuReboots, Fault::BmcGoesAway, Fault::PressedOn, Fault::BootOrderChanged];
    for fault in faults {
        for server in 0..2 {
            for after in [0, 1, 3, 10] {
                let (mut m, first) = Move::of_a_running_machine();
                m.ask(None);
                m.until(|m| state(&m.world, "a") == Some(MachineState::Migrating));
                for step in 0..40 {
                    if step == after {
                        m.world.suffer(fault(server));
                    }
                    m.world.step();
                    check(&m.world);
                    m.plan();
                    // A crash after so many actions of the machine's plan.
                    round(&mut m.world, "a", step % 3);
                    round(&mut m.world, "a", usize::MAX);
                }
                m.world.heal();
                m.until(Move::is_over);
                assert_eq!(
                    (on(&m.world), m.said().0),
                    (other(&first), OperationPhase::Succeeded),
                    "{:?}",
                    fault(server)
                );
            }
        }
    }
}

#[path = "drained.rs"]
mod drained;
