//! The node's half: finds the disk, formats and mounts it. It talks to the kernel alone.

use super::{
    SERIAL, WWID,
    disks::{DiskIdentity, Disks, FindError},
};
use crate::{
    busy::Busy,
    node::{self, Device, ExpandError, StatsError},
    node_request::{Publish, Stage, There},
    wire,
};
use proto::csi::v1::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse,
    NodeGetInfoRequest, NodeGetInfoResponse, NodeGetStorageHealthRequest, NodeGetStorageHealthResponse,
    NodeGetVolumeHealthRequest, NodeGetVolumeHealthResponse, NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse,
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeServiceCapability, NodeStageVolumeRequest,
    NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse, NodeUnstageVolumeRequest,
    NodeUnstageVolumeResponse,
    node_server::Node,
    node_service_capability::{Rpc, Type, rpc},
};
use std::{
    collections::HashMap,
    thread,
    time::{Duration, Instant},
};
use tonic::{Request, Response, Status};

/// How long the kernel may take to show a disk that the DPU says it has plugged in.
const SHOWN_WITHIN: Duration = Duration::from_secs(20);

#[derive(Debug, Clone)]
pub struct ProxyNodeService {
    machine: String,
    disks: Disks,
    busy: Busy,
}

const CAPABILITIES: [rpc::Type; 4] = [
    rpc::Type::StageUnstageVolume,
    rpc::Type::GetVolumeStats,
    rpc::Type::ExpandVolume,
    rpc::Type::SingleNodeMultiWriter,
];

impl ProxyNodeService {
    /// `machine`: the name of the BareMetalMachine that this node is.
    pub fn new(machine: &str, disks: Disks) -> ProxyNodeService {
        ProxyNodeService { machine: machine.into(), disks, busy: Busy::default() }
    }

    async fn run<T: Send + 'static>(
        &self,
        operation: &'static str,
        volume: &str,
        act: impl FnOnce(&Disks) -> Result<T, Status> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let disks = self.disks.clone();
        self.busy.run(operation, volume, move || act(&disks)).await
    }
}

#[tonic::async_trait]
impl Node for ProxyNodeService {
    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Result<Response<NodeStageVolumeResponse>, Status> {
        let Stage { volume_id, staging, target, read_only, context } = request.into_inner().try_into()?;
        let identity = identity(&context)?;
        self.run("NodeStageVolume", &volume_id, move |disks| {
            shown(disks, &identity)?.stage(&target, read_only, &staging)?;
            Ok(NodeStageVolumeResponse {})
        })
        .await
    }

    /// What is mounted there is this volume's, whatever disk it was: kubelet has one staging path per volume.
    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        let There { volume_id, path } = request.into_inner().try_into()?;
        self.run("NodeUnstageVolume", &volume_id, move |_| {
            if let Some(device) = node::mounted_at(&path)? {
                device.unstage(&path)?;
            }
            Ok(NodeUnstageVolumeResponse {})
        })
        .await
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let Publish { volume_id, staging, path, target, read_only, single, context } =
            request.into_inner().try_into()?;
        let identity = identity(&context)?;
        self.run("NodePublishVolume", &volume_id, move |disks| {
            shown(disks, &identity)?.publish(&target, read_only, single, &staging, &path)?;
            Ok(NodePublishVolumeResponse {})
        })
        .await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let There { volume_id, path } = request.into_inner().try_into()?;
        self.run("NodeUnpublishVolume", &volume_id, move |_| {
            node::unpublish(&path)?;
            Ok(NodeUnpublishVolumeResponse {})
        })
        .await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        let There { volume_id, path } = request.into_inner().try_into()?;
        self.run("NodeGetVolumeStats", &volume_id, move |_| {
            let not_there = || StatsError::NotThere(path.display().to_string());
            let device = node::mounted_at(&path)?.ok_or_else(not_there)?;
            let size = device.size().map_err(StatsError::from)?;
            Ok(NodeGetVolumeStatsResponse { usage: wire::usage(device.stats(&path)?, size), volume_condition: None })
        })
        .await
    }

    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Result<Response<NodeExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        let required = wire::range(request.capacity_range.as_ref())?.required;
        let There { volume_id, path } = request.try_into()?;
        self.run("NodeExpandVolume", &volume_id, move |_| {
            let device = node::mounted_at(&path)?.ok_or(ExpandError::NotAttached)?;
            let size = device.size().map_err(ExpandError::from)?;
            // A filesystem that is grown too early stays as it is, and kubelet would take that for the end of it.
            if let Some(required) = required.filter(|required| size < *required) {
                return Err(Status::aborted(format!(
                    "the volume has {required} bytes, and this node sees {size} of them yet; it is tried again"
                )));
            }
            device.expand(&path)?;
            Ok(NodeExpandVolumeResponse { capacity_bytes: wire::bytes(size) })
        })
        .await
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        let capability =
            |kind: rpc::Type| NodeServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: kind.into() })) };
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities: CAPABILITIES.map(capability).into() }))
    }

    async fn node_get_info(&self, _: Request<NodeGetInfoRequest>) -> Result<Response<NodeGetInfoResponse>, Status> {
        Ok(Response::new(NodeGetInfoResponse { node_id: self.machine.clone(), ..Default::default() }))
    }

    async fn node_get_volume_health(
        &self,
        _: Request<NodeGetVolumeHealthRequest>,
    ) -> Result<Response<NodeGetVolumeHealthResponse>, Status> {
        Err(Status::unimplemented("the health of a proxy volume is its machine's to report"))
    }

    async fn node_get_storage_health(
        &self,
        _: Request<NodeGetStorageHealthRequest>,
    ) -> Result<Response<NodeGetStorageHealthResponse>, Status> {
        Err(Status::unimplemented("a node knows nothing of the storage behind its machine's disks"))
    }
}

fn identity(publish_context: &HashMap<String, String>) -> Result<DiskIdentity, Status> {
    let identity =
        DiskIdentity { wwid: publish_context.get(WWID).cloned(), serial: publish_context.get(SERIAL).cloned() };
    if identity == DiskIdentity::default() {
        let message = format!("publish_context has neither {WWID} nor {SERIAL}: is the driver's attacher running?");
        return Err(Status::invalid_argument(message));
    }
    Ok(identity)
}

/// Waits until the kernel shows the disk.
fn shown(disks: &Disks, identity: &DiskIdentity) -> Result<Device, Status> {
    let deadline = Instant::now() + SHOWN_WITHIN;
    loop {
        if let Some(device) = disks.find(identity)? {
            return Ok(device);
        }
        if Instant::now() > deadline {
            let [wwid, serial] = [&identity.wwid, &identity.serial].map(|it| it.as_deref().unwrap_or("unknown"));
            return Err(Status::unavailable(format!(
                "the DPU has plugged the disk in, but after {} s this node shows none with wwid {wwid} or serial number \
                 {serial}: does its kernel do PCIe hot-plug (dmesg)?",
                SHOWN_WITHIN.as_secs()
            )));
        }
        thread::sleep(Duration::from_millis(100));
    }
}

impl From<FindError> for Status {
    fn from(error: FindError) -> Status {
        match error {
            FindError::Ambiguous { .. } => Status::failed_precondition(error.to_string()),
            FindError::Io { .. } => Status::internal(error.to_string()),
        }
    }
}
