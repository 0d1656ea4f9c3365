//! The binary `csi`. See the library for what it does.

use clap::Parser;
use csi::{args::Args, server};
use runtime::process;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    process::log(&args.log_filter, args.log_format)?;
    server::serve(&args, process::stopped()?).await
}
