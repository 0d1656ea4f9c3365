//! The only place that names concrete drivers.

use crate::Ports;
use crate::args::{Args, CephCluster, DisksBy, NicsBy, PodDevicesBy, SpdkVolumes};
use anyhow::Context;
use bluefield::devlink::{Kernel, Wire};
use bluefield::fixed::FixedNics;
use bluefield::vf::VirtualFunctions;
use bluefield::virtnet::{self, VirtnetNics};
use ceph::{Clusters, Direct, Noted};
use file::FileConnector;
use kubelet::KubeletConnector;
use metadata::Taps;
use ovsdb::{Addresses, OpenVSwitch, Remotes, Schedule, SessionConfig, client, switch};
use pod_devices::Veth;
use ports::nothing::Nothing;
use ports::pod_devices::AsEmulation;
use ports::{Emulation, PodDevices, VolumeConnector, split::Split};
use qemu::QemuEmulation;
use qemu::images::{self, ImageDaemon};
use spdk::SpdkEmulation;
use spdk::door::{Door, Fabric};
use spdk::host::Host;
use spdk::snap::{self, SnapEmulation};
use spdk::vhost::VhostEmulation;
use spdk::volumes::rbd::Cluster;
use spdk::volumes::{SpdkConnector, iscsi::Iscsi, local::Local, nvmeof::NvmeOf, rbd::Rbd};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::Arc;

/// Connects to nothing yet: each driver does so in the background or when it is asked.
pub fn ports(args: &Args) -> anyhow::Result<Ports> {
    ports_by(args, Kernel)
}

/// The same, with devlink from somewhere else than this machine's kernel.
pub fn ports_by(args: &Args, devlink: impl Wire + 'static) -> anyhow::Result<Ports> {
    if args.nics_by == NicsBy::None && !args.pods {
        let (emulation, switch) = (emulation(args, devlink)?, Arc::new(Nothing { why: NO_NICS }));
        return Ok(Ports { emulation, connectors: connectors(args)?, switch, pods: None, metadata: None });
    }
    let config = SessionConfig {
        remotes: own_switch(&args.ovsdb).with_context(|| format!("--ovsdb {}", args.ovsdb))?,
        database: switch::DATABASE.to_owned(),
        monitored: switch::monitored(),
        limits: client::Limits::default(),
        schedule: Schedule::default(),
    };
    let switch = Arc::new(OpenVSwitch::new(config, &args.bridge));
    if args.pods {
        let pods: Arc<dyn PodDevices> = match args.pod_devices {
            PodDevicesBy::Veth => Arc::new(Veth),
            PodDevicesBy::Vf => Arc::new(VirtualFunctions::new(devlink, "/sys".as_ref())),
        };
        let emulation = Arc::new(AsEmulation(pods.clone()));
        return Ok(Ports { emulation, connectors: Vec::new(), switch, pods: Some(pods), metadata: None });
    }
    let (emulation, metadata) = (emulation(args, devlink)?, Arc::new(Taps::default()));
    Ok(Ports { emulation, connectors: connectors(args)?, switch, pods: None, metadata: Some(metadata) })
}

/// The node's own Open vSwitch is on the node: no TLS is between, and no cluster behind.
fn own_switch(address: &str) -> anyhow::Result<Remotes> {
    let address: Addresses = address.parse()?;
    let local = !address.need_tls() && !address.to_string().contains(',');
    anyhow::ensure!(
        local,
        "the database of this node's own Open vSwitch is one: write unix:<path> or tcp:<host>:<port>"
    );
    Ok(Remotes::new(address, None)?)
}

