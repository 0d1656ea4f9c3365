//! A whole server (QEMU, emulated) with an empty disk and one NIC, by every way in: its firmware asks the network first, boots what the boot
//! service gives it, and gets its Workflow by gRPC. The Workflow writes an image to its disk and restarts it; then its firmware asks the
//! network again, and the system on the disk comes up.
//!
//! | module | what it is |
//! |---|---|
//! | [`server`] | the machine |
//! | [`replicas`] | the boot service |
//! | [`site`] | what it is installed from: images, programs, the Workflow |
//! | [`trouble`] | what befalls it in the middle |
//!
//! A way in that nothing else of these tests goes takes a minute: three of them run always, the others by the judge `pxe-boot`.

mod replicas;
mod server;
mod site;
mod trouble;

use super::networks::{DHCRELAY, DNSMASQ};
use super::site::{self as wire, ApiServer, Running, US};
use super::{INVENTORY, MAC, RELAYED, prepare};
use proto::tink::action_status_request::StateType;
use proto::tink::workflow_service_client::WorkflowServiceClient;
use proto::tink::{ActionRequest, ActionStatusRequest};
use replicas::Replicas;
use sandbox::preflight;
use server::{Cable, Firmware, Server};
use site::Folder;
use std::io::{Cursor, Read};
use std::os::unix::fs::FileExt;
use std::time::Duration;
use tonic::Code;
use trouble::Trouble;

/// It takes a minute; the limit is for a busy machine.
const LIMIT: Duration = Duration::from_secs(400);
const LONG: &str = "LONG_TESTS";

/// One way in.
struct Way {
    firmware: Firmware,
    cable: Cable,
    /// Whether another DHCP server gives addresses.
    beside_dnsmasq: bool,
    /// Of the boot service, beside what every way has.
    arguments: &'static [&'static str],
    /// Two, of which one ends while the server that it serves is installed.
    replicas: bool,
    trouble: Trouble,
    /// In the log of the boot service: what the firmware is given first.
    first: &'static str,
    /// Whether iPXE runs a script in between.
    script: bool,
    /// In that log, after the installation: why the server boots its disk.
    then: &'static str,
}

impl Way {
    fn has_session(&self) -> bool {
        !self.arguments.contains(&"--agents=bearer")
    }
}

const PXE: Way = Way {
    firmware: Firmware::UefiPxe,
    cable: Cable::Direct,
    beside_dnsmasq: false,
    arguments: &[],
    replicas: false,
    trouble: Trouble::None,
    first: "ipxe.efi",
    script: true,
    then: "netboot-not-allowed",
};

#[tokio::test]
async fn a_server_installs_itself_from_the_network() {
    Box::pin(install("netboot::a_server_installs_itself_from_the_network", &Way { replicas: true, ..PXE })).await;
}

#[tokio::test]
async fn by_uefi_http() {
    let first = "http://10.88.0.1:7080/ipxe/binary/52:54:00:88:00:01/ipxe.efi";
    let way = Way { firmware: Firmware::UefiHttp, first, trouble: Trouble::Deleted, ..PXE };
    Box::pin(install("netboot::by_uefi_http", &way)).await;
}

#[tokio::test]
async fn by_the_bios_rom_of_ipxe() {
    let (firmware, first, then) = (Firmware::Bios, "/ipxe/script/", "/ipxe/script/");
    // As agents are known that others wrote.
    let arguments = &["--agents=bearer"];
    let way = Way { firmware, first, then, arguments, trouble: Trouble::PowerLost, ..PXE };
    Box::pin(install("netboot::by_the_bios_rom_of_ipxe", &way)).await;
}

#[tokio::test]
async fn by_a_unified_image_without_ipxe() {
    let arguments = &["--architecture=7=installer.efi"];
    long("netboot::by_a_unified_image_without_ipxe", &Way { arguments, first: "installer.efi", script: false, ..PXE })
        .await;
}

