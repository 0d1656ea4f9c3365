//! The virtual server as a guest sees it: real boots of the tiny image. One at a time on a machine.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::redfish::SYSTEM;
use crate::support::{BOOT, Namespace, Server, missing_for_boot, missing_for_debian, one_at_a_time, skip, wait_for};
use sandbox::guest::Kind;
use serde_json::{Value, json};

const MAC: &str = "52:54:00:aa:00:01";
const SOON: Duration = Duration::from_secs(90);
const SLOT_FIRST: [&str; 2] = ["Boot0001", "Boot0003"];

/// Presents a system in the boot slot, and a seed.
fn present(server: &Server, kind: Kind) {
    crate::support::disk(kind, &server.path("disk.raw"));
    crate::support::seed(&server.path("seed.img"), "i-1", MAC, "10.99.0.2/24");
    let mut slots = server.slots();
    slots.disk("disk-boot", &server.path("disk.raw"), "boot");
    slots.seed(&server.path("seed.img"));
}

/// For a server with a disk of its own: what it holds.
fn old_system(folder: &Path) -> Value {
    crate::support::disk(Kind::Old, &folder.join("local.raw"));
    json!({ "localDisk": folder.join("local.raw") })
}

fn blank(path: &Path, mib: u64) {
    File::create(path).expect("create a disk").set_len(mib << 20).expect("size of the disk");
}

#[test]
fn a_machine_lives_through_power_cycles_and_hot_plug() {
    if let Some(reason) = missing_for_boot() {
        return skip("a_machine_lives_through_power_cycles_and_hot_plug", &reason);
    }
    let _lock = one_at_a_time();
    let mut server = Server::start("standby", |_| json!({}));
    present(&server, Kind::Tiny);
    assert_eq!(server.redfish.patch_boot(&json!({ "BootOrder": SLOT_FIRST })), 200);
    assert_eq!(server.redfish.reset("On"), 204);
    assert!(["PoweringOn", "On"].contains(&server.redfish.power().as_str()));
    server.console("MP-BOOT i-1 guest-i-1", BOOT);
    server.console("MP-BLOCK", SOON);
    assert_eq!(server.redfish.power(), "On");

    blank(&server.path("data.raw"), 64);
    let mut slots = server.slots();
    slots.disk("disk-data", &server.path("data.raw"), "hp0");
    server.console("nvme1n1=disk-data", SOON);
    server.console("nvme1n1=131072", SOON);
    assert!(slots.refused("block_resize", json!({ "node-name": "n-disk-data", "size": 128 << 20 })).contains("resize"));
    server.type_line("mp-write /dev/nvme1n1 &");
    server.console("MP-WRITE /dev/nvme1n1 count=11 errors=0", SOON);
    server.type_line("touch /run/mp-write.stop");
    server.console("errors=0", SOON);

    // Presented over a power cycle that the guest asks for with the button, then by the BMC's own.
    assert_eq!(server.redfish.reset("GracefulShutdown"), 204);
    server.wait_for_power("Off", SOON);
    assert_eq!(slots.devices("disk-"), ["disk-boot", "disk-data"]);
    assert_eq!(server.redfish.reset("On"), 204);
    server.console("boots=2", BOOT);
    server.console("nvme1n1=disk-data", SOON);

    slots.accepted("device_del", json!({ "id": "disk-data" }));
    slots.wait_for_event("DEVICE_DELETED", "disk-data");
    slots.accepted("blockdev-del", json!({ "node-name": "n-disk-data" }));
    server.console("MP-BLOCK", SOON);
    server.type_line("reboot");
    server.console("boots=3", BOOT);
    assert_eq!(server.redfish.power(), "On", "a guest's own reboot is no power-off");
    assert_eq!(server.redfish.reset("PowerCycle"), 204);
    server.console("boots=4", BOOT);
    server.console("MP-BOOT", SOON);
    server.type_line("poweroff");
    server.wait_for_power("Off", SOON);
    assert_eq!(slots.devices("disk-"), ["disk-boot"], "what was unplugged stays so");
    let kinds: Vec<String> = server.actions().into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["On", "GracefulShutdown", "On", "PowerCycle"]);
}

