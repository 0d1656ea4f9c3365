//! What every [`Switch`] promises, run on a [`Bench`] that the driver's test provides.

use crate::switch::{GuestObserved, MetadataPlug, PortObserved, SwitchPort};
use crate::{ErrorClass, Switch};
use async_trait::async_trait;
use planner::exposure::ExposureId;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// A switch that nobody else uses, with devices to plug and guests behind them.
#[async_trait]
pub trait Bench: Send + Sync {
    type Switch: Switch;

    /// A new handle on the same switch, as after a restart of the agent.
    async fn open(&self) -> Self::Switch;

    /// A network device that exists and that nobody has plugged; another one for each number from 0 to 3.
    async fn device(&self, number: u8) -> String;

    /// A device that somebody else has plugged into the same switch.
    async fn foreign_device(&self) -> String;

    /// Starts the guest behind the device with this number, with this MAC and address.
    async fn start_guest(&self, number: u8, mac: &str, address: IpAddr);

    async fn stop_guest(&self, number: u8);

    /// OVN knows the switch by this name from now on; it does nothing but what the next two make it do.
    async fn join_ovn(&self, chassis: &str);

    /// OVN says that it has installed the port of the device with this number, or says so no longer.
    async fn ovn_installs(&self, number: u8, installed: bool);

    /// OVN says which state of the network it has reached.
    async fn ovn_reaches(&self, number: u64);

    /// Lets a little time pass: about 20 ms, or a step of a simulated clock.
    async fn pause(&self);
}

/// How many pauses an eventual promise may take: 20 s on a real switch.
const PATIENCE: usize = 1_000;

/// Runs every check, each from an empty switch to an empty switch.
pub async fn suite(bench: &impl Bench) {
    plugs_and_unplugs(bench).await;
    never_takes_what_is_not_its_own(bench).await;
    epochs_do_not_mix(bench).await;
    a_missing_device_is_told(bench).await;
    sees_the_guest(bench).await;
    tells_what_is_in_force(bench).await;
    metadata_ports_are_a_set(bench).await;
    only_a_boot_takes_what_was_before(bench).await;
}

fn port(uid: &str, epoch: u64, device: &str, last: u8) -> SwitchPort {
    SwitchPort {
        version: format!("{uid}.{epoch}"),
        id: ExposureId { uid: uid.to_owned(), epoch },
        device: device.to_owned(),
        mac: format!("02:00:00:00:10:{last:02x}"),
        logical_port: format!("logical-{uid}"),
    }
}

async fn listed(switch: &impl Switch) -> Vec<PortObserved> {
    let mut ports = switch.list().await.expect("list");
    ports.sort_by(|a, b| a.port.id.cmp(&b.port.id));
    ports
}

async fn wanted(switch: &impl Switch) -> Vec<SwitchPort> {
    listed(switch).await.into_iter().map(|seen| seen.port).collect()
}

async fn class_of_plug(switch: &impl Switch, port: &SwitchPort) -> Option<ErrorClass> {
    switch.plug(port).await.err().map(|error| error.class)
}

async fn plugs_and_unplugs(bench: &impl Bench) {
    let switch = bench.open().await;
    assert_eq!(listed(&switch).await, [], "an empty switch lists nothing");
    let first = port("a", 1, &bench.device(0).await, 1);
    let second = port("b", 7, &bench.device(1).await, 2);

    switch.plug(&first).await.expect("plug");
    assert_eq!(wanted(&switch).await, std::slice::from_ref(&first), "a plugged port is listed at once");
    switch.plug(&first).await.expect("plugging again changes nothing");
    switch.plug(&second).await.expect("plug a second port");
    assert_eq!(wanted(&switch).await, [first.clone(), second.clone()]);
    forwards(bench, &switch, &first).await;

    let after_restart = bench.open().await;
    assert_eq!(wanted(&after_restart).await, [first.clone(), second.clone()], "a new handle lists the same");
    after_restart.plug(&first).await.expect("adopted by UID and epoch");

    switch.unplug(&first.id).await.expect("unplug");
    assert_eq!(wanted(&switch).await, std::slice::from_ref(&second), "an unplugged port is gone at once");
    switch.unplug(&first.id).await.expect("unplugging again is a success");
    switch.unplug(&ExposureId { uid: "never".to_owned(), epoch: 1 }).await.expect("never plugged is a success");
    switch.unplug(&second.id).await.expect("unplug");
    assert_eq!(wanted(&switch).await, []);
}