#[tokio::test]
async fn by_a_cd_over_http() {
    let (firmware, first, then) = (Firmware::UefiCd("installer.iso"), "/iso/", "boots from its own disk");
    long("netboot::by_a_cd_over_http", &Way { firmware, first, script: false, then, ..PXE }).await;
}

/// Whose image the boot service fetches by parts: from its own files, as from another server's.
#[tokio::test]
async fn by_a_cd_of_another_server() {
    let (firmware, first, then) = (Firmware::UefiCd("hook.iso"), "/hook.iso", "boots from its own disk");
    let arguments = &["--iso-url=http://10.88.0.1:7080/osie/52:54:00:88:00:01/installer.iso"];
    long("netboot::by_a_cd_of_another_server", &Way { firmware, first, script: false, then, arguments, ..PXE }).await;
}

#[tokio::test]
async fn behind_a_relay() {
    long("netboot::behind_a_relay", &Way { cable: Cable::Relayed, ..PXE }).await;
}

#[tokio::test]
async fn by_a_proxy_beside_dnsmasq() {
    let first = "proxy OFFER";
    long(
        "netboot::by_a_proxy_beside_dnsmasq",
        &Way { beside_dnsmasq: true, arguments: &["--dhcp=Proxy"], first, ..PXE },
    )
    .await;
}

async fn long(test: &str, way: &Way) {
    if std::env::var_os(LONG).is_none() {
        return eprintln!("SKIP {test}: it takes a minute: `make judges JUDGE=pxe-boot` runs it ({LONG}=1)");
    }
    Box::pin(install(test, way)).await;
}

