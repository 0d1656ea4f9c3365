//! What every implementation of [`Emulation`] must do.
//!
//! The suite starts with an emulator that presents nothing of ours and leaves it so.

use super::{Sleep, eventually};
use crate::{
    Emulation, ErrorClass, PortError,
    emulation::{Backend, DiskFunction, EmulationCapabilities, NicFunction},
};
use async_trait::async_trait;
use planner::exposure::{Bus, Exposure, ExposureId, FunctionKind, Limits, Presence, Slot};
use std::collections::BTreeSet;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);
const MIB: u64 = 1 << 20;

/// The emulator under test and its surroundings.
#[async_trait]
pub trait Bench: Sleep {
    /// A new client of the same emulator, as a restarted agent makes it. The suite has dropped the one before.
    async fn connect(&self) -> Box<dyn Emulation>;

    /// A new backend of this size.
    async fn backend(&self, size_bytes: u64) -> Backend;

    /// Makes the storage under a backend larger, as an expansion does before the agent hears of it.
    async fn grow(&self, backend: &Backend, size_bytes: u64);

    /// Called before a disk is given other limits: some emulators need its host for that, which then opens the disk.
    async fn let_host_open(&self, _id: &ExposureId) {}

    /// Called while the suite waits for a function to leave: does what the host has to do for that.
    async fn let_host_release(&self);

    /// The devices that stand for NICs are there without them, as those of a DPU's own functions are.
    fn device_stays(&self) -> bool {
        false
    }

    /// Starts anew what presents disks, under a host that has them; false where that cannot be done here.
    async fn restart(&self) -> bool {
        false
    }

    /// Whether the DPU has a network device of this name; `None` where this cannot be looked at.
    async fn has_device(&self, name: &str) -> Option<bool>;
}

/// Panics at the first promise that is not kept.
pub async fn run(bench: &dyn Bench) {
    let port = bench.connect().await;
    let capabilities = port.capabilities().await.expect("capabilities");
    port.recover(&[], false).await.expect("back the controller: the host is to find no disk");
    assert_eq!(port.list().await.expect("list"), [], "the suite needs an emulator that presents nothing of ours");
    assert!(capabilities.disks > 0 || capabilities.nics > 0, "it presents nothing: {capabilities:?}");
    drop(port);
    if capabilities.disks > 0 {
        disks(bench, &capabilities).await;
    } else {
        let none = disk(id(1, 1), Bus::NVMe, Slot::HotPlug, &bench.backend(MIB).await);
        let refused = class(bench.connect().await.expose_disk(&none).await);
        assert_eq!(refused, Some(ErrorClass::Unsupported), "no disks are announced");
    }
    if capabilities.nics > 0 {
        nics(bench).await;
        nic_places_run_out_and_come_back(bench, &capabilities).await;
    } else {
        let refused = class(bench.connect().await.expose_nic(&nic(id(40, 1), 0)).await);
        assert_eq!(refused, Some(ErrorClass::Unsupported), "no NICs are announced");
    }
}

async fn disks(bench: &dyn Bench, capabilities: &EmulationCapabilities) {
    assert!(capabilities.hot_plug_ports >= 2, "the suite needs two hot-plug ports: {capabilities:?}");
    assert!(!capabilities.buses.is_empty(), "no bus: {capabilities:?}");
    expose_is_idempotent_and_adopted(bench, capabilities.buses[0]).await;
    refused_without_effect(bench, capabilities.buses[0]).await;
    ports_run_out_and_come_back(bench, capabilities).await;
    hide_frees_the_backend(bench, capabilities.buses[0]).await;
    recovers_at_once(bench, capabilities.buses[0]).await;
    leaves_out(bench, capabilities.buses[0]).await;
    for bus in &capabilities.buses {
        resize(bench, *bus, capabilities.online_resize.contains(bus)).await;
        limits(bench, *bus).await;
    }
}

fn id(number: u32, epoch: u64) -> ExposureId {
    ExposureId { uid: format!("5f0c1c9e-58a4-4b1c-9a63-{number:012x}"), epoch }
}