fn connectors(args: &Args) -> anyhow::Result<Vec<Arc<dyn VolumeConnector>>> {
    let pools = args.file_pools.iter().cloned().collect();
    let mut connectors: Vec<Arc<dyn VolumeConnector>> =
        vec![Arc::new(FileConnector::new(pools, args.run_dir.join("connections")))];
    if let Some(kubelet) = &args.kubelet_dir {
        connectors.push(Arc::new(KubeletConnector::new(kubelet.clone(), args.run_dir.join("kubelet-connections"))));
    }
    connectors.extend(spdk_volumes(args)?);
    if args.qemu_rbd {
        anyhow::ensure!(args.disks_by == DisksBy::Qemu, "--qemu-rbd needs --disks-by=qemu");
        connectors.push(Arc::new(Direct::new(noted_clusters(args), args.run_dir.join("ceph-images"))));
    }
    if let Some(socket) = &args.qemu_rbd_daemon {
        anyhow::ensure!(args.disks_by == DisksBy::Qemu, "--qemu-rbd-daemon needs --disks-by=qemu");
        let images = ImageDaemon::new(socket, image_clusters(args));
        let sessions = args.run_dir.join("ceph-sessions");
        connectors.push(Arc::new(Noted::new(images, noted_clusters(args), sessions)));
    }
    Ok(connectors)
}

fn door(args: &Args) -> anyhow::Result<Door> {
    let Some(listen) = args.host_listen else {
        return Ok(Door::VfioUser { folder: args.vfio_user_folder.clone() });
    };
    let fabric = if args.host_rdma { Fabric::Rdma } else { Fabric::Tcp };
    let file = &args.host_nqn_file;
    let host_nqn =
        std::fs::read_to_string(file).with_context(|| format!("read the host's NQN from {}", file.display()))?;
    Ok(Door::Fabric { fabric, listen, host_nqn: host_nqn.trim().to_owned() })
}

/// A bdev is presented by the target that has it, and by nobody else.
fn spdk_volumes(args: &Args) -> anyhow::Result<Vec<Arc<dyn VolumeConnector>>> {
    let by_spdk = matches!(args.disks_by, DisksBy::Spdk | DisksBy::Vhost | DisksBy::Snap);
    anyhow::ensure!(args.spdk_volumes.is_empty() || by_spdk, "--spdk-volumes needs --disks-by=spdk, vhost or snap");
    let socket = &args.spdk_socket;
    let connector = |kind: &SpdkVolumes| -> Arc<dyn VolumeConnector> {
        match kind {
            SpdkVolumes::Nvmeof => Arc::new(SpdkConnector::new(socket, NvmeOf)),
            SpdkVolumes::Iscsi => Arc::new(SpdkConnector::new(socket, Iscsi)),
            SpdkVolumes::Rbd => {
                let images = SpdkConnector::new(socket, Rbd::new(clusters(args)));
                match &args.ceph_programs {
                    Some(_) => Arc::new(Noted::new(images, noted_clusters(args), args.run_dir.join("ceph-sessions"))),
                    None => Arc::new(images),
                }
            }
            SpdkVolumes::Local => Arc::new(SpdkConnector::new(socket, Local)),
        }
    };
    Ok(args.spdk_volumes.iter().map(connector).collect())
}

fn clusters(args: &Args) -> BTreeMap<String, Cluster> {
    let cluster = |known: &CephCluster| {
        (known.id.clone(), Cluster { user: known.user.clone(), config_file: known.config_file.clone() })
    };
    args.ceph_clusters.iter().map(cluster).collect()
}

/// The same, for QEMU's storage daemon.
fn image_clusters(args: &Args) -> BTreeMap<String, images::Cluster> {
    let cluster = |known: &CephCluster| {
        (known.id.clone(), images::Cluster { user: known.user.clone(), config_file: known.config_file.clone() })
    };
    args.ceph_clusters.iter().map(cluster).collect()
}

/// The same, for Ceph's programs.
fn noted_clusters(args: &Args) -> Clusters {
    let cluster = |known: &CephCluster| {
        (known.id.clone(), ceph::Cluster { user: known.user.clone(), config_file: known.config_file.clone() })
    };
    let path = args.ceph_programs.iter().map(|folder| ("PATH".to_owned(), folder.display().to_string()));
    Clusters::new(args.ceph_clusters.iter().map(cluster).collect()).with_environment(path.collect())
}

/// Disks on the host at a time, besides those of the fixed slots: what fits into one controller that any firmware lists.
const HOT_PLUG_DISKS: u32 = 62;
/// Entries of a virtio-net queue.
const QUEUE_LENGTH: u16 = 256;

