//! The records of connections, and of writers: small JSON files, replaced as a whole.

use planner::exposure::ExposureId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// One connection. Written before `connect` answers, removed by `disconnect`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ConnectionRecord {
    #[serde(flatten)]
    pub id: ExposureIdRecord,
    /// As it was given, for people who read the record.
    pub handle: String,
    pub identity: String,
    /// What was handed out: a writer's own name of the image, a reader's the image.
    pub disk: PathBuf,
    pub writer: PathBuf,
    pub read_only: bool,
}

/// Who last connected a volume read-write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WriterRecord {
    #[serde(flatten)]
    pub id: ExposureIdRecord,
    pub identity: String,
}

/// Up to which epoch the volume refuses writers. It only grows, as the epochs of a volume's hold do, so it is never lifted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FenceRecord {
    pub epoch: u64,
    /// Who was fenced last, for people.
    pub identity: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExposureIdRecord {
    pub uid: String,
    pub epoch: u64,
}

impl From<&ExposureId> for ExposureIdRecord {
    fn from(id: &ExposureId) -> Self {
        Self { uid: id.uid.clone(), epoch: id.epoch }
    }
}

impl From<&ExposureIdRecord> for ExposureId {
    fn from(id: &ExposureIdRecord) -> Self {
        Self { uid: id.uid.clone(), epoch: id.epoch }
    }
}

/// The connection records of this boot of the DPU.
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

    pub(crate) fn path(&self, id: &ExposureId) -> PathBuf {
        self.directory.join(format!("{}-{}.json", id.uid, id.epoch))
    }

    pub(crate) fn get(&self, id: &ExposureId) -> io::Result<Option<ConnectionRecord>> {
        read(&self.path(id))
    }

    pub(crate) fn all(&self) -> io::Result<Vec<ConnectionRecord>> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut records = Vec::new();
        for entry in entries {
            let path = entry?.path();
            // Not `*.json.new`: what a crash between write and rename left behind.
            if path.extension().is_some_and(|extension| extension == "json") {
                // None: disconnected since the directory was read.
                records.extend(read::<ConnectionRecord>(&path)?);
            }
        }
        Ok(records)
    }
}

/// A record that cannot be read is an error, never an absence: what it stood for may still be exposed.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|error| named(path, error.kind(), &error.to_string()))?,
    };
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|error| named(path, io::ErrorKind::InvalidData, &format!("no record: {error}")))
}

/// All or nothing, also across a loss of power: write aside, sync, rename, sync the directory.
pub(crate) fn write<T: Serialize>(path: &Path, record: &T) -> io::Result<()> {
    let aside = path.with_extension("json.new");
    let directory = path.parent().unwrap_or(Path::new("/"));
    let mut file = File::create(&aside)?;
    file.write_all(&serde_json::to_vec_pretty(record)?)?;
    file.sync_all()?;
    fs::rename(&aside, path)?;
    File::open(directory)?.sync_all()
}

pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn named(path: &Path, kind: io::ErrorKind, cause: &str) -> io::Error {
    io::Error::new(kind, format!("{}: {cause}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(uid: &str) -> ConnectionRecord {
        let id = ExposureIdRecord { uid: uid.to_owned(), epoch: 3 };
        let [disk, writer] = ["disk.img", "writer.json"].map(PathBuf::from);
        ConnectionRecord { id, handle: "fast/v".to_owned(), identity: "who".to_owned(), disk, writer, read_only: false }
    }

    #[test]
    fn records_survive_and_leftovers_do_not_count() {
        let directory = tempfile::tempdir().expect("a directory");
        let records = Records::new(directory.path().join("connections"));
        assert_eq!(records.all().expect("no directory yet"), []);
        let _lock = records.lock().expect("lock");
        let id = ExposureId { uid: "a".to_owned(), epoch: 3 };
        write(&records.path(&id), &record("a")).expect("write");
        fs::write(directory.path().join("connections/b-1.json.new"), "{\"uid\":").expect("a torn write");
        assert_eq!(records.all().expect("list"), [record("a")]);
        assert_eq!(records.get(&id).expect("get"), Some(record("a")));
        remove(&records.path(&id)).expect("remove");
        remove(&records.path(&id)).expect("remove again");
        assert_eq!(records.get(&id).expect("get"), None);
    }

    #[test]
    fn a_garbled_record_is_an_error_that_names_the_file() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("a-1.json"), "{}").expect("write");
        let error = Records::new(directory.path().to_owned()).all().expect_err("garbled");
        assert!(error.to_string().contains("a-1.json"), "{error}");
    }
}
