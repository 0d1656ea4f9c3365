//! The simulation of controller and agents with a seed that nobody has tried, and with the samples that take minutes whole: `make test`
//! keeps to one seed, so that what this finds turns no other change red.

use super::{Bench, Judge, Verdict, cases};
use crate::test;
use anyhow::{Context, Result};
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) const JUDGE: Judge = Judge { name: "simulation", run };

const SEED: &str = "SIM_SEED";

fn run(bench: &Bench) -> Result<Verdict> {
    let seed = match std::env::var(SEED) {
        Ok(given) => given,
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).context("the time of day")?.subsec_nanos().to_string(),
    };
    eprintln!("{SEED}={seed}");
    let of_seed = [(SEED, seed.clone())];
    let cases = test::some_of_binary_with(bench.root, ("tests", "simulation"), None, &of_seed)?;
    let report = format!("{SEED}={seed} LONG_TESTS=1 cargo xtask test --no-checks --package tests --test simulation\n");
    let verdict = cases::verdict(bench, report, &cases)?;
    Ok(Verdict { reason: format!("{SEED}={seed} {}", verdict.reason).trim_end().to_owned(), ..verdict })
}
