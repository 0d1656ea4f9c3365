//! Flags and environment: the only place that reads them. The examples of `--help` are in [`crate::help`].

use crate::complete::{self, Names};
use crate::verbs::args::VerbCommand;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use std::ffi::{OsStr, OsString};
use std::time::Duration;

/// Like kubectl, for bare-metal machines. Also runs as `kubectl bm`.
#[derive(Parser, Debug)]
#[command(name = "bmctl", version = runtime::version::VERSION, about, disable_help_subcommand = true, max_term_width = 100)]
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
    #[arg(long, global = true, env = "KUBECONFIG", hide_env = true)]
    pub kubeconfig: Option<String>,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// List machines
    Get(Get),
    /// Say why a machine is not ready, as a tree of reasons
    Explain {
        /// The machine
        #[arg(add = machines())]
        machine: String,
        /// The tree for programs
        #[arg(short, long, value_enum)]
        output: Option<Form>,
    },
    /// Show when each step of the last start began and ended
    Timeline {
        /// The machine
        #[arg(add = machines())]
        machine: String,
        /// The steps for programs
        #[arg(short, long, value_enum)]
        output: Option<Form>,
    },
    /// Power on and keep on (writes runStrategy: Always)
    Start(Power),
    /// Power off: the guest is asked first (writes runStrategy: Halted)
    Stop(Power),
    /// Reset once, warm
    Restart(Power),
    /// Install once more: the disks that the Template names are written again (boot.strategy: Workflow)
    Reinstall(Reinstall),
    /// Plug a disk in
    #[command(name = "adddisk")]
    AddDisk(AddDisk),
    /// Hot-unplug a disk; the disk's PersistentVolumeClaim is kept
    #[command(name = "removedisk", alias = "deldisk")]
    RemoveDisk(RemoveDisk),
    /// Plug a network interface in
    #[command(name = "addinterface")]
    AddInterface(AddInterface),
    /// Unplug a network interface
    #[command(name = "removeinterface", alias = "delinterface")]
    RemoveInterface(RemoveInterface),
    #[command(flatten)]
    Verb(VerbCommand),
    /// Act on DPUs
    #[command(subcommand)]
    Dpu(DpuCommand),
    /// Act on servers: those that were discovered, and those that machines give back
    #[command(subcommand)]
    Hardware(HardwareCommand),
    /// Look into Tinkerbell's Workflows
    #[command(subcommand, alias = "wf")]
    Workflow(WorkflowCommand),
    /// Look into the network
    #[command(subcommand)]
    Net(NetCommand),
    /// Print a completion script, which asks the cluster for names
    Completion {
        /// Whose completion; kubectl: that of `kubectl bm`
        shell: Shell,
    },
    /// Print the versions of client and server
    Version {
        /// Do not ask the server
        #[arg(long)]
        client: bool,
    },
    /// What kubectl's completion calls: prints the candidates for the last word
    #[command(name = "__complete", hide = true, disable_help_flag = true)]
    Candidates {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
}

pub fn machines() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| complete::names(Names::Machines, current))
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
    Kubectl,
}

/// How one thing is printed for programs.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Json,
    Yaml,
}

impl From<Form> for Output {
    fn from(form: Form) -> Self {
        match form {
            Form::Json => Self::Json,
            Form::Yaml => Self::Yaml,
        }
    }
}

#[derive(Args, Debug)]
pub struct Get {
    /// Machines by name [default: all]
    #[arg(add = machines())]
    pub machines: Vec<String>,
    /// In all namespaces
    #[arg(short = 'A', long, conflicts_with_all = ["namespace", "machines"])]
    pub all_namespaces: bool,
    /// Only machines with these labels, for example tier=web
    #[arg(short = 'l', long, conflicts_with = "machines")]
    pub selector: Option<String>,
    /// Another form than the table
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
    /// Wait until the change is done; what the machine waits for and the next command go to standard error
    #[arg(long)]
    pub wait: bool,
    /// How long to wait, for example 90s, 5m or 1h
    #[arg(long, default_value = "10m", value_parser = duration, requires = "wait")]
    pub timeout: Duration,
    /// Let the API server check the change, without making the change
    #[arg(long)]
    pub dry_run: bool,
    /// Print the machine as it now is (before the controller has acted), or its name
    #[arg(short, long, value_enum)]
    pub output: Option<Output>,
}

