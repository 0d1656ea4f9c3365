//! Blocks of a file pool: a raw image in the folder of each volume and snapshot. Copies are reflinks.

use super::{
    Ailment, Capacity, Fault, Gravity, Handle, IMAGE, Limits, Volume,
    blocks::{Blocks, New, Origin},
    files,
    size::STEP,
};
use std::{
    fs::File,
    io::ErrorKind,
    path::{Path, PathBuf},
};

#[derive(Debug)]
pub(super) struct Images {
    pub(super) dir: PathBuf,
}

impl Images {
    /// The image is there at once or not at all: it is in the folder that is renamed into place.
    fn fill(new: &New<'_>, from: Option<&Path>) -> Result<(), Fault> {
        let image = new.folder.join(IMAGE);
        let file = match from {
            Some(path) => files::reflink(path, &image)?,
            None => files::at("create", &image, File::create_new(&image))?,
        };
        files::at("set the size of", &image, file.set_len(new.size_bytes))?;
        files::at("sync", &image, file.sync_all())
    }
}

impl Blocks for Images {
    fn capacity(&self) -> Result<Capacity, Fault> {
        files::capacity(&self.dir)
    }

    fn step(&self) -> Result<u64, Fault> {
        Ok(STEP)
    }

    fn are_files(&self) -> bool {
        true
    }

    fn make(&self, new: &New<'_>, origin: Option<&Origin>) -> Result<Option<String>, Fault> {
        Images::fill(new, origin.map(|origin| origin.folder.join(IMAGE)).as_deref())?;
        Ok(None)
    }

    /// An expansion that crashed after growing the file has not happened yet: the size is that on record.
    fn snapshot(&self, new: &New<'_>, volume: &Origin) -> Result<(), Fault> {
        Images::fill(new, Some(&volume.folder.join(IMAGE)))
    }

    fn grow(&self, volume: &Origin, size_bytes: u64) -> Result<(), Fault> {
        let image = volume.folder.join(IMAGE);
        let grown = File::options().write(true).open(&image).and_then(|file| {
            file.set_len(size_bytes)?;
            file.sync_all()
        });
        files::at("grow", &image, grown)
    }

    /// Whoever presents the volume reads them in its record.
    fn limit(&self, _: &Handle, _: &Limits) -> Result<(), Fault> {
        Ok(())
    }

    /// Whoever opens an image is on record beside it.
    fn user(&self, _: &Handle) -> Result<Option<String>, Fault> {
        Ok(None)
    }

    /// The image goes with its folder.
    fn remove(&self, _: &Handle) -> Result<(), Fault> {
        Ok(())
    }

    fn remove_snapshot(&self, _: &Handle) -> Result<(), Fault> {
        Ok(())
    }

    fn ailment(&self, volume: &Origin) -> Option<Ailment> {
        let image = volume.folder.join(IMAGE);
        let (expected, name) = (volume.size_bytes, image.display());
        match image.metadata() {
            Ok(meta) if meta.len() < expected => Some(Ailment {
                gravity: Gravity::DataLoss,
                reason: "ImageTruncated",
                message: format!("{name} has {} bytes of {expected}: restore a snapshot", meta.len()),
            }),
            Ok(_) => None,
            Err(error) if error.kind() == ErrorKind::NotFound => Some(Ailment {
                gravity: Gravity::DataLoss,
                reason: "ImageMissing",
                message: format!("{name} is not there: restore a snapshot"),
            }),
            Err(error) => Some(Ailment::unreadable(&format!("cannot look at {name}: {error}"))),
        }
    }

    fn context(&self, _: &Volume) -> Vec<(&'static str, String)> {
        vec![("format", "raw".into())]
    }

    fn tend(&self, _: &Volume, _: PathBuf) -> Result<(), Fault> {
        Ok(())
    }

    /// What a crash left was removed when the pool was opened.
    fn sweep(&self, _: bool) -> Result<(), Fault> {
        Ok(())
    }
}
