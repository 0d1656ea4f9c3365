//! The controller's part in Workflows: their boot options, before the first action and after the last one
//! ([`planner::workflow::prepare`]), that DHCP does not serve a server whose agent is awaited ([`planner::workflow::unserved`]), and their
//! Events ([`planner::workflow::story`]). All else of a Workflow's status is written by `boot`.

use crate::error::{Error, call};
use crate::index::IndexKey;
use crate::machine::gather::{self, servers::shares_mac};
use crate::work::Work;
use crate::{Controller, clock, objects};
use api::tinkerbell::{Hardware, Job, Workflow};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::dynamic::ApiResource;
use planner::meta::{name, uid};
use planner::netboot::reason_since;
use planner::netboot::report::is_of;
use planner::reason::Reason;
use planner::workflow::{Prepare, before, comes, job_name, prepare, tells, unserved};
use runtime::queue::{Key, Next};
use serde_json::{Value, json};

const ROUNDS: usize = 16;

pub async fn reconcile(c: &Controller, key: &Key) -> Result<Next, Error> {
    for _ in 0..ROUNDS {
        let Some(workflow) = c.world.workflows.get(&key.0, &key.1) else {
            c.told_workflows.forget(key);
            return Ok(Next::Wait);
        };
        for told in c.told_workflows.news(key, &workflow) {
            c.events.became(workflow.as_ref(), &told);
        }
        let hardware = workflow.spec.hardware_ref.as_deref().and_then(|named| c.world.hardware.get(&key.0, named));
        let found = job_name(&workflow).and_then(|job| c.world.jobs.get(&key.0, &job));
        let now = clock::now();
        let others = workflow.spec.hardware_ref.as_deref().map(|hardware| c.world.workflows_of(hardware));
        let before = before(&workflow, others.iter().flatten().map(AsRef::as_ref), now);
        let preparation = prepare(&workflow, hardware.as_deref(), found.as_ref(), before.as_ref(), now);
        let mut quiet = true;
        let not_served = || unserved(&workflow, reason(c, &workflow).as_ref(), now);
        if let Some(status) = preparation.status.or_else(not_served) {
            let state = status.state.clone();
            let updated = Workflow { status: Some(status), ..Workflow::clone(&workflow) };
            let api = c.objects.namespaced(&key.0);
            objects::change_status(&api, &c.world.workflows, workflow.as_ref(), &updated).await?;
            tracing::info!(workflow = key.1, state, "its status is written");
            quiet = false;
        }
        if let Some(action) = &preparation.action {
            act(c, key, hardware.as_deref(), action).await?;
            quiet = false;
        }
        if quiet {
            return Ok(Next::at(preparation.wake_at));
        }
    }
    c.world.look(Work::Workflow, key.clone());
    Ok(Next::Wait)
}

/// Why DHCP does not serve the server of an agent that is awaited; of a machine's own Workflow the machine tells.
fn reason(c: &Controller, workflow: &Workflow) -> Option<Reason> {
    let agents = if tells(workflow) { comes(workflow) } else { Vec::new() };
    let made = workflow.metadata.creation_timestamp.as_ref().map(|at| at.0);
    agents.into_iter().flat_map(|agent| c.world.hardware.by(&IndexKey::agent(agent))).find_map(|hardware| {
        let report = gather::report(c, Some(&hardware)).filter(|report| is_of(report, &hardware));
        let seen = || reason_since(&hardware, report.as_ref()?.status.as_ref(), made);
        shares_mac(c, &hardware).or_else(seen)
    })
}

async fn act(c: &Controller, key: &Key, hardware: Option<&Hardware>, action: &Prepare) -> Result<(), Error> {
    let jobs = c.objects.namespaced::<Job>(&key.0);
    match action {
        Prepare::AllowNetboot(allowed) => match hardware {
            Some(hardware) => allow_netboot(c, key, hardware, *allowed).await,
            None => Ok(()),
        },
        Prepare::DeleteJob(target) => {
            let there = c.world.jobs.get(&target.namespace, &target.name);
            let Some(there) = there.filter(|there| uid(&there.metadata) == target.uid) else { return Ok(()) };
            objects::delete(&jobs, &c.world.jobs, &there.metadata, false).await
        }
        Prepare::CreateJob(job) => {
            let owner = |job: &Job| job.metadata.owner_references.iter().flatten().next().map(|o| o.uid.clone());
            let ours = |there: &Job| owner(there) == owner(job);
            objects::create(&jobs, &c.world.jobs, job.as_ref(), ours).await.map(drop)
        }
    }
}

/// A merge patch replaces a list. So the list is the one that the API server has, with fields that this version does not know, in the
/// version of the Hardware that was planned on.
async fn allow_netboot(c: &Controller, key: &Key, hardware: &Hardware, allowed: bool) -> Result<(), Error> {
    let (named, seen) = (name(&hardware.metadata), &hardware.metadata.resource_version);
    let kind = ApiResource::erase::<Hardware>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(c.objects.client.clone(), &key.0, &kind);
    let there = call(&format!("get Hardware '{named}'"), api.get(named)).await?;
    let what = format!("patch Hardware '{named}'");
    if there.metadata.resource_version != *seen {
        return Err(Error::Conflict { what, message: "it has changed since it was read".to_owned() });
    }
    let mut interfaces = there.data["spec"]["interfaces"].clone();
    for interface in interfaces.as_array_mut().into_iter().flatten() {
        interface["netboot"]["allowPXE"] = Value::Bool(allowed);
    }
    let change = json!({
        "metadata": {"resourceVersion": seen, "uid": hardware.metadata.uid},
        "spec": {"interfaces": interfaces},
    });
    let typed = c.objects.namespaced::<Hardware>(&key.0);
    let patched = call(&what, typed.patch(named, &PatchParams::default(), &Patch::Merge(change))).await?;
    c.world.hardware.put(patched);
    tracing::info!(hardware = named, allowed, "allowPXE");
    Ok(())
}
