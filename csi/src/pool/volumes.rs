//! Volumes: create, clone, publish, expand, delete. Each may be called again with the same words and the same end.

use super::{
    ContentSource, Fault, Handle, IMAGE, OpenError, Pool, Publication, Range, SizeError, VOLUME_RECORD, Volume,
    files::{self, Filesystem},
    record::VolumeRecord,
};
use jiff::Timestamp;
use std::{fs::File, path::PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error("volume {handle} of that name exists and differs: {why}")]
    Incompatible { handle: Handle, why: String },
    #[error("the source, {0}, does not exist in pool {1}")]
    NoSource(ContentSource, String),
    #[error(transparent)]
    Size(#[from] SizeError),
    #[error(transparent)]
    NoReflink(OpenError),
    #[error(transparent)]
    Io(#[from] Fault),
}

#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    #[error("volume {handle} is published to node {node}: unpublish it first")]
    Published { handle: Handle, node: String },
    #[error(transparent)]
    Io(#[from] Fault),
}

#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    #[error("volume {0} does not exist")]
    NoSuchVolume(String),
    #[error("node {node} has not registered with pool {pool}: is the node plugin running there, with that --pool?")]
    NoSuchNode { node: String, pool: String },
    #[error("volume {handle} is published to node {node} already, read-only: {read_only}")]
    Incompatible { handle: Handle, node: String, read_only: bool },
    #[error("volume {handle} is published to node {node}: one node at a time")]
    Elsewhere { handle: Handle, node: String },
    #[error(transparent)]
    Io(#[from] Fault),
}

#[derive(Debug, thiserror::Error)]
pub enum ExpandError {
    #[error("volume {0} does not exist")]
    NoSuchVolume(String),
    #[error(transparent)]
    Size(#[from] SizeError),
    #[error(transparent)]
    Io(#[from] Fault),
}

impl Pool {
    /// Makes a volume, blank or as a copy; or finds the one that an earlier try made.
    pub fn create_volume(
        &self,
        name: &str,
        range: Range,
        source: Option<&ContentSource>,
    ) -> Result<Volume, CreateError> {
        let handle = Handle::of_volume(name);
        let _lock = self.lock()?;
        if let Some(volume) = self.volume(&handle)? {
            return match difference(&volume.record, name, range, source) {
                None => Ok(volume),
                Some(why) => Err(CreateError::Incompatible { handle, why }),
            };
        }
        let origin = source.map(|source| self.origin(source)).transpose()?;
        let size_bytes = range.choose(origin.as_ref().map(|(_, bytes)| *bytes))?;
        self.fits(size_bytes)?;
        let record = VolumeRecord {
            name: name.into(),
            size_bytes,
            source: source.cloned(),
            created: Timestamp::now(),
            published: Vec::new(),
        };
        files::build(&self.volumes_dir(), handle.as_str(), |unfinished| {
            let image = unfinished.join(IMAGE);
            let file = match &origin {
                Some((path, _)) => files::reflink(path, &image)?,
                None => files::at("create", &image, File::create_new(&image))?,
            };
            files::at("set the size of", &image, file.set_len(size_bytes))?;
            files::at("sync", &image, file.sync_all())?;
            files::write_record(unfinished, VOLUME_RECORD, &record)
        })
        .map_err(|fault| self.explain(fault))?;
        Ok(Volume { handle, record })
    }

    /// Deleting what is not there is success.
    pub fn delete_volume(&self, handle: &Handle) -> Result<(), DeleteError> {
        let _lock = self.lock()?;
        if let Some(publication) = self.volume(handle)?.and_then(|volume| volume.record.published.into_iter().next()) {
            return Err(DeleteError::Published { handle: handle.clone(), node: publication.node });
        }
        Ok(files::discard(&self.volumes_dir(), handle.as_str())?)
    }

    /// Records that a node has the volume.
    pub fn publish_volume(&self, handle: &Handle, node: &str, read_only: bool) -> Result<(), PublishError> {
        let _lock = self.lock()?;
        let Some(Volume { mut record, .. }) = self.volume(handle)? else {
            return Err(PublishError::NoSuchVolume(handle.to_string()));
        };
        if !self.knows_node(node) {
            return Err(PublishError::NoSuchNode { node: node.into(), pool: self.name.clone() });
        }
        if let Some(present) = record.published.first() {
            let (handle, node_then) = (handle.clone(), present.node.clone());
            return match present {
                same if same.node == node && same.read_only == read_only => Ok(()),
                same if same.node == node => {
                    Err(PublishError::Incompatible { handle, node: node_then, read_only: same.read_only })
                }
                _ => Err(PublishError::Elsewhere { handle, node: node_then }),
            };
        }
        record.published.push(Publication { node: node.into(), read_only });
        Ok(self.write_volume(handle, &record)?)
    }

    /// Forgets one node, or with `None` all. A volume or a publication that is not there is success.
    pub fn unpublish_volume(&self, handle: &Handle, node: Option<&str>) -> Result<(), Fault> {
        let _lock = self.lock()?;
        let Some(Volume { mut record, .. }) = self.volume(handle)? else { return Ok(()) };
        let before = record.published.len();
        record.published.retain(|publication| node.is_some_and(|node| publication.node != node));
        if record.published.len() == before { Ok(()) } else { self.write_volume(handle, &record) }
    }

    /// Grows a volume; never shrinks one. The file first: a crash in between leaves the size that is on record.
    pub fn expand_volume(&self, handle: &Handle, range: Range) -> Result<Volume, ExpandError> {
        let _lock = self.lock()?;
        let Some(Volume { mut record, .. }) = self.volume(handle)? else {
            return Err(ExpandError::NoSuchVolume(handle.to_string()));
        };
        if !range.admits(record.size_bytes) {
            let size_bytes = Range { required: range.required.max(Some(record.size_bytes)), ..range }.choose(None)?;
            self.fits(size_bytes)?;
            let image = self.image(handle);
            let grown = File::options().write(true).open(&image).and_then(|file| {
                file.set_len(size_bytes)?;
                file.sync_all()
            });
            files::at("grow", &image, grown)?;
            record.size_bytes = size_bytes;
            self.write_volume(handle, &record)?;
        }
        Ok(Volume { handle: handle.clone(), record })
    }

    pub fn volume(&self, handle: &Handle) -> Result<Option<Volume>, Fault> {
        let path = self.volumes_dir().join(handle.as_str()).join(VOLUME_RECORD);
        Ok(files::read_record(&path)?.map(|record| Volume { handle: handle.clone(), record }))
    }

    /// All volumes, ordered by handle.
    pub fn volumes(&self) -> Result<Vec<Volume>, Fault> {
        let handles = self.handles(&self.volumes_dir())?;
        handles.iter().filter_map(|handle| self.volume(handle).transpose()).collect()
    }

    fn write_volume(&self, handle: &Handle, record: &VolumeRecord) -> Result<(), Fault> {
        files::write_record(&self.volumes_dir().join(handle.as_str()), VOLUME_RECORD, record)
    }

    /// The image to copy, and its size.
    fn origin(&self, source: &ContentSource) -> Result<(PathBuf, u64), CreateError> {
        let found = match source {
            ContentSource::Volume(handle) => match Handle::parse(handle) {
                None => None,
                Some(handle) => self.volume(&handle)?.map(|volume| (self.image(&handle), volume.record.size_bytes)),
            },
            ContentSource::Snapshot(id) => match Handle::parse(id) {
                None => None,
                Some(id) => {
                    let image = self.snapshots_dir().join(id.as_str()).join(IMAGE);
                    self.snapshot(&id)?.map(|snapshot| (image, snapshot.record.size_bytes))
                }
            },
        };
        found.ok_or_else(|| CreateError::NoSource(source.clone(), self.name.clone()))
    }

    /// A pool may promise more than it has, but no volume may be larger than the pool.
    fn fits(&self, size: u64) -> Result<(), Room> {
        let total = self.capacity()?.total;
        let above = SizeError::AbovePool { size, pool: self.name.clone(), total };
        if size > total { Err(Room::Size(above)) } else { Ok(()) }
    }

    /// The pool could share blocks when it was opened: say so properly if another filesystem is there now.
    fn explain(&self, fault: Fault) -> CreateError {
        match Filesystem::of(&self.dir) {
            Ok(filesystem) if fault.is_no_reflink() => CreateError::NoReflink(OpenError::NoReflink {
                name: self.name.clone(),
                dir: self.dir.clone(),
                filesystem: filesystem.to_string(),
            }),
            _ => CreateError::Io(fault),
        }
    }
}

/// Why there is no room for a volume; part of two operations' errors.
enum Room {
    Size(SizeError),
    Io(Fault),
}

impl From<Fault> for Room {
    fn from(fault: Fault) -> Room {
        Room::Io(fault)
    }
}

impl From<Room> for CreateError {
    fn from(room: Room) -> CreateError {
        match room {
            Room::Size(error) => CreateError::Size(error),
            Room::Io(fault) => CreateError::Io(fault),
        }
    }
}

impl From<Room> for ExpandError {
    fn from(room: Room) -> ExpandError {
        match room {
            Room::Size(error) => ExpandError::Size(error),
            Room::Io(fault) => ExpandError::Io(fault),
        }
    }
}

/// What an existing volume of that name lacks to be the one that is asked for now.
fn difference(present: &VolumeRecord, name: &str, range: Range, source: Option<&ContentSource>) -> Option<String> {
    if present.name != name {
        return Some(format!("it is named {}", present.name));
    }
    if !range.admits(present.size_bytes) {
        return Some(format!("it has {} bytes", present.size_bytes));
    }
    if present.source.as_ref() != source {
        return Some(match &present.source {
            None => "it was made blank".into(),
            Some(source) => format!("it is a copy of {source}"),
        });
    }
    None
}
