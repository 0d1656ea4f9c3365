//! Every way in of a server without a DPU: each from power-on of a server with an empty disk to the installed system's own word on its
//! console, by the boot service as it is shipped. That by a BMC's virtual drive needs a whole site: a controller inserts the medium.

use super::{Bench, Judge, Verdict, cases};
use crate::{image, test};
use anyhow::{Result, ensure};

pub(super) const JUDGE: Judge = Judge { name: "pxe-boot", run };

/// The tests of this module, each a way in.
const FILTER: &str = "netboot::";
const BY_VIRTUAL_MEDIA: &str = "isoboot::";

fn run(bench: &Bench) -> Result<Verdict> {
    let mut ways = test::some_of_binary(bench.root, "boot", "wire", Some(FILTER))?;
    image::run(bench.root, &image::Options::default())?;
    let by_virtual_media = test::some_of_binary(bench.root, "tests", "end_to_end", Some(BY_VIRTUAL_MEDIA))?;
    ensure!(!by_virtual_media.is_empty(), "no end-to-end test has {BY_VIRTUAL_MEDIA} in its name");
    ways.extend(by_virtual_media);
    let report = format!(
        "LONG_TESTS=1 cargo xtask test --no-checks --package boot {FILTER}\n\
         cargo xtask test --no-checks --package tests {BY_VIRTUAL_MEDIA}\n"
    );
    cases::verdict(bench, report, &ways)
}
