//! A whole server (QEMU, emulated) with an empty disk and one NIC: its firmware (OVMF) asks the network first, gets iPXE from the boot
//! service by TFTP, the script, the kernel and the installer by HTTP, and its Workflow by gRPC. The Workflow writes an image to its disk
//! and restarts it; then its firmware asks the network again, and the system on the disk comes up.

use super::site::{self, ApiServer, US, client, until};
use super::{INVENTORY, MAC, prepare};
use api::tinkerbell::{Template, Workflow};
use kube::Api;
use kube::api::PostParams;
use proto::tink::action_status_request::StateType;
use proto::tink::workflow_service_client::WorkflowServiceClient;
use proto::tink::{ActionRequest, ActionStatusRequest};
use sandbox::{args::ServeFiles, guest, preflight};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tonic::Code;

const TEST: &str = "netboot::a_server_installs_itself_from_the_network";
/// To the test inside the namespace: a folder with all files.
const FOLDER: &str = "METALPLANE_BOOT_TEST_FOLDER";
const OVMF: [&str; 2] = ["/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"];
const IMAGES: u16 = 8000;
/// It takes a minute; the limit is for a busy machine.
const LIMIT: Duration = Duration::from_secs(400);

#[tokio::test]
async fn a_server_installs_itself_from_the_network() {
    if site::clients().is_none() {
        let outcome = match parts().await {
            Ok(folder) => site::run_inside(TEST, &[(FOLDER, folder.path())]),
            Err(reason) => Err(reason),
        };
        if let Err(reason) = outcome {
            eprintln!("SKIP {TEST}: {reason}");
        }
        return;
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    let site = match ApiServer::start().await {
        Ok(site) => site,
        Err(reason) => {
            eprintln!("SKIP {TEST}: {reason}");
            return;
        }
    };
    let folder = PathBuf::from(std::env::var_os(FOLDER).expect("given"));
    prepare(&site).await;
    let _boot = boot(&folder, &site.kubeconfig);
    let images = ServeFiles { listen: (std::net::Ipv4Addr::UNSPECIFIED, IMAGES).into(), folder: folder.join("images") };
    tokio::spawn(async move { sandbox::file_server::run(&images).await });
    let workflows = workflow(&site, &folder).await;
    guessed().await;
    let _server = server(&folder).await;

    let began = tokio::time::Instant::now();
    let (console, log) = (folder.join("console"), folder.join("boot.log"));
    let read = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
    let mut told = 0;
    let steps = [
        (&log, "ipxe.efi", "firmware is offered a program"),
        (&console, "Metalplane installs this server", "iPXE runs the script"),
        (&console, "installer: ", "the installer runs"),
        (&console, "MP-SYSTEM tiny", "the system on the disk comes up"),
        (&console, "MP-BOOT s1", "it is up, and has the seed that the Workflow wrote"),
    ];
    while told < steps.len() {
        let (file, text, what) = steps[told];
        if read(file).contains(text) {
            eprintln!("[{:5.1} s] {what}", began.elapsed().as_secs_f64());
            told += 1;
            continue;
        }
        let state = workflows.get("install").await.map(|workflow| workflow.status);
        assert!(
            began.elapsed() < LIMIT,
            "not within {} s: {what}\n{state:?}\n{}\n{}",
            LIMIT.as_secs(),
            read(&log),
            read(&console)
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let status = workflows.get("install").await.expect("read").status.expect("a status");
    assert_eq!(status.state.as_deref(), Some("SUCCESS"), "{status:?}");
    let again = read(&log);
    let (_, after) = again.split_once("state=\"SUCCESS\"").expect("it was reported");
    assert!(after.contains("netboot-not-allowed"), "the firmware asked the network before the disk:\n{after}");
    let console = read(&console);
    assert!(console.contains("by the boot script") && !console.contains("MP-ERROR"), "{console}");
}

/// Everything that is fetched or built: inside there is no way out.
async fn parts() -> Result<tempfile::TempDir, String> {
    for (program, package) in [("qemu-system-x86_64", "qemu-system-x86"), ("objcopy", "binutils")] {
        let version = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.map_err(|_| format!("{program} is not installed (package {package})"))?;
    }
    if let Some(absent) = OVMF.iter().find(|file| !Path::new(file).exists()) {
        return Err(format!("{absent} is absent (package ovmf)"));
    }
    let ipxe = preflight::ipxe().await.map_err(|error| format!("{error:#}"))?;
    let installer = Path::new(env!("CARGO_BIN_EXE_boot")).with_file_name("installer");
    assert!(installer.exists(), "{} is missing: build it with `cargo build -p installer`", installer.display());
    let folder = tempfile::tempdir().expect("a folder");
    let into = |name: &str| folder.path().join(name);
    std::fs::copy(ipxe, into("ipxe.efi")).expect("copied");
    std::fs::copy(OVMF[1], into("variables.fd")).expect("copied");
    let cache = sandbox::args::cache_folder();
    let image = guest::image(guest::Kind::Tiny, &cache).map_err(|error| format!("{error:#}"))?;
    std::fs::create_dir(into("images")).expect("made");
    std::os::unix::fs::symlink(image, into("images").join("tiny.raw")).expect("linked");
    let files = guest::installer(&installer, None, &cache, &into("files")).expect("the installer's image");
    for (from, name) in [(files.kernel, "vmlinuz-x86_64"), (files.initramfs, "initramfs-x86_64")] {
        std::fs::rename(from, into("files").join(name)).expect("renamed");
    }
    File::create(into("disk.raw")).and_then(|disk| disk.set_len(96 << 20)).expect("an empty disk");
    Ok(folder)
}

fn digest(path: &Path) -> String {
    let mut hash = Sha256::new();
    std::io::copy(&mut File::open(path).expect("opened"), &mut hash).expect("read");
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("a child can be ended");
    }
}

fn boot(folder: &Path, kubeconfig: &Path) -> Running {
    let program = folder.join("ipxe.efi");
    let log = File::create(folder.join("boot.log")).expect("a log");
    let key = folder.join("token-key");
    std::fs::write(&key, [7_u8; 32]).expect("written");
    let child = Command::new(env!("CARGO_BIN_EXE_boot"))
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .args([format!("--address={US}"), "--interface=br-prov".to_owned()])
        .arg(format!("--inventory-namespace={INVENTORY}"))
        .arg(format!("--files={}", folder.join("files").display()))
        .arg(format!("--program=ipxe.efi={}@{}", digest(&program), program.display()))
        .arg("--kernel-argument=console=ttyS0")
        .arg(format!("--token-key={}", key.display()))
        .args(["--log-filter=info,boot=debug"])
        .env("NO_COLOR", "1")
        .stdout(log.try_clone().expect("shared"))
        .stderr(log)
        .spawn();
    Running(child.expect("the boot service starts"))
}

async fn workflow(site: &ApiServer, folder: &Path) -> Api<Workflow> {
    let checksum = digest(&folder.join("images/tiny.raw"));
    let data = format!(
        "version: '0.1'\nname: tiny\nglobal_timeout: 600\ntasks:\n- name: os\n  worker: {{{{.device_1}}}}\n  actions:\n\
         \x20 - name: image\n    image: quay.io/tinkerbell/actions/image2disk:latest\n    timeout: 300\n    environment:\n\
         \x20     IMG_URL: http://{US}:{IMAGES}/tiny.raw\n      CHECKSUM: sha256:{checksum}\n\
         \x20     DEST_DISK: '{{{{ index .Hardware.Disks 0 }}}}'\n\
         \x20 - name: seed\n    image: quay.io/tinkerbell/actions/writefile:latest\n    timeout: 60\n    environment:\n\
         \x20     {{DEST_DISK: '{{{{ index .Hardware.Disks 0 }}}}p2', FS_TYPE: ext4, DEST_PATH: /seed/meta-data, UID: 0, GID: 0,\n\
         \x20     MODE: 0644, DIRMODE: 0755, CONTENTS: 'instance-id: s1'}}\n\
         \x20 - {{name: restart, image: reboot, timeout: 60}}\n"
    );
    let template = json!({"metadata": {"name": "tiny"}, "spec": {"data": data}});
    let template: Template = serde_json::from_value(template).expect("a Template");
    let templates: Api<Template> = Api::namespaced(site.admin.clone(), INVENTORY);
    templates.create(&PostParams::default(), &template).await.expect("created");
    let object = json!({"metadata": {"name": "install"}, "spec": {
        "templateRef": "tiny", "hardwareRef": "s1", "hardwareMap": {"device_1": MAC}}});
    let object: Workflow = serde_json::from_value(object).expect("a Workflow");
    let workflows: Api<Workflow> = Api::namespaced(site.admin.clone(), INVENTORY);
    workflows.create(&PostParams::default(), &object).await.expect("created");
    until("the Workflow is rendered", async || {
        let status = workflows.get("install").await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        if status.state.as_deref() == Some("PENDING") { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
    workflows
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

/// In the clients' namespace, by a bridge.
async fn server(folder: &Path) -> Running {
    for words in [
        "ip link add br0 type bridge forward_delay 0",
        "ip link set eth0 master br0",
        "ip tuntap add tap0 mode tap",
        "ip link set tap0 master br0",
        "ip link set br0 up",
        "ip link set tap0 up",
    ] {
        let done = client(&words.split(' ').collect::<Vec<_>>()).await;
        assert!(done.status.success(), "{words}: {done:?}");
    }
    let namespace = site::clients().expect("inside");
    let file = |name: &str| folder.join(name).display().to_string();
    // Two processors that there might be: QEMU 7 leaves barriers out of what it translates for one.
    let machine = "-nodefaults -no-user-config -display none -machine q35 -accel tcg,thread=multi -cpu max -m 512 \
                   -smp 1,maxcpus=2 -device virtio-rng-pci -fw_cfg name=opt/org.tianocore/IPv6PXESupport,string=n \
                   -fw_cfg name=opt/org.tianocore/IPv6Support,string=n \
                   -netdev tap,id=net,ifname=tap0,script=no,downscript=no -device nvme,drive=disk,serial=disk-1,bootindex=1";
    let child = Command::new("ip")
        .args(["netns", "exec", &namespace, "qemu-system-x86_64"])
        .args(machine.split_whitespace())
        .arg("-drive")
        .arg(format!("if=pflash,format=raw,readonly=on,file={}", OVMF[0]))
        .arg("-drive")
        .arg(format!("if=pflash,format=raw,file={}", file("variables.fd")))
        .arg("-drive")
        .arg(format!("if=none,id=disk,format=raw,discard=unmap,file={}", file("disk.raw")))
        .arg("-device")
        .arg(format!("virtio-net-pci,netdev=net,mac={MAC},romfile=,bootindex=0"))
        .arg("-serial")
        .arg(format!("file:{}", file("console")))
        .stdin(Stdio::null())
        .spawn();
    Running(child.expect("QEMU starts"))
}
