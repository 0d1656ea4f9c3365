//! The virtual server without a boot: its BMC's manners, its faults, and the slots socket while the host is off.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::support::redfish::SYSTEM;
use crate::support::{Redfish, Server, skip};
use serde_json::{Value, json};

const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";

fn standby() -> Server {
    Server::start("standby", |_| json!({}))
}

#[test]
fn strangers_see_the_root_and_nothing_else() {
    let server = standby();
    let status = |path: &str| server.redfish.send("GET", path, &[], "").expect("an answer").status;
    assert_eq!(status("/redfish/v1/"), 200);
    assert_eq!(status("/redfish/v1/$metadata"), 200);
    assert_eq!(status(SYSTEM), 401);
    let wrong = server.redfish.send("GET", SYSTEM, &[("Authorization", "Basic YWRtaW46d3Jvbmc=")], "");
    assert_eq!(wrong.expect("an answer").status, 401);
}

#[test]
fn a_session_lasts_until_its_log_out() {
    let server = standby();
    let credentials = json!({ "UserName": "admin", "Password": "s3cret" }).to_string();
    let created = server.redfish.send("POST", SESSIONS, &[], &credentials).expect("an answer");
    assert_eq!(created.status, 201);
    let token = created.header("x-auth-token").expect("a token").to_owned();
    let place = created.header("location").expect("a location").to_owned();
    let with_token = |method: &str, path: &str| {
        server.redfish.send(method, path, &[("X-Auth-Token", &token)], "").expect("an answer").status
    };
    assert_eq!(with_token("GET", SYSTEM), 200);
    assert_eq!(with_token("DELETE", &place), 204);
    assert_eq!(with_token("GET", SYSTEM), 401);
    let wrong = json!({ "UserName": "admin", "Password": "guess" }).to_string();
    assert_eq!(server.redfish.send("POST", SESSIONS, &[], &wrong).expect("an answer").status, 401);
}

/// The one of the DPU in the server, which is there to be entered while it is on.
#[test]
fn the_dpus_own_bmc_tells_its_power_and_takes_no_orders() {
    const BLUEFIELD: &str = "/redfish/v1/Systems/Bluefield";
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = free.expect("a free port").to_string();
    let server = Server::start("standby", |folder| {
        let (enter, flag) = (folder.join("enter"), folder.join("dpu-is-on"));
        std::fs::write(&enter, format!("#!/bin/sh\n[ -e {} ] && exec \"$@\"\n", flag.display())).expect("write");
        std::fs::set_permissions(&enter, std::fs::Permissions::from_mode(0o755)).expect("make it a program");
        let dpu = json!({ "supervisorSocket": folder.join("none.sock"), "name": "dpu-t", "bmc": address });
        json!({ "enter": enter, "dpu": dpu })
    });
    let dpu = Redfish::new(&format!("https://{address}"), &server.path("bmc-certificate.pem"));
    assert_eq!(dpu.send("GET", BLUEFIELD, &[], "").expect("an answer").status, 401);
    assert_eq!(dpu.get(BLUEFIELD)["PowerState"], "Off");
    File::create(server.path("dpu-is-on")).expect("the DPU goes on");
    assert_eq!(dpu.get(BLUEFIELD)["PowerState"], "On");
    assert_eq!(dpu.get("/redfish/v1/Systems")["Members"], json!([{ "@odata.id": BLUEFIELD }]));
    let on = json!({ "ResetType": "On" }).to_string();
    for system in ["Bluefield", "1"] {
        let path = format!("/redfish/v1/Systems/{system}/Actions/ComputerSystem.Reset");
        assert_eq!(dpu.authorized("POST", &path, &on).expect("an answer").status, 404, "{path}");
    }
    assert_eq!(dpu.authorized("PATCH", SYSTEM, "{}").expect("an answer").status, 404);
}

#[test]
fn a_new_password_counts_at_once() {
    let server = standby();
    std::fs::write(server.path("password"), "changed").expect("write the password");
    assert_eq!(server.redfish.authorized("GET", SYSTEM, "").expect("an answer").status, 401);
}

