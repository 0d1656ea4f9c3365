//! What every operation does: gather → plan → status → act, until there is nothing to do but wait.
//!
//! The status is written first: it is the record of what is about to be made, and every write rests on the version of the
//! object that was seen.

use crate::Controller;
use crate::cache::{Cache, Object};
use crate::error::Error;
use crate::index::IndexKey;
use crate::objects;
use crate::snapshots::{
    GroupSource, SnapshotSource, VolumeGroupSnapshot, VolumeGroupSnapshotSpec, VolumeSnapshot, VolumeSnapshotSpec,
};
use crate::work::Work;
use crate::world::World;
use api::verbs::HasPhase;
use api::{BareMetalMachine, labels};
use executor::{claims, hosts};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::Resource;
use kube::core::object::HasStatus;
use planner::machine::observed::label;
use planner::machine::plan::Target;
use planner::verbs::operation::{MachineVersion, NewGroup, NewSnapshot, Told};
use planner::verbs::{Action, Lock, Plan, Verb};
use runtime::queue::{Key, Next};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;

const ROUNDS: usize = 16;

/// A kind whose objects are operations.
pub(crate) trait Operation:
    Object + Serialize + Resource<Scope = NamespaceResourceScope> + HasPhase + HasStatus<Status: PartialEq + Clone>
{
    const VERB: Verb;
    const WORK: Work;

    fn cache(world: &World) -> &Arc<Cache<Self>>;
}

/// Plans on what is so now; `None`: there is no such object.
pub(super) async fn reconcile<K: Operation>(
    c: &Controller,
    key: &Key,
    plan: impl AsyncFn(&Controller, &Arc<K>) -> Result<Plan<K::Status>, Error>,
) -> Result<Next, Error> {
    for _ in 0..ROUNDS {
        let Some(object) = K::cache(&c.world).get(&key.0, &key.1) else { return Ok(Next::Wait) };
        let plan = plan(c, &object).await?;
        let wrote = write(c, &object, &plan).await?;
        for action in &plan.actions {
            act::<K>(c, key, action).await?;
        }
        if plan.actions.is_empty() && !wrote {
            return Ok(Next::at(plan.wake_at));
        }
    }
    c.world.look(K::WORK, key.clone());
    Ok(Next::Wait)
}

/// True: something new was written.
async fn write<K: Operation>(c: &Controller, object: &Arc<K>, plan: &Plan<K::Status>) -> Result<bool, Error> {
    if object.status() == Some(&plan.status) {
        return Ok(false);
    }
    let mut updated = K::clone(object);
    *updated.status_mut() = Some(plan.status.clone());
    let namespace = object.meta().namespace.as_deref().unwrap_or_default();
    let api = c.objects.namespaced(namespace);
    objects::change_status(&api, K::cache(&c.world), object.as_ref(), &updated).await?;
    match &plan.tell {
        Some(Told::Succeeded { message }) => c.events.tell(object.as_ref(), "Succeeded", message),
        Some(Told::Failed { message }) => c.events.warn(object.as_ref(), "Failed", message),
        None => {}
    }
    Ok(true)
}

async fn act<K: Operation>(c: &Controller, key: &Key, action: &Action) -> Result<(), Error> {
    let what = format!("{} '{}'", K::VERB.kind(), key.1);
    let Some(object) = K::cache(&c.world).get(&key.0, &key.1) else { return Err(Error::NotFound { what }) };
    let meta = object.meta();
    match action {
        Action::AddFinalizer => finalizer::<K>(c, meta, true).await,
        Action::RemoveFinalizer => finalizer::<K>(c, meta, false).await,
        Action::Lock(machine) => {
            let lock = Lock { verb: K::VERB, name: key.1.clone(), uid: meta.uid.clone().unwrap_or_default() };
            annotate(c, &key.0, machine, json!({labels::OPERATION: lock.to_string()})).await
        }
        Action::Unlock(machine) => annotate(c, &key.0, machine, json!({labels::OPERATION: null})).await,
        Action::CreateSnapshot(new) => create_snapshot(c, &key.0, new).await,
        Action::DeleteSnapshot(target) => delete::<VolumeSnapshot>(c, &c.world.snapshots, target).await,
        Action::LabelClaim(claim) => label_claim(c, claim, json!(meta.uid)).await,
        Action::UnlabelClaim(claim) => label_claim(c, claim, Value::Null).await,
        Action::CreateGroup(new) => create_group(c, &key.0, new, meta.uid.as_deref().unwrap_or_default()).await,
        Action::DeleteGroup(target) => delete::<VolumeGroupSnapshot>(c, &c.world.group_snapshots, target).await,
        Action::CreateClaim(claim) => claims::create(c, claim, labels::OPERATION_UID).await,
        Action::DeleteClaim(target) => claims::delete(c, target).await,
        Action::ClaimTarget { machine, hardware } => {
            let there = machine_of(c, &key.0, &machine.name, &machine.uid)?;
            hosts::claim_target(c, &there, hardware, meta.uid.as_deref().unwrap_or_default()).await
        }
        Action::GiveTargetBack { name, machine_uid } => {
            if c.world.machines.by(&IndexKey::uid(machine_uid)).is_empty() {
                return Err(Error::NotFound { what });
            }
            hosts::unclaim(c, machine_uid, name).await
        }
        Action::KeepTarget { name } => hosts::keep_target(c, name, meta.uid.as_deref().unwrap_or_default()).await,
        Action::SwitchClaims { machine, claims } => {
            let annotations = claims.iter().map(|(disk, claim)| (format!("{}{disk}", labels::CLAIM), json!(claim)));
            annotate(c, &key.0, machine, annotations.collect()).await
        }
    }
}

