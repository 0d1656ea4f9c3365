//! A pod whose node is a machine: its NIC is a function of that machine's DPU.

use super::*;
use crate::network::pods::worker::{nics, of, provider_id};
use api::attachment::{NicAttachmentStatus, PodNic};
use api::dpu::HardwareReference;
use api::machine::AttachPhase;
use api::tinkerbell::Hardware;

fn machine(name: &str, uid: &str) -> BareMetalMachine {
    let spec = json!({"nodeName": "node-1"});
    let mut machine = BareMetalMachine::new(name, serde_json::from_value(spec).expect("a spec"));
    machine.metadata = ObjectMeta { namespace: Some("infra".to_owned()), ..named(name, uid) };
    machine
}

fn hardware(name: &str, machine: &str) -> Arc<Hardware> {
    let mut hardware = Hardware::default();
    hardware.metadata.name = Some(name.to_owned());
    hardware.metadata.annotations = Some([(labels::CLAIMED_BY.to_owned(), machine.to_owned())].into());
    Arc::new(hardware)
}

/// node-1 is a machine, which has the server that dpu-7 is in.
fn world() -> World {
    let mut world = World::new();
    world.node(DpuType::Dpu);
    let dpu = Arc::make_mut(&mut world.o.dpus[0].dpu);
    dpu.metadata.name = Some("dpu-7".to_owned());
    dpu.spec.hardware_ref = Some(HardwareReference { name: "server-7".to_owned(), ..Default::default() });
    let machine = Arc::new(machine("w1", "machine-1"));
    world.o.workers = Workers {
        provider_id: Some(provider_id(&machine)),
        of_node: vec![machine.clone()],
        of_attachments: vec![machine],
        hardware: vec![hardware("server-7", "machine-1")],
    };
    world
}

fn change(world: &mut World, how: impl Fn(&mut BareMetalMachine)) {
    let workers = &mut world.o.workers;
    workers.of_node.iter_mut().chain(&mut workers.of_attachments).for_each(|machine| how(Arc::make_mut(machine)));
}

fn migrates(machine: &mut BareMetalMachine) {
    let lock = (labels::OPERATION.to_owned(), "MachineMigration/m1/uid".to_owned());
    machine.metadata.annotations = Some([lock].into());
}

fn told(world: &World) -> Vec<PodNic> {
    let pod = world.o.pod.as_ref().expect("there");
    let said = pod.metadata.annotations.as_ref().and_then(|all| all.get(labels::NETWORK_STATUS));
    said.map(|said| nics(said).expect("as it was written")).unwrap_or_default()
}

fn in_force(world: &mut World, phase: AttachPhase) {
    world.nic(|nic| nic.status = Some(NicAttachmentStatus { phase, ..NicAttachmentStatus::default() }));
}

#[test]
fn its_nic_is_a_function_at_the_dpu_of_its_machine() {
    let mut world = world();
    world.settle();
    let attachment = world.o.attachments[0].clone();
    let spec = &attachment.spec;
    assert_eq!((spec.dpu_name.as_str(), spec.owner.kind.as_str()), ("dpu-7", "Pod"));
    assert_eq!(
        (spec.consumer, spec.function_kind, spec.grant),
        (NicConsumer::Host, FunctionKind::HotplugPF, Some(Grant { epoch: 1 }))
    );
    assert_eq!((of(&attachment), spec.pod.clone()), (Some("machine-1"), None));
    assert_eq!((told(&world), world.reason()), (vec![], "Attaching"));
    in_force(&mut world, AttachPhase::Attached);
    world.settle();
    let all = told(&world);
    assert_eq!((all[0].name.as_str(), all[0].mac_address.as_str()), ("net1", "02:00:00:00:00:07"));
    assert_eq!(all[0].interface.addresses, ["10.20.0.7/24", "fd00:20::7/64"]);
    assert_eq!(all[0].interface.routes[0].destination, "10.21.0.0/24");
    // The host is started anew, and the plugin waits for the carrier.
    in_force(&mut world, AttachPhase::Attaching);
    assert_eq!(plan(&world.o).actions, []);
}