fn disk(id: ExposureId, bus: Bus, slot: Slot, backend: &Backend) -> DiskFunction {
    let serial = format!("MP{}", &id.uid[id.uid.len() - 12..]);
    let (uuid, limits) = (id.uid.clone(), Limits::default());
    DiskFunction { uuid, id, bus, slot, serial, backend: backend.clone(), read_only: false, limits }
}

fn class(result: Result<(), PortError>) -> Option<ErrorClass> {
    result.err().map(|e| e.class)
}

fn find<'a>(list: &'a [Exposure], id: &ExposureId) -> Option<&'a Exposure> {
    list.iter().find(|e| e.id == *id)
}

async fn hide_all(bench: &dyn Bench, port: &dyn Emulation) {
    for exposure in port.list().await.expect("list") {
        port.hide(&exposure.id, exposure.kind).await.expect("hide");
    }
    gone(bench, port, None).await;
}

/// Waits until `id`, or everything, is no longer listed; until then it must be listed as leaving.
async fn gone(bench: &dyn Bench, port: &dyn Emulation, id: Option<&ExposureId>) {
    eventually(bench, LIMIT, "a hidden function leaves the list", async || {
        let listed = port.list().await.expect("list");
        let mut left = listed.iter().filter(|e| id.is_none_or(|id| e.id == *id)).peekable();
        if left.peek().is_none() {
            return Ok(());
        }
        let left: Vec<_> = left.collect();
        assert!(left.iter().all(|e| e.presence == Presence::Leaving), "hidden, so leaving or gone: {left:?}");
        bench.let_host_release().await;
        Err(format!("{left:?}"))
    })
    .await;
}

async fn expose_is_idempotent_and_adopted(bench: &dyn Bench, bus: Bus) {
    let port = bench.connect().await;
    let boot = disk(id(1, 1), bus, Slot::Boot, &bench.backend(8 * MIB).await);
    let data = disk(id(2, 1), bus, Slot::HotPlug, &bench.backend(4 * MIB).await);
    port.expose_disk(&boot).await.expect("expose the boot disk");
    port.expose_disk(&boot).await.expect("expose it again");
    port.expose_disk(&data).await.expect("expose a hot-plugged disk");

    let listed = port.list().await.expect("list");
    assert_eq!(listed.len(), 2, "one function per exposure: {listed:?}");
    for (disk, size) in [(&boot, 8 * MIB), (&data, 4 * MIB)] {
        let seen = find(&listed, &disk.id).unwrap_or_else(|| panic!("{:?} is not listed: {listed:?}", disk.id));
        assert_eq!(seen.kind, FunctionKind::Disk);
        assert_ne!(seen.presence, Presence::Leaving, "{seen:?}");
        assert_eq!(seen.size_bytes, Some(size), "{seen:?}");
    }

    // Where somebody counts, each disk is counted from the start: that it was never read tells that its host booted another.
    let counted = port.statistics().await.expect("statistics");
    let is_counted = |disk: &DiskFunction| counted.iter().any(|counted| counted.id == disk.id);
    assert!(counted.is_empty() || is_counted(&boot) && is_counted(&data), "not every disk is counted: {counted:?}");
    for disk in [&boot, &data] {
        let reads = port.reads(&disk.id).await.expect("the reads of one disk");
        assert_eq!(reads.is_some(), is_counted(disk), "one disk is counted as all are: {:?}", disk.id);
    }
    assert_eq!(port.reads(&id(1, 2)).await.expect("of another epoch"), None);

    drop(port);
    let adopted = bench.connect().await;
    let seen = adopted.list().await.expect("list after a restart");
    assert!(find(&seen, &boot.id).is_some() && find(&seen, &data.id).is_some(), "a restart lost something: {seen:?}");
    adopted.expose_disk(&boot).await.expect("expose again after a restart");
    assert_eq!(adopted.list().await.expect("list").len(), 2, "a restart exposed something twice");

    let later = disk(id(2, 2), bus, Slot::HotPlug, &bench.backend(4 * MIB).await);
    assert_eq!(class(adopted.expose_disk(&later).await), Some(ErrorClass::Conflict), "another epoch of the same UID");
    adopted.hide(&later.id, FunctionKind::Disk).await.expect("hide an epoch that is not presented");
    let untouched = adopted.list().await.expect("list");
    assert!(find(&untouched, &data.id).is_some_and(|e| e.presence != Presence::Leaving), "hidden by another epoch");

    let second = disk(id(3, 1), bus, Slot::Boot, &bench.backend(MIB).await);
    assert_eq!(class(adopted.expose_disk(&second).await), Some(ErrorClass::Busy), "the boot slot is taken");
    hide_all(bench, adopted.as_ref()).await;
}

