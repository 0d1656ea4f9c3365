//! Servers without a DPU, by example.

use super::super::SEEDS;
use super::firmware::{DISK, Firmware, NIC, PLACE};
use super::{Planned, TEXT, USER, World, hardware, template};
use api::conditions;
use api::dpu::{DpuSpec, HardwareReference};
use api::machine::{BareMetalMachineStatus, BootStrategy, CloudInit, MachineState, RunStrategy, TimelineAction};
use api::tinkerbell::Template;
use api::{Dpu, labels, names};
use planner::host::{BootOverride, BootSource, PowerState};
use planner::install::Record;
use planner::machine::observed::{Observed, uid};
use planner::machine::{Action, plan};
use serde_json::json;
use std::sync::Arc;

/// The user's Template has this text; nothing: there is none.
pub(super) fn show(world: &mut World, text: Option<&str>) {
    let own = (USER.to_owned(), "debian".to_owned());
    let old: Option<Template> = world.templates.remove(&own);
    if let Some(text) = text {
        let made = template(text);
        match old {
            Some(old) => world.templates.insert(Template { metadata: old.metadata, ..made }),
            None => drop(world.create(made).expect("there is none")),
        }
    }
}

fn is_claimed(world: &World) -> bool {
    world.hardware["hw"].metadata.annotations.iter().flatten().any(|(key, _)| key == labels::CLAIMED_BY)
}

#[test]
fn it_is_installed_and_runs_from_its_own_disk() {
    let mut world = World::new();
    world.until("it runs", World::is_running);
    assert_eq!(world.installations(), 1);
    assert!(!world.in_installer && world.next.is_none());
    for (type_, reason) in [
        (conditions::VOLUMES_READY, "NoneAsked"),
        (conditions::INSTALLED, "Installed"),
        (conditions::BOOT_CONFIGURED, "FallsThrough"),
    ] {
        assert_eq!(world.reason(type_), reason);
    }
    let status = world.machine().and_then(|m| m.status.clone()).expect("a status");
    assert_eq!(status.boot_strategy, Some(BootStrategy::Workflow));
    assert_eq!(status.install.map(|install| (install.number, install.phase)), Some((1, "Done".to_owned())));
    // A guest that reboots is left alone, whatever the firmware tries first.
    world.next = Some(BootOverride { source: BootSource::Pxe, mode: None });
    world.boots();
    assert!(!world.in_installer);
    world.delete();
    world.until("it no longer exists", |world| world.machine().is_none());
    assert_eq!(world.power, PowerState::Off);
    assert!(world.copies() == 0 && world.workflows.is_empty());
    assert!(world.hardware["hw"].metadata.annotations.is_none());
}

/// Where the network is the first thing that the firmware asks.
#[test]
fn the_disk_that_it_was_installed_on_comes_first_while_it_has_the_server() {
    let mut world = World::new();
    let order = [NIC, DISK].map(str::to_owned);
    world.firmware = Firmware { offers_all: true, order: order.to_vec(), ..Firmware::default() };
    world.until("it runs", World::is_running);
    assert_eq!(world.reason(conditions::BOOT_CONFIGURED), "BootOrderSet");
    assert_eq!(world.firmware.order, [DISK, NIC]);
    let install = |world: &World| world.machine().and_then(|m| m.status.clone()?.install).expect("an installation");
    let disk = install(&world).disk.expect("the installer told of it");
    assert_eq!(disk.uefi_device_path.as_deref(), Some(PLACE));
    // Anybody may delete a Workflow: what is known of the disk stays.
    world.workflows.clear();
    world.firmware.order = order.to_vec();
    world.until("its disk is first again", |world| world.firmware.order == [DISK, NIC] && world.is_running());
    assert_eq!(install(&world).disk, Some(disk));
    world.delete();
    world.until("it no longer exists", |world| world.machine().is_none());
    assert_eq!(world.firmware.order, order, "as it was before");
}

#[test]
fn where_the_bmc_keeps_its_order_the_network_lets_the_disk_boot() {
    let mut world = World::new();
    let order = vec![NIC.to_owned(), DISK.to_owned()];
    world.firmware = Firmware { offers_all: true, order, keeps_order: true, ..Firmware::default() };
    world.until("it runs", World::is_running);
    assert_eq!(world.reason(conditions::BOOT_CONFIGURED), "FallsThrough");
    world.boots();
    assert!(!world.in_installer);
}

