//! Snapshots of one volume each.

use super::page::page;
use crate::{
    pool::{Handle, Snapshot},
    pools::Pools,
    wire,
};
use proto::csi::v1::{
    CreateSnapshotRequest, CreateSnapshotResponse, DeleteSnapshotResponse, GetSnapshotResponse, ListSnapshotsRequest,
    ListSnapshotsResponse, list_snapshots_response,
};
use tonic::Status;

pub(super) fn create(pools: &Pools, request: &CreateSnapshotRequest) -> Result<CreateSnapshotResponse, Status> {
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

pub(super) fn list(pools: &Pools, request: &ListSnapshotsRequest) -> Result<ListSnapshotsResponse, Status> {
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

pub(super) fn delete(pools: &Pools, id: &str) -> Result<DeleteSnapshotResponse, Status> {
    // What cannot be an id of ours is not there, and what is not there is deleted.
    if let Some(id) = Handle::parse(wire::required("snapshot_id", id)?)
        && let Some((pool, _)) = pools.snapshot(&id)?
    {
        pool.delete_snapshot(&id)?;
    }
    Ok(DeleteSnapshotResponse {})
}

pub(super) fn get(pools: &Pools, id: &str) -> Result<GetSnapshotResponse, Status> {
    let none = || Status::not_found(format!("snapshot {id} does not exist"));
    let handle = Handle::parse(wire::required("snapshot_id", id)?).ok_or_else(none)?;
    let (_, snapshot) = pools.snapshot(&handle)?.ok_or_else(none)?;
    Ok(GetSnapshotResponse { snapshot: Some(wire::snapshot(&snapshot)) })
}