#[test]
fn the_boot_order_is_read_back_and_kept() {
    let server = standby();
    assert_eq!(server.redfish.get(SYSTEM)["Boot"]["BootOrder"], json!(["Boot0003", "Boot0001"]));
    assert_eq!(server.redfish.patch_boot(&json!({ "BootOrder": ["Boot0001", "Boot0003"] })), 200);
    assert_eq!(server.redfish.get(SYSTEM)["Boot"]["BootOrder"], json!(["Boot0001", "Boot0003"]));
    let kept = std::fs::read_to_string(server.path("boot-settings.json")).expect("the settings' file");
    assert!(kept.find("Boot0001") < kept.find("Boot0003"), "{kept}");
    for wrong in [json!(["Boot0002"]), json!(["Boot0001", "Boot0001"]), json!([]), json!("Boot0001")] {
        assert_eq!(server.redfish.patch_boot(&json!({ "BootOrder": wrong })), 400, "{wrong}");
    }
    let option = server.redfish.get("/redfish/v1/Systems/1/BootOptions/Boot0001");
    assert!(
        option["UefiDevicePath"].as_str().expect("a path").starts_with("PciRoot(0x0)/Pci(0x2,0x0)/Pci(0x0,0x0)/NVMe")
    );
}

#[test]
fn an_override_must_lead_somewhere() {
    let server = standby();
    let path = server.redfish.get("/redfish/v1/Systems/1/BootOptions/Boot0001")["UefiDevicePath"].clone();
    let set = |path: &Value| {
        let target = json!({ "BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "UefiTarget",
            "UefiTargetBootSourceOverride": path });
        server.redfish.patch_boot(&target)
    };
    assert_eq!(set(&json!("PciRoot(0x7)")), 400);
    assert_eq!(set(&path), 200);
    let boot = server.redfish.get(SYSTEM)["Boot"].clone();
    assert_eq!(
        (&boot["BootSourceOverrideEnabled"], &boot["BootSourceOverrideTarget"]),
        (&json!("Once"), &json!("UefiTarget"))
    );
}

#[test]
fn a_change_of_an_old_version_is_refused() {
    let server = standby();
    let read = server.redfish.authorized("GET", SYSTEM, "").expect("an answer");
    let etag = read.header("etag").expect("an entity tag").to_owned();
    let credentials = ("Authorization", "Basic YWRtaW46czNjcmV0");
    let body = json!({ "Boot": { "BootOrder": ["Boot0001"] } }).to_string();
    let patch =
        || server.redfish.send("PATCH", SYSTEM, &[credentials, ("If-Match", &etag)], &body).expect("an answer").status;
    assert_eq!(patch(), 200);
    assert_eq!(patch(), 412);
}

#[test]
fn what_cannot_be_done_is_an_error_with_a_reason() {
    let server = standby();
    assert_eq!(server.redfish.reset("Nmi"), 400);
    assert_eq!(server.redfish.reset("ForceRestart"), 409, "the host is off");
    let answer = server.redfish.authorized("PATCH", SYSTEM, r#"{"SerialNumber":"x"}"#).expect("an answer");
    assert_eq!(answer.status, 400);
    let message = &answer.body["error"]["@Message.ExtendedInfo"][0]["MessageId"];
    assert!(message.as_str().expect("a message").ends_with("PropertyNotWritable"), "{message}");
    assert_eq!(server.redfish.authorized("GET", "/redfish/v1/Systems/2", "").expect("an answer").status, 404);
    let wrong = server.redfish.authorized("DELETE", SYSTEM, "").expect("an answer");
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("GET, HEAD, PATCH")));
    assert_eq!(server.actions(), [("Nmi".to_owned(), 400), ("ForceRestart".to_owned(), 409)]);
}

#[test]
fn faults_happen_as_often_as_asked() {
    let server = standby();
    let status = || server.redfish.authorized("GET", SYSTEM, "").expect("an answer").status;
    server.faults(&json!({ "status_401": 1, "status_503": 1 }));
    assert_eq!([status(), status(), status()], [503, 401, 200]);
    server.faults(&json!({ "down": true }));
    assert!(server.redfish.authorized("GET", SYSTEM, "").is_none(), "nobody answers");
    server.faults(&json!({ "refused_change": 1 }));
    let first = json!({ "Boot": { "BootOrder": ["Boot0001", "Boot0003"] } });
    let change = || server.redfish.authorized("PATCH", SYSTEM, &first.to_string()).expect("an answer").status;
    assert_eq!([status(), change(), change()], [200, 503, 200]);
    server.faults(&json!({ "lost_answer": 1 }));
    let body = json!({ "Boot": { "BootOrder": ["Boot0001"] } }).to_string();
    assert!(server.redfish.authorized("PATCH", SYSTEM, &body).is_none(), "the answer is lost");
    assert_eq!(server.redfish.get(SYSTEM)["Boot"]["BootOrder"], json!(["Boot0001"]), "but it was done");
    server.faults(&json!({ "wrong_state": "On" }));
    assert_eq!(server.redfish.power(), "On");
    server.faults(&json!({}));
    assert_eq!(server.redfish.power(), "Off");
}

