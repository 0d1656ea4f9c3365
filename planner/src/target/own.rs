//! Our own driver: an image of a file pool, or a logical volume that a storage node exports by NVMe over fabrics.

use super::{Adapter, Given, Refusal, Target, nvmeof};

/// Of a file pool's volume.
const IMAGE: [&str; 2] = ["pool", "format"];

pub(super) const ADAPTER: Adapter = Adapter {
    driver: "csi.metalplane.io",
    understood: &["pool", "format", nvmeof::TYPE, "targetTrAddr", "targetTrPort", "deviceUUID", "nqn"],
    read,
};

/// A raw image in a folder that every DPU sees. The handle may name the pool, too: whoever opens it looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileVolume {
    pub pool: Option<String>,
    pub handle: String,
}

fn read(given: &Given<'_>) -> Result<Target, Refusal> {
    given.only("format", "raw")?;
    if given.attributes.contains_key(nvmeof::TYPE) {
        // The handle names no subsystem.
        given.need("nqn")?;
        return nvmeof::read(given);
    }
    let of_namespace = |key: &&&str| !IMAGE.contains(key) && given.attributes.contains_key(**key);
    if let Some(attribute) = ADAPTER.understood.iter().find(of_namespace) {
        return Err(Refusal::Unknown { attribute: (*attribute).to_owned() });
    }
    Ok(Target::File(FileVolume { pool: given.get("pool").map(str::to_owned), handle: given.handle.to_owned() }))
}
