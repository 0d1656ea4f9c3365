//! Which hot-plugged function shows which disk, kept where a reboot of the DPU forgets it. A function outlives SNAP's process, and what SNAP
//! knew of it does not: after a restart the same disk has to come back on the same function.

use crate::names;
use planner::exposure::ExposureId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

#[derive(Debug)]
pub(super) struct Functions {
    file: PathBuf,
    /// By the disk's name.
    known: BTreeMap<String, Kept>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    pub vuid: String,
    /// The host was asked to let go of it.
    #[serde(default)]
    pub leaving: bool,
}

impl Functions {
    /// A file that cannot be read is as good as none.
    pub(super) fn open(file: PathBuf) -> Self {
        let known = std::fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        Self { file, known }
    }

    pub(super) fn of(&self, id: &ExposureId) -> Option<&Kept> {
        self.known.get(&names::bdev(id))
    }

    pub(super) fn is_kept(&self, vuid: &str) -> bool {
        self.known.values().any(|kept| kept.vuid == vuid)
    }

    pub(super) fn keep(&mut self, id: &ExposureId, kept: Kept) -> io::Result<()> {
        if self.of(id) == Some(&kept) {
            return Ok(());
        }
        self.known.insert(names::bdev(id), kept);
        self.write()
    }

    pub(super) fn forget(&mut self, id: &ExposureId) -> io::Result<()> {
        if self.known.remove(&names::bdev(id)).is_none() { Ok(()) } else { self.write() }
    }

    fn write(&self) -> io::Result<()> {
        if let Some(folder) = self.file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let new = self.file.with_extension("new");
        std::fs::write(&new, serde_json::to_vec(&self.known)?)?;
        std::fs::rename(&new, &self.file)
    }
}