#[test]
fn slots_take_devices_while_the_host_is_off() {
    let server = standby();
    let file = server.path("disk.raw");
    File::create(&file).expect("create a disk").set_len(1 << 20).expect("size of the disk");
    let mut slots = server.slots();
    let mut other = server.slots();
    slots.disk("disk-1", &file, "hp0");
    assert_eq!(other.devices("disk-"), ["disk-1"], "every connection sees it");
    assert_eq!(other.property("disk-1", "serial"), "disk-1");
    assert_eq!(other.accepted("query-status", json!({}))["running"], false);
    assert!(other.refused("quit", json!({})).contains("has not been found"));
    assert!(other.refused("device_del", json!({ "id": "nope" })).contains("Device 'nope' not found"));
    drop(slots);
    other.accepted("device_del", json!({ "id": "disk-1" }));
    other.wait_for_event("DEVICE_DELETED", "disk-1");
    other.accepted("blockdev-del", json!({ "node-name": "n-disk-1" }));
    assert!(other.devices("disk-").is_empty());
}

#[test]
fn a_personality_that_lacks_what_it_needs_is_refused() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("config.json");
    let config = json!({ "name": "s", "serialNumber": "1", "personality": "local-disk",
        "bmc": { "listen": "127.0.0.1:0", "username": "a", "passwordFile": "/nowhere" },
        "slotsSocket": folder.path().join("slots.sock"), "stateFolder": folder.path() });
    std::fs::write(&path, config.to_string()).expect("write the description");
    let program = env!("CARGO_BIN_EXE_sandbox");
    let output = Command::new(program).args(["virtual-server", "--config"]).arg(&path).output();
    let output = output.expect("start the server");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("`localDisk` must be given"));
}

#[test]
fn a_file_grows_with_its_node_and_never_shrinks() {
    let server = standby();
    let file = server.path("disk.raw");
    File::create(&file).expect("create a disk").set_len(1 << 20).expect("size of the disk");
    let mut slots = server.slots();
    slots.disk("disk-1", &file, "hp0");
    let resize = |size: u64| json!({ "node-name": "n-disk-1", "size": size });
    slots.accepted("block_resize", resize(2 << 20));
    assert_eq!(slots.accepted("query-named-block-nodes", json!({}))[0]["image"]["virtual-size"], 2 << 20);
    assert!(slots.refused("block_resize", resize(1 << 20)).contains("lose data"));
    let counted = slots.accepted("query-blockstats", json!({}));
    assert_eq!((&counted[0]["node-name"], &counted[0]["stats"]["rd_operations"]), (&json!("n-disk-1"), &json!(0)));
    assert_eq!(std::fs::metadata(&file).expect("the disk").len(), 2 << 20);
    let missing = json!({ "driver": "raw", "node-name": "x", "file": { "driver": "file", "filename": "/nowhere" } });
    assert!(slots.refused("blockdev-add", missing).contains("Could not open '/nowhere': No such file or directory"));
}

/// The DPU has mounts of its own: what it presents may be in a folder that nobody else sees.
#[test]
fn files_are_looked_at_where_the_dpu_is() {
    const TEST: &str = "files_are_looked_at_where_the_dpu_is";
    let own_mounts = Command::new("unshare").args(["-m", "true"]).stderr(Stdio::null()).status();
    if !own_mounts.is_ok_and(|status| status.success()) {
        return skip(TEST, "no right to make a mount namespace");
    }
    let server = Server::start("standby", |folder| {
        let (inside, hidden, enter) = (folder.join("inside"), folder.join("hidden"), folder.join("enter"));
        std::fs::create_dir(&inside).and_then(|()| std::fs::create_dir(&hidden)).expect("make folders");
        File::create(hidden.join("seed.img")).expect("create a disk").set_len(4096).expect("size of the disk");
        let mount = format!("mount --bind {} {}", hidden.display(), inside.display());
        let script = format!("#!/bin/sh\nexec unshare -m sh -c '{mount} && exec \"$@\"' sh \"$@\"\n");
        std::fs::write(&enter, script).expect("write the script");
        std::fs::set_permissions(&enter, std::fs::Permissions::from_mode(0o755)).expect("make the script a program");
        json!({ "enter": enter })
    });
    let seed = server.path("inside/seed.img");
    assert!(!seed.exists());
    let mut slots = server.slots();
    slots.seed(&seed);
    assert_eq!(slots.accepted("query-named-block-nodes", json!({}))[0]["image"]["virtual-size"], 4096);
}
