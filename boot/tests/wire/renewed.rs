//! Certificates and tokens of the cluster are renewed while a server is being installed: the API server comes back with another certificate
//! of its authority, and no longer knows the token that the service began with. Before that, what that account may not do.

use super::site::{ApiServer, US, until};
use super::{Agent, INVENTORY, MAC};
use api::tinkerbell::{Hardware, Workflow};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use proto::tink::action_status_request::StateType;
use proto::tink::workflow_service_client::WorkflowServiceClient;
use serde_json::{Value, json};
use std::fmt::Debug;

/// With the kubeconfig that the service has: the rights are the chart's.
pub async fn has_few_rights(site: &ApiServer) {
    site.apply(&[json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s1-bmc", "namespace": INVENTORY},
        "stringData": {"username": "admin", "password": "correct-horse"}})])
        .await;
    let kubeconfig = Kubeconfig::read_from(&site.of_a_pod).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("a config");
    let client = Client::try_from(config).expect("a client");
    let secrets: Api<Secret> = Api::namespaced(client.clone(), INVENTORY);
    forbidden("the password of a BMC is read", secrets.get("s1-bmc").await);
    forbidden("Secrets are listed", secrets.list(&ListParams::default()).await);
    let hardware: Api<Hardware> = Api::namespaced(client.clone(), INVENTORY);
    hardware.get("s1").await.expect("what is served is read");
    let (params, change) = (PatchParams::default(), |value: Value| Patch::Merge(value));
    let claim = json!({"metadata": {"annotations": {"metalplane.io/claimed-by": "me"}}});
    forbidden("a server is claimed", hardware.patch("s1", &params, &change(claim)).await);
    let spec = json!({"spec": {"userData": "mine"}});
    forbidden("a Hardware is changed", hardware.patch("s1", &params, &change(spec)).await);
    let status = json!({"status": {"state": "x"}});
    forbidden("its status too", hardware.patch_status("s1", &params, &change(status)).await);
    let workflows: Api<Workflow> = Api::namespaced(client, INVENTORY);
    let object = json!({"metadata": {"name": "mine"}, "spec": {"templateRef": "t", "hardwareRef": "s1"}});
    let object: Workflow = serde_json::from_value(object).expect("a Workflow");
    forbidden("a Workflow is made", workflows.create(&PostParams::default(), &object).await);
}

fn forbidden<T: Debug>(what: &str, done: kube::Result<T>) {
    match done {
        Err(kube::Error::Api(status)) => assert_eq!(status.code, 403, "{what}: {status:?}"),
        other => panic!("{what}: {other:?}"),
    }
}

pub async fn workflow(site: &mut ApiServer) {
    let workflows: Api<Workflow> = Api::namespaced(site.admin.clone(), INVENTORY);
    let object = json!({"metadata": {"name": "renewed"}, "spec": {
        "templateRef": "t", "hardwareRef": "s1", "hardwareMap": {"device_1": MAC}}});
    let object: Workflow = serde_json::from_value(object).expect("a Workflow");
    workflows.create(&PostParams::default(), &object).await.expect("created");
    let channel = WorkflowServiceClient::connect(format!("http://{US}:42113")).await.expect("connected");
    let mut agent = Agent(channel);
    let first = agent.next().await.expect("an action");
    assert_eq!((first.name(), first.workflow_id.as_deref()), ("image", Some("inventory/renewed")));
    agent.say(MAC, &first, StateType::Running).await.expect("acknowledged");

    site.renew_certificates().await;
    // As agents do: what cannot be taken yet is said again.
    until("what the agent has done is on record", async || {
        agent.say(MAC, &first, StateType::Success).await.map_err(|error| error.to_string())
    })
    .await;
    let second = agent.next().await.expect("the next action");
    assert_eq!(second.name(), "reboot");
    agent.say(MAC, &second, StateType::Success).await.expect("acknowledged");
    let status = workflows.get("renewed").await.expect("read").status.unwrap_or_default();
    assert_eq!(status.state.as_deref(), Some("SUCCESS"), "{:?}", status.conditions);
    // What it is told by watches, too: they were begun with the earlier token.
    let change = json!({"metadata": {"annotations": {"metalplane.io/claimed-by": "somebody"}}});
    let hardware: Api<Hardware> = Api::namespaced(site.admin.clone(), INVENTORY);
    let claim = async |by: Value| {
        let mut change = change.clone();
        change["metadata"]["annotations"]["metalplane.io/claimed-by"] = by;
        hardware.patch("s1", &PatchParams::default(), &Patch::Merge(change)).await.expect("patched");
    };
    let script = async || {
        let done = super::client(&["curl", "-s", &format!("http://{US}:7080/ipxe/script/{MAC}/auto.ipxe")]).await;
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    for (by, told) in [(json!("somebody"), "is claimed by"), (Value::Null, "#!ipxe")] {
        claim(by).await;
        until("it knows of the claim", async || {
            let text = script().await;
            if text.contains(told) { Ok(()) } else { Err(text) }
        })
        .await;
    }
}
