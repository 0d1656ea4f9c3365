//! *AgentDetaches* of docs/design/fencing.md, its end: nothing of it is left here, so say that and let go of the object.
//!
//! Of a NIC the removal of the finalizer says it: nobody reads a status that would be deleted with that very write. Where somebody else's
//! finalizer keeps the object, the next round tells what is left, as of any attachment.

use crate::act::{Actor, Server};
use crate::clock;
use crate::cluster::{apply_status, bounded};
use api::DiskAttachment;
use api::attachment::Connector;
use api::conditions::{self, ConditionStatus};
use api::labels;
use api::machine::AttachPhase;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use planner::agent::{Key, Kind};
use planner::exposure::ExposureId;
use planner::target;
use ports::{ErrorClass, PortError};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::fmt::Debug;

pub(crate) async fn finish(actor: &Actor, server: Server<'_>, key: &Key) -> Result<(), PortError> {
    let what = format!("finishing {}/{}", key.namespace, key.name);
    match key.kind {
        Kind::Disk => {
            let disks = server.cluster.disks();
            if let Some(object) = current(&disks, &what, key).await? {
                leave_storage(actor, &object).await?;
                let mut status = object.status.clone().unwrap_or_default();
                (status.phase, status.exposed_boot_id) = (AttachPhase::Detaching, None);
                released(&mut status.conditions);
                let object = apply_status(&disks, &what, (&key.name, &key.uid), None, &status).await?;
                actor.forget(&key.uid)?;
                let_go(&disks, &what, &object).await?;
            }
            server.desired.disks.forget(&key.uid);
        }
        Kind::Nic => {
            let nics = server.cluster.nics();
            if let Some(object) = current(&nics, &what, key).await? {
                actor.forget(&key.uid)?;
                let_go(&nics, &what, &object).await?;
            }
            server.desired.nics.forget(&key.uid);
        }
    }
    actor.written.forget(&key.uid);
    tracing::info!(attachment = key.name, uid = key.uid, "released");
    actor.forget(&key.uid)
}

/// What is connected was disconnected. This is for what a connect that was interrupted, or an earlier boot of this DPU, left.
async fn leave_storage(actor: &Actor, disk: &DiskAttachment) -> Result<(), PortError> {
    let (Some(grant), Some(volume)) = (&disk.spec.grant, &disk.spec.volume) else { return Ok(()) };
    let connector = actor.ports.connector(target::connector(&volume.driver, &volume.attributes));
    let Some(connector) = connector.filter(|_| volume.connector == Connector::Native) else { return Ok(()) };
    connector.disconnect(&ExposureId { uid: disk.uid().unwrap_or_default(), epoch: grant.epoch }).await
}

/// `None`: it is gone, or another object has the name.
async fn current<K>(api: &Api<K>, what: &str, key: &Key) -> Result<Option<K>, PortError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    match bounded(what, api.get(&key.name)).await {
        Ok(object) => Ok(Some(object).filter(|object| object.uid().as_deref() == Some(&key.uid))),
        Err(error) if error.class == ErrorClass::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn released(all: &mut Vec<Condition>) {
    for type_ in [conditions::CONNECTED, conditions::EXPOSED] {
        let message = "the host let go of it and nothing is connected for it any more";
        conditions::set(all, type_, ConditionStatus::False, "Released", message, None, clock::now());
    }
}

/// Removes our finalizer, if nothing changed since `object` was read.
async fn let_go<K>(api: &Api<K>, what: &str, object: &K) -> Result<(), PortError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let others: Vec<_> = object.finalizers().iter().filter(|f| *f != labels::FINALIZER_EXPOSED).collect();
    if others.len() == object.finalizers().len() {
        return Ok(());
    }
    let meta = json!({"uid": object.uid(), "resourceVersion": object.resource_version(), "finalizers": others});
    let patch = Patch::Merge(json!({ "metadata": meta }));
    let result = bounded(what, api.patch(&object.name_any(), &PatchParams::default(), &patch)).await;
    match result {
        Err(error) if error.class == ErrorClass::NotFound => Ok(()),
        result => result.map(drop),
    }
}
