//! The virtual CD drive: the medium in it, and how the host sees it. As many BMCs have it, a drive at the host's USB that is there as
//! long as there is a medium in it.

use std::path::Path;
use std::sync::PoisonError;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::host::{Host, USB};
use super::machine::{Machine, State};
use super::qmp::Refusal;

/// In the state folder.
const FILE: &str = "virtual-cd.iso";

/// The drive, as the BMC keeps it.
#[derive(Default)]
pub struct Drive {
    medium: Option<Medium>,
    /// Since the BMC was started.
    inserted: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Medium {
    /// Where it is from, as the BMC shows it.
    pub image: String,
    /// QEMU gives a name free only a while after what had it has left.
    number: u64,
}

impl Medium {
    /// The drive in QEMU.
    pub fn device(&self) -> String {
        format!("cd-{}", self.number)
    }

    fn adapter(&self) -> String {
        format!("usb-cd-{}", self.number)
    }

    fn node(&self) -> String {
        format!("medium-{}", self.number)
    }

    async fn connect(&self, host: &mut Host, file: &Path) -> Result<(), Refusal> {
        let (device, adapter, node) = (self.device(), self.adapter(), self.node());
        let content = json!({ "driver": "file", "filename": file, "read-only": true });
        let drive = json!({ "driver": "scsi-cd", "id": device, "bus": format!("{adapter}.0"), "drive": node });
        let plugged =
            json!({ "path": format!("/machine/peripheral/{adapter}"), "property": "attached", "value": true });
        for (command, arguments) in [
            ("blockdev-add", json!({ "driver": "raw", "node-name": node, "read-only": true, "file": content })),
            ("device_add", json!({ "driver": "usb-bot", "id": adapter, "bus": format!("{USB}.0") })),
            ("device_add", drive),
            ("qom-set", plugged),
        ] {
            order(host, command, arguments).await?;
        }
        Ok(())
    }

    /// Pulled out, whether the guest has locked its tray or not.
    async fn disconnect(&self, host: &mut Host) -> Result<(), Refusal> {
        let device = self.device();
        for (command, arguments) in [
            ("blockdev-open-tray", json!({ "id": device, "force": true })),
            ("blockdev-remove-medium", json!({ "id": device })),
            ("device_del", json!({ "id": self.adapter() })),
            ("blockdev-del", json!({ "node-name": self.node() })),
        ] {
            order(host, command, arguments).await?;
        }
        Ok(())
    }
}

async fn order(host: &mut Host, command: &str, arguments: Value) -> Result<(), Refusal> {
    host.execute(command, arguments.as_object().cloned().unwrap_or_default()).await.map(drop)
}

impl Machine {
    fn with_drive<T>(&self, use_it: impl FnOnce(&mut Drive) -> T) -> T {
        use_it(&mut self.drive.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is in the drive.
    pub fn medium(&self) -> Option<Medium> {
        self.with_drive(|drive| drive.medium.clone())
    }

    /// Takes the file over. The drive is empty.
    pub async fn insert_medium(&self, image: String, content: &Path) -> Result<()> {
        let mut state = self.state.lock().await;
        let file = self.config.state(FILE);
        std::fs::rename(content, &file).with_context(|| format!("keep the medium as {}", file.display()))?;
        let number = self.with_drive(|drive| {
            drive.inserted += 1;
            drive.inserted
        });
        let medium = Medium { image, number };
        if let Some(host) = &mut state.host {
            let connected = medium.connect(host, &file).await;
            connected.map_err(|refusal| anyhow::anyhow!("connect the virtual CD drive: {refusal}"))?;
        }
        tracing::info!(server = self.config.name, "the medium {} is inserted", medium.image);
        self.with_drive(|drive| drive.medium = Some(medium));
        self.apply_boot_order(&mut state).await;
        Ok(())
    }

    pub async fn eject_medium(&self) {
        let mut state = self.state.lock().await;
        let Some(medium) = self.with_drive(|drive| drive.medium.take()) else { return };
        if let Some(host) = &mut state.host
            && let Err(refusal) = medium.disconnect(host).await
        {
            // It is gone with the host at the latest.
            tracing::warn!("disconnect the virtual CD drive: {refusal}");
        }
        tracing::info!(server = self.config.name, "the medium {} is ejected", medium.image);
        let file = self.config.state(FILE);
        if let Err(error) = std::fs::remove_file(&file) {
            tracing::warn!("{} stays behind: {error}", file.display());
        }
    }

    /// Connects the drive to a host that has just been started.
    pub async fn connect_medium(&self, state: &mut State) {
        let (Some(medium), Some(host)) = (self.medium(), &mut state.host) else { return };
        if let Err(refusal) = medium.connect(host, &self.config.state(FILE)).await {
            tracing::warn!("the host starts without its virtual CD drive: {refusal}");
        }
    }
}
