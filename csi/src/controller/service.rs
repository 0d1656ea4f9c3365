//! The Controller service: which call is which operation.

use super::{run, snapshots, volumes};
use crate::pools::Pools;
use proto::csi::v1::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerGetCapabilitiesRequest,
    ControllerGetCapabilitiesResponse, ControllerGetVolumeHealthRequest, ControllerGetVolumeHealthResponse,
    ControllerGetVolumeRequest, ControllerGetVolumeResponse, ControllerListVolumeHealthRequest,
    ControllerListVolumeHealthResponse, ControllerModifyVolumeRequest, ControllerModifyVolumeResponse,
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, ControllerServiceCapability,
    ControllerUnpublishVolumeRequest, ControllerUnpublishVolumeResponse, CreateSnapshotRequest, CreateSnapshotResponse,
    CreateVolumeRequest, CreateVolumeResponse, DeleteSnapshotRequest, DeleteSnapshotResponse, DeleteVolumeRequest,
    DeleteVolumeResponse, GetCapacityRequest, GetCapacityResponse, GetSnapshotRequest, GetSnapshotResponse,
    ListSnapshotsRequest, ListSnapshotsResponse, ListVolumesRequest, ListVolumesResponse,
    ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse,
    controller_server::Controller,
    controller_service_capability::{Rpc, Type, rpc},
};
use std::sync::Arc;
use tonic::{Request, Response, Status};

#[derive(Debug, Clone)]
pub struct ControllerService {
    pools: Arc<Pools>,
}

const CAPABILITIES: [rpc::Type; 17] = [
    rpc::Type::CreateDeleteVolume,
    rpc::Type::PublishUnpublishVolume,
    rpc::Type::ListVolumes,
    rpc::Type::GetCapacity,
    rpc::Type::CreateDeleteSnapshot,
    rpc::Type::ListSnapshots,
    rpc::Type::CloneVolume,
    rpc::Type::PublishReadonly,
    rpc::Type::ExpandVolume,
    rpc::Type::ListVolumesPublishedNodes,
    rpc::Type::VolumeCondition,
    rpc::Type::GetVolume,
    rpc::Type::SingleNodeMultiWriter,
    rpc::Type::ModifyVolume,
    rpc::Type::GetSnapshot,
    rpc::Type::GetVolumeHealth,
    rpc::Type::ListVolumeHealth,
];

impl ControllerService {
    pub fn new(pools: Arc<Pools>) -> ControllerService {
        ControllerService { pools }
    }
}

#[tonic::async_trait]
impl Controller for ControllerService {
    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        let capability =
            |kind: rpc::Type| ControllerServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: kind.into() })) };
        let capabilities = CAPABILITIES.map(capability).into();
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        let request = request.into_inner();
        let object = request.name.clone();
        run(&self.pools, "CreateVolume", &object, move |pools| volumes::create(pools, request)).await
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        let request = request.into_inner();
        let object = request.volume_id.clone();
        run(&self.pools, "DeleteVolume", &object, move |pools| volumes::delete(pools, &request.volume_id)).await
    }

    async fn controller_publish_volume(
        &self,
        request: Request<ControllerPublishVolumeRequest>,
    ) -> Result<Response<ControllerPublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let object = request.volume_id.clone();
        run(&self.pools, "ControllerPublishVolume", &object, move |pools| volumes::publish(pools, &request)).await
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<ControllerUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let object = request.volume_id.clone();
        run(&self.pools, "ControllerUnpublishVolume", &object, move |pools| volumes::unpublish(pools, &request)).await
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<ValidateVolumeCapabilitiesResponse>, Status> {
        let request = request.into_inner();
        let object = request.volume_id.clone();
        run(&self.pools, "ValidateVolumeCapabilities", &object, move |pools| volumes::validate(pools, request)).await
    }

    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Result<Response<ListVolumesResponse>, Status> {
        let request = request.into_inner();
        run(&self.pools, "ListVolumes", "", move |pools| volumes::list(pools, &request)).await
    }

    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Result<Response<GetCapacityResponse>, Status> {
        let request = request.into_inner();
        run(&self.pools, "GetCapacity", "", move |pools| volumes::capacity(pools, &request)).await
    }

    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> Result<Response<ControllerExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        let object = request.volume_id.clone();
        run(&self.pools, "ControllerExpandVolume", &object, move |pools| volumes::expand(pools, &request)).await
    }

    async fn controller_get_volume(
        &self,
        request: Request<ControllerGetVolumeRequest>,
    ) -> Result<Response<ControllerGetVolumeResponse>, Status> {
        let request = request.into_inner();
        let object = request.volume_id.clone();
        run(&self.pools, "ControllerGetVolume", &object, move |pools| volumes::get(pools, &request.volume_id)).await
    }

    async fn controller_modify_volume(
        &self,
        request: Request<ControllerModifyVolumeRequest>,
    ) -> Result<Response<ControllerModifyVolumeResponse>, Status> {
        let request = request.into_inner();
        let object = request.volume_id.clone();
        run(&self.pools, "ControllerModifyVolume", &object, move |pools| volumes::modify(pools, &request)).await
    }

    async fn controller_get_volume_health(
        &self,
        request: Request<ControllerGetVolumeHealthRequest>,
    ) -> Result<Response<ControllerGetVolumeHealthResponse>, Status> {
        let request = request.into_inner();
        let object = request.volume_id.clone();
        run(&self.pools, "ControllerGetVolumeHealth", &object, move |pools| volumes::health(pools, &request.volume_id))
            .await
    }

    async fn controller_list_volume_health(
        &self,
        request: Request<ControllerListVolumeHealthRequest>,
    ) -> Result<Response<ControllerListVolumeHealthResponse>, Status> {
        let request = request.into_inner();
        run(&self.pools, "ControllerListVolumeHealth", "", move |pools| volumes::list_health(pools, &request)).await
    }

    async fn create_snapshot(
        &self,
        request: Request<CreateSnapshotRequest>,
    ) -> Result<Response<CreateSnapshotResponse>, Status> {
        let request = request.into_inner();
        let object = request.name.clone();
        run(&self.pools, "CreateSnapshot", &object, move |pools| snapshots::create(pools, &request)).await
    }

    async fn delete_snapshot(
        &self,
        request: Request<DeleteSnapshotRequest>,
    ) -> Result<Response<DeleteSnapshotResponse>, Status> {
        let request = request.into_inner();
        let object = request.snapshot_id.clone();
        run(&self.pools, "DeleteSnapshot", &object, move |pools| snapshots::delete(pools, &request.snapshot_id)).await
    }

    async fn list_snapshots(
        &self,
        request: Request<ListSnapshotsRequest>,
    ) -> Result<Response<ListSnapshotsResponse>, Status> {
        let request = request.into_inner();
        run(&self.pools, "ListSnapshots", "", move |pools| snapshots::list(pools, &request)).await
    }

    async fn get_snapshot(
        &self,
        request: Request<GetSnapshotRequest>,
    ) -> Result<Response<GetSnapshotResponse>, Status> {
        let request = request.into_inner();
        let object = request.snapshot_id.clone();
        run(&self.pools, "GetSnapshot", &object, move |pools| snapshots::get(pools, &request.snapshot_id)).await
    }
}
