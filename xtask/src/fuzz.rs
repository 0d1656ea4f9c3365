//! `cargo xtask fuzz`: libFuzzer over the packet engines (`fuzz/`), built by the stable compiler with LLVM's coverage. What is found
//! stays in target/fuzz; an entry that is to be kept is copied to fuzz/corpus, from where every `make test` runs it.

use crate::programs;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;

const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only this one: dhcp, tftp, http, syslog or template
    target: Option<String>,
    /// For each target
    #[arg(long, default_value_t = 60)]
    seconds: u32,
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let built = root.join("target/fuzz");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--locked", "--manifest-path"]).arg(root.join("fuzz/Cargo.toml"));
    cargo.arg("--target-dir").arg(&built).args(["--target", "host-tuple"]).env("RUSTFLAGS", COVERAGE).current_dir(root);
    let program = programs::built(cargo, &["fuzz"])?.remove("fuzz").context("the program was built")?;
    for target in targets(root)?.iter().filter(|target| options.target.as_ref().is_none_or(|only| only == *target)) {
        let found = built.join("corpus").join(target);
        std::fs::create_dir_all(&found).with_context(|| format!("make {}", found.display()))?;
        let status = Command::new(&program)
            .env("FUZZ_TARGET", target)
            .args(["-max_len=2048", "-timeout=10", "-print_final_stats=1"])
            .arg(format!("-max_total_time={}", options.seconds))
            .arg(format!("-artifact_prefix={}/{target}-", built.display()))
            .arg(&found)
            .arg(root.join("fuzz/corpus").join(target))
            .status()
            .with_context(|| format!("run {}", program.display()))?;
        ensure!(status.success(), "{target}: {status}; the bytes that did it are in {}", built.display());
    }
    Ok(())
}

/// Those that have a corpus.
fn targets(root: &Path) -> Result<Vec<String>> {
    let folder = root.join("fuzz/corpus");
    let entries = std::fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}