#[derive(Args, Debug)]
pub struct Power {
    /// Machines by name
    #[arg(required = true, add = machines())]
    pub machines: Vec<String>,
    #[command(flatten)]
    pub change: Change,
}

#[derive(Args, Debug)]
pub struct Reinstall {
    /// The machine
    #[arg(add = machines())]
    pub machine: String,
    /// Do not ask for the machine's name
    #[arg(short, long)]
    pub yes: bool,
    #[command(flatten)]
    pub change: Change,
}

#[derive(Args, Debug)]
pub struct AddDisk {
    /// The machine
    #[arg(add = machines())]
    pub machine: String,
    /// The disk's name in the machine
    pub disk: String,
    /// A PersistentVolumeClaim that exists (volumeMode: Block)
    #[arg(long, conflicts_with = "size", required_unless_present = "size",
        add = ArgValueCompleter::new(|current: &OsStr| complete::names(Names::Claims, current)))]
    pub claim: Option<String>,
    /// The size of a new, empty disk, for example 10Gi
    #[arg(long)]
    pub size: Option<String>,
    /// The StorageClass of a new disk [default: the cluster's]
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
    /// The machine
    #[arg(add = machines())]
    pub machine: String,
    /// The interface's name; an existing VNic of this name is used, unless --subnet is given
    pub name: String,
    /// The Subnet in which a VNic is made
    #[arg(long, conflicts_with = "vnic",
        add = ArgValueCompleter::new(|current: &OsStr| complete::names(Names::Subnets, current)))]
    pub subnet: Option<String>,
    /// An unused address of that Subnet; may be repeated [default: the controller chooses]
    #[arg(long, requires = "subnet")]
    pub address: Vec<String>,
    /// A VNic that exists
    #[arg(long, add = ArgValueCompleter::new(|current: &OsStr| complete::names(Names::VNics, current)))]
    pub vnic: Option<String>,
    #[command(flatten)]
    pub change: Change,
}

#[derive(Args, Debug)]
pub struct RemoveDisk {
    /// The machine
    #[arg(add = machines())]
    pub machine: String,
    /// The disk's name in the machine
    #[arg(add = ArgValueCompleter::new(|current: &OsStr| complete::names(Names::Disks, current)))]
    pub disk: String,
    #[command(flatten)]
    pub change: Change,
}

#[derive(Args, Debug)]
pub struct RemoveInterface {
    /// The machine
    #[arg(add = machines())]
    pub machine: String,
    /// The interface's name in the machine
    #[arg(add = ArgValueCompleter::new(|current: &OsStr| complete::names(Names::Interfaces, current)))]
    pub name: String,
    #[command(flatten)]
    pub change: Change,
}

#[derive(Subcommand, Debug)]
pub enum DpuCommand {
    /// List DPUs
    Get {
        /// Another form than the table
        #[arg(short, long, value_enum)]
        output: Option<Output>,
    },
    /// Give your word that a silent DPU is down and stays down, so that its disks may move
    ConfirmDown {
        /// The Dpu's UID (not its name: a DPU that was replaced has another)
        #[arg(add = ArgValueCompleter::new(|current: &OsStr| complete::names(Names::DpuUids, current)))]
        uid: String,
        /// Do not ask back
        #[arg(long)]
        yes: bool,
        /// Let the API server check the change, without making the change
        #[arg(long)]
        dry_run: bool,
    },
    /// Take an orphan (a disk or NIC that no attachment explains) from its host, running or not
    Forget {
        /// The Dpu
        #[arg(add = ArgValueCompleter::new(|current: &OsStr| complete::names(Names::Dpus, current)))]
        dpu: String,
        /// UIDs of status.orphans
        #[arg(required = true, value_name = "UID")]
        orphans: Vec<String>,
        /// Do not ask back
        #[arg(long)]
        yes: bool,
        /// Let the API server check the change, without making the change
        #[arg(long)]
        dry_run: bool,
    },
    /// Gather what a DPU, its server and BMC tell into one archive, without secrets; nothing is changed
    Report(crate::report::Report),
}