/// The system is up meanwhile; whoever powers the server off and on has the order in force.
#[test]
fn a_bmc_that_refuses_an_order_while_its_host_runs_holds_no_machine_up() {
    let mut world = World::new();
    let order = vec![NIC.to_owned(), DISK.to_owned()];
    world.firmware = Firmware { offers_all: true, order: order.clone(), refuses_order: true, ..Firmware::default() };
    world.until("it runs", World::is_running);
    assert_eq!(world.reason(conditions::BOOT_CONFIGURED), "FallsThrough");
    assert_eq!(world.firmware.order, order);
    let first = world.firmware.sent_at.expect("it was asked for");
    world.until("it is asked for again", |world| world.firmware.sent_at > Some(first));
    let after = world.firmware.sent_at.expect("again").duration_since(first);
    assert!(after >= jiff::SignedDuration::from_mins(5) && world.is_running(), "after {after}");
    world.firmware.refuses_order = false;
    world.until("it is taken", |world| world.firmware.order == [DISK, NIC]);
    world.until("that is seen", |world| world.reason(conditions::BOOT_CONFIGURED) == "BootOrderSet");
    assert!(world.is_running());
}

#[test]
fn nothing_is_installed_before_it_is_started_or_without_a_template_that_renders() {
    let mut world = World::new();
    world.change(|m| m.spec.run_strategy = RunStrategy::Halted);
    world.until("it waits", |world| world.reason(conditions::INSTALLED) == "StartFirst");
    assert!(world.workflows.is_empty() && world.copies() == 0);
    world.change(|m| m.spec.run_strategy = RunStrategy::Always);
    for (text, why) in [
        (None, "TemplateMissing"),
        (Some("{{.nothing}}".to_owned()), "TemplateNotRendered"),
        (Some(TEXT.replace("{{.device_1}}", "52:54:00:00:00:02")), "TemplateNotRendered"),
        (Some(TEXT.replace("actions/reboot", "actions/cexec")), "TemplateNotRendered"),
    ] {
        show(&mut world, text.as_deref());
        world.until(why, |world| world.reason(conditions::INSTALLED) == why);
        assert!(world.workflows.is_empty(), "{why}");
        let status = world.machine().and_then(|m| m.status.clone()).expect("a status");
        assert_eq!(status.state, Some(MachineState::Waiting), "{why}");
    }
    show(&mut world, Some(TEXT));
    world.until("it runs", World::is_running);
}

#[test]
fn what_failed_or_was_lost_is_not_repeated_but_by_a_request() {
    let mut world = World::new();
    world.agent_fails = true;
    world.until("it failed", |world| world.reason(conditions::INSTALLED) == "InstallFailed");
    for _ in 0..200 {
        world.step();
        world.round(usize::MAX);
    }
    assert!(world.power == PowerState::On && world.in_installer, "the host stays in the installer");
    assert_eq!(world.installations(), 1);
    world.agent_fails = false;
    world.ask();
    world.until("the second is begun", |world| world.in_installer && world.workflows.len() == 2);
    world.workflows.clear();
    world.until("it is lost", |world| world.reason(conditions::INSTALLED) == "InstallRecordLost");
    world.ask();
    world.until("it runs", World::is_running);
    assert!(world.installations() <= 3);
}

#[test]
fn what_becomes_of_its_hardware_or_workflow_installs_nothing_again() {
    let mut world = World::new();
    world.until("it runs", World::is_running);
    world.hardware.clear();
    world.until("it is missing", |world| world.reason(conditions::HARDWARE_CLAIMED) == "HardwareMissing");
    world.create(hardware()).expect("there is none");
    world.workflows.clear();
    world.until("it runs again", World::is_running);
    for _ in 0..50 {
        world.step();
        world.round(usize::MAX);
    }
    assert_eq!(world.installations(), 1);
    world.ask();
    world.until("it is installed once more", |world| world.installations() == 2 && world.is_running());
}

