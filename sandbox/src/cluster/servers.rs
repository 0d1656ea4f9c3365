//! The virtual servers: one behind each DPU of the same number, and those of the kind `bare` without one; the BMC of each in the control plane's network.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::cluster::Site;
use crate::layout::{CONTROL_PLANE, DPU_BMC_PORT, Layout, Provisioned, bmc_address};
use crate::server::config::{Accelerator, BmcConfig, Config, DpuControl, Firmware, ProvisioningNic};
use crate::server::vfio_user;
use crate::supervisor::process::ProcessSpec;
use crate::{args, guest, outside};

/// Who logs in to a virtual server's BMC. It is reachable inside the sandbox only.
pub const BMC_USER: &str = "admin";
/// In a server's state folder.
const CONFIG: &str = "config.json";
pub const LOCAL_DISK: &str = "local-disk.raw";
/// Bytes of the disk of a server without a DPU.
const EMPTY_DISK: u64 = 128 << 20;

/// Folder below a server's that its DPU sees as `/run/metalplane-host`: the slots socket and the serial number, and nothing
/// else of the server, whose folder has the BMC's password too.
pub const DPU_SIDE: &str = "dpu";
/// In that folder: where the DPU's target offers the NVMe controller.
const VFIO_USER: &str = "vfio-user";

/// Writes the description of every server, and what a server of its kind has besides.
pub async fn write_configs(site: &Site, args: &args::Run) -> Result<()> {
    if let Some((unknown, _)) = args.personality.iter().find(|(server, _)| !site.servers.contains(server)) {
        bail!("--personality names {unknown}, which is not among the servers {}", site.servers.join(", "));
    }
    let qemu = match args.vfio_user {
        true => vfio_user::qemu(&args::cache_folder()).await?,
        false => "qemu-system-x86_64".into(),
    };
    for server in &site.servers {
        let dir = site.layout.server_dir(server);
        fs::create_dir_all(dir.join(DPU_SIDE))?;
        let password = fs::read_to_string("/proc/sys/kernel/random/uuid").context("no random password")?;
        let password_file = dir.join("bmc-password");
        fs::write(&password_file, password.trim())?;
        fs::set_permissions(&password_file, fs::Permissions::from_mode(0o600))?;
        let config = config(site, server, args, &qemu)?;
        // What whoever builds a DPU into a server writes down for its agent.
        fs::write(dir.join(DPU_SIDE).join("serial-number"), &config.serial_number)?;
        write_config(&config).await?;
    }
    Ok(())
}

async fn write_config(config: &Config) -> Result<()> {
    let path = config.state(CONFIG);
    fs::write(&path, serde_json::to_vec_pretty(config)?).with_context(|| format!("cannot write {}", path.display()))?;
    match &config.local_disk {
        Some(disk) if config.provisioning.is_some() => {
            let empty = fs::File::create(disk).and_then(|file| file.set_len(EMPTY_DISK));
            empty.with_context(|| format!("make the empty disk {}", disk.display()))
        }
        Some(disk) => make_local_disk(disk).await,
        None => Ok(()),
    }
}

/// Makes another kind of server of one that does not run: its firmware and its BMC are as they left the factory.
pub async fn change_kind(layout: &Layout, server: &str, kind: &str) -> Result<()> {
    let mut config = Config::read(&layout.server_dir(server).join(CONFIG))?;
    config.personality = kind.to_owned();
    config.local_disk = config.personality()?.has_local_disk.then(|| config.state(LOCAL_DISK));
    for kept in ["boot-settings.json", "firmware-variables.fd", "ready"] {
        match fs::remove_file(config.state(kept)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", config.state(kept).display()));
            }
            _ => {}
        }
    }
    write_config(&config).await
}

/// Of the server with this folder.
pub fn slots_socket(server_dir: &Path) -> PathBuf {
    server_dir.join(DPU_SIDE).join("slots.sock")
}

fn config(site: &Site, server: &str, args: &args::Run, qemu: &Path) -> Result<Config> {
    let dir = site.layout.server_dir(server);
    let dpu = site.nodes.iter().find(|node| node.server().as_deref() == Some(server));
    let mut config = Config {
        name: server.to_owned(),
        serial_number: format!("MP-{}", server.to_uppercase()),
        personality: "standby".to_owned(),
        bmc: BmcConfig {
            listen: (bmc_address(server)?, 443).into(),
            username: BMC_USER.to_owned(),
            password_file: dir.join("bmc-password"),
        },
        slots_socket: slots_socket(&dir),
        enter: dpu.map(|dpu| site.layout.enter(&dpu.name)),
        dpu: match dpu {
            Some(dpu) => Some(DpuControl {
                supervisor_socket: site.layout.control_socket(),
                name: dpu.name.clone(),
                bmc: Some((bmc_address(server)?, DPU_BMC_PORT).into()),
            }),
            None => None,
        },
        state_folder: dir.clone(),
        firmware: Firmware::default(),
        qemu: qemu.to_owned(),
        memory_mib: args.server_memory_mib,
        vcpus: args.server_vcpus,
        accelerator: Accelerator::Auto,
        vfio_user: args.vfio_user.then(|| dir.join(DPU_SIDE).join(VFIO_USER)),
        boot_disk: None,
        local_disk: None,
        provisioning: None,
    };
    if args.is_bare(server) {
        let Provisioned { tap, mac, .. } = Provisioned::of(server)?;
        config.provisioning = Some(ProvisioningNic { tap, mac });
    }
    if let Some((_, kind)) = args.personality.iter().find(|(name, _)| name == server) {
        config.personality = kind.clone();
    }
    if config.personality()?.has_local_disk {
        config.local_disk = Some(dir.join(LOCAL_DISK));
    }
    Ok(config)
}

/// An old system, as a server comes with that had another life before.
async fn make_local_disk(disk: &Path) -> Result<()> {
    let build = || guest::image(guest::Kind::Old, &args::cache_folder());
    let old = tokio::task::spawn_blocking(build).await.context("the image's builder ended early")??;
    let copy = ["--sparse=always".as_ref(), "--reflink=auto".as_ref(), old.as_os_str(), disk.as_os_str()];
    outside::run("cp", copy).await.map(drop)
}

/// Starts every server and waits until its BMC answers. The hosts stay off.
pub async fn start(site: &Site) -> Result<()> {
    let own = site.layout.program().display().to_string();
    for server in &site.servers {
        let config = site.layout.server_dir(server).join(CONFIG).display().to_string();
        let argv = [own.clone(), "virtual-server".into(), "--config".into(), config];
        site.table.start(ProcessSpec::new(process_name(server), argv).enter(CONTROL_PLANE))?;
    }
    for server in &site.servers {
        let bmc = (bmc_address(server)?, 443).into();
        let answers = || async { site.dialer.connect(bmc).await.is_ok() };
        site.table.until(&process_name(server), "its BMC answers", answers).await?;
    }
    Ok(())
}

/// The process of a server in the supervisor's table.
pub fn process_name(server: &str) -> String {
    format!("{server}/virtual-server")
}
