//! The only reader of flags and environment.

use crate::{DRIVER, pool::is_node_id, proxy::PROXY_DRIVER};
use clap::{Parser, ValueEnum};
use runtime::process::LogFormat;
use std::{net::SocketAddr, path::PathBuf};

/// The CSI driver csi.metalplane.io: volumes, clones and snapshots as reflinked image files.
#[derive(Debug, Clone, Parser)]
#[command(name = "csi", version = runtime::version::VERSION)]
pub struct Args {
    /// Where the driver listens.
    #[arg(long, default_value = "unix:///csi/csi.sock", value_parser = unix_path)]
    pub csi_address: PathBuf,

    /// Which services to serve.
    #[arg(long, value_enum, default_value_t = Mode::All)]
    pub mode: Mode,

    /// Proxy mode: serve one half of proxy.csi.metalplane.io instead, whose volumes are disks of bare-metal machines.
    #[arg(long, value_enum, conflicts_with_all = ["mode", "pools", "lvol_pools"])]
    pub proxy: Option<Half>,

    /// The namespace of the machines that are the workers, and of the claims that are their volumes.
    #[arg(long, value_name = "NAMESPACE", required_if_eq("proxy", "controller"), conflicts_with_all = ["mode", "pools"])]
    pub machine_namespace: Option<String>,

    /// A kubeconfig of the cluster with the machines; without it the cluster that the driver itself runs in.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["mode", "pools"])]
    pub machine_kubeconfig: Option<PathBuf>,

    /// This node's name; needed by the node service. In proxy mode it has to be the name of the node's machine.
    #[arg(
        long,
        env = "NODE_NAME",
        required_if_eq_any = [("mode", "node"), ("mode", "all"), ("proxy", "node")],
        value_parser = node_id
    )]
    pub node_id: Option<String>,

    /// A pool: the name that a StorageClass gives in parameters.pool, and its folder. May be repeated. The folder has
    /// to be the same path wherever the pool is used.
    #[arg(long = "pool", value_name = "NAME=DIR", required_unless_present_any = ["proxy", "lvol_pools"], value_parser = pool)]
    pub pools: Vec<(String, PathBuf)>,

    /// A pool of logical volumes on a storage node that runs SPDK: its name, the target's JSON-RPC socket, the lvstore, and
    /// where DPUs reach the target by NVMe/TCP. May be repeated. LARGEST: how large a clone of any snapshot may become
    /// without a copy, in GiB.
    #[arg(
        long = "lvol-pool",
        value_name = "NAME=SOCKET,LVSTORE,ADDRESS:PORT[,LARGEST]",
        conflicts_with = "machine_namespace",
        value_parser = lvol_pool
    )]
    pub lvol_pools: Vec<LvolPool>,

    /// Where the records of lvol pools are, a folder each. It has to outlive the driver: what is not in the lvstore is there.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/metalplane-csi")]
    pub lvol_records: PathBuf,

    /// The driver's socket as kubelet sees it, for example /var/lib/kubelet/plugins/csi.metalplane.io/csi.sock. With it
    /// the driver registers itself with kubelet.
    #[arg(long, value_name = "PATH")]
    pub kubelet_registration_path: Option<PathBuf>,

    /// The folder in which kubelet looks for plugins.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet/plugins_registry")]
    pub plugin_registration_dir: PathBuf,

    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// What to log: a level, or directives such as csi=debug,tonic=warn.
    #[arg(long, env = "RUST_LOG", default_value = "info")]
    pub log_filter: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LvolPool {
    pub name: String,
    pub socket: PathBuf,
    pub lvstore: String,
    pub address: SocketAddr,
    /// Bytes.
    pub largest: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    Controller,
    Node,
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Half {
    // Claims and machines, through the Kubernetes API.
    Controller,
    // Disks, filesystems and mounts of this node.
    Node,
}

impl Args {
    pub fn driver(&self) -> &'static str {
        if self.proxy.is_some() { PROXY_DRIVER } else { DRIVER }
    }

    /// The node id where the node service is to be served.
    pub fn node(&self) -> Option<&str> {
        let serves = self.proxy.map_or(self.mode != Mode::Controller, |half| half == Half::Node);
        self.node_id.as_deref().filter(|_| serves)
    }

    pub fn serves_controller(&self) -> bool {
        self.proxy.map_or(self.mode != Mode::Node, |half| half == Half::Controller)
    }

    pub fn registration_socket(&self) -> PathBuf {
        self.plugin_registration_dir.join(format!("{}-reg.sock", self.driver()))
    }
}

fn unix_path(text: &str) -> Result<PathBuf, String> {
    let path = text.strip_prefix("unix://").or(text.strip_prefix("unix:")).unwrap_or(text);
    if path.starts_with('/') { Ok(path.into()) } else { Err("write unix:///absolute/path".into()) }
}

fn node_id(text: &str) -> Result<String, String> {
    if is_node_id(text) {
        Ok(text.into())
    } else {
        Err("a node name is lower-case letters, digits, '-' and '.'".into())
    }
}

fn pool(text: &str) -> Result<(String, PathBuf), String> {
    let (name, dir) = text.split_once('=').ok_or("write NAME=DIR")?;
    let name = pool_name(name)?;
    if dir.starts_with('/') { Ok((name, dir.into())) } else { Err("DIR is an absolute path".into()) }
}

/// In GiB, where nobody says.
const LARGEST: u64 = 1024;

