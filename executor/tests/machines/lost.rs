//! What happens when a host or a DPU goes, or comes, at the worst moment.

use super::outside::Fault;
use super::properties::{nothing_is_left, ready, round, settle_with_claims, state};
use super::world::{DRIVER, FENCE, SHARED, World};
use api::hold::FenceProof;
use api::machine::MachineState;
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use planner::host::PowerState;
use planner::machine::BmcNeed;
use planner::machine::observed::{name, uid};
use planner::seen::Seen;

fn delete(world: &mut World, machine: &str) {
    let now = world.now;
    world.machines.get_mut(machine).expect("there").metadata.deletion_timestamp = Some(Time(now));
}

fn rounds(world: &mut World, machine: &str) {
    for _ in 0..20 {
        if round(world, machine, usize::MAX).is_none_or(|plan| plan.is_empty()) {
            return;
        }
    }
}

/// A world with one of the servers only, on which the machine runs, with the claim that kubelet connects.
fn runs_on(without: &str) -> World {
    let mut world = World::new();
    world.hardware.remove(without);
    world.machine("a", true);
    settle_with_claims(&mut world);
    assert_eq!(state(&world, "a"), Some(MachineState::Running), "{:?}", ready(&world, "a"));
    world
}

/// A BMC that takes its time has accepted a power-on; the machine is deleted while the host still reads off.
#[test]
fn a_host_that_is_about_to_come_on_is_not_taken_for_off() {
    let mut world = World::new();
    world.hardware.remove("hw-2");
    world.machine("a", false);
    for _ in 0..40 {
        rounds(&mut world, "a");
        if world.servers["dpu-1"].power_ons > 0 {
            break;
        }
        world.step();
        world.bind_claims();
    }
    assert_eq!(world.server("dpu-1").pending.take(), Some(PowerState::On), "a power-on was sent");
    delete(&mut world, "a");
    for _ in 0..10 {
        world.step();
        rounds(&mut world, "a");
    }
    assert!(world.disks.values().all(|disk| !disk.spec.release), "a disk is taken from a host that comes on");
    assert!(world.server("dpu-1").pending.is_none(), "a power-off is sent to a host that is off yet");
    world.powered("dpu-1", PowerState::On);
    settle_with_claims(&mut world);
    assert!(world.machines.is_empty(), "{:?}", ready(&world, "a"));
    nothing_is_left(&world);
    assert_eq!(world.servers["dpu-1"].power, PowerState::Off);
}

/// The same, and the power-on never comes: after a while off is off.
#[test]
fn a_power_on_that_never_comes_does_not_hold_a_deletion_up() {
    let mut world = World::new();
    world.hardware.remove("hw-2");
    world.machine("a", false);
    while world.servers["dpu-1"].power_ons == 0 {
        rounds(&mut world, "a");
        world.step();
        world.bind_claims();
        world.server("dpu-1").pending = None;
        if world.servers["dpu-1"].power == PowerState::On {
            world.powered("dpu-1", PowerState::Off);
        }
    }
    delete(&mut world, "a");
    settle_with_claims(&mut world);
    assert!(world.machines.is_empty(), "{:?}", ready(&world, "a"));
    nothing_is_left(&world);
}

/// The agent gives a disk back that kubelet connects, and the DPU goes down with its host before kubelet has ended the pod.
#[test]
fn a_holder_pod_ends_although_its_node_goes_down_after_the_agent_let_go() {
    let mut world = runs_on("hw-1");
    let (key, own) = world
        .disks
        .values()
        .find(|disk| disk.spec.disk_name == "data")
        .map(|disk| (name(&disk.metadata).to_owned(), uid(&disk.metadata).to_owned()))
        .expect("the disk is attached");
    assert!(world.disks[&key].spec.holder_pod_uid.is_some(), "kubelet connects it");
    let secrets = world.pods.values().flat_map(|pod| pod.spec.as_ref()?.image_pull_secrets.as_ref()).flatten();
    assert_eq!(secrets.map(|secret| secret.name.as_str()).collect::<Vec<_>>(), ["registry"]);
    world.machines.get_mut("a").expect("there").spec.disks.retain(|disk| disk.name != "data");
    rounds(&mut world, "a");
    // The agent lets go, and says so; then the host goes off.
    assert!(world.disks[&key].spec.release);
    world.server("dpu-2").exposed.remove(&own);
    world.disks.remove(&key);
    rounds(&mut world, "a");
    assert_eq!(world.pods.len(), 1, "kubelet has not ended it yet");
    world.powered("dpu-2", PowerState::Off);
    delete(&mut world, "a");
    settle_with_claims(&mut world);
    assert!(world.machines.is_empty(), "{:?}", ready(&world, "a"));
    nothing_is_left(&world);
    let hold = world.holds.values().find(|hold| hold.spec.persistent_volume_name == Some(format!("pv-{SHARED}")));
    let fences = hold.map(|hold| hold.spec.fences.clone()).unwrap_or_default();
    assert!(fences.iter().any(|f| f.attachment_uid == own && f.proof == FenceProof::HostPoweredOff), "{fences:?}");
}

