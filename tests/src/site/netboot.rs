//! Servers of the site that have no DPU: what the boot service serves, and what an administrator writes down and does by hand.

use super::inventory::{bmc_objects, hardware_name};
use super::{INVENTORY_NAMESPACE, Site, program, run};
use anyhow::{Context, Result};
use sandbox::cluster::servers::LOCAL_DISK;
use sandbox::layout::{BARE, PROVISIONING_GATEWAY, PROVISIONING_LEG, Provisioned};
use sandbox::{guest, preflight};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// The node that the boot service runs on: one with a leg in the provisioning network.
pub(super) const NODE: &str = "node-1";
/// The label of such nodes.
pub(super) const BOOT_NODES: &str = "boot=metalplane";
/// By which iPXE is called, whichever program it is.
const IPXE: &str = "ipxe.efi";

/// Of the installer, in the boot service's folder.
const KERNEL: &str = "vmlinuz-x86_64";
const INITRAMFS: &str = "initramfs-x86_64";
const CD: &str = "installer.iso";

/// The installer as a CD for one server.
pub struct InstallerCd {
    /// Where the server's BMC reads it.
    pub url: String,
    /// Bytes of the program on it, which firmware reads as a whole.
    pub program: u64,
}

/// The addresses of servers that are in no inventory.
pub const POOL: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 88, 0, 200), Ipv4Addr::new(10, 88, 0, 209)];

/// The personality of a server without a DPU, for [`sandbox::handle::Options`].
pub fn bare(server: &str) -> (String, String) {
    (server.to_owned(), BARE.to_owned())
}

/// Of the boot service.
fn boot_address() -> Result<Ipv4Addr> {
    Ok(sandbox::layout::NodeId::parse(NODE)?.provisioning_address())
}

impl Site {
    /// Of what the boot service serves.
    fn netboot_folder(&self) -> PathBuf {
        self.sandbox.layout().dir.join("netboot")
    }

    /// Makes a CD of the installer, which the boot service serves from then on. `xorriso`: its path, and the environment that it needs.
    pub async fn installer_cd(
        &self,
        server: &str,
        (xorriso, environment): (PathBuf, BTreeMap<String, String>),
    ) -> Result<InstallerCd> {
        let folder = self.netboot_folder();
        let made = tokio::task::spawn_blocking(move || {
            let files = guest::BootFiles { kernel: folder.join(KERNEL), initramfs: folder.join(INITRAMFS) };
            let work = tempfile::tempdir_in(&folder).context("create a work folder")?;
            let (program, image) = (work.path().join("installer.efi"), work.path().join(CD));
            guest::unified_installer(&files, &program)?;
            guest::installer_iso(&program, &image, (&xorriso, &environment))?;
            std::fs::rename(&image, folder.join(CD)).with_context(|| format!("make {CD}"))?;
            anyhow::Ok(std::fs::metadata(&program).context("measure the program")?.len())
        });
        let mac = Provisioned::of(server)?.mac.replace(':', "-");
        let url = format!("http://{}:7080/iso/{mac}/{CD}", boot_address()?);
        Ok(InstallerCd { url, program: made.await.context("the CD's maker ended early")?? })
    }

    /// Servers that have no DPU.
    pub fn bare_servers(&self) -> Vec<String> {
        let ready = self.sandbox.ready();
        let has_dpu = |server: &str| ready.nodes.iter().any(|node| node.name == server.replace("server-", "dpu-"));
        ready.servers.iter().map(|server| server.name.clone()).filter(|name| !has_dpu(name)).collect()
    }

    /// The chart's values of the boot service, and the folder of what it serves: nothing, if every server has a DPU.
    pub(super) async fn boot_values(&self) -> Result<Vec<String>> {
        if self.bare_servers().is_empty() {
            return Ok(Vec::new());
        }
        self.kubectl(&["label", "node", NODE, "--overwrite", BOOT_NODES]).await?;
        let folder = self.netboot_folder();
        let ipxe = preflight::ipxe().await?;
        let installer = program("installer")?;
        let into = folder.clone();
        let digest = tokio::task::spawn_blocking(move || {
            guest::installer(&installer, guest::Target::here(), None, &sandbox::args::cache_folder(), &into)?;
            let bytes = std::fs::read(&ipxe).with_context(|| format!("read {}", ipxe.display()))?;
            std::fs::write(into.join(IPXE), &bytes).with_context(|| format!("write {IPXE}"))?;
            anyhow::Ok(Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>())
        })
        .await??;
        Ok(vec![
            "boot.enabled=true".to_owned(),
            format!("boot.addresses[0]={}", boot_address()?),
            format!("boot.interface={PROVISIONING_LEG}"),
            format!("boot.directory={}", folder.display()),
            format!("boot.nodeSelector.{BOOT_NODES}"),
            // Of the node that the test of two replicas adds.
            "boot.tolerations[0].key=metalplane.io/dpu".to_owned(),
            "boot.tolerations[0].operator=Exists".to_owned(),
            format!("boot.programs[0].name={IPXE}"),
            format!("boot.programs[0].file={IPXE}"),
            format!("boot.programs[0].sha256={digest}"),
            "boot.kernelArguments[0]=console=ttyS0".to_owned(),
            "boot.discovery=true".to_owned(),
            format!("boot.iso.virtualMedia={CD}"),
            format!("boot.dhcpPools[0].range={}", POOL.map(|address| address.to_string()).join("-")),
            "boot.dhcpPools[0].prefix=24".to_owned(),
            format!("boot.dhcpPools[0].gateway={PROVISIONING_GATEWAY}"),
        ])
    }

