//! The virtual servers: one behind each DPU of the same number, its BMC in the control plane's network.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::cluster::Site;
use crate::layout::{CONTROL_PLANE, bmc_address};
use crate::supervisor::process::ProcessSpec;

/// Who logs in to a virtual server's BMC. It is reachable inside the sandbox only.
pub const BMC_USER: &str = "admin";

pub fn write_configs(site: &Site) -> Result<()> {
    for server in &site.servers {
        let dir = site.layout.server_dir(server);
        fs::create_dir_all(&dir)?;
        let password = fs::read_to_string("/proc/sys/kernel/random/uuid").context("no random password")?;
        let password_file = dir.join("bmc-password");
        fs::write(&password_file, password.trim())?;
        fs::set_permissions(&password_file, fs::Permissions::from_mode(0o600))?;
        let path = dir.join("config.json");
        fs::write(&path, serde_json::to_vec_pretty(&config(site, server)?)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn config(site: &Site, server: &str) -> Result<Value> {
    let dir = site.layout.server_dir(server);
    let mut config = json!({
        "name": server,
        "serialNumber": format!("MP-{}", server.to_uppercase()),
        "bmc": {
            "listen": format!("{}:443", bmc_address(server)?),
            "username": BMC_USER,
            "passwordFile": dir.join("bmc-password"),
        },
        "slotsSocket": dir.join("slots.sock"),
        "stateFolder": dir,
        "memoryMib": site.server_size.0,
        "vcpus": site.server_size.1,
    });
    let dpu = site.nodes.iter().find(|node| node.server().as_deref() == Some(server));
    if let Some(dpu) = dpu {
        config["enter"] = json!(site.layout.enter(&dpu.name));
        config["dpu"] = json!({"supervisorSocket": site.layout.control_socket(), "name": dpu.name});
    }
    Ok(config)
}

/// Starts every server and waits until its BMC answers. The hosts stay off.
pub async fn start(site: &Site) -> Result<()> {
    let own = std::env::current_exe()?.display().to_string();
    for server in &site.servers {
        let config = site.layout.server_dir(server).join("config.json").display().to_string();
        let argv = [own.clone(), "virtual-server".into(), "--config".into(), config];
        site.table.start(ProcessSpec::new(process_name(server), argv).enter(CONTROL_PLANE))?;
    }
    for server in &site.servers {
        let bmc = (bmc_address(server)?, 443).into();
        let answers = || async { site.dialer.connect(bmc).await.is_ok() };
        site.table.until(&process_name(server), "its BMC answers", Duration::from_secs(20), answers).await?;
    }
    Ok(())
}

fn process_name(server: &str) -> String {
    format!("{server}/virtual-server")
}
