//! CSI's Controller service: reads the request, calls the pool, words the answer.

use crate::{
    pool::{Handle, Snapshot, Volume},
    pools::Pools,
    wire,
};
use proto::csi::v1::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerGetCapabilitiesRequest,
    ControllerGetCapabilitiesResponse, ControllerGetVolumeRequest, ControllerGetVolumeResponse,
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, ControllerServiceCapability,
    ControllerUnpublishVolumeRequest, ControllerUnpublishVolumeResponse, CreateSnapshotRequest, CreateSnapshotResponse,
    CreateVolumeRequest, CreateVolumeResponse, DeleteSnapshotRequest, DeleteSnapshotResponse, DeleteVolumeRequest,
    DeleteVolumeResponse, GetCapacityRequest, GetCapacityResponse, ListSnapshotsRequest, ListSnapshotsResponse,
    ListVolumesRequest, ListVolumesResponse, ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse,
    controller_get_volume_response,
    controller_server::Controller,
    controller_service_capability::{Rpc, Type, rpc},
    list_snapshots_response, list_volumes_response,
    validate_volume_capabilities_response::Confirmed,
    volume_capability::access_mode::Mode,
};
use std::{collections::HashMap, sync::Arc, time::Instant};
use tonic::{Request, Response, Status};

#[derive(Debug, Clone)]
pub struct ControllerService {
    pools: Arc<Pools>,
}

const CAPABILITIES: [rpc::Type; 12] = [
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
    rpc::Type::GetVolume,
    rpc::Type::SingleNodeMultiWriter,
];

impl ControllerService {
    pub fn new(pools: Arc<Pools>) -> ControllerService {
        ControllerService { pools }
    }

    /// Runs one operation on a thread of its own, since the pool blocks, and logs what came of it.
    async fn run<T: Send + 'static>(
        &self,
        operation: &'static str,
        object: &str,
        act: impl FnOnce(&Pools) -> Result<T, Status> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let (pools, started) = (self.pools.clone(), Instant::now());
        let result = tokio::task::spawn_blocking(move || act(&pools)).await;
        let result = result.unwrap_or_else(|error| Err(Status::internal(format!("{operation}: {error}"))));
        let ms = started.elapsed().as_millis();
        match &result {
            Ok(_) => tracing::debug!(operation, object, ms, "done"),
            Err(status) => tracing::warn!(operation, object, ms, code = ?status.code(), "{}", status.message()),
        }
        result.map(Response::new)
    }
}

