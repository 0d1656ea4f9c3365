//! Volumes: create, clone, publish, expand, delete. Each may be called again with the same words and the same end.

use super::{
    ContentSource, Fault, Handle, Limits, OpenError, Pool, Publication, READERS, Range, SizeError, VOLUME_RECORD,
    Volume, WRITER_RECORD,
    blocks::{New, Origin},
    files::{self, Filesystem},
    record::VolumeRecord,
};
use jiff::Timestamp;
use serde::Deserialize;
use std::path::PathBuf;

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
    #[error("volume {handle} is in use on node {node}: take it away there first")]
    InUse { handle: Handle, node: String },
    #[error("volume {handle} is in use: {host} is connected to it; detach it there first")]
    Connected { handle: Handle, host: String },
    #[error(transparent)]
    Machine(#[from] OfMachine),
    #[error(transparent)]
    Io(#[from] Fault),
}

/// Why a node may not have a volume: for publishing and for staging alike.
#[derive(Debug, thiserror::Error)]
pub enum UseError {
    #[error("volume {0} does not exist")]
    NoSuchVolume(String),
    #[error("node {node} has not registered with pool {pool}: is the node plugin running there, with that --pool?")]
    NoSuchNode { node: String, pool: String },
    #[error("volume {handle} is a logical volume of pool {pool}: the DPUs of machines connect it, and no node does")]
    NoNodes { handle: Handle, pool: String },
    #[error("volume {handle} is on node {node} already, read-only: {read_only}")]
    Incompatible { handle: Handle, node: String, read_only: bool },
    #[error(
        "volume {handle} is in use on node {node}, and may be on one node at a time; \
         if that node is certainly down for good, remove {registration}"
    )]
    Elsewhere { handle: Handle, node: String, registration: String },
    #[error(transparent)]
    Machine(#[from] OfMachine),
    #[error(transparent)]
    Io(#[from] Fault),
}

/// A DPU has the volume for a machine; its agent's file connector keeps the record meanwhile.
#[derive(Debug, thiserror::Error)]
#[error(
    "volume {handle} is a disk of a bare-metal machine ({client} {does} it): detach it there first; \
     if no DiskAttachment has that UID any more, remove {}",
    record.display()
)]
pub struct OfMachine {
    handle: Handle,
    client: String,
    does: &'static str,
    record: PathBuf,
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

#[derive(Debug, thiserror::Error)]
pub enum ModifyError {
    #[error("volume {0} does not exist")]
    NoSuchVolume(String),
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
        limits: &Limits,
    ) -> Result<Volume, CreateError> {
        let handle = Handle::of_volume(name);
        let _lock = self.lock()?;
        if let Some(volume) = self.volume(&handle)? {
            return match difference(&volume.record, name, range, source, limits) {
                None => Ok(volume),
                Some(why) => Err(CreateError::Incompatible { handle, why }),
            };
        }
        let origin = source.map(|source| self.origin(source)).transpose()?;
        let size_bytes = range.choose_by(self.blocks.step()?, origin.as_ref().map(|origin| origin.size_bytes))?;
        self.fits(size_bytes)?;
        let mut record = VolumeRecord {
            name: name.into(),
            size_bytes,
            source: source.cloned(),
            created: Timestamp::now(),
            uuid: None,
            limits: *limits,
            published: Vec::new(),
            staged: Vec::new(),
        };
        files::build(&self.volumes_dir(), handle.as_str(), |unfinished| {
            let new = New { id: &handle, folder: unfinished.into(), size_bytes };
            record.uuid = self.blocks.make(&new, origin.as_ref())?;
            if !record.limits.is_empty() {
                self.blocks.limit(&handle, &record.limits)?;
            }
            files::write_record(unfinished, VOLUME_RECORD, &record)
        })
        .map_err(|fault| self.explain(fault))?;
        Ok(Volume { handle, record })
    }

    /// Deleting what is not there is success.
    pub fn delete_volume(&self, handle: &Handle) -> Result<(), DeleteError> {
        let _lock = self.lock()?;
        if let Some(volume) = self.volume(handle)?
            && let Some(node) = self.user(&volume.record, None)
        {
            return Err(DeleteError::InUse { handle: handle.clone(), node: node.into() });
        }
        if let Some(machine) = self.writer(handle)?.or(self.reader(handle)?) {
            return Err(machine.into());
        }
        if let Some(host) = self.blocks.user(handle)? {
            return Err(DeleteError::Connected { handle: handle.clone(), host });
        }
        self.blocks.remove(handle)?;
        files::discard(&self.volumes_dir(), handle.as_str())?;
        self.swept();
        Ok(())
    }

