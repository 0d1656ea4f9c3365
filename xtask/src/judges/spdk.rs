//! A real SPDK target: the ports' conformance suites on it (controllers, vhost-user-blk, connectors, writers, logical volumes, the
//! fence), what hosts write read back on `spdk-target`, an import into an lvol pool and a server that boots from its clone, and a whole
//! site from the chart, with targets as pods and an lvol pool through Kubernetes.

use super::{Bench, Judge, Verdict, Word, cases};
use crate::test::{self, Case};
use crate::{image, native};
use anyhow::{Context, Result};
use std::fmt::Write as _;

pub(super) const JUDGE: Judge = Judge { name: "spdk", run };

/// Package and test program, and what the names of those of its tests have that run on a real target.
const PROGRAMS: [(&str, &str, &str); 10] = [
    ("spdk", "emulation", "real"),
    ("spdk", "vhost", "real"),
    ("spdk", "volumes", "real"),
    ("spdk", "fence", "real"),
    ("spdk", "writer", "real"),
    ("spdk", "lvols", "real"),
    ("spdk", "data", "real"),
    ("sandbox", "server", "lvol::"),
    ("tests", "lvol_image", ""),
    ("tests", "spdk", ""),
];
/// It asks the target for what SPDK's own do not do.
const ON_OURS: &str = "data";

fn run(bench: &Bench) -> Result<Verdict> {
    let program = match sandbox::spdk::real::program("nvmf_tgt") {
        Ok(program) => program,
        Err(missing) => return Ok(Verdict { word: Word::Skip, done: 0, all: 0, reason: missing }),
    };
    let own = match native::build(bench.root, None)? {
        Ok(own) => own,
        Err(missing) => return Ok(Verdict { word: Word::Skip, done: 0, all: 0, reason: missing }),
    };
    image::run(bench.root, &image::Options::default())?;
    let mut cases: Vec<Case> = Vec::new();
    let mut report = format!("target: {}; for {ON_OURS}: {}\n", program.display(), own.display());
    for (package, target, filter) in PROGRAMS {
        let ours = (native::VARIABLE, own.display().to_string());
        let variables = if target == ON_OURS { &[ours][..] } else { &[] };
        cases.extend(test::some_of_binary_with(bench.root, (package, target), Some(filter), variables)?);
        writeln!(report, "cargo xtask test --no-checks --package {package} {filter}")
            .context("note the command line")?;
    }
    // SPDK is there: each has to run.
    cases::verdict(bench, report, &cases)
}
