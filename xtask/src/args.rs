//! The command line.

use crate::test;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Generated files, checks, images, the test run and the judges of Metalplane")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
pub(crate) enum Task {
    /// Write every CustomResourceDefinition to charts/metalplane-crds/templates
    Crds {
        /// Write nothing; fail if a file is not what would be written
        #[arg(long)]
        check: bool,
    },
    /// Check which folder depends on which (docs/design/architecture.md)
    Layers,
    /// Run every check and test; ends with `N passed, N failed, N skipped`
    Test(test::Options),
}

pub(crate) fn read() -> Task {
    Args::parse().task
}