/// The same on standby power: silence proves nothing, an administrator's word does.
#[test]
fn a_holder_pod_of_a_silent_node_waits_for_an_administrators_word() {
    let mut world = runs_on("hw-2");
    let key =
        world.disks.values().find(|disk| disk.spec.disk_name == "data").map(|disk| name(&disk.metadata).to_owned());
    let key = key.expect("the disk is attached");
    world.machines.get_mut("a").expect("there").spec.disks.retain(|disk| disk.name != "data");
    rounds(&mut world, "a");
    let own = world.disks.remove(&key).and_then(|disk| disk.metadata.uid).expect("it was there");
    world.server("dpu-1").exposed.remove(&own);
    rounds(&mut world, "a");
    world.suffer(Fault::AgentDies(0));
    world.now += SignedDuration::from_hours(1);
    for _ in 0..5 {
        world.step();
        rounds(&mut world, "a");
    }
    let held =
        |world: &World| world.holds.values().any(|h| h.spec.holder.as_ref().is_some_and(|h| h.attachment_uid == own));
    assert!(held(&world) && world.pods.len() == 1, "the volume is free although nobody knows of the node");
    world.suffer(Fault::AdministratorConfirmsDown(0));
    world.report_dpus();
    rounds(&mut world, "a");
    assert!(!held(&world) && world.pods.is_empty(), "an administrator's word counts for nothing");
}

/// Machine `a`, whose second disk, which kubelet connects, was taken from its spec; the UID of that disk's attachment.
fn gives_a_disk_up() -> (World, String) {
    let mut world = runs_on("hw-2");
    let data = world.disks.values().find(|disk| disk.spec.disk_name == "data").expect("the disk is attached");
    let own = data.metadata.uid.clone().unwrap_or_default();
    world.machines.get_mut("a").expect("there").spec.disks.retain(|disk| disk.name != "data");
    world.suffer(Fault::AgentDies(0));
    (world, own)
}

fn has(world: &World, own: &str) -> bool {
    world.disks.values().any(|disk| disk.metadata.uid.as_deref() == Some(own))
}

fn is_held(world: &World, own: &str) -> bool {
    world.holds.values().any(|hold| hold.spec.holder.as_ref().is_some_and(|holder| holder.attachment_uid == own))
}

/// Somebody switches the host off, and its DPU with it, while an interface is unplugged: that it is off is what proves the end,
/// so the host's BMC is read for that, every two seconds, perhaps for days.
#[test]
fn a_host_that_took_its_dpu_along_is_read_every_two_seconds() {
    let mut world = runs_on("hw-1");
    world.machines.get_mut("a").expect("there").spec.interfaces.clear();
    rounds(&mut world, "a");
    world.powered("dpu-2", PowerState::Off);
    world.report_dpus();
    let mut o = world.observe("a").expect("there");
    let read = o.bmc.host.fresh().expect("it was read").clone();
    o.bmc.host = Seen::Stale { value: read, since: world.now };
    world.now += SignedDuration::from_mins(1);
    let mut plan = |ago: SignedDuration| {
        o.bmc.read_at = Some(world.now - ago);
        planner::machine::plan(&o, world.now)
    };
    let soon = plan(SignedDuration::from_secs(1));
    assert!(soon.bmc < BmcNeed::Now, "{:?} a second after the last", soon.bmc);
    assert_eq!(soon.wake_at, Some(world.now + SignedDuration::from_secs(1)));
    assert_eq!(plan(SignedDuration::from_secs(2)).bmc, BmcNeed::Now);
}

/// The agent alone is gone: what it presented is still presented. Then somebody switches the DPU off.
#[test]
fn a_dpu_that_its_own_bmc_reads_off_gives_up_what_it_held() {
    let (mut world, own) = gives_a_disk_up();
    world.now += SignedDuration::from_hours(1);
    rounds(&mut world, "a");
    assert!(is_held(&world, &own) && has(&world, &own), "an hour of silence moves a volume");
    world.suffer(Fault::DpuPoweredOff(0));
    rounds(&mut world, "a");
    assert!(!is_held(&world, &own) && !has(&world, &own), "the DPU is off, and nobody takes its word for it");
    let fences: Vec<_> = world.holds.values().flat_map(|hold| hold.spec.fences.clone()).collect();
    let own_fences: Vec<_> = fences.iter().filter(|fence| fence.attachment_uid == own).collect();
    assert!(!own_fences.is_empty() && own_fences.iter().all(|f| f.proof == FenceProof::DpuPoweredOff), "{fences:?}");
}

