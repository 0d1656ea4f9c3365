//! The only reader of flags and environment.

use clap::{Parser, ValueEnum};
use std::path::PathBuf;

/// The agent of one DPU: presents the disks and NICs that its namespace's attachments grant.
#[derive(Debug, Clone, Parser)]
#[command(name = "dpu-agent", version)]
pub struct Args {
    /// This node's name, which is the Dpu's too.
    #[arg(long, env = "NODE_NAME")]
    pub node_name: String,

    /// How to reach the API server with the bootstrap identity. Default: the pod's own service account.
    #[arg(long, env = "METALPLANE_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// A file whose content changes with every boot of the DPU.
    #[arg(
        long,
        env = "METALPLANE_BOOT_ID_FILE",
        value_name = "FILE",
        default_value = "/proc/sys/kernel/random/boot_id"
    )]
    pub boot_id_file: PathBuf,

    /// The QMP socket of the emulator that presents functions to the host.
    #[arg(
        long,
        env = "METALPLANE_SLOTS_SOCKET",
        value_name = "SOCKET",
        default_value = "/run/metalplane-host/slots.sock"
    )]
    pub slots_socket: PathBuf,

    /// Open vSwitch's database.
    #[arg(long, env = "METALPLANE_OVSDB", value_name = "ADDRESS", default_value = "unix:/run/openvswitch/db.sock")]
    pub ovsdb: String,

    /// The integration bridge that NICs are plugged into. It has to exist.
    #[arg(long, env = "METALPLANE_BRIDGE", default_value = "br-int")]
    pub bridge: String,

    /// A pool of the file driver: its name and its folder, the same path on every DPU. May be repeated.
    #[arg(
        long = "file-pool",
        env = "METALPLANE_FILE_POOLS",
        value_name = "NAME=DIR",
        value_delimiter = ',',
        value_parser = file_pool
    )]
    pub file_pools: Vec<(String, PathBuf)>,

    /// Where the agent keeps what a reboot has to forget: the record, seeds, its token, its socket.
    #[arg(long, env = "METALPLANE_RUN_DIR", value_name = "DIR", default_value = "/run/metalplane")]
    pub run_dir: PathBuf,

    #[arg(long, env = "METALPLANE_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// What to log: a level, or directives such as dpu_agent=debug,kube=warn.
    #[arg(long, env = "RUST_LOG", default_value = "info,kube_client::client::builder=off")]
    pub log_filter: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

fn file_pool(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, dir)) if !name.is_empty() && dir.starts_with('/') => Ok((name.into(), dir.into())),
        _ => Err("write NAME=/absolute/path".into()),
    }
}