async fn refused_without_effect(bench: &dyn Bench, bus: Bus) {
    let port = bench.connect().await;
    let mut disk = disk(id(10, 1), bus, Slot::HotPlug, &bench.backend(MIB).await);
    disk.serial = "123456789012345678901".to_owned();
    assert_eq!(class(port.expose_disk(&disk).await), Some(ErrorClass::Invalid), "a serial of 21 bytes");
    disk.serial.truncate(20);
    let backend = std::mem::replace(&mut disk.backend, Backend::Path("/nonexistent/volume".into()));
    let missing = class(port.expose_disk(&disk).await);
    assert!(missing.is_some(), "a backend that does not exist was exposed");
    assert_eq!(port.list().await.expect("list"), [], "a refused disk is listed");
    disk.backend = backend;
    port.expose_disk(&disk).await.expect("expose with the right backend after a refusal");
    port.hide(&id(11, 1), FunctionKind::Disk).await.expect("hide what was never presented");
    hide_all(bench, port.as_ref()).await;
}

async fn ports_run_out_and_come_back(bench: &dyn Bench, capabilities: &EmulationCapabilities) {
    let port = bench.connect().await;
    let backend = bench.backend(MIB).await;
    let number = |n: u32| disk(id(100 + n, 1), capabilities.buses[0], Slot::HotPlug, &backend);
    let mut disks = Vec::new();
    for n in 0..capabilities.hot_plug_ports {
        let mut one = number(n);
        one.backend = bench.backend(MIB).await;
        port.expose_disk(&one).await.unwrap_or_else(|e| panic!("hot-plug port {n} of {capabilities:?}: {e}"));
        disks.push(one);
    }
    let one_more = number(capabilities.hot_plug_ports);
    assert_eq!(class(port.expose_disk(&one_more).await), Some(ErrorClass::Busy), "no port is free");
    port.hide(&disks[0].id, FunctionKind::Disk).await.expect("hide");
    gone(bench, port.as_ref(), Some(&disks[0].id)).await;
    port.expose_disk(&one_more).await.expect("expose into the port that became free");
    hide_all(bench, port.as_ref()).await;
}

async fn hide_frees_the_backend(bench: &dyn Bench, bus: Bus) {
    let port = bench.connect().await;
    let backend = bench.backend(MIB).await;
    let first = disk(id(20, 1), bus, Slot::HotPlug, &backend);
    port.expose_disk(&first).await.expect("expose");
    port.hide(&first.id, FunctionKind::Disk).await.expect("hide");
    port.hide(&first.id, FunctionKind::Disk).await.expect("hide while it leaves");
    gone(bench, port.as_ref(), Some(&first.id)).await;
    port.hide(&first.id, FunctionKind::Disk).await.expect("hide what has left");

    // The next epoch, and somebody else, may have the backend now.
    let next = disk(id(20, 2), bus, Slot::HotPlug, &backend);
    port.expose_disk(&next).await.expect("expose the next epoch");
    port.hide(&next.id, FunctionKind::Disk).await.expect("hide");
    gone(bench, port.as_ref(), Some(&next.id)).await;
    let other = disk(id(21, 1), bus, Slot::HotPlug, &backend);
    port.expose_disk(&other).await.expect("expose the backend for somebody else");
    hide_all(bench, port.as_ref()).await;
}

