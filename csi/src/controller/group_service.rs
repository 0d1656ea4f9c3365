//! The GroupController service: snapshots of several volumes at one moment.

use super::run;
use crate::{
    pool::{Handle, Pool},
    pools::Pools,
    wire,
};
use proto::csi::v1::{
    CreateVolumeGroupSnapshotRequest, CreateVolumeGroupSnapshotResponse, DeleteVolumeGroupSnapshotRequest,
    DeleteVolumeGroupSnapshotResponse, GetVolumeGroupSnapshotRequest, GetVolumeGroupSnapshotResponse,
    GroupControllerGetCapabilitiesRequest, GroupControllerGetCapabilitiesResponse, GroupControllerServiceCapability,
    group_controller_server::GroupController,
    group_controller_service_capability::{Rpc, Type, rpc},
};
use std::{collections::BTreeSet, sync::Arc};
use tonic::{Request, Response, Status};

#[derive(Debug, Clone)]
pub struct GroupControllerService {
    pools: Arc<Pools>,
}

impl GroupControllerService {
    pub fn new(pools: Arc<Pools>) -> GroupControllerService {
        GroupControllerService { pools }
    }
}

#[tonic::async_trait]
impl GroupController for GroupControllerService {
    async fn group_controller_get_capabilities(
        &self,
        _: Request<GroupControllerGetCapabilitiesRequest>,
    ) -> Result<Response<GroupControllerGetCapabilitiesResponse>, Status> {
        let all = rpc::Type::CreateDeleteGetVolumeGroupSnapshot;
        let capability = GroupControllerServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: all.into() })) };
        Ok(Response::new(GroupControllerGetCapabilitiesResponse { capabilities: vec![capability] }))
    }

    async fn create_volume_group_snapshot(
        &self,
        request: Request<CreateVolumeGroupSnapshotRequest>,
    ) -> Result<Response<CreateVolumeGroupSnapshotResponse>, Status> {
        let request = request.into_inner();
        let object = request.name.clone();
        run(&self.pools, "CreateVolumeGroupSnapshot", &object, move |pools| create(pools, &request)).await
    }

    async fn delete_volume_group_snapshot(
        &self,
        request: Request<DeleteVolumeGroupSnapshotRequest>,
    ) -> Result<Response<DeleteVolumeGroupSnapshotResponse>, Status> {
        let request = request.into_inner();
        let object = request.group_snapshot_id.clone();
        run(&self.pools, "DeleteVolumeGroupSnapshot", &object, move |pools| delete(pools, &request)).await
    }

    async fn get_volume_group_snapshot(
        &self,
        request: Request<GetVolumeGroupSnapshotRequest>,
    ) -> Result<Response<GetVolumeGroupSnapshotResponse>, Status> {
        let request = request.into_inner();
        let object = request.group_snapshot_id.clone();
        run(&self.pools, "GetVolumeGroupSnapshot", &object, move |pools| get(pools, &request)).await
    }
}

fn create(
    pools: &Pools,
    request: &CreateVolumeGroupSnapshotRequest,
) -> Result<CreateVolumeGroupSnapshotResponse, Status> {
    let name = wire::required("name", &request.name)?;
    if request.source_volume_ids.is_empty() {
        return Err(Status::invalid_argument("source_volume_ids is missing"));
    }
    if wire::pool_parameter(&request.parameters)?.is_some() || wire::connector(&request.parameters)?.is_some() {
        return Err(Status::invalid_argument("a group snapshot is in its volumes' pool: take the parameters away"));
    }
    let ids = request.source_volume_ids.iter();
    let volumes = ids.map(|id| wire::existing(id)).collect::<Result<BTreeSet<Handle>, _>>()?;
    let pool = match pools.group(&Handle::of_group(name))? {
        // An earlier try took it, perhaps of volumes that are gone by now.
        Some((there, _)) => there,
        None => one_pool(pools, &volumes)?,
    };
    let group = pool.create_group(name, &volumes)?;
    Ok(CreateVolumeGroupSnapshotResponse { group_snapshot: Some(wire::group(&group)) })
}

/// The pool of all these volumes: only there can they be cut at one moment.
fn one_pool<'a>(pools: &'a Pools, volumes: &BTreeSet<Handle>) -> Result<&'a Pool, Status> {
    let mut found: Option<&Pool> = None;
    for volume in volumes {
        let (pool, _) = pools.volume(volume)?.ok_or_else(|| wire::no_volume(volume.as_str()))?;
        if let Some(other) = found.filter(|other| other.name() != pool.name()) {
            let message = format!(
                "volume {volume} is in pool {}, others are in pool {}: the volumes of a group are in one pool",
                pool.name(),
                other.name()
            );
            return Err(Status::failed_precondition(message));
        }
        found = Some(pool);
    }
    found.ok_or_else(|| Status::invalid_argument("source_volume_ids is missing"))
}

fn delete(
    pools: &Pools,
    request: &DeleteVolumeGroupSnapshotRequest,
) -> Result<DeleteVolumeGroupSnapshotResponse, Status> {
    // What cannot be an id of ours is not there, and what is not there is deleted.
    if let Some(id) = Handle::parse(wire::required("group_snapshot_id", &request.group_snapshot_id)?)
        && let Some((pool, _)) = pools.group(&id)?
    {
        pool.delete_group(&id, &request.snapshot_ids)?;
    }
    Ok(DeleteVolumeGroupSnapshotResponse {})
}

fn get(pools: &Pools, request: &GetVolumeGroupSnapshotRequest) -> Result<GetVolumeGroupSnapshotResponse, Status> {
    let id = wire::required("group_snapshot_id", &request.group_snapshot_id)?;
    let none = || Status::not_found(format!("group snapshot {id} does not exist"));
    let (_, group) = pools.group(&Handle::parse(id).ok_or_else(none)?)?.ok_or_else(none)?;
    group.is_known_by(&request.snapshot_ids)?;
    Ok(GetVolumeGroupSnapshotResponse { group_snapshot: Some(wire::group(&group)) })
}
