//! Group snapshots: several volumes at one moment.
//!
//! Images are written by loop devices and emulators that take no lock of ours, and blocks are shared for one file at a time.
//! So a group is cut one image after the other and then looked at again: if no image was written between its own cut and
//! the last one, all cuts are what the images were at that last moment, which is what a power failure then would have left.
//! If one was, all is cut anew. Volumes that are written without a pause for [`PATIENCE`] are refused, not cut apart.
//!
//! "Written" is the file's time of modification. It has the grain of the kernel's tick, so only an image whose last write is
//! older than [`SETTLED`] is cut: a write in the same tick would leave no trace.
//!
//! A group is one folder with its record and a folder per snapshot, and appears and goes by one rename. Its snapshots are
//! found, listed and restored like others, and deleted with the group only.

use super::{
    Fault, GROUP_RECORD, Group, Handle, IMAGE, Pool, SNAPSHOT_RECORD, Volume, files,
    record::{GroupRecord, SnapshotRecord},
};
use jiff::Timestamp;
use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime},
};

/// How long a moment without writes is waited for, with the pool's lock held.
const PATIENCE: Duration = Duration::from_secs(3);
/// More than a tick of any kernel.
const SETTLED: Duration = Duration::from_millis(20);

#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    #[error("volume {0} does not exist")]
    NoSuchVolume(String),
    #[error("group snapshot {0} does not exist")]
    NoSuchGroup(String),
    #[error("group snapshot {id} of that name exists, of volumes {of}: choose another name")]
    Incompatible { id: Handle, of: String },
    #[error("snapshot_ids are not those of group snapshot {id}, which are: {of}")]
    Members { id: Handle, of: String },
    #[error(
        "pool {pool} is made of logical volumes, which cannot be cut at one moment: take a snapshot of each volume"
    )]
    OneByOne { pool: String },
    #[error(
        "the volumes were written without a pause for {} s, so they cannot be cut at one moment ({fault}): \
         freeze their filesystems, or stop who writes them, and try again",
        PATIENCE.as_secs()
    )]
    Busy { fault: Fault },
    #[error(transparent)]
    Io(Fault),
}

impl From<Fault> for GroupError {
    fn from(fault: Fault) -> GroupError {
        match fault.cause.kind() {
            ErrorKind::ResourceBusy => GroupError::Busy { fault },
            _ => GroupError::Io(fault),
        }
    }
}

impl Pool {
    /// Takes a group snapshot, or finds the one that an earlier try took.
    pub fn create_group(&self, name: &str, volumes: &BTreeSet<Handle>) -> Result<Group, GroupError> {
        let id = Handle::of_group(name);
        let source_volumes: Vec<String> = volumes.iter().map(Handle::to_string).collect();
        let _lock = self.lock()?;
        if let Some(group) = self.group(&id)? {
            if group.record.name != name || group.record.source_volumes != source_volumes {
                return Err(GroupError::Incompatible { id, of: group.record.source_volumes.join(", ") });
            }
            return Ok(group);
        }
        if !self.blocks.are_files() {
            return Err(GroupError::OneByOne { pool: self.name.clone() });
        }
        let mut members = Vec::new();
        for handle in volumes {
            let volume = self.volume(handle)?.ok_or_else(|| GroupError::NoSuchVolume(handle.to_string()))?;
            members.push((Handle::of_member(name, handle), volume));
        }
        files::build(&self.groups_dir(), id.as_str(), |unfinished| {
            let paths = |(id, volume): &(Handle, Volume)| (unfinished.join(id.as_str()), self.image(&volume.handle));
            let images: Vec<_> = members.iter().map(paths).collect();
            let copies = cut_together(&images)?;
            let created = Timestamp::now();
            for ((member, volume), (copy, (folder, _))) in members.iter().zip(copies.iter().zip(&images)) {
                let size_bytes = volume.record.size_bytes;
                // An expansion that crashed after growing the file has not happened yet.
                files::at("set the size of", folder, copy.set_len(size_bytes))?;
                files::at("sync", folder, copy.sync_all())?;
                let record = SnapshotRecord {
                    name: format!("{name}/{member}"),
                    size_bytes,
                    source_volume: volume.handle.to_string(),
                    created,
                    group: Some(id.to_string()),
                };
                files::write_record(folder, SNAPSHOT_RECORD, &record)?;
            }
            let record = GroupRecord { name: name.into(), source_volumes: source_volumes.clone(), created };
            files::write_record(unfinished, GROUP_RECORD, &record)
        })?;
        self.group(&id)?.ok_or_else(|| GroupError::NoSuchGroup(id.to_string()))
    }