/// Only of an emulation whose host has to find everything at once.
async fn recovers_at_once(bench: &dyn Bench, bus: Bus) {
    let port = bench.connect().await;
    let boot = disk(id(60, 1), bus, Slot::Boot, &bench.backend(MIB).await);
    let data = disk(id(61, 1), bus, Slot::HotPlug, &bench.backend(MIB).await);
    for one in [&boot, &data] {
        port.expose_disk(one).await.expect("expose");
    }
    drop(port);
    let restarted = bench.restart().await;
    let port = bench.connect().await;
    if restarted && port.list_by_kind().await.awaits_recovery {
        assert_eq!(port.list().await.expect("list"), [], "the host has nothing yet");
        assert_eq!(class(port.expose_disk(&boot).await), Some(ErrorClass::Busy), "one by one");
        let all = [boot.clone(), data.clone()];
        for _ in 0..2 {
            port.recover(&all, false).await.expect("recover");
            assert!(!port.list_by_kind().await.awaits_recovery, "recovered");
            let listed = port.list().await.expect("list");
            assert!(all.iter().all(|one| find(&listed, &one.id).is_some()), "{listed:?}");
        }
        port.recover(&[], true).await.expect("nothing happens where the host has its disks");
        assert_eq!(port.list().await.expect("list").len(), 2);
    }
    hide_all(bench, port.as_ref()).await;
}

/// A disk whose storage no longer exists: it holds the others back, until the set may be partial.
async fn leaves_out(bench: &dyn Bench, bus: Bus) {
    let port = bench.connect().await;
    let kept = disk(id(62, 1), bus, Slot::Boot, &bench.backend(MIB).await);
    port.expose_disk(&kept).await.expect("expose");
    drop(port);
    let restarted = bench.restart().await;
    let port = bench.connect().await;
    if restarted && port.list_by_kind().await.awaits_recovery {
        let nowhere = Backend::Path("/nonexistent/storage".into());
        let all = [kept.clone(), disk(id(63, 1), bus, Slot::HotPlug, &nowhere)];
        let refused = class(port.recover(&all, false).await);
        assert!(refused.is_some_and(|class| class != ErrorClass::Unreachable), "{refused:?}");
        assert!(port.list_by_kind().await.awaits_recovery, "the host is shown nothing yet");
        port.recover(&all, true).await.expect("without the disk that is refused");
        let listed = port.list().await.expect("list");
        assert!(find(&listed, &kept.id).is_some() && find(&listed, &all[1].id).is_none(), "{listed:?}");
        assert!(!port.list_by_kind().await.awaits_recovery, "recovered");
    }
    hide_all(bench, port.as_ref()).await;
}

async fn resize(bench: &dyn Bench, bus: Bus, online: bool) {
    let port = bench.connect().await;
    let backend = bench.backend(4 * MIB).await;
    let disk = disk(id(30, 1), bus, Slot::HotPlug, &backend);
    let absent = class(port.resize_disk(&disk.id, 8 * MIB).await);
    assert_eq!(absent, Some(ErrorClass::NotFound), "resize what is not presented");
    port.expose_disk(&disk).await.expect("expose");
    port.resize_disk(&disk.id, 4 * MIB).await.expect("resize to the present size");
    bench.grow(&backend, 8 * MIB).await;
    let result = port.resize_disk(&disk.id, 8 * MIB).await;
    let size = find(&port.list().await.expect("list"), &disk.id).and_then(|e| e.size_bytes);
    // A host that is off sees the new size when it starts, on any bus.
    if online || result.is_ok() {
        result.unwrap_or_else(|e| panic!("{bus:?} is said to resize online: {e}"));
        assert_eq!(size, Some(8 * MIB), "{bus:?} after a resize");
    } else {
        assert_eq!(class(result), Some(ErrorClass::Unsupported), "{bus:?} is not said to resize online");
        assert_eq!(size, Some(4 * MIB), "{bus:?}: list must say what the host can read");
    }
    hide_all(bench, port.as_ref()).await;
}