fn emulation(args: &Args, devlink: impl Wire + 'static) -> anyhow::Result<Arc<dyn Emulation>> {
    let neither = args.disks_by == DisksBy::None && args.nics_by == NicsBy::None;
    anyhow::ensure!(!neither, "--disks-by=none and --nics-by=none: this DPU would present nothing");
    let serial = api::names::boot_serial(&args.node_name);
    let slots = || -> Arc<dyn Emulation> {
        Arc::new(QemuEmulation::with_boot_serial(&args.slots_socket, Some(serial.clone())))
    };
    if args.disks_by == DisksBy::Qemu && args.nics_by == NicsBy::Qemu {
        return Ok(slots());
    }
    let nqn = format!("nqn.2026-01.io.metalplane:dpu:{}", args.node_name);
    let state = args.run_dir.join("spdk");
    let disks: Arc<dyn Emulation> = match args.disks_by {
        DisksBy::Qemu => slots(),
        DisksBy::Vhost => Arc::new(VhostEmulation::new(&args.spdk_socket, HOT_PLUG_DISKS)),
        DisksBy::Snap => {
            let (hot_plug, switch_ports) = (HOT_PLUG_DISKS, args.switch_ports);
            let config = snap::Config { nqn, serial: serial.clone(), hot_plug, switch_ports };
            Arc::new(SnapEmulation::new(&args.spdk_socket, config, state))
        }
        DisksBy::Spdk => {
            let host = Host { nqn, serial: serial.clone(), door: door(args)?, hot_plug: HOT_PLUG_DISKS };
            Arc::new(SpdkEmulation::new(&args.spdk_socket, host, state)?)
        }
        DisksBy::None => Arc::new(Nothing { why: "--disks-by=none: this DPU presents no disk" }),
    };
    let nics: Arc<dyn Emulation> = match args.nics_by {
        NicsBy::Qemu => slots(),
        NicsBy::Static => Arc::new(FixedNics::new(devlink)),
        NicsBy::Virtnet => Arc::new(VirtnetNics::new(virtnet(args)?)),
        NicsBy::None => Arc::new(Nothing { why: NO_NICS }),
    };
    Ok(Arc::new(Split { disks, nics }))
}

const NO_NICS: &str = "--nics-by=none: this DPU presents no NIC";

fn virtnet(args: &Args) -> anyhow::Result<virtnet::Config> {
    let program = match args.virtnet_root == Path::new("/") {
        true => virtnet::Program { file: args.virtnet.clone(), arguments: Vec::new() },
        // This program changes its root directory and becomes the other one.
        false => virtnet::Program {
            file: std::env::current_exe().context("find this program")?,
            arguments: vec![
                IN_ROOT.to_owned(),
                args.virtnet_root.display().to_string(),
                args.virtnet.display().to_string(),
            ],
        },
    };
    let queues = virtnet::Queues { pairs: args.virtnet_queues, length: QUEUE_LENGTH };
    Ok(virtnet::Config { program, parent: args.virtnet_device.clone(), queues, ports: args.switch_ports })
}

/// The first argument of a process of ours that becomes a program of the DPU's own system: `in-root DIR PROGRAM ARGUMENTS`.
const IN_ROOT: &str = "in-root";

/// Becomes that program, and returns only when it could not; `None`: it was not asked to.
pub fn in_root(arguments: impl Iterator<Item = OsString>) -> Option<anyhow::Error> {
    let arguments: Vec<OsString> = arguments.collect();
    let [first, root, program, rest @ ..] = arguments.as_slice() else { return None };
    (first == IN_ROOT).then(|| {
        let root = Path::new(root);
        let what = format!("start {} in {}", Path::new(program).display(), root.display());
        match virtnet::enter(root) {
            Ok(()) => anyhow::Error::new(std::process::Command::new(program).args(rest).exec()).context(what),
            Err(error) => anyhow::Error::new(error).context(what),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::own_switch;

    #[test]
    fn the_nodes_own_switch_is_one_and_near() {
        for near in ["unix:/run/openvswitch/db.sock", "tcp:127.0.0.1:6640"] {
            own_switch(near).expect(near);
        }
        for far in ["ssl:192.0.2.1:6640", "unix:/a,unix:/b", "/run/openvswitch/db.sock"] {
            let refusal = own_switch(far).expect_err(far).to_string();
            assert!(refusal.contains("unix:<path>"), "{refusal}");
        }
    }
}
