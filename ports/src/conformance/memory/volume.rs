//! A storage system with volumes by number, and the connector to it.

use super::{lock, reachable, refuse};
use crate::emulation::Backend;
use crate::fence::Admission;
use crate::volume::{Connection, Fence, Volume};
use crate::{ErrorClass, PortError, StorageFence, VolumeConnector};
use async_trait::async_trait;
use planner::exposure::ExposureId;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Sizes by path. With a folder the volumes are sparse files in it, for whoever writes them.
#[derive(Debug, Clone, Default)]
pub struct MemoryStorage {
    sizes: Arc<Mutex<BTreeMap<PathBuf, u64>>>,
    written: Arc<Mutex<BTreeMap<PathBuf, Written>>>,
    folder: Option<PathBuf>,
}

impl MemoryStorage {
    pub fn in_folder(folder: &Path) -> Self {
        Self { folder: Some(folder.to_owned()), ..Self::default() }
    }

    pub fn create(&self, size_bytes: u64) -> Backend {
        let mut sizes = lock(&self.sizes);
        let folder = self.folder.clone().unwrap_or_else(|| "/memory".into());
        let path = folder.join(format!("volume-{}", sizes.len()));
        sizes.insert(path.clone(), size_bytes);
        drop(sizes);
        let backend = Backend::Path(path);
        self.resize(&backend, size_bytes);
        backend
    }

    pub fn resize(&self, backend: &Backend, size_bytes: u64) {
        let path = backend.path().expect("a volume of this storage is a file");
        lock(&self.sizes).insert(path.to_owned(), size_bytes);
        if self.folder.is_some() {
            let file = std::fs::File::options().write(true).create(true).truncate(false).open(path);
            file.and_then(|file| file.set_len(size_bytes)).expect("the test's folder is writable");
        }
    }

    /// Of a volume, or of any other file that is there.
    pub fn size(&self, backend: &Backend) -> Option<u64> {
        let path = backend.path()?;
        let known = lock(&self.sizes).get(path).copied();
        known.or_else(|| std::fs::metadata(path).ok().map(|meta| meta.len()))
    }
}

/// What is in a volume, as much as can be told apart, and whom it refuses.
#[derive(Debug, Default)]
struct Written {
    /// The first byte.
    byte: u8,
    /// Of the last write.
    epoch: u64,
    /// Writers up to this epoch are refused.
    fenced: u64,
    /// Nobody is let in before it is admitted.
    shut: bool,
}

impl MemoryStorage {
    fn written<T>(&self, backend: &Backend, act: impl FnOnce(&mut Written) -> T) -> T {
        // By name: the same volume may be known by a path of its blocks.
        let name = backend.path().and_then(Path::file_name).map(PathBuf::from).unwrap_or_default();
        act(lock(&self.written).entry(name).or_default())
    }

    /// Refuses every writer up to this epoch.
    pub fn fence(&self, backend: &Backend, epoch: u64) {
        self.written(backend, |written| written.fenced = written.fenced.max(epoch));
    }

    /// It is started anew, and remembers neither whom it let in nor whom it refused.
    pub fn forget(&self) {
        for written in lock(&self.written).values_mut() {
            (written.fenced, written.shut) = (0, true);
        }
    }

    pub fn accepts(&self, backend: &Backend, epoch: u64) -> bool {
        self.written(backend, |written| !written.shut && epoch > written.fenced)
    }

    /// A write by the holder of this epoch. `Some`: it arrived, and so had one of this later epoch before.
    pub fn write(&self, backend: &Backend, epoch: u64, byte: u8) -> Option<u64> {
        self.written(backend, |written| {
            if written.shut || epoch <= written.fenced {
                return None;
            }
            let before = written.epoch;
            written.epoch = before.max(epoch);
            written.byte = byte;
            (before > epoch).then_some(before)
        })
    }

    pub fn byte(&self, backend: &Backend) -> u8 {
        self.written(backend, |written| written.byte)
    }
}

#[derive(Debug, Clone)]
pub struct MemoryVolumes {
    driver: String,
    storage: MemoryStorage,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    connected: BTreeMap<ExposureId, Volume>,
    /// Told to disconnect, connected or not.
    let_go: BTreeSet<ExposureId>,
    down: bool,
    /// The storage refuses the identity of this attachment.
    fenced: Option<String>,
}

