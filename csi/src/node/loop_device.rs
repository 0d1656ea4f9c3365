//! Loop devices, found by what they are on: nothing has to be remembered between two calls or two processes.

use super::{
    command::{CommandError, run},
    device::Device,
};
use crate::pool::UNFINISHED;
use serde::Deserialize;
use serde_json::Value;
use std::{
    ffi::OsStr,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Which image has which device.
pub(super) struct LoopDevice;

#[derive(Deserialize)]
struct Listing {
    loopdevices: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    name: PathBuf,
    #[serde(rename = "back-file")]
    file: Option<String>,
    #[serde(rename = "back-ino")]
    inode: Value,
    #[serde(rename = "back-maj:min")]
    device: Option<String>,
    ro: Value,
}

impl LoopDevice {
    /// The device on this image. An image that is deleted already is known by its path.
    pub(super) fn find(image: &Path) -> Result<Option<Device>, CommandError> {
        let columns = "NAME,BACK-FILE,BACK-INO,BACK-MAJ:MIN,RO";
        let answer = run("losetup", &["--list", "--json", "--output", columns].map(OsStr::new))?;
        if answer.is_empty() {
            return Ok(None);
        }
        let listing: Listing = serde_json::from_str(&answer)
            .map_err(|_| CommandError::Answer { program: "losetup", answer: answer.clone() })?;
        let identity = image.metadata().ok().map(|meta| {
            let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
            (meta.ino().to_string(), format!("{major}:{minor}"))
        });
        let gone = deleted(image);
        let ours = |entry: &Entry| match &identity {
            Some((inode, device)) => {
                plain(&entry.inode) == *inode && entry.device.as_deref().map(str::trim) == Some(device)
            }
            None => entry.file.as_ref().is_some_and(|file| gone.contains(file)),
        };
        let found = listing.loopdevices.into_iter().find(ours);
        Ok(found.map(|it| Device { read_only: ["true", "1"].contains(&plain(&it.ro).as_str()), path: it.name }))
    }

    /// The device on this image, made if there is none.
    pub(super) fn attach(image: &Path, read_only: bool) -> Result<Device, CommandError> {
        if let Some(present) = LoopDevice::find(image)? {
            return Ok(present);
        }
        let mut arguments: Vec<&OsStr> = vec!["--find".as_ref(), "--show".as_ref(), "--nooverlap".as_ref()];
        arguments.extend(read_only.then_some(OsStr::new("--read-only")));
        arguments.push(image.as_ref());
        Ok(Device { path: run("losetup", &arguments)?.into(), read_only })
    }

    pub(super) fn detach(device: &Device) -> Result<(), CommandError> {
        run("losetup", &["--detach".as_ref(), device.path.as_ref()]).map(drop)
    }

    /// The image has grown: so does the device.
    pub(super) fn take_new_size(device: &Device) -> Result<(), CommandError> {
        run("losetup", &["--set-capacity".as_ref(), device.path.as_ref()]).map(drop)
    }
}

/// What the kernel calls an image that was deleted: by the path it had last, which is the pool's folder of what is being
/// removed, unless that folder was removed in another way.
fn deleted(image: &Path) -> Vec<String> {
    let (file, folder) = (image.file_name(), image.parent());
    let name = folder.and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let moved = folder.map(|folder| folder.with_file_name(format!("{UNFINISHED}{name}")));
    let moved = moved.zip(file).map(|(folder, file)| folder.join(file));
    [Some(image.to_owned()), moved].into_iter().flatten().map(|path| format!("{} (deleted)", path.display())).collect()
}

/// util-linux writes numbers and booleans as such, or, in some releases, as strings.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), |text| text.trim().to_owned())
}
