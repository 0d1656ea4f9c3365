//! The pool's words in CSI's, both ways.

use crate::{
    node::{Stats, Target, Usage},
    pool::{Ailment, ContentSource, Gravity, Group, Handle, Limits, Pool, Range, Snapshot, Volume},
    topology,
};
use jiff::Timestamp;
use proto::csi::v1::{
    self, CapacityRange, StorageHealthErrorType, VolumeCapability, VolumeCondition, VolumeContentSource, VolumeHealth,
    VolumeHealthErrorType, VolumeUsage,
    node_get_storage_health_response::StorageBackendHealth,
    volume_capability::{AccessType, access_mode::Mode},
    volume_content_source::{SnapshotSource, Type, VolumeSource},
    volume_health::VolumeHealthEntry,
    volume_usage::Unit,
};
use std::collections::HashMap;
use tonic::Status;

/// A key of a volume's context. The others are its pool's; together they are all that whoever opens it needs besides the handle.
pub(crate) const POOL: &str = "pool";
/// A parameter of a StorageClass and a key of its volumes' context: `kubelet` makes kubelet connect them on a DPU, with this
/// driver's node service, where the DPU's agent would open the image itself. The agent refuses a key that it does not know.
const CONNECTOR: &str = "connector";
/// The key of the publish context.
pub(crate) const READ_ONLY: &str = "readonly";
/// What `--extra-create-metadata` adds to parameters.
pub(crate) const RESERVED: &str = "csi.storage.k8s.io/";
/// What external-provisioner adds to a volume's context on its way to the PersistentVolume.
const PROVISIONER: &str = "storage.kubernetes.io/";
/// What the node service can make on a volume; the first unless one is named.
pub(crate) const FILESYSTEMS: [&str; 2] = ["ext4", "xfs"];

/// A field that a request has to have.
pub(crate) fn required<'a>(field: &str, value: &'a str) -> Result<&'a str, Status> {
    if value.is_empty() { Err(Status::invalid_argument(format!("{field} is missing"))) } else { Ok(value) }
}

/// The volume that a request names. One that no handle of ours can name does not exist.
pub(crate) fn existing(volume_id: &str) -> Result<Handle, Status> {
    Handle::parse(required("volume_id", volume_id)?).ok_or_else(|| no_volume(volume_id))
}

pub(crate) fn no_volume(volume_id: &str) -> Status {
    Status::not_found(format!("volume {volume_id} does not exist"))
}

pub(crate) fn range(range: Option<&CapacityRange>) -> Result<Range, Status> {
    let Some(range) = range else { return Ok(Range::default()) };
    let bound = |field: &str, bytes: i64| match u64::try_from(bytes) {
        Ok(0) => Ok(None),
        Ok(bytes) => Ok(Some(bytes)),
        Err(_) => Err(Status::out_of_range(format!("capacity_range.{field} is negative"))),
    };
    Ok(Range {
        required: bound("required_bytes", range.required_bytes)?,
        limit: bound("limit_bytes", range.limit_bytes)?,
    })
}

pub(crate) fn source(source: Option<VolumeContentSource>) -> Result<Option<ContentSource>, Status> {
    let Some(source) = source else { return Ok(None) };
    match source.r#type {
        Some(Type::Snapshot(snapshot)) => Ok(Some(ContentSource::Snapshot(snapshot.snapshot_id))),
        Some(Type::Volume(volume)) => Ok(Some(ContentSource::Volume(volume.volume_id))),
        None => Err(Status::invalid_argument("volume_content_source names neither a snapshot nor a volume")),
    }
}

/// Which pool the parameters of a StorageClass or VolumeSnapshotClass name. A parameter that means nothing is a mistake.
pub(crate) fn pool_parameter(parameters: &HashMap<String, String>) -> Result<Option<&str>, Status> {
    match parameters.keys().find(|key| ![POOL, CONNECTOR].contains(&key.as_str()) && !key.starts_with(RESERVED)) {
        Some(key) => {
            Err(Status::invalid_argument(format!("parameter {key} is unknown; this driver knows: {POOL}, {CONNECTOR}")))
        }
        None => Ok(parameters.get(POOL).map(String::as_str)),
    }
}

