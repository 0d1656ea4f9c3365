//! An SPDK target: what emulates a host's disks, as a process of its own.
//!
//! It polls on the cores that it is given, does what its configuration says, serves SPDK's JSON-RPC, and the statistics of all
//! bdevs to Prometheus without anybody asking by RPC. An agent starts or adopts it by its socket, as it does SPDK's own
//! `nvmf_tgt` and `vhost`, whose flags it takes; it is never part of an agent (docs/design/architecture.md, rule 11).
//!
//! With `io` it does reads and writes on one bdev, then ends: figures (`cargo xtask bench spdk`), and what proves that data
//! written at one end of a connection is what the other end holds.
//!
//! | module | what it is |
//! |---|---|
//! | [`args`] | the only reader of flags |
//! | `serve` | the target |
//! | [`http`], `metrics` | statistics for Prometheus |
//! | `load`, [`work`], [`report`] | operations on one bdev: doing them, which ones, what became of them |
//!
//! It is built with SPDK by `cargo xtask spdk-target`. Without, all of it is flags and a refusal.

pub mod args;
pub mod http;
#[cfg(spdk)]
mod load;
#[cfg(spdk)]
mod metrics;
pub mod report;
#[cfg(spdk)]
mod serve;
pub mod work;

use anyhow::Result;
use args::Cli;

#[cfg(spdk)]
pub fn run(cli: Cli) -> Result<()> {
    match cli.what {
        None => serve::run(cli.spdk, cli.metrics_listen),
        Some(args::What::Io(io)) => load::run(cli.spdk, io),
    }
}

#[cfg(not(spdk))]
pub fn run(_: Cli) -> Result<()> {
    anyhow::bail!(spdk_sys::MISSING)
}
