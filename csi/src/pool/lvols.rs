//! Blocks of an lvol pool: thin logical volumes on a storage node, each exported by NVMe over fabrics.
//!
//! | in the lvstore | what it is |
//! |---|---|
//! | `vol-…`, `snap-…` | a volume, a snapshot: its handle |
//! | `tmp-vol-…-…` | a copy that is being made: it gets its volume's name when it has its size |
//! | `base-…` | the snapshot behind a volume that was copied from a volume; nobody's but its clones' |
//!
//! **No volume is larger than its parent** ([`ports::LogicalVolumes`] says why, and refuses it). So that clones of a snapshot may be
//! larger than the image, the snapshot is: a volume that no host is let in to is stretched to `largest` for the moment of the
//! snapshot, while it is not exported, and is shrunk to its own size before it is exported again. The snapshot's record has the
//! image's size. A volume that a host may have open is not touched: its snapshot has its size, and a clone that is to be
//! larger, or the volume itself when it grows, takes over the snapshot's data first.
//!
//! A snapshot that still has clones lives on under its name when it was deleted (`gone/<id>` beside the records). It goes with the
//! last clone, or becomes part of its only clone where both are of one size.

use super::{
    Ailment, Capacity, Fault, Gravity, Handle, Limits, UNFINISHED, Volume,
    blocks::{Blocks, New, Origin},
    files,
    handle::short,
    size::STEP,
};
use ports::{
    ErrorClass, LogicalVolumes, PortError,
    lvol::{Export, Lvol},
};
use std::{
    collections::BTreeSet,
    fmt,
    future::Future,
    io::{self, ErrorKind},
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::runtime;

/// Written while a volume is larger than its record says.
const STRETCHED: &str = "stretched.json";
/// How old a look may be that tells no more than how a volume is.
const RECENT: Duration = Duration::from_secs(1);

/// An lvol pool's storage node.
pub struct LvolPlace {
    pub node: Arc<dyn LogicalVolumes>,
    pub lvstore: String,
    /// Where volumes are exported.
    pub address: SocketAddr,
    /// How large a clone of any snapshot may become without a copy.
    pub largest: u64,
}

pub(super) struct Lvols {
    place: LvolPlace,
    /// Of the records.
    dir: PathBuf,
    runtime: runtime::Handle,
    seen: Mutex<Option<(Instant, Vec<Lvol>)>>,
}

impl fmt::Debug for Lvols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lvols({} at {})", self.place.lvstore, self.place.address)
    }
}

fn find<'a>(all: &'a [Lvol], name: &str) -> Option<&'a Lvol> {
    all.iter().find(|lvol| lvol.name == name)
}

impl Lvols {
    /// Must be called inside a tokio runtime; what it does is called outside of one.
    pub(super) fn new(place: LvolPlace, dir: &Path) -> Lvols {
        Lvols { place, dir: dir.into(), runtime: runtime::Handle::current(), seen: Mutex::default() }
    }

    pub(super) fn gone_dir(dir: &Path) -> PathBuf {
        dir.join("gone")
    }

    fn node(&self) -> &dyn LogicalVolumes {
        &*self.place.node
    }

    fn ask<T>(&self, verb: impl Future<Output = Result<T, PortError>>) -> Result<T, Fault> {
        self.runtime.block_on(verb).map_err(|error| self.fault(&error))
    }

    fn fault(&self, error: &PortError) -> Fault {
        let is_full = || {
            let room = self.runtime.block_on(self.node().room());
            room.is_ok_and(|room| room.free < room.step)
        };
        let kind = match error.class {
            ErrorClass::Unreachable => ErrorKind::TimedOut,
            ErrorClass::Busy if is_full() => ErrorKind::StorageFull,
            ErrorClass::Busy | ErrorClass::Conflict => ErrorKind::ResourceBusy,
            ErrorClass::NotFound => ErrorKind::NotFound,
            ErrorClass::Unauthorized => ErrorKind::PermissionDenied,
            ErrorClass::Unsupported | ErrorClass::Invalid => ErrorKind::InvalidInput,
        };
        self.failed(kind, &error.message)
    }

    fn failed(&self, kind: ErrorKind, cause: &str) -> Fault {
        let path = PathBuf::from(format!("lvstore {}", self.place.lvstore));
        Fault { step: "use", path, cause: io::Error::new(kind, cause.to_owned()) }
    }

