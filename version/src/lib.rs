//! What a program says it is: in `--version`, in what it logs and reports, and as a `User-Agent`.

/// Of a release: with its commit behind it, as build metadata (Semantic Versioning 2.0.0, section 10: `0.1.0+1a2b3c4d5e6f`), so that
/// an operator can tell two of them apart. Else the version alone, so that a commit makes nothing to be built anew.
pub const VERSION: &str = match option_env!("METALPLANE_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};
