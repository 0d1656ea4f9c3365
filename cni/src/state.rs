//! What ADD left: a file for each sandbox and interface of the cluster network behind which something was attached. By it DEL
//! decides, for a pod's annotations may have changed since.

use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct State {
    /// Of the list of plugins.
    pub network: String,
    pub container_id: String,
    pub ifname: String,
    pub pod_uid: String,
    pub netns: String,
    pub interfaces: Vec<Attached>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Attached {
    pub name: String,
    /// Before it was moved.
    pub device: String,
    pub mac_address: String,
    pub addresses: Vec<String>,
    /// Its MAC address may be another one by now.
    #[serde(default)]
    pub configured_by_pod: bool,
    /// It is the node's own, and goes back there.
    #[serde(default)]
    pub function: bool,
}

fn path(folder: &Path, container_id: &str, ifname: &str) -> PathBuf {
    folder.join(format!("{container_id}.{ifname}.json"))
}

fn failed(what: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::io(format!("{what} {}: {error}", path.display()))
}

impl State {
    /// Appears whole.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), Error> {
        fs::create_dir_all(folder).map_err(|error| failed("make", folder, &error))?;
        let path = path(folder, &self.container_id, &self.ifname);
        let new = path.with_extension("new");
        let text = serde_json::to_vec(self).map_err(|error| Error::io(format!("write the state: {error}")))?;
        fs::write(&new, text).map_err(|error| failed("write", &new, &error))?;
        fs::rename(&new, &path).map_err(|error| failed("write", &path, &error))
    }

    /// `None`: ADD attached nothing.
    pub(crate) fn read(folder: &Path, container_id: &str, ifname: &str) -> Result<Option<Self>, Error> {
        Self::read_file(&path(folder, container_id, ifname))
    }

    fn read_file(path: &Path) -> Result<Option<Self>, Error> {
        match fs::read(path) {
            Ok(text) => {
                let state = serde_json::from_slice(&text);
                state.map(Some).map_err(|error| Error::io(format!("{}: {error}", path.display())))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", path, &error)),
        }
    }

    pub(crate) fn all(folder: &Path) -> Result<Vec<Self>, Error> {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|error| failed("read", folder, &error))?,
        };
        let files = entries.flatten().map(|entry| entry.path());
        let files = files.filter(|path| path.extension().is_some_and(|ending| ending == "json"));
        files.filter_map(|path| Self::read_file(&path).transpose()).collect()
    }

    pub(crate) fn remove(&self, folder: &Path) -> Result<(), Error> {
        let path = path(folder, &self.container_id, &self.ifname);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed("remove", &path, &error)),
            _ => Ok(()),
        }
    }
}