impl MemoryVolumes {
    pub fn new(driver: &str, storage: MemoryStorage) -> Self {
        Self { driver: driver.to_owned(), storage, state: Arc::default() }
    }

    /// Cuts the storage off, or puts it back.
    pub fn set_down(&self, down: bool) {
        lock(&self.state).down = down;
    }

    pub fn fence(&self, uid: &str) {
        lock(&self.state).fenced = Some(uid.to_owned());
    }

    /// Whether it was told to disconnect this one.
    pub fn has_let_go(&self, id: &ExposureId) -> bool {
        lock(&self.state).let_go.contains(id)
    }

    /// A volume that exists.
    pub fn volume(&self, size_bytes: u64) -> Volume {
        let backend = self.storage.create(size_bytes);
        let handle = backend.path().map(|path| path.display().to_string()).unwrap_or_default();
        Volume { driver: self.driver.clone(), handle, attributes: BTreeMap::new(), read_only: false, holder: None }
    }

    fn connection(&self, id: &ExposureId, volume: &Volume) -> Connection {
        let backend = Backend::Path(volume.handle.clone().into());
        let refused = !volume.read_only && !self.storage.accepts(&backend, id.epoch);
        let size_bytes = if refused { 0 } else { self.storage.size(&backend).unwrap_or(0) };
        Connection { id: id.clone(), backend, size_bytes }
    }
}

#[async_trait]
impl VolumeConnector for MemoryVolumes {
    fn driver(&self) -> &str {
        &self.driver
    }

    fn fence(&self) -> Fence {
        Fence::TargetAcl
    }

    fn identity(&self, id: &ExposureId) -> String {
        identity(id)
    }

    async fn connect(&self, id: &ExposureId, volume: &Volume) -> Result<Connection, PortError> {
        let mut state = lock(&self.state);
        reachable(state.down, "the storage")?;
        let backend = Backend::Path(volume.handle.clone().into());
        let refused = !volume.read_only && !self.storage.accepts(&backend, id.epoch);
        if refused || state.fenced.as_deref() == Some(&id.uid) {
            return refuse(ErrorClass::Unauthorized, format!("volume {}: {} is fenced", volume.handle, id.uid));
        }
        if volume.driver != self.driver {
            return refuse(ErrorClass::Invalid, format!("volume {} is one of {}", volume.handle, volume.driver));
        }
        if let Some(attribute) = volume.attributes.keys().next() {
            return refuse(ErrorClass::Invalid, format!("volume {}: attribute {attribute}", volume.handle));
        }
        if self.storage.size(&backend).is_none() {
            return refuse(ErrorClass::NotFound, format!("volume {} is not there", volume.handle));
        }
        let other = state.connected.iter().find(|(known, connected)| {
            let shared = connected.handle == volume.handle && !(connected.read_only && volume.read_only);
            if *known == id { *connected != volume } else { shared || known.uid == id.uid }
        });
        if let Some((known, connected)) = other {
            return refuse(ErrorClass::Conflict, format!("volume {} is connected for {known:?}", connected.handle));
        }
        state.connected.insert(id.clone(), volume.clone());
        Ok(self.connection(id, volume))
    }

    async fn list(&self) -> Result<Vec<Connection>, PortError> {
        let state = lock(&self.state);
        reachable(state.down, "the storage")?;
        Ok(state.connected.iter().map(|(id, volume)| self.connection(id, volume)).collect())
    }

    async fn disconnect(&self, id: &ExposureId) -> Result<(), PortError> {
        let mut state = lock(&self.state);
        reachable(state.down, "the storage")?;
        state.connected.remove(id);
        state.let_go.insert(id.clone());
        Ok(())
    }
}

fn identity(id: &ExposureId) -> String {
    format!("memory.{}.{}", id.uid, id.epoch)
}

/// The fence of [`MemoryVolumes`] of the same storage.
#[derive(Debug, Clone)]
pub struct MemoryFence {
    driver: String,
    storage: MemoryStorage,
}

impl MemoryFence {
    pub fn new(driver: &str, storage: MemoryStorage) -> Self {
        Self { driver: driver.to_owned(), storage }
    }
}

