//! The only reader of flags.

use clap::{Args, Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Parser)]
#[command(name = "bench", about = "Measures the figures of docs/benchmarks.md, one kind per run")]
pub struct Cli {
    #[command(subcommand)]
    pub what: What,
}

#[derive(Subcommand)]
pub enum What {
    /// Clones of a boot volume, by the image's size
    Clone,
    /// From apply to ping, hot-plug and deletion, on real parts
    Starts(Starts),
    /// A silent agent, until its Dpu says so
    Lost(Lost),
    /// Memory and idle processor time of agent and controller
    Footprint(Footprint),
    /// Disks of a machine that runs: attached natively, by a holder pod, by SPDK; and a move to other hardware
    Disks(Disks),
    /// Hot-plug, writes and restarts for a while; false alarms are counted
    Load(Load),
    /// The controller with many simulated servers, against a real API server
    Scale(Scale),
    /// The network at scale: the controller and OVN with many VNics
    Network(Network),
    /// Members of a Vpc that come: a VNic until it is in force and answers, a pod with a NIC until it runs
    Members(Members),
    /// Pods that ask for nothing: what the CNI plugin adds to their start and end; its size, and its start from the disk
    Pods(Pods),
    /// Disks by SPDK: vfio-user against the same bdev used directly
    Spdk(Spdk),
    /// Disks by SPDK: what a host feels while another disk comes, the disk grows, or the agent starts anew
    Stall(Stall),
    /// Network boot: DHCP, TFTP, HTTP, images onto disks, beside others' programs; memory with a large inventory
    Boot(Boot),
    /// The controller of `scale`, in a process of its own
    #[command(hide = true)]
    ScaleController(ScaleController),
    /// Write the tables of docs/benchmarks.md anew from the history
    Tables {
        /// Write nothing; fail if a table is not what would be written
        #[arg(long)]
        check: bool,
    },
}

#[derive(Args)]
pub struct Starts {
    /// How often the machine is started, from its creation to its deletion
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    pub starts: u16,
}

#[derive(Args)]
pub struct Lost {
    /// How often the agent is silenced
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    pub times: u16,
}

#[derive(Args)]
pub struct Members {
    /// VNics, one after the other
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=200))]
    pub vnics: u16,
    /// Changes of one rule, one after the other
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rules: u16,
    /// Pods with a NIC, and as many without, by turns
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    pub pods: u16,
}

#[derive(Args)]
pub struct Pods {
    /// How often each verb is called
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..))]
    pub times: u16,
    /// How often the plugin is started from the disk
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..))]
    pub cold: u16,
}

#[derive(Args)]
pub struct Footprint {
    /// Over how long the processor time is measured
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u16).range(10..))]
    pub seconds: u16,
}

#[derive(Args)]
pub struct Disks {
    /// How many disks are attached in each way, one after the other
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    pub times: u16,
    /// How often the machine moves
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub moves: u16,
}

#[derive(Args)]
pub struct Load {
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..))]
    pub minutes: u16,
}

#[derive(Args)]
pub struct Scale {
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..))]
    pub machines: u16,
    /// Milliseconds between two renewals of one agent's Lease
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(100..4000))]
    pub beat_ms: u32,
}

#[derive(Args)]
pub struct Network {
    /// VNics, in 50 Subnets and as many SecurityGroups of 20 rules each
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u16).range(100..=40_000))]
    pub vnics: u16,
    /// How often each change is made: a VNic made, a VNic deleted, a rule changed
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..))]
    pub changes: u16,
}

#[derive(Args)]
pub struct Spdk {
    /// Pairs of runs per kind of operation, one run of each right behind the other
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub pairs: u16,
    /// How long each run is measured
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=600))]
    pub seconds: u16,
}

#[derive(Args)]
pub struct Stall {
    /// How often each is done
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub times: u16,
}

#[derive(Args)]
pub struct Boot {
    /// Rounds, each with every server
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,
    /// Servers that ask for their addresses at once
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub clients: u16,
    /// Hardware in the large inventory
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u16).range(1..=50_000))]
    pub hardware: u16,
    /// The boot program that is fetched by TFTP, in MiB
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=30))]
    pub program_mib: u16,
    /// The image that is fetched by HTTP and written to a disk, in MiB
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u16).range(4..=8192))]
    pub image_mib: u16,
}

#[derive(Args)]
pub struct ScaleController {
    #[arg(long)]
    pub kubeconfig: PathBuf,
    #[arg(long)]
    pub http: SocketAddr,
    #[arg(long)]
    pub hosts: u16,
}

pub fn read() -> Cli {
    Cli::parse()
}
