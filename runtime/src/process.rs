//! What a program does first: its log, TLS, and the signals that end it.

use anyhow::{Context, Result};
use clap::ValueEnum;
use std::io::IsTerminal;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// The log goes to stderr. `filter`: a level, or directives such as `kube=warn`.
pub fn log(filter: &str, format: LogFormat) -> Result<()> {
    let filter = EnvFilter::try_new(filter).with_context(|| format!("what is logged: '{filter}'"))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let log = log.with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}

/// Of several TLS providers that may be compiled in, the one that everything uses. Again: nothing happens.
pub fn provide_tls() {
    // An error says that one is provided already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Ends when the process is asked to: SIGTERM, or SIGINT. Inside a tokio runtime.
pub fn stopped() -> std::io::Result<impl Future<Output = ()>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            biased;
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
