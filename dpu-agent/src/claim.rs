//! *ActivatedFromQuorum* of docs/design/fencing.md: the only way into the record.
//!
//! Read from quorum; with a grant and without a deletionTimestamp write `status.fence`, on the condition that nothing
//! changed since the reading; only then the record, and only with that anything is connected.

use crate::act::{Actor, Server, file_error};
use crate::attachments::{self, Applied};
use crate::cluster::{apply_status, bounded};
use crate::status::note;
use api::attachment::{DiskAttachment, FenceIdentity, NicAttachment};
use kube::ResourceExt;
use planner::agent::{Attachment, Entry, Function, Import, Key, Kind};
use planner::exposure::{ExposureId, Limits};
use ports::{ErrorClass, PortError};

pub(crate) async fn claim(
    actor: &Actor,
    server: Server<'_>,
    key: &Key,
    id: &ExposureId,
    shown: bool,
) -> Result<(), PortError> {
    let what = format!("claiming {}/{} epoch {}", key.namespace, key.name, id.epoch);
    let Granted { function, limits } = match key.kind {
        Kind::Disk => written::<DiskAttachment>(actor, server, (key, &actor.written.disks), id, &what).await?,
        Kind::Nic => written::<NicAttachment>(actor, server, (key, &actor.written.nics), id, &what).await?,
    };
    let identity = identity(actor, id, &function)?;
    tracing::info!(attachment = key.name, uid = id.uid, epoch = id.epoch, identity, "claimed");
    let boot_id = actor.boot_id.clone();
    let (key, id) = (key.clone(), id.clone());
    let entry = Entry { key: key.clone(), id, boot_id, identity, function, limits, import_done: None, shown };
    actor.record.insert(entry).map_err(|error| file_error("recording the claim of", &key.name, &error))
}

async fn written<K: attachments::Kind>(
    actor: &Actor,
    server: Server<'_>,
    (key, applied): (&Key, &Applied<K>),
    id: &ExposureId,
    what: &str,
) -> Result<Granted, PortError> {
    let api = K::api(server.cluster);
    let object = bounded(what, api.get(&key.name)).await?;
    let granted = granted(actor, &object.read(), id, what)?;
    let mut status = object.status().cloned().unwrap_or_default();
    K::claimed(&mut status, fence(actor, id, &granted.function)?);
    let version = object.resource_version();
    let told = apply_status(&api, what, (&key.name, &key.uid), version.as_deref(), &status).await?;
    K::seen(server.desired).wrote(told);
    note(applied, &key.uid, status);
    Ok(granted)
}

struct Granted {
    function: Function,
    limits: Limits,
}

/// What is granted, if this very (UID, epoch) is, here and now.
fn granted(actor: &Actor, read: &Attachment, id: &ExposureId, what: &str) -> Result<Granted, PortError> {
    let refused = |cause: String| Err(PortError::new(ErrorClass::Conflict, format!("{what}: {cause}")));
    if read.key.uid != id.uid {
        return refused(format!("the API server has UID {} under that name", read.key.uid));
    }
    if read.dpu_name != actor.dpu_name {
        return refused(format!("it is for Dpu {}", read.dpu_name));
    }
    if read.epoch != Some(id.epoch) {
        return refused(format!("its grant is {:?}", read.epoch));
    }
    if read.deleting {
        return refused("it is being deleted".to_owned());
    }
    let invalid = |cause: String| PortError::new(ErrorClass::Invalid, format!("{what}: {cause}"));
    Ok(Granted { function: read.function.clone().map_err(invalid)?, limits: read.limits })
}

fn fence(actor: &Actor, id: &ExposureId, function: &Function) -> Result<FenceIdentity, PortError> {
    Ok(FenceIdentity { boot_id: actor.boot_id.clone(), identity: identity(actor, id, function)?, epoch: id.epoch })
}

/// As whoever refuses a silent holder knows it.
fn identity(actor: &Actor, id: &ExposureId, function: &Function) -> Result<String, PortError> {
    Ok(match function {
        Function::Disk { volume, .. } | Function::Import(Import { volume, .. }) => {
            actor.connector(volume.connector())?.identity(id)
        }
        Function::Seed(_) | Function::Eraser(_) | Function::HoldDisk(_) => format!("seed.{}.{}", id.uid, id.epoch),
        Function::Nic(nic) => format!("port.{}.{}", nic.logical_port, id.epoch),
    })
}
