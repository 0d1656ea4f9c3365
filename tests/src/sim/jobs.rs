//! Tinkerbell's Jobs, and a Workflow that boots by one: on a server that no machine has, until one claims it.

use super::Simulation;
use super::bare::{TEMPLATES, WORKFLOWS};
use super::boot::IMAGE;
use super::life::{MACHINES, condition, is_clean, machine, runs};
use super::netboot::{HARDWARE, Servers, interfaces, mac};
use super::secrets;
use super::simulation::{INVENTORY, USER};
use planner::host::{Lack, MediaUrl, Medium, PowerAction, PowerState};
use serde_json::{Value, json};

pub const JOBS: &str = "bmc.tinkerbell.org/jobs";
const TASKS: &str = "bmc.tinkerbell.org/tasks";
const BMCS: &str = "bmc.tinkerbell.org/machines";
const TEXT: &str = r#"
name: look
tasks:
  - name: look
    worker: "{{.device_1}}"
    actions:
      - {name: inspect, image: inspect, timeout: 300}
      - {name: restart, image: reboot, timeout: 60}
"#;

pub fn job(name: &str, tasks: &Value) -> Value {
    json!({"apiVersion": "bmc.tinkerbell.org/v1alpha1", "kind": "Job", "metadata": {"name": name},
        "spec": {"machineRef": {"name": "server-1", "namespace": INVENTORY}, "tasks": tasks}})
}

fn says(object: &Value, type_: &str) -> bool {
    condition(object, type_) == "True"
}

fn is_over(s: &Simulation, name: &str) -> bool {
    let job = s.scene.server.get(JOBS, INVENTORY, name).unwrap_or_default();
    says(&job, "Completed") || says(&job, "Failed")
}

fn resets(s: &Simulation) -> usize {
    s.scene.hosts[0].actions().iter().filter(|action| **action == PowerAction::WarmReset).count()
}

fn wrong(s: &Simulation, what: &str) -> Result<(), String> {
    Err(format!("{what}\n{}", s.story()))
}

pub async fn life(s: &Simulation) -> Result<(), String> {
    let _servers = Servers::start(&s.scene, 1);
    lives(s).await?;
    secrets::stay(s)
}

async fn lives(s: &Simulation) -> Result<(), String> {
    let power = |s: &Simulation| s.scene.server.get(BMCS, INVENTORY, "server-1").unwrap_or_default()["status"].clone();
    s.until("its BMC is known to answer", |s| {
        says(&json!({"status": power(s)}), "Contactable") && power(s)["powerState"] == "off"
    })
    .await?;
    workflows(s).await?;
    s.until("the Machine says that the host is on", |s| power(s)["powerState"] == "on").await?;

    s.create(JOBS, INVENTORY, job("turn", &json!([{"powerAction": "cycle"}, {"powerAction": "reset"}])));
    s.until("the Job has begun", |s| s.scene.server.get(TASKS, INVENTORY, "turn-task-0").is_some()).await?;
    s.create(MACHINES, USER, machine("bm-01", 7));
    s.until("the Job has ended", |s| is_over(s, "turn")).await?;
    if resets(s) > 1 {
        return wrong(s, "one reset was asked for");
    }
    s.until("the machine has the server", |s| runs(s, "bm-01")).await?;

    s.create(JOBS, INVENTORY, job("late", &json!([{"powerAction": "off"}])));
    s.until("the Job has ended", |s| is_over(s, "late")).await?;
    let late = s.scene.server.get(JOBS, INVENTORY, "late").unwrap_or_default();
    if !says(&late, "Failed") || !late["status"].to_string().contains("claimed by BareMetalMachine") {
        return wrong(s, "a Job went on at a claimed server");
    }
    if s.scene.hosts[0].power() != PowerState::On {
        return wrong(s, "a Job has switched a machine's server off");
    }
    s.delete(MACHINES, USER, "bm-01");
    for name in ["turn", "late"] {
        s.delete(JOBS, INVENTORY, name);
    }
    s.until("nothing is left", is_clean).await
}