#[derive(Subcommand, Debug)]
pub enum WorkflowCommand {
    /// List Workflows and how far they are
    Get {
        /// Workflows by name, with their actions [default: all]
        #[arg(add = workflows())]
        workflows: Vec<String>,
        /// Another form than the table
        #[arg(short, long, value_enum)]
        output: Option<Output>,
    },
    /// Print what the actions of a Workflow said: of each its last lines; of the one that runs, where it is
    Logs {
        /// The Workflow
        #[arg(add = workflows())]
        workflow: String,
        /// Of this action alone
        #[arg(long, value_name = "NAME")]
        action: Option<String>,
    },
}

fn workflows() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| complete::names(Names::Workflows, current))
}

#[derive(Subcommand, Debug)]
pub enum HardwareCommand {
    /// List servers, who has them, and what became of their disks
    Get {
        /// Hardware by name, with all that is known of the disks [default: all]
        #[arg(add = hardware())]
        hardware: Vec<String>,
        /// Another form than the table
        #[arg(short, long, value_enum)]
        output: Option<Output>,
    },
    /// Approve a server that was discovered: machines may claim it then
    Approve {
        /// The Hardware
        #[arg(add = hardware())]
        hardware: String,
        /// The bmc.tinkerbell.org Machine of its BMC, in the namespace of the Hardware
        #[arg(long, value_name = "MACHINE")]
        bmc: Option<String>,
        /// Refuse, if the agent of the server has reported another serial number
        #[arg(long, value_name = "TEXT")]
        serial_number: Option<String>,
        #[command(flatten)]
        change: HardwareChange,
    },
    /// Try once more to erase the disks of a server that is given back
    Erase {
        /// The Hardware
        #[arg(add = hardware())]
        hardware: String,
        #[command(flatten)]
        change: HardwareChange,
    },
    /// Release a server although its disks are not erased
    Release {
        /// The Hardware
        #[arg(add = hardware())]
        hardware: String,
        /// The next machine can read what is on its disks
        #[arg(long, required = true)]
        with_data: bool,
        /// Do not ask for the Hardware's name
        #[arg(short, long)]
        yes: bool,
        #[command(flatten)]
        change: HardwareChange,
    },
}

/// What every verb that changes a Hardware has.
#[derive(Args, Debug, Clone, Copy)]
pub struct HardwareChange {
    /// Let the API server check the change, without making the change
    #[arg(long)]
    pub dry_run: bool,
    /// Print the Hardware as it now is (before the controller has acted), or its name
    #[arg(short, long, value_enum)]
    pub output: Option<Output>,
}

fn hardware() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| complete::names(Names::Hardware, current))
}

#[derive(Subcommand, Debug)]
pub enum NetCommand {
    /// Say whether a packet would pass, and which rule of which object decides; nothing is sent
    Trace(Trace),
}

#[derive(Args, Debug)]
pub struct Trace {
    /// Who sends: a VNic, a machine or MACHINE/INTERFACE, or an address
    #[arg(add = ends())]
    pub from: String,
    /// To whom: the same; an address means whoever has it in the other end's Vpc
    #[arg(add = ends())]
    pub to: String,
    #[command(flatten)]
    pub packet: PacketArgs,
    /// The steps for programs
    #[arg(short, long, value_enum)]
    pub output: Option<Form>,
}

/// The first packet of a connection.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub struct PacketArgs {
    /// TCP to this port
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub tcp: Option<u16>,
    /// UDP to this port
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub udp: Option<u16>,
    /// An ICMP echo request (ping)
    #[arg(long)]
    pub icmp: bool,
}

fn ends() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| complete::names(Names::Ends, current))
}

/// What the user called us: kubectl finds plug-ins by their file name.
pub fn program() -> &'static str {
    let own_name = std::env::args().next().unwrap_or_default();
    if own_name.ends_with("kubectl-bm") { "kubectl bm" } else { "bmctl" }
}

/// The words behind `--`: the command line that a shell wants to have completed.
pub fn typed() -> Vec<String> {
    let all = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    all.skip_while(|word| word != "--").skip(1).collect()
}

pub fn duration(text: &str) -> Result<Duration, String> {
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

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("2h"), Ok(Duration::from_secs(7200)));
        assert!(duration("90").is_err() && duration("m").is_err() && duration("5d").is_err());
    }
}
