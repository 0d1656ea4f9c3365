//! The command line. Short flags are those of SPDK's own programs.

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Serialize;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, Parser)]
#[command(name = "spdk-target", version = version::VERSION, disable_help_subcommand = true)]
/// An SPDK target, which presents bdevs as disks by vfio-user, vhost-user-blk and NVMe over fabrics
pub struct Cli {
    #[command(flatten)]
    pub spdk: Spdk,
    /// Serve the statistics of all bdevs to Prometheus there, under /metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics_listen: Option<SocketAddr>,
    #[command(subcommand)]
    pub what: Option<What>,
}

#[derive(Debug, Args)]
pub struct Spdk {
    /// Serve JSON-RPC there [default: /var/tmp/spdk.sock; with `io`: nowhere]
    #[arg(short = 'r', long, global = true, value_name = "SOCKET")]
    pub rpc_socket: Option<PathBuf>,
    /// JSON as SPDK's `save_config` writes it, done at the start
    #[arg(short = 'c', long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The cores to poll on, each of which is then always busy: a mask (0x3) or a list ([0,1])
    #[arg(short = 'm', long, global = true, value_name = "CORES", default_value = "0x1")]
    pub cpumask: String,
    /// MiB of memory; needed with --no-huge [default: all huge pages]
    #[arg(short = 's', long, global = true, value_name = "MIB", value_parser = clap::value_parser!(u32).range(64..))]
    pub mem_size: Option<u32>,
    /// Use ordinary memory instead of huge pages
    #[arg(long, global = true, requires = "mem_size")]
    pub no_huge: bool,
    /// A mounted hugetlbfs
    #[arg(long, global = true, value_name = "FOLDER")]
    pub huge_dir: Option<PathBuf>,
    /// Leave the machine's PCI devices alone
    #[arg(short = 'u', long, global = true)]
    pub no_pci: bool,
    /// Let others poll on the same cores
    #[arg(long, global = true)]
    pub disable_cpumask_locks: bool,
    /// Start subsystems and configuration only when `framework_start_init` is called
    #[arg(long, global = true)]
    pub wait_for_rpc: bool,
    /// Make vhost-user sockets there [default: the working directory]
    #[arg(short = 'S', long, global = true, value_name = "FOLDER")]
    pub vhost_folder: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum What {
    /// Read from or write to one bdev of the configuration, print what came of it as JSON, and end
    Io(Io),
}

#[derive(Debug, Args)]
pub struct Io {
    /// The bdev's name
    #[arg(long)]
    pub bdev: String,
    #[arg(long)]
    pub workload: Workload,
    /// Bytes per operation: a multiple of the bdev's blocks
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(512..=1 << 20))]
    pub io_size: u32,
    /// Operations that are on their way at once
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub queue_depth: u16,
    /// How long random operations are measured; half a second before is not
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=3600))]
    pub seconds: u16,
    /// Of the random places, and of the pattern
    #[arg(long, default_value_t = 1)]
    pub seed: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Read at random places
    RandomRead,
    /// Write at random places: what the bdev holds is lost
    RandomWrite,
    /// Write every block once, each with a content of its own: what the bdev holds is lost
    WritePattern,
    /// Read every block once; fail if one is not what write-pattern with the same seed has written there
    CheckPattern,
}

impl Workload {
    pub fn writes(self) -> bool {
        matches!(self, Self::RandomWrite | Self::WritePattern)
    }
}

pub fn read() -> Cli {
    Cli::parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_started_as_the_targets_of_spdk_are() {
        let words =
            "spdk-target -r /run/rpc.sock -m 0x1 --no-huge -s 1024 --no-pci --disable-cpumask-locks -S /run/vhost";
        let cli = Cli::try_parse_from(words.split(' ')).expect("they are taken");
        assert!(cli.what.is_none() && cli.spdk.no_huge && cli.spdk.no_pci && cli.spdk.disable_cpumask_locks);
        assert_eq!((cli.spdk.mem_size, cli.spdk.rpc_socket), (Some(1024), Some("/run/rpc.sock".into())));
    }

    #[test]
    fn ordinary_memory_has_a_size() {
        let refused = Cli::try_parse_from(["spdk-target", "--no-huge"]).expect_err("how much?");
        assert!(refused.to_string().contains("--mem-size"), "{refused}");
    }

    #[test]
    fn operations_take_the_same_flags_behind_them() {
        let words = "spdk-target io --bdev b --workload random-read -c /tmp/c.json -m 0x2 --no-huge -s 512";
        let cli = Cli::try_parse_from(words.split(' ')).expect("they are taken");
        assert_eq!((cli.spdk.cpumask.as_str(), cli.spdk.mem_size), ("0x2", Some(512)));
        let Some(What::Io(io)) = cli.what else { panic!("no operations") };
        assert_eq!((io.io_size, io.queue_depth, io.workload), (4096, 32, Workload::RandomRead));
    }
}
