//! The binary `dpu-agent`. See the library for what it does.

use anyhow::anyhow;
use clap::Parser;
use dpu_agent::args::{Args, LogFormat};
use std::io::IsTerminal;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let filter = EnvFilter::try_new(&args.log_filter)?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let log = log.with_ansi(std::io::stderr().is_terminal());
    match args.log_format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
    rustls::crypto::ring::default_provider().install_default().map_err(|_| anyhow!("a TLS provider is set twice"))?;
    // One thread, and few small ones for file systems that block: a DPU's memory is its tenants'.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(8)
        .thread_stack_size(512 * 1024)
        .build()?;
    let result = runtime.block_on(async {
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let shutdown = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        let ports = dpu_agent::wire_up::ports(&args)?;
        Box::pin(dpu_agent::run(&args, ports, shutdown)).await
    });
    // A blocking call that hangs in a file system must not keep the process.
    runtime.shutdown_background();
    result
}
