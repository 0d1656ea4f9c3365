//! Flags and environment: the only place that reads them.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::time::Duration;

/// Like kubectl, for bare-metal machines. Also runs as `kubectl bm`.
#[derive(Parser, Debug)]
#[command(name = "bmctl", version, about, disable_help_subcommand = true)]
pub struct Cli {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Args, Debug, Clone)]
pub struct ClusterArgs {
    /// The namespace [default: that of the kubeconfig's context]
    #[arg(short, long, global = true)]
    pub namespace: Option<String>,
    /// The kubeconfig's context
    #[arg(long, global = true)]
    pub context: Option<String>,
    /// The kubeconfig file [default: $KUBECONFIG, then ~/.kube/config]
    #[arg(long, global = true, env = "KUBECONFIG")]
    pub kubeconfig: Option<String>,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// List machines
    Get(Get),
    /// Say why a machine is not ready, as a tree of reasons
    Explain {
        machine: String,
        #[arg(short, long, value_enum)]
        output: Option<Output>,
    },
    /// Show when each step of the last start began and ended
    Timeline {
        machine: String,
        #[arg(short, long, value_enum)]
        output: Option<Output>,
    },
    /// Power on and keep on (writes runStrategy: Always)
    Start(Power),
    /// Power off: the guest is asked first (writes runStrategy: Halted)
    Stop(Power),
    /// Reset once, warm
    Restart(Power),
    /// Plug a disk in
    #[command(name = "adddisk")]
    AddDisk(AddDisk),
    /// Unplug a disk; its claim is kept
    #[command(name = "removedisk", alias = "deldisk")]
    RemoveDisk(Remove),
    /// Plug a network interface in
    #[command(name = "addinterface")]
    AddInterface(AddInterface),
    /// Unplug a network interface
    #[command(name = "removeinterface", alias = "delinterface")]
    RemoveInterface(Remove),
    /// Act on DPUs
    #[command(subcommand)]
    Dpu(DpuCommand),
    /// Print a completion script
    Completion { shell: clap_complete::Shell },
    /// Print the versions of client and server
    Version {
        /// Do not ask the server
        #[arg(long)]
        client: bool,
    },
}

#[derive(Args, Debug)]
pub struct Get {
    /// Machines by name [default: all]
    pub machines: Vec<String>,
    /// In all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Label selector
    #[arg(short = 'l', long)]
    pub selector: Option<String>,
    #[arg(short, long, value_enum)]
    pub output: Option<Output>,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    Json,
    Yaml,
    Wide,
    Name,
}

/// What every verb that changes something has.
#[derive(Args, Debug, Clone)]
pub struct Change {
    /// Wait until the machine is there
    #[arg(long)]
    pub wait: bool,
    /// How long to wait, for example 90s, 5m or 1h
    #[arg(long, default_value = "10m", value_parser = duration)]
    pub timeout: Duration,
    /// Let the server check the change, without making it
    #[arg(long)]
    pub dry_run: bool,
    #[arg(short, long, value_enum)]
    pub output: Option<Output>,
}

#[derive(Args, Debug)]
pub struct Power {
    #[arg(required = true)]
    pub machines: Vec<String>,
    #[command(flatten)]
    pub change: Change,
}

#[derive(Args, Debug)]
pub struct AddDisk {
    pub machine: String,
    /// The disk's name in the machine
    pub disk: String,
    /// A PersistentVolumeClaim that exists (volumeMode: Block)
    #[arg(long, conflicts_with = "size", required_unless_present = "size")]
    pub claim: Option<String>,
    /// The size of a new, empty disk, for example 10Gi
    #[arg(long)]
    pub size: Option<String>,
    /// The StorageClass of a new disk [default: that of the machine's boot disk's image]
    #[arg(long, requires = "size")]
    pub storage_class: Option<String>,
    /// What the host sees
    #[arg(long, value_enum, default_value_t = Bus::NVMe, ignore_case = true)]
    pub bus: Bus,
    #[command(flatten)]
    pub change: Change,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bus {
    #[value(name = "NVMe")]
    NVMe,
    #[value(name = "VirtioBlk")]
    VirtioBlk,
}

#[derive(Args, Debug)]
pub struct AddInterface {
    pub machine: String,
    /// The interface's name; a VNic of this name that exists is taken, unless --subnet is given
    pub name: String,
    /// The Subnet in which a VNic is made
    #[arg(long, conflicts_with = "vnic", requires = "address")]
    pub subnet: Option<String>,
    /// An unused address of that Subnet; may be repeated
    #[arg(long, requires = "subnet")]
    pub address: Vec<String>,
    /// A VNic that exists
    #[arg(long)]
    pub vnic: Option<String>,
    #[command(flatten)]
    pub change: Change,
}

#[derive(Args, Debug)]
pub struct Remove {
    pub machine: String,
    /// The disk's or interface's name in the machine
    pub name: String,
    #[command(flatten)]
    pub change: Change,
}

#[derive(Subcommand, Debug)]
pub enum DpuCommand {
    /// List DPUs
    Get {
        #[arg(short, long, value_enum)]
        output: Option<Output>,
    },
    /// Give your word that a silent DPU is down and stays down, so that its disks may move
    ConfirmDown {
        /// The Dpu's UID (not its name: a DPU that was replaced has another)
        uid: String,
        /// Do not ask back
        #[arg(long)]
        yes: bool,
    },
}

fn duration(text: &str) -> Result<Duration, String> {
    let refused = || format!("must be a number with s, m or h behind it, for example 90s, 5m or 1h; is '{text}'");
    let split = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(refused)?;
    let number: u64 = text[..split].parse().map_err(|_| refused())?;
    let factor = match &text[split..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(refused()),
    };
    Ok(Duration::from_secs(number.saturating_mul(factor)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("2h"), Ok(Duration::from_secs(7200)));
        assert!(duration("90").is_err() && duration("m").is_err() && duration("5d").is_err());
    }
}
