//! Snapshots: what a volume was at a moment, that nobody writes.

use super::{Fault, Handle, Pool, SNAPSHOT_RECORD, Snapshot, blocks::New, files, record::SnapshotRecord};
use jiff::Timestamp;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("volume {0} does not exist")]
    NoSuchVolume(String),
    #[error("snapshot {id} of that name exists, of volume {of}: choose another name")]
    Incompatible { id: Handle, of: String },
    #[error(transparent)]
    Io(#[from] Fault),
}

#[derive(Debug, thiserror::Error)]
pub enum DeleteSnapshotError {
    #[error("snapshot {id} is part of group snapshot {group}: delete the group")]
    InGroup { id: Handle, group: String },
    #[error(transparent)]
    Io(#[from] Fault),
}

impl Pool {
    /// Takes a snapshot, or finds the one that an earlier try took.
    pub fn create_snapshot(&self, name: &str, volume: &Handle) -> Result<Snapshot, SnapshotError> {
        let id = Handle::of_snapshot(name);
        let _lock = self.lock()?;
        if let Some(snapshot) = self.snapshot(&id)? {
            let record = &snapshot.record;
            if record.source_volume != volume.as_str() || record.name != name {
                return Err(SnapshotError::Incompatible { id, of: record.source_volume.clone() });
            }
            return Ok(snapshot);
        }
        let Some(source) = self.volume(volume)? else {
            return Err(SnapshotError::NoSuchVolume(volume.to_string()));
        };
        let record = SnapshotRecord {
            name: name.into(),
            size_bytes: source.record.size_bytes,
            source_volume: volume.to_string(),
            created: Timestamp::now(),
            group: None,
        };
        files::build(&self.snapshots_dir(), id.as_str(), |unfinished| {
            let new = New { id: &id, folder: unfinished.into(), size_bytes: record.size_bytes };
            self.blocks.snapshot(&new, &self.as_origin(&source))?;
            files::write_record(unfinished, SNAPSHOT_RECORD, &record)
        })?;
        Ok(Snapshot { id, record })
    }

    /// Deleting what is not there is success. Volumes made from it do not depend on it.
    pub fn delete_snapshot(&self, id: &Handle) -> Result<(), DeleteSnapshotError> {
        let _lock = self.lock()?;
        if let Some(group) = self.snapshot(id)?.and_then(|snapshot| snapshot.record.group) {
            return Err(DeleteSnapshotError::InGroup { id: id.clone(), group });
        }
        self.blocks.remove_snapshot(id)?;
        files::discard(&self.snapshots_dir(), id.as_str())?;
        self.swept();
        Ok(())
    }

    pub fn snapshot(&self, id: &Handle) -> Result<Option<Snapshot>, Fault> {
        self.snapshot_in(&self.home(id)?, id)
    }

    /// All snapshots, those of groups too, ordered by id.
    pub fn snapshots(&self) -> Result<Vec<Snapshot>, Fault> {
        let alone = self.handles(&self.snapshots_dir())?;
        let alone = alone.iter().filter_map(|id| self.snapshot_in(&self.snapshots_dir(), id).transpose());
        let mut all = alone.collect::<Result<Vec<_>, _>>()?;
        all.extend(self.groups()?.into_iter().flat_map(|group| group.snapshots));
        all.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(all)
    }

    pub(super) fn snapshot_in(&self, folder: &Path, id: &Handle) -> Result<Option<Snapshot>, Fault> {
        let path = folder.join(id.as_str()).join(SNAPSHOT_RECORD);
        Ok(files::read_record(&path)?.map(|record| Snapshot { id: id.clone(), record }))
    }

    /// The folder of a snapshot that exists.
    pub(super) fn snapshot_dir(&self, id: &Handle) -> Result<PathBuf, Fault> {
        Ok(self.home(id)?.join(id.as_str()))
    }

    /// The folder that holds the snapshot's own: its group's, if it has one.
    fn home(&self, id: &Handle) -> Result<PathBuf, Fault> {
        let groups = self.handles(&self.groups_dir())?;
        let mut groups = groups.into_iter().map(|group| self.groups_dir().join(group.as_str()));
        Ok(groups.find(|group| group.join(id.as_str()).is_dir()).unwrap_or_else(|| self.snapshots_dir()))
    }
}