#[test]
fn a_nic_answers_through_its_tap_inside_the_dpu() {
    const TEST: &str = "a_nic_answers_through_its_tap_inside_the_dpu";
    if let Some(reason) = missing_for_boot() {
        return skip(TEST, &reason);
    }
    let _lock = one_at_a_time();
    let folder = tempfile::tempdir().expect("temporary folder");
    let enter = folder.path().join("enter");
    let Some(dpu) = Namespace::make(&enter) else { return skip(TEST, "no right to make a network namespace") };
    let mut server = Server::start("standby", |_| json!({ "enter": enter }));
    present(&server, Kind::Tiny);
    let mut slots = server.slots();
    slots.accepted("netdev_add", json!({ "type": "tap", "id": "net-1", "ifname": "nic0" }));
    assert!(dpu.run("ip link show dev nic0"), "the tap is made inside the DPU");
    let nic = json!({ "driver": "virtio-net-pci", "id": "nic-1", "netdev": "net-1", "mac": MAC, "bus": "hp0" });
    slots.accepted("device_add", nic);
    assert_eq!(slots.property("nic-1", "mac"), MAC);
    assert!(dpu.run("ip addr add 10.99.0.1/24 dev nic0"));
    assert_eq!(server.redfish.patch_boot(&json!({ "BootOrder": SLOT_FIRST })), 200);
    assert_eq!(server.redfish.reset("On"), 204);
    server.console("MP-ADDRESS", BOOT);
    assert_eq!(slots.property("nic-1", "netdev"), "net-1");
    wait_for("the guest answers a ping", SOON, || dpu.run("ping -c1 -W1 10.99.0.2").then_some(()));

    slots.accepted("netdev_add", json!({ "type": "tap", "id": "net-2", "ifname": "nic1" }));
    let second = json!({ "driver": "virtio-net-pci", "id": "nic-2", "netdev": "net-2", "mac": "52:54:00:aa:00:02", "bus": "hp1" });
    slots.accepted("device_add", second);
    server.console("=52:54:00:aa:00:02", SOON);
    slots.accepted("device_del", json!({ "id": "nic-2" }));
    slots.wait_for_event("DEVICE_DELETED", "nic-2");
    slots.accepted("netdev_del", json!({ "id": "net-2" }));
    assert!(!dpu.run("ip link show dev nic1"), "the tap goes with its back end");
    assert!(slots.refused("netdev_del", json!({ "id": "net-2" })).contains("not found"));
    assert_eq!(server.redfish.reset("ForceOff"), 204);
    server.wait_for_power("Off", SOON);
    assert!(dpu.run("ip link show dev nic0"), "the NIC is still presented");
}

#[test]
fn debian_configures_itself_by_cloud_init() {
    const TEST: &str = "debian_configures_itself_by_cloud_init";
    if let Some(reason) = missing_for_debian() {
        return skip(TEST, &reason);
    }
    let _lock = one_at_a_time();
    let folder = tempfile::tempdir().expect("temporary folder");
    let enter = folder.path().join("enter");
    let Some(dpu) = Namespace::make(&enter) else { return skip(TEST, "no right to make a network namespace") };
    let mut server = Server::start("standby", |_| json!({ "enter": enter, "memoryMib": 1024, "vcpus": 2 }));
    present(&server, Kind::Debian);
    let grown = 4 << 30;
    File::options().write(true).open(server.path("disk.raw")).and_then(|disk| disk.set_len(grown)).expect("grow");
    let mut slots = server.slots();
    slots.accepted("netdev_add", json!({ "type": "tap", "id": "net-1", "ifname": "nic0" }));
    let nic = json!({ "driver": "virtio-net-pci", "id": "nic-1", "netdev": "net-1", "mac": MAC, "bus": "hp0" });
    slots.accepted("device_add", nic);
    assert!(dpu.run("ip addr add 10.99.0.1/24 dev nic0"));
    assert_eq!(server.redfish.patch_boot(&json!({ "BootOrder": SLOT_FIRST })), 200);
    assert_eq!(server.redfish.reset("On"), 204);
    wait_for("the guest answers a ping", 3 * BOOT, || dpu.run("ping -c1 -W1 10.99.0.2").then_some(()));
    server.console("MP-BOOT i-1 guest-i-1", 3 * BOOT);
    server.console("root@guest-i-1", BOOT);
    server.type_line(
        "echo MP-FAILED $(systemctl --failed --plain --no-legend | wc -l) ROOT $(df --output=size -BG / | tail -1)",
    );
    server.console("MP-FAILED 0 ROOT 4G", BOOT);
    blank(&server.path("data.raw"), 64);
    slots.disk("disk-data", &server.path("data.raw"), "hp1");
    server.type_line("udevadm wait --timeout=20 /dev/nvme1n1 && echo MP-DISK $(lsblk -no SERIAL /dev/nvme1n1)");
    server.console("MP-DISK disk-data", BOOT);
    assert_eq!(server.redfish.reset("GracefulShutdown"), 204);
    server.wait_for_power("Off", BOOT);
}