    /// The BMC of a server as inventory; its object, by its name.
    pub async fn rack_bmc(&self, server: &str) -> Result<String> {
        self.apply(&self.bmc_of(server)?).await?;
        Ok(hardware_name(server))
    }

    fn bmc_of(&self, server: &str) -> Result<String> {
        let known = self.sandbox.ready().servers.iter().find(|known| known.name == server);
        bmc_objects(known.with_context(|| format!("no server {server}"))?)
    }

    /// What somebody does who has unpacked a server, and sits in front of it.
    pub async fn switch_on_from_network(&self, server: &str) -> Result<()> {
        let once = r#"{"Boot":{"BootSourceOverrideTarget":"Pxe","BootSourceOverrideEnabled":"Once"}}"#;
        self.redfish(server, "", "PATCH", once).await?;
        self.redfish(server, "/Actions/ComputerSystem.Reset", "POST", r#"{"ResetType":"On"}"#).await.map(drop)
    }

    pub async fn switch_off(&self, server: &str) -> Result<()> {
        self.redfish(server, "/Actions/ComputerSystem.Reset", "POST", r#"{"ResetType":"ForceOff"}"#).await.map(drop)
    }

    /// The boot order of a server, as somebody writes it who has the BMC's password.
    pub async fn put_boot_order(&self, server: &str, order: &[&str]) -> Result<()> {
        let body = serde_json::json!({"Boot": {"BootOrder": order}}).to_string();
        self.redfish(server, "", "PATCH", &body).await.map(drop)
    }

    /// What its BMC shows of how it boots.
    pub async fn boot_settings(&self, server: &str) -> Result<Value> {
        let shown = self.redfish(server, "", "GET", "").await?;
        let system: Value = serde_json::from_str(&shown).with_context(|| format!("read {shown}"))?;
        Ok(system["Boot"].clone())
    }

    /// What its BMC shows of its virtual CD drive.
    pub async fn virtual_drive(&self, server: &str) -> Result<Value> {
        let shown = self.redfish(server, "/VirtualMedia/Cd", "GET", "").await?;
        serde_json::from_str(&shown).with_context(|| format!("read {shown}"))
    }

    /// A server without a DPU as inventory.
    pub async fn rack_bare(&self, server: &str) -> Result<()> {
        let objects = self.bmc_of(server)?;
        let (name, nic) = (hardware_name(server), Provisioned::of(server)?);
        self.apply(&format!(
            "{objects}---
apiVersion: tinkerbell.org/v1alpha1
kind: Hardware
metadata: {{name: {name}, namespace: {INVENTORY_NAMESPACE}, labels: {{metalplane.io/class: bare}}}}
spec:
  bmcRef: {{apiGroup: bmc.tinkerbell.org, kind: Machine, name: {name}}}
  disks: [{{device: /dev/nvme0n1}}]
  interfaces:
  - dhcp:
      mac: {}
      hostname: {name}
      ip: {{address: {}, netmask: 255.255.255.0, gateway: {PROVISIONING_GATEWAY}}}
    netboot: {{allowPXE: true}}
",
            nic.mac, nic.address
        ))
        .await
        .map(drop)
    }

    /// The disk of a server without a DPU, as its virtual server has it.
    pub fn local_disk(&self, server: &str) -> PathBuf {
        self.sandbox.layout().server_dir(server).join(LOCAL_DISK)
    }

    /// Takes it out of the inventory, switched off.
    pub async fn unrack_bare(&self, server: &str) -> Result<()> {
        self.switch_off(server).await?;
        let name = hardware_name(server);
        let hardware = format!("hardware/{name}");
        let (machine, secret) = (format!("machines.bmc.tinkerbell.org/{name}"), format!("secret/{name}-bmc"));
        self.kubectl(&["delete", "-n", INVENTORY_NAMESPACE, &hardware, &machine, &secret]).await.map(drop)
    }

    /// What is answered, as text.
    async fn redfish(&self, server: &str, below: &str, method: &str, body: &str) -> Result<String> {
        let known = self.sandbox.ready().servers.iter().find(|known| known.name == server);
        let known = known.with_context(|| format!("no server {server}"))?;
        let password = std::fs::read_to_string(&known.bmc_password_file).context("read the BMC's password")?;
        // A command line is everybody's to read.
        let config = self.sandbox.layout().server_dir(server).join("curl");
        std::fs::write(&config, "")?;
        std::fs::set_permissions(&config, std::fs::Permissions::from_mode(0o600))?;
        std::fs::write(&config, format!("user = \"{}:{}\"\n", known.bmc_user, password.trim()))?;
        let url = format!("{}/redfish/v1/Systems/1{below}", known.bmc);
        let config = config.display().to_string();
        let args = ["curl", "-sS", "--fail-with-body", "-k", "-K", &config, "-X", method];
        let words = [&args[..], &["-H", "Content-Type: application/json", "-d", body, &url]].concat();
        run(self.sandbox.enter(sandbox::layout::CONTROL_PLANE), &words, None).await
    }
}
