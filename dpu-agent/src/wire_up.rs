//! The only place that names concrete drivers.

use crate::Ports;
use crate::args::{Args, DisksBy};
use anyhow::Context;
use file::FileConnector;
use kubelet::KubeletConnector;
use ovsdb::{OpenVSwitch, Schedule, SessionConfig, client::Limits, switch};
use ports::{Emulation, VolumeConnector, split::Split};
use qemu::QemuEmulation;
use spdk::{SpdkEmulation, host::Host};
use std::sync::Arc;

/// Connects to nothing yet: each driver does so in the background or when it is asked.
pub fn ports(args: &Args) -> anyhow::Result<Ports> {
    let address = args.ovsdb.parse().with_context(|| format!("--ovsdb {}", args.ovsdb))?;
    let config = SessionConfig {
        address,
        database: switch::DATABASE.to_owned(),
        monitored: switch::monitored(),
        limits: Limits::default(),
        schedule: Schedule::default(),
    };
    let pools = args.file_pools.iter().cloned().collect();
    let mut connectors: Vec<Arc<dyn VolumeConnector>> =
        vec![Arc::new(FileConnector::new(pools, args.run_dir.join("connections")))];
    if let Some(kubelet) = &args.kubelet_dir {
        connectors.push(Arc::new(KubeletConnector::new(kubelet.clone(), args.run_dir.join("kubelet-connections"))));
    }
    Ok(Ports { emulation: emulation(args)?, connectors, switch: Arc::new(OpenVSwitch::new(config, &args.bridge)) })
}

/// Disks on the host at a time, besides those of the fixed slots: what fits into one controller that any firmware lists.
const HOT_PLUG_DISKS: u32 = 62;

fn emulation(args: &Args) -> anyhow::Result<Arc<dyn Emulation>> {
    let slots = QemuEmulation::new(&args.slots_socket);
    Ok(match args.disks_by {
        DisksBy::Qemu => Arc::new(slots),
        DisksBy::Spdk => {
            let host = Host {
                nqn: format!("nqn.2026-01.io.metalplane:dpu:{}", args.node_name),
                serial: api::names::serial(&args.node_name),
                folder: args.vfio_user_folder.clone(),
                hot_plug: HOT_PLUG_DISKS,
            };
            let disks = SpdkEmulation::new(&args.spdk_socket, host, args.run_dir.join("spdk"))?;
            Arc::new(Split { disks, nics: slots })
        }
    })
}
