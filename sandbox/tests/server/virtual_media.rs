//! The virtual CD drive: as each kind of BMC has it, what it refuses, and that a host boots from it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::conforms::Bench;
use crate::support::redfish::Answer;
use crate::support::{BOOT, Server, images, missing_for_boot, one_at_a_time, skip};
use ports::conformance::bmc;
use sandbox::guest::{self, Kind};
use sandbox::preflight;
use serde_json::{Value, json};

const DRIVE: &str = "/redfish/v1/Systems/1/VirtualMedia/Cd";
const INSERT: &str = "VirtualMedia.InsertMedia";
const EJECT: &str = "VirtualMedia.EjectMedia";
const SOON: Duration = Duration::from_secs(90);

fn act(server: &Server, action: &str, parameters: &Value) -> Answer {
    let path = format!("{DRIVE}/Actions/{action}");
    server.redfish.authorized("POST", &path, &parameters.to_string()).expect("an answer")
}

fn refused(answer: &Answer) -> (u16, &str) {
    let id = answer.body["error"]["code"].as_str().unwrap_or_default();
    (answer.status, id.rsplit('.').next().unwrap_or_default())
}

/// A server, and where its images are.
fn standby() -> (Server, String) {
    let server = Server::start("standby", |folder| {
        fs::write(folder.join("a.iso"), "CD001").expect("write an image");
        json!({})
    });
    let at = format!("127.0.0.1:{}", images::serve(server.folder.path()));
    (server, at)
}

#[test]
fn a_medium_is_inserted_once_and_ejected() {
    let (server, at) = standby();
    let shown = || {
        let drive = server.redfish.get(DRIVE);
        (drive["Inserted"].clone(), drive["Image"].clone(), drive["ConnectedVia"].clone())
    };
    let empty = (json!(false), Value::Null, json!("NotConnected"));
    assert_eq!(shown(), empty);
    let image = format!("http://{at}/a.iso");
    let full = json!({ "Image": image, "Inserted": true, "WriteProtected": true, "TransferProtocolType": "HTTP" });
    assert_eq!(act(&server, INSERT, &full).status, 204);
    assert_eq!(shown(), (json!(true), json!(image), json!("URI")));
    assert_eq!(server.redfish.get(DRIVE)["ImageName"], "a.iso");
    assert_eq!(fs::read_to_string(server.path("virtual-cd.iso")).expect("the BMC's copy"), "CD001");
    assert_eq!(refused(&act(&server, INSERT, &full)), (409, "ResourceInUse"));
    assert_eq!(shown(), (json!(true), json!(image), json!("URI")), "a refused change changed something");
    for _ in 0..2 {
        assert_eq!(act(&server, EJECT, &json!({})).status, 204);
        assert_eq!(shown(), empty);
    }
    assert!(!server.path("virtual-cd.iso").exists(), "the BMC deletes its copy");
    assert_eq!(act(&server, INSERT, &json!({ "Image": image })).status, 204, "the rest is optional");
}

#[test]
fn what_cannot_be_read_is_not_inserted_and_no_secret_is_repeated() {
    let (server, at) = standby();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let nobody = nobody.expect("a free port");
    for (parameters, expected) in [
        (json!({}), "ActionParameterMissing"),
        (json!({ "Image": "ann:hunter2@nas/a.iso" }), "ActionParameterValueFormatError"),
        (json!({ "Image": format!("nfs://ann:hunter2@{at}/a.iso") }), "ActionParameterValueFormatError"),
        (json!({ "Image": format!("http://{at}/a.iso"), "Speed": 52 }), "ActionParameterUnknown"),
        (json!({ "Image": format!("http://{at}/a.iso"), "Inserted": false }), "ActionParameterValueNotInList"),
        (json!({ "Image": format!("http://{at}/a.iso"), "TransferMethod": "Stream" }), "ActionParameterValueNotInList"),
        (json!({ "Image": format!("http://ann:hunter2@{nobody}/a.iso?hunter2") }), "CouldNotEstablishConnection"),
        (json!({ "Image": format!("http://ann:hunter2@{at}/b.iso?hunter2") }), "ResourceMissingAtURI"),
        (json!({ "Image": format!("http://ann:hunter3@{at}/secret.iso") }), "ResourceAtUriUnauthorized"),
    ] {
        let answer = act(&server, INSERT, &parameters);
        assert_eq!(refused(&answer), (400, expected), "{parameters}: {}", answer.body);
        let said = answer.body.to_string();
        assert!(!said.contains("hunter") && !said.contains("ann"), "{parameters}: {said}");
        assert_eq!(server.redfish.get(DRIVE)["Inserted"], false, "{parameters}");
    }
    let image = format!("http://ann:hunter2@{at}/secret.iso?sig=hunter2");
    assert_eq!(act(&server, INSERT, &json!({ "Image": image })).status, 204);
    assert_eq!(server.redfish.get(DRIVE)["Image"], format!("http://{at}/secret.iso"));
    assert_eq!(act(&server, EJECT, &json!({})).status, 204);
    let account = json!({ "Image": format!("http://{at}/secret.iso"), "UserName": "ann", "Password": "hunter2" });
    assert_eq!(act(&server, INSERT, &account).status, 204);
    let log = fs::read_to_string(server.path("server.log")).expect("the server's log");
    assert!(log.contains("secret.iso") && !log.contains("hunter"), "{log}");
}

