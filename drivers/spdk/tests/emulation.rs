//! The driver against a fake target, and against a real one where SPDK is installed.

mod target;

use planner::exposure::{FunctionKind, Limits, Presence, Slot};
use ports::{
    Emulation, ErrorClass,
    conformance::emulation::{self, Bench},
    emulation::{Backend, DiskFunction},
};
use sandbox::spdk::{Fake, faults::Fault};
use spdk::{
    SpdkEmulation,
    door::{Door, Fabric},
    host::Host,
    names,
    rpc::methods::bdev::{AioCreate, GetBdevs, RaidCreate, RaidLevel},
    rpc::methods::nvmf::GetSubsystems,
};
use std::time::Duration;
use target::{Lab, Over, Target, disk, fake, real};

const MIB: u64 = 1 << 20;
/// A condition that is met in milliseconds on an idle machine.
const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn the_fake_conforms() {
    target::mention_schema("the_fake_conforms");
    for over in [Over::File, Over::Bdev] {
        let lab = fake(over);
        emulation::run(&lab).await;
        assert_eq!(lab.target.violations(), Vec::<String>::new(), "{over:?}");
    }
}

const HOST_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:5f0c1c9e-58a4-4b1c-9a63-0123456789ab";

/// For a host that boots over NVMe/TCP.
fn over_tcp() -> Door {
    let socket = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a socket");
    let listen = socket.local_addr().expect("its address");
    Door::Fabric { fabric: Fabric::Tcp, listen, host_nqn: HOST_NQN.to_owned() }
}

