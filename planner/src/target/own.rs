//! Our own driver's file pool.

use super::{Adapter, Given, Refusal, Target};

pub(super) const ADAPTER: Adapter = Adapter { driver: "csi.metalplane.io", understood: &["pool", "format"], read };

/// A raw image in a folder that every DPU sees. The handle may name the pool, too: whoever opens it looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileVolume {
    pub pool: Option<String>,
    pub handle: String,
}

fn read(given: &Given<'_>) -> Result<Target, Refusal> {
    given.only("format", "raw")?;
    Ok(Target::File(FileVolume { pool: given.get("pool").map(str::to_owned), handle: given.handle.to_owned() }))
}
