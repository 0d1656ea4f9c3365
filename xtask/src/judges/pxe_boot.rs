//! Every way in of a server without a DPU: each from power-on of a server with an empty disk to the installed system's own word on its
//! console, by the boot service as it is shipped.

use super::{Bench, Judge, Verdict, cases};
use crate::test;
use anyhow::Result;

pub(super) const JUDGE: Judge = Judge { name: "pxe-boot", run };

/// The tests of this module, each a way in.
const FILTER: &str = "netboot::";

fn run(bench: &Bench) -> Result<Verdict> {
    let ways = test::some_of_binary(bench.root, "boot", "wire", Some(FILTER))?;
    cases::verdict(bench, format!("LONG_TESTS=1 cargo xtask test --no-checks --package boot {FILTER}\n"), &ways)
}
