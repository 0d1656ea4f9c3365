//! The records of connections of this boot of the DPU: small JSON files, replaced as a whole.

use planner::connector::HolderPod;
use planner::exposure::ExposureId;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Written before `connect` answers, removed by `disconnect`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    pub id: ExposureId,
    pub pod: HolderPod,
    pub device: PathBuf,
    pub read_only: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Records {
    directory: PathBuf,
}

impl Records {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Keeps others out (a second agent during an update) until the file is dropped.
    pub(crate) fn lock(&self) -> io::Result<File> {
        fs::create_dir_all(&self.directory)?;
        let file = File::options().create(true).append(true).open(self.directory.join(".lock"))?;
        file.lock()?;
        Ok(file)
    }

    fn path(&self, id: &ExposureId) -> PathBuf {
        self.directory.join(format!("{}-{}.json", id.uid, id.epoch))
    }

    /// A record that cannot be read is an error, never an absence: what it stood for may still be exposed.
    pub(crate) fn all(&self) -> io::Result<Vec<Record>> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut records = Vec::new();
        for entry in entries {
            let path = entry?.path();
            // Not `*.json.new`: what a crash between write and rename left behind.
            if path.extension().is_some_and(|extension| extension == "json") {
                records.extend(read(&path)?);
            }
        }
        Ok(records)
    }

    pub(crate) fn write(&self, record: &Record) -> io::Result<()> {
        let path = self.path(&record.id);
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

/// `None`: disconnected since the folder was read.
fn read(path: &Path) -> io::Result<Option<Record>> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()));
    serde_json::from_slice(&text).map(Some).map_err(invalid)
}
