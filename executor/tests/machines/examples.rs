//! Single decisions, each by name.

use super::growth::running;
use super::world::World;
use api::conditions;
use api::labels;
use api::machine::{AttachPhase, CloudInit, CloudInitSource, Disk, DiskBus, DiskSource, MachineState, ReadinessProbe};
use api::network::Metadata;
use api::quantity::quantity;
use planner::host::PowerState;
use planner::machine::{Action, Disruptive, plan};
use planner::seen::Seen;

fn reason(plan: &planner::machine::Plan, type_: &str) -> String {
    conditions::get(&plan.status.conditions, type_).map(|c| format!("{} {}", c.status, c.reason)).unwrap_or_default()
}

fn until_claimed(world: &mut World) {
    for _ in 0..2 {
        let o = world.observe("a").expect("there");
        let plan = plan(&o, world.now);
        world.carry_out(&o, &plan, usize::MAX);
    }
}

#[test]
fn a_machine_without_a_server_says_what_is_in_the_way() {
    let mut world = World::new();
    world.machine("a", false);
    world.carry_out(&world.observe("a").expect("there"), &plan(&world.observe("a").expect("there"), world.now), 1);
    let mut o = world.observe("a").expect("there");
    o.policies.clear();
    let none = plan(&o, world.now);
    assert!(none.is_empty());
    assert_eq!(reason(&none, conditions::READY), "False NoHardwareFits");
    assert_eq!(none.tell.iter().map(|told| told.name()).collect::<Vec<_>>(), ["NoHardwareFits"]);
    for name in ["hw-1", "hw-2"] {
        let hardware = world.hardware.get_mut(name).expect("racked");
        hardware.metadata.annotations = Some([(labels::CLAIMED_BY.to_owned(), "another".to_owned())].into());
    }
    let taken = plan(&world.observe("a").expect("there"), world.now);
    assert_eq!(reason(&taken, conditions::READY), "False NoFreeHardware");
}

#[test]
fn a_paused_machine_does_nothing_and_says_so() {
    let mut world = World::new();
    world.machine("a", false);
    let meta = &mut world.machines.get_mut("a").expect("there").metadata;
    meta.annotations = Some([(labels::PAUSED.to_owned(), "true".to_owned())].into());
    let paused = plan(&world.observe("a").expect("there"), world.now);
    assert!(paused.is_empty());
    assert_eq!(reason(&paused, conditions::PAUSED), "True Paused");
}

#[test]
fn nothing_is_granted_into_a_system_that_somebody_else_started() {
    let mut world = World::new();
    world.machine("a", false);
    world.hardware.remove("hw-2");
    world.server("dpu-1").power = PowerState::On;
    until_claimed(&mut world);
    let o = world.observe("a").expect("there");
    let plan = plan(&o, world.now);
    let grants = |action: &Action| matches!(action, Action::GrantDisk { .. } | Action::GrantNic { .. });
    assert!(!plan.actions.iter().any(grants), "{:?}", plan.actions);
    assert!(
        matches!(&plan.disruptive, Some(Disruptive::Power(order)) if order.action == planner::host::PowerAction::ForceOff)
    );
}

#[test]
fn an_unreachable_bmc_is_said_and_waited_for() {
    let mut world = World::new();
    world.machine("a", false);
    world.hardware.remove("hw-2");
    until_claimed(&mut world);
    world.server("dpu-1").bmc_answers = false;
    let o = world.observe("a").expect("there");
    assert!(matches!(o.bmc.host, Seen::Unknown));
    let plan = plan(&o, world.now);
    assert!(plan.disruptive.is_none());
    assert_eq!(reason(&plan, conditions::POWERED_ON), "Unknown BmcUnreachable");
}

/// From now on the DPUs present disks on NVMe only, as with SPDK.
fn nvme_only(world: &mut World) {
    for dpu in world.dpus.values_mut() {
        dpu.status.get_or_insert_default().buses = vec![DiskBus::NVMe];
    }
}

#[test]
fn no_server_is_claimed_whose_dpu_lacks_the_bus_of_a_disk() {
    let mut world = World::new();
    world.machine("a", true);
    nvme_only(&mut world);
    until_claimed(&mut world);
    let plan = plan(&world.observe("a").expect("there"), world.now);
    assert_eq!(reason(&plan, conditions::HARDWARE_CLAIMED), "False NoHardwareFits");
    let ready = conditions::get(&plan.status.conditions, conditions::READY).expect("told");
    assert!(ready.message.contains("2 DpuLacksBus"), "{}", ready.message);
    assert!(plan.is_empty(), "{:?}", plan.actions);
}

