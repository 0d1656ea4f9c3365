//! What is connected: small JSON files, replaced as a whole, where a reboot of the DPU forgets.

use planner::exposure::ExposureId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, Clone)]
pub(crate) struct Records {
    folder: PathBuf,
}

impl Records {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    fn path(&self, id: &ExposureId) -> PathBuf {
        self.folder.join(format!("{}-{}.json", id.uid, id.epoch))
    }

    pub(crate) fn read<T: DeserializeOwned>(&self, id: &ExposureId) -> io::Result<Option<T>> {
        read(&self.path(id))
    }

    /// One that cannot be read is an error, never an absence: what it stands for may still be exposed.
    pub(crate) fn all<T: DeserializeOwned>(&self) -> io::Result<Vec<T>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let path = entry?.path();
            // Not `*.json.new`: what a crash between write and rename left behind.
            if path.extension().is_some_and(|extension| extension == "json") {
                all.extend(read(&path)?);
            }
        }
        Ok(all)
    }

    pub(crate) fn write(&self, id: &ExposureId, record: &impl Serialize) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let path = self.path(id);
        let aside = path.with_extension("json.new");
        let mut file = File::create(&aside)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        file.sync_all()?;
        fs::rename(&aside, &path)
    }

    pub(crate) fn remove(&self, id: &ExposureId) -> io::Result<()> {
        match fs::remove_file(self.path(id)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()));
    serde_json::from_slice(&text).map(Some).map_err(invalid)
}
