//! The binary `boot`. See the library for what it does.

use boot::args::Args;
use clap::Parser;
use runtime::{cluster, process};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    process::log(&args.log_filter, args.log_format)?;
    process::provide_tls();
    let stop = process::stopped()?;
    let config = cluster::config(args.kubeconfig.as_deref(), "--kubeconfig").await?;
    let client = kube::Client::try_from(config)?;
    Box::pin(boot::run(client, &args, stop)).await
}
