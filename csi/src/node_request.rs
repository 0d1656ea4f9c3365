//! What kubelet asks of a node, read in one place for both drivers: what has to be given, and what of it follows for a mount.

use crate::{node::Target, wire};
use proto::csi::v1::{
    NodeExpandVolumeRequest, NodeGetVolumeStatsRequest, NodePublishVolumeRequest, NodeStageVolumeRequest,
    NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest, volume_capability::access_mode::Mode,
};
use std::{collections::HashMap, path::PathBuf};
use tonic::Status;

/// A volume is attached here, and mounted if it is to be a filesystem.
pub(crate) struct Stage {
    pub volume_id: String,
    pub staging: PathBuf,
    pub target: Target,
    pub read_only: bool,
    /// What the controller said of it for this node.
    pub context: HashMap<String, String>,
}

impl TryFrom<NodeStageVolumeRequest> for Stage {
    type Error = Status;

    fn try_from(request: NodeStageVolumeRequest) -> Result<Stage, Status> {
        let volume_id = wire::required("volume_id", &request.volume_id)?.to_owned();
        let staging = wire::required("staging_target_path", &request.staging_target_path)?.into();
        let (target, mode) = wire::target(request.volume_capability.as_ref())?;
        let context = request.publish_context;
        let published = context.get(wire::READ_ONLY).is_some_and(|value| value == "true");
        Ok(Stage { volume_id, staging, target, read_only: published || mode == Mode::SingleNodeReaderOnly, context })
    }
}

/// What is staged is shown to a pod.
pub(crate) struct Publish {
    pub volume_id: String,
    pub staging: PathBuf,
    pub path: PathBuf,
    pub target: Target,
    pub read_only: bool,
    /// To no second pod.
    pub single: bool,
    /// What the controller said of it for this node.
    pub context: HashMap<String, String>,
}

impl TryFrom<NodePublishVolumeRequest> for Publish {
    type Error = Status;

    fn try_from(request: NodePublishVolumeRequest) -> Result<Publish, Status> {
        let volume_id = wire::required("volume_id", &request.volume_id)?.to_owned();
        let path = wire::required("target_path", &request.target_path)?.into();
        let (target, mode) = wire::target(request.volume_capability.as_ref())?;
        if request.staging_target_path.is_empty() {
            return Err(Status::failed_precondition("staging_target_path is missing"));
        }
        Ok(Publish {
            volume_id,
            staging: request.staging_target_path.into(),
            path,
            target,
            read_only: request.readonly || mode == Mode::SingleNodeReaderOnly,
            single: mode == Mode::SingleNodeSingleWriter,
            context: request.publish_context,
        })
    }
}

/// A volume, and where it is on this node: staged, or shown to a pod.
pub(crate) struct There {
    pub volume_id: String,
    pub path: PathBuf,
}

impl There {
    fn new(volume_id: &str, key: &'static str, path: &str) -> Result<There, Status> {
        let volume_id = wire::required("volume_id", volume_id)?.to_owned();
        Ok(There { volume_id, path: wire::required(key, path)?.into() })
    }
}

impl TryFrom<NodeUnstageVolumeRequest> for There {
    type Error = Status;

    fn try_from(request: NodeUnstageVolumeRequest) -> Result<There, Status> {
        There::new(&request.volume_id, "staging_target_path", &request.staging_target_path)
    }
}

impl TryFrom<NodeUnpublishVolumeRequest> for There {
    type Error = Status;

    fn try_from(request: NodeUnpublishVolumeRequest) -> Result<There, Status> {
        There::new(&request.volume_id, "target_path", &request.target_path)
    }
}

impl TryFrom<NodeGetVolumeStatsRequest> for There {
    type Error = Status;

    fn try_from(request: NodeGetVolumeStatsRequest) -> Result<There, Status> {
        There::new(&request.volume_id, "volume_path", &request.volume_path)
    }
}

impl TryFrom<NodeExpandVolumeRequest> for There {
    type Error = Status;

    fn try_from(request: NodeExpandVolumeRequest) -> Result<There, Status> {
        There::new(&request.volume_id, "volume_path", &request.volume_path)
    }
}
