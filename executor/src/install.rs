//! Requests of an installation: the copy of the Template, its Workflow, and what is on record at the Hardware.

use crate::verbs::what;
use crate::{Error, Shell, disks, get, list, put, seen, writes};
use api::tinkerbell::{Hardware, Template, Workflow};
use api::{BareMetalMachine, DiskAttachment, Dpu, labels, names};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use planner::erase;
use planner::install::{Phase, Record};
use planner::machine::plan::Seed;
use planner::meta::{Target, label};
use serde_json::json;

pub async fn create_template(c: &impl Shell, template: &Template) -> Result<(), Error> {
    let ours = |there: &Template| is_same(&there.metadata, &template.metadata) && there.spec == template.spec;
    writes::create(c, template, ours).await.map(drop)
}

pub async fn create_workflow(c: &impl Shell, workflow: &Workflow) -> Result<(), Error> {
    let ours = |there: &Workflow| is_same(&there.metadata, &workflow.metadata) && there.spec == workflow.spec;
    writes::create(c, workflow, ours).await.map(drop)
}

/// Made for the same machine.
fn is_same(there: &ObjectMeta, made: &ObjectMeta) -> bool {
    label(there, labels::MACHINE_UID) == label(made, labels::MACHINE_UID) && there.deletion_timestamp.is_none()
}

pub async fn delete_template(c: &impl Shell, target: &Target) -> Result<(), Error> {
    match seen::<Template>(c, target) {
        Ok(there) => writes::delete::<Template>(c, &there.metadata, false).await,
        Err(_) => Ok(()),
    }
}

pub async fn delete_workflow(c: &impl Shell, target: &Target) -> Result<(), Error> {
    match seen::<Workflow>(c, target) {
        Ok(there) => writes::delete::<Workflow>(c, &there.metadata, false).await,
        Err(_) => Ok(()),
    }
}

/// Beside the claim: the version that is the precondition is the one in which the plan saw the claim. A beginning rests besides on
/// its Workflow, read from quorum: what is on record has been there. What its system reads is there before.
pub async fn record(
    c: &impl Shell,
    hardware: &ObjectMeta,
    machine_uid: &str,
    record: &Record,
    (request, seed): (Option<&str>, Option<&Seed>),
) -> Result<(), Error> {
    if let Some(seed) = seed {
        write_seed(c, machine_uid, seed).await?;
    }
    let mut annotations = json!({labels::INSTALL: record.to_string()});
    if record.phase == Phase::Begun {
        confirm_workflow(c, &names::install(machine_uid, record.number), &record.workflow).await?;
        annotations[labels::INSTALL_REQUEST] = json!(request);
    } else if let Some(request) = request {
        annotations[labels::INSTALL_REQUEST] = json!(request);
    }
    writes::patch::<Hardware>(c, hardware, json!({"metadata": {"annotations": annotations}})).await.map(drop)
}

/// The Secret goes with the installation's Workflow; its name says of which machine it is.
async fn write_seed(c: &impl Shell, machine_uid: &str, seed: &Seed) -> Result<(), Error> {
    let labels = [(labels::MANAGED_BY, labels::MANAGED_BY_VALUE), (labels::MACHINE_UID, machine_uid)];
    let meta = ObjectMeta {
        namespace: Some(c.seeds().to_owned()),
        labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
        ..ObjectMeta::default()
    };
    disks::put_seed(c, meta, seed).await
}

pub async fn delete_seed(c: &impl Shell, target: &Target) -> Result<(), Error> {
    writes::delete::<Secret>(c, &writes::by_uid(target), false).await
}

/// From quorum: no Dpu forbids that the machine is installed on this server.
pub async fn confirm_bare(c: &impl Shell, machine: &BareMetalMachine, hardware: &str) -> Result<(), Error> {
    let dpus = list::<Dpu>(c, None).await?;
    planner::machine::confirm_bare(&machine.spec, hardware, &dpus).map_err(|message| {
        dpus.into_iter().for_each(|dpu| put(c, dpu));
        Error::NotConfirmed { what: "list Dpus".to_owned(), message }
    })
}

/// Beside the claim: the disks that installers have told of.
pub async fn record_disks(c: &impl Shell, hardware: &ObjectMeta, disks: &[erase::Disk]) -> Result<(), Error> {
    let disks = json!(disks).to_string();
    writes::patch::<Hardware>(c, hardware, json!({"metadata": {"annotations": {labels::DISKS_SEEN: disks}}}))
        .await
        .map(drop)
}

/// The same of the erasing at release. What asked for one more try goes with its beginning.
pub async fn record_erase(
    c: &impl Shell,
    hardware: &ObjectMeta,
    (workflow, eraser): (&str, Option<&Target>),
    record: &erase::Record,
    report: Option<&erase::Report>,
) -> Result<(), Error> {
    let mut annotations = json!({labels::ERASE: record.to_string()});
    if record.phase == erase::Phase::Begun {
        match eraser {
            Some(eraser) => confirm_eraser(c, eraser).await?,
            None => confirm_workflow(c, workflow, &record.workflow).await?,
        }
        annotations[labels::ERASE_REQUESTED_AT] = json!(null);
    }
    if let Some(report) = report.and_then(|report| serde_json::to_string(report).ok()) {
        annotations[labels::ERASE_REPORT] = json!(report);
    }
    writes::patch::<Hardware>(c, hardware, json!({"metadata": {"annotations": annotations}})).await.map(drop)
}

/// From quorum: the eraser is there, and nobody takes it away.
async fn confirm_eraser(c: &impl Shell, eraser: &Target) -> Result<(), Error> {
    let there = get::<DiskAttachment>(c, &eraser.namespace, &eraser.name).await?;
    let meta = &there.metadata;
    if meta.uid.as_ref() == Some(&eraser.uid) && meta.deletion_timestamp.is_none() {
        return Ok(());
    }
    let message = "it was deleted, or is being deleted".to_owned();
    Err(Error::NotConfirmed { what: what::<DiskAttachment>("get", &eraser.name), message })
}

/// From quorum: the Workflow with this UID has this name.
async fn confirm_workflow(c: &impl Shell, workflow: &str, uid: &str) -> Result<(), Error> {
    let there = get::<Workflow>(c, c.inventory(), workflow).await?;
    if there.metadata.uid.as_deref() == Some(uid) {
        return Ok(());
    }
    let message = "it was deleted, and created again".to_owned();
    Err(Error::NotConfirmed { what: what::<Workflow>("get", workflow), message })
}
