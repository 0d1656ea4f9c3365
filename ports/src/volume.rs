//! How a granted volume reaches the DPU.

use crate::{ErrorClass, PortError, emulation::Backend};
use async_trait::async_trait;
use planner::connector::HolderPod;
use planner::exposure::ExposureId;
use std::collections::BTreeMap;
use std::io;

/// A PersistentVolume's CSI source, as much of it as an adapter needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Volume {
    /// The CSI driver's name.
    pub driver: String,
    pub handle: String,
    /// `volumeAttributes`. An adapter refuses one that it does not understand (`Invalid`), it never shows a volume raw.
    pub attributes: BTreeMap<String, String>,
    pub read_only: bool,
    /// Where kubelet connects it.
    pub holder: Option<HolderPod>,
}

/// How the storage can be made to refuse a silent holder (docs/design/fencing.md, *StorageRefuses*).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fence {
    TargetAcl,
    CephBlocklist,
    ScsiPr,
    OwnDriver,
    None,
}

impl Fence {
    /// As `Dpu.status.connectors[].fence` has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TargetAcl => "TargetAcl",
            Self::CephBlocklist => "CephBlocklist",
            Self::ScsiPr => "ScsiPr",
            Self::OwnDriver => "OwnDriver",
            Self::None => "None",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    pub id: ExposureId,
    pub backend: Backend,
    pub size_bytes: u64,
}

/// Writes a connected volume, as an import does: from its beginning to its end, each byte once. It blocks: its calls are a
/// thread's. Offsets and lengths are multiples of [`WRITE_UNIT`], but for a volume's end.
pub trait VolumeWriter: Send {
    /// Gives up what the volume holds. What is read from it then is not known.
    fn discard(&mut self) -> io::Result<()>;

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Makes so much of it zero; takes no space for that where the storage has none in use there.
    fn zero(&mut self, offset: u64, length: u64) -> io::Result<()>;

    /// All that was written is kept, whatever loses its power afterwards.
    fn sync(&mut self) -> io::Result<()>;
}

/// The largest block size of any disk.
pub const WRITE_UNIT: u64 = 4096;

#[async_trait]
pub trait VolumeConnector: Send + Sync {
    /// The CSI driver whose volumes this connector understands, or [`planner::connector::KUBELET`].
    fn driver(&self) -> &str;

    fn fence(&self) -> Fence;

    /// Why what this DPU has to reach the storage reaches the volumes of other DPUs, too; `None`: it does not.
    fn shared_credential(&self) -> Option<&'static str> {
        None
    }

    /// The identity under which the storage will see this attachment (a hostnqn, a client name); from UID and epoch.
    fn identity(&self, id: &ExposureId) -> String;

    /// Connects under that identity only. Connected already by the same id: the same answer again.
    async fn connect(&self, id: &ExposureId, volume: &Volume) -> Result<Connection, PortError>;

    /// What is connected now, with the present sizes: survives a restart of the agent.
    async fn list(&self) -> Result<Vec<Connection>, PortError>;

    /// Why no image can be imported into the volumes that it connects; `None`: [`Backend::Path`] is what it hands out, or
    /// [`VolumeConnector::open_writer`] opens them.
    async fn import_refusal(&self) -> Option<String> {
        None
    }

    /// Opens what is connected, and is no path, for an import. There is one writer: what an earlier one left behind is ended,
    /// and one that still writes is `Busy`. It is not for volumes that are presented to the host.
    async fn open_writer(&self, id: &ExposureId) -> Result<Box<dyn VolumeWriter>, PortError> {
        let what = format!("{} epoch {}: volumes of {} are not written here", id.uid, id.epoch, self.driver());
        Err(PortError::new(ErrorClass::Unsupported, what))
    }

    /// Takes away what [`VolumeConnector::open_writer`] made, once the writer is dropped. Nothing there: success.
    async fn close_writer(&self, id: &ExposureId) -> Result<(), PortError> {
        let _ = id;
        Ok(())
    }

    /// Queued writes are dropped, then the connection ends, and with it what a writer left behind. Not connected: success.
    async fn disconnect(&self, id: &ExposureId) -> Result<(), PortError>;
}