fn epoch(identity: &str) -> Result<u64, PortError> {
    let found = identity.rsplit('.').next().and_then(|epoch| epoch.parse().ok());
    found.ok_or_else(|| PortError::new(ErrorClass::Invalid, format!("{identity} is no identity")))
}

#[async_trait]
impl StorageFence for MemoryFence {
    fn driver(&self) -> &str {
        &self.driver
    }

    fn kind(&self) -> Fence {
        Fence::TargetAcl
    }

    fn fence_identity(&self, id: &ExposureId) -> String {
        identity(id)
    }

    async fn admit(&self, volume: &Volume, identity: &str) -> Result<(), PortError> {
        let epoch = epoch(identity)?;
        self.storage.written(&Backend::Path(volume.handle.clone().into()), |written| {
            if epoch <= written.fenced {
                return refuse(ErrorClass::Conflict, format!("{identity} is fenced, or a later one was admitted"));
            }
            (written.fenced, written.shut) = (epoch.saturating_sub(1), false);
            Ok(())
        })
    }

    async fn forgotten(&self, admitted: &[Admission]) -> Result<Vec<usize>, PortError> {
        let is_shut = |(number, admission): (usize, &Admission)| {
            let backend = Backend::Path(admission.volume.handle.clone().into());
            self.storage.written(&backend, |written| written.shut).then_some(number)
        };
        Ok(admitted.iter().enumerate().filter_map(is_shut).collect())
    }

    async fn fence(&self, volume: &Volume, identity: &str) -> Result<(), PortError> {
        self.storage.fence(&Backend::Path(volume.handle.clone().into()), epoch(identity)?);
        Ok(())
    }

    async fn verify_fenced(&self, volume: &Volume, identity: &str) -> Result<bool, PortError> {
        Ok(!self.storage.accepts(&Backend::Path(volume.handle.clone().into()), epoch(identity)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{fence, volume};

    struct Bench(MemoryVolumes);

    #[async_trait]
    impl volume::Bench for Bench {
        type Connector = MemoryVolumes;

        /// What is in memory is never late.
        fn hands_out_anew(&self) -> bool {
            false
        }

        async fn open(&self) -> MemoryVolumes {
            self.0.clone()
        }

        async fn volume(&self, _: u8, size_bytes: u64) -> Volume {
            self.0.volume(size_bytes)
        }

        async fn missing_volume(&self) -> Volume {
            Volume { handle: "/memory/never".to_owned(), ..self.0.volume(1) }
        }

        async fn grow(&self, volume: &Volume, size_bytes: u64) {
            self.0.storage.resize(&Backend::Path(volume.handle.clone().into()), size_bytes);
        }
    }

    /// Connectors by the number of the DPU, on one storage.
    struct Site {
        storage: MemoryStorage,
        connectors: [MemoryVolumes; 3],
    }

    struct Open(MemoryStorage, Backend, u64);

    #[async_trait]
    impl fence::Session for Open {
        async fn write(&self, byte: u8) {
            self.0.write(&self.1, self.2, byte);
        }
    }

    #[async_trait]
    impl fence::Bench for Site {
        type Connector = MemoryVolumes;
        type Fence = MemoryFence;
        type Session = Open;

        async fn connector(&self, dpu: u8) -> MemoryVolumes {
            self.connectors[usize::from(dpu)].clone()
        }

        async fn fence(&self) -> MemoryFence {
            MemoryFence::new("memory.example.com", self.storage.clone())
        }

        async fn volume(&self, _: u8) -> Volume {
            self.connectors[0].volume(1 << 20)
        }

        async fn open(&self, id: &ExposureId, backend: &Backend) -> Option<Open> {
            self.storage.accepts(backend, id.epoch).then(|| Open(self.storage.clone(), backend.clone(), id.epoch))
        }

        async fn first_byte(&self, volume: &Volume) -> u8 {
            self.storage.byte(&Backend::Path(volume.handle.clone().into()))
        }
    }

    #[tokio::test]
    async fn the_fence_keeps_its_promises() {
        let storage = MemoryStorage::default();
        let connectors = [(); 3].map(|()| MemoryVolumes::new("memory.example.com", storage.clone()));
        fence::suite(&Site { storage, connectors }).await;
    }

    #[tokio::test]
    async fn keeps_the_ports_promises() {
        volume::suite(&Bench(MemoryVolumes::new("memory.example.com", MemoryStorage::default()))).await;
    }
}