#[test]
fn a_disk_that_is_plugged_on_a_bus_that_the_dpu_lacks_gets_no_claim() {
    let mut world = running();
    nvme_only(&mut world);
    let plug = |world: &mut World, bus| {
        let source = DiskSource { blank: Some(Default::default()), ..DiskSource::default() };
        let disk = Disk { name: "more".into(), bus, size: Some(quantity(1 << 30)), source, ..Disk::default() };
        world.machines.get_mut("a").expect("there").spec.disks.push(disk);
        plan(&world.observe("a").expect("there"), world.now)
    };
    let creates = |action: &Action| matches!(action, Action::CreateClaim(_));
    let lacking = plug(&mut world, DiskBus::VirtioBlk);
    assert_eq!(reason(&lacking, conditions::READY), "False DpuLacksBus");
    assert!(!lacking.actions.iter().any(creates), "{:?}", lacking.actions);
    // The disk on that bus which is presented already stays.
    assert_eq!(lacking.status.disks[1].phase, AttachPhase::Attached);
    world.machines.get_mut("a").expect("there").spec.disks.pop();
    assert!(plug(&mut world, DiskBus::NVMe).actions.iter().any(creates));
}

#[test]
fn an_empty_readiness_probe_asks_for_no_answer() {
    let mut world = running();
    world.server("dpu-1").guest_since = None;
    world.nics.values_mut().for_each(|nic| nic.status.get_or_insert_default().guest = None);
    for (probe, state, ready) in [
        (None, MachineState::Running, "True"),
        (Some(ReadinessProbe::default()), MachineState::Running, "True"),
        (Some(ReadinessProbe { icmp: Some(Default::default()), tcp_socket: None }), MachineState::Starting, "False"),
    ] {
        world.machines.get_mut("a").expect("there").spec.readiness_probe = probe.clone();
        let plan = plan(&world.observe("a").expect("there"), world.now);
        assert!(reason(&plan, conditions::READY).starts_with(ready), "{probe:?}");
        assert_eq!(plan.status.state, Some(state), "{probe:?}");
    }
}

/// A machine that would find nobody to ask is not started.
#[test]
fn a_guest_that_asks_where_nobody_answers_gets_no_nic() {
    let mut world = World::new();
    world.machine("a", false);
    let cloud_init = CloudInit { source: CloudInitSource::Metadata, ..CloudInit::default() };
    world.machines.get_mut("a").expect("there").spec.cloud_init = Some(cloud_init);
    world.metadata = Metadata::Disabled;
    let mut said = String::new();
    for _ in 0..40 {
        world.report_dpus();
        let o = world.observe("a").expect("there");
        let plan = plan(&o, world.now);
        said = reason(&plan, conditions::NICS_ATTACHED);
        world.carry_out(&o, &plan, usize::MAX);
        world.bind_claims();
    }
    assert!(said.contains("MetadataDisabled"), "{said}");
    assert!(
        world.nics.values().next().is_none() && world.servers.values().all(|server| server.power == PowerState::Off),
        "{said}"
    );
}

/// No cloud-init disk; what would be on it goes with the grant of each NIC, and the machine starts without the disk.
#[test]
fn a_guest_that_asks_at_the_metadata_address_has_no_seed_disk() {
    let mut world = World::new();
    world.machine("a", false);
    let cloud_init = CloudInit {
        source: CloudInitSource::Metadata,
        ssh_public_keys: vec!["ssh-ed25519 AAAA a".to_owned(), "ssh-ed25519 BBBB b".to_owned()],
        ..CloudInit::default()
    };
    world.machines.get_mut("a").expect("there").spec.cloud_init = Some(cloud_init);
    let mut told = Vec::new();
    for _ in 0..40 {
        world.report_dpus();
        let o = world.observe("a").expect("there");
        let plan = plan(&o, world.now);
        for action in &plan.actions {
            match action {
                Action::CreateDiskAttachment(disk) => assert!(disk.spec.volume.is_some(), "a seed disk"),
                Action::GrantNic { metadata, .. } => told.push(metadata.clone().expect("what the guest is told")),
                _ => {}
            }
        }
        world.carry_out(&o, &plan, usize::MAX);
        world.bind_claims();
    }
    assert!(!told.is_empty(), "no NIC was granted");
    let nics: Vec<_> = world.nics.values().map(|nic| nic.spec.metadata.clone().expect("named")).collect();
    for seed in told {
        assert!(nics.iter().any(|nic| nic.secret_name == seed.secret_name), "{nics:?}");
        assert_eq!(seed.data["public-keys"], "ssh-ed25519 AAAA a\nssh-ed25519 BBBB b");
        assert!(seed.data["meta-data"].contains("local-hostname: a\n"));
        assert!(seed.data.contains_key("user-data") && seed.data["network-config"].contains("macaddress"));
    }
    let o = world.observe("a").expect("there");
    assert!(o.disk_attachments.iter().all(|disk| disk.spec.grant.is_some() && disk.spec.volume.is_some()));
}
