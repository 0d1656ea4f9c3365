//! How a granted volume reaches the DPU.

use crate::{PortError, emulation::Backend};
use async_trait::async_trait;
use planner::connector::HolderPod;
use planner::exposure::ExposureId;
use std::collections::BTreeMap;

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

/// How the storage can be made to refuse a silent holder (docs/design/fencing.md, step 11).
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

    /// Queued writes are dropped, then the connection ends. Not connected: success.
    async fn disconnect(&self, id: &ExposureId) -> Result<(), PortError>;
}