    fn list(&self) -> Result<Vec<Lvol>, Fault> {
        let all = self.ask(self.node().list())?;
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), all.clone()));
        Ok(all)
    }

    /// For who asks of one volume after the other.
    fn recent(&self) -> Result<Vec<Lvol>, Fault> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match seen {
            Some((at, all)) if at.elapsed() < RECENT => Ok(all),
            _ => self.list(),
        }
    }

    fn get(&self, name: &str) -> Result<(Lvol, Vec<Lvol>), Fault> {
        let all = self.list()?;
        let lvol = find(&all, name).cloned();
        let missing = || self.failed(ErrorKind::NotFound, &format!("there is no logical volume {name}"));
        Ok((lvol.ok_or_else(missing)?, all))
    }

    /// How large it may become behind its parent.
    fn most(&self, lvol: &Lvol, all: &[Lvol]) -> Option<u64> {
        lvol.parent.as_ref().map(|parent| find(all, parent).map_or(lvol.size_bytes, |parent| parent.size_bytes))
    }

    /// Grows it to the size, taking over data of parents that are smaller.
    fn enlarge(&self, name: &str, size_bytes: u64) -> Result<(), Fault> {
        loop {
            let (lvol, all) = self.get(name)?;
            if lvol.size_bytes >= size_bytes {
                return Ok(());
            }
            match self.most(&lvol, &all) {
                Some(most) if most < size_bytes => self.ask(self.node().decouple(name))?,
                _ => return self.ask(self.node().grow(name, size_bytes)),
            }
        }
    }

    /// A snapshot of a volume, as large as can be.
    fn cut(&self, volume: &Origin, name: &str) -> Result<(), Fault> {
        let own = volume.id.as_str();
        self.settle(volume)?;
        let (lvol, all) = self.get(own)?;
        if find(&all, name).is_some() {
            return Ok(());
        }
        let most = self.most(&lvol, &all).unwrap_or(self.place.largest);
        let is_free = matches!(lvol.export, Export::None | Export::Offered);
        if !is_free || most <= lvol.size_bytes {
            return self.ask(self.node().snapshot(own, name));
        }
        files::write_record(&volume.folder, STRETCHED, &name)?;
        self.ask(self.node().withdraw(own))?;
        self.ask(self.node().grow(own, most))?;
        self.ask(self.node().snapshot(own, name))?;
        self.settle(volume)
    }

    /// Ends what [`Lvols::cut`] began: nobody could reach the volume since.
    fn settle(&self, volume: &Origin) -> Result<(), Fault> {
        let (own, mark) = (volume.id.as_str(), volume.folder.join(STRETCHED));
        if !mark.exists() {
            return Ok(());
        }
        let (lvol, _) = self.get(own)?;
        // Marked, and not withdrawn yet: it has its size still.
        if lvol.size_bytes > volume.size_bytes {
            self.ask(self.node().shrink(own, volume.size_bytes))?;
        }
        self.ask(self.node().export(own))?;
        files::remove(&mark)
    }

    /// A clone of that size, under another name until it has it.
    fn copy(&self, snapshot: &str, new: &New<'_>) -> Result<(), Fault> {
        let draft = format!("tmp-{}-{}", new.id, short(snapshot));
        if find(&self.list()?, &draft).is_none() {
            self.ask(self.node().copy(snapshot, &draft))?;
        }
        let (made, _) = self.get(&draft)?;
        if made.size_bytes > new.size_bytes {
            self.ask(self.node().shrink(&draft, new.size_bytes))?;
        }
        self.enlarge(&draft, new.size_bytes)?;
        self.ask(self.node().rename(&draft, new.id.as_str()))
    }

    /// What cannot be set while nobody has the volume open is set by [`Blocks::tend`] when somebody has.
    fn set_limits(&self, volume: &str, limits: &Limits) -> Result<(), Fault> {
        match self.runtime.block_on(self.node().limit(volume, words(limits))) {
            Err(error) if error.class == ErrorClass::Busy => {
                tracing::debug!("{error}");
                Ok(())
            }
            other => other.map_err(|error| self.fault(&error)),
        }
    }

    fn gone(&self) -> Result<BTreeSet<String>, Fault> {
        Ok(files::names(&Lvols::gone_dir(&self.dir))?.into_iter().collect())
    }
}

/// The snapshot behind a copy of a volume.
fn base_of(volume: &Handle) -> String {
    format!("base-{}", short(volume.as_str()))
}

impl Blocks for Lvols {
    fn capacity(&self) -> Result<Capacity, Fault> {
        let room = self.ask(self.node().room())?;
        Ok(Capacity { total: room.total, available: room.free })
    }

    fn step(&self) -> Result<u64, Fault> {
        Ok(self.ask(self.node().room())?.step.max(STEP))
    }

    fn are_files(&self) -> bool {
        false
    }

    fn make(&self, new: &New<'_>, origin: Option<&Origin>) -> Result<Option<String>, Fault> {
        let own = new.id.as_str();
        // One that is there lacks its record only: an earlier try made it.
        if find(&self.list()?, own).is_none() {
            match origin {
                None => self.ask(self.node().create(own, new.size_bytes))?,
                Some(origin) if origin.is_snapshot => self.copy(origin.id.as_str(), new)?,
                Some(volume) => {
                    let base = base_of(new.id);
                    self.cut(volume, &base)?;
                    self.copy(&base, new)?;
                }
            }
        }
        let (made, _) = self.get(own)?;
        if made.size_bytes != new.size_bytes {
            let cause = format!(
                "{own} is there without a record and has {} bytes, not {}: rename or delete it there",
                made.size_bytes, new.size_bytes
            );
            return Err(self.failed(ErrorKind::AlreadyExists, &cause));
        }
        self.ask(self.node().export(own))?;
        Ok(Some(made.uuid))
    }

