//! What stands beside an image.

use super::{Handle, Limits};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// `volume.json`, with the handle, which is the folder's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    pub handle: Handle,
    pub record: VolumeRecord,
}

/// `group.json`, with the id, which is the folder's name, and the snapshots below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub id: Handle,
    pub record: GroupRecord,
    pub snapshots: Vec<Snapshot>,
}

/// `snapshot.json`, with the id, which is the folder's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub id: Handle,
    pub record: SnapshotRecord,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VolumeRecord {
    /// The name that the caller of CreateVolume chose.
    pub name: String,
    pub size_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub source: Option<ContentSource>,
    pub created: Timestamp,
    /// Of the blocks, where they have one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub uuid: Option<String>,
    /// By a VolumeAttributesClass.
    #[serde(skip_serializing_if = "Limits::is_empty", default)]
    pub limits: Limits,
    /// By ControllerPublishVolume.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub published: Vec<Publication>,
    /// By NodeStageVolume. Both, because a cluster may do without an attacher.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub staged: Vec<Publication>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SnapshotRecord {
    pub name: String,
    /// The image's size: what a restore has to ask for at least.
    pub size_bytes: u64,
    pub source_volume: String,
    pub created: Timestamp,
    /// The group that it was taken with and goes with.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub group: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GroupRecord {
    pub name: String,
    /// In order.
    pub source_volumes: Vec<String>,
    pub created: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ContentSource {
    Snapshot(String),
    Volume(String),
}

/// A node that has the volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Publication {
    pub node: String,
    pub read_only: bool,
}

impl std::fmt::Display for ContentSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ContentSource::Snapshot(id) => write!(f, "snapshot {id}"),
            ContentSource::Volume(handle) => write!(f, "volume {handle}"),
        }
    }
}
