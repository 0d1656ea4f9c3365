//! Servers whose agents have reported: their Hardware and Workflows ([`planner::enrol`]).

use crate::error::Error;
use crate::index::IndexKey;
use crate::machine::gather::servers::shares_mac;
use crate::work::Work;
use crate::{Controller, clock, objects};
use api::HardwareReport;
use api::labels::AGENT_ATTRIBUTES;
use api::tinkerbell::{Hardware, Workflow};
use kube::Resource;
use planner::enrol::{Act, Observed, plan, workflow_name};
use planner::event::Event;
use planner::meta::name;
use runtime::queue::{Key, Next};
use serde_json::json;
use std::sync::Arc;

const ROUNDS: usize = 16;

pub async fn reconcile(c: &Controller, key: &Key) -> Result<Next, Error> {
    for _ in 0..ROUNDS {
        let Some(report) = c.world.reports.get(&key.0, &key.1) else { return Ok(Next::Wait) };
        let plan = plan(&observe(c, key, report.clone()), clock::now());
        let mut quiet = true;
        if let Some(status) = plan.status {
            let updated = HardwareReport { status: Some(status), ..HardwareReport::clone(&report) };
            let api = c.objects.namespaced(&key.0);
            objects::change_status(&api, &c.world.reports, report.as_ref(), &updated).await?;
            if let (Some(told), Some(hardware)) = (&plan.tell, c.world.hardware.get(&key.0, &key.1)) {
                c.events.became(hardware.as_ref(), told);
            }
            quiet = false;
        }
        if let Some(action) = &plan.act {
            act(c, key, &report, action).await?;
            quiet = false;
        }
        if quiet {
            return Ok(Next::at(plan.wake_at));
        }
    }
    c.world.look(Work::Enrolment, key.clone());
    Ok(Next::Wait)
}

fn observe(c: &Controller, key: &Key, report: Arc<HardwareReport>) -> Observed {
    let status = report.status.clone().unwrap_or_default();
    let agent = status.agent_id.unwrap_or_default();
    let macs = status.attributes.iter().flat_map(|attributes| attributes.macs());
    let mut hardware: Vec<Arc<Hardware>> = c.world.hardware.get(&key.0, &key.1).into_iter().collect();
    for found in [agent.clone()].into_iter().chain(macs).flat_map(|id| c.world.hardware.by(&IndexKey::agent(&id))) {
        if !hardware.iter().any(|there| name(&there.metadata) == name(&found.metadata)) {
            hardware.push(found);
        }
    }
    let workflows = match c.world.hardware.get(&key.0, &key.1) {
        Some(_) => c.world.workflows.by(&IndexKey::names::<Hardware>("", &key.1)),
        None => c.world.workflows.all().into_iter().filter(|workflow| is_for(workflow, &agent)).collect(),
    };
    let enrolled = c.world.workflows.get(&key.0, &workflow_name(&agent));
    let is_listed = |own: &Arc<Workflow>| workflows.iter().any(|there| name(&there.metadata) == name(&own.metadata));
    let enrolled = enrolled.filter(|enrolled| !is_listed(enrolled));
    let own = c.world.hardware.get(&key.0, &key.1);
    Observed {
        same_mac: own.and_then(|own| shares_mac(c, &own)),
        report,
        hardware,
        rule_sets: c.world.rule_sets.all(),
        workflows: workflows.iter().cloned().chain(enrolled).collect(),
        namespace: c.inventory.clone(),
        discovers: c.discovers,
        unapproved: c.world.hardware.by(&IndexKey::Unapproved).len(),
    }
}

fn is_for(workflow: &Workflow, agent: &str) -> bool {
    workflow.status.as_ref().is_some_and(|status| status.tasks.iter().any(|task| task.agent_id == agent))
}

async fn act(c: &Controller, key: &Key, report: &HardwareReport, action: &Act) -> Result<(), Error> {
    match action {
        Act::CreateHardware(hardware) => {
            let api = c.objects.namespaced::<Hardware>(&key.0);
            let same = |there: &Hardware| there.spec.agent_id == hardware.spec.agent_id;
            let made = objects::create(&api, &c.world.hardware, hardware.as_ref(), same).await?;
            tracing::info!(hardware = name(&made.metadata), "discovered");
            let agent = hardware.spec.agent_id.as_deref().unwrap_or_default();
            c.events.became(&made, &Event::Discovered.told(format!("made of what agent '{agent}' reported")));
            Ok(())
        }
        Act::Adopt(hardware) => {
            let owner = hardware.owner_ref(&()).map(|owner| {
                json!([{
                    "apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid,
                }])
            });
            let change = json!({"metadata": {"ownerReferences": owner}});
            patch(c, key, report, change).await
        }
        Act::Annotate { name, uid, resource_version, attributes } => {
            let api = c.objects.namespaced::<Hardware>(&key.0);
            let change = json!({"metadata": {"annotations": {AGENT_ATTRIBUTES: attributes}}});
            let version = resource_version.as_deref();
            objects::patch(&api, &c.world.hardware, name, uid, version, change).await.map(drop)
        }
        Act::CreateWorkflow(workflow) => {
            let api = c.objects.namespaced::<Workflow>(&key.0);
            let owner = |workflow: &Workflow| workflow.metadata.owner_references.iter().flatten().next().cloned();
            let same = |there: &Workflow| owner(there).map(|o| o.uid) == owner(workflow).map(|o| o.uid);
            let made = objects::create(&api, &c.world.workflows, workflow.as_ref(), same).await?;
            let by = owner(workflow).map(|owner| owner.name).unwrap_or_default();
            tracing::info!(workflow = name(&made.metadata), rule_set = by, "enrolled");
            c.events.became(&made, &Event::Enrolled.told(format!("made by WorkflowRuleSet '{by}'")));
            Ok(())
        }
        Act::DeleteReport => {
            let api = c.objects.namespaced::<HardwareReport>(&key.0);
            objects::delete(&api, &c.world.reports, &report.metadata, true).await
        }
    }
}

async fn patch(c: &Controller, key: &Key, report: &HardwareReport, change: serde_json::Value) -> Result<(), Error> {
    let (api, meta) = (c.objects.namespaced::<HardwareReport>(&key.0), &report.metadata);
    let (uid, version) = (meta.uid.as_deref().unwrap_or_default(), meta.resource_version.as_deref());
    objects::patch(&api, &c.world.reports, name(meta), uid, version, change).await.map(drop)
}
