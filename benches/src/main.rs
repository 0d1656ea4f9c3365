//! `bench`: measures one kind of figure and keeps it. `cargo xtask bench` builds and runs it.

use anyhow::Result;
use benches::args::{self, ScaleController, What};
use benches::{
    boot, clones, disks, footprint, keep, keep_on, load, lost, members, network, pods, root, scale, spdk, stall,
    starts, tables,
};
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(args::read().what) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(what: What) -> Result<()> {
    match what {
        What::Clone => keep("clone", clones::measure()?),
        What::Starts(options) => keep("starts", block_on(starts::measure(&options))?),
        What::Lost(options) => keep("lost", block_on(lost::measure(&options))?),
        What::Footprint(options) => keep("footprint", block_on(footprint::measure(&options))?),
        What::Disks(options) => keep("disks", block_on(disks::measure(&options))?),
        What::Load(options) => keep("load", block_on(load::measure(&options))?),
        What::Scale(options) => keep("scale", block_on(scale::measure(&options))?),
        What::Network(options) => {
            let (figures, ovn) = block_on(network::measure(&options))?;
            keep_on("network", figures, Some(ovn))
        }
        What::Boot(options) => {
            let (figures, others) = block_on(boot::measure(&options))?;
            keep_on("boot", figures, Some(others))
        }
        What::Members(options) => keep("members", block_on(members::measure(&options))?),
        What::Pods(options) => keep("pods", pods::measure(&options)?),
        What::Spdk(options) => keep("spdk", block_on(spdk::measure(&options))?),
        What::Stall(options) => keep("stall", block_on(stall::measure(&options))?),
        What::ScaleController(options) => become_controller(&options),
        What::Tables { check: true } => tables::check(root()),
        What::Tables { check: false } => tables::write(root()),
    }
}

/// As the real program does: all processors.
fn become_controller(options: &ScaleController) -> Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let _ = rustls::crypto::ring::default_provider().install_default();
    tokio::runtime::Runtime::new()?.block_on(Box::pin(scale::controller(options)))
}

/// One thread: the sandbox asks the kernel to end it when the thread that started it ends.
fn block_on<T>(measure: impl Future<Output = Result<T>>) -> Result<T> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            result = Box::pin(measure) => result,
            _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
        }
    })
}