async fn limits(bench: &dyn Bench, bus: Bus) {
    let port = bench.connect().await;
    let number = |iops| Limits { iops: Some(iops), ..Limits::default() };
    let (first, second) = (disk(id(50, 1), bus, Slot::HotPlug, &bench.backend(MIB).await), id(51, 1));
    let first = DiskFunction { limits: number(20_000), ..first };
    let absent = class(port.limit_disk(&first.id, &number(1000)).await);
    assert_eq!(absent, Some(ErrorClass::NotFound), "limit what is not presented");
    port.expose_disk(&first).await.expect("expose with limits");
    port.expose_disk(&disk(second.clone(), bus, Slot::HotPlug, &bench.backend(MIB).await)).await.expect("without");
    drop(port);

    // Whatever is kept is kept without the agent, and is found by the next one.
    let port = bench.connect().await;
    let held = async |port: &dyn Emulation, id: &ExposureId| {
        let listed = port.list().await.expect("list");
        find(&listed, id).unwrap_or_else(|| panic!("{id:?} is not listed: {listed:?}")).limits
    };
    assert_eq!(held(port.as_ref(), &first.id).await, number(20_000), "{bus:?}: limited from the start");
    bench.let_host_open(&first.id).await;
    let each = Limits { read_mib: Some(100), write_mib: Some(50), ..number(5000) };
    for limits in [each, each, Limits { bandwidth_mib: Some(7), ..Limits::default() }] {
        port.limit_disk(&first.id, &limits).await.unwrap_or_else(|e| panic!("{bus:?}: {limits}: {e}"));
        assert_eq!(held(port.as_ref(), &first.id).await, limits, "{bus:?}: these and no other");
    }
    // All at once is more than some can; then nothing has changed.
    let all = Limits { bandwidth_mib: Some(120), ..each };
    let kept = match port.limit_disk(&first.id, &all).await {
        Ok(()) => all,
        Err(error) => {
            assert_eq!(error.class, ErrorClass::Unsupported, "{error}");
            Limits { bandwidth_mib: Some(7), ..Limits::default() }
        }
    };
    assert_eq!(held(port.as_ref(), &first.id).await, kept);
    assert!(held(port.as_ref(), &second).await.is_empty(), "{bus:?}: another disk has none");
    port.limit_disk(&first.id, &Limits::default()).await.expect("take the limits away");
    assert!(held(port.as_ref(), &first.id).await.is_empty(), "{bus:?}: taken away");
    // What cannot be kept is presented all the same.
    hide_all(bench, port.as_ref()).await;
    let third = disk(id(52, 1), bus, Slot::HotPlug, &bench.backend(MIB).await);
    port.expose_disk(&DiskFunction { limits: all, ..third.clone() }).await.expect("expose with all limits");
    let held = held(port.as_ref(), &third.id).await;
    assert!(held == all || held.is_empty() && kept != all, "{bus:?}: {held}");
    hide_all(bench, port.as_ref()).await;
}

async fn link(port: &dyn Emulation, id: &ExposureId) -> Option<bool> {
    find(&port.list().await.expect("list"), id).and_then(|exposure| exposure.link_up)
}

fn nic(id: ExposureId, number: u32) -> NicFunction {
    let mac = format!("02:6d:70:00:00:{:02x}", 0x28 + number);
    NicFunction { id, mac, mtu: 1442, device: format!("mp-conformance{number}") }
}

/// What stands for the NIC on the DPU.
async fn device(port: &dyn Emulation, id: &ExposureId) -> String {
    let listed = port.list().await.expect("list");
    let device = find(&listed, id).and_then(|exposure| exposure.representor.clone());
    device.unwrap_or_else(|| panic!("{id:?} is presented, and no network device is told: {listed:?}"))
}