async fn install(test: &str, way: &Way) {
    if wire::clients().is_none() {
        let outcome = match site::parts(way).await {
            Ok(folder) => wire::run_inside(test, &[(site::FOLDER, folder.path())]),
            Err(reason) => Err(reason),
        };
        if let Err(reason) = outcome {
            eprintln!("SKIP {test}: {reason}");
        }
        return;
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    let api = match ApiServer::start().await {
        Ok(api) => api,
        Err(reason) => {
            eprintln!("SKIP {test}: {reason}");
            return;
        }
    };
    let folder = Folder::given();
    prepare(&api).await;
    let _neighbour = neighbour(way, &folder).await;
    let boot = Replicas::start(way, &api, &folder).await;
    folder.serve_images();
    let server = match way.cable {
        Cable::Direct => ("s1", MAC),
        Cable::Relayed => ("s3", RELAYED),
    };
    let workflows = site::workflow(&api, &folder, server, way.has_session()).await;
    guessed().await;
    let machine = Server { firmware: way.firmware, cable: way.cable, mac: server.1 };
    machine.is_cabled().await;
    let mut running = Some(machine.start(&folder));
    tokio::select! {
        () = follow(way, &folder, &boot, &workflows) => {}
        () = boot.end_one_of_two() => {}
        () = trouble::comes(way, (&api, &folder), (&machine, &mut running), &workflows) => {}
    }
    trouble::is_over(way.trouble, &workflows, &boot.said()).await;
    assert_eq!(boot.ended(), usize::from(way.replicas));
    if way.has_session() {
        seeded(&folder, server.0);
    }
}

/// As cloud-init finds it: a partition labelled CIDATA, with what the Hardware says of its server.
fn seeded(folder: &Folder, hardware: &str) {
    let disk = std::fs::File::open(folder.file("disk.raw")).expect("the server's disk");
    let size = disk.metadata().expect("its size").len();
    // What is there under that name is found, and nothing is written.
    let place = imaging::gpt::partition::at_the_end(&disk, (size, 512), "cidata", imaging::nocloud::BYTES, [0; 16]);
    let place = place.expect("a partition");
    let mut part = vec![0; usize::try_from(place.length).expect("small")];
    disk.read_exact_at(&mut part, place.offset).expect("read");
    let volume = fatfs::FileSystem::new(Cursor::new(part), fatfs::FsOptions::new()).expect("a FAT volume");
    assert_eq!(volume.volume_label().trim_end(), "CIDATA");
    let mut told = String::new();
    volume.root_dir().open_file("user-data").expect("there").read_to_string(&mut told).expect("read");
    assert_eq!(told, format!("#cloud-config of {hardware}\n"));
}

/// A relay, or another DHCP server.
async fn neighbour(way: &Way, folder: &Folder) -> Option<Running> {
    let log = folder.file("neighbour.log");
    let found = |found: anyhow::Result<_>| found.expect("it was found before");
    match (way.cable, way.beside_dnsmasq) {
        (Cable::Relayed, _) => Some(wire::relay(&found(preflight::unpacked(DHCRELAY.0, DHCRELAY.1).await), &log)),
        (_, true) => Some(wire::dnsmasq(&found(preflight::unpacked(DNSMASQ.0, DNSMASQ.1).await), &log).await),
        _ => None,
    }
}

/// Who knows the server's MAC address alone gets nothing of its Workflow, and changes nothing.
async fn guessed() {
    let mut agent = WorkflowServiceClient::connect(format!("http://{US}:42113")).await.expect("connected");
    for id in [MAC.to_owned(), format!("{MAC}.ffffffff.{}", "0".repeat(64))] {
        let request = ActionRequest { agent_id: Some(id.clone()), agent_attributes: None };
        let refused = agent.get_action(request).await.expect_err("nothing is served");
        assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
        let report = ActionStatusRequest {
            workflow_id: Some(format!("{INVENTORY}/install")),
            agent_id: Some(id),
            action_id: Some("a".to_owned()),
            action_state: Some(StateType::Failed as i32),
            ..ActionStatusRequest::default()
        };
        let refused = agent.report_action_status(report).await.expect_err("nothing is taken");
        assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    }
}

/// Whose word it is.
#[derive(Clone, Copy)]
enum Of {
    Boot,
    Console,
}

/// From power-on to the installed system's own word on its console.
async fn follow(way: &Way, folder: &Folder, boot: &Replicas, workflows: &kube::Api<api::tinkerbell::Workflow>) {
    let began = tokio::time::Instant::now();
    let file = |name: &str| String::from_utf8_lossy(&std::fs::read(folder.file(name)).unwrap_or_default()).into_owned();
    let read = |of: Of| match of {
        Of::Boot => boot.said(),
        Of::Console => file("console"),
    };
    let script = (Of::Console, "Metalplane installs this server", "iPXE runs the script");
    let mut steps = vec![(Of::Boot, way.first, "firmware is given what it boots")];
    // A BIOS without a screen shows nothing of its own on the serial port.
    steps.extend((way.script && way.firmware != Firmware::Bios).then_some(script));
    steps.extend([
        (Of::Console, "installer: ", "the installer runs"),
        (Of::Console, "MP-SYSTEM tiny", "the system on the disk comes up"),
        (Of::Console, "MP-BOOT s1", "it is up, and has the seed that the Workflow wrote"),
    ]);
    let mut told = 0;
    while told < steps.len() {
        let (of, text, what) = steps[told];
        if read(of).contains(text) {
            eprintln!("[{:5.1} s] {what}", began.elapsed().as_secs_f64());
            told += 1;
            continue;
        }
        let state = workflows.get("install").await.map(|workflow| workflow.status);
        assert!(
            began.elapsed() < LIMIT,
            "not within {} s: {what}\n{state:?}\n{}\n{}\n{}",
            LIMIT.as_secs(),
            file("qemu.log"),
            read(Of::Boot),
            read(Of::Console)
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let status = workflows.get("install").await.expect("read").status.expect("a status");
    assert_eq!(status.state.as_deref(), Some("SUCCESS"), "{status:?}");
    let again = read(Of::Boot);
    let (_, after) = again.split_once("state=\"SUCCESS\"").expect("it was reported");
    assert!(after.contains(way.then), "the firmware asked the network before the disk:\n{after}");
    let console = read(Of::Console);
    assert!(console.contains("by the boot script") && !console.contains("MP-ERROR"), "{console}");
}
