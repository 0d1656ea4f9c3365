//! A server that DHCP does not serve: its machine says why, and what to do.

use super::sights::{see, stays_in_its_firmware};
use super::{MAC, World, hardware};
use api::conditions;
use api::labels;
use api::machine::{HardwareChoice, RunStrategy};
use api::report::DhcpUnservedReason::{self, *};
use api::report::NetbootStage;
use jiff::SignedDuration;
use planner::host::PowerState;
use planner::meta::annotation;
use planner::netboot::report::Sight;
use planner::netboot::{Client, Unserved};

fn unserved(reason: DhcpUnservedReason) -> Sight {
    let (server, address) = (Some([192, 168, 1, 1].into()), Some([192, 168, 1, 77].into()));
    Sight::Unserved { cause: Unserved { server, address, ..Unserved::new(reason, "the cause") }, uuid: None }
}

fn asked() -> Sight {
    Sight::Asked { client: Client::default(), uuid: None }
}

/// What the boot service sees, the reason, parts of what is said, and what is seen once it is mended.
fn cases() -> [(DhcpUnservedReason, &'static str, [&'static str; 2], Sight); 5] {
    let program = || Sight::Came(NetbootStage::Program);
    [
        (DhcpRefused, "DhcpRefused", ["boot did not answer: the cause", "kubectl edit hardware hw"], asked()),
        (DhcpPoolFull, "DhcpPoolFull", ["boot had none to give: the cause", "boot.dhcpPools"], asked()),
        (NoBootProgram, "NoBootProgram", ["no boot program for host 'hw': the cause", "boot.programs"], asked()),
        (DhcpAddressInUse, "DhcpAddressInUse", ["declined address 192.168.1.77", "another dhcp.ip"], program()),
        (
            ForeignDhcp,
            "ForeignDhcp",
            ["took address 192.168.1.77 of DHCP server 192.168.1.1", "write Proxy"],
            program(),
        ),
    ]
}

#[test]
fn each_cause_is_said_while_it_is_awaited_and_goes_with_its_cure() {
    for (cause, reason, parts, cure) in cases() {
        let mut world = World::new();
        stays_in_its_firmware(&mut world);
        see(&mut world, &unserved(cause));
        for type_ in [conditions::INSTALLED, conditions::POWERED_ON, conditions::READY] {
            world.until("it is said", |world| world.reason(type_) == reason);
        }
        let said = world.message(conditions::INSTALLED);
        for part in parts.into_iter().chain([MAC, "bmctl stop a && bmctl start a"]) {
            assert!(said.contains(part), "{reason}: {said}");
        }
        world.now += SignedDuration::from_secs(10);
        see(&mut world, &cure);
        world.until("it is served", |world| world.reason(conditions::INSTALLED) == "NetbootAwaited");
        world.in_installer = true;
        world.until("it runs", World::is_running);
    }
}

/// Its firmware has given up: what was wrong is said until somebody starts the server again. Another way to the network would lead to the
/// same DHCP server.
#[test]
fn the_cause_outlasts_the_limit_and_no_other_way_is_tried() {
    for (cause, reason, ..) in cases() {
        let mut world = World::new();
        stays_in_its_firmware(&mut world);
        let asked = world.firmware.asked.len();
        see(&mut world, &unserved(cause));
        let began = world.now;
        world.until("the limit", |world| world.now.duration_since(began) > SignedDuration::from_mins(45));
        assert_eq!(world.reason(conditions::INSTALLED), reason);
        assert_eq!((world.firmware.asked.len(), world.power), (asked, PowerState::On), "{reason}");
        for strategy in [RunStrategy::Halted, RunStrategy::Always] {
            world.change(|machine| machine.spec.run_strategy = strategy);
            world.until("it is taken", |world| (world.power == PowerState::On) == (strategy == RunStrategy::Always));
        }
        world.until("it runs", World::is_running);
    }
}

/// One more Hardware with the MAC address of the machine's.
fn mistake(world: &mut World) {
    let mut other = hardware();
    other.metadata.name = Some("other".to_owned());
    other.spec.bmc_ref = None;
    world.create(other).expect("there is none");
}

fn says_both(said: &str) -> bool {
    let names = "Hardware 'hw' and Hardware 'other' have MAC address '52:54:00:00:00:01'";
    said.starts_with(names) && said.contains("Next: kubectl edit hardware other -n INVENTORY")
}

#[test]
fn a_server_whose_mac_address_two_hardware_have_is_not_claimed() {
    let mut world = World::new();
    mistake(&mut world);
    world.change(|machine| {
        machine.spec.hardware = Some(HardwareChoice { name: Some("hw".to_owned()), ..HardwareChoice::default() });
    });
    world.until("it is said", |world| world.reason(conditions::HARDWARE_CLAIMED) == "SameMacAddress");
    let said = world.message(conditions::HARDWARE_CLAIMED);
    assert!(says_both(&said), "{said}");
    assert_eq!(annotation(&world.hardware["hw"].metadata, labels::CLAIMED_BY), None);
    world.hardware.remove("other");
    world.until("it runs", World::is_running);
}

#[test]
fn a_server_whose_mac_address_another_hardware_gets_is_not_powered_on_in_vain() {
    let mut world = World::new();
    world.until("it is claimed", |world| annotation(&world.hardware["hw"].metadata, labels::CLAIMED_BY).is_some());
    mistake(&mut world);
    world.until("it is said", |world| world.reason(conditions::INSTALLED) == "SameMacAddress");
    let said = world.message(conditions::INSTALLED);
    assert!(says_both(&said), "{said}");
    let began = world.now;
    world.until("a while", |world| world.now.duration_since(began) > SignedDuration::from_mins(45));
    assert_eq!((world.power, world.firmware.asked.len()), (PowerState::Off, 0));
    world.hardware.remove("other");
    world.until("it runs", World::is_running);
}

#[test]
fn a_server_that_waits_in_its_firmware_says_it_too() {
    let mut world = World::new();
    stays_in_its_firmware(&mut world);
    mistake(&mut world);
    world.until("it is said", |world| world.reason(conditions::INSTALLED) == "SameMacAddress");
    world.hardware.remove("other");
    world.until("it is awaited", |world| world.reason(conditions::INSTALLED) == "NetbootAwaited");
}
