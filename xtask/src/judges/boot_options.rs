//! The boot option of the DPU's disk, never guessed: every recorded listing of a real server's firmware, alone, mixed and
//! mutated, and the BMC of every personality through the shipped driver. Each gives the right option or the right refusal.

use super::{Bench, Judge, Verdict, cases};
use crate::test::{self, Case};
use anyhow::Result;

pub(super) const JUDGE: Judge = Judge { name: "boot-options", run };

fn run(bench: &Bench) -> Result<Verdict> {
    let mut cases = test::plain_binary(bench.root, "planner", "boot_options")?;
    let of_bmcs = |case: &Case| case.name.contains("boot_options");
    cases.extend(
        test::some_of_binary(bench.root, "sandbox", "server", Some("boot_options"))?.into_iter().filter(of_bmcs),
    );
    let report = "cargo test --package planner --test boot_options\n\
                  cargo xtask test --no-checks --package sandbox boot_options\n";
    cases::verdict(bench, report.to_owned(), &cases)
}
