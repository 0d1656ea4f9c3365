//! An image of a pool on this node: the loop device on it, shown as any device is.

use super::{
    device::{ExpandError, PublishError, StageError, Stats, StatsError, TakeDownError, Target},
    loop_device::LoopDevice,
};
use crate::pool::{Ailment, Gravity};
use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// How long whoever looks at a device (udev, a prober) may keep it after it was detached.
const DETACH_DEADLINE: Duration = Duration::from_secs(10);

/// Attaches the image, and mounts its filesystem at the staging path.
pub fn stage(image: &Path, target: &Target, read_only: bool, staging: &Path) -> Result<(), StageError> {
    let device = LoopDevice::attach(image, read_only)?;
    if device.read_only != read_only {
        return Err(StageError::Attached(device.read_only));
    }
    // It may have been attached before the volume grew.
    LoopDevice::take_new_size(&device)?;
    device.stage(target, read_only, staging)
}

/// Unmounts and detaches; also after the volume was deleted. Without a device nothing at the path can be this volume's.
pub fn unstage(image: &Path, staging: &Path) -> Result<(), TakeDownError> {
    let Some(device) = LoopDevice::find(image)? else { return Ok(()) };
    device.unstage(staging)?;
    LoopDevice::detach(&device)?;
    // Whoever still has the device open keeps the image open: only when it is gone may another node have the volume.
    let deadline = Instant::now() + DETACH_DEADLINE;
    while LoopDevice::find(image)?.is_some() {
        if Instant::now() > deadline {
            return Err(TakeDownError::InUse(device.path.display().to_string()));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Shows a staged volume at a target path.
pub fn publish(
    image: &Path,
    target: &Target,
    read_only: bool,
    single_writer: bool,
    staging: &Path,
    path: &Path,
) -> Result<(), PublishError> {
    let device = LoopDevice::find(image)?.ok_or_else(|| PublishError::NotStaged(staging.display().to_string()))?;
    device.publish(target, read_only, single_writer, staging, path)
}

/// Tells the loop device and the filesystem on it that the image has grown.
pub fn expand(image: &Path, path: &Path) -> Result<(), ExpandError> {
    let device = LoopDevice::find(image)?.ok_or(ExpandError::NotAttached)?;
    LoopDevice::take_new_size(&device)?;
    device.expand(path)
}

pub fn stats(image: &Path, path: &Path) -> Result<Stats, StatsError> {
    LoopDevice::find(image)?.ok_or_else(|| StatsError::NotThere(path.display().to_string()))?.stats(path)
}

/// What is wrong with a staged volume on this node, seen at a path if one is given.
pub fn ailment(image: &Path, path: Option<&Path>) -> Result<Option<Ailment>, StatsError> {
    let Some(device) = LoopDevice::find(image)? else { return Ok(Some(not_attached())) };
    Ok(path.map(|path| device.ailment(path)).transpose()?.flatten())
}

fn not_attached() -> Ailment {
    Ailment {
        gravity: Gravity::Inaccessible,
        reason: "NotAttached",
        message: "the volume has no block device on this node: end the pods that use it here, and start them again"
            .into(),
    }
}