/// Nothing says by which BMC its server is switched off: that is waited for, or an administrator gives the server up. By hand or in the same
/// clean-up its Workflows may be deleted too.
#[test]
fn a_machine_that_is_deleted_without_its_hardware_waits_and_never_leaves_its_server_on() {
    for (given_up, has_workflows) in [(false, true), (false, false), (true, true), (true, false)] {
        let mut world = World::new();
        world.until("it runs", World::is_running);
        world.hardware.clear();
        if !has_workflows {
            world.workflows.clear();
            world.templates.retain(|template| template.metadata.namespace.as_deref() == Some(USER));
        }
        world.delete();
        world.until("it waits", |world| world.reason(conditions::READY) == "ServerLeftOn");
        for _ in 0..50 {
            world.step();
            world.round(usize::MAX);
        }
        assert!(world.machine().is_some() && world.power == PowerState::On);
        let said = world.message(conditions::READY);
        assert!(
            said.contains("'hw'") && said.contains("kubectl annotate bmm a metalplane.io/server-given-up=hw"),
            "{said}"
        );
        if given_up {
            let give_up = |world: &mut World, name: &str| {
                let (key, name) = (labels::SERVER_GIVEN_UP.to_owned(), name.to_owned());
                world.change(|m| drop(m.metadata.annotations.get_or_insert_default().insert(key, name)));
            };
            give_up(&mut world, "hw-2");
            (0..5).for_each(|_| drop(world.round(usize::MAX)));
            assert!(world.machine().is_some(), "it is another server that is given up");
            give_up(&mut world, "hw");
        } else {
            world.create(hardware()).expect("there is none");
        }
        world.until("it no longer exists", |world| world.machine().is_none());
        assert_eq!(world.power, if given_up { PowerState::On } else { PowerState::Off });
        assert!(world.workflows.is_empty() && world.copies() == 0 && world.installations() == 1);
        assert!(given_up || !is_claimed(&world));
    }
}

/// Its Hardware is written anew, and another machine waits for a server.
#[test]
fn a_server_that_a_machine_is_installed_on_is_no_other_machines() {
    let world = World::new();
    let mut o = world.observe().expect("there");
    Arc::make_mut(&mut o.machine).metadata.finalizers = Some(vec![labels::FINALIZER_MACHINE.to_owned()]);
    let claims = |o: &Observed| matches!(plan(o, world.now).actions.as_slice(), [Action::ClaimHardware { .. }]);
    assert!(claims(&o));
    o.installed.insert("hw".to_owned(), "BareMetalMachine 'team-b/b', which a Workflow has installed there".to_owned());
    assert!(!claims(&o));
}

/// A server that is found off twice is powered on again; then somebody has to look.
#[test]
fn a_server_that_loses_its_power_is_started_again_a_few_times() {
    let mut world = World::new();
    for _ in 0..3 {
        world.until("it installs", |world| world.in_installer);
        world.until("it is seen", |world| world.reason(conditions::POWERED_ON) == "Installing");
        world.goes_off();
    }
    world.until("it failed", |world| world.reason(conditions::INSTALLED) == "InstallFailed");
    assert_eq!((world.power, world.installations()), (PowerState::Off, 1));
}

#[test]
fn auto_waits_for_a_dpu_in_whatever_state_and_never_installs_there() {
    let mut world = World::new();
    let spec = DpuSpec {
        hardware_ref: Some(HardwareReference { name: "hw".into(), serial_number: None }),
        ..DpuSpec::default()
    };
    world.create(Dpu::new("dpu", spec)).expect("a new name");
    for (strategy, why) in [(BootStrategy::Auto, "NoFreeHardware"), (BootStrategy::Workflow, "NoHardwareFits")] {
        world.change(|m| m.spec.boot.strategy = strategy);
        world.until("it waits", |world| {
            let reason = world.reason(conditions::HARDWARE_CLAIMED);
            reason == why || reason == "NoHardwareFits"
        });
        assert!(!is_claimed(&world));
    }
    // A cache that does not know the Dpu yet.
    let mut o = world.observe().expect("there");
    o.dpus.clear();
    let blind = plan(&o, world.now);
    assert!(matches!(blind.actions.as_slice(), [Action::ClaimHardware { .. }]), "{:?}", blind.actions);
    world.carry_out(&o, &blind, usize::MAX);
    assert!(!is_claimed(&world));
    // By name it is somebody's decision.
    let named = json!({"name": "hw"});
    world.change(|m| m.spec.hardware = serde_json::from_value(named).ok());
    world.until("it runs", World::is_running);
}

