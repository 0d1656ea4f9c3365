//! The only place that names concrete drivers.

use crate::Ports;
use crate::args::Args;
use anyhow::Context;
use file::FileConnector;
use ovsdb::{OpenVSwitch, Schedule, SessionConfig, client::Limits, switch};
use qemu::QemuEmulation;
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
    Ok(Ports {
        emulation: Arc::new(QemuEmulation::new(&args.slots_socket)),
        connectors: vec![Arc::new(FileConnector::new(pools, args.run_dir.join("connections")))],
        switch: Arc::new(OpenVSwitch::new(config, &args.bridge)),
    })
}
