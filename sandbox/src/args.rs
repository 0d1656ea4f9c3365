//! Flags of the `sandbox` program. The only reader of flags and environment.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::relay::Place;

#[derive(Parser)]
#[command(name = "sandbox", version, about = "A whole Metalplane site on one machine: cluster, DPUs, virtual servers")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Start a sandbox and stay in the foreground until it is ended (Ctrl-C, SIGTERM or `sandbox down`)
    Run(Run),
    /// End a sandbox, clean up what it left, and show that nothing is left
    Down(Name),
    /// Show what runs
    Status(Status),
    /// Run a command inside a node (dpu-1, node-1, …) or the control plane's network (cp)
    Enter(Enter),
    /// Import an image file (OCI layout tar) into every node that does not have it yet
    LoadImage(LoadImage),
    /// Switch a DPU off (everything killed, /run wiped) or on (a fresh boot)
    Power(Power),
    /// Send one request to the supervisor's control socket and print the answer
    Control(Control),
    /// Run one virtual server: QEMU with a BMC and a slots socket
    VirtualServer(VirtualServer),
    /// Build an image that virtual servers boot, and print its path
    GuestImage(GuestImage),
    /// Serve the files of a folder by HTTP (golden images, to the agents that import them)
    #[command(hide = true)]
    ServeFiles(ServeFiles),
    /// Pass connections on from one socket to another, each of them tcp:ADDRESS:PORT or unix:/PATH
    #[command(hide = true)]
    Relay(Relay),
    /// Become a process of a sandbox: enter its namespaces and control group, then execute the command
    #[command(hide = true)]
    Launch(Launch),
    /// Keep a node's mount namespace
    #[command(hide = true)]
    Hold(Hold),
}

#[derive(Args, Clone)]
pub struct Name {
    /// Name of the sandbox; several can run at once
    #[arg(long, default_value = "demo")]
    pub name: String,
}

#[derive(Args)]
pub struct Run {
    #[command(flatten)]
    pub name: Name,
    /// Nodes to start: dpu-N is a DPU, anything else an ordinary node
    #[arg(long, value_delimiter = ',', default_value = "dpu-1,dpu-2,node-1")]
    pub nodes: Vec<String>,
    /// Virtual servers to start: server-N sits behind dpu-N
    #[arg(long, value_delimiter = ',', default_value = "server-1,server-2")]
    pub servers: Vec<String>,
    /// Memory of each virtual server, in MiB
    #[arg(long, default_value_t = 512)]
    pub server_memory_mib: u32,
    /// Processors of each virtual server
    #[arg(long, default_value_t = 1)]
    pub server_vcpus: u32,
    /// What kind of server one is (standby, shared-power, forgets-overrides, local-disk, bare: without a DPU); without it, standby
    #[arg(long, value_delimiter = ',', value_name = "SERVER=KIND", value_parser = server_and_kind)]
    pub personality: Vec<(String, String)>,
    /// Servers take their disks from a target on their DPU, by vfio-user
    #[arg(long)]
    pub vfio_user: bool,
    /// Size of the shared storage pool in GiB (a sparse file)
    #[arg(long, default_value_t = 40)]
    pub pool_gib: u64,
    /// Folder with Kubernetes programs to use instead of building them (when it has all of a fitting version)
    #[arg(long, env = "KUBEBUILDER_ASSETS")]
    pub kubernetes: Option<PathBuf>,
    /// End when standard input is closed: for a test that may be killed
    #[arg(long)]
    pub end_with_stdin: bool,
}

impl Run {
    /// The server has no DPU.
    pub fn is_bare(&self, server: &str) -> bool {
        self.personality.iter().any(|(name, kind)| name == server && kind == crate::layout::BARE)
    }
}

#[derive(Args)]
pub struct Status {
    #[command(flatten)]
    pub name: Name,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct Enter {
    #[command(flatten)]
    pub name: Name,
    /// dpu-1, node-1, … or cp
    pub node: String,
    /// Command and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    pub command: Vec<String>,
}

#[derive(Args)]
pub struct LoadImage {
    #[command(flatten)]
    pub name: Name,
    /// Image file, as `cargo xtask image` writes it
    pub tar: PathBuf,
    /// Only into these nodes
    #[arg(long, value_delimiter = ',')]
    pub nodes: Option<Vec<String>>,
}

#[derive(Args)]
pub struct Power {
    #[command(flatten)]
    pub name: Name,
    /// dpu-1, dpu-2, …
    pub dpu: String,
    #[arg(value_parser = ["on", "off"])]
    pub state: String,
}

#[derive(Args)]
pub struct Control {
    #[command(flatten)]
    pub name: Name,
    /// For example '{"op":"list"}'
    pub request: String,
}

#[derive(Args)]
pub struct VirtualServer {
    /// The server's description (JSON)
    #[arg(long)]
    pub config: PathBuf,
}

#[derive(Args)]
pub struct GuestImage {
    /// Which image
    pub kind: String,
    /// Where to write it; without it, a cached file is made or reused
    #[arg(long)]
    pub out: Option<PathBuf>,
}

#[derive(Args)]
pub struct ServeFiles {
    /// Address and port
    #[arg(long)]
    pub listen: std::net::SocketAddr,
    /// The folder; files in it are served by their names
    #[arg(long)]
    pub folder: PathBuf,
}

#[derive(Args)]
pub struct Relay {
    /// Where connections come in
    #[arg(long)]
    pub listen: Place,
    /// Where they go to
    #[arg(long)]
    pub to: Place,
}

#[derive(Args)]
pub struct Launch {
    /// Control group to join: the full path of its folder
    #[arg(long)]
    pub cgroup: Option<PathBuf>,
    /// Network namespace to enter, by its file
    #[arg(long)]
    pub netns: Option<PathBuf>,
    /// Node to enter (its mounts and its host name), by the id of its holder
    #[arg(long)]
    pub node_of: Option<i32>,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    pub command: Vec<String>,
}

#[derive(Args)]
pub struct Hold {
    /// The node's description (JSON), written by the supervisor
    #[arg(long)]
    pub config: PathBuf,
}

/// Where built and fetched things are kept between runs.
pub fn cache_folder() -> PathBuf {
    let home = || std::env::var_os("HOME").map_or_else(|| PathBuf::from("/root"), PathBuf::from).join(".cache");
    std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("metalplane")
}

fn server_and_kind(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').ok_or("write SERVER=KIND, for example server-2=shared-power")?;
    Ok((pair.0.to_owned(), pair.1.to_owned()))
}