async fn metadata_ports_are_a_set(bench: &impl Bench) {
    let switch = bench.open().await;
    let plug = |device: &str, mac: u8| MetadataPlug {
        device: device.to_owned(),
        logical_port: format!("metadata-{device}"),
        mac: format!("02:00:00:00:20:{mac:02x}"),
    };
    let (one, two) = (plug(&bench.device(0).await, 1), plug(&bench.device(1).await, 2));
    let there = async |switch: &_| {
        let mut plugs = Switch::metadata_plugs(switch).await.expect("list");
        plugs.sort();
        plugs
    };
    switch.plug_metadata(std::slice::from_ref(&one)).await.expect("plug one");
    switch.plug_metadata(std::slice::from_ref(&one)).await.expect("the same again");
    assert_eq!(there(&switch).await, std::slice::from_ref(&one));
    assert_eq!(listed(&switch).await, [], "a metadata port is nobody's NIC");
    let nic = port("a", 1, &bench.device(2).await, 1);
    switch.plug(&nic).await.expect("plug a NIC");
    let renamed = MetadataPlug { device: two.device.clone(), ..one.clone() };
    switch.plug_metadata(std::slice::from_ref(&renamed)).await.expect("another device in its place");
    assert_eq!(there(&switch).await, [renamed]);
    let foreign = plug(&bench.foreign_device().await, 3);
    let refused = switch.plug_metadata(&[foreign]).await.expect_err("somebody else's device");
    assert_eq!(refused.class, ErrorClass::Conflict);
    let after_restart = bench.open().await;
    after_restart.plug_metadata(&[]).await.expect("none");
    assert_eq!(there(&switch).await, []);
    assert_eq!(wanted(&switch).await, std::slice::from_ref(&nic), "NICs stay");
    switch.unplug(&nic.id).await.expect("unplug");
}

async fn only_a_boot_takes_what_was_before(bench: &impl Bench) {
    let switch = bench.open().await;
    let (first, second) = (port("a", 1, &bench.device(0).await, 1), port("b", 1, &bench.device(1).await, 2));
    let plug = MetadataPlug {
        device: bench.device(2).await,
        logical_port: "metadata".to_owned(),
        mac: "02:00:00:00:20:01".to_owned(),
    };
    switch.plug(&first).await.expect("plug");
    switch.plug(&second).await.expect("plug");
    // An agent that knows of boots takes the place of one that does not.
    let taken = switch.begin_boot("boot-1", std::slice::from_ref(&second.id)).await.expect("the first boot");
    assert_eq!(taken, std::slice::from_ref(&first.device));
    assert_eq!(wanted(&switch).await, std::slice::from_ref(&second), "what nothing of this boot explains is gone");
    switch.plug(&first).await.expect("plug again");
    switch.plug_metadata(std::slice::from_ref(&plug)).await.expect("plug");
    let after_restart = bench.open().await;
    assert_eq!(after_restart.begin_boot("boot-1", &[]).await.expect("the same boot"), [""; 0]);
    assert_eq!(wanted(&after_restart).await, [first.clone(), second.clone()], "a restart takes nothing");
    assert_eq!(after_restart.metadata_plugs().await.expect("list"), std::slice::from_ref(&plug));
    let foreign = bench.foreign_device().await;
    let known = [first.id.clone(), second.id.clone()];
    let taken: BTreeSet<_> =
        after_restart.begin_boot("boot-2", &known).await.expect("another boot").into_iter().collect();
    assert_eq!(
        taken,
        [&first, &second].map(|port| port.device.clone()).into_iter().chain([plug.device.clone()]).collect()
    );
    assert_eq!(wanted(&after_restart).await, [], "whatever is known: it is not of this boot");
    assert_eq!(after_restart.metadata_plugs().await.expect("list"), []);
    let taken = class_of_plug(&after_restart, &port("c", 1, &foreign, 3)).await;
    assert_eq!(taken, Some(ErrorClass::Conflict), "somebody else's port stays");
    after_restart.plug(&first).await.expect("plug on this boot");
    after_restart.unplug(&first.id).await.expect("unplug");
}