/// What its guest reads is written for each installation, before that begins, and goes with the machine.
#[test]
fn cloud_init_data_is_a_secret_of_the_installation() {
    let mut world = World::new();
    let keys = vec!["ssh-ed25519 AAAA a".to_owned()];
    let cloud_init =
        CloudInit { ssh_public_keys: keys, user_data: Some("#cloud-config\n1".into()), ..Default::default() };
    world.change(|m| m.spec.cloud_init = Some(cloud_init));
    world.until("no action writes it", |world| world.reason(conditions::INSTALLED) == "TemplateNotRendered");
    assert!(world.secrets.is_empty() && world.workflows.is_empty());
    let last = "      - {name: restart";
    let seeds = TEXT.replace(last, &format!("      - {{name: seed, image: seed, timeout: 60}}\n{last}"));
    show(&mut world, Some(&seeds));
    let osie = |world: &mut World, kernel: Option<&str>| {
        let mut hardware = world.hardware["hw"].clone();
        hardware.spec.interfaces[0].netboot =
            serde_json::from_value(json!({"osie": {"kernel": kernel}})).expect("an OSIE");
        world.hardware.insert(hardware);
    };
    // Another system than the installer would have to run that action.
    osie(&mut world, Some("hook"));
    for _ in 0..20 {
        world.step();
        world.round(usize::MAX);
    }
    assert!(world.reason(conditions::INSTALLED) == "TemplateNotRendered" && world.secrets.is_empty());
    osie(&mut world, None);
    let begun = |world: &World| Record::of(&world.hardware["hw"].metadata).is_some();
    while !begun(&world) {
        world.step();
        world.round(usize::MAX);
    }
    let own = uid(&world.machine().expect("there").metadata).to_owned();
    let read = |world: &World, number: u32, key: &str| {
        let name = names::install(&own, number);
        let secret = world.secrets.values().find(|secret| secret.metadata.name.as_ref() == Some(&name)).expect("there");
        assert_eq!(secret.metadata.namespace.as_deref(), Some(SEEDS));
        String::from_utf8(secret.data.as_ref().expect("data")[key].0.clone()).expect("text")
    };
    assert_eq!(read(&world, 1, "user-data"), "#cloud-config\n1");
    let told = read(&world, 1, "meta-data");
    assert!(told.contains(&format!("instance-id: {own}\n")) && told.contains("local-hostname: a\n"), "{told}");
    assert!(told.contains("ssh-ed25519 AAAA a"), "{told}");
    let network = read(&world, 1, "network-config");
    assert!(network.contains("macaddress: \"52:54:00:00:00:01\"\n    dhcp4: true"), "{network}");
    world.until("it runs", World::is_running);
    world.change(|m| m.spec.cloud_init.as_mut().expect("there").user_data = Some("#cloud-config\n2".into()));
    world.ask();
    world.until("it is installed once more", |world| world.installations() == 2 && world.is_running());
    assert_eq!(
        (read(&world, 1, "user-data"), read(&world, 2, "user-data")),
        ("#cloud-config\n1".into(), "#cloud-config\n2".into())
    );
    world.delete();
    world.until("it no longer exists", |world| world.machine().is_none());
    assert!(world.secrets.is_empty());
}

/// The timeline has the actions of the installation, and not one write more for that.
#[test]
fn the_actions_of_an_installation_stand_in_its_timeline() {
    let mut world = World::new();
    let actions = |world: &World| {
        let timeline = world.machine().and_then(|m| m.status.clone()).unwrap_or_default().timeline;
        let installed = timeline.into_iter().find(|entry| entry.step == conditions::INSTALLED);
        let told = |action: TimelineAction| (action.name, action.state, action.seconds);
        installed.into_iter().flat_map(|entry| entry.actions).map(told).collect::<Vec<_>>()
    };
    let said = |name: &str, state: &str, seconds| (name.to_owned(), state.to_owned(), seconds);
    let mut seen: Vec<Vec<_>> = Vec::new();
    for _ in 0..100 {
        world.step();
        for round in world.round(usize::MAX) {
            let Planned::Machine(planned) = &round.planned else { continue };
            let without =
                |status: &BareMetalMachineStatus| BareMetalMachineStatus { timeline: Vec::new(), ..status.clone() };
            let (before, after) = (planned.0.machine.status.clone().unwrap_or_default(), &planned.1.status);
            assert!(before == *after || without(&before) != without(after), "{:?}", after.timeline);
        }
        let now = actions(&world);
        if seen.last() != Some(&now) {
            seen.push(now);
        }
    }
    assert!(world.is_running());
    let begun = vec![said("write", "RUNNING", None)];
    let written = said("write", "SUCCESS", Some(7));
    let both = vec![written.clone(), said("restart", "RUNNING", None)];
    let done = vec![written, said("restart", "SUCCESS", Some(7))];
    assert_eq!(seen, [vec![], begun, both, done]);
    // What comes later is no part of it.
    world.change(|machine| {
        let request = labels::RESTART_REQUESTED_AT.to_owned();
        machine.metadata.annotations.get_or_insert_default().insert(request, "2026-01-01T00:00:00Z".to_owned());
    });
    let restarted = |world: &World| world.machine().and_then(|m| m.status.as_ref()?.last_restart_at.clone()).is_some();
    world.until("it is restarted", |world| restarted(world) && world.is_running());
    assert!(actions(&world).is_empty());
}