#[tokio::test]
async fn the_fake_conforms_over_tcp() {
    let lab = Lab { door: over_tcp(), ..fake(Over::File) };
    emulation::run(&lab).await;
    assert_eq!(lab.target.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn a_real_target_conforms() {
    let Some(lab) = real("a_real_target_conforms", "nvmf_tgt").await else { return };
    emulation::run(&lab).await;
}

#[tokio::test]
async fn a_real_target_conforms_over_tcp() {
    let Some(lab) = real("a_real_target_conforms_over_tcp", "nvmf_tgt").await else { return };
    emulation::run(&Lab { door: over_tcp(), ..lab }).await;
}

#[tokio::test]
async fn over_a_fabric_one_host_is_let_in_and_finds_back_by_itself() {
    let lab = Lab { door: over_tcp(), ..fake(Over::File) };
    let emulation = lab.emulation();
    let boot = disk(1, 1, Slot::Boot, lab.new_backend(MIB).await);
    emulation.expose_disk(&boot).await.expect("expose");
    let hosts = || lab.target.with(|world| world.nvmf.subsystems[&lab.host().nqn].hosts.clone());
    let own = std::collections::BTreeSet::from([HOST_NQN.to_owned()]);
    let any = lab.target.with(|world| world.nvmf.subsystems[&lab.host().nqn].allow_any_host);
    assert!(!any && hosts() == own, "{:?}", hosts());
    lab.target.with(|world| {
        let subsystem = world.nvmf.subsystems.get_mut(&lab.host().nqn).expect("the subsystem");
        subsystem.hosts.insert("nqn.2026-01.test:another".to_owned());
    });
    emulation.expose_disk(&boot).await.expect("again");
    assert_eq!(hosts(), own, "nobody else stays");
    let second = disk(2, 1, Slot::HotPlug, lab.new_backend(MIB).await);
    let third = disk(3, 1, Slot::HotPlug, lab.new_backend(MIB).await);
    for disk in [&second, &third] {
        emulation.expose_disk(disk).await.expect("expose");
    }
    let places = || {
        lab.target.with(|world| {
            let shown = &world.nvmf.subsystems[&lab.host().nqn].namespaces;
            shown.iter().map(|(nsid, ns)| (*nsid, ns.uuid.clone())).collect::<Vec<_>>()
        })
    };
    let before = places();
    lab.target.kill();
    lab.target.revive().expect("a new target");
    until("the new target answers", async || emulation.list().await.is_ok_and(|all| all.is_empty())).await;
    // In the other order, and by a restarted agent: the host finds each where it was.
    drop(emulation);
    let restarted = lab.emulation();
    for disk in [&third, &second, &boot] {
        restarted.expose_disk(disk).await.expect("expose in the new target");
    }
    assert_eq!(places(), before);
    assert_eq!(presence(&restarted).await, Some(Presence::Present), "no host is stranded");
    assert_eq!(lab.target.violations(), Vec::<String>::new());
}

/// A request to make the disk's bdev was taken when the connection under it had ended: the target says that it is done, shows
/// no such bdev, and keeps the name.
async fn is_presented_all_the_same<T: Target>(lab: &Lab<T>) {
    let file = lab.new_backend(MIB).await;
    let disk = disk(1, 1, Slot::HotPlug, Backend::Bdev("connected".to_owned()));
    let (rpc, name, emulation) = (lab.rpc(), names::bdev(&disk.id), lab.emulation());
    let filename = file.path().expect("a file");
    rpc.call(&AioCreate { name: "connected", filename, block_size: 512, readonly: false }).await.expect("a bdev");
    let base = names::connection(&disk.id);
    let late = RaidCreate { name: &name, raid_level: RaidLevel::Raid0, strip_size_kb: 4, base_bdevs: vec![&base] };
    rpc.call(&late).await.expect("a success, though there is no such bdev");
    let there = rpc.call(&GetBdevs { name: None }).await.expect("the bdevs");
    assert!(!there.iter().any(|bdev| bdev.name == name), "it waits");
    assert_eq!(emulation.list().await.expect("list"), []);
    emulation.expose_disk(&disk).await.expect("presented");
    emulation.hide(&disk.id, FunctionKind::Disk).await.expect("taken away");
}

#[tokio::test]
async fn a_disk_of_which_a_late_request_keeps_the_name_is_presented() {
    let lab = fake(Over::File);
    is_presented_all_the_same(&lab).await;
    assert_eq!(lab.target.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn a_disk_of_which_a_late_request_keeps_the_name_is_presented_by_a_real_target() {
    const NAME: &str = "a_disk_of_which_a_late_request_keeps_the_name_is_presented_by_a_real_target";
    let Some(lab) = real(NAME, "nvmf_tgt").await else { return };
    is_presented_all_the_same(&lab).await;
}

#[tokio::test]
async fn what_the_host_sees_stays_where_it_is() {
    let lab = fake(Over::File);
    let emulation = lab.emulation();
    let boot = disk(1, 3, Slot::Boot, lab.new_backend(MIB).await);
    let mut seed = disk(2, 1, Slot::Seed, lab.new_backend(MIB).await);
    seed.read_only = true;
    let data = disk(3, 1, Slot::HotPlug, lab.new_backend(MIB).await);
    for disk in [&data, &seed, &boot] {
        emulation.expose_disk(disk).await.expect("expose");
    }
    let subsystems = lab.rpc().call(&GetSubsystems {}).await.expect("list");
    assert_eq!(subsystems.len(), 1);
    let shown: Vec<_> = subsystems[0].namespaces.iter().map(|ns| (ns.nsid, ns.uuid.as_str())).collect();
    assert_eq!(shown, [(1, boot.uuid.as_str()), (2, seed.uuid.as_str()), (3, data.uuid.as_str())]);
    let readonly = lab.target.with(|world| {
        let kind = &world.bdevs[&names::bdev(&seed.id)].kind;
        matches!(kind, sandbox::spdk::world::Kind::Aio { readonly: true, .. })
    });
    assert!(readonly, "the host could write to its seed");

    let other = DiskFunction { uuid: data.uuid.clone(), ..disk(4, 1, Slot::HotPlug, lab.new_backend(MIB).await) };
    let refused = emulation.expose_disk(&other).await.expect_err("a UUID that the host has");
    assert_eq!(refused.class, ErrorClass::Conflict, "{refused}");
    let again = DiskFunction { backend: data.backend.clone(), ..disk(5, 1, Slot::HotPlug, data.backend.clone()) };
    let refused = emulation.expose_disk(&again).await.expect_err("a file that is in use");
    assert_eq!(refused.class, ErrorClass::Busy, "{refused}");
    assert!(refused.message.contains(&names::bdev(&data.id)), "it names the user: {refused}");
    assert_eq!(lab.target.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn another_subsystem_on_the_hosts_socket_is_left_alone() {
    let lab = fake(Over::File);
    let first = lab.emulation();
    first.expose_disk(&disk(1, 1, Slot::Boot, lab.new_backend(MIB).await)).await.expect("expose");
    let mut host = lab.host();
    host.nqn = "nqn.2026-01.io.metalplane:other".to_owned();
    let second = SpdkEmulation::new(lab.target.socket(), host, lab.folder.path().join("other")).expect("a driver");
    let refused = second.expose_disk(&disk(2, 1, Slot::Boot, lab.new_backend(MIB).await)).await;
    assert_eq!(refused.expect_err("the socket is taken").class, ErrorClass::Conflict);
    assert_eq!(lab.target.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn a_read_only_bdev_is_never_shown_writable() {
    let lab = fake(Over::Bdev);
    let disk = DiskFunction { read_only: true, ..disk(1, 1, Slot::HotPlug, lab.new_backend(MIB).await) };
    let refused = lab.emulation().expose_disk(&disk).await.expect_err("no way to do that");
    assert_eq!(refused.class, ErrorClass::Unsupported, "{refused}");
}

#[tokio::test]
async fn disks_are_limited_and_what_they_do_is_counted() {
    let lab = fake(Over::File);
    let disk = disk(1, 1, Slot::Boot, lab.new_backend(MIB).await);
    lab.emulation().expose_disk(&disk).await.expect("expose");
    let name = names::bdev(&disk.id);
    let limits = || lab.target.with(|world| world.bdevs[&name].limits);
    assert_eq!(limits(), [0; 4]);
    let emulation = lab.emulation();
    let wanted = Limits { iops: Some(20_000), bandwidth_mib: Some(100), read_mib: Some(50), write_mib: None };
    emulation.limit_disk(&disk.id, &wanted).await.expect("limit it");
    assert_eq!(limits(), [20_000, 100, 50, 0]);
    let other = Limits { write_mib: Some(7), ..Limits::default() };
    emulation.limit_disk(&disk.id, &other).await.expect("limit it");
    assert_eq!(limits(), [0, 0, 0, 7], "SPDK leaves alone what is not named");
    let odd = Limits { iops: Some(1500), ..Limits::default() };
    let refused = emulation.limit_disk(&disk.id, &odd).await.expect_err("a limit that SPDK refuses");
    assert!(refused.message.contains("iops 1500"), "{refused}");
    assert_eq!(limits(), [0, 0, 0, 7]);

    lab.target.with(|world| world.bdevs.get_mut(&name).expect("the bdev").writes = 3);
    let [only] = emulation.statistics().await.expect("statistics").try_into().expect("one disk");
    assert_eq!((only.id, only.written.operations, only.written.bytes), (disk.id, 3, 3 * 512));
    assert_eq!(only.latencies.expect("counted").iter().sum::<u64>(), 3);
    assert_eq!(lab.target.violations(), Vec::<String>::new());
}

/// Waits for the driver's own look at the target.
async fn until(what: &str, mut look: impl AsyncFnMut() -> bool) {
    let met = tokio::time::timeout(LIMIT, async {
        while !look().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    met.await.unwrap_or_else(|_| panic!("{what}: not within {LIMIT:?}"));
}

async fn presence(emulation: &SpdkEmulation) -> Option<Presence> {
    emulation.list().await.expect("list").first().map(|exposure| exposure.presence)
}

#[tokio::test]
async fn a_host_that_loses_its_target_has_to_be_powered_off() {
    let lab = fake(Over::File);
    let emulation = lab.emulation();
    let boot = disk(1, 1, Slot::Boot, lab.new_backend(MIB).await);
    let folder = lab.folder.path().join("vfio-user").display().to_string();
    let connect = |on: bool| {
        lab.target.with(|world| match on {
            true => world.nvmf.connected.insert(folder.clone()),
            false => world.nvmf.connected.remove(&folder),
        });
    };
    emulation.expose_disk(&boot).await.expect("expose");
    assert_eq!(presence(&emulation).await, Some(Presence::Present), "the host is off");

    // Nobody calls a verb while the host starts: the driver looks by itself, and says so.
    connect(true);
    let looks = || lab.target.calls().iter().filter(|call| *call == "nvmf_subsystem_get_controllers").count();
    let before = looks();
    until("a look of the driver's own, begun after the host came", async || looks() >= before + 2).await;
    tokio::time::timeout(LIMIT, emulation.changed()).await.expect("it says so");
    lab.target.kill();
    lab.target.revive().expect("a new target");
    until("the new target answers", async || emulation.list().await.is_ok_and(|all| all.is_empty())).await;
    emulation.expose_disk(&boot).await.expect("expose in the new target, over the old one's socket");
    assert_eq!(presence(&emulation).await, Some(Presence::Stranded));

    drop(emulation);
    let restarted = lab.emulation();
    assert_eq!(presence(&restarted).await, Some(Presence::Stranded), "a restarted agent knows it still");
    connect(true);
    assert_eq!(presence(&restarted).await, Some(Presence::Present), "the host was powered off and on");
    connect(false);
    assert_eq!(presence(&restarted).await, Some(Presence::Present), "the host was powered off");
    lab.target.kill();
    lab.target.revive().expect("a new target");
    until("the new target answers", async || restarted.list().await.is_ok_and(|all| all.is_empty())).await;
    restarted.expose_disk(&boot).await.expect("expose in a third target");
    assert_eq!(presence(&restarted).await, Some(Presence::Present), "no host lost anything");
    assert_eq!(lab.target.violations(), Vec::<String>::new());
}

/// What an agent does until it is so: it looks, and repeats the verb that is missing.
async fn bring(emulation: &SpdkEmulation, wanted: &[&DiskFunction], sizes: u64) -> usize {
    for round in 0..40 {
        let Ok(listed) = emulation.list().await else { continue };
        let mut missing = 0;
        for exposure in &listed {
            if !wanted.iter().any(|disk| disk.id == exposure.id) {
                missing += 1;
                let _ = emulation.hide(&exposure.id, FunctionKind::Disk).await;
            }
        }
        for disk in wanted {
            match listed.iter().find(|exposure| exposure.id == disk.id) {
                None => {
                    missing += 1;
                    let _ = emulation.expose_disk(disk).await;
                }
                Some(exposure) if exposure.size_bytes != Some(sizes) => {
                    missing += 1;
                    let _ = emulation.resize_disk(&disk.id, sizes).await;
                }
                Some(_) => {}
            }
        }
        if missing == 0 {
            return round;
        }
    }
    panic!("it is not so after 40 rounds");
}

async fn is_as_without_faults(lab: &Lab<Fake>, wanted: &[&DiskFunction], when: &str) {
    let mut bdevs: Vec<_> = lab.target.with(|world| world.bdevs.keys().cloned().collect());
    let mut expected: Vec<_> = wanted.iter().map(|disk| names::bdev(&disk.id)).collect();
    bdevs.sort();
    expected.sort();
    assert_eq!(bdevs, expected, "{when}");
    assert_eq!(lab.target.violations(), Vec::<String>::new(), "{when}");
}

/// Every fault at every call, with the driver restarted behind each: it ends as without.
#[tokio::test]
async fn every_fault_at_every_call_is_survived() {
    let mut runs = 0;
    for fault in Fault::all() {
        for call in 0.. {
            let lab = fake(Over::File);
            let when = format!("{fault:?} at call {call}");
            let boot = disk(1, 1, Slot::Boot, lab.new_backend(MIB).await);
            let data = disk(2, 1, Slot::HotPlug, lab.new_backend(MIB).await);
            lab.target.inject(call, fault.clone());
            bring(&lab.emulation(), &[&boot, &data], MIB).await;
            for disk in [&boot, &data] {
                lab.grow(&disk.backend, 2 * MIB).await;
            }
            bring(&lab.emulation(), &[&boot, &data], 2 * MIB).await;
            bring(&lab.emulation(), &[&boot], 2 * MIB).await;
            is_as_without_faults(&lab, &[&boot], &when).await;
            runs += 1;
            if lab.target.has_faults() {
                break;
            }
        }
    }
    assert!(runs > 100, "only {runs} runs");
}

/// As many as one host can have: each has its own namespace, and together they look at the target a few times, not once each.
#[tokio::test]
async fn disks_that_come_at_once_share_a_look_at_the_target() {
    let lab = fake(Over::File);
    let host = Host { hot_plug: 62, ..lab.host() };
    let emulation = SpdkEmulation::new(lab.target.socket(), host, lab.folder.path().join("many")).expect("a driver");
    let mut disks = vec![disk(1, 1, Slot::Boot, lab.new_backend(MIB).await)];
    for number in 2..=63 {
        disks.push(disk(number, 1, Slot::HotPlug, lab.new_backend(MIB).await));
    }
    // Two that may not be there together: the second is refused, as if it had come later.
    let twin = DiskFunction { id: disk(99, 1, Slot::HotPlug, disks[5].backend.clone()).id, ..disks[5].clone() };
    let before = lab.target.calls().len();
    let told = futures::future::join_all(
        disks.iter().map(|disk| emulation.expose_disk(disk)).chain([emulation.expose_disk(&twin)]),
    )
    .await;
    let calls = lab.target.calls().split_off(before);
    assert!(told[..63].iter().all(Result::is_ok), "{told:?}");
    assert_eq!(told[63].as_ref().map_err(|error| error.class), Err(ErrorClass::Conflict));
    let listed = emulation.list().await.expect("list");
    assert_eq!(listed.len(), 63);
    let looks = calls.iter().filter(|method| *method == "bdev_get_bdevs").count();
    // The first that has the turn, those that waited meanwhile, and the twin.
    assert!(looks <= 3, "{looks} looks at all bdevs for 63 disks");
    assert_eq!(lab.target.violations(), Vec::<String>::new());
}