#[tonic::async_trait]
impl Controller for ControllerService {
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        let request = request.into_inner();
        let object = request.name.clone();
        self.run("CreateVolume", &object, move |pools| create_volume(pools, request)).await
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        let id = request.into_inner().volume_id;
        wire::required("volume_id", &id)?;
        self.run("DeleteVolume", &id.clone(), move |pools| {
            // What cannot be a handle of ours is not there, and what is not there is deleted.
            if let Some(handle) = Handle::parse(&id)
                && let Some((pool, _)) = pools.volume(&handle)?
            {
                pool.delete_volume(&handle)?;
            }
            Ok(DeleteVolumeResponse {})
        })
        .await
    }

    async fn controller_publish_volume(
        &self,
        request: Request<ControllerPublishVolumeRequest>,
    ) -> Result<Response<ControllerPublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let object = request.volume_id.clone();
        self.run("ControllerPublishVolume", &object, move |pools| publish_volume(pools, &request)).await
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<ControllerUnpublishVolumeResponse>, Status> {
        let ControllerUnpublishVolumeRequest { volume_id, node_id } = request.into_inner();
        wire::required("volume_id", &volume_id)?;
        self.run("ControllerUnpublishVolume", &volume_id.clone(), move |pools| {
            if let Some(handle) = Handle::parse(&volume_id)
                && let Some((pool, _)) = pools.volume(&handle)?
            {
                pool.unpublish_volume(&handle, Some(node_id.as_str()).filter(|node| !node.is_empty()))?;
            }
            Ok(ControllerUnpublishVolumeResponse {})
        })
        .await
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<ValidateVolumeCapabilitiesResponse>, Status> {
        let request = request.into_inner();
        let object = request.volume_id.clone();
        self.run("ValidateVolumeCapabilities", &object, move |pools| validate(pools, request)).await
    }

    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Result<Response<ListVolumesResponse>, Status> {
        let request = request.into_inner();
        self.run("ListVolumes", "", move |pools| list_volumes(pools, &request)).await
    }

    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Result<Response<GetCapacityResponse>, Status> {
        let request = request.into_inner();
        self.run("GetCapacity", "", move |pools| get_capacity(pools, &request)).await
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        let capability =
            |kind: rpc::Type| ControllerServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: kind.into() })) };
        let capabilities = CAPABILITIES.map(capability).into();
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn create_snapshot(
        &self,
        request: Request<CreateSnapshotRequest>,
    ) -> Result<Response<CreateSnapshotResponse>, Status> {
        let request = request.into_inner();
        let object = request.name.clone();
        self.run("CreateSnapshot", &object, move |pools| create_snapshot(pools, &request)).await
    }

    async fn delete_snapshot(
        &self,
        request: Request<DeleteSnapshotRequest>,
    ) -> Result<Response<DeleteSnapshotResponse>, Status> {
        let id = request.into_inner().snapshot_id;
        wire::required("snapshot_id", &id)?;
        self.run("DeleteSnapshot", &id.clone(), move |pools| {
            if let Some(id) = Handle::parse(&id)
                && let Some((pool, _)) = pools.snapshot(&id)?
            {
                pool.delete_snapshot(&id)?;
            }
            Ok(DeleteSnapshotResponse {})
        })
        .await
    }

    async fn list_snapshots(
        &self,
        request: Request<ListSnapshotsRequest>,
    ) -> Result<Response<ListSnapshotsResponse>, Status> {
        let request = request.into_inner();
        self.run("ListSnapshots", "", move |pools| list_snapshots(pools, &request)).await
    }

    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> Result<Response<ControllerExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        let object = request.volume_id.clone();
        self.run("ControllerExpandVolume", &object, move |pools| expand_volume(pools, &request)).await
    }

    async fn controller_get_volume(
        &self,
        request: Request<ControllerGetVolumeRequest>,
    ) -> Result<Response<ControllerGetVolumeResponse>, Status> {
        let id = request.into_inner().volume_id;
        self.run("ControllerGetVolume", &id.clone(), move |pools| {
            let (pool, volume) = pools.volume(&wire::existing(&id)?)?.ok_or_else(|| wire::no_volume(&id))?;
            let published_node_ids = wire::published_nodes(&volume);
            Ok(ControllerGetVolumeResponse {
                volume: Some(wire::volume(pool, &volume)),
                status: Some(controller_get_volume_response::VolumeStatus { published_node_ids }),
            })
        })
        .await
    }
}

fn create_volume(pools: &Pools, request: CreateVolumeRequest) -> Result<CreateVolumeResponse, Status> {
    let name = wire::required("name", &request.name)?;
    wire::supported(&request.volume_capabilities)?;
    if let Some(key) = request.mutable_parameters.keys().next() {
        return Err(Status::invalid_argument(format!("mutable parameter {key} is unknown; this driver has none")));
    }
    let (asked, connector) = (wire::pool_parameter(&request.parameters)?, wire::connector(&request.parameters)?);
    let range = wire::range(request.capacity_range.as_ref())?;
    let source = wire::source(request.volume_content_source)?;
    let handle = Handle::of_volume(name);
    let pool = match pools.volume(&handle)? {
        // An earlier try made it, perhaps from a source that is gone by now.
        Some((there, _)) => match asked {
            Some(asked) if asked != there.name() => {
                let message = format!("volume {handle} of that name exists in pool {}", there.name());
                return Err(Status::already_exists(message));
            }
            _ => there,
        },
        None => pools.choose(asked, source.as_ref())?,
    };
    let volume = pool.create_volume(name, range, source.as_ref())?;
    let mut volume = wire::volume(pool, &volume);
    volume.volume_context.extend(connector);
    Ok(CreateVolumeResponse { volume: Some(volume) })
}

