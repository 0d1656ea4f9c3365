//! A storage system with volumes by number, and the connector to it.

use super::{lock, reachable, refuse};
use crate::emulation::Backend;
use crate::volume::{Connection, Fence, Volume};
use crate::{ErrorClass, PortError, VolumeConnector};
use async_trait::async_trait;
use planner::exposure::ExposureId;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Sizes by path. With a folder the volumes are sparse files in it, for whoever writes them.
#[derive(Debug, Clone, Default)]
pub struct MemoryStorage {
    sizes: Arc<Mutex<BTreeMap<PathBuf, u64>>>,
    folder: Option<PathBuf>,
}

impl MemoryStorage {
    pub fn in_folder(folder: &Path) -> Self {
        Self { sizes: Arc::default(), folder: Some(folder.to_owned()) }
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
        let Backend::Path(path) = backend;
        lock(&self.sizes).insert(path.clone(), size_bytes);
        if self.folder.is_some() {
            let file = std::fs::File::options().write(true).create(true).truncate(false).open(path);
            file.and_then(|file| file.set_len(size_bytes)).expect("the test's folder is writable");
        }
    }

    /// Of a volume, or of any other file that is there.
    pub fn size(&self, backend: &Backend) -> Option<u64> {
        let Backend::Path(path) = backend;
        let known = lock(&self.sizes).get(path).copied();
        known.or_else(|| std::fs::metadata(path).ok().map(|meta| meta.len()))
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

    /// A volume that exists.
    pub fn volume(&self, size_bytes: u64) -> Volume {
        let Backend::Path(path) = self.storage.create(size_bytes);
        let handle = path.display().to_string();
        Volume { driver: self.driver.clone(), handle, attributes: BTreeMap::new(), read_only: false }
    }

    fn connection(&self, id: &ExposureId, volume: &Volume) -> Connection {
        let backend = Backend::Path(volume.handle.clone().into());
        let size_bytes = self.storage.size(&backend).unwrap_or(0);
        Connection { id: id.clone(), backend, size_bytes }
    }
}

#[async_trait]
impl VolumeConnector for MemoryVolumes {
    fn driver(&self) -> &str {
        &self.driver
    }

    fn fence(&self) -> Fence {
        Fence::OwnDriver
    }

    fn identity(&self, id: &ExposureId) -> String {
        format!("memory.{}.{}", id.uid, id.epoch)
    }

    async fn connect(&self, id: &ExposureId, volume: &Volume) -> Result<Connection, PortError> {
        let mut state = lock(&self.state);
        reachable(state.down, "the storage")?;
        if state.fenced.as_deref() == Some(&id.uid) {
            return refuse(ErrorClass::Unauthorized, format!("volume {}: {} is fenced", volume.handle, id.uid));
        }
        if volume.driver != self.driver {
            return refuse(ErrorClass::Invalid, format!("volume {} is one of {}", volume.handle, volume.driver));
        }
        if let Some(attribute) = volume.attributes.keys().next() {
            return refuse(ErrorClass::Invalid, format!("volume {}: attribute {attribute}", volume.handle));
        }
        if self.storage.size(&Backend::Path(volume.handle.clone().into())).is_none() {
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
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::volume;

    struct Bench(MemoryVolumes);

    #[async_trait]
    impl volume::Bench for Bench {
        type Connector = MemoryVolumes;

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

    #[tokio::test]
    async fn keeps_the_ports_promises() {
        volume::suite(&Bench(MemoryVolumes::new("memory.example.com", MemoryStorage::default()))).await;
    }
}