    /// Deleting what is not there is success. `members`: the snapshots that the caller knows it by, or none.
    pub fn delete_group(&self, id: &Handle, members: &[String]) -> Result<(), GroupError> {
        let _lock = self.lock()?;
        if let Some(group) = self.group(id)? {
            group.is_known_by(members)?;
        }
        Ok(files::discard(&self.groups_dir(), id.as_str())?)
    }

    pub fn group(&self, id: &Handle) -> Result<Option<Group>, Fault> {
        let folder = self.groups_dir().join(id.as_str());
        let Some(record) = files::read_record::<GroupRecord>(&folder.join(GROUP_RECORD))? else { return Ok(None) };
        let mut snapshots = Vec::new();
        for member in self.handles(&folder)? {
            snapshots.extend(self.snapshot_in(&folder, &member)?);
        }
        Ok(Some(Group { id: id.clone(), record, snapshots }))
    }

    /// All groups, ordered by id.
    pub fn groups(&self) -> Result<Vec<Group>, Fault> {
        let ids = self.handles(&self.groups_dir())?;
        ids.iter().filter_map(|id| self.group(id).transpose()).collect()
    }
}

impl Group {
    /// Whether a caller that names the members means this group. One that names none relies on the id.
    pub fn is_known_by(&self, members: &[String]) -> Result<(), GroupError> {
        let own: BTreeSet<&str> = self.snapshots.iter().map(|snapshot| snapshot.id.as_str()).collect();
        let named: BTreeSet<&str> = members.iter().map(String::as_str).collect();
        if named.is_empty() || named == own {
            return Ok(());
        }
        Err(GroupError::Members { id: self.id.clone(), of: own.into_iter().collect::<Vec<_>>().join(", ") })
    }
}

/// When an image was written last, and its size.
type Stamp = (SystemTime, u64);

/// Copies images, each into a folder of its own, all at one moment: pairs of the folder and the image.
fn cut_together(images: &[(PathBuf, PathBuf)]) -> Result<Vec<File>, Fault> {
    let deadline = Instant::now() + PATIENCE;
    // One image alone is always at one moment.
    let several = images.len() > 1;
    loop {
        // What is to be written back for a cut is written before the first one, not between them.
        for (_, image) in images {
            files::at("sync", image, File::open(image).and_then(|file| file.sync_data()))?;
        }
        let (mut stamps, mut copies) = (Vec::new(), Vec::new());
        for (folder, image) in images {
            files::remove(folder)?;
            files::make_folder(folder)?;
            stamps.push(if several { settled(image, deadline)? } else { stamp(image)? });
            copies.push(files::reflink(image, &folder.join(IMAGE))?);
        }
        let mut written = None;
        for ((_, image), before) in images.iter().zip(&stamps).filter(|_| several) {
            if stamp(image)? != *before {
                written = Some(image);
            }
        }
        match written {
            None => return Ok(copies),
            Some(image) if Instant::now() > deadline => return Err(busy(image)),
            Some(_) => {}
        }
    }
}

/// The stamp of an image that nobody is writing right now.
fn settled(image: &Path, deadline: Instant) -> Result<Stamp, Fault> {
    loop {
        let stamp = stamp(image)?;
        // A time to come is of a clock that was set back: the next write has another.
        if stamp.0.elapsed().map_or(true, |age| age > SETTLED) {
            return Ok(stamp);
        }
        if Instant::now() > deadline {
            return Err(busy(image));
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn stamp(image: &Path) -> Result<Stamp, Fault> {
    let meta = files::at("look at", image, image.metadata())?;
    Ok((files::at("look at", image, meta.modified())?, meta.len()))
}

fn busy(image: &Path) -> Fault {
    Fault { step: "cut together with others", path: image.into(), cause: io::Error::from(ErrorKind::ResourceBusy) }
}
