//! The CNI plugin by the programs that call it: cnitool, and kubelet with containerd and ptp, on a site of its own.

use super::{Bench, Judge, Verdict, on_site};
use anyhow::Result;

pub(super) const JUDGE: Judge = Judge { name: "cni", run };

fn run(bench: &Bench) -> Result<Verdict> {
    on_site::run(bench, "cni::", &[])
}