fn publish_volume(
    pools: &Pools,
    request: &ControllerPublishVolumeRequest,
) -> Result<ControllerPublishVolumeResponse, Status> {
    let id = wire::required("volume_id", &request.volume_id)?;
    let node = wire::required("node_id", &request.node_id)?;
    wire::supported(request.volume_capability.as_slice())?;
    let reader = request.volume_capability.as_ref().is_some_and(|it| wire::mode(it) == Mode::SingleNodeReaderOnly);
    let read_only = request.readonly || reader;
    let handle = wire::existing(id)?;
    let (pool, _) = pools.volume(&handle)?.ok_or_else(|| wire::no_volume(id))?;
    pool.publish_volume(&handle, node, read_only)?;
    let publish_context = HashMap::from([(wire::READ_ONLY.into(), read_only.to_string())]);
    Ok(ControllerPublishVolumeResponse { publish_context })
}

fn validate(
    pools: &Pools,
    request: ValidateVolumeCapabilitiesRequest,
) -> Result<ValidateVolumeCapabilitiesResponse, Status> {
    let handle = wire::existing(&request.volume_id)?;
    if request.volume_capabilities.is_empty() {
        return Err(Status::invalid_argument("volume_capabilities is missing"));
    }
    let (pool, _) = pools.volume(&handle)?.ok_or_else(|| wire::no_volume(&request.volume_id))?;
    let problem = match wire::unsupported(&request.volume_capabilities) {
        None if !wire::is_context(pool, &request.volume_context) => Some("volume_context is not this volume's".into()),
        None if !request.mutable_parameters.is_empty() => Some("this driver has no mutable parameters".into()),
        other => other,
    };
    Ok(match problem {
        Some(message) => ValidateVolumeCapabilitiesResponse { confirmed: None, message },
        None => ValidateVolumeCapabilitiesResponse {
            confirmed: Some(Confirmed {
                volume_context: request.volume_context,
                volume_capabilities: request.volume_capabilities,
                parameters: request.parameters,
                mutable_parameters: request.mutable_parameters,
            }),
            message: String::new(),
        },
    })
}

fn list_volumes(pools: &Pools, request: &ListVolumesRequest) -> Result<ListVolumesResponse, Status> {
    let mut all = Vec::new();
    for pool in pools.iter() {
        all.extend(pool.volumes()?.into_iter().map(|volume| (pool, volume)));
    }
    all.sort_by(|(_, a), (_, b)| a.handle.cmp(&b.handle));
    let handle = |(_, volume): &(_, Volume)| volume.handle.clone();
    let (page, next_token) = page(all, handle, "vol-", &request.starting_token, request.max_entries)?;
    let entry = |(pool, volume): (_, Volume)| list_volumes_response::Entry {
        volume: Some(wire::volume(pool, &volume)),
        status: Some(list_volumes_response::VolumeStatus { published_node_ids: wire::published_nodes(&volume) }),
    };
    Ok(ListVolumesResponse { entries: page.into_iter().map(entry).collect(), next_token })
}

fn get_capacity(pools: &Pools, request: &GetCapacityRequest) -> Result<GetCapacityResponse, Status> {
    if wire::unsupported(&request.volume_capabilities).is_some() {
        return Ok(GetCapacityResponse::default());
    }
    let chosen = match wire::pool_parameter(&request.parameters)? {
        Some(name) => vec![pools.named(name)?],
        None => pools.iter().collect(),
    };
    let (mut available, mut largest) = (0u64, 0);
    for pool in chosen {
        let capacity = pool.capacity()?;
        available = available.saturating_add(capacity.available);
        largest = largest.max(capacity.total);
    }
    Ok(GetCapacityResponse {
        available_capacity: wire::bytes(available),
        // Volumes are thin: one may be larger than what is free now, but not than its pool.
        maximum_volume_size: Some(wire::bytes(largest)),
        minimum_volume_size: None,
    })
}