#[test]
fn node_and_machine_have_to_name_each_other() {
    type Change = fn(&mut World);
    let cases: [(Change, &str); 6] = [
        (|world| world.o.workers.provider_id = None, "NodeNotOfMachine"),
        (|world| world.o.workers.provider_id = Some("metalplane://infra/w2".to_owned()), "NodeNotOfMachine"),
        (|world| world.o.workers.of_node.clear(), "NoAgentForPods"),
        (|world| world.o.workers.hardware.clear(), "WorkerNotPlaced"),
        (|world| world.o.workers.hardware = vec![hardware("server-7", "machine-2")], "WorkerNotPlaced"),
        (|world| change(world, migrates), "WorkerLeaving"),
    ];
    for (change, reason) in cases {
        let mut world = world();
        change(&mut world);
        world.settle();
        assert_eq!((world.reason(), world.o.attachments.len()), (reason, 0));
    }
    // Another one that says so too keeps nobody from it.
    let mut two = world();
    two.o.workers.of_node.insert(0, Arc::new(machine("w0", "machine-2")));
    two.settle();
    assert_eq!(of(&two.o.attachments[0]), Some("machine-1"));
    // A node with an agent of its own is no machine, whoever says so.
    let mut world = world();
    world.o.workers.provider_id = None;
    world.node(DpuType::Nic);
    world.settle();
    assert_eq!(world.o.attachments[0].spec.consumer, NicConsumer::Pod);
}

#[test]
fn it_goes_before_the_machine_does_and_comes_again_after() {
    type Change = fn(&mut World);
    let leave: [Change; 3] = [
        |world| change(world, |machine| machine.metadata.deletion_timestamp = Some(Time(NOW))),
        // The target of a migration.
        |world| world.o.workers.hardware.push(hardware("server-8", "machine-1")),
        // Read from quorum: there is no such machine.
        |world| (world.o.workers.of_node.clear(), world.o.workers.of_attachments.clear()).0,
    ];
    for leave in leave {
        let mut world = world();
        world.settle();
        leave(&mut world);
        world.settle();
        assert!(world.o.attachments[0].spec.release, "it is released");
        world.o.attachments.clear();
        world.settle();
        assert!(world.o.attachments.is_empty() && !world.o.vnics.is_empty(), "the pod keeps its addresses");
        let now = self::world().o;
        (world.o.workers, world.o.dpus) = (now.workers, now.dpus);
        world.settle();
        assert!(world.o.attachments[0].spec.grant.is_some() && !world.o.attachments[0].spec.release);
    }
    // One of a NetworkAttachmentDefinition, which else stays while the pod runs.
    let mut world = world();
    world.pod(|pod| {
        let asks = [("k8s.v1.cni.cncf.io/networks".to_owned(), "blue".to_owned())];
        pod.metadata.annotations = Some(asks.into());
    });
    let config = r#"{"type": "metalplane", "subnet": "blue"}"#.to_owned();
    world.o.definitions.insert(("team".to_owned(), "blue".to_owned()), Some(config));
    world.settle();
    leave[0](&mut world);
    world.settle();
    assert!(world.o.attachments[0].spec.release);
}

#[test]
fn what_nobody_says_any_more_takes_nothing() {
    type Change = fn(&mut World);
    let silent: [Change; 4] = [
        |world| world.o.workers.provider_id = None,
        |world| world.o.workers.of_node.clear(),
        |world| world.o.workers.hardware.clear(),
        |world| world.o.dpus.clear(),
    ];
    for change in silent {
        let mut world = world();
        world.settle();
        change(&mut world);
        assert_eq!(plan(&world.o).actions, []);
    }
}

#[test]
fn nothing_is_granted_at_a_machine_that_may_go() {
    let mut world = world();
    world.round();
    world.round();
    change(&mut world, migrates);
    world.settle();
    assert_eq!(world.reason(), "WorkerLeaving");
    let attachment = &world.o.attachments[0];
    assert!(attachment.spec.grant.is_none() && !attachment.spec.release, "the migration may find no server");
}