async fn forwards(bench: &impl Bench, switch: &impl Switch, port: &SwitchPort) {
    let mut last = Vec::new();
    for _ in 0..PATIENCE {
        last = listed(switch).await;
        let mine = last.iter().find(|seen| seen.port.id == port.id).expect("a plugged port stays listed");
        if mine.forwarding {
            assert_eq!(mine.error, None, "a forwarding port has no error");
            return;
        }
        bench.pause().await;
    }
    panic!("port {:?} never forwarded: {last:?}", port.id);
}

async fn never_takes_what_is_not_its_own(bench: &impl Bench) {
    let switch = bench.open().await;
    let mine = port("a", 1, &bench.device(0).await, 1);
    switch.plug(&mine).await.expect("plug");

    let thief = SwitchPort { device: mine.device.clone(), ..port("b", 1, "", 2) };
    assert_eq!(class_of_plug(&switch, &thief).await, Some(ErrorClass::Conflict), "the device has another owner");
    let foreign = port("c", 1, &bench.foreign_device().await, 3);
    assert_eq!(class_of_plug(&switch, &foreign).await, Some(ErrorClass::Conflict), "the device is not ours");
    let other_mac = SwitchPort { mac: "02:00:00:00:10:ff".to_owned(), ..mine.clone() };
    assert_eq!(class_of_plug(&switch, &other_mac).await, Some(ErrorClass::Conflict), "other parameters, same id");
    let other_version = SwitchPort { version: "a.0".to_owned(), ..mine.clone() };
    assert_eq!(class_of_plug(&switch, &other_version).await, Some(ErrorClass::Conflict), "another version, same id");

    assert_eq!(
        wanted(&switch).await,
        std::slice::from_ref(&mine),
        "refusals change nothing, and foreign ports are not listed"
    );
    switch.unplug(&mine.id).await.expect("unplug");
}

async fn epochs_do_not_mix(bench: &impl Bench) {
    let switch = bench.open().await;
    let device = bench.device(0).await;
    let old = port("a", 1, &device, 1);
    let new = port("a", 2, &device, 1);
    switch.plug(&old).await.expect("plug");
    assert_eq!(class_of_plug(&switch, &new).await, Some(ErrorClass::Conflict), "the old epoch has to leave first");
    switch.unplug(&new.id).await.expect("another epoch is not plugged: success");
    assert_eq!(wanted(&switch).await, std::slice::from_ref(&old), "unplugging another epoch leaves this one");

    let elsewhere = SwitchPort { device: bench.device(1).await, ..new.clone() };
    assert_eq!(class_of_plug(&switch, &elsewhere).await, Some(ErrorClass::Conflict), "one epoch of a UID at a time");
    switch.unplug(&old.id).await.expect("unplug");
    switch.plug(&new).await.expect("the new epoch takes the freed device");
    assert_eq!(wanted(&switch).await, std::slice::from_ref(&new));
    switch.unplug(&new.id).await.expect("unplug");
}

/// Refused at once or listed with an error: a port that cannot forward never looks as if it could.
async fn a_missing_device_is_told(bench: &impl Bench) {
    let switch = bench.open().await;
    let missing = port("a", 1, "no-such-device", 1);
    match switch.plug(&missing).await {
        Err(error) => assert_eq!(error.class, ErrorClass::NotFound, "{error}"),
        Ok(()) => {
            let mut told = None;
            for _ in 0..PATIENCE {
                let seen = listed(&switch).await.pop().expect("listed");
                assert!(!seen.forwarding, "a missing device cannot forward");
                told = seen.error;
                if told.is_some() {
                    break;
                }
                bench.pause().await;
            }
            let told = told.expect("the error of a missing device is never listed");
            assert!(told.contains("no-such-device"), "the error names the device: {told}");
            switch.unplug(&missing.id).await.expect("unplug");
        }
    }
    assert_eq!(wanted(&switch).await, []);
}

async fn sees_the_guest(bench: &impl Bench) {
    let switch = bench.open().await;
    let port = port("a", 1, &bench.device(2).await, 9);
    let address: IpAddr = "10.9.0.9".parse().expect("a literal address");
    switch.plug(&port).await.expect("plug");
    let before = switch.observe_guest(&port, &[address]).await.expect("observe");
    assert_eq!(before, GuestObserved::default(), "nothing is known of a guest that is off");

    bench.start_guest(2, &port.mac, address).await;
    let first = answered(bench, &switch, &port, address, None).await;
    bench.stop_guest(2).await;
    bench.start_guest(2, &port.mac, address).await;
    let second = answered(bench, &switch, &port, address, Some(&first)).await;
    assert!(second.first_packet_at > first.first_packet_at, "a restart begins a new count: {first:?} {second:?}");
    assert!(second.answered_at > first.answered_at);

    bench.stop_guest(2).await;
    switch.unplug(&port.id).await.expect("unplug");
}