#[test]
fn the_boot_order_decides_between_local_disk_and_slot() {
    if let Some(reason) = missing_for_boot() {
        return skip("the_boot_order_decides_between_local_disk_and_slot", &reason);
    }
    let _lock = one_at_a_time();
    let mut server = Server::start("local-disk", old_system);
    present(&server, Kind::Tiny);
    assert_eq!(server.redfish.get(SYSTEM)["Boot"]["BootOrder"][0], "Boot0002");
    assert_eq!(server.redfish.reset("On"), 204);
    server.console("MP-SYSTEM old", BOOT);
    server.console("MP-BOOT", SOON);
    let once = json!({ "BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "UefiBootNext", "BootNext": "Boot0001" });
    assert_eq!(server.redfish.patch_boot(&once), 200);
    assert_eq!(server.redfish.reset("ForceRestart"), 204);
    server.console("MP-SYSTEM tiny", BOOT);
    assert_eq!(server.redfish.get(SYSTEM)["Boot"]["BootSourceOverrideEnabled"], "Disabled", "once is once");
    server.console("MP-BOOT", SOON);
    server.type_line("reboot");
    server.console("MP-SYSTEM old", BOOT);
    server.console("MP-BOOT", SOON);
    assert_eq!(server.redfish.patch_boot(&json!({ "BootOrder": ["Boot0001", "Boot0002", "Boot0003"] })), 200);
    server.type_line("reboot");
    server.console("MP-SYSTEM tiny", BOOT);
}

/// OVMF's own setup, and not a host that waits for nothing.
#[test]
fn a_disk_is_listed_after_a_start_into_the_setup() {
    if let Some(reason) = missing_for_boot() {
        return skip("a_disk_is_listed_after_a_start_into_the_setup", &reason);
    }
    let _lock = one_at_a_time();
    let mut server = Server::start("edgeline", |_| json!({}));
    present(&server, Kind::Tiny);
    let lists = || {
        let options = server.redfish.get("/redfish/v1/Systems/1/BootOptions");
        options["Members"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|o| o["@odata.id"].as_str().is_some_and(|id| id.ends_with("Boot0001")))
    };
    assert!(!lists());
    let once = json!({ "BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "BiosSetup" });
    assert_eq!(server.redfish.patch_boot(&once), 200);
    assert_eq!(server.redfish.reset("On"), 204);
    wait_for("the disk is listed", BOOT, || lists().then_some(()));
    server.console("Boot Manager", BOOT);
    assert_eq!(server.redfish.reset("ForceOff"), 204);
    server.wait_for_power("Off", SOON);
    let order = ["Boot0001", "Boot0002", "Boot0004", "Boot0003"];
    assert_eq!(server.redfish.patch_boot(&json!({ "BootOrder": order })), 200);
    assert_eq!(server.redfish.reset("On"), 204);
    server.console("MP-BOOT", BOOT);
}

#[test]
fn a_forgetful_bmc_needs_its_order_again_after_each_start() {
    if let Some(reason) = missing_for_boot() {
        return skip("a_forgetful_bmc_needs_its_order_again_after_each_start", &reason);
    }
    let _lock = one_at_a_time();
    let mut server = Server::start("forgets-overrides", old_system);
    present(&server, Kind::Tiny);
    let order = || server.redfish.get(SYSTEM)["Boot"]["BootOrder"].clone();
    let factory = order();
    assert_eq!(server.redfish.patch_boot(&json!({ "BootOrder": SLOT_FIRST })), 200);
    assert_eq!(order(), json!(SLOT_FIRST));
    assert_eq!(server.redfish.reset("On"), 204);
    wait_for("the order is forgotten", BOOT, || (order() == factory).then_some(()));
    server.console("MP-SYSTEM tiny", BOOT);
    server.console("MP-BOOT", SOON);
    assert_eq!(server.redfish.patch_boot(&json!({ "BootOrder": SLOT_FIRST })), 200);
    server.type_line("reboot");
    server.console("boots=2", BOOT);
    assert_eq!(server.redfish.get(SYSTEM)["Boot"]["BootOrder"], factory, "a guest's reboot is a start too");
    server.console("MP-BOOT", SOON);
    server.type_line("reboot");
    server.console("MP-SYSTEM old", BOOT);
}

/// Whether any process has the file open.
fn is_open(file: &Path) -> bool {
    let processes = fs::read_dir("/proc").expect("list processes").flatten();
    let open = processes.filter_map(|process| fs::read_dir(process.path().join("fd")).ok()).flatten().flatten();
    open.filter_map(|link| fs::read_link(link.path()).ok()).any(|target| target == file)
}

#[test]
fn a_host_does_not_outlive_what_its_dpu_presented() {
    if let Some(reason) = missing_for_boot() {
        return skip("a_host_does_not_outlive_what_its_dpu_presented", &reason);
    }
    let _lock = one_at_a_time();
    let mut server = Server::start("standby", |_| json!({}));
    present(&server, Kind::Tiny);
    assert_eq!(server.redfish.patch_boot(&json!({ "BootOrder": SLOT_FIRST })), 200);
    assert_eq!(server.redfish.reset("On"), 204);
    server.console("MP-BOOT", BOOT);
    assert!(is_open(&server.path("disk.raw")), "the host has its disk");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(sandbox::server::faults::tell_dpu_lost(server.folder.path())).expect("told");
    assert!(!is_open(&server.path("disk.raw")), "the host still has its disk");
    assert_eq!(server.redfish.power(), "On", "its own power is not the DPU's");
    assert!(server.slots().devices("disk-").is_empty(), "the DPU presents nothing any more");
    server.slots().disk("disk-again", &server.path("disk.raw"), "boot");
    assert_eq!(server.redfish.reset("ForceRestart"), 204);
    server.console("MP-ROOT", BOOT);
    runtime.block_on(sandbox::server::faults::tell_dpu_lost(server.folder.path())).expect("told");
    assert_eq!(server.redfish.reset("ForceOff"), 204);
    server.wait_for_power("Off", SOON);
}

/// Stands for the supervisor: says yes and remembers what it was asked.
fn supervisor(socket: &Path) -> Arc<Mutex<Vec<String>>> {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let listener = UnixListener::bind(socket).expect("listen as the supervisor");
    let memory = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).expect("a request");
            let request: Value = serde_json::from_str(&line).expect("a line of JSON");
            memory.lock().expect("no panic").push(request["state"].as_str().unwrap_or_default().to_owned());
            stream.write_all(b"{\"ok\":true}\n").expect("answer");
        }
    });
    asked
}

