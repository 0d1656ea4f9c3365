//! `cargo xtask bench`: builds everything, then runs the program `bench` of `benches` as root.

use crate::{native, programs, release, test};
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;

/// What is measured when nothing is named. Hours of load are asked for by name.
const ALL: [&str; 12] =
    ["clone", "starts", "disks", "lost", "footprint", "scale", "network", "members", "pods", "boot", "spdk", "stall"];
/// What needs an SPDK target of our own.
const ON_SPDK: [&str; 2] = ["spdk", "stall"];
/// What runs on a site with pods: those of a release.
const ON_A_SITE: [&str; 6] = ["starts", "disks", "lost", "footprint", "load", "members"];

/// What has the controller in a process of its own (`scale` with simulated BMCs in it), and by which it is told which program that is.
const SCALE: &str = "scale";
const NETWORK: &str = "network";
const CONTROLLER: &str = "METALPLANE_BENCH_CONTROLLER";

/// What has the boot service, and its clients, in processes of their own.
const BOOT: &str = "boot";
const BOOT_PROGRAMS: [(&str, &str); 2] =
    [("METALPLANE_BENCH_BOOT", "boot"), ("METALPLANE_BENCH_BOOT_LOAD", "boot-load")];

/// What calls the CNI plugin.
const PODS: (&str, &str) = ("pods", "METALPLANE_BENCH_PLUGIN");

#[derive(clap::Args)]
pub(crate) struct Options {
    /// A figure and its flags (`cargo xtask bench -- --help` lists them); none: all of them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let built = programs::build(root, &["bench"])?;
    let program = &built["bench"];
    match options.words.first().map(String::as_str) {
        None => ALL.iter().try_for_each(|name| measure(root, program, &[(*name).to_owned()])),
        Some("tables" | "help" | "--help" | "-h") => start(Command::new(program).args(&options.words)),
        Some(_) => measure(root, program, &options.words),
    }
}

fn measure(root: &Path, program: &Path, words: &[String]) -> Result<()> {
    if ON_SPDK.contains(&words[0].as_str()) {
        return match native::build(root, None)? {
            Ok(target) => start(test::as_root_with(program, &[(native::VARIABLE, &target)]).args(words)),
            Err(missing) => {
                eprintln!("SKIP {}: {missing}", words[0]);
                Ok(())
            }
        };
    }
    test::needs(root)?;
    if ON_A_SITE.contains(&words[0].as_str()) {
        let folder = release::run(root, &release::Options::here())?;
        return start(test::as_root_with(program, &[(release::VARIABLE, &folder)]).args(words));
    }
    if words[0] == BOOT {
        let built = programs::boot(root)?;
        let variables = BOOT_PROGRAMS.map(|(variable, name)| (variable, built[name].as_path()));
        return start(test::as_root_with(program, &variables).args(words));
    }
    if words[0] == PODS.0 {
        let plugin = programs::plugin(root)?;
        return start(Command::new(program).env(PODS.1, plugin).args(words));
    }
    let controller = match words[0].as_str() {
        SCALE => Some(programs::bench(root)?),
        NETWORK => Some(programs::controller(root)?),
        _ => None,
    };
    if let Some(controller) = controller {
        return start(test::as_root_with(program, &[(CONTROLLER, &controller)]).args(words));
    }
    start(test::as_root(program).args(words))
}

fn start(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("start {command:?}"))?;
    ensure!(status.success(), "{command:?} failed: {status} (its output is above)");
    Ok(())
}
