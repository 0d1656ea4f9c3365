//! The file pool's fence: a writer's way to the blocks is its own, and is taken away.
//!
//! Whoever connects read-write gets a name of the image that is made for this one identity: the hard link
//! `<volume>/writers/<identity>.<id>.img`. To fence it
//!
//! 1. the volume records that this epoch and all before it are refused (`fence.json`): nobody connects under them again;
//! 2. the link goes, and every other of this writer: what has not been opened under it cannot be any more;
//! 3. the image is replaced by a copy that shares its blocks (a reflink, made in one step by the file system): what has it
//!    open goes on writing to the old one, which no name leads to, and is freed when that is closed;
//! 4. the record of the writer goes.
//!
//! Everything that was written before step 3 is in the copy; nothing after it is. The steps can be repeated after a crash
//! at any point. A fence of an epoch that is not the last writer's leaves the image alone.

use crate::connector::{DRIVER, blocking, failed, identity, parse_identity};
use crate::publication;
use crate::records::{self, FenceRecord, WriterRecord};
use crate::volume::{Located, Pools, locate};
use async_trait::async_trait;
use planner::exposure::ExposureId;
use ports::volume::{Fence, Volume};
use ports::{ErrorClass, PortError, StorageFence};
use rustix::fs::ioctl_ficlone;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone)]
pub struct FileFence {
    pools: Pools,
}

impl FileFence {
    /// `pools` as the connectors have them.
    pub fn new(pools: BTreeMap<String, PathBuf>) -> Self {
        Self { pools }
    }

    fn find(&self, volume: &Volume, identity: &str, what: &str) -> Result<(Located, ExposureId), PortError> {
        let none = || PortError::new(ErrorClass::Invalid, format!("{what}: it is no identity of the file pool"));
        Ok((locate(volume, &self.pools)?, parse_identity(identity).ok_or_else(none)?))
    }
}

#[async_trait]
impl StorageFence for FileFence {
    fn driver(&self) -> &str {
        DRIVER
    }

    fn kind(&self) -> Fence {
        Fence::OwnDriver
    }

    fn fence_identity(&self, id: &ExposureId) -> String {
        identity(id)
    }

    /// Of who went down and has not let go itself: whoever comes next, and who deletes the volume, would find it.
    async fn dismiss(&self, volume: &Volume, identity: &str) -> Result<(), PortError> {
        let what = format!("dismissing {identity} of volume {}", volume.handle);
        let (this, volume, identity) = (self.clone(), volume.clone(), identity.to_owned());
        blocking(what, move |what| {
            let (located, id) = this.find(&volume, &identity, what)?;
            dismiss(&located, &id).map_err(|error| failed(what, &error))
        })
        .await
    }

    async fn fence(&self, volume: &Volume, identity: &str) -> Result<(), PortError> {
        let what = format!("fencing {identity} of volume {}", volume.handle);
        let (this, volume, identity) = (self.clone(), volume.clone(), identity.to_owned());
        blocking(what, move |what| {
            let (located, id) = this.find(&volume, &identity, what)?;
            fence(&located, &id).map_err(|error| failed(what, &error))
        })
        .await
    }

    async fn verify_fenced(&self, volume: &Volume, identity: &str) -> Result<bool, PortError> {
        let what = format!("looking whether {identity} of volume {} is fenced", volume.handle);
        let (this, volume, identity) = (self.clone(), volume.clone(), identity.to_owned());
        blocking(what, move |what| {
            let (located, id) = this.find(&volume, &identity, what)?;
            is_fenced(&located, &id).map_err(|error| failed(what, &error))
        })
        .await
    }
}

fn fence(located: &Located, id: &ExposureId) -> io::Result<()> {
    // The CSI driver grows an image under the pool's lock: it must not grow the one that is being replaced.
    let _pool = publication::lock(located)?;
    let folder = File::open(located.folder())?;
    folder.lock()?;
    let fenced = records::read::<FenceRecord>(&located.fence())?.map_or(0, |record| record.epoch);
    if fenced < id.epoch {
        records::write(&located.fence(), &FenceRecord { epoch: id.epoch, identity: identity(id) })?;
    }
    located.links(&identity(id))?.iter().try_for_each(|link| records::remove(link))?;
    let last = records::read::<WriterRecord>(&located.writer())?;
    if last.is_none_or(|last| last.id.epoch > id.epoch) {
        return Ok(());
    }
    replace(&located.disk())?;
    records::remove(&located.writer())?;
    folder.sync_all()
}

fn dismiss(located: &Located, id: &ExposureId) -> io::Result<()> {
    publication::forget_reader(located.pool(), &identity(id))?;
    let last = records::read::<WriterRecord>(&located.writer())?;
    if last.is_some_and(|last| last.id == id.into()) { fence(located, id) } else { Ok(()) }
}

/// The same bytes behind the same name, and nobody has them open.
fn replace(disk: &Path) -> io::Result<()> {
    let aside = disk.with_extension("img.new");
    records::remove(&aside)?;
    let (from, to) = (File::open(disk)?, File::create_new(&aside)?);
    to.set_permissions(from.metadata()?.permissions())?;
    ioctl_ficlone(&to, &from)?;
    to.sync_all()?;
    fs::rename(&aside, disk)
}

fn is_fenced(located: &Located, id: &ExposureId) -> io::Result<bool> {
    let folder = File::open(located.folder())?;
    folder.lock()?;
    let refused = records::read::<FenceRecord>(&located.fence())?.is_some_and(|record| record.epoch >= id.epoch);
    let linked = !located.links(&identity(id))?.is_empty();
    let writes = records::read::<WriterRecord>(&located.writer())?.is_some_and(|last| last.id.epoch <= id.epoch);
    Ok(refused && !linked && !writes)
}

/// Whether the volume refuses this grant.
pub(crate) fn refuses(located: &Located, id: &ExposureId) -> io::Result<bool> {
    Ok(records::read::<FenceRecord>(&located.fence())?.is_some_and(|record| record.epoch >= id.epoch))
}
