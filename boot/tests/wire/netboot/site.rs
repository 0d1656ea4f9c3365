//! What a server is installed from.

use super::server::{CURL_MODULE, Firmware, OVMF};
use super::{ApiServer, INVENTORY, US, Way};
use crate::SEEDS;
use crate::netboot::Cable;
use crate::networks::{DHCRELAY, DNSMASQ};
use crate::site::{path, until};
use api::tinkerbell::{Template, Workflow};
use kube::Api;
use kube::api::PostParams;
use sandbox::{args::ServeFiles, guest, preflight};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// To the test inside the namespace: a folder with all files.
pub const FOLDER: &str = "METALPLANE_BOOT_TEST_FOLDER";
const IMAGES: u16 = 8000;
/// Where QEMU's modules and their libraries are, a line each.
const MODULES: &str = "qemu-modules";

/// Everything that is fetched or built: inside there is no way out.
pub async fn parts(way: &Way) -> Result<tempfile::TempDir, String> {
    for (program, package) in [("qemu-system-x86_64", "qemu-system-x86"), ("objcopy", "binutils")] {
        let version = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.map_err(|_| format!("{program} is not installed (package {package})"))?;
    }
    if let Some(absent) = OVMF.iter().find(|file| !Path::new(file).exists()) {
        return Err(format!("{absent} is absent (package ovmf)"));
    }
    let absent = |error: anyhow::Error| format!("{error:#}");
    let ipxe = preflight::ipxe().await.map_err(absent)?;
    if way.cable == Cable::Relayed {
        preflight::unpacked(DHCRELAY.0, DHCRELAY.1).await.map_err(absent)?;
    }
    if way.beside_dnsmasq {
        preflight::unpacked(DNSMASQ.0, DNSMASQ.1).await.map_err(absent)?;
    }
    let installer = Path::new(env!("CARGO_BIN_EXE_boot")).with_file_name("installer");
    assert!(installer.exists(), "{} is missing: build it with `cargo build -p installer`", installer.display());
    let folder = tempfile::tempdir().expect("a folder");
    let into = |name: &str| path(&folder, name);
    std::fs::copy(ipxe, into("ipxe.efi")).expect("copied");
    std::fs::copy(OVMF[1], into("variables.fd")).expect("copied");
    let cache = sandbox::args::cache_folder();
    let image = guest::image(guest::Kind::Tiny, &cache).map_err(absent)?;
    std::fs::create_dir(into("images")).expect("made");
    std::os::unix::fs::symlink(image, into("images").join("tiny.raw")).expect("linked");
    let files = guest::installer(&installer, guest::Target::here(), None, &cache, &into("files"));
    let files = files.expect("the installer's image");
    if !way.script {
        let unified = into("installer.efi");
        guest::unified_installer(&files, &unified).map_err(absent)?;
        if matches!(way.firmware, Firmware::UefiCd(_)) {
            let (xorriso, environment) = preflight::unpacked("xorriso", "xorriso").await.map_err(absent)?;
            guest::installer_iso(&unified, &into("files").join("installer.iso"), (&xorriso, &environment))
                .map_err(absent)?;
            let (module, environment) = preflight::unpacked(CURL_MODULE, "qemu-block-extra").await.map_err(absent)?;
            let libraries = environment.get("LD_LIBRARY_PATH").cloned().unwrap_or_default();
            let text = format!("{}\n{libraries}\n", module.parent().expect("a folder").display());
            std::fs::write(into(MODULES), text).expect("written");
        }
    }
    File::create(into("disk.raw")).and_then(|disk| disk.set_len(96 << 20)).expect("an empty disk");
    Ok(folder)
}

