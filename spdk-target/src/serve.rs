//! The target: it runs until it is told to end.

use crate::args::Spdk;
use crate::{http, metrics};
use anyhow::{Context, Result};
use spdk_sys::{App, Memory, Options};
use std::net::SocketAddr;

const SOCKET: &str = "/var/tmp/spdk.sock";

pub(crate) fn run(spdk: Spdk, metrics_listen: Option<SocketAddr>) -> Result<()> {
    // Before SPDK ties this thread, and what it starts, to its first core.
    if let Some(address) = metrics_listen {
        let address = http::serve(address, metrics::page)?;
        eprintln!("spdk-target: metrics at http://{address}/metrics");
    }
    let rpc_socket = spdk.rpc_socket.clone().unwrap_or_else(|| SOCKET.into());
    eprintln!("spdk-target: JSON-RPC at {}", rpc_socket.display());
    let options = Options { rpc_socket: Some(rpc_socket), ..options(spdk, "spdk-target") };
    start(&options, |_| eprintln!("spdk-target: started"))
}

pub(crate) fn start(options: &Options, started: impl FnOnce(App) + 'static) -> Result<()> {
    spdk_sys::run(options, started).context("SPDK's log above says more")
}

pub(crate) fn options(spdk: Spdk, name: &str) -> Options {
    let memory = Memory { mib: spdk.mem_size, without_huge_pages: spdk.no_huge, huge_folder: spdk.huge_dir };
    Options {
        name: name.to_owned(),
        rpc_socket: spdk.rpc_socket,
        config: spdk.config,
        cores: spdk.cpumask,
        memory,
        pci: !spdk.no_pci,
        lock_cores: !spdk.disable_cpumask_locks,
        wait_for_rpc: spdk.wait_for_rpc,
        vhost_folder: spdk.vhost_folder,
    }
}
