//! `bmctl workflow get` and `logs`: Workflows, their actions, and what the actions said. Of an environment nothing is printed: it may hold
//! what is secret.

use crate::args::Output;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::output::{list, name_of};
use crate::table::{Table, age};
use api::HardwareReport;
use api::report::AgentSession;
use api::tinkerbell::Workflow;
use api::tinkerbell::workflow::{Action, Task};
use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

/// Of the namespace that is written, else of all: Workflows are in the inventory's, and the context's is that of machines.
async fn all(cluster: &Cluster) -> Result<Vec<Workflow>, Failure> {
    let api: Api<Workflow> = match cluster.is_namespace_given {
        true => Api::namespaced(cluster.client.clone(), &cluster.namespace),
        false => Api::all(cluster.client.clone()),
    };
    let found = api.list(&ListParams::default()).await;
    Ok(found.map_err(|error| Failure::from_kube(error, "the list of Workflows", cluster.program))?.items)
}

pub async fn get(cluster: &Cluster, names: &[String], output: Option<Output>) -> Result<String, Failure> {
    let mut workflows = all(cluster).await?;
    if let Some(unknown) = names.iter().find(|name| !workflows.iter().any(|one| one.name_any() == **name)) {
        return Err(not_found(cluster, unknown));
    }
    workflows.retain(|one| names.is_empty() || names.contains(&one.name_any()));
    match output {
        Some(Output::Name) => return Ok(workflows.iter().map(|one| format!("{}\n", name_of(one))).collect()),
        Some(output @ (Output::Json | Output::Yaml)) => return Ok(list(output, &workflows)?),
        Some(Output::Wide) | None => {}
    }
    let mut text = table(&workflows, Timestamp::now());
    for one in workflows.iter().filter(|_| !names.is_empty()) {
        text.push_str(&format!("\n{}", actions(one)));
        let conditions = one.status.iter().flat_map(|status| &status.conditions);
        for condition in conditions.filter(|condition| condition.message.as_ref().is_some_and(|said| !said.is_empty()))
        {
            let said = condition.message.as_deref().unwrap_or_default();
            text.push_str(&format!("\n{} is {}: {said}\n", condition.type_, condition.status));
        }
    }
    Ok(text)
}

fn table(workflows: &[Workflow], now: Timestamp) -> String {
    let mut table = Table::new(&["NAME", "STATE", "ACTION", "HARDWARE", "TEMPLATE", "AGE"]);
    for one in workflows {
        let status = one.status.clone().unwrap_or_default();
        let created = one.creation_timestamp().map_or(0, |at| now.as_second() - at.0.as_second());
        table.row(vec![
            one.name_any(),
            status.state.unwrap_or_default(),
            status.current_state.and_then(|current| current.action_name).unwrap_or_default(),
            one.spec.hardware_ref.clone().unwrap_or_default(),
            one.spec.template_ref.clone().unwrap_or_default(),
            age(created),
        ]);
    }
    table.render()
}

fn all_actions(workflow: &Workflow) -> impl Iterator<Item = (&Task, &Action)> {
    let tasks = workflow.status.iter().flat_map(|status| &status.tasks);
    tasks.flat_map(|task| task.actions.iter().map(move |action| (task, action)))
}

fn actions(workflow: &Workflow) -> String {
    let mut table = Table::new(&["TASK", "ACTION", "STATE", "STARTED", "TOOK", "AGENT"]);
    for (task, action) in all_actions(workflow) {
        table.row(vec![
            task.name.clone(),
            action.name.clone().unwrap_or_default(),
            action.state.clone().unwrap_or_default(),
            action.execution_start.as_ref().map(|at| at.0.to_string()).unwrap_or_default(),
            action.execution_duration.clone().unwrap_or_default(),
            task.agent_id.clone(),
        ]);
    }
    table.render()
}

pub async fn logs(cluster: &Cluster, name: &str, action: Option<&str>) -> Result<String, Failure> {
    let found = all(cluster).await?.into_iter().find(|one| one.name_any() == name);
    let workflow = found.ok_or_else(|| not_found(cluster, name))?;
    if let Some(unknown) =
        action.filter(|wanted| !all_actions(&workflow).any(|(_, one)| one.name.as_deref() == Some(*wanted)))
    {
        let next = format!("{} workflow get {name}", cluster.program);
        return Err(Failure::NotFound { object: format!("action '{unknown}' of Workflow '{name}'"), next });
    }
    Ok(said(&workflow, action, session(cluster, &workflow).await?.as_ref()))
}