fn lvol_pool(text: &str) -> Result<LvolPool, String> {
    let wrong = || "write NAME=/path/of/the/socket,LVSTORE,ADDRESS:PORT, and ,GIB for the largest clone".to_owned();
    let (name, rest) = text.split_once('=').ok_or_else(wrong)?;
    let parts: Vec<&str> = rest.split(',').collect();
    let (socket, lvstore, address, largest) = match parts.as_slice() {
        [socket, lvstore, address] => (*socket, *lvstore, *address, LARGEST),
        [socket, lvstore, address, gib] => (*socket, *lvstore, *address, gib.parse().map_err(|_| wrong())?),
        _ => return Err(wrong()),
    };
    let address: SocketAddr = address.parse().map_err(|_| wrong())?;
    if !socket.starts_with('/') || lvstore.is_empty() || lvstore.contains('/') || !(1..=1 << 20).contains(&largest) {
        return Err(wrong());
    }
    if address.ip().is_unspecified() || address.port() == 0 {
        return Err("ADDRESS:PORT is what DPUs connect to: the storage node's own".into());
    }
    let (name, lvstore) = (pool_name(name)?, lvstore.to_owned());
    Ok(LvolPool { name, socket: socket.into(), lvstore, address, largest: largest << 30 })
}

fn pool_name(name: &str) -> Result<String, String> {
    let known = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    // Also what a label of a Node may end with.
    if !(1..=63).contains(&name.len()) || !name.bytes().all(known) || name.starts_with('-') || name.ends_with('-') {
        return Err("a pool's name is 1 to 63 lower-case letters, digits and '-', the last not at either end".into());
    }
    Ok(name.into())
}

#[cfg(test)]
mod tests {
    use super::{Args, Mode};
    use clap::Parser;
    use std::path::Path;

    fn parse(flags: &[&str]) -> Result<Args, String> {
        Args::try_parse_from([&["csi"], flags].concat()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_usual_flags() {
        let args = parse(&["--node-id", "dpu-1", "--pool", "fast=/p/a", "--pool", "slow=/p/b"]).expect("valid flags");
        assert_eq!(args.csi_address, Path::new("/csi/csi.sock"));
        assert_eq!((args.mode, args.node(), args.pools.len()), (Mode::All, Some("dpu-1"), 2));
        let socket = Path::new("/var/lib/kubelet/plugins_registry/csi.metalplane.io-reg.sock");
        assert_eq!(args.registration_socket(), socket);
    }

    #[test]
    fn a_controller_needs_no_node_and_nobody_goes_without_a_pool() {
        let args = parse(&["--mode", "controller", "--pool", "fast=/p"]).expect("valid flags");
        assert!(args.node().is_none() && args.serves_controller());
        assert!(parse(&["--mode", "node", "--pool", "fast=/p"]).is_err());
        assert!(parse(&["--mode", "controller"]).is_err());
    }

    #[test]
    fn an_lvol_pool_says_where_its_volumes_are() {
        let flags = ["--mode", "controller", "--lvol-pool", "fast=/run/spdk/rpc.sock,lvs0,192.0.2.1:4420"];
        let args = parse(&flags).expect("a pool of either kind is enough");
        let [pool] = args.lvol_pools.as_slice() else { panic!("{args:?}") };
        assert_eq!((pool.name.as_str(), pool.lvstore.as_str(), pool.largest), ("fast", "lvs0", 1 << 40));
        assert_eq!(pool.address.to_string(), "192.0.2.1:4420");
        for wrong in [
            "fast=/s,lvs0",
            "fast=s,lvs0,192.0.2.1:4420",
            "fast=/s,a/b,192.0.2.1:4420",
            "fast=/s,lvs0,storage:4420",
            "fast=/s,lvs0,0.0.0.0:4420",
            "fast=/s,lvs0,192.0.2.1:4420,much",
            "fast=/s,lvs0,192.0.2.1:4420,0",
            "Fast=/s,lvs0,192.0.2.1:4420",
        ] {
            assert!(parse(&["--mode", "controller", "--lvol-pool", wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn proxy_mode_has_machines_in_place_of_pools() {
        let controller = parse(&["--proxy", "controller", "--machine-namespace", "workers"]).expect("valid flags");
        assert!(controller.serves_controller() && controller.node().is_none());
        assert_eq!(controller.driver(), "proxy.csi.metalplane.io");
        let node = parse(&["--proxy", "node", "--node-id", "bm-01"]).expect("valid flags");
        assert_eq!((node.node(), node.serves_controller()), (Some("bm-01"), false));
        assert!(node.registration_socket().ends_with("proxy.csi.metalplane.io-reg.sock"));
        for flags in [
            &["--proxy", "controller"][..],
            &["--proxy", "node"],
            &["--proxy", "node", "--node-id", "bm-01", "--pool", "fast=/p"],
            &["--mode", "controller", "--pool", "fast=/p", "--machine-namespace", "workers"],
            &["--node-id", "dpu-1", "--pool", "fast=/p", "--machine-kubeconfig", "/x"],
        ] {
            assert!(parse(flags).is_err(), "{flags:?}");
        }
    }

    #[test]
    fn what_cannot_be_right_is_refused() {
        for flags in
            [["--pool", "fast"], ["--pool", "Fast=/p"], ["--pool", "fast=p"], ["--pool", "=/p"], ["--pool", "fast-=/p"]]
        {
            assert!(parse(&[&["--mode", "controller"], &flags[..]].concat()).is_err(), "{flags:?}");
        }
        assert!(parse(&["--pool", "a=/p", "--node-id", "../x"]).is_err());
        assert!(parse(&["--pool", "a=/p", "--node-id", "n", "--csi-address", "tcp://1.2.3.4:5"]).is_err());
    }
}
