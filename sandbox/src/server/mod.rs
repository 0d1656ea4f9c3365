//! The virtual server: a machine with firmware, power, PCIe slots and a BMC, and no disk or NIC of its own.
//!
//! It stands for the bare metal around a DPU. QEMU with OVMF is the host; it runs exactly while the power is on. What
//! the host has in its slots is decided by the DPU's side through the *slots socket*, which speaks QMP whether the
//! host is on or off. The BMC is a Redfish service and decides power and boot order.
//!
//! | module | what it is |
//! |---|---|
//! | [`config`] | the description of one server |
//! | [`personality`] | kinds of servers: habits of vendors, as data |
//! | [`machine`], [`power`] | the state and its one lock; power-on, power-off, reset |
//! | [`record`] | what is presented: kept over power cycles, replayed at power-on, lost with the DPU |
//! | [`host`], [`qmp`], [`ports`] | one run of QEMU, its monitor, its PCIe ports |
//! | [`slots`] | the slots socket |
//! | [`boot`] | boot order and override, turned into `bootindex` |
//! | [`firmware`], [`post`] | what the firmware is told between two runs; whether it is in its POST |
//! | [`medium`] | the virtual CD drive |
//! | [`bmc`] | Redfish: the host's BMC, and the DPU's own |
//! | [`faults`], [`actions`] | faults to inject; the log of power actions |
//! | [`vfio_user`] | a QEMU whose disks come from a target on the DPU |
//! | [`accelerator`] | KVM, if a probe guest gets through with it |
//! | [`inside`] | programs run in the DPU's namespaces: QEMU, taps; and the DPU's power |
//!
//! In the state folder: `firmware-variables.fd`, `boot-settings.json`, `bmc-certificate.pem`, `virtual-cd.iso`, `console.log`
//! and `console.sock` (the serial port), `qemu.log`, `actions.jsonl`, `faults.sock`, `ready` (written when all listen).

pub mod accelerator;
pub mod actions;
pub mod bmc;
pub mod boot;
pub mod config;
pub mod faults;
pub mod firmware;
pub mod host;
pub mod inside;
pub mod machine;
pub mod medium;
pub mod personality;
pub mod ports;
pub mod post;
pub mod power;
pub mod qmp;
pub mod record;
pub mod slots;
pub mod throttle;
pub mod vfio_user;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use uuid::Uuid;

pub use config::Config;

/// Commands that a virtual server runs, and the Debian package that has each.
pub const COMMANDS: &[(&str, &str)] =
    &[("qemu-system-x86_64", "qemu-system-x86"), ("setpriv", "util-linux"), ("ip", "iproute2")];

/// Files that a virtual server reads, and the Debian package that has each.
pub const FILES: &[(&str, &str)] =
    &[("/usr/share/OVMF/OVMF_CODE_4M.fd", "ovmf"), ("/usr/share/OVMF/OVMF_VARS_4M.fd", "ovmf")];

/// The system's UUID, the same at every start.
pub fn system_uuid(config: &Config) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_URL, format!("metalplane-virtual-server/{}", config.serial_number).as_bytes())
}

/// `sandbox virtual-server`: serves until SIGTERM or SIGINT, which also cut the host's power.
pub async fn run(description: &Path) -> Result<()> {
    let config = Config::read(description)?;
    std::fs::create_dir_all(&config.state_folder)
        .with_context(|| format!("create the state folder {}", config.state_folder.display()))?;
    let ready = config.state("ready");
    let machine = machine::Machine::new(config, crate::args::cache_folder())?;
    let faults = faults::Injected::default();
    let bmc = bmc::Bmc::new(Arc::clone(&machine), faults.clone())?;
    let slots = slots::listen(&machine.config.slots_socket)?;
    let address = machine.config.bmc.listen;
    let listener = TcpListener::bind(address).await.with_context(|| format!("listen on {address} for the BMC"))?;
    let dpu_bmc = match machine.config.dpu.as_ref().and_then(|dpu| dpu.bmc) {
        Some(at) => {
            let listener = TcpListener::bind(at).await.with_context(|| format!("listen on {at} for the DPU's BMC"))?;
            Some(bmc::serve(listener, bmc::Bmc::of_dpu(Arc::clone(&machine))?))
        }
        None => None,
    };
    let faults_socket = machine.config.state(faults::SOCKET);
    let mut terminated = signal(SignalKind::terminate()).context("wait for SIGTERM")?;
    let mut interrupted = signal(SignalKind::interrupt()).context("wait for SIGINT")?;
    // The choice takes a while the first time on a machine: it must not cost the first power-on.
    let early = Arc::clone(&machine);
    tokio::spawn(async move {
        early.accelerator.get_or_init(|| accelerator::choose(&early.config, &early.cache)).await;
    });
    let bound = listener.local_addr().context("read the BMC's address")?;
    crate::whole::write(&ready, format!("https://{bound}\n")).with_context(|| format!("write {}", ready.display()))?;
    tracing::info!(server = machine.config.name, "ready: BMC on https://{bound}");
    let outcome = tokio::select! {
        ended = bmc::serve(listener, bmc) => ended,
        Some(ended) = futures::future::OptionFuture::from(dpu_bmc) => ended,
        ended = slots::serve(slots, Arc::clone(&machine)) => ended,
        ended = faults::serve(&faults_socket, faults, Arc::clone(&machine)) => ended,
        _ = terminated.recv() => Ok(()),
        _ = interrupted.recv() => Ok(()),
    };
    machine.end().await;
    // It is gone with the process that it told of.
    let _ = std::fs::remove_file(&ready);
    outcome
}