    fn snapshot(&self, new: &New<'_>, volume: &Origin) -> Result<(), Fault> {
        self.cut(volume, new.id.as_str())
    }

    fn grow(&self, volume: &Origin, size_bytes: u64) -> Result<(), Fault> {
        self.settle(volume)?;
        self.enlarge(volume.id.as_str(), size_bytes)
    }

    fn limit(&self, volume: &Handle, limits: &Limits) -> Result<(), Fault> {
        self.set_limits(volume.as_str(), limits)
    }

    fn user(&self, volume: &Handle) -> Result<Option<String>, Fault> {
        Ok(find(&self.list()?, volume.as_str()).and_then(|lvol| match &lvol.export {
            Export::Connected(host) => Some(host.clone()),
            Export::None | Export::Offered | Export::Admitted => None,
        }))
    }

    fn remove(&self, volume: &Handle) -> Result<(), Fault> {
        self.ask(self.node().withdraw(volume.as_str()))?;
        self.ask(self.node().delete(volume.as_str()))
    }

    fn remove_snapshot(&self, id: &Handle) -> Result<(), Fault> {
        let mark = Lvols::gone_dir(&self.dir).join(id.as_str());
        files::at("write", &mark, std::fs::write(&mark, ""))?;
        files::sync_folder(&Lvols::gone_dir(&self.dir))
    }

    fn ailment(&self, volume: &Origin) -> Option<Ailment> {
        let name = volume.id.as_str();
        match self.recent() {
            Err(fault) => Some(Ailment::unreadable(&fault.to_string())),
            Ok(all) => match find(&all, name) {
                Some(lvol) if lvol.size_bytes >= volume.size_bytes => None,
                Some(lvol) => Some(Ailment {
                    gravity: Gravity::DataLoss,
                    reason: "ImageTruncated",
                    message: format!(
                        "{name} has {} bytes of {}: restore a snapshot",
                        lvol.size_bytes, volume.size_bytes
                    ),
                }),
                None => Some(Ailment {
                    gravity: Gravity::DataLoss,
                    reason: "ImageMissing",
                    message: format!(
                        "lvstore {} has no {name}: see that its disk is there, or restore a snapshot",
                        self.place.lvstore
                    ),
                }),
            },
        }
    }

    /// As csi-driver-nvmf has them.
    fn context(&self, volume: &Volume) -> Vec<(&'static str, String)> {
        let uuid = volume.record.uuid.clone().unwrap_or_default();
        vec![
            ("targetTrType", "tcp".into()),
            ("targetTrAddr", self.place.address.ip().to_string()),
            ("targetTrPort", self.place.address.port().to_string()),
            ("nqn", self.node().export_name(&uuid)),
            ("deviceUUID", uuid),
        ]
    }

    /// A target that was started anew has the volumes, and neither exports nor limits.
    fn tend(&self, volume: &Volume, folder: PathBuf) -> Result<(), Fault> {
        let size_bytes = volume.record.size_bytes;
        self.settle(&Origin { id: volume.handle.clone(), is_snapshot: false, folder, size_bytes })?;
        let all = self.recent()?;
        let Some(lvol) = find(&all, volume.handle.as_str()) else { return Ok(()) };
        if lvol.export == Export::None {
            self.ask(self.node().export(&lvol.name))?;
        }
        if lvol.limits != words(&volume.record.limits) {
            self.set_limits(&lvol.name, &volume.record.limits)?;
        }
        Ok(())
    }

    fn sweep(&self, anew: bool) -> Result<(), Fault> {
        let gone = self.gone()?;
        loop {
            let all = self.list()?;
            let is_one_size =
                |lvol: &Lvol, name: &String| find(&all, name).is_some_and(|it| it.size_bytes == lvol.size_bytes);
            let is_free = |lvol: &Lvol| match lvol.clones.as_slice() {
                [] => true,
                [only] => is_one_size(lvol, only),
                _ => false,
            };
            let is_dead = |lvol: &Lvol| {
                let left = lvol.name.starts_with("base-") || gone.contains(&lvol.name);
                left && lvol.is_snapshot || anew && lvol.name.starts_with("tmp-vol-")
            };
            let Some(dead) = all.iter().find(|lvol| is_dead(lvol) && is_free(lvol)) else { break };
            self.ask(self.node().delete(&dead.name))?;
        }
        let left = self.list()?;
        for name in gone.iter().filter(|name| !name.starts_with(UNFINISHED) && find(&left, name).is_none()) {
            files::remove(&Lvols::gone_dir(&self.dir).join(name))?;
        }
        Ok(())
    }
}

/// In the storage's words.
fn words(limits: &Limits) -> ports::lvol::Limits {
    ports::lvol::Limits {
        operations: limits.iops.unwrap_or_default(),
        mib: limits.bandwidth_mib.unwrap_or_default(),
        read_mib: limits.read_mib.unwrap_or_default(),
        write_mib: limits.write_mib.unwrap_or_default(),
    }
}