fn create_snapshot(pools: &Pools, request: &CreateSnapshotRequest) -> Result<CreateSnapshotResponse, Status> {
    let name = wire::required("name", &request.name)?;
    let volume_id = wire::required("source_volume_id", &request.source_volume_id)?;
    if wire::pool_parameter(&request.parameters)?.is_some() || wire::connector(&request.parameters)?.is_some() {
        return Err(Status::invalid_argument("a snapshot is in its volume's pool: take the parameters away"));
    }
    let volume = wire::existing(volume_id)?;
    let id = Handle::of_snapshot(name);
    let pool = match pools.snapshot(&id)? {
        // An earlier try took it, perhaps of a volume that is gone by now.
        Some((there, _)) => there,
        None => pools.volume(&volume)?.ok_or_else(|| wire::no_volume(volume_id))?.0,
    };
    let snapshot = pool.create_snapshot(name, &volume)?;
    Ok(CreateSnapshotResponse { snapshot: Some(wire::snapshot(&snapshot)) })
}

fn list_snapshots(pools: &Pools, request: &ListSnapshotsRequest) -> Result<ListSnapshotsResponse, Status> {
    let mut all = Vec::new();
    if request.snapshot_id.is_empty() {
        for pool in pools.iter() {
            all.extend(pool.snapshots()?);
        }
    } else if let Some(id) = Handle::parse(&request.snapshot_id) {
        all.extend(pools.snapshot(&id)?.map(|(_, snapshot)| snapshot));
    }
    let of = &request.source_volume_id;
    all.retain(|snapshot| of.is_empty() || snapshot.record.source_volume == *of);
    all.sort_by(|a, b| a.id.cmp(&b.id));
    let id = |snapshot: &Snapshot| snapshot.id.clone();
    let (page, next_token) = page(all, id, "snap-", &request.starting_token, request.max_entries)?;
    let entry = |snapshot: &Snapshot| list_snapshots_response::Entry { snapshot: Some(wire::snapshot(snapshot)) };
    Ok(ListSnapshotsResponse { entries: page.iter().map(entry).collect(), next_token })
}

fn expand_volume(
    pools: &Pools,
    request: &ControllerExpandVolumeRequest,
) -> Result<ControllerExpandVolumeResponse, Status> {
    let handle = wire::existing(&request.volume_id)?;
    let range = wire::range(request.capacity_range.as_ref())?;
    if range.required.or(range.limit).is_none() {
        return Err(Status::invalid_argument("capacity_range is missing"));
    }
    if let Some(why) = wire::unsupported(request.volume_capability.as_slice()) {
        return Err(Status::invalid_argument(why));
    }
    let (pool, _) = pools.volume(&handle)?.ok_or_else(|| wire::no_volume(&request.volume_id))?;
    let volume = pool.expand_volume(&handle, range)?;
    Ok(ControllerExpandVolumeResponse {
        capacity_bytes: wire::bytes(volume.record.size_bytes),
        // A loop device on a node has to be told. Anyone else sees the file grow, and staging takes the size as it is.
        node_expansion_required: pool.user(&volume.record, None).is_some(),
    })
}

/// One page of an ordered list, and the token of the next. A token is the last handle of its page: what is created or
/// deleted between two pages makes no entry come twice.
fn page<T>(
    mut all: Vec<T>,
    handle: impl Fn(&T) -> Handle,
    prefix: &str,
    token: &str,
    max_entries: i32,
) -> Result<(Vec<T>, String), Status> {
    let max = usize::try_from(max_entries).map_err(|_| Status::invalid_argument("max_entries is negative"))?;
    if !token.is_empty() {
        let after = Handle::parse(token).filter(|_| token.starts_with(prefix));
        let after = after.ok_or_else(|| Status::aborted(format!("starting_token {token} is not one of ours")))?;
        all.retain(|item| handle(item) > after);
    }
    if max == 0 || all.len() <= max {
        return Ok((all, String::new()));
    }
    all.truncate(max);
    let next = all.last().map(|item| handle(item).to_string()).unwrap_or_default();
    Ok((all, next))
}
