//! Where everything of one sandbox is, and which addresses it has. Nothing else in the crate builds these names.
//!
//! All addresses live in namespaces of the sandbox's own, so every sandbox has the same ones.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use anyhow::{Result, bail};

/// Short on purpose: a unix socket's path has room for 107 bytes.
const ROOT: &str = "/var/tmp/metalplane";

pub const API_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
pub const API_PORT: u16 = 6443;
pub const SERVICE_CIDR: &str = "10.96.0.0/16";
pub const API_SERVICE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
pub const POD_CIDR: &str = "10.244.0.0/16";
/// The control plane's network is entered by this name, like a node's.
pub const CONTROL_PLANE: &str = "cp";
/// A network that is none of the site's, with one host: the way out of logical networks leads there. It is entered by this name.
pub const OUTSIDE: &str = "outside";
/// That host's addresses (RFC 5737, RFC 3849).
pub const OUTSIDE_ADDRESSES: [&str; 2] = ["203.0.113.1/24", "2001:db8:1::1/64"];
/// Process group of etcd, the API server and the rest.
pub const CONTROL_PLANE_GROUP: &str = "control-plane";

/// All paths of one sandbox.
#[derive(Clone, Debug)]
pub struct Layout {
    pub name: String,
    pub dir: PathBuf,
}

impl Layout {
    pub fn new(name: &str) -> Result<Self> {
        let letters = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if name.is_empty() || name.len() > 20 || !letters || name.starts_with('-') {
            bail!("sandbox name {name:?}: use 1 to 20 lower-case letters, digits and dashes");
        }
        Ok(Self { name: name.to_owned(), dir: PathBuf::from(ROOT).join(name) })
    }

    /// Folder of all sandboxes.
    pub fn root() -> PathBuf {
        PathBuf::from(ROOT)
    }

    pub fn control_socket(&self) -> PathBuf {
        self.dir.join("control.sock")
    }

    /// This very program, kept from being rebuilt under a running sandbox.
    pub fn program(&self) -> PathBuf {
        self.dir.join("sandbox")
    }

    pub fn ready(&self) -> PathBuf {
        self.dir.join("ready.json")
    }

    /// What runs, for a later run to clean up after this one was killed.
    pub fn processes(&self) -> PathBuf {
        self.dir.join("processes.json")
    }

    pub fn log(&self, process: &str) -> PathBuf {
        self.dir.join("logs").join(format!("{process}.log"))
    }

    pub fn pki(&self) -> PathBuf {
        self.dir.join("pki")
    }

    /// Administrator's kubeconfig for use inside the namespaces.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.dir.join("admin.kubeconfig")
    }

    /// Administrator's kubeconfig for the caller's own shell.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// Databases and sockets of OVN's central part.
    pub fn ovn(&self) -> PathBuf {
        self.dir.join("ovn")
    }

    pub fn pool(&self) -> PathBuf {
        self.dir.join("pool")
    }

    pub fn pool_image(&self) -> PathBuf {
        self.dir.join("pool.img")
    }

    pub fn node_dir(&self, node: &str) -> PathBuf {
        self.dir.join("nodes").join(node)
    }

    /// Script that runs a command inside the node.
    pub fn enter(&self, node: &str) -> PathBuf {
        self.node_dir(node).join("enter")
    }

    /// What the node runs between ovsdb-server and ovs-vswitchd, if it is there: the unit that somebody ordered between the two.
    pub fn before_switch(&self, node: &str) -> PathBuf {
        self.node_dir(node).join("before-ovs-vswitchd")
    }

    pub fn server_dir(&self, server: &str) -> PathBuf {
        self.dir.join("servers").join(server)
    }

    /// Name of the network namespace of a node or of the control plane.
    pub fn netns(&self, node: &str) -> String {
        format!("mp-{}-{node}", self.name)
    }

    pub fn netns_file(&self, node: &str) -> PathBuf {
        PathBuf::from("/run/netns").join(self.netns(node))
    }

    /// Control group of the sandbox, from the root of a hierarchy.
    pub fn cgroup(&self) -> String {
        format!("/metalplane-{}", self.name)
    }

    pub fn node_cgroup(&self, group: &str) -> String {
        format!("{}/{group}", self.cgroup())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    Dpu,
    Ordinary,
}

/// A node's name and everything that follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeId {
    pub name: String,
    pub kind: NodeKind,
    /// The number at the end of its name.
    pub number: u8,
}

