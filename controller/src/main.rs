//! `metalplane-controller`.

use anyhow::Result;
use clap::Parser;
use controller::args::{Args, LogFormat};
use controller::{Settings, run, wire_up};
use std::io::IsTerminal;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let log = tracing_subscriber::fmt().with_env_filter(EnvFilter::new(&args.log)).with_writer(std::io::stderr);
    let log = log.with_ansi(std::io::stderr().is_terminal());
    match args.log_format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
    rustls::crypto::ring::default_provider().install_default().map_err(|_| anyhow::anyhow!("a TLS provider is set"))?;
    let client = wire_up::client(&args).await?;
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    run(client, Arc::new(wire_up::Redfish), wire_up::fences(&args), Settings::from(&args), stop).await
}
