//! Figures: each is measured by a run, kept as history, and told in docs/benchmarks.md.
//!
//! `cargo xtask bench NAME` builds everything and runs the program `bench` as root. A run appends one line of JSON to
//! `benches/history/NAME.jsonl` (when, which commit, which machine, which command, the figures) and writes the tables of
//! docs/benchmarks.md anew from the last line of each history. A figure without a line is not in the tables.
//!
//! | module | what it is |
//! |---|---|
//! | [`figure`] | many samples as one figure: p50, p99, least, most |
//! | [`history`] | the lines, and what is known about a run |
//! | [`tables`] | the tables of docs/benchmarks.md |
//! | [`stage`] | a site to measure on, and a machine on it |
//! | [`clones`] | how long a boot volume's clone takes, by the image's size |
//! | [`starts`] | from apply to ping, hot-plug, deletion |
//! | [`disks`] | disks of a machine that runs, and the machine on other hardware |
//! | [`lost`] | a silent agent, until its Dpu says so |
//! | [`footprint`] | memory and idle processor time of agent and controller |
//! | [`load`] | false alarms under load |
//! | [`scale`] | the controller with many simulated servers |
//! | [`spdk`] | disks by SPDK: vfio-user against the same bdev used directly |
//! | [`stall`] | disks by SPDK: what a host feels of the agent's work |
//! | [`network`] | the network at scale: OVN, and the controller that writes it |
//! | [`boot`] | network boot: DHCP, TFTP, HTTP, images onto disks, each beside others' programs |
//! | [`pods`] | pods that ask for nothing: the CNI plugin |
//! | [`members`] | members of a Vpc that come: VNics, and pods with a NIC |
//! | [`processes`] | processes of a sandbox, read from /proc |
//! | [`scrape`] | the controller's metrics |
//!
//! What is measured runs on one machine, with everything else on it: a run tells the truth about that machine only.

pub mod args;
pub mod boot;
pub mod clones;
pub mod disks;
pub mod figure;
pub mod footprint;
pub mod history;
pub mod load;
pub mod lost;
pub mod members;
pub mod network;
pub mod pods;
pub mod processes;
pub mod scale;
pub mod scrape;
pub mod spdk;
pub mod stage;
pub mod stall;
pub mod starts;
pub mod tables;

use anyhow::{Context, Result};
use figure::Figure;
use history::Record;
use std::collections::BTreeMap;
use std::path::Path;

/// What a run has measured, by name.
pub type Figures = BTreeMap<String, Figure>;

/// The workspace's folder: history and documentation lie in the checkout that this was built from.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Keeps what was measured and says it, on standard output and in the documentation.
pub fn keep(name: &str, figures: Figures) -> Result<()> {
    keep_on(name, figures, None)
}

/// The same with the version of a part that they depend on.
pub fn keep_on(name: &str, figures: Figures, on: Option<String>) -> Result<()> {
    let record = Record::of_this_run(root(), figures, on)?;
    history::append(root(), name, &record)?;
    println!("{}", tables::table(name, &record).context("every figure has a table")?);
    tables::write(root())
}
