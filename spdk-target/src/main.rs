//! `spdk-target`: see the library.

use spdk_target::{args, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(args::read()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("spdk-target: {error:#}");
            ExitCode::FAILURE
        }
    }
}