impl NodeId {
    pub fn parse(name: &str) -> Result<Self> {
        let Some((prefix, number)) = name.rsplit_once('-') else { bail!("node {name:?}: name it dpu-1, node-1, …") };
        let kind = match prefix {
            "dpu" => NodeKind::Dpu,
            "node" => NodeKind::Ordinary,
            _ => bail!("node {name:?}: a DPU is called dpu-N, an ordinary node node-N"),
        };
        match number.parse() {
            Ok(number @ 1..=9) => Ok(Self { name: name.to_owned(), kind, number }),
            _ => bail!("node {name:?}: the number is 1 to 9"),
        }
    }

    pub fn is_dpu(&self) -> bool {
        self.kind == NodeKind::Dpu
    }

    fn last_octet(&self) -> u8 {
        match self.kind {
            NodeKind::Dpu => 10 + self.number,
            NodeKind::Ordinary => 20 + self.number,
        }
    }

    /// Address on the management network: kubelet's.
    pub fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, self.last_octet())
    }

    /// On the provisioning network, where there is one.
    pub fn provisioning_address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 88, 0, self.last_octet())
    }

    /// Geneve endpoint.
    pub fn tunnel_address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 78, 0, self.last_octet())
    }

    pub fn pod_cidr(&self) -> String {
        format!("10.244.{}.0/24", self.last_octet())
    }

    /// The virtual server whose DPU this is.
    pub fn server(&self) -> Option<String> {
        self.is_dpu().then(|| format!("server-{}", self.number))
    }
}

/// The kind of server that has no DPU, but a NIC on the provisioning network.
pub const BARE: &str = "bare";

/// The provisioning network: its gateway is the control plane's leg, which forwards nothing.
pub const PROVISIONING_GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 1);
/// What an ordinary node calls its leg there.
pub const PROVISIONING_LEG: &str = "prov0";

/// What a server's NIC on the provisioning network has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provisioned {
    pub tap: String,
    pub mac: String,
    pub address: Ipv4Addr,
}

impl Provisioned {
    pub fn of(server: &str) -> Result<Self> {
        let number = bmc_address(server)?.octets()[3] - 100;
        Ok(Self {
            tap: format!("p-{server}"),
            mac: format!("52:54:00:88:00:{number:02x}"),
            address: Ipv4Addr::new(10, 88, 0, 100 + number),
        })
    }
}

/// Of the BMC of the DPU in it, at the same address and with the same account.
pub const DPU_BMC_PORT: u16 = 444;

/// Address of the BMC of `server-N`.
pub fn bmc_address(server: &str) -> Result<Ipv4Addr> {
    match server.strip_prefix("server-").map(str::parse) {
        Some(Ok(number @ 1..=9)) => Ok(Ipv4Addr::new(10, 77, 0, 100 + number)),
        _ => bail!("server {server:?}: name it server-1 to server-9"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_known_by_its_name() {
        let dpu = NodeId::parse("dpu-2").expect("a DPU");
        assert!(dpu.is_dpu());
        assert_eq!(dpu.address().to_string(), "10.77.0.12");
        assert_eq!(dpu.tunnel_address().to_string(), "10.78.0.12");
        assert_eq!(dpu.server().as_deref(), Some("server-2"));
        let node = NodeId::parse("node-1").expect("a node");
        assert_eq!(node.address().to_string(), "10.77.0.21");
        assert_eq!((node.pod_cidr().as_str(), node.server()), ("10.244.21.0/24", None));
        assert_eq!(node.provisioning_address().to_string(), "10.88.0.21");
        let nic = Provisioned::of("server-3").expect("a server");
        assert_eq!((nic.mac.as_str(), nic.address.to_string().as_str()), ("52:54:00:88:00:03", "10.88.0.103"));
        for wrong in ["dpu", "dpu-0", "dpu-10", "worker-1", "node-x"] {
            assert!(NodeId::parse(wrong).is_err(), "{wrong} should be refused");
        }
    }

    #[test]
    fn a_sandbox_name_cannot_leave_its_folder() {
        for wrong in ["", "../x", "a/b", "A", "-a", "a-name-that-is-far-too-long"] {
            assert!(Layout::new(wrong).is_err(), "{wrong:?} should be refused");
        }
        assert_eq!(Layout::new("demo").expect("a good name").netns("dpu-1"), "mp-demo-dpu-1");
    }
}
