//! The simulation of controller and agents with a seed that nobody has tried, and with the samples that take minutes whole; then what the
//! executor's property tests find with several draws. `make test` keeps to one seed, so that what this finds turns no other change red.

use super::{Bench, Judge, Verdict, cases};
use crate::test;
use anyhow::{Context, Result};
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) const JUDGE: Judge = Judge { name: "simulation", run };

const SEED: &str = "SIM_SEED";
/// Of the property tests.
const DRAWS: u64 = 5;
/// Whose tests are of this kind.
const PROPERTIES: (&str, &str) = ("executor", "machines");

fn run(bench: &Bench) -> Result<Verdict> {
    let seed = match std::env::var(SEED) {
        Ok(given) => given,
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).context("the time of day")?.subsec_nanos().to_string(),
    };
    eprintln!("{SEED}={seed}");
    let first: u64 = seed.parse().with_context(|| format!("{SEED}={seed}: write a number"))?;
    let of_seed = [(SEED, seed.clone())];
    let mut cases = test::some_of_binary_with(bench.root, ("tests", "simulation"), None, &of_seed)?;
    let mut report =
        format!("{SEED}={seed} LONG_TESTS=1 cargo xtask test --no-checks --package tests --test simulation\n");
    let (package, target) = PROPERTIES;
    for draw in (0..DRAWS).map(|draw| first.wrapping_add(draw)) {
        let variable = test::PROPTEST_SEED;
        eprintln!("{variable}={draw}");
        report += &format!("{variable}={draw} cargo test --package {package} --test {target}\n");
        cases.extend(test::properties_of_binary(bench.root, package, target, draw)?);
    }
    let verdict = cases::verdict(bench, report, &cases)?;
    Ok(Verdict { reason: format!("{SEED}={seed} {}", verdict.reason).trim_end().to_owned(), ..verdict })
}
