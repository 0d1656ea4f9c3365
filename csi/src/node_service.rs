//! CSI's Node service, for pods on ordinary nodes: reads the request, calls [`crate::node`], words the answer.

use crate::{
    busy::Busy,
    node,
    pool::{Handle, Pool},
    pools::Pools,
    topology, wire,
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
    volume_capability::access_mode::Mode,
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};
use tonic::{Request, Response, Status};

#[derive(Debug, Clone)]
pub struct NodeService {
    pools: Arc<Pools>,
    node_id: String,
    busy: Busy,
}

const CAPABILITIES: [rpc::Type; 7] = [
    rpc::Type::StageUnstageVolume,
    rpc::Type::GetVolumeStats,
    rpc::Type::ExpandVolume,
    rpc::Type::VolumeCondition,
    rpc::Type::SingleNodeMultiWriter,
    rpc::Type::GetVolumeHealth,
    rpc::Type::GetStorageHealth,
];

impl NodeService {
    pub fn new(pools: Arc<Pools>, node_id: &str) -> NodeService {
        NodeService { pools, node_id: node_id.into(), busy: Busy::default() }
    }

    async fn run<T: Send + 'static>(
        &self,
        operation: &'static str,
        volume: &str,
        act: impl FnOnce(&Pools) -> Result<T, Status> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let pools = self.pools.clone();
        self.busy.run(operation, volume, move || act(&pools)).await
    }
}

