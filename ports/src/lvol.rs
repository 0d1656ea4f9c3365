//! A store of logical volumes on a storage node: where a pool's blocks are, and how each volume is shown to the network.
//!
//! A logical volume is thin. A snapshot of one is read-only, and what it was taken of becomes a clone of it: it has the
//! snapshot as its parent, as clones that are made later have. A part of this port knows no CSI and keeps no record: what is
//! there is read from the store each time.

use crate::PortError;
use async_trait::async_trait;

/// Bytes of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    pub total: u64,
    pub free: u64,
    /// Sizes of volumes are multiples of this.
    pub step: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lvol {
    /// Within its store.
    pub name: String,
    pub uuid: String,
    pub size_bytes: u64,
    pub is_snapshot: bool,
    /// The snapshot behind it.
    pub parent: Option<String>,
    /// Of a snapshot: what has it as parent.
    pub clones: Vec<String>,
    pub limits: Limits,
    pub export: Export,
}

/// How far the network may reach a volume.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Export {
    #[default]
    None,
    /// It can be admitted to, and nobody is.
    Offered,
    /// A host is let in, and may be on its way.
    Admitted,
    /// This host is connected.
    Connected(String),
}

/// 0: none. Per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// A multiple of 1000.
    pub operations: u64,
    pub mib: u64,
    pub read_mib: u64,
    pub write_mib: u64,
}

/// Each verb looks at the store first: what is as it is to be is success. An answer that says nothing is explained by looking again.
#[async_trait]
pub trait LogicalVolumes: Send + Sync {
    async fn room(&self) -> Result<Room, PortError>;

    /// All of the store.
    async fn list(&self) -> Result<Vec<Lvol>, PortError>;

    /// Blank. One of that name with another size: `Conflict`.
    async fn create(&self, name: &str, size_bytes: u64) -> Result<(), PortError>;

    async fn snapshot(&self, volume: &str, name: &str) -> Result<(), PortError>;

    /// A clone, of the snapshot's size.
    async fn copy(&self, snapshot: &str, name: &str) -> Result<(), PortError>;

    /// The UUID stays.
    async fn rename(&self, from: &str, to: &str) -> Result<(), PortError>;

    /// Never smaller, and never beyond its parent: `Invalid`. Whoever has it feels it at once.
    async fn grow(&self, name: &str, size_bytes: u64) -> Result<(), PortError>;

    /// What lies behind is lost, so only what nobody can reach is made smaller: else `Conflict`.
    async fn shrink(&self, name: &str, size_bytes: u64) -> Result<(), PortError>;

    /// Takes over what the parent has; the parent's own parent, if there is one, is behind it then. Data is copied: while
    /// that lasts the answer may be `Unreachable` or `Busy`.
    async fn decouple(&self, name: &str) -> Result<(), PortError>;

    /// Gone already: success. Never one that is exported, or a snapshot with several clones, or one that is larger than its
    /// only clone: `Conflict`.
    async fn delete(&self, name: &str) -> Result<(), PortError>;

    /// Other limits of a volume that has some and that nobody has open may have to wait until somebody has: `Busy`.
    async fn limit(&self, name: &str, limits: Limits) -> Result<(), PortError>;

    /// From now on hosts can be admitted to it, and none is.
    async fn export(&self, name: &str) -> Result<(), PortError>;

    /// The inverse. While a host is connected: `Conflict`.
    async fn withdraw(&self, name: &str) -> Result<(), PortError>;

    /// What the storage's protocol calls the export of a volume with this UUID.
    fn export_name(&self, uuid: &str) -> String;
}