/// What the parameters say about how a DPU gets the volume, for the volume's context.
pub(crate) fn connector(parameters: &HashMap<String, String>) -> Result<Option<(String, String)>, Status> {
    match parameters.get(CONNECTOR).map(String::as_str) {
        None => Ok(None),
        Some("kubelet") => Ok(Some((CONNECTOR.into(), "kubelet".into()))),
        Some(other) => Err(Status::invalid_argument(format!("parameter {CONNECTOR} is {other}, and may be: kubelet"))),
    }
}

/// What a volume cannot do, if anything.
pub(crate) fn unsupported(capabilities: &[VolumeCapability]) -> Option<String> {
    capabilities.iter().find_map(|capability| match (mode(capability), &capability.access_type) {
        (Mode::Unknown, _) => Some("a volume capability lacks its access mode".into()),
        (Mode::MultiNodeReaderOnly | Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter, _) => {
            Some("a volume is for one node at a time: use ReadWriteOnce or ReadWriteOncePod".into())
        }
        (_, None) => Some("a volume capability lacks its access type, block or mount".into()),
        (_, Some(AccessType::Mount(mount))) if !mount.volume_mount_group.is_empty() => {
            Some("volume_mount_group is not supported".into())
        }
        (_, Some(AccessType::Mount(mount))) => {
            let known = mount.fs_type.is_empty() || FILESYSTEMS.contains(&mount.fs_type.as_str());
            (!known).then(|| format!("filesystem {} is unknown; use {}", mount.fs_type, FILESYSTEMS.join(" or ")))
        }
        (_, Some(AccessType::Block(_))) => None,
    })
}

/// The capabilities a request has to have, and that a volume can have.
pub(crate) fn supported(capabilities: &[VolumeCapability]) -> Result<(), Status> {
    if capabilities.is_empty() {
        return Err(Status::invalid_argument("volume_capabilities is missing"));
    }
    unsupported(capabilities).map_or(Ok(()), |why| Err(Status::invalid_argument(why)))
}

pub(crate) fn mode(capability: &VolumeCapability) -> Mode {
    capability.access_mode.as_ref().map_or(Mode::Unknown, v1::volume_capability::AccessMode::mode)
}

pub(crate) fn volume_context(pool: &Pool, volume: &Volume) -> HashMap<String, String> {
    let own = pool.context(volume).into_iter().map(|(key, value)| (key.to_owned(), value));
    own.chain([(POOL.to_owned(), pool.name().to_owned())]).collect()
}

/// Whether a context that comes back is this volume's.
pub(crate) fn is_context(pool: &Pool, volume: &Volume, context: &HashMap<String, String>) -> bool {
    let ours = volume_context(pool, volume);
    let mut own = context.iter().filter(|(key, _)| *key != CONNECTOR && !key.starts_with(PROVISIONER));
    own.all(|(key, value)| ours.get(key) == Some(value))
}

pub(crate) fn volume(pool: &Pool, volume: &Volume) -> v1::Volume {
    let source = volume.record.source.as_ref().map(|source| match source {
        ContentSource::Snapshot(id) => Type::Snapshot(SnapshotSource { snapshot_id: id.clone() }),
        ContentSource::Volume(handle) => Type::Volume(VolumeSource { volume_id: handle.clone() }),
    });
    v1::Volume {
        capacity_bytes: bytes(volume.record.size_bytes),
        volume_id: volume.handle.to_string(),
        volume_context: volume_context(pool, volume),
        content_source: source.map(|r#type| VolumeContentSource { r#type: Some(r#type) }),
        accessible_topology: topology::of_pool(pool),
    }
}

pub(crate) fn published_nodes(volume: &Volume) -> Vec<String> {
    volume.record.published.iter().map(|publication| publication.node.clone()).collect()
}

pub(crate) fn snapshot(snapshot: &Snapshot) -> v1::Snapshot {
    v1::Snapshot {
        size_bytes: bytes(snapshot.record.size_bytes),
        snapshot_id: snapshot.id.to_string(),
        source_volume_id: snapshot.record.source_volume.clone(),
        creation_time: Some(timestamp(snapshot.record.created)),
        ready_to_use: true,
        group_snapshot_id: snapshot.record.group.clone().unwrap_or_default(),
    }
}

pub(crate) fn group(group: &Group) -> v1::VolumeGroupSnapshot {
    v1::VolumeGroupSnapshot {
        group_snapshot_id: group.id.to_string(),
        snapshots: group.snapshots.iter().map(snapshot).collect(),
        creation_time: Some(timestamp(group.record.created)),
        ready_to_use: true,
    }
}

fn timestamp(at: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: at.as_second(), nanos: at.subsec_nanosecond() }
}

