//! The pool's words in CSI's, both ways; each error becomes a gRPC code here and nowhere else.

use crate::{
    pool::{
        ContentSource, CreateError, DeleteError, ExpandError, Fault, Handle, Pool, Range, SizeError, Snapshot,
        SnapshotError, UseError, Volume,
    },
    pools::ChooseError,
};
use proto::csi::v1::{
    self, CapacityRange, VolumeCapability, VolumeContentSource,
    volume_capability::{AccessType, access_mode::Mode},
    volume_content_source::{SnapshotSource, Type, VolumeSource},
};
use std::collections::HashMap;
use tonic::Status;

/// The keys of a volume's context; all that whoever opens it needs besides the handle.
pub(crate) const POOL: &str = "pool";
const FORMAT: &str = "format";
/// A parameter of a StorageClass and a key of its volumes' context: `kubelet` makes kubelet connect them on a DPU, with this
/// driver's node service, where the DPU's agent would open the image itself. The agent refuses a key that it does not know.
const CONNECTOR: &str = "connector";
/// The key of the publish context.
pub(crate) const READ_ONLY: &str = "readonly";
/// What `--extra-create-metadata` adds to parameters.
const RESERVED: &str = "csi.storage.k8s.io/";
/// What external-provisioner adds to a volume's context on its way to the PersistentVolume.
const PROVISIONER: &str = "storage.kubernetes.io/";
/// What the node service can make on a volume; the first unless one is named.
pub(crate) const FILESYSTEMS: [&str; 2] = ["ext4", "xfs"];

impl From<Fault> for Status {
    fn from(fault: Fault) -> Status {
        if fault.is_full() {
            Status::resource_exhausted(fault.to_string())
        } else {
            Status::internal(fault.to_string())
        }
    }
}

impl From<SizeError> for Status {
    fn from(error: SizeError) -> Status {
        let message = error.to_string();
        match error {
            SizeError::AbovePool { .. } => Status::resource_exhausted(message),
            _ => Status::out_of_range(message),
        }
    }
}

impl From<ChooseError> for Status {
    fn from(error: ChooseError) -> Status {
        let message = error.to_string();
        match error {
            ChooseError::NoSource(_) => Status::not_found(message),
            ChooseError::Io(fault) => fault.into(),
            _ => Status::invalid_argument(message),
        }
    }
}

impl From<CreateError> for Status {
    fn from(error: CreateError) -> Status {
        let message = error.to_string();
        match error {
            CreateError::Incompatible { .. } => Status::already_exists(message),
            CreateError::NoSource(..) => Status::not_found(message),
            CreateError::Size(error) => error.into(),
            CreateError::NoReflink(_) => Status::failed_precondition(message),
            CreateError::Io(fault) => fault.into(),
        }
    }
}

impl From<DeleteError> for Status {
    fn from(error: DeleteError) -> Status {
        let message = error.to_string();
        match error {
            DeleteError::InUse { .. } => Status::failed_precondition(message),
            DeleteError::Io(fault) => fault.into(),
        }
    }
}

impl From<UseError> for Status {
    fn from(error: UseError) -> Status {
        let message = error.to_string();
        match error {
            UseError::NoSuchVolume(_) | UseError::NoSuchNode { .. } => Status::not_found(message),
            UseError::Incompatible { .. } => Status::already_exists(message),
            UseError::Elsewhere { .. } | UseError::Machine { .. } => Status::failed_precondition(message),
            UseError::Io(fault) => fault.into(),
        }
    }
}

impl From<ExpandError> for Status {
    fn from(error: ExpandError) -> Status {
        let message = error.to_string();
        match error {
            ExpandError::NoSuchVolume(_) => Status::not_found(message),
            ExpandError::Size(error) => error.into(),
            ExpandError::Io(fault) => fault.into(),
        }
    }
}

impl From<SnapshotError> for Status {
    fn from(error: SnapshotError) -> Status {
        let message = error.to_string();
        match error {
            SnapshotError::NoSuchVolume(_) => Status::not_found(message),
            SnapshotError::Incompatible { .. } => Status::already_exists(message),
            SnapshotError::Io(fault) => fault.into(),
        }
    }
}

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

pub(crate) fn volume_context(pool: &Pool) -> HashMap<String, String> {
    HashMap::from([(POOL.into(), pool.name().into()), (FORMAT.into(), "raw".into())])
}

/// Whether a context that comes back is this volume's.
pub(crate) fn is_context(pool: &Pool, context: &HashMap<String, String>) -> bool {
    let ours = volume_context(pool);
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
        volume_context: volume_context(pool),
        content_source: source.map(|r#type| VolumeContentSource { r#type: Some(r#type) }),
        accessible_topology: Vec::new(),
    }
}

pub(crate) fn published_nodes(volume: &Volume) -> Vec<String> {
    volume.record.published.iter().map(|publication| publication.node.clone()).collect()
}

pub(crate) fn snapshot(snapshot: &Snapshot) -> v1::Snapshot {
    let created = snapshot.record.created;
    v1::Snapshot {
        size_bytes: bytes(snapshot.record.size_bytes),
        snapshot_id: snapshot.id.to_string(),
        source_volume_id: snapshot.record.source_volume.clone(),
        creation_time: Some(prost_types::Timestamp {
            seconds: created.as_second(),
            nanos: created.subsec_nanosecond(),
        }),
        ready_to_use: true,
        group_snapshot_id: String::new(),
    }
}

/// CSI counts in signed numbers.
pub(crate) fn bytes(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
