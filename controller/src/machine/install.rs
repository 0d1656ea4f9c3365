//! Requests of an installation: the copy of the Template, its Workflow, and what is on record at the Hardware.

use crate::Controller;
use crate::error::{Error, call};
use crate::objects;
use api::tinkerbell::{Hardware, Template, Workflow};
use api::{BareMetalMachine, Dpu, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use planner::install::{Phase, Record};
use planner::machine::observed::label;
use planner::machine::plan::Target;
use serde_json::json;

pub(super) async fn create_template(c: &Controller, template: &Template) -> Result<(), Error> {
    let api = c.objects.namespaced::<Template>(&c.inventory);
    let ours = |there: &Template| is_same(&there.metadata, &template.metadata) && there.spec == template.spec;
    objects::create(&api, &c.world.templates, template, ours).await.map(drop)
}

pub(super) async fn create_workflow(c: &Controller, workflow: &Workflow) -> Result<(), Error> {
    let api = c.objects.namespaced::<Workflow>(&c.inventory);
    let ours = |there: &Workflow| is_same(&there.metadata, &workflow.metadata) && there.spec == workflow.spec;
    objects::create(&api, &c.world.workflows, workflow, ours).await.map(drop)
}

/// Made for the same machine.
fn is_same(there: &ObjectMeta, made: &ObjectMeta) -> bool {
    label(there, labels::MACHINE_UID) == label(made, labels::MACHINE_UID) && there.deletion_timestamp.is_none()
}

pub(super) async fn delete_template(c: &Controller, target: &Target) -> Result<(), Error> {
    let Some(there) = c.world.templates.get(&target.namespace, &target.name) else { return Ok(()) };
    if there.metadata.uid.as_deref() != Some(&target.uid) {
        return Ok(());
    }
    let api = c.objects.namespaced::<Template>(&target.namespace);
    objects::delete(&api, &c.world.templates, &there.metadata, false).await
}

pub(super) async fn delete_workflow(c: &Controller, target: &Target) -> Result<(), Error> {
    let Some(there) = c.world.workflows.get(&target.namespace, &target.name) else { return Ok(()) };
    if there.metadata.uid.as_deref() != Some(&target.uid) {
        return Ok(());
    }
    let api = c.objects.namespaced::<Workflow>(&target.namespace);
    objects::delete(&api, &c.world.workflows, &there.metadata, false).await
}

/// Beside the claim: the version that is the precondition is the one in which the plan saw the claim. A beginning rests besides on
/// its Workflow, read from quorum: what is on record has been there.
pub(super) async fn record(
    c: &Controller,
    (name, uid, resource_version): (&str, &str, &str),
    workflow: &str,
    record: &Record,
    request: Option<&str>,
) -> Result<(), Error> {
    let mut annotations = json!({labels::INSTALL: record.to_string()});
    if record.phase == Phase::Begun {
        let what = format!("get Workflow '{workflow}'");
        let there = call(&what, c.objects.namespaced::<Workflow>(&c.inventory).get(workflow)).await?;
        if there.metadata.uid.as_deref() != Some(&record.workflow) {
            let message = "it was deleted, and created again".to_owned();
            return Err(Error::NotConfirmed { what, message });
        }
        annotations[labels::INSTALL_REQUEST] = json!(request);
    } else if let Some(request) = request {
        annotations[labels::INSTALL_REQUEST] = json!(request);
    }
    let change = json!({"metadata": {"annotations": annotations}});
    let api = c.objects.namespaced::<Hardware>(&c.inventory);
    objects::patch(&api, &c.world.hardware, name, uid, Some(resource_version), change).await.map(drop)
}

/// From quorum: no Dpu forbids that the machine is installed on this server.
pub(super) async fn confirm_bare(c: &Controller, machine: &BareMetalMachine, hardware: &str) -> Result<(), Error> {
    let what = "list Dpus".to_owned();
    let dpus = call(&what, c.objects.cluster::<Dpu>().list(&ListParams::default())).await?.items;
    planner::machine::confirm_bare(&machine.spec, hardware, &dpus).map_err(|message| {
        dpus.into_iter().for_each(|dpu| c.world.dpus.put(dpu));
        Error::NotConfirmed { what, message }
    })
}
