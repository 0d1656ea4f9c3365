//! From a holder pod to the block device that kubelet made for it.

use planner::connector::HolderPod;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where kubelet keeps the block devices of CSI volumes, below a pod's folder.
const DEVICES: &str = "volumeDevices/kubernetes.io~csi";
/// The kernel counts in sectors of 512 bytes, whatever the device's own are.
const SECTOR: u64 = 512;

/// kubelet's folder, and the kernel's list of block devices.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    pub kubelet: PathBuf,
    pub block_devices: PathBuf,
}

/// `Ok(None)`: kubelet has not mapped it, or not any more.
pub(crate) fn find(places: &Places, pod: &HolderPod) -> io::Result<Option<PathBuf>> {
    let link = places.kubelet.join("pods").join(&pod.uid).join(DEVICES).join(&pod.persistent_volume_name);
    let device = match fs::canonicalize(&link) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found.map_err(|error| named(&link, error.kind(), &error.to_string()))?,
    };
    let metadata = fs::metadata(&device).map_err(|error| named(&device, error.kind(), &error.to_string()))?;
    match metadata.file_type().is_block_device() {
        true => Ok(Some(device)),
        // The place that kubelet made for it, before the driver has put the device there or after it has taken it away.
        false => Ok(None),
    }
}

/// 0: the device is not there any more.
pub(crate) fn size(places: &Places, device: &Path) -> io::Result<u64> {
    let metadata = match fs::metadata(device) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        found => found.map_err(|error| named(device, error.kind(), &error.to_string()))?,
    };
    if !metadata.file_type().is_block_device() {
        return Ok(0);
    }
    let file = places.block_devices.join(number(&metadata)).join("size");
    let text = match fs::read_to_string(&file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        read => read.map_err(|error| named(&file, error.kind(), &error.to_string()))?,
    };
    let sectors: u64 = text.trim().parse().map_err(|_| named(&file, io::ErrorKind::InvalidData, "it is no number"))?;
    Ok(sectors * SECTOR)
}

/// `7:3`: what the kernel calls it.
fn number(metadata: &Metadata) -> String {
    let device = metadata.rdev();
    format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device))
}

fn named(path: &Path, kind: io::ErrorKind, cause: &str) -> io::Error {
    io::Error::new(kind, format!("{}: {cause}", path.display()))
}
