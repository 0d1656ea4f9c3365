//! Which namespace a hot-plugged disk has, kept where a reboot of the DPU forgets it. A host over fabrics connects again to
//! a new target and must find each disk where it was, in whatever order they are presented again.

use crate::names;
use planner::exposure::ExposureId;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

#[derive(Debug)]
pub struct Places {
    file: PathBuf,
    /// Namespace IDs by the disk's name.
    known: BTreeMap<String, u32>,
}

impl Places {
    /// A file that cannot be read is as good as none: what the target has is seen there.
    pub fn open(file: PathBuf) -> Self {
        let known = std::fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        Self { file, known }
    }

    pub fn of(&self, id: &ExposureId) -> Option<u32> {
        self.known.get(&names::bdev(id)).copied()
    }

    /// Kept for a disk that may come back.
    pub fn is_kept(&self, nsid: u32) -> bool {
        self.known.values().any(|kept| *kept == nsid)
    }

    pub fn keep(&mut self, id: &ExposureId, nsid: u32) -> io::Result<()> {
        if self.known.insert(names::bdev(id), nsid) == Some(nsid) { Ok(()) } else { self.write() }
    }

    pub fn forget(&mut self, id: &ExposureId) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_outlive_the_agent() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("spdk/places");
        let (a, b) = (ExposureId { uid: "a".to_owned(), epoch: 1 }, ExposureId { uid: "a".to_owned(), epoch: 2 });
        let mut places = Places::open(file.clone());
        places.keep(&a, 3).expect("written");
        places.keep(&b, 4).expect("written");
        places.forget(&b).expect("written");
        let again = Places::open(file);
        assert_eq!((again.of(&a), again.of(&b)), (Some(3), None), "another epoch is another disk");
        assert!(again.is_kept(3) && !again.is_kept(4));
    }
}