async fn finalizer<K: Operation>(c: &Controller, meta: &ObjectMeta, present: bool) -> Result<(), Error> {
    let api = c.objects.namespaced::<K>(meta.namespace.as_deref().unwrap_or_default());
    objects::finalize(&api, K::cache(&c.world), meta, labels::FINALIZER_OPERATION, present).await
}

/// A write to the machine in the very version that was planned on.
pub(super) async fn annotate(
    c: &Controller,
    namespace: &str,
    machine: &MachineVersion,
    annotations: Value,
) -> Result<(), Error> {
    let api = c.objects.namespaced::<BareMetalMachine>(namespace);
    let change = json!({"metadata": {"annotations": annotations}});
    let version = Some(machine.resource_version.as_str());
    objects::patch(&api, &c.world.machines, &machine.name, &machine.uid, version, change).await.map(drop)
}

fn machine_of(c: &Controller, namespace: &str, name: &str, uid: &str) -> Result<Arc<BareMetalMachine>, Error> {
    let there = c.world.machines.get(namespace, name);
    let what = format!("BareMetalMachine '{name}'");
    there.filter(|there| there.metadata.uid.as_deref() == Some(uid)).ok_or(Error::NotFound { what })
}

async fn create_snapshot(c: &Controller, namespace: &str, new: &NewSnapshot) -> Result<(), Error> {
    let snapshot = VolumeSnapshot {
        metadata: ObjectMeta {
            name: Some(new.name.clone()),
            namespace: Some(namespace.to_owned()),
            labels: Some(new.labels.clone()),
            ..ObjectMeta::default()
        },
        spec: VolumeSnapshotSpec {
            source: SnapshotSource {
                persistent_volume_claim_name: Some(new.claim.clone()),
                volume_snapshot_content_name: None,
            },
            volume_snapshot_class_name: new.class.clone(),
        },
        status: None,
    };
    let own = label(&snapshot.metadata, labels::OPERATION_UID);
    let ours = |there: &VolumeSnapshot| label(&there.metadata, labels::OPERATION_UID) == own;
    objects::create(&c.objects.namespaced(namespace), &c.world.snapshots, &snapshot, ours).await.map(drop)
}

/// A VolumeGroupSnapshot of the operation takes the volumes of all claims with the label.
async fn label_claim(c: &Controller, claim: &Target, operation: Value) -> Result<(), Error> {
    let api = c.objects.namespaced::<PersistentVolumeClaim>(&claim.namespace);
    let change = json!({"metadata": {"labels": {labels::GROUP_SNAPSHOT: operation}}});
    objects::patch(&api, &c.world.claims, &claim.name, &claim.uid, None, change).await.map(drop)
}

async fn create_group(c: &Controller, namespace: &str, new: &NewGroup, operation: &str) -> Result<(), Error> {
    let wanted = [(labels::GROUP_SNAPSHOT.to_owned(), operation.to_owned())];
    let mut group = VolumeGroupSnapshot::new(
        &new.name,
        VolumeGroupSnapshotSpec {
            source: GroupSource {
                selector: Some(LabelSelector { match_labels: Some(wanted.into()), ..LabelSelector::default() }),
            },
            volume_group_snapshot_class_name: Some(new.class.clone()),
        },
    );
    group.metadata.namespace = Some(namespace.to_owned());
    group.metadata.labels = Some(new.labels.clone());
    let ours = |there: &VolumeGroupSnapshot| label(&there.metadata, labels::OPERATION_UID) == Some(operation);
    objects::create(&c.objects.namespaced(namespace), &c.world.group_snapshots, &group, ours).await.map(drop)
}

async fn delete<K>(c: &Controller, cache: &Cache<K>, target: &Target) -> Result<(), Error>
where
    K: Object + Resource<Scope = NamespaceResourceScope>,
{
    let there = cache.get(&target.namespace, &target.name);
    let Some(there) = there.filter(|there| there.meta().uid.as_deref() == Some(&target.uid)) else { return Ok(()) };
    let api = c.objects.namespaced::<K>(&target.namespace);
    objects::delete(&api, cache, there.meta(), false).await
}
