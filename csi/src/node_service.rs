//! CSI's Node service, for pods on ordinary nodes: reads the request, calls [`crate::node`], words the answer.

use crate::{
    busy::Busy,
    node,
    node_request::{Publish, Stage, There},
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
};
use std::{path::Path, sync::Arc};
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
        let Stage { volume_id, staging, target, read_only, .. } = request.into_inner().try_into()?;
        let node_id = self.node_id.clone();
        self.run("NodeStageVolume", &volume_id.clone(), move |pools| {
            let handle = wire::existing(&volume_id)?;
            let (pool, _) = pools.volume(&handle)?.ok_or_else(|| wire::no_volume(&volume_id))?;
            pool.stage_volume(&handle, &node_id, read_only)?;
            node::stage(&pool.image(&handle), &target, read_only, &staging)?;
            Ok(NodeStageVolumeResponse {})
        })
        .await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        let There { volume_id, path } = request.into_inner().try_into()?;
        let node_id = self.node_id.clone();
        self.run("NodeUnstageVolume", &volume_id.clone(), move |pools| {
            // A volume that is gone may have left its device, in any of the pools.
            if let Some(handle) = Handle::parse(&volume_id) {
                for pool in pools.iter() {
                    node::unstage(&pool.image(&handle), &path)?;
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
        let Publish { volume_id, staging, path, target, read_only, single, .. } = request.into_inner().try_into()?;
        self.run("NodePublishVolume", &volume_id.clone(), move |pools| {
            let handle = wire::existing(&volume_id)?;
            let (pool, _) = pools.volume(&handle)?.ok_or_else(|| wire::no_volume(&volume_id))?;
            node::publish(&pool.image(&handle), &target, read_only, single, &staging, &path)?;
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
        self.run("NodeGetVolumeStats", &volume_id.clone(), move |pools| {
            let handle = wire::existing(&volume_id)?;
            let (pool, volume) = pools.volume(&handle)?.ok_or_else(|| wire::no_volume(&volume_id))?;
            let stats = node::stats(&pool.image(&handle), &path)?;
            let usage = wire::usage(stats, volume.record.size_bytes);
            let mut ailments = pool.ailments(&volume);
            ailments.extend(node::ailment(&pool.image(&handle), Some(&path))?);
            Ok(NodeGetVolumeStatsResponse { usage, volume_condition: Some(wire::condition(&ailments)) })
        })
        .await
    }

    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Result<Response<NodeExpandVolumeResponse>, Status> {
        let There { volume_id, path } = request.into_inner().try_into()?;
        self.run("NodeExpandVolume", &volume_id.clone(), move |pools| {
            let handle = wire::existing(&volume_id)?;
            let (pool, volume) = pools.volume(&handle)?.ok_or_else(|| wire::no_volume(&volume_id))?;
            node::expand(&pool.image(&handle), &path)?;
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
