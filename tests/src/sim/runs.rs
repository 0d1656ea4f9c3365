//! Workflows on servers that no machine has: several at once, one behind the other; and what becomes of one whose Template or Hardware goes.

use super::Simulation;
use super::bare::{TEMPLATES, WORKFLOWS};
use super::jobs::JOBS;
use super::life::is_unclaimed;
use super::netboot::{HARDWARE, Servers, interfaces, mac};
use super::secrets;
use super::simulation::INVENTORY;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Its agent stays in the installer, and asks for more.
const TEXT: &str = r#"
name: look
global_timeout: 1800
tasks:
  - name: look
    worker: "{{.device_1}}"
    actions:
      - {name: first, image: inspect, timeout: 60}
      - {name: second, image: inspect, timeout: 60}
"#;
/// No installer of the simulation has this action: a run that took it would fail.
const OTHER: &str = r#"{name: other, tasks: [{name: other, worker: "{{.device_1}}", actions: [{name: other, image: other, timeout: 60}]}]}"#;
/// Until a Workflow is older than another one, as the API server dates them.
const OLDER: Duration = Duration::from_secs(1);
/// Then one of the ends.
const STATES: [&str; 4] = ["PREPARING", "PENDING", "RUNNING", "POST"];
const ENDS: [&str; 3] = ["SUCCESS", "FAILED", "TIMEOUT"];

/// The first servers may boot the installer, and there is a Template.
fn prepare(s: &Simulation, servers: usize) {
    for (number, host) in s.scene.hosts.iter().enumerate().take(servers) {
        s.change(HARDWARE, INVENTORY, &host.name, |server| {
            server["spec"]["interfaces"] = interfaces(number);
            server["spec"]["interfaces"][0]["netboot"] = json!({"allowPXE": true});
        });
    }
    let template = json!({"apiVersion": "tinkerbell.org/v1alpha1", "kind": "Template",
        "metadata": {"name": "look"}, "spec": {"data": TEXT}});
    s.create(TEMPLATES, INVENTORY, template);
}

/// `boots`: its server is started into the installer for it.
fn create(s: &Simulation, called: &str, number: usize, boots: bool) {
    let options = if boots { json!({"bootMode": "netboot"}) } else { json!({}) };
    let workflow = json!({"apiVersion": "tinkerbell.org/v1alpha1", "kind": "Workflow", "metadata": {"name": called},
        "spec": {"templateRef": "look", "hardwareRef": s.scene.hosts[number].name,
            "hardwareMap": {"device_1": mac(number)}, "bootOptions": options}});
    s.create(WORKFLOWS, INVENTORY, workflow);
}

fn get(s: &Simulation, called: &str) -> Arc<Value> {
    s.scene.server.get(WORKFLOWS, INVENTORY, called).unwrap_or_default()
}

pub fn state(workflow: &Value) -> &str {
    workflow["status"]["state"].as_str().unwrap_or_default()
}

fn is_over(s: &Simulation, called: &str) -> bool {
    ENDS.contains(&state(&get(s, called)))
}

fn wrong(s: &Simulation, what: &str) -> Result<(), String> {
    let all = s.scene.server.list(WORKFLOWS);
    let all: Vec<String> =
        all.iter().map(|workflow| format!("{} {}", workflow["metadata"]["name"], workflow["status"])).collect();
    Err(format!("{what}\n{}\n{}", all.join("\n"), s.story()))
}

/// Two Workflows of one server, the second behind the first, and one of another server.
pub async fn life(s: &Simulation) -> Result<(), String> {
    let _servers = Servers::start(&s.scene, 2);
    lives(s, &|workflow| state(workflow) == "SUCCESS").await
}

/// The same where something befalls the first server, or everybody, once `reached` is so. A run that it ends says what has failed; whoever is behind
/// that run has its turn all the same.
pub async fn life_befallen(
    s: &Simulation,
    befalls: impl AsyncFn(&Simulation),
    reached: impl Fn() -> bool,
) -> Result<(), String> {
    let _servers = Servers::start(&s.scene, 2);
    let fate = async {
        while !reached() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        befalls(s).await;
        std::future::pending().await
    };
    tokio::select! {
        biased;
        lived = lives(s, &|workflow| state(workflow) == "SUCCESS" || says_why(workflow)) => lived,
        () = fate => Ok(()),
    }
}

fn says_why(workflow: &Value) -> bool {
    let all = workflow["status"]["conditions"].as_array().into_iter().flatten();
    all.filter(|said| {
        ["WorkflowFailed", "BootJobFailed", "BootJobSetupFailed"].iter().any(|type_| said["type"] == *type_)
    })
    .any(|said| said["message"].as_str().is_some_and(|message| !message.is_empty()))
}

