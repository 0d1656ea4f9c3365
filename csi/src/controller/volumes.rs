//! Volumes, and the capacity for them.

use super::page::page;
use crate::{
    pool::{Handle, Pool, Volume},
    pools::Pools,
    topology, wire,
};
use proto::csi::v1::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerGetVolumeHealthResponse,
    ControllerGetVolumeResponse, ControllerListVolumeHealthRequest, ControllerListVolumeHealthResponse,
    ControllerModifyVolumeRequest, ControllerModifyVolumeResponse, ControllerPublishVolumeRequest,
    ControllerPublishVolumeResponse, ControllerUnpublishVolumeRequest, ControllerUnpublishVolumeResponse,
    CreateVolumeRequest, CreateVolumeResponse, DeleteVolumeResponse, GetCapacityRequest, GetCapacityResponse,
    ListVolumesRequest, ListVolumesResponse, ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse,
    controller_get_volume_response, list_volumes_response, validate_volume_capabilities_response::Confirmed,
    volume_capability::access_mode::Mode,
};
use tonic::Status;

pub(super) fn create(pools: &Pools, request: CreateVolumeRequest) -> Result<CreateVolumeResponse, Status> {
    let name = wire::required("name", &request.name)?;
    wire::supported(&request.volume_capabilities)?;
    let limits = wire::limits(&request.mutable_parameters)?;
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
        None => pools.choose(asked, source.as_ref(), request.accessibility_requirements.as_ref())?,
    };
    let volume = pool.create_volume(name, range, source.as_ref(), &limits)?;
    let mut volume = wire::volume(pool, &volume);
    volume.volume_context.extend(connector);
    Ok(CreateVolumeResponse { volume: Some(volume) })
}

pub(super) fn publish(
    pools: &Pools,
    request: &ControllerPublishVolumeRequest,
) -> Result<ControllerPublishVolumeResponse, Status> {
    let id = wire::required("volume_id", &request.volume_id)?;
    let node = wire::required("node_id", &request.node_id)?;
    wire::supported(request.volume_capability.as_slice())?;
    let reader = request.volume_capability.as_ref().is_some_and(|it| wire::mode(it) == Mode::SingleNodeReaderOnly);
    let read_only = request.readonly || reader;
    let handle = wire::existing(id)?;
    let (pool, volume) = pools.volume(&handle)?.ok_or_else(|| wire::no_volume(id))?;
    pool.publish_volume(&handle, node, read_only)?;
    Ok(ControllerPublishVolumeResponse { publish_context: wire::publish_context(&volume, read_only) })
}

