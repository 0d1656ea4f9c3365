//! A real SPDK target: the ports' conformance suites on it (controllers, vhost-user-blk, connectors, the fence), and a whole
//! site whose server boots from it over vfio-user, is hot-plugged, grows under load, and outlives the agent and, with a
//! power cycle, the target.

use super::{Bench, Judge, Verdict, Word, cases};
use crate::image;
use crate::test::{self, Case};
use anyhow::{Context, Result};
use std::fmt::Write as _;

pub(super) const JUDGE: Judge = Judge { name: "spdk", run };

/// Package and test program; of the first only what runs on the real target.
const PROGRAMS: [(&str, &str); 5] =
    [("spdk", "emulation"), ("spdk", "vhost"), ("spdk", "volumes"), ("spdk", "fence"), ("tests", "spdk")];

fn run(bench: &Bench) -> Result<Verdict> {
    let program = match sandbox::spdk::real::program("nvmf_tgt") {
        Ok(program) => program,
        Err(missing) => return Ok(Verdict { word: Word::Skip, done: 0, all: 0, reason: missing }),
    };
    image::run(bench.root, &image::Options::default())?;
    let mut cases = Vec::new();
    let mut report = format!("target: {}\n", program.display());
    for (package, target) in PROGRAMS {
        let of_real = |case: &Case| package == "tests" || case.name.contains("real");
        cases.extend(test::binary(bench.root, package, target)?.into_iter().filter(of_real));
        writeln!(report, "cargo xtask test --no-checks --package {package}").context("note the command line")?;
    }
    // SPDK is there: each has to run.
    cases::verdict(bench, report, &cases)
}