/// Waits for an answer that belongs to another start of the guest than `before`.
async fn answered(
    bench: &impl Bench,
    switch: &impl Switch,
    port: &SwitchPort,
    address: IpAddr,
    before: Option<&GuestObserved>,
) -> GuestObserved {
    let mut last = GuestObserved::default();
    for _ in 0..PATIENCE {
        last = switch.observe_guest(port, &[address]).await.expect("observe");
        let new_start = before.is_none_or(|before| last.first_packet_at > before.first_packet_at);
        if new_start && last.answered_at.is_some() {
            assert_eq!(last.answered_address, Some(address));
            assert!(last.first_packet_at.is_some(), "an answer is a packet: {last:?}");
            assert!(last.answered_at >= last.first_packet_at);
            return last;
        }
        bench.pause().await;
    }
    panic!("the guest never answered: {last:?}, before: {before:?}");
}

/// Waits until `true_of` the only port; that it becomes so is told by `changed`.
async fn becomes(bench: &impl Bench, switch: &impl Switch, what: &str, true_of: impl Fn(&PortObserved) -> bool) {
    let told = async {
        while !listed(switch).await.iter().all(&true_of) {
            switch.changed().await;
        }
    };
    let patience = async {
        for _ in 0..PATIENCE {
            bench.pause().await;
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        () = told => {}
        () = patience => panic!("{what}: never, or nobody was told: {:?}", listed(switch).await),
    }
}

/// Raises the number until the only port is in force: what counts is that it grows after the switch saw the port installed.
async fn grows(bench: &impl Bench, switch: &impl Switch, mut number: u64) -> u64 {
    for _ in 0..PATIENCE {
        number += 1;
        bench.ovn_reaches(number).await;
        bench.pause().await;
        if listed(switch).await.iter().all(|seen| seen.in_force) {
            return number;
        }
    }
    panic!("never in force: {:?}", listed(switch).await);
}

async fn tells_what_is_in_force(bench: &impl Bench) {
    let switch = bench.open().await;
    let port = port("a", 1, &bench.device(3).await, 4);
    assert_eq!(switch.chassis().await, Ok(None), "OVN does not know it yet");
    switch.plug(&port).await.expect("plug");
    forwards(bench, &switch, &port).await;
    assert!(listed(&switch).await.iter().all(|seen| !seen.installed && !seen.in_force), "nobody installs anything");
    switch.unplug(&port.id).await.expect("unplug");

    bench.join_ovn("chassis-1").await;
    bench.ovn_reaches(5).await;
    switch.plug(&port).await.expect("plug");
    forwards(bench, &switch, &port).await;
    becomes(bench, &switch, "OVN has not installed it", |seen| !seen.installed && !seen.in_force).await;
    assert_eq!(switch.chassis().await, Ok(Some("chassis-1".to_owned())));
    bench.ovn_installs(3, true).await;
    becomes(bench, &switch, "OVN has installed it", |seen| seen.installed).await;
    assert!(!listed(&switch).await[0].in_force, "installed alone is too early");
    let number = grows(bench, &switch, 5).await;

    let after_restart = bench.open().await;
    let seen = listed(&after_restart).await;
    assert!(seen[0].in_force, "a new handle finds what was remembered: {seen:?}");
    after_restart.plug(&port).await.expect("plugging again changes nothing");
    assert!(listed(&after_restart).await[0].in_force);

    bench.ovn_installs(3, false).await;
    becomes(bench, &switch, "gone with what was installed", |seen| !seen.installed && !seen.in_force).await;
    bench.ovn_reaches(number + 1).await;
    bench.ovn_installs(3, true).await;
    becomes(bench, &switch, "installed anew", |seen| seen.installed).await;
    assert!(!listed(&switch).await[0].in_force, "what was remembered of the first time does not count");
    grows(bench, &switch, number + 1).await;

    bench.ovn_reaches(2).await;
    becomes(bench, &switch, "a restored database counts from its own number", |seen| !seen.in_force).await;
    grows(bench, &switch, 2).await;
    switch.unplug(&port.id).await.expect("unplug");
}