pub(super) fn validate(
    pools: &Pools,
    request: ValidateVolumeCapabilitiesRequest,
) -> Result<ValidateVolumeCapabilitiesResponse, Status> {
    let handle = wire::existing(&request.volume_id)?;
    if request.volume_capabilities.is_empty() {
        return Err(Status::invalid_argument("volume_capabilities is missing"));
    }
    let (pool, volume) = pools.volume(&handle)?.ok_or_else(|| wire::no_volume(&request.volume_id))?;
    let problem = match wire::unsupported(&request.volume_capabilities) {
        None if !wire::is_context(pool, &volume, &request.volume_context) => {
            Some("volume_context is not this volume's".into())
        }
        None => wire::limits(&request.mutable_parameters).err().map(|status| status.message().to_owned()),
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

pub(super) fn list(pools: &Pools, request: &ListVolumesRequest) -> Result<ListVolumesResponse, Status> {
    let mut all = Vec::new();
    for pool in pools.iter() {
        all.extend(pool.volumes()?.into_iter().map(|volume| (pool, volume)));
    }
    all.sort_by(|(_, a), (_, b)| a.handle.cmp(&b.handle));
    let handle = |(_, volume): &(_, Volume)| volume.handle.clone();
    let (page, next_token) = page(all, handle, "vol-", &request.starting_token, request.max_entries)?;
    let entry = |(pool, volume): (&Pool, Volume)| list_volumes_response::Entry {
        volume: Some(wire::volume(pool, &volume)),
        status: Some(list_volumes_response::VolumeStatus {
            published_node_ids: wire::published_nodes(&volume),
            volume_condition: Some(wire::condition(&pool.ailments(&volume))),
        }),
    };
    Ok(ListVolumesResponse { entries: page.into_iter().map(entry).collect(), next_token })
}

pub(super) fn capacity(pools: &Pools, request: &GetCapacityRequest) -> Result<GetCapacityResponse, Status> {
    if wire::unsupported(&request.volume_capabilities).is_some() {
        return Ok(GetCapacityResponse::default());
    }
    let chosen = match wire::pool_parameter(&request.parameters)? {
        Some(name) => vec![pools.named(name)?],
        None => pools.iter().collect(),
    };
    let there = |pool: &&Pool| request.accessible_topology.as_ref().is_none_or(|at| topology::has(at, pool));
    let (mut available, mut largest) = (0u64, 0);
    for pool in chosen.into_iter().filter(there) {
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

pub(super) fn expand(
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

pub(super) fn delete(pools: &Pools, id: &str) -> Result<DeleteVolumeResponse, Status> {
    // What cannot be a handle of ours is not there, and what is not there is deleted.
    let Some(handle) = Handle::parse(wire::required("volume_id", id)?) else { return Ok(DeleteVolumeResponse {}) };
    match pools.volume(&handle)? {
        Some((pool, _)) => pool.delete_volume(&handle)?,
        // One whose record was lost is in its lvstore all the same.
        None => {
            for pool in pools.iter().filter(|pool| !pool.are_files()) {
                pool.delete_volume(&handle)?;
            }
        }
    }
    Ok(DeleteVolumeResponse {})
}

pub(super) fn unpublish(
    pools: &Pools,
    request: &ControllerUnpublishVolumeRequest,
) -> Result<ControllerUnpublishVolumeResponse, Status> {
    let node = Some(request.node_id.as_str()).filter(|node| !node.is_empty());
    if let Some(handle) = Handle::parse(wire::required("volume_id", &request.volume_id)?)
        && let Some((pool, _)) = pools.volume(&handle)?
    {
        pool.unpublish_volume(&handle, node)?;
    }
    Ok(ControllerUnpublishVolumeResponse {})
}

pub(super) fn get(pools: &Pools, id: &str) -> Result<ControllerGetVolumeResponse, Status> {
    let (pool, volume) = find(pools, id)?;
    let status = controller_get_volume_response::VolumeStatus {
        published_node_ids: wire::published_nodes(&volume),
        volume_condition: Some(wire::condition(&pool.ailments(&volume))),
    };
    Ok(ControllerGetVolumeResponse { volume: Some(wire::volume(pool, &volume)), status: Some(status) })
}

pub(super) fn modify(
    pools: &Pools,
    request: &ControllerModifyVolumeRequest,
) -> Result<ControllerModifyVolumeResponse, Status> {
    let (pool, volume) = find(pools, &request.volume_id)?;
    pool.modify_volume(&volume.handle, &wire::limits(&request.mutable_parameters)?)?;
    Ok(ControllerModifyVolumeResponse {})
}

pub(super) fn health(pools: &Pools, id: &str) -> Result<ControllerGetVolumeHealthResponse, Status> {
    let (pool, volume) = find(pools, id)?;
    Ok(ControllerGetVolumeHealthResponse { volume_health: Some(wire::health(id, &pool.ailments(&volume))) })
}

pub(super) fn list_health(
    pools: &Pools,
    request: &ControllerListVolumeHealthRequest,
) -> Result<ControllerListVolumeHealthResponse, Status> {
    let mut ailing = Vec::new();
    for pool in pools.iter() {
        let all = pool.volumes()?.into_iter().map(|volume| (pool.ailments(&volume), volume.handle));
        ailing.extend(all.filter(|(ailments, _)| !ailments.is_empty()));
    }
    ailing.sort_by(|(_, a), (_, b)| a.cmp(b));
    let (page, next_token) =
        page(ailing, |(_, handle)| handle.clone(), "vol-", &request.starting_token, request.max_entries)?;
    let entries = page.iter().map(|(ailments, handle)| wire::health(handle.as_str(), ailments)).collect();
    Ok(ControllerListVolumeHealthResponse { entries, next_token })
}

fn find<'a>(pools: &'a Pools, id: &str) -> Result<(&'a Pool, Volume), Status> {
    pools.volume(&wire::existing(id)?)?.ok_or_else(|| wire::no_volume(id))
}
