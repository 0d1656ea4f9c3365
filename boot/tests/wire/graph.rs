//! A Workflow of two agents whose tasks run side by side, with an action that fails once.

use super::site::{ApiServer, US, until};
use super::{Agent, INVENTORY, MAC};
use api::tinkerbell::{Template, Workflow};
use kube::Api;
use kube::api::PostParams;
use proto::tink::action_status_request::StateType;
use proto::tink::workflow_service_client::WorkflowServiceClient;
use serde_json::json;

const OTHER: &str = "52:54:00:88:00:77";
const TASKS: &str = "
version: '0.1'
name: graph
global_timeout: 600
tasks:
- {name: after, worker: '{{.device_1}}', depends-on: [root, beside], actions: [{name: last, image: a}]}
- {name: root, worker: '{{.device_1}}', retries: 1, retry-seconds: 2, actions: [{name: fails once, image: a}]}
- {name: beside, worker: '52:54:00:88:00:77', actions: [{name: side, image: a}]}
";

pub async fn workflow(site: &ApiServer) {
    let templates: Api<Template> = Api::namespaced(site.admin.clone(), INVENTORY);
    let template = json!({"metadata": {"name": "graph"}, "spec": {"data": TASKS}});
    let template: Template = serde_json::from_value(template).expect("a Template");
    templates.create(&PostParams::default(), &template).await.expect("created");
    let workflows: Api<Workflow> = Api::namespaced(site.admin.clone(), INVENTORY);
    let object = json!({"metadata": {"name": "graph"}, "spec": {
        "templateRef": "graph", "hardwareRef": "s1", "hardwareMap": {"device_1": MAC}}});
    let object: Workflow = serde_json::from_value(object).expect("a Workflow");
    workflows.create(&PostParams::default(), &object).await.expect("created");
    let status = async || workflows.get("graph").await.expect("read").status.unwrap_or_default();
    until("it is rendered", async || {
        let status = status().await;
        let is_pending = status.state.as_deref() == Some("PENDING");
        if is_pending { Ok(()) } else { Err(serde_json::to_string(&status).unwrap_or_default()) }
    })
    .await;
    let reason = async |type_: &str| {
        status().await.conditions.into_iter().find(|condition| condition.type_ == type_).and_then(|found| found.reason)
    };

    let channel = WorkflowServiceClient::connect(format!("http://{US}:42113")).await.expect("connected");
    let (mut one, mut other) = (Agent(channel.clone()), Agent(channel));
    let first = one.next().await.expect("an action");
    one.say(MAC, &first, StateType::Running).await.expect("acknowledged");
    let side = other.next_of(OTHER).await.expect("an action, while another agent has one");
    assert_eq!((first.name(), side.name()), ("fails once", "side"));
    other.say(OTHER, &side, StateType::Running).await.expect("acknowledged");

    one.say(MAC, &first, StateType::Failed).await.expect("acknowledged");
    assert_eq!(reason("ActionRetried").await.as_deref(), Some("BackOff"));
    let since = std::time::Instant::now();
    let again = one.next().await.expect("it waits, and is served again");
    // The status has whole seconds.
    assert!(since.elapsed().as_millis() >= 1_000, "{:?}", since.elapsed());
    assert_eq!((again.name(), again.action_id()), ("fails once", format!("{}-2", first.action_id()).as_str()));
    assert_eq!(reason("ActionRetried").await.as_deref(), Some("ServedTwice"));
    one.say(MAC, &first, StateType::Failed).await.expect("a late report is acknowledged");
    one.say(MAC, &again, StateType::Running).await.expect("acknowledged");
    one.say(MAC, &again, StateType::Success).await.expect("acknowledged");

    let waiting = tokio::spawn(async move { (one.next().await, one) });
    other.say(OTHER, &side, StateType::Success).await.expect("acknowledged");
    let (last, mut one) = waiting.await.expect("it ran");
    let last = last.expect("the action that waited for both");
    assert_eq!(last.name(), "last");
    one.say(MAC, &last, StateType::Success).await.expect("acknowledged");
    let status = status().await;
    assert_eq!(status.state.as_deref(), Some("SUCCESS"), "{status:?}");
}
