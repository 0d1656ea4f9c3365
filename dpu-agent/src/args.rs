//! The only reader of flags and environment.

use crate::eraser::Erasers;
use crate::hold_disk::HoldDisks;
use api::dpu::DpuType;
use clap::{Parser, ValueEnum};
use planner::exposure::Limits;
use runtime::process::LogFormat;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The agent of one DPU: presents the disks and NICs that its namespace's attachments grant. Or of an ordinary node, with --pods; or of a
/// machine that is a worker, with --worker.
#[derive(Debug, Clone, Parser)]
#[command(name = "dpu-agent", version = runtime::version::VERSION)]
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

    /// This node is an ordinary one, and no DPU: the agent presents nothing to a host, and gives NICs to the node's pods. Its Dpu
    /// is of type NIC, or SmartNIC.
    #[arg(long, env = "METALPLANE_PODS", conflicts_with_all = ["disks_by", "nics_by", "slots_socket", "kubelet_dir", "file_pools", "spdk_volumes"])]
    pub pods: bool,

    /// With --pods: what the node's pods are given.
    #[arg(long, env = "METALPLANE_POD_DEVICES", value_enum, default_value_t = PodDevicesBy::Veth, requires = "pods")]
    pub pod_devices: PodDevicesBy,

    /// This node is a bare-metal machine that is a worker of the cluster: its DPU presents the NICs of its pods, and the agent tells the
    /// CNI plugin which they are. Of the other flags it reads --node-name, --run-dir and --kubeconfig, which is the kubelet's.
    #[arg(long, env = "METALPLANE_WORKER", requires = "kubeconfig", conflicts_with_all = ["pods", "sanitize", "disks_by", "nics_by", "slots_socket", "kubelet_dir", "file_pools", "spdk_volumes"])]
    pub worker: bool,

    /// Takes out of the switch what an earlier boot left in the database of Open vSwitch, and ends. For a unit between ovsdb-server and
    /// ovs-vswitchd; an agent that starts does the same before it plugs anything.
    #[arg(long)]
    pub sanitize: bool,

    /// The QMP socket of the emulator that presents functions to the host.
    #[arg(
        long,
        env = "METALPLANE_SLOTS_SOCKET",
        value_name = "SOCKET",
        default_value = "/run/metalplane-host/slots.sock"
    )]
    pub slots_socket: PathBuf,

    /// A file with the serial number of the server that this DPU sits in, which is compared with what that server's BMC
    /// reports. Whoever installs the DPU writes it. Not there or empty: the serial number is not reported.
    #[arg(
        long,
        env = "METALPLANE_HOST_SERIAL_FILE",
        value_name = "FILE",
        default_value = "/run/metalplane-host/serial-number"
    )]
    pub host_serial_file: PathBuf,

    /// File with what `mlxprivhost -d DEVICE query` printed on this DPU, written by whoever installs it, anew when that changes.
    /// The condition HostRestricted is read from it; it may be missing.
    #[arg(
        long,
        env = "METALPLANE_HOST_PRIVILEGE_FILE",
        value_name = "FILE",
        default_value = "/run/metalplane-host/host-privilege"
    )]
    pub host_privilege_file: PathBuf,

    /// What presents disks to the host.
    #[arg(long, env = "METALPLANE_DISKS_BY", value_enum, default_value_t = DisksBy::Qemu)]
    pub disks_by: DisksBy,

    /// What presents NICs to the host, whatever presents its disks.
    #[arg(long, env = "METALPLANE_NICS_BY", value_enum, default_value_t = NicsBy::Qemu)]
    pub nics_by: NicsBy,

    /// With --nics-by=virtnet: the program of NVIDIA's virtio-net-controller, as a path below --virtnet-root.
    #[arg(long, env = "METALPLANE_VIRTNET", value_name = "FILE", default_value = "/usr/bin/virtnet")]
    pub virtnet: PathBuf,

    /// With --nics-by=virtnet: the root directory of the DPU's system, in which that program runs. An agent in a pod sees it under another
    /// path than /, and needs the capability SYS_CHROOT then.
    #[arg(long, env = "METALPLANE_VIRTNET_ROOT", value_name = "DIR", default_value = "/")]
    pub virtnet_root: PathBuf,

    /// With --nics-by=virtnet: the RDMA device of the port on which functions are made: mlx5_0, mlx5_1 or mlx5_bond_0.
    #[arg(long, env = "METALPLANE_VIRTNET_DEVICE", value_name = "NAME", default_value = "mlx5_0")]
    pub virtnet_device: String,

    /// With --nics-by=virtnet: the queues of a function, at most as many as VIRTIO_NET_EMULATION_NUM_MSIX of its firmware allows.
    #[arg(long, env = "METALPLANE_VIRTNET_QUEUES", value_name = "NUMBER", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub virtnet_queues: u16,

    /// Functions that can be hot-plugged behind the DPU's PCIe switch, disks and NICs together (PCI_SWITCH_EMULATION_NUM_PORT of its
    /// firmware less one), where what presents them does not tell. 0: none.
    #[arg(long, env = "METALPLANE_SWITCH_PORTS", value_name = "NUMBER", default_value_t = 31, value_parser = clap::value_parser!(u32).range(0..=31))]
    pub switch_ports: u32,

    /// The socket on which the SPDK target takes JSON-RPC; it is a process of its own, which the agent never starts.
    #[arg(long, env = "METALPLANE_SPDK_SOCKET", value_name = "SOCKET", default_value = "/run/spdk/rpc.sock")]
    pub spdk_socket: PathBuf,

    /// With --disks-by=spdk: the folder in which the target offers the host's NVMe controller by vfio-user.
    #[arg(
        long,
        env = "METALPLANE_VFIO_USER_FOLDER",
        value_name = "DIR",
        default_value = "/run/metalplane-host/vfio-user"
    )]
    pub vfio_user_folder: PathBuf,

    /// With --disks-by=spdk, for a host that boots over NVMe/TCP: where the target offers the controller, instead of by
    /// vfio-user.
    #[arg(long, env = "METALPLANE_HOST_LISTEN", value_name = "ADDRESS:PORT")]
    pub host_listen: Option<SocketAddr>,

    /// With --host-listen: a file with the NQN of the host's initiator; no other may connect. Whoever installs the DPU writes it.
    #[arg(
        long,
        env = "METALPLANE_HOST_NQN_FILE",
        value_name = "FILE",
        default_value = "/run/metalplane-host/host-nqn"
    )]
    pub host_nqn_file: PathBuf,

    /// With --host-listen: by RDMA instead of TCP.
    #[arg(long, env = "METALPLANE_HOST_RDMA", requires = "host_listen")]
    pub host_rdma: bool,

    /// No disk does more operations in a second, a multiple of 1000, whatever its class allows. 0: as many as that.
    #[arg(long, env = "METALPLANE_DISK_IOPS", value_name = "NUMBER", default_value_t = 0, value_parser = thousands)]
    pub disk_iops: u64,

    /// No disk moves more MiB in a second, reading and writing together, whatever its class allows. 0: as many as that.
    #[arg(long, env = "METALPLANE_DISK_MIB_PER_SECOND", value_name = "MIB", default_value_t = 0)]
    pub disk_mib_per_second: u64,

    /// With --disks-by=spdk, vhost or snap: volumes that the target connects, so that no node plugin is needed for them. May be repeated.
    #[arg(
        long = "spdk-volumes",
        env = "METALPLANE_SPDK_VOLUMES",
        value_name = "KIND",
        value_enum,
        value_delimiter = ','
    )]
    pub spdk_volumes: Vec<SpdkVolumes>,

    /// With --spdk-volumes=rbd, --qemu-rbd or --qemu-rbd-daemon: a Ceph cluster by its clusterID, and the user and the
    /// configuration file by which the target, QEMU or its daemon reaches it. May be repeated.
    #[arg(
        long = "ceph-cluster",
        env = "METALPLANE_CEPH_CLUSTERS",
        value_name = "ID=USER@FILE",
        value_delimiter = ',',
        value_parser = ceph_cluster
    )]
    pub ceph_clusters: Vec<CephCluster>,

    /// The folder of Ceph's programs rbd and rados; they and this agent see the files of --ceph-cluster under the same paths. With
    /// it the sessions of --spdk-volumes=rbd are noted at their images, so that Ceph can be made to refuse them.
    #[arg(long, env = "METALPLANE_CEPH_PROGRAMS", value_name = "DIR")]
    pub ceph_programs: Option<PathBuf>,

    /// With --disks-by=qemu: Ceph RBD images (rbd.csi.ceph.com) are opened by QEMU itself, which has to have its module for it.
    #[arg(long, env = "METALPLANE_QEMU_RBD", requires = "ceph_programs")]
    pub qemu_rbd: bool,

    /// With --disks-by=qemu, instead of --qemu-rbd: the QMP socket of a qemu-storage-daemon, which opens the images and hands
    /// them to QEMU. Their sessions are noted at them, so that Ceph can be made to refuse them.
    #[arg(
        long,
        env = "METALPLANE_QEMU_RBD_DAEMON",
        value_name = "SOCKET",
        requires = "ceph_programs",
        conflicts_with = "qemu_rbd"
    )]
    pub qemu_rbd_daemon: Option<PathBuf>,

    /// The database of this node's own Open vSwitch: unix:PATH or tcp:HOST:PORT.
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

    /// The root directory of this node's kubelet. With it the agent takes volumes of any CSI driver that kubelet connects.
    #[arg(long, env = "METALPLANE_KUBELET_DIR", value_name = "DIR")]
    pub kubelet_dir: Option<PathBuf>,

    /// Where the agent keeps what a reboot has to forget: the record, seeds, its token, its socket. An SPDK target opens the seeds there under
    /// the same path.
    #[arg(long, env = "METALPLANE_RUN_DIR", value_name = "DIR", default_value = "/run/metalplane", value_parser = absolute)]
    pub run_dir: PathBuf,

    /// Where the programs are that erase the disks of the server when it is released: eraser-x86_64.efi.
    #[arg(long, env = "METALPLANE_ERASERS", value_name = "DIR", default_value = "/usr/share/metalplane")]
    pub erasers: PathBuf,

    /// Where the programs are that a hold disk has, from which nothing starts: a folder hold-disk-x86_64 with shim.efi and grub.efi.
    #[arg(long, env = "METALPLANE_HOLD_DISKS", value_name = "DIR", default_value = "/usr/share/metalplane")]
    pub hold_disks: PathBuf,

    /// Arguments for the kernel of an eraser, for example console=ttyS0.
    #[arg(long, env = "METALPLANE_ERASER_ARGUMENTS", value_name = "ARGUMENTS", default_value = "")]
    pub eraser_arguments: String,

    /// Where /metrics is served, for example 127.0.0.1:9765. Default: nowhere.
    #[arg(long, env = "METALPLANE_METRICS", value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,

    #[arg(long, env = "METALPLANE_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// What to log: a level, or directives such as dpu_agent=debug,kube=warn.
    #[arg(long, env = "RUST_LOG", default_value = "info,kube_client::client::builder=off")]
    pub log_filter: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DisksBy {
    /// The emulator behind --slots-socket
    Qemu,
    /// An SPDK target, as namespaces of one NVMe controller
    Spdk,
    /// An SPDK target, as vhost-user-blk disks of a virtual machine
    Vhost,
    /// NVIDIA SNAP 4 on a BlueField, as namespaces of the DPU's first static NVMe function
    Snap,
    /// Nothing: the DPU presents NICs only
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NicsBy {
    /// The emulator behind --slots-socket
    Qemu,
    /// The host's own physical functions, as devlink tells of them
    Static,
    /// NVIDIA's virtio-net-controller, which hot-plugs virtio-net functions
    Virtnet,
    /// Nothing: the DPU presents disks only, and needs no Open vSwitch
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PodDevicesBy {
    /// veth devices
    Veth,
    /// The virtual functions of a SmartNIC in the node, which its administrator has made, behind a switch in switchdev mode
    Vf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SpdkVolumes {
    /// NVMe over TCP and RDMA (nvmf.csi.k8s.io)
    Nvmeof,
    /// iSCSI (iscsi.csi.k8s.io)
    Iscsi,
    /// Ceph RBD (rbd.csi.ceph.com)
    Rbd,
    /// Files, block devices and bdevs that the DPU has itself (bdev.metalplane.io)
    Local,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CephCluster {
    pub id: String,
    pub user: String,
    pub config_file: PathBuf,
}

impl Args {
    pub fn type_(&self) -> DpuType {
        match (self.pods, self.pod_devices) {
            (true, PodDevicesBy::Vf) => DpuType::SmartNIC,
            (true, PodDevicesBy::Veth) => DpuType::Nic,
            (false, _) => DpuType::Dpu,
        }
    }

    pub(crate) fn hold_disks(&self) -> HoldDisks {
        HoldDisks::new(self.hold_disks.clone())
    }

    pub(crate) fn erasers(&self) -> Erasers {
        Erasers::new(self.erasers.clone(), self.eraser_arguments.clone())
    }

    /// What no disk may exceed.
    pub fn bounds(&self) -> Limits {
        let limit = |number: u64| (number > 0).then_some(number);
        Limits { iops: limit(self.disk_iops), bandwidth_mib: limit(self.disk_mib_per_second), ..Limits::default() }
    }
}

/// SPDK counts so.
fn thousands(text: &str) -> Result<u64, String> {
    let number: u64 = text.parse().map_err(|_| "write a whole number".to_owned())?;
    number.is_multiple_of(1000).then_some(number).ok_or_else(|| "write a multiple of 1000".to_owned())
}

/// Another process, which stands elsewhere, is told of files below it.
fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    path.is_absolute().then_some(path).ok_or_else(|| "write an absolute path".to_owned())
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