async fn nics(bench: &dyn Bench) {
    let port = bench.connect().await;
    let nic = nic(id(40, 1), 0);
    port.expose_nic(&nic).await.expect("expose a NIC");
    let told = device(port.as_ref(), &nic.id).await;
    assert_ne!(bench.has_device(&told).await, Some(false), "no device {told} when expose_nic returned");
    assert_eq!(link(port.as_ref(), &nic.id).await, Some(false), "a NIC begins with its link down");
    let absent = class(port.set_link(&id(42, 1), true).await);
    assert_eq!(absent, Some(ErrorClass::NotFound), "set the link of what is not presented");
    for up in [true, true, false, false, true] {
        port.set_link(&nic.id, up).await.unwrap_or_else(|error| panic!("set the link, up: {up}: {error}"));
        assert_eq!(link(port.as_ref(), &nic.id).await, Some(up));
    }
    port.expose_nic(&nic).await.expect("expose it again");
    drop(port);

    let port = bench.connect().await;
    let listed = port.list().await.expect("list");
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0].kind, FunctionKind::Nic);
    assert_eq!(listed[0].representor.as_deref(), Some(told.as_str()), "{listed:?}");
    assert_eq!(listed[0].link_up, Some(true), "a restart forgot that the link is up, or exposing again took it down");
    let later = NicFunction { id: id(40, 2), ..nic.clone() };
    assert_eq!(class(port.set_link(&later.id, false).await), Some(ErrorClass::NotFound), "of another epoch");
    assert_eq!(class(port.expose_nic(&later).await), Some(ErrorClass::Conflict), "another epoch of the same UID");

    port.hide(&nic.id, FunctionKind::Nic).await.expect("hide");
    gone(bench, port.as_ref(), Some(&nic.id)).await;
    let there = bench.has_device(&told).await;
    assert_ne!(there, Some(!bench.device_stays()), "the device outlives the NIC, or should have: {told}");
    port.expose_nic(&nic).await.expect("the same again");
    assert_eq!(link(port.as_ref(), &nic.id).await, Some(false), "the link of its last life");
    port.hide(&nic.id, FunctionKind::Nic).await.expect("hide");
    gone(bench, port.as_ref(), Some(&nic.id)).await;
    port.expose_nic(&later).await.expect("the next epoch");
    let too_long = NicFunction { id: id(41, 1), device: "0123456789abcdef".to_owned(), ..nic.clone() };
    if told == nic.device {
        let refused = class(port.expose_nic(&too_long).await);
        assert_eq!(refused, Some(ErrorClass::Invalid), "it makes the device itself: a name of 16 bytes");
    }
    hide_all(bench, port.as_ref()).await;
}

/// Every place for a NIC, or so many of them that a pool of others is no reason to stop.
async fn nic_places_run_out_and_come_back(bench: &dyn Bench, capabilities: &EmulationCapabilities) {
    const ENOUGH: u32 = 8;
    let port = bench.connect().await;
    let places = capabilities.nics.min(capabilities.hot_plug_ports + capabilities.switch_ports);
    if places > ENOUGH {
        return;
    }
    for number in 0..places {
        let one = nic(id(400 + number, 1), number);
        port.expose_nic(&one).await.unwrap_or_else(|error| panic!("NIC {number} of {capabilities:?}: {error}"));
    }
    let devices: BTreeSet<String> =
        port.list().await.expect("list").into_iter().filter_map(|e| e.representor).collect();
    assert_eq!(devices.len(), places as usize, "each has a device of its own: {devices:?}");
    let one_more = nic(id(400 + places, 1), places);
    assert_eq!(class(port.expose_nic(&one_more).await), Some(ErrorClass::Busy), "no place is free");
    let first = id(400, 1);
    port.hide(&first, FunctionKind::Nic).await.expect("hide");
    gone(bench, port.as_ref(), Some(&first)).await;
    port.expose_nic(&one_more).await.expect("expose into the place that became free");
    hide_all(bench, port.as_ref()).await;
}