/// What is wrong, as CSI 1.13 asks for it.
pub(crate) fn health(volume_id: &str, ailments: &[Ailment]) -> VolumeHealth {
    let entry = |ailment: &Ailment| VolumeHealthEntry {
        status: match ailment.gravity {
            Gravity::Degraded => VolumeHealthErrorType::Degraded,
            Gravity::Inaccessible => VolumeHealthErrorType::Inaccessible,
            Gravity::DataLoss => VolumeHealthErrorType::DataLoss,
        }
        .into(),
        reason: ailment.reason.into(),
        message: ailment.message.clone(),
    };
    VolumeHealth { volume_id: volume_id.into(), health_statuses: ailments.iter().map(entry).collect() }
}

/// What is wrong with pools. Two of the same kind are one: a reason may come once.
pub(crate) fn storage_health(ailments: &[Ailment]) -> Vec<StorageBackendHealth> {
    let mut all: Vec<StorageBackendHealth> = Vec::new();
    for ailment in ailments {
        let status = match ailment.gravity {
            Gravity::Degraded => StorageHealthErrorType::StorageDegraded,
            Gravity::Inaccessible | Gravity::DataLoss => StorageHealthErrorType::StorageUnreachable,
        };
        match all.iter_mut().find(|there| there.reason == ailment.reason && there.status() == status) {
            Some(there) => there.message = format!("{}; {}", there.message, ailment.message),
            None => all.push(StorageBackendHealth {
                status: status.into(),
                reason: ailment.reason.into(),
                message: ailment.message.clone(),
                volume_capability: None,
            }),
        }
    }
    all
}

/// What is wrong with a volume, as CSI 1.12 asks for it.
pub(crate) fn condition(ailments: &[Ailment]) -> VolumeCondition {
    let messages: Vec<&str> = ailments.iter().map(|ailment| ailment.message.as_str()).collect();
    let message = if messages.is_empty() { "the volume is as it should be".into() } else { messages.join("; ") };
    VolumeCondition { abnormal: !ailments.is_empty(), message }
}

/// What a VolumeAttributesClass says.
pub(crate) fn limits(parameters: &HashMap<String, String>) -> Result<Limits, Status> {
    let parameters = parameters.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    Limits::parse(parameters).map_err(|error| Status::invalid_argument(error.to_string()))
}

/// What a node is told of a volume that is published to it.
pub(crate) fn publish_context(volume: &Volume, read_only: bool) -> HashMap<String, String> {
    let limits = volume.record.limits.iter().map(|(key, limit)| (key.to_owned(), limit.to_string()));
    limits.chain([(READ_ONLY.into(), read_only.to_string())]).collect()
}

/// What a node is to show a volume as.
pub(crate) fn target(capability: Option<&VolumeCapability>) -> Result<(Target, Mode), Status> {
    let capability = capability.ok_or_else(|| Status::invalid_argument("volume_capability is missing"))?;
    if let Some(why) = unsupported(std::slice::from_ref(capability)) {
        return Err(Status::failed_precondition(why));
    }
    let target = match &capability.access_type {
        Some(AccessType::Mount(mount)) => {
            Target::Filesystem { kind: mount.fs_type.clone(), options: mount.mount_flags.clone() }
        }
        _ => Target::Block,
    };
    Ok((target, mode(capability)))
}

/// How full a volume is; of a block device only its size is known.
pub(crate) fn usage(stats: Stats, size_bytes: u64) -> Vec<VolumeUsage> {
    let of = |usage: Usage, unit: Unit| VolumeUsage {
        available: bytes(usage.available),
        total: bytes(usage.total),
        used: bytes(usage.used),
        unit: unit.into(),
    };
    match stats {
        Stats::Block => {
            vec![VolumeUsage { total: bytes(size_bytes), unit: Unit::Bytes.into(), ..Default::default() }]
        }
        Stats::Filesystem { bytes, inodes } => vec![of(bytes, Unit::Bytes), of(inodes, Unit::Inodes)],
    }
}

/// CSI counts in signed numbers.
pub(crate) fn bytes(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