/// What a BMC says right after the agent was heard may be of the time before.
#[test]
fn a_dpus_own_bmc_is_believed_only_after_a_while() {
    let (mut world, own) = gives_a_disk_up();
    let heard = world.now;
    world.suffer(Fault::DpuPoweredOff(0));
    rounds(&mut world, "a");
    while world.now < heard + planner::own_bmc::LAG {
        assert!(is_held(&world, &own), "believed {} after the agent was heard", world.now.duration_since(heard));
        world.step();
        rounds(&mut world, "a");
    }
    assert!(!is_held(&world, &own));
}

/// It read off when the attachment was given up, and reads on before the hold is: then it may never have been off. What ends
/// the wait is another boot.
#[test]
fn a_dpu_that_reads_on_again_keeps_its_hold_until_it_has_lost_everything() {
    let (mut world, own) = gives_a_disk_up();
    world.now += SignedDuration::from_mins(1);
    world.suffer(Fault::DpuPoweredOff(0));
    while has(&world, &own) {
        round(&mut world, "a", usize::MAX).expect("the machine is there");
    }
    assert!(is_held(&world, &own), "given up in one round");
    world.server("dpu-1").dpu_off = false;
    for _ in 0..60 {
        world.step();
        rounds(&mut world, "a");
        assert!(is_held(&world, &own), "the hold of a DPU that may never have been off is free");
    }
    let o = world.observe("a").expect("there");
    let plan = planner::machine::plan(&o, world.now);
    let awaited: Vec<&str> = plan.steps.iter().filter_map(|(_, outcome)| outcome.reason()).map(|r| r.name()).collect();
    assert!(awaited.contains(&"DpuNotOff"), "{awaited:?}");
    assert!(plan.dpu_bmcs.contains_key("dpu-1-bmc"), "nobody looks whether it is off by now");
    world.server("dpu-1").dpu_off = true;
    world.suffer(Fault::DpuPoweredOn(0));
    world.step();
    rounds(&mut world, "a");
    assert!(!is_held(&world, &own), "another boot, and the hold stays");
}

/// The controller can tell the storage; whether that hits what this agent connects with, only the agent knows.
#[test]
fn an_agent_is_fenced_only_in_the_way_that_it_declares() {
    for (declared, proofs, says) in [
        (FENCE, vec![FenceProof::StorageFenced], None),
        ("None", vec![], Some("DpuNotOff")),
        ("ScsiPr", vec![], Some("DpuNotOff")),
    ] {
        let mut world = World::new();
        world.hardware.remove("hw-2");
        world.machine("a", false);
        settle_with_claims(&mut world);
        let status = world.dpus.get_mut("dpu-1").and_then(|dpu| dpu.status.as_mut()).expect("it is ready");
        for connector in status.connectors.iter_mut().filter(|connector| connector.driver == DRIVER) {
            connector.fence = declared.to_owned();
        }
        world.suffer(Fault::AgentDies(0));
        delete(&mut world, "a");
        let mut awaited = None;
        for _ in 0..120 {
            world.step();
            rounds(&mut world, "a");
            let Some(o) = world.observe("a") else { break };
            let plan = planner::machine::plan(&o, world.now);
            awaited = plan.steps.iter().find_map(|(_, outcome)| outcome.reason()).map(|reason| reason.name());
            assert!(says.is_none() || awaited != Some("Fencing"), "{declared}: nobody can know what is refused");
        }
        let found: Vec<_> = world.holds.values().flat_map(|hold| &hold.spec.fences).map(|fence| fence.proof).collect();
        assert_eq!(found, proofs, "{declared}");
        assert!(says.is_none() || awaited == says, "{declared}: {awaited:?}");
    }
}

/// A grant that nobody reads would be found by a DPU that comes back whenever it does.
#[test]
fn nothing_more_is_granted_on_a_dpu_that_does_not_answer() {
    let mut world = runs_on("hw-2");
    let data = world.machines["a"].spec.disks[1].clone();
    world.machines.get_mut("a").expect("there").spec.disks.truncate(1);
    settle_with_claims(&mut world);
    world.suffer(Fault::AgentDies(0));
    world.report_dpus();
    world.machines.get_mut("a").expect("there").spec.disks.push(data);
    for _ in 0..5 {
        world.step();
        rounds(&mut world, "a");
    }
    let granted = |world: &World| {
        let disk = world.disks.values().find(|disk| disk.spec.disk_name == "data");
        disk.expect("it is asked for").spec.grant.is_some()
    };
    assert!(!granted(&world), "a DPU that does not answer is granted a disk");
    assert!(ready(&world, "a").is_some_and(|told| told.contains("DpuSilent")), "{:?}", ready(&world, "a"));
    world.server("dpu-1").agent_lives = true;
    settle_with_claims(&mut world);
    assert!(granted(&world) && state(&world, "a") == Some(MachineState::Running), "{:?}", ready(&world, "a"));
}