/// What is said on the way stands in the report of the server. `Workflow` may be read where reports may not: then nothing is added.
async fn session(cluster: &Cluster, workflow: &Workflow) -> Result<Option<AgentSession>, Failure> {
    let Some(hardware) = &workflow.spec.hardware_ref else { return Ok(None) };
    let namespace = workflow.namespace().unwrap_or_default();
    let reports: Api<HardwareReport> = Api::namespaced(cluster.client.clone(), &namespace);
    let report = match reports.get_opt(hardware).await {
        Err(kube::Error::Api(status)) if status.code == 403 => None,
        found => found.map_err(|error| Failure::from_kube(error, "its HardwareReport", cluster.program))?,
    };
    Ok(report.and_then(|report| report.status?.session).filter(|session| session.ended_at.is_none()))
}

fn said(workflow: &Workflow, wanted: Option<&str>, session: Option<&AgentSession>) -> String {
    let mut text = String::new();
    for (task, action) in all_actions(workflow) {
        let name = action.name.as_deref().unwrap_or_default();
        let state = action.state.as_deref().unwrap_or_default();
        // Nothing is known of what has not begun.
        if wanted.is_some_and(|wanted| wanted != name) || matches!(state, "" | "PENDING") {
            continue;
        }
        let took = action.execution_duration.as_deref().filter(|took| !took.is_empty());
        let took = took.map(|took| format!(", {took}")).unwrap_or_default();
        text.push_str(&format!("==> {}/{name}: {state}{took} <==\n", task.name));
        let said = action.message.as_deref().map(str::trim_end).filter(|said| !said.is_empty());
        text.extend(said.map(|said| format!("{said}\n")));
        let now = session
            .filter(|_| state == "RUNNING")
            .and_then(|session| Some((session.heard_at.0, session.doing.as_ref()?)));
        text.extend(now.map(|(at, doing)| format!("{at}: {doing}\n")));
    }
    text
}

fn not_found(cluster: &Cluster, name: &str) -> Failure {
    let next = format!("{} workflow get", cluster.program);
    Failure::NotFound { object: format!("Workflow '{name}'"), next }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn workflow() -> Workflow {
        let object = json!({
            "metadata": {"name": "install", "namespace": "inventory", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"templateRef": "debian", "hardwareRef": "s1"},
            "status": {"state": "RUNNING", "currentState": {"actionName": "image"}, "tasks": [{
                "name": "os", "agentID": "52:54:00:00:00:01", "environment": {"PASSWORD": "secret"}, "actions": [
                    {"name": "look", "state": "SUCCESS", "executionStart": "2026-01-01T00:00:10Z", "executionDuration": "0.002s", "message": "disk a\ndisk b\n"},
                    {"name": "image", "state": "RUNNING", "executionStart": "2026-01-01T00:00:12Z", "message": "running action"},
                    {"name": "restart", "state": "PENDING"},
                ],
            }]},
        });
        serde_json::from_value(object).expect("a Workflow")
    }

    #[test]
    fn a_workflow_is_a_line_and_its_actions_are_lines() {
        let now = "2026-01-01T00:01:00Z".parse().expect("a time");
        assert_eq!(
            table(&[workflow()], now),
            "NAME      STATE     ACTION   HARDWARE   TEMPLATE   AGE\ninstall   RUNNING   image    s1         debian     60s\n"
        );
        assert_eq!(
            actions(&workflow()),
            "TASK   ACTION    STATE     STARTED                TOOK     AGENT\n\
             os     look      SUCCESS   2026-01-01T00:00:10Z   0.002s   52:54:00:00:00:01\n\
             os     image     RUNNING   2026-01-01T00:00:12Z   <none>   52:54:00:00:00:01\n\
             os     restart   PENDING   <none>                 <none>   52:54:00:00:00:01\n"
        );
    }

    #[test]
    fn what_actions_said_is_printed_and_what_runs_says_where_it_is() {
        let session = json!({"key": "sha256:0", "run": "u/", "beganAt": "2026-01-01T00:00:09Z", "heardAt": "2026-01-01T00:00:40Z",
            "doing": "1024 bytes of http://images/a"});
        let session: AgentSession = serde_json::from_value(session).expect("a session");
        let running =
            "==> os/image: RUNNING <==\nrunning action\n2026-01-01T00:00:40Z: 1024 bytes of http://images/a\n";
        let look = "==> os/look: SUCCESS, 0.002s <==\ndisk a\ndisk b\n";
        assert_eq!(said(&workflow(), None, Some(&session)), format!("{look}{running}"));
        assert_eq!(said(&workflow(), Some("look"), Some(&session)), look);
        assert_eq!(said(&workflow(), Some("restart"), None), "");
    }
}
