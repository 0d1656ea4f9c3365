//! The description of one virtual server: the JSON file behind `sandbox virtual-server --config`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::personality::{self, BootDisk, Personality};

/// One virtual server. Unknown fields are refused: a misspelt one must not be ignored in silence.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The server's name, for logs and the host name of its BMC.
    pub name: String,
    pub serial_number: String,
    /// How this kind of server behaves: see [`super::personality`].
    #[serde(default = "default_personality")]
    pub personality: String,
    pub bmc: BmcConfig,
    /// Unix socket on which the DPU's side presents devices (QMP).
    pub slots_socket: PathBuf,
    /// Program that runs its arguments inside the DPU's namespaces; without it they run right here.
    #[serde(default)]
    pub enter: Option<PathBuf>,
    /// The DPU in this server, for the personality whose power it shares.
    #[serde(default)]
    pub dpu: Option<DpuControl>,
    /// Folder of everything the server keeps: firmware variables, boot order, logs, sockets.
    pub state_folder: PathBuf,
    #[serde(default)]
    pub firmware: Firmware,
    #[serde(default = "default_qemu")]
    pub qemu: PathBuf,
    #[serde(default = "default_memory")]
    pub memory_mib: u32,
    #[serde(default = "default_vcpus")]
    pub vcpus: u32,
    #[serde(default)]
    pub accelerator: Accelerator,
    /// Folder where a target on the DPU offers the host's NVMe controller, as vfio-user's socket `cntrl`. Its disks are
    /// the target's business, and `qemu` has to be 10.1 or newer.
    #[serde(default)]
    pub vfio_user: Option<PathBuf>,
    /// The disk of the DPU's boot slot as the firmware has seen it in an earlier POST. Without it: as agents of Metalplane
    /// present it.
    #[serde(default)]
    pub boot_disk: Option<BootDisk>,
    /// A raw disk inside the server that the DPU knows nothing of. The guest may write to it.
    #[serde(default)]
    pub local_disk: Option<PathBuf>,
    /// A NIC inside the server, on the provisioning network: what a server without a DPU boots from.
    #[serde(default)]
    pub provisioning: Option<ProvisioningNic>,
}

/// The tap exists, in the network in which the server's programs run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProvisioningNic {
    pub tap: String,
    pub mac: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BmcConfig {
    pub listen: SocketAddr,
    pub username: String,
    pub password_file: PathBuf,
}

/// Where the supervisor takes requests, what it calls this server's DPU, and where the DPU's own BMC listens, if it has one.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DpuControl {
    pub supervisor_socket: PathBuf,
    pub name: String,
    #[serde(default)]
    pub bmc: Option<SocketAddr>,
}

/// OVMF: the code is shared and read-only, the variables are copied once per server and then kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Firmware {
    pub code: PathBuf,
    pub variables: PathBuf,
}

impl Default for Firmware {
    fn default() -> Self {
        Firmware { code: "/usr/share/OVMF/OVMF_CODE_4M.fd".into(), variables: "/usr/share/OVMF/OVMF_VARS_4M.fd".into() }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Accelerator {
    /// KVM if a probe guest of ours gets through with it, else emulation.
    #[default]
    Auto,
    Tcg,
}

/// As firmware prints the EUI-64 of QEMU's NVMe device, which has none.
const NO_EUI64: &str = "00-00-00-00-00-00-00-00";

fn default_personality() -> String {
    "standby".to_owned()
}
fn default_qemu() -> PathBuf {
    "qemu-system-x86_64".into()
}
fn default_memory() -> u32 {
    512
}
fn default_vcpus() -> u32 {
    1
}

impl Config {
    pub fn read(path: &Path) -> Result<Config> {
        let text = std::fs::read_to_string(path).with_context(|| format!("read the description {}", path.display()))?;
        let config: Config =
            serde_json::from_str(&text).with_context(|| format!("understand the description {}", path.display()))?;
        let personality = config.personality()?;
        ensure!(
            !personality.dpu_shares_power || config.dpu.is_some(),
            "{}: personality '{}' switches its DPU, so `dpu` must be given",
            config.name,
            personality.name
        );
        ensure!(
            !personality.has_local_disk || config.local_disk.is_some(),
            "{}: personality '{}' has a disk of its own, so `localDisk` must be given",
            config.name,
            personality.name
        );
        Ok(config)
    }

    pub fn personality(&self) -> Result<&'static Personality> {
        personality::by_name(&self.personality).with_context(|| {
            let names: Vec<&str> = personality::ALL.iter().map(|personality| personality.name).collect();
            format!("there is no personality '{}': must be one of {}", self.personality, names.join(", "))
        })
    }

    pub fn boot_disk(&self) -> BootDisk {
        let dpu = self.dpu.as_ref().map_or(&self.name, |dpu| &dpu.name);
        let usual = || BootDisk { serial: api::names::boot_serial(dpu), eui64: NO_EUI64.to_owned() };
        self.boot_disk.clone().unwrap_or_else(usual)
    }

    pub fn state(&self, file: &str) -> PathBuf {
        self.state_folder.join(file)
    }
}
