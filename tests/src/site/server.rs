//! One virtual server from beside Kubernetes: what its BMC was told, what goes wrong with it, what its guest prints.

use super::inventory::{bmc_objects, hardware_name};
use super::{INVENTORY_NAMESPACE, Site, until};
use crate::guest::Guest;
use anyhow::{Context, Result};
use sandbox::server::faults::{self, Faults};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// One Reset action that came in at a BMC.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Action {
    pub action: String,
    /// The host's true power when it came in.
    pub power: String,
    pub status: u16,
}

impl Action {
    /// It was done, and it changed something: a host that is on stays on when it is switched on.
    pub fn had_effect(&self) -> bool {
        self.status == 204
            && match self.action.as_str() {
                "On" => self.power == "Off",
                "ForceOff" => self.power != "Off",
                _ => true,
            }
    }
}

pub struct Server<'a> {
    site: &'a Site,
    /// `server-1`, …
    pub name: &'a str,
}

impl Site {
    pub fn server<'a>(&'a self, name: &'a str) -> Server<'a> {
        Server { site: self, name }
    }
}

impl Server<'_> {
    pub fn folder(&self) -> PathBuf {
        self.site.sandbox.layout().server_dir(self.name)
    }

    /// The DPU in it.
    pub fn dpu(&self) -> String {
        self.name.replace("server-", "dpu-")
    }

    pub fn guest(&self) -> Guest {
        Guest::new(self.site.sandbox.layout(), self.name)
    }

    /// The process id of its host's QEMU; `None`: the host is off.
    pub fn host(&self) -> Result<Option<String>> {
        let folder = self.folder().display().to_string();
        Ok(super::running_guests_in(&folder)?.into_iter().next())
    }

    /// All Reset actions since the sandbox was started.
    pub fn actions(&self) -> Result<Vec<Action>> {
        let path = self.folder().join("actions.jsonl");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let read = |line: &str| serde_json::from_str(line).with_context(|| format!("read {}: {line}", path.display()));
        text.lines().map(read).collect()
    }

    /// The boot options as its BMC has them now, first one first; empty before anybody has changed them.
    pub fn boot_order(&self) -> Result<Vec<String>> {
        let Ok(text) = std::fs::read(self.folder().join("boot-settings.json")) else { return Ok(Vec::new()) };
        let settings: serde_json::Value = serde_json::from_slice(&text)?;
        Ok(serde_json::from_value(settings["order"].clone())?)
    }

    pub async fn inject(&self, faults: Faults) -> Result<()> {
        faults::inject(&self.folder(), &faults).await
    }

    /// What is on its local disk.
    pub fn local_disk(&self) -> Result<Vec<u8>> {
        use sha2::{Digest, Sha256};
        let path = self.folder().join(sandbox::cluster::servers::LOCAL_DISK);
        let mut file = std::fs::File::open(&path).with_context(|| format!("open {}", path.display()))?;
        let mut hash = Sha256::new();
        std::io::copy(&mut file, &mut hash).with_context(|| format!("read {}", path.display()))?;
        Ok(hash.finalize().to_vec())
    }

    /// Puts a server of another kind in its place, and tells the inventory whose power its DPU has. It has a BMC of its own, so its object
    /// is made anew: what was read of the other one a moment ago says nothing of it.
    pub async fn rerack(&self, kind: &str, power_domain: &str) -> Result<()> {
        let ready = self.site.sandbox.ready().servers.iter().find(|server| server.name == self.name);
        let objects = bmc_objects(ready.with_context(|| format!("there is no {}", self.name))?)?;
        let name = hardware_name(self.name);
        self.site.kubectl(&["delete", "machines.bmc.tinkerbell.org", &name, "-n", INVENTORY_NAMESPACE]).await?;
        self.site.sandbox.rerack(self.name, kind).await?;
        self.site.apply(&objects).await?;
        let patch = format!(r#"{{"spec":{{"powerDomain":"{power_domain}"}}}}"#);
        self.site.kubectl(&["patch", "dpu", &self.dpu(), "--type=merge", "-p", &patch]).await.map(drop)
    }

    /// Waits until the BMC has the DPU's boot slot first, and that for the next start: a start may make it forget.
    pub async fn boots_from_the_slot(&self, limit: Duration) -> Result<()> {
        until(&format!("{} has the DPU's slot first in its boot order", self.name), limit, async || {
            let order = self.boot_order()?;
            Ok(if order.first().is_some_and(|first| first == "Boot0001") { Ok(()) } else { Err(order.join(", ")) })
        })
        .await
    }
}