/// Below the system and below the manager, by actions, by actions of which one is shown, by PATCH, and not at all.
#[tokio::test]
async fn the_drives_of_vendors_conform() {
    for (personality, drive) in [
        ("dell", Some("Systems/1/VirtualMedia/1")),
        ("hpe", Some("Managers/1/VirtualMedia/2")),
        ("lenovo", Some("Systems/1/VirtualMedia/EXT1")),
        ("supermicro", Some("Managers/1/VirtualMedia/VirtualMedia1")),
        ("gb200", Some("Managers/1/VirtualMedia/USB1")),
        ("dgx", None),
        ("openbmc", None),
    ] {
        let bench = Bench::start(personality, |_| json!({}));
        let redfish = &bench.server.redfish;
        let shown = drive.map(|drive| redfish.get(&format!("/redfish/v1/{drive}"))["Inserted"].clone());
        assert_eq!(shown, drive.map(|_| json!(false)), "{personality}");
        bmc::virtual_media(&bench).await;
    }
}

/// A CD with the tiny system, which finds its root on the old system's disk.
fn cd(to: &Path) -> Result<(), String> {
    let absent = |error: anyhow::Error| format!("{error:#}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (xorriso, environment) = runtime.block_on(preflight::unpacked("xorriso", "xorriso")).map_err(absent)?;
    let files = guest::boot_files(&sandbox::args::cache_folder()).expect("the tiny guest");
    let program = to.with_extension("efi");
    guest::unified_installer(&files, &program).expect("a unified image");
    let (mark, length) = (proto::argument_area::MARK.as_bytes(), proto::argument_area::LENGTH);
    let arguments = "console=ttyS0 loglevel=4 panic=10 mp.system=cd mp.root=mp-old";
    let mut bytes = fs::read(&program).expect("the unified image");
    let at = bytes.windows(mark.len()).position(|window| window == mark).expect("a place for arguments");
    bytes[at..at + length].copy_from_slice(format!("{arguments:length$}").as_bytes());
    fs::write(&program, bytes).expect("written");
    guest::installer_iso(&program, to, (&xorriso, &environment)).map_err(absent)
}

/// Bytes that the host has read of what is in the drive.
fn read_of(server: &Server, device: &str) -> u64 {
    let told = server.slots().accepted("query-blockstats", json!({}));
    let drive = told.as_array().into_iter().flatten().find(|drive| drive["qdev"] == device);
    drive.and_then(|drive| drive["stats"]["rd_bytes"].as_u64()).unwrap_or_default()
}

#[test]
fn a_host_boots_from_the_virtual_drive_once() {
    const TEST: &str = "a_host_boots_from_the_virtual_drive_once";
    if let Some(reason) = missing_for_boot() {
        return skip(TEST, &reason);
    }
    let _lock = one_at_a_time();
    let folder = tempfile::tempdir().expect("temporary folder");
    let image = folder.path().join("tiny.iso");
    if let Err(reason) = cd(&image) {
        return skip(TEST, &reason);
    }
    let port = images::serve(folder.path());
    let mut server = Server::start("bare", |folder| {
        crate::support::disk(Kind::Old, &folder.join("local.raw"));
        json!({ "localDisk": folder.join("local.raw") })
    });
    let insert = json!({ "Image": format!("http://127.0.0.1:{port}/tiny.iso") });
    let once = json!({ "BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Cd" });
    assert_eq!(act(&server, INSERT, &insert).status, 204);
    assert_eq!(server.redfish.patch_boot(&once), 200);
    assert_eq!(server.redfish.reset("On"), 204);
    server.console("MP-SYSTEM cd", BOOT);
    server.console("MP-BOOT", SOON);
    let length = fs::metadata(folder.path().join("tiny.efi")).expect("the program").len();
    let read = read_of(&server, "cd-1");
    assert!(read >= length, "the firmware has read {read} of {length} bytes of its program");

    // The medium is still there: what has ended is the override.
    server.type_line("reboot");
    server.console("MP-SYSTEM old", BOOT);
    server.console("MP-BOOT", SOON);
    assert!(read_of(&server, "cd-1") < read + (1 << 20), "a start from the disk reads no program from the CD");

    // Changed while the host runs.
    assert_eq!(act(&server, EJECT, &json!({})).status, 204);
    assert_eq!(act(&server, INSERT, &insert).status, 204);
    assert_eq!(server.redfish.patch_boot(&once), 200);
    assert_eq!(server.redfish.reset("ForceRestart"), 204);
    server.console("MP-SYSTEM cd", BOOT);
    assert!(read_of(&server, "cd-2") >= length, "the firmware has read its program again");
    assert_eq!(act(&server, EJECT, &json!({})).status, 204);
    assert_eq!(server.redfish.get(DRIVE)["Inserted"], false);
    assert_eq!(server.slots().devices("cd-"), [""; 0], "the drive has left the host");
}
