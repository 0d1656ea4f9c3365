//! Upstream's agent of today, as it is built from its module, with a real containerd that runs its actions: one Workflow to its end, and
//! one whose action fails.

use super::site::{self, ApiServer, US, until};
use super::{INVENTORY, MAC};
use api::tinkerbell::workflow::WorkflowStatus;
use api::tinkerbell::{Template, Workflow};
use kube::Api;
use kube::api::PostParams;
use sandbox::oci::{Description, write_image};
use sandbox::preflight;
use serde_json::json;
use std::process::Command;

/// In the agent's containerd before it is asked for, so that nothing is fetched.
const IMAGE: &str = "metalplane.local/action:1";
const NAMESPACE: &str = "tinkerbell";
const RUNC: &str = "runc";

/// `/run` of its own: containerd's shims have their sockets there, whatever its configuration says.
const RUN: &str = r#"
mount -t tmpfs tmpfs /run
containerd --config "$1/config.toml" > "$1/containerd.log" 2>&1 &
tries=0
until ctr --address "$1/containerd.sock" version > "$1/ctr.log" 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || { cat "$1/containerd.log"; exit 1; }
    sleep 0.1
done
ctr --address "$1/containerd.sock" --namespace "$2" images import "$1/action.tar"
exec "$3" --id="$4" --transport=grpc --grpc-server="$5" --runtime=containerd --containerd-namespace="$2" \
    --containerd-socket="$1/containerd.sock" --containerd-data-root="$1/data"
"#;

fn tasks(name: &str, last: &str) -> String {
    format!(
        "
version: '0.1'
name: {name}
global_timeout: 600
tasks:
- name: os
  worker: '{{{{.device_1}}}}'
  environment: {{EMPTY: '', MODE: 0600}}
  actions:
  - {{name: hello, image: {IMAGE}, timeout: 60, command: [--version]}}
  - {{name: world, image: {IMAGE}, timeout: 60, command: ['{last}']}}
"
    )
}

pub async fn workflow(test: &str, server: &ApiServer) {
    let parts = async {
        let (runc, _) = preflight::unpacked(RUNC, RUNC).await.map_err(|error| format!("{error:#}"))?;
        Ok::<_, String>((site::built("tinkagent")?, site::built("containerd")?, runc))
    };
    let (agent, containerd, runc) = match parts.await {
        Ok(parts) => parts,
        Err(reason) => {
            eprintln!("SKIP {test}: {reason}");
            return;
        }
    };
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path();
    // A static program that says its version, and fails where it is told what it does not know.
    let program = containerd.join("ctr");
    let described = Description { reference: IMAGE, entrypoint: &["/action"], ..Description::default() };
    write_image(&dir.join("action.tar"), described, &[(&program, "action", 0o755)]).expect("an image");
    let shown = dir.display();
    // Kubernetes asks for nothing here.
    let config = format!(
        "version = 3
root = '{shown}/root'
state = '{shown}/state'
disabled_plugins = ['io.containerd.cri.v1.images', 'io.containerd.cri.v1.runtime', 'io.containerd.grpc.v1.cri']
[grpc]
address = '{shown}/containerd.sock'
"
    );
    std::fs::write(dir.join("config.toml"), config).expect("written");

    let inherited = std::env::var("PATH").unwrap_or_default();
    let folders =
        [&containerd, &runc.parent().expect("a folder").to_owned()].map(|folder| folder.display().to_string());
    let log = dir.join("agent.log");
    let mut command = Command::new("nsenter");
    // What `ip netns exec` mounts hides the control groups, which containers are put into: whoever started us has the ones of before.
    let (outside, clients) = (std::os::unix::process::parent_id(), site::clients().expect("inside"));
    command.args([&format!("--target={outside}"), "--mount", &format!("--net=/run/netns/{clients}")]);
    command.args(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec", RUN, "sh"]);
    command.args([&*dir.to_string_lossy(), NAMESPACE, &*agent.join("agent").to_string_lossy(), MAC]);
    command.arg(format!("{US}:42113")).env("PATH", format!("{}:{inherited}", folders.join(":")));
    let _agent = site::Running::start(&mut command, &log);

    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    let status = ended(server, "current", "--version", &said).await;
    assert_eq!(status.state.as_deref(), Some("SUCCESS"), "{status:?}\n{}", said());
    let actions = &status.tasks[0].actions;
    assert!(actions.iter().all(|action| action.state.as_deref() == Some("SUCCESS")), "{actions:?}");
    assert!(actions.iter().all(|action| action.execution_start.is_some()), "it said that it began: {actions:?}");
    assert!(said().contains("ctr github.com/containerd/containerd"), "the action ran, and said so:\n{}", said());

    let status = ended(server, "current-fails", "no-such-word", &said).await;
    assert_eq!(status.state.as_deref(), Some("FAILED"), "{status:?}\n{}", said());
    let states: Vec<_> = status.tasks[0].actions.iter().map(|action| action.state.as_deref()).collect();
    assert_eq!(states, [Some("SUCCESS"), Some("FAILED")], "{status:?}");
}

/// A Workflow of that name, whose last action is told `last`, when it has ended.
async fn ended(server: &ApiServer, name: &str, last: &str, said: &impl Fn() -> String) -> WorkflowStatus {
    let templates: Api<Template> = Api::namespaced(server.admin.clone(), INVENTORY);
    let template = json!({"metadata": {"name": name}, "spec": {"data": tasks(name, last)}});
    let template: Template = serde_json::from_value(template).expect("a Template");
    templates.create(&PostParams::default(), &template).await.expect("created");
    let workflows: Api<Workflow> = Api::namespaced(server.admin.clone(), INVENTORY);
    let object = json!({"metadata": {"name": name}, "spec": {
        "templateRef": name, "hardwareRef": "s1", "hardwareMap": {"device_1": MAC}}});
    let object: Workflow = serde_json::from_value(object).expect("a Workflow");
    workflows.create(&PostParams::default(), &object).await.expect("created");
    until("the agent has ended the Workflow", async || {
        let status = workflows.get(name).await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        let done = matches!(status.state.as_deref(), Some("SUCCESS" | "FAILED" | "TIMEOUT"));
        let shown = serde_json::to_string(&status).unwrap_or_default();
        if done { Ok(status) } else { Err(format!("{shown}\n{}", said())) }
    })
    .await
}
