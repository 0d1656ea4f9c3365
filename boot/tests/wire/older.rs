//! Upstream's own worker of the older generation, tink v0.12.2's virtual-worker, which says that it ran its actions and runs none.

use super::site::{self, ApiServer, US, client, until};
use super::{INVENTORY, MAC};
use api::tinkerbell::{Template, Workflow};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

const TASKS: &str = "
version: '0.1'
name: older
global_timeout: 600
tasks:
- name: os
  worker: {{.device_1}}
  actions: [{name: hello, image: hello, timeout: 60}, {name: world, image: world}]
";

pub async fn workflow(test: &str, server: &ApiServer) {
    let worker = match site::built("tink") {
        Ok(folder) => folder.join("virtual-worker").display().to_string(),
        Err(reason) => {
            eprintln!("SKIP {test}: {reason}");
            return;
        }
    };
    let templates: Api<Template> = Api::namespaced(server.admin.clone(), INVENTORY);
    let template = json!({"metadata": {"name": "older"}, "spec": {"data": TASKS}});
    let template: Template = serde_json::from_value(template).expect("a Template");
    templates.create(&PostParams::default(), &template).await.expect("created");
    let workflows: Api<Workflow> = Api::namespaced(server.admin.clone(), INVENTORY);
    let object = json!({"metadata": {"name": "older"}, "spec": {
        "templateRef": "older", "hardwareRef": "s1", "hardwareMap": {"device_1": MAC}}});
    let object: Workflow = serde_json::from_value(object).expect("a Workflow");
    workflows.create(&PostParams::default(), &object).await.expect("created");
    let (authority, id) = (format!("TINKERBELL_GRPC_AUTHORITY={US}:42113"), format!("--id={MAC}"));
    let words = [
        "env",
        &authority,
        "TINKERBELL_TLS=false",
        &worker,
        &id,
        "--sleep-min=100ms",
        "--sleep-jitter=10ms",
        "--retry-interval=500ms",
    ];
    let succeeded = until("the worker has run the Workflow", async || {
        let status = workflows.get("older").await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        let done = status.state.as_deref() == Some("SUCCESS");
        if done { Ok(status) } else { Err(serde_json::to_string(&status).unwrap_or_default()) }
    });
    let status = tokio::select! {
        biased;
        status = succeeded => status,
        ended = client(&words) => panic!("virtual-worker ended: {ended:?}"),
    };
    let actions = &status.tasks[0].actions;
    assert!(actions.iter().all(|action| action.state.as_deref() == Some("SUCCESS")), "{actions:?}");
    assert!(actions.iter().all(|action| action.execution_start.is_some()), "it said that it began: {actions:?}");
}