#[tonic::async_trait]
impl Node for NodeService {
    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Result<Response<NodeStageVolumeResponse>, Status> {
        let request = request.into_inner();
        let id = wire::required("volume_id", &request.volume_id)?.to_owned();
        wire::required("staging_target_path", &request.staging_target_path)?;
        let (target, mode) = wire::target(request.volume_capability.as_ref())?;
        let published = request.publish_context.get(wire::READ_ONLY).is_some_and(|value| value == "true");
        let read_only = published || mode == Mode::SingleNodeReaderOnly;
        let node_id = self.node_id.clone();
        self.run("NodeStageVolume", &id, move |pools| {
            let handle = wire::existing(&request.volume_id)?;
            let (pool, _) = pools.volume(&handle)?.ok_or_else(|| wire::no_volume(&request.volume_id))?;
            pool.stage_volume(&handle, &node_id, read_only)?;
            node::stage(&pool.image(&handle), &target, read_only, Path::new(&request.staging_target_path))?;
            Ok(NodeStageVolumeResponse {})
        })
        .await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        let NodeUnstageVolumeRequest { volume_id, staging_target_path } = request.into_inner();
        wire::required("staging_target_path", &staging_target_path)?;
        wire::required("volume_id", &volume_id)?;
        let node_id = self.node_id.clone();
        self.run("NodeUnstageVolume", &volume_id.clone(), move |pools| {
            // A volume that is gone may have left its device, in any of the pools.
            if let Some(handle) = Handle::parse(&volume_id) {
                for pool in pools.iter() {
                    node::unstage(&pool.image(&handle), Path::new(&staging_target_path))?;
                    pool.unstage_volume(&handle, &node_id)?;
                }
            }
            Ok(NodeUnstageVolumeResponse {})
        })
        .await
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let id = wire::required("volume_id", &request.volume_id)?.to_owned();
        wire::required("target_path", &request.target_path)?;
        let (target, mode) = wire::target(request.volume_capability.as_ref())?;
        if request.staging_target_path.is_empty() {
            return Err(Status::failed_precondition("staging_target_path is missing"));
        }
        let read_only = request.readonly || mode == Mode::SingleNodeReaderOnly;
        self.run("NodePublishVolume", &id, move |pools| {
            let image = image(pools, &request.volume_id)?;
            let single = mode == Mode::SingleNodeSingleWriter;
            let (staging, path) = (Path::new(&request.staging_target_path), Path::new(&request.target_path));
            node::publish(&image, &target, read_only, single, staging, path)?;
            Ok(NodePublishVolumeResponse {})
        })
        .await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let NodeUnpublishVolumeRequest { volume_id, target_path } = request.into_inner();
        wire::required("volume_id", &volume_id)?;
        wire::required("target_path", &target_path)?;
        self.run("NodeUnpublishVolume", &volume_id, move |_| {
            node::unpublish(Path::new(&target_path))?;
            Ok(NodeUnpublishVolumeResponse {})
        })
        .await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        let NodeGetVolumeStatsRequest { volume_id, volume_path, .. } = request.into_inner();
        wire::required("volume_id", &volume_id)?;
        wire::required("volume_path", &volume_path)?;
        self.run("NodeGetVolumeStats", &volume_id.clone(), move |pools| {
            let handle = wire::existing(&volume_id)?;
            let (pool, volume) = pools.volume(&handle)?.ok_or_else(|| wire::no_volume(&volume_id))?;
            let stats = node::stats(&pool.image(&handle), Path::new(&volume_path))?;
            let usage = wire::usage(stats, volume.record.size_bytes);
            let mut ailments = pool.ailments(&volume);
            ailments.extend(node::ailment(&pool.image(&handle), Some(Path::new(&volume_path)))?);
            Ok(NodeGetVolumeStatsResponse { usage, volume_condition: Some(wire::condition(&ailments)) })
        })
        .await
    }

    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Result<Response<NodeExpandVolumeResponse>, Status> {
        let NodeExpandVolumeRequest { volume_id, volume_path, .. } = request.into_inner();
        wire::required("volume_id", &volume_id)?;
        wire::required("volume_path", &volume_path)?;
        self.run("NodeExpandVolume", &volume_id.clone(), move |pools| {
            let handle = wire::existing(&volume_id)?;
            let (pool, volume) = pools.volume(&handle)?.ok_or_else(|| wire::no_volume(&volume_id))?;
            node::expand(&pool.image(&handle), Path::new(&volume_path))?;
            Ok(NodeExpandVolumeResponse { capacity_bytes: wire::bytes(volume.record.size_bytes) })
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
        Ok(Response::new(NodeGetInfoResponse {
            node_id: self.node_id.clone(),
            max_volumes_per_node: 0,
            accessible_topology: Some(topology::of_node(&self.pools)),
        }))
    }

    async fn node_get_volume_health(
        &self,
        request: Request<NodeGetVolumeHealthRequest>,
    ) -> Result<Response<NodeGetVolumeHealthResponse>, Status> {
        let NodeGetVolumeHealthRequest { volume_id, volume_publish_path, .. } = request.into_inner();
        wire::required("volume_id", &volume_id)?;
        let node_id = self.node_id.clone();
        self.run("NodeGetVolumeHealth", &volume_id.clone(), move |pools| {
            let handle = wire::existing(&volume_id)?;
            let (pool, volume) = pools.volume(&handle)?.ok_or_else(|| wire::no_volume(&volume_id))?;
            let mut ailments = pool.ailments(&volume);
            // What was never staged here lacks nothing here.
            if volume.record.staged.iter().any(|publication| publication.node == node_id) {
                let path = Some(volume_publish_path.as_str()).filter(|path| !path.is_empty()).map(Path::new);
                ailments.extend(node::ailment(&pool.image(&handle), path)?);
            }
            Ok(NodeGetVolumeHealthResponse { volume_health: Some(wire::health(&volume_id, &ailments)) })
        })
        .await
    }

    /// A pool that cannot be read from this node, or is full.
    async fn node_get_storage_health(
        &self,
        _: Request<NodeGetStorageHealthRequest>,
    ) -> Result<Response<NodeGetStorageHealthResponse>, Status> {
        let pools = self.pools.clone();
        let looked = tokio::task::spawn_blocking(move || pools.iter().filter_map(Pool::ailment).collect::<Vec<_>>());
        let ailments = looked.await.map_err(|error| Status::internal(format!("NodeGetStorageHealth: {error}")))?;
        Ok(Response::new(NodeGetStorageHealthResponse { backend_health: wire::storage_health(&ailments) }))
    }
}

fn image(pools: &Pools, volume_id: &str) -> Result<PathBuf, Status> {
    let handle = wire::existing(volume_id)?;
    let (pool, _) = pools.volume(&handle)?.ok_or_else(|| wire::no_volume(volume_id))?;
    Ok(pool.image(&handle))
}