fn digest(path: &Path) -> String {
    let mut hash = Sha256::new();
    std::io::copy(&mut File::open(path).expect("opened"), &mut hash).expect("read");
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Those parts, inside.
pub struct Folder(PathBuf);

impl Folder {
    pub fn given() -> Self {
        Self(PathBuf::from(std::env::var_os(FOLDER).expect("given")))
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Folder and libraries of QEMU's modules, if the way needs some.
    pub fn modules(&self) -> Option<(String, String)> {
        let text = std::fs::read_to_string(self.file(MODULES)).ok()?;
        let (folder, libraries) = text.trim_end_matches('\n').split_once('\n')?;
        Some((folder.to_owned(), libraries.to_owned()))
    }

    /// With which the boot service signs what agents are known by.
    fn token_key(&self) -> PathBuf {
        let key = self.file("token-key");
        std::fs::write(&key, [7_u8; 32]).expect("written");
        key
    }

    /// Of the boot service.
    pub fn arguments(&self) -> Vec<String> {
        let programs = ["ipxe.efi", "installer.efi"].into_iter().filter(|name| self.file(name).exists());
        let programs = programs.map(|name| {
            let file = self.file(name);
            format!("--program={name}={}@{}", digest(&file), file.display())
        });
        let others = [
            "--interface=br-prov".to_owned(),
            format!("--inventory-namespace={INVENTORY}"),
            format!("--seeds-namespace={SEEDS}"),
            format!("--files={}", self.file("files").display()),
            "--kernel-argument=console=ttyS0".to_owned(),
            format!("--token-key={}", self.token_key().display()),
        ];
        programs.chain(others).collect()
    }

    /// Whether anything was written to the server's disk: it begins as one hole.
    pub fn is_disk_touched(&self) -> bool {
        std::fs::metadata(self.file("disk.raw")).expect("the server's disk").blocks() > 0
    }

    pub fn serve_images(&self) {
        let listen = (std::net::Ipv4Addr::UNSPECIFIED, IMAGES).into();
        let images = ServeFiles { listen, folder: self.file("images") };
        tokio::spawn(async move { sandbox::file_server::run(&images).await });
    }
}

pub async fn workflow(
    site: &ApiServer,
    folder: &Folder,
    (hardware, mac): (&str, &str),
    has_session: bool,
) -> Api<Workflow> {
    let seed = match has_session {
        true => {
            "\x20 - {name: cloud-init, image: seed, timeout: 60, environment: {DEST_DISK: '{{ index .Hardware.Disks 0 }}'}}\n"
        }
        false => "",
    };
    let checksum = digest(&folder.file("images/tiny.raw"));
    let data = format!(
        "version: '0.1'\nname: tiny\nglobal_timeout: 600\ntasks:\n- name: os\n  worker: {{{{.device_1}}}}\n  actions:\n\
         \x20 - name: image\n    image: quay.io/tinkerbell/actions/image2disk:latest\n    timeout: 300\n    environment:\n\
         \x20     IMG_URL: http://{US}:{IMAGES}/tiny.raw\n      CHECKSUM: sha256:{checksum}\n\
         \x20     DEST_DISK: '{{{{ index .Hardware.Disks 0 }}}}'\n\
         \x20 - name: seed\n    image: quay.io/tinkerbell/actions/writefile:latest\n    timeout: 60\n    environment:\n\
         \x20     {{DEST_DISK: '{{{{ index .Hardware.Disks 0 }}}}p2', FS_TYPE: ext4, DEST_PATH: /seed/meta-data, UID: 0, GID: 0,\n\
         \x20     MODE: 0644, DIRMODE: 0755, CONTENTS: 'instance-id: s1'}}\n\
         {seed}\x20 - {{name: restart, image: reboot, timeout: 60}}\n"
    );
    let template = json!({"metadata": {"name": "tiny"}, "spec": {"data": data}});
    let template: Template = serde_json::from_value(template).expect("a Template");
    let templates: Api<Template> = Api::namespaced(site.admin.clone(), INVENTORY);
    templates.create(&PostParams::default(), &template).await.expect("created");
    let object = json!({"metadata": {"name": "install"}, "spec": {
        "templateRef": "tiny", "hardwareRef": hardware, "hardwareMap": {"device_1": mac}}});
    let object: Workflow = serde_json::from_value(object).expect("a Workflow");
    let workflows: Api<Workflow> = Api::namespaced(site.admin.clone(), INVENTORY);
    workflows.create(&PostParams::default(), &object).await.expect("created");
    until("the Workflow is rendered", async || {
        let status = workflows.get("install").await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        // An agent that waits for it has it at once.
        let is_rendered = matches!(status.state.as_deref(), Some("PENDING" | "RUNNING"));
        if is_rendered { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
    workflows
}
