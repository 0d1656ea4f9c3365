//! What a DPU has itself: a file or block device that its target opens, or a bdev that its target was started with.
//! Volumes of this kind are made by hand. The handle is the whole path, or the bdev's name (of a logical volume:
//! `lvstore/volume`).

use super::{Adapter, Given, Refusal, Target};

pub(super) const ADAPTER: Adapter = Adapter { driver: "bdev.metalplane.io", understood: &["module"], read };

/// What makes a bdev of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Module {
    /// A path, by the kernel's AIO: what there is everywhere.
    Aio,
    /// A path, by io_uring.
    Uring,
    /// It is a bdev already: a logical volume, a local NVMe disk, memory.
    Bdev,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalVolume {
    pub module: Module,
    pub name: String,
}

fn read(given: &Given<'_>) -> Result<Target, Refusal> {
    let text = given.need("module")?;
    let module = match text.as_str() {
        "aio" => Module::Aio,
        "uring" => Module::Uring,
        "bdev" => Module::Bdev,
        _ => return Err(Refusal::Value { attribute: "module", value: text }),
    };
    let is_path = given.handle.starts_with('/');
    if is_path == (module == Module::Bdev) {
        return Err(Refusal::Value { attribute: "module", value: text });
    }
    Ok(Target::Local(LocalVolume { module, name: given.handle.to_owned() }))
}
