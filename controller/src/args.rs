//! The only reader of flags and environment.

use clap::Parser;
use planner::host::InstallerIso;
use runtime::process::LogFormat;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Metalplane's controller: claims servers, gives them disks and NICs through their DPUs, and powers them.
#[derive(Debug, Clone, Parser)]
#[command(version = runtime::version::VERSION)]
pub struct Args {
    /// The kubeconfig to use. Default: the pod's own account.
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// The namespace of the controller's own objects: its Lease, golden volumes of cluster images.
    #[arg(long, env = "POD_NAMESPACE", default_value = "metalplane-system")]
    pub namespace: String,
    /// The namespace of Hardware, BMC Machines and HardwarePolicies.
    #[arg(long, env = "INVENTORY_NAMESPACE", default_value = "metalplane-inventory")]
    pub inventory_namespace: String,
    /// The namespace of the Secrets by which network boot tells installed systems about themselves (cloudInit of machines with
    /// boot.strategy: Workflow), and of nothing else.
    #[arg(long, env = "SEEDS_NAMESPACE", default_value = "metalplane-seeds")]
    pub seeds_namespace: String,
    /// Where /healthz, /readyz and /metrics are served.
    #[arg(long, default_value = "0.0.0.0:8080")]
    pub http: SocketAddr,
    /// This process's name in the Lease. Default: the pod's name or `controller`; a random part is added.
    #[arg(long, env = "POD_NAME", default_value = "controller")]
    pub identity: String,
    /// The image of holder pods, by which kubelet connects volumes on DPUs: anything that waits, such as pause.
    #[arg(long, env = "METALPLANE_HOLDER_IMAGE", default_value = "registry.k8s.io/pause:3.10.1")]
    pub holder_image: String,
    /// A Secret of type kubernetes.io/dockerconfigjson by which holder pods pull their image, in each namespace that has such pods. May be
    /// repeated.
    #[arg(
        long = "holder-pull-secret",
        env = "METALPLANE_HOLDER_PULL_SECRETS",
        value_name = "SECRET",
        value_delimiter = ','
    )]
    pub holder_pull_secrets: Vec<String>,
    /// A pool of the file driver: its name and its folder. With it the controller can make the pool refuse a DPU whose agent is
    /// silent. May be repeated.
    #[arg(
        long = "file-pool",
        env = "METALPLANE_FILE_POOLS",
        value_name = "NAME=DIR",
        value_delimiter = ',',
        value_parser = file_pool
    )]
    pub file_pools: Vec<(String, PathBuf)>,
    /// A storage node that serves volumes by NVMe over fabrics with SPDK, and the socket on which its target takes JSON-RPC. With
    /// it only who is granted a volume reaches it there, and the controller can make it refuse a DPU whose agent is silent. May
    /// be repeated.
    #[arg(
        long = "nvmeof-target",
        env = "METALPLANE_NVMEOF_TARGETS",
        value_name = "ADDRESS:PORT=SOCKET",
        value_delimiter = ',',
        value_parser = nvmeof_target
    )]
    pub nvmeof_targets: Vec<(String, PathBuf)>,
    /// A Ceph cluster by its clusterID, and the user and the configuration file by which the controller reaches it. With it the
    /// controller can make the cluster refuse a DPU whose agent is silent. May be repeated.
    #[arg(
        long = "ceph-cluster",
        env = "METALPLANE_CEPH_CLUSTERS",
        value_name = "ID=USER@FILE",
        value_delimiter = ',',
        value_parser = ceph_cluster,
        requires = "ceph_programs"
    )]
    pub ceph_clusters: Vec<CephCluster>,
    /// The folder of Ceph's programs rbd, rados and ceph.
    #[arg(long, env = "METALPLANE_CEPH_PROGRAMS", value_name = "DIR")]
    pub ceph_programs: Option<PathBuf>,
    /// OVN's north-bound database, in the notation of ovn-nbctl(8): ssl:ADDRESS:PORT, tcp:ADDRESS:PORT or unix:/path; of a cluster all
    /// servers, separated by commas: its leader is found. Left out: no NIC can be attached.
    #[arg(long, env = "METALPLANE_OVN_NB", value_name = "DATABASE")]
    pub ovn_nb: Option<ovsdb::Addresses>,
    /// OVN's south-bound database, in the same notation; it is only read. Left out: no Subnet or SecurityGroup is ever said to be in
    /// force.
    #[arg(long, env = "METALPLANE_OVN_SB", value_name = "DATABASE", requires = "ovn_nb")]
    pub ovn_sb: Option<ovsdb::Addresses>,
    /// For ssl: the certificate that the controller shows to OVN's databases, as PEM. This and the two other files are read anew for
    /// each connection.
    #[arg(
        long,
        env = "METALPLANE_OVN_CERTIFICATE",
        value_name = "FILE",
        requires_all = ["ovn_nb", "ovn_private_key", "ovn_ca_cert"]
    )]
    pub ovn_certificate: Option<PathBuf>,
    /// For ssl: the private key of that certificate, as PEM.
    #[arg(long, env = "METALPLANE_OVN_PRIVATE_KEY", value_name = "FILE", requires = "ovn_certificate")]
    pub ovn_private_key: Option<PathBuf>,
    /// For ssl: the certificate of the authority that has signed those of OVN's databases, as PEM.
    #[arg(long, env = "METALPLANE_OVN_CA_CERT", value_name = "FILE", requires = "ovn_certificate")]
    pub ovn_ca_cert: Option<PathBuf>,
    /// For ssl: the DNS name or address that the certificates of the databases have to have as subjectAltName; HOST: that of the
    /// address that is connected to. Left out: any certificate of the authority will do, as with OVN's own clients.
    #[arg(long, env = "METALPLANE_OVN_SERVER_NAME", value_name = "NAME", requires = "ovn_certificate")]
    pub ovn_server_name: Option<ovsdb::Named>,
    /// Makes a Hardware of each server that boots from the network and that no Hardware names, once its agent has reported what it is.
    /// Nobody can claim it before `bmctl hardware approve`. Left out: none is made.
    #[arg(long, env = "METALPLANE_DISCOVER")]
    pub discover: bool,
    /// Where BMCs read the installer's ISO, for servers that nothing else brings to boot it: http://ADDRESS:PORT/iso/{mac}/NAME.iso, with an
    /// address of boot; each server has its MAC address in the place of {mac}. Left out: no BMC is told of one.
    #[arg(long, env = "METALPLANE_INSTALLER_ISO", value_name = "URL")]
    pub installer_iso: Option<InstallerIso>,
    /// Finds the boot option of a DPU's disk when its server joins: a server that is off and that nobody has is started into its firmware's setup.
    /// Left out: the first start of a machine finds it.
    #[arg(long, env = "METALPLANE_DISCOVER_BOOT_OPTIONS")]
    pub discover_boot_options: bool,
    /// How many objects of one kind are worked on at the same time.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    pub concurrency: u16,
    /// How many BMCs are talked to at the same time.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..))]
    pub bmc_concurrency: u16,
    /// The authorities that vouch for the BMCs' certificates, in PEM, instead of the public ones. A BMC's own Secret may name others
    /// (`ca.crt`). Read whenever a session is opened.
    #[arg(long, env = "METALPLANE_BMC_CA_FILE", value_name = "FILE")]
    pub bmc_ca_file: Option<PathBuf>,
    /// What is logged, as for `RUST_LOG`.
    #[arg(long, env = "RUST_LOG", default_value = "info")]
    pub log: String,
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CephCluster {
    pub id: String,
    pub user: String,
    pub config_file: PathBuf,
}

fn file_pool(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, dir)) if !name.is_empty() && dir.starts_with('/') => Ok((name.into(), dir.into())),
        _ => Err("write NAME=/absolute/path".into()),
    }
}

fn ceph_cluster(text: &str) -> Result<CephCluster, String> {
    let cluster = || {
        let (id, rest) = text.split_once('=')?;
        let (user, file) = rest.split_once('@')?;
        let whole = !id.is_empty() && !user.is_empty() && file.starts_with('/');
        whole.then(|| CephCluster { id: id.into(), user: user.into(), config_file: file.into() })
    };
    cluster().ok_or_else(|| "write ID=USER@/path/of/ceph.conf, the user without `client.`".into())
}

fn nvmeof_target(text: &str) -> Result<(String, PathBuf), String> {
    match text.rsplit_once('=') {
        Some((place, socket)) if place.parse::<SocketAddr>().is_ok() && socket.starts_with('/') => {
            Ok((place.into(), socket.into()))
        }
        _ => Err("write ADDRESS:PORT=/path/of/the/socket, the address as the volumes have it".into()),
    }
}
