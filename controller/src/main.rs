//! `metalplane-controller`.

use anyhow::{Context, Result};
use clap::Parser;
use controller::args::Args;
use controller::{Settings, run, wire_up};
use kube::Client;
use runtime::{cluster, process};
use std::sync::Arc;

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    process::log(&args.log, args.log_format)?;
    process::provide_tls();
    let config = cluster::config(args.kubeconfig.as_deref(), "--kubeconfig").await?;
    let client = Client::try_from(config).context("make a client for the API server")?;
    let (bmcs, fences, ovn) = (Arc::new(wire_up::redfish(&args)), wire_up::fences(&args), wire_up::ovn(&args)?);
    run(client, bmcs, fences, ovn, Settings::from(&args), process::stopped()?).await
}
