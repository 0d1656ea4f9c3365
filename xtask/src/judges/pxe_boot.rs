//! Every way in of a server without a DPU: each from power-on of a server with an empty disk to the installed system's own word on its
//! console, by the boot service as it is shipped. That by a BMC's virtual drive needs a whole site: a controller inserts the medium.

use super::{Bench, Judge, Verdict, cases};
use crate::{image, test};
use anyhow::{Result, ensure};
use std::fmt::Write;

pub(super) const JUDGE: Judge = Judge { name: "pxe-boot", run };

/// The tests of this module, each a way in.
const FILTER: &str = "netboot::";
/// By virtual media, and by a BMC that boots the disk when it is asked for the network once.
const ON_A_SITE: [&str; 2] = ["isoboot::", "ladder::"];

fn run(bench: &Bench) -> Result<Verdict> {
    let mut ways = test::some_of_binary(bench.root, "boot", "wire", Some(FILTER))?;
    image::run(bench.root, &image::Options::default())?;
    let mut report = format!("LONG_TESTS=1 cargo xtask test --no-checks --package boot {FILTER}\n");
    for filter in ON_A_SITE {
        let found = test::some_of_binary(bench.root, "tests", "end_to_end", Some(filter))?;
        ensure!(!found.is_empty(), "no end-to-end test has {filter} in its name");
        ways.extend(found);
        writeln!(report, "LONG_TESTS=1 cargo xtask test --no-checks --package tests {filter}")?;
    }
    cases::verdict(bench, report, &ways)
}
