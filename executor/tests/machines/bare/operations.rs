//! What is for cloud disks is refused of a machine that runs from its server's own disk, by each of its kinds.

use super::{USER, World};
use api::conditions;
use api::dpu::{DpuSpec, HardwareReference, Maintenance};
use api::machine::{BootStrategy, MaintenancePolicy};
use api::verbs::{OperationPhase, OperationStatus};
use api::{BareMetalMachine, Dpu, labels};
use planner::machine::observed::Observed;
use planner::machine::{Action, plan};
use planner::verbs::{self, migration, restore, snapshot};
use serde_json::{Value, json};
use std::sync::Arc;

const REFUSED: &str = "BareMetalMachine 'a' runs from the local disk of its server: migration, snapshot and restore are for cloud disks. \
                       Next: kubectl delete this object; a machine with cloud disks has boot.strategy: CloudDisk: kubectl get bmm";

/// An operation as its user asks for it, that the controller has seen once.
fn object<T: serde::de::DeserializeOwned>(kind: &str, spec: Value) -> T {
    serde_json::from_value(json!({"apiVersion": "metalplane.io/v1alpha1", "kind": kind,
        "metadata": {"name": "o", "namespace": USER, "uid": "o-1", "finalizers": [labels::FINALIZER_OPERATION]}, "spec": spec}))
    .expect("an operation")
}

fn check<S>(plan: &verbs::Plan<S>, operation: &OperationStatus, type_: &str) {
    let said = conditions::get(&operation.conditions, type_).expect("its condition");
    assert_eq!((operation.phase, said.status.as_str()), (OperationPhase::Pending, "False"));
    assert_eq!((said.reason.as_str(), said.message.as_str()), ("NoCloudDisks", REFUSED));
    assert!(plan.actions.is_empty(), "neither a lock nor anything else: {:?}", plan.actions);
}

/// As the planner sees the machine, by what its user wrote.
fn seen(world: &World, strategy: BootStrategy) -> Observed {
    let mut o = world.observe().expect("there");
    Arc::make_mut(&mut o.machine).spec.boot.strategy = strategy;
    o
}

fn refuses(world: &World, strategy: BootStrategy) {
    let (o, now) = (seen(world, strategy), world.now);
    let machine: Arc<BareMetalMachine> = o.machine.clone();
    let asked = json!({"machineName": "a"});

    let one = Arc::new(object("MachineSnapshot", asked.clone()));
    let taken = verbs::observed::Observed { object: one, machine: Some(machine.clone()), ..Default::default() };
    let taken = snapshot::plan(&taken, now);
    check(&taken, &taken.status.operation, conditions::READY);

    let one = Arc::new(object("MachineRestore", json!({"machineName": "a", "snapshotName": "s1"})));
    let put_back = restore::Observed { object: one, machine: Some(machine), ..Default::default() };
    let put_back = restore::plan(&put_back, now);
    check(&put_back, &put_back.status.operation, conditions::COMPLETE);

    for spec in [asked, json!({"machineName": "a", "target": {"name": "hw"}})] {
        let one = Arc::new(object("MachineMigration", spec));
        let moved = migration::plan(&migration::Observed { object: one, machine: Some(o.clone()) }, now);
        check(&moved, &moved.status.operation, conditions::COMPLETE);
    }
}

#[test]
fn snapshot_restore_and_migration_are_refused_whatever_its_user_wrote() {
    let mut world = World::new();
    world.until("it runs", World::is_running);
    // How an `Auto` machine boots is what its status says.
    for strategy in [BootStrategy::Workflow, BootStrategy::Auto] {
        refuses(&world, strategy);
    }
    world.change(|m| m.spec.run_strategy = api::machine::RunStrategy::Halted);
    world.until("it is stopped", |world| world.reason(conditions::READY) == "Stopped");
    refuses(&world, BootStrategy::Auto);
    // Of one that has no server yet it is what its spec says.
    refuses(&World::new(), BootStrategy::Workflow);
}

/// A server that a Dpu names, and that somebody has named to be installed: its DPU presents nothing, and its maintenance moves nothing.
#[test]
fn no_migration_is_made_for_the_maintenance_of_a_dpu_that_it_does_not_boot_from() {
    for maintenance in [Maintenance::Drain, Maintenance::OutOfService] {
        let mut world = World::new();
        world.change(|m| m.spec.hardware = serde_json::from_value(json!({"name": "hw"})).ok());
        let hardware_ref = Some(HardwareReference { name: "hw".into(), serial_number: None });
        let spec = DpuSpec { hardware_ref, approved: true, maintenance, ..DpuSpec::default() };
        world.create(Dpu::new("dpu", spec)).expect("a new name");
        world.change(|m| m.spec.maintenance_policy = MaintenancePolicy::ColdMigrate);
        world.until("it runs", World::is_running);
        let plan = plan(&seen(&world, BootStrategy::Auto), world.now);
        let migrates = plan.actions.iter().any(|action| matches!(action, Action::CreateMigration(_)));
        assert!(!migrates && world.is_running(), "{maintenance:?}: {:?}", plan.actions);
    }
}