/// Workflows that bring their server to boot by Jobs: from the network, and from a virtual medium.
async fn workflows(s: &Simulation) -> Result<(), String> {
    prepare(s);
    let host = &s.scene.hosts[0];
    workflow(s, "netboot", &json!({"bootMode": "netboot", "toggleAllowNetboot": true}), &Medium::Ejected).await?;
    let server = s.scene.server.get(HARDWARE, INVENTORY, "server-1").unwrap_or_default();
    if server["spec"]["interfaces"][0]["netboot"]["allowPXE"] != false {
        return wrong(s, "allowPXE was not set back");
    }
    let inserted = Medium::Inserted(MediaUrl::parse(IMAGE));
    workflow(s, "isoboot", &json!({"bootMode": "isoboot", "isoURL": IMAGE, "toggleAllowNetboot": true}), &inserted)
        .await?;
    if host.medium() != Medium::Ejected {
        return wrong(s, "the medium was not ejected");
    }
    Ok(())
}

/// A Workflow that boots its server from a virtual medium, where the BMC has no drive: it fails, and says why.
pub async fn without_a_drive(s: &Simulation) -> Result<(), String> {
    let _servers = Servers::start(&s.scene, 1);
    s.scene.hosts[0].lacks(&[Lack::VirtualMedia]);
    prepare(s);
    create(s, "isoboot", &json!({"bootMode": "isoboot", "isoURL": IMAGE, "toggleAllowNetboot": true}));
    let status =
        |s: &Simulation| s.scene.server.get(WORKFLOWS, INVENTORY, "isoboot").unwrap_or_default()["status"].clone();
    s.until("the Workflow has failed", |s| status(s)["state"] == "FAILED").await?;
    if !status(s)["conditions"].to_string().contains("BootJobFailed") {
        return wrong(s, &format!("it does not say why: {}", status(s)));
    }
    secrets::stay(s)
}

/// A Template, and the server that its Workflows are for.
pub fn prepare(s: &Simulation) {
    s.change(HARDWARE, INVENTORY, "server-1", |server| {
        server["spec"]["interfaces"] = interfaces(0);
        server["spec"]["interfaces"][0]["netboot"] = json!({"allowPXE": false});
    });
    let template = json!({"apiVersion": "tinkerbell.org/v1alpha1", "kind": "Template",
        "metadata": {"name": "look"}, "spec": {"data": TEXT}});
    s.create(TEMPLATES, INVENTORY, template);
}

/// A Workflow of that Template, for that server.
pub fn create(s: &Simulation, called: &str, options: &Value) {
    let workflow = json!({"apiVersion": "tinkerbell.org/v1alpha1", "kind": "Workflow", "metadata": {"name": called},
        "spec": {"templateRef": "look", "hardwareRef": "server-1", "hardwareMap": {"device_1": mac(0)},
            "bootOptions": options}});
    s.create(WORKFLOWS, INVENTORY, workflow);
}

/// `medium`: what is in the virtual drive while the Workflow's actions run.
async fn workflow(s: &Simulation, called: &str, options: &Value, medium: &Medium) -> Result<(), String> {
    let host = &s.scene.hosts[0];
    let starts = || host.actions().iter().filter(|action| **action == PowerAction::On).count();
    let before = starts();
    create(s, called, options);
    let state = |s: &Simulation| {
        let workflow = s.scene.server.get(WORKFLOWS, INVENTORY, called).unwrap_or_default();
        workflow["status"]["state"].as_str().unwrap_or_default().to_owned()
    };
    s.until("the Workflow prepares its server", |s| state(s) == "PREPARING").await?;
    let reached = |s: &Simulation, wanted: &str| state(s) == wanted || state(s) == "FAILED";
    s.until("the Workflow runs", |s| reached(s, "RUNNING")).await?;
    if host.medium() != *medium {
        return wrong(s, &format!("the Workflow '{called}' runs with {}", host.medium()));
    }
    s.until("the Workflow has ended", |s| reached(s, "SUCCESS")).await?;
    if state(s) != "SUCCESS" {
        return wrong(s, &format!("the Workflow '{called}' has failed"));
    }
    if starts() != before + 1 {
        return wrong(s, "the host was started more than once");
    }
    // Its Jobs go with it.
    s.delete(WORKFLOWS, INVENTORY, called);
    Ok(())
}
