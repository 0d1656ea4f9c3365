//! The command line.

use crate::{bench, fuzz, image, push, release, test};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "Generated files, checks, images, the test run, the judges and the figures of Metalplane"
)]
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
    /// Write the reference (kinds, reasons, flags) to docs/reference
    Docs {
        /// Write nothing; fail if a file is not what would be written
        #[arg(long)]
        check: bool,
    },
    /// Check which folder depends on which (docs/design/architecture.md)
    Layers,
    /// Write container images (OCI layout, one tar each) and print their paths
    Image(image::Options),
    /// Write the kernel and the initramfs that install a server over the network and print their paths
    InstallerImage(image::InstallerOptions),
    /// Look up anew, in this machine's package sources, the Debian packages with programs that ship: xtask/src/image/packages.lock
    LockPackages,
    /// Write everything that an installation needs (images, charts, bmctl, checksums, instructions) to dist/VERSION
    Release(release::Options),
    /// Push the images of a release to a registry; what is there already is not sent again
    Push(push::Options),
    /// Measure figures; they are kept in benches/history and told in docs/benchmarks.md
    Bench(bench::Options),
    /// Run the third-party judges; reports are left in target/judges
    Judges {
        /// Only this one
        name: Option<String>,
    },
    /// Give the packet engines of boot and the engine of templates whatever libFuzzer thinks of; what it found is in target/fuzz
    Fuzz(fuzz::Options),
    /// Build spdk-target with the SPDK of this machine (SPDK_DIR, or pkg-config) and print where it is
    SpdkTarget,
    /// Get the packages that tests need, as root, and print where their programs are
    #[command(hide = true)]
    Prepare,
    /// Run every check and test; ends with `N passed, N failed, N skipped`
    Test(test::Options),
}

pub(crate) fn read() -> Task {
    Args::parse().task
}