#[test]
fn a_dpu_that_shares_power_forgets_and_fills_its_slots_again() {
    if let Some(reason) = missing_for_boot() {
        return skip("a_dpu_that_shares_power_forgets_and_fills_its_slots_again", &reason);
    }
    let _lock = one_at_a_time();
    let folder = tempfile::tempdir().expect("temporary folder");
    let socket = folder.path().join("control.sock");
    let asked = supervisor(&socket);
    let asked = || asked.lock().expect("no panic").clone();
    let mut server =
        Server::start("shared-power", |_| json!({ "dpu": { "supervisorSocket": socket, "name": "dpu-1" } }));
    assert_eq!(server.redfish.reset("On"), 204);
    server.wait_for_power("On", BOOT);
    wait_for("the DPU is given power", SOON, || (asked() == ["on"]).then_some(()));
    // The host is on and has found nothing: what is presented now counts from the warm reset on, and is listed after it.
    present(&server, Kind::Tiny);
    let first = json!({ "BootOrder": SLOT_FIRST });
    assert_eq!(server.redfish.patch_boot(&first), 400, "the firmware has not seen the disk");
    let once = json!({ "BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "BiosSetup" });
    assert_eq!(server.redfish.patch_boot(&once), 200);
    assert_eq!(server.redfish.reset("ForceRestart"), 204);
    wait_for("the disk is listed", BOOT, || (server.redfish.patch_boot(&first) == 200).then_some(()));
    server.console("Boot Manager", BOOT);
    assert_eq!(server.redfish.reset("ForceRestart"), 204);
    server.console("MP-BOOT i-1", BOOT);
    assert_eq!(asked(), ["on"], "a warm reset does not touch the DPU");
    assert_eq!(server.redfish.reset("GracefulRestart"), 204);
    server.console("boots=2", BOOT);
    server.console("MP-BOOT i-1", SOON);
    assert_eq!(asked(), ["on"], "nor does a graceful restart");
    server.type_line("poweroff");
    server.wait_for_power("Off", SOON);
    assert_eq!(asked(), ["on", "off"]);
    assert!(server.slots().devices("disk-").is_empty(), "the slots are empty");
    assert!(fs::metadata(server.path("disk.raw")).is_ok(), "the disk itself is not");
}