async fn lives(s: &Simulation, ends_well: &dyn Fn(&Value) -> bool) -> Result<(), String> {
    prepare(s, 2);
    create(s, "first", 0, true);
    create(s, "other", 1, true);
    tokio::time::sleep(OLDER).await;
    create(s, "second", 0, true);
    s.until("the second one says what is before it", |s| {
        let second = get(s, "second");
        let all = second["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let names = |c: &&Value| c["message"].as_str().is_some_and(|message| message.contains("Workflow 'first'"));
        all.iter().filter(|c| c["type"] == "Queued").any(|c| names(&c)) || is_over(s, "second")
    })
    .await?;
    let all = ["first", "second", "other"];
    s.until("all have ended", |s| all.iter().all(|called| is_over(s, called))).await?;
    if let Some(called) = all.iter().find(|called| !ends_well(&get(s, called))) {
        return wrong(s, &format!("Workflow '{called}' has failed"));
    }
    one_after_the_other(s)?;
    for called in all {
        s.delete(WORKFLOWS, INVENTORY, called);
    }
    s.until("nothing is left", |s| {
        s.scene.server.list(JOBS).is_empty() && s.scene.server.list(HARDWARE).iter().all(|server| is_unclaimed(server))
    })
    .await?;
    secrets::stay(s)
}

/// No action of a server's second Workflow began before its first one had ended, and no state came back.
fn one_after_the_other(s: &Simulation) -> Result<(), String> {
    let mut states = BTreeMap::<String, Vec<String>>::new();
    let log = s.scene.server.store().log.clone();
    for event in log.iter().filter(|event| event.id.resource == WORKFLOWS) {
        let seen = states.entry(event.id.name.clone()).or_default();
        let now = state(&event.object).to_owned();
        if !now.is_empty() && seen.last() != Some(&now) {
            seen.push(now);
        }
        let has_begun = event.object["status"]["currentState"]["state"] == "RUNNING";
        let first = states.get("first").and_then(|states| states.last()).map(String::as_str);
        if event.id.name == "second"
            && has_begun
            && !first.is_some_and(|state| state == "POST" || ENDS.contains(&state))
        {
            return wrong(s, &format!("the second Workflow ran while the first was {first:?}"));
        }
    }
    for (called, states) in states {
        // One end is as good as another, and stays.
        let place = |state: &String| {
            STATES.iter().position(|known| known == state).or(ENDS.contains(&state.as_str()).then_some(STATES.len()))
        };
        let order: Vec<_> = states.iter().map(place).collect();
        let ends = states.iter().filter(|state| ENDS.contains(&state.as_str())).count();
        if !order.is_sorted() || order.contains(&None) || ends > 1 {
            return wrong(s, &format!("Workflow '{called}' was {states:?}"));
        }
    }
    Ok(())
}

/// Every Template, a user's and each copy, has another text or is deleted.
pub fn change_templates(s: &Simulation, is_deleted: bool) {
    for template in s.scene.server.list(TEMPLATES) {
        let text = |key: &str| template["metadata"][key].as_str().unwrap_or_default().to_owned();
        match is_deleted {
            true => s.delete(TEMPLATES, &text("namespace"), &text("name")),
            false => {
                s.change(TEMPLATES, &text("namespace"), &text("name"), |there| there["spec"]["data"] = json!(OTHER))
            }
        }
    }
}

/// What was rendered: of each action its name and image.
fn rendered(workflow: &Value) -> Vec<(Value, Value)> {
    let tasks = workflow["status"]["tasks"].as_array().into_iter().flatten();
    let actions = tasks.flat_map(|task| task["actions"].as_array().into_iter().flatten());
    actions.map(|action| (action["name"].clone(), action["image"].clone())).collect()
}

/// The Template of a Workflow is changed once that is rendered and `reached` is so: the run keeps its rendering. The next one has the new one.
pub async fn template_changes(s: &Simulation, is_deleted: bool, reached: impl Fn() -> bool) -> Result<(), String> {
    let _servers = Servers::start(&s.scene, 1);
    prepare(s, 1);
    create(s, "run", 0, true);
    s.until("it is so far", |s| !rendered(&get(s, "run")).is_empty() && (reached() || is_over(s, "run"))).await?;
    let before = rendered(&get(s, "run"));
    change_templates(s, is_deleted);
    s.until("the run has ended", |s| is_over(s, "run")).await?;
    let run = get(s, "run");
    if state(&run) != "SUCCESS" || rendered(&run) != before {
        return wrong(s, "a run changed with its Template");
    }
    create(s, "next", 0, false);
    let is_told = |s: &Simulation| match is_deleted {
        true => get(s, "next")["status"].to_string().contains("Template 'look' does not exist"),
        false => rendered(&get(s, "next")).iter().any(|(name, _)| name == "other"),
    };
    s.until("the next one has what there is now", is_told).await
}

/// The Hardware of a Workflow is deleted once the Workflow is in that state. It ends, says why, and its server is let alone; made again,
/// the Hardware has the next Workflow.
pub async fn hardware_goes(s: &Simulation, once: &str, ends: (&str, &str)) -> Result<(), String> {
    let _servers = Servers::start(&s.scene, 1);
    prepare(s, 1);
    create(s, "run", 0, true);
    s.until("it is so far", |s| state(&get(s, "run")) == once).await?;
    let host = &s.scene.hosts[0];
    let mut server = Value::clone(&s.scene.server.get(HARDWARE, INVENTORY, &host.name).unwrap_or_default());
    s.delete(HARDWARE, INVENTORY, &host.name);
    let (state_at_end, why) = ends;
    s.until("the run has ended", |s| is_over(s, "run")).await?;
    let run = get(s, "run");
    if state(&run) != state_at_end || !run["status"]["conditions"].to_string().contains(why) {
        return wrong(s, &format!("not {state_at_end} with {why}"));
    }
    let actions = host.actions();
    tokio::time::sleep(Duration::from_mins(10)).await;
    if host.actions() != actions {
        return wrong(s, "power actions for a server that is in no inventory");
    }
    server["metadata"] = json!({"name": host.name});
    s.create(HARDWARE, INVENTORY, server);
    create(s, "next", 0, true);
    s.until("the next one has ended", |s| is_over(s, "next")).await?;
    match state(&get(s, "next")) {
        "SUCCESS" => Ok(()),
        _ => wrong(s, "the next Workflow has failed"),
    }
}