    /// Records that a node was given the volume.
    pub fn publish_volume(&self, handle: &Handle, node: &str, read_only: bool) -> Result<(), UseError> {
        self.take(handle, node, read_only, |record| &mut record.published)
    }

    /// Records that a node is about to attach the volume.
    pub fn stage_volume(&self, handle: &Handle, node: &str, read_only: bool) -> Result<(), UseError> {
        self.take(handle, node, read_only, |record| &mut record.staged)
    }

    /// Whoever runs the cluster says that a node, or with `None` every node, does not have the volume any more. A volume
    /// or a publication that is not there is success.
    pub fn unpublish_volume(&self, handle: &Handle, node: Option<&str>) -> Result<(), Fault> {
        let other = |publication: &Publication| node.is_some_and(|node| publication.node != node);
        self.update(handle, |record| {
            record.published.retain(other);
            record.staged.retain(other);
        })
    }

    /// A node says that it has detached the volume.
    pub fn unstage_volume(&self, handle: &Handle, node: &str) -> Result<(), Fault> {
        self.update(handle, |record| record.staged.retain(|publication| publication.node != node))
    }

    /// A node, other than the one named, that has the volume. A node that is not registered has nothing: that is how an
    /// administrator frees the volumes of a node that will not come back.
    pub fn user<'a>(&self, record: &'a VolumeRecord, except: Option<&str>) -> Option<&'a str> {
        let nodes = record.published.iter().chain(&record.staged).map(|publication| publication.node.as_str());
        nodes.filter(|node| except != Some(*node)).find(|node| self.knows_node(node))
    }

    fn take(
        &self,
        handle: &Handle,
        node: &str,
        read_only: bool,
        list: impl Fn(&mut VolumeRecord) -> &mut Vec<Publication>,
    ) -> Result<(), UseError> {
        let _lock = self.lock()?;
        let Some(Volume { mut record, .. }) = self.volume(handle)? else {
            return Err(UseError::NoSuchVolume(handle.to_string()));
        };
        if !self.blocks.are_files() {
            return Err(UseError::NoNodes { handle: handle.clone(), pool: self.name.clone() });
        }
        if !self.knows_node(node) {
            return Err(UseError::NoSuchNode { node: node.into(), pool: self.name.clone() });
        }
        // Machines and a node may read together.
        let reader = if read_only { None } else { self.reader(handle)? };
        if let Some(machine) = self.writer(handle)?.or(reader) {
            return Err(machine.into());
        }
        if let Some(other) = self.user(&record, Some(node)) {
            let registration = self.nodes_dir().join(other).display().to_string();
            return Err(UseError::Elsewhere { handle: handle.clone(), node: other.into(), registration });
        }
        let taken = list(&mut record);
        if let Some(present) = taken.iter().find(|publication| publication.node == node) {
            return match present.read_only == read_only {
                true => Ok(()),
                false => Err(UseError::Incompatible {
                    handle: handle.clone(),
                    node: node.into(),
                    read_only: present.read_only,
                }),
            };
        }
        *taken = vec![Publication { node: node.into(), read_only }];
        Ok(self.write_volume(handle, &record)?)
    }

    /// The machine that writes the volume.
    fn writer(&self, handle: &Handle) -> Result<Option<OfMachine>, Fault> {
        #[derive(Deserialize)]
        struct Writer {
            identity: String,
        }
        let record = self.volume_dir(handle).join(WRITER_RECORD);
        let writer = files::read_record::<Writer>(&record)?;
        Ok(writer.map(|it| OfMachine { handle: handle.clone(), client: it.identity, does: "writes", record }))
    }

    /// One of the machines that read the volume.
    fn reader(&self, handle: &Handle) -> Result<Option<OfMachine>, Fault> {
        let (readers, own) = (self.dir.join(READERS), format!("{handle}."));
        let mut names = files::names(&readers)?.into_iter();
        Ok(names.find_map(|name| {
            let (client, record) = (name.strip_prefix(&own)?.to_owned(), readers.join(&name));
            Some(OfMachine { handle: handle.clone(), client, does: "reads", record })
        }))
    }

    fn update(&self, handle: &Handle, change: impl FnOnce(&mut VolumeRecord)) -> Result<(), Fault> {
        let _lock = self.lock()?;
        let Some(Volume { mut record, .. }) = self.volume(handle)? else { return Ok(()) };
        let before = record.clone();
        change(&mut record);
        if record == before { Ok(()) } else { self.write_volume(handle, &record) }
    }

    /// Grows a volume; never shrinks one. The blocks first: a crash in between leaves the size that is on record.
    pub fn expand_volume(&self, handle: &Handle, range: Range) -> Result<Volume, ExpandError> {
        let _lock = self.lock()?;
        let Some(Volume { mut record, .. }) = self.volume(handle)? else {
            return Err(ExpandError::NoSuchVolume(handle.to_string()));
        };
        if !range.admits(record.size_bytes) {
            let range = Range { required: range.required.max(Some(record.size_bytes)), ..range };
            let size_bytes = range.choose_by(self.blocks.step()?, None)?;
            self.fits(size_bytes)?;
            let present = Volume { handle: handle.clone(), record: record.clone() };
            self.blocks.grow(&self.as_origin(&present), size_bytes)?;
            record.size_bytes = size_bytes;
            self.write_volume(handle, &record)?;
        }
        Ok(Volume { handle: handle.clone(), record })
    }

    /// Changes the limits: to these, and no other.
    pub fn modify_volume(&self, handle: &Handle, limits: &Limits) -> Result<(), ModifyError> {
        let _lock = self.lock()?;
        let Some(Volume { mut record, .. }) = self.volume(handle)? else {
            return Err(ModifyError::NoSuchVolume(handle.to_string()));
        };
        if *limits != record.limits {
            self.blocks.limit(handle, limits)?;
            record.limits = *limits;
            self.write_volume(handle, &record)?;
        }
        Ok(())
    }

    pub fn volume(&self, handle: &Handle) -> Result<Option<Volume>, Fault> {
        let path = self.volume_dir(handle).join(VOLUME_RECORD);
        Ok(files::read_record(&path)?.map(|record| Volume { handle: handle.clone(), record }))
    }

    /// All volumes, ordered by handle.
    pub fn volumes(&self) -> Result<Vec<Volume>, Fault> {
        let handles = self.handles(&self.volumes_dir())?;
        handles.iter().filter_map(|handle| self.volume(handle).transpose()).collect()
    }

    fn write_volume(&self, handle: &Handle, record: &VolumeRecord) -> Result<(), Fault> {
        files::write_record(&self.volume_dir(handle), VOLUME_RECORD, record)
    }

    /// What to copy.
    fn origin(&self, source: &ContentSource) -> Result<Origin, CreateError> {
        let found = match source {
            ContentSource::Volume(handle) => match Handle::parse(handle) {
                None => None,
                Some(handle) => self.volume(&handle)?.map(|volume| self.as_origin(&volume)),
            },
            ContentSource::Snapshot(id) => match Handle::parse(id) {
                None => None,
                Some(id) => {
                    let folder = self.snapshot_dir(&id)?;
                    let size_bytes = self.snapshot(&id)?.map(|snapshot| snapshot.record.size_bytes);
                    size_bytes.map(|size_bytes| Origin { id, is_snapshot: true, folder, size_bytes })
                }
            },
        };
        found.ok_or_else(|| CreateError::NoSource(source.clone(), self.name.clone()))
    }

    /// What is left over is no reason to fail: the next time removes it.
    pub(super) fn swept(&self) {
        if let Err(fault) = self.blocks.sweep(false) {
            tracing::warn!(pool = self.name, "{fault}");
        }
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
fn difference(
    present: &VolumeRecord,
    name: &str,
    range: Range,
    source: Option<&ContentSource>,
    limits: &Limits,
) -> Option<String> {
    if present.name != name {
        return Some(format!("it is named {}", present.name));
    }
    if !range.admits(present.size_bytes) {
        return Some(format!("it has {} bytes", present.size_bytes));
    }
    if !limits.is_empty() && present.limits != *limits {
        return Some("it has other mutable parameters".into());
    }
    if present.source.as_ref() != source {
        return Some(match &present.source {
            None => "it was made blank".into(),
            Some(source) => format!("it is a copy of {source}"),
        });
    }
    None
}
