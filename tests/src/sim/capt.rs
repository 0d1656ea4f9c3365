//! Cluster API's provider for Tinkerbell (CAPT, as of v0.7.0): what its controller for TinkerbellMachines writes, in its order, what it reads, and the
//! words that it waits for. Of CAPT itself nothing runs here.
//!
//! | | |
//! |---|---|
//! | takes a Hardware | labels of the owner, a finalizer, `spec.userData`; reads `spec.disks[0]`, the first interface's address, `spec.metadata.instance.id` |
//! | provisions | a Template with its own text, a Workflow of the same name: `device_1` is the instance's identifier, `toggleAllowNetboot`, with a `bmcRef` the boot mode |
//! | waits | `status.state`: PREPARING, PENDING, RUNNING and POST go on; SUCCESS, FAILED and TIMEOUT end; anything else goes on for ever |
//! | is done | the annotation of a provisioned Hardware |
//! | deletes | Template, Workflow, a Job that powers off and has to be Completed, then label, annotation and finalizer |

use super::Simulation;
use super::bare::{TEMPLATES, WORKFLOWS};
use super::boot::IMAGE;
use super::host::HostBmc;
use super::jobs::JOBS;
use super::life::{MACHINES, condition, is_unclaimed};
use super::netboot::{HARDWARE, OCI2DISK, Servers, WAITDAEMON, WRITEFILE, interfaces, mac};
use super::runs::state;
use super::simulation::{INVENTORY, USER};
use planner::host::{Medium, PowerAction, PowerState};
use ports::Bmc;
use serde_json::{Value, json};
use std::sync::Arc;

/// Of the TinkerbellMachine; Template and Workflow are named like it.
const MACHINE: &str = "cluster-1-control-plane-x7k2p";
/// The namespace of the TinkerbellMachine, which is not that of the inventory.
const TEAM: &str = "capi-team";
const FINALIZER: &str = "infrastructure.cluster.x-k8s.io/tinkerbellmachine";
const OWNER_NAME: &str = "v1alpha1.tinkerbell.org/ownerName";
const OWNER_NAMESPACE: &str = "v1alpha1.tinkerbell.org/ownerNamespace";
const PROVISIONED: &str = "v1alpha1.tinkerbell.org/provisioned";
const SERVER: &str = "server-1";

/// The kinds of its default template: scalars without quotes, a block of text, a worker that is rendered again.
fn text() -> String {
    format!(
        r#"
version: "0.1"
name: {MACHINE}
global_timeout: 6000
tasks:
  - name: "{MACHINE}"
    worker: "{{{{.device_1}}}}"
    volumes:
      - /dev:/dev
      - /dev/console:/dev/console
      - /lib/firmware:/lib/firmware:ro
    actions:
      - name: "image"
        image: {OCI2DISK}
        timeout: 600
        environment:
          IMG_URL: ghcr.io/tinkerbell/cluster-api-provider-tinkerbell/ubuntu-2204:v1.33.0.gz
          DEST_DISK: /dev/vda
          COMPRESSED: true
      - name: "cloud-init"
        image: {WRITEFILE}
        timeout: 90
        environment:
          DEST_DISK: /dev/vda1
          FS_TYPE: ext4
          DEST_PATH: /etc/cloud/cloud.cfg.d/10_tinkerbell.cfg
          UID: 0
          GID: 0
          MODE: 0600
          DIRMODE: 0700
          CONTENTS: |
            datasource:
              Ec2:
                metadata_urls: ["http://10.88.0.1:7080"]
                strict_id: false
      - name: "start"
        image: {WAITDAEMON}
        timeout: 90
        pid: host
        environment:
          BLOCK_DEVICE: /dev/vda1
          FS_TYPE: ext4
          IMAGE: quay.io/tinkerbell/actions/kexec
          WAIT_SECONDS: 5
        volumes:
          - /var/run/docker.sock:/var/run/docker.sock
"#
    )
}

fn wrong(s: &Simulation, what: &str) -> Result<(), String> {
    Err(format!("{what}\n{}", s.story()))
}

fn hardware(s: &Simulation) -> Arc<Value> {
    s.scene.server.get(HARDWARE, INVENTORY, SERVER).unwrap_or_default()
}

/// How far its last boot came.
fn heard(s: &Simulation) -> String {
    let report = s.scene.server.get("metalplane.io/hardwarereports", INVENTORY, SERVER).unwrap_or_default();
    report["status"]["netboot"]["stage"].as_str().unwrap_or_default().to_owned()
}

fn workflow(s: &Simulation) -> Arc<Value> {
    s.scene.server.get(WORKFLOWS, INVENTORY, MACHINE).unwrap_or_default()
}

/// On all that CAPT makes; without an owner reference, which does not lead into another namespace.
fn meta(name: &str) -> Value {
    json!({"name": name,
        "labels": {"capt.tinkerbell.org/machine-name": MACHINE, "capt.tinkerbell.org/machine-namespace": TEAM}})
}

/// A TinkerbellMachine with this boot mode is provisioned, and deleted.
pub async fn life(s: &Simulation, mode: Option<&str>) -> Result<(), String> {
    let _servers = Servers::start(&s.scene, 1);
    register(s);
    take(s);
    provision(s, mode);
    if mode.is_none() {
        // Somebody does what no Job does here.
        s.until("the server may boot the installer", |s| state(&workflow(s)) == "PENDING").await?;
        HostBmc(s.scene.hosts[0].clone()).power(PowerAction::On).await.map_err(|error| error.to_string())?;
    }
    s.until("no machine may have its server", is_refused_a_machine).await?;
    s.until("the Workflow has ended", |s| ["SUCCESS", "FAILED", "TIMEOUT"].contains(&state(&workflow(s)))).await?;
    s.until("the Job that ejects the medium has given the server back", |s| is_unclaimed(&hardware(s))).await?;
    provisioned(s)?;
    s.until("its firmware, which asks the network first, gets an address and nothing to boot", |s| {
        heard(s) == "Refused"
    })
    .await?;
    delete(s).await
}

/// What CAPT asks of a Hardware.
fn register(s: &Simulation) {
    s.change(HARDWARE, INVENTORY, SERVER, |server| {
        server["spec"]["disks"] = json!([{"device": "/dev/vda"}]);
        server["spec"]["metadata"] = json!({"instance": {"id": mac(0), "hostname": "node-1"}});
        server["spec"]["interfaces"] = interfaces(0);
        server["spec"]["interfaces"][0]["netboot"] = json!({"allowPXE": false, "allowWorkflow": true});
    });
}

fn take(s: &Simulation) {
    s.change(HARDWARE, INVENTORY, SERVER, |server| {
        server["metadata"]["labels"] = json!({OWNER_NAME: MACHINE, OWNER_NAMESPACE: TEAM});
        server["metadata"]["finalizers"] = json!([FINALIZER]);
        server["spec"]["userData"] = json!("#cloud-config\n# tinkerbell://metalplane-inventory/server-1\n");
    });
}

fn provision(s: &Simulation, mode: Option<&str>) {
    s.create(
        TEMPLATES,
        INVENTORY,
        json!({"apiVersion": "tinkerbell.org/v1alpha1", "kind": "Template", "metadata": meta(MACHINE),
            "spec": {"data": text()}}),
    );
    let mut options = json!({"toggleAllowNetboot": true});
    if let Some(mode) = mode {
        options["bootMode"] = json!(mode);
    }
    if mode == Some("isoboot") {
        options["isoURL"] = json!(IMAGE);
    }
    s.create(
        WORKFLOWS,
        INVENTORY,
        json!({"apiVersion": "tinkerbell.org/v1alpha1", "kind": "Workflow", "metadata": meta(MACHINE),
            "spec": {"templateRef": MACHINE, "hardwareRef": SERVER, "hardwareMap": {"device_1": mac(0)},
                "bootOptions": options}}),
    );
    let mut machine = super::bare::machine("bm-03");
    machine["spec"]["hardware"] = json!({"name": SERVER});
    s.create(MACHINES, USER, machine);
}

/// By its owner's label, whatever the machine asks for.
fn is_refused_a_machine(s: &Simulation) -> bool {
    let machine = s.machine("bm-03").unwrap_or_default();
    let all = machine["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let names = |c: &Value| c["message"].as_str().is_some_and(|m| m.contains(&format!("Tinkerbell's '{MACHINE}'")));
    all.iter().any(|c| c["type"] == "HardwareClaimed" && c["reason"] == "HardwareTaken" && names(c))
}

/// What CAPT has seen of the Workflow, and what its agent was told.
fn provisioned(s: &Simulation) -> Result<(), String> {
    let run = workflow(s);
    let log = s.scene.server.store().log.clone();
    let mut states: Vec<String> = Vec::new();
    for event in log.iter().filter(|event| event.id.resource == WORKFLOWS) {
        let now = state(&event.object);
        if states.last().map(String::as_str).unwrap_or_default() != now {
            states.push(now.to_owned());
        }
    }
    if states != ["PREPARING", "PENDING", "RUNNING", "POST", "SUCCESS"] {
        return wrong(s, &format!("the Workflow was {states:?}: {}", run["status"]));
    }
    let of = |action: usize, key: &str| run["status"]["tasks"][0]["actions"][action]["environment"][key].clone();
    let told = [of(0, "COMPRESSED"), of(1, "MODE"), of(1, "UID"), of(2, "WAIT_SECONDS")];
    if told != ["true", "0600", "0", "5"] || run["status"]["tasks"][0]["agentID"] != mac(0) {
        return wrong(s, &format!("rendered otherwise: {}", run["status"]));
    }
    if run["status"]["currentState"]["actionName"] != "start" || run["status"]["agentID"] != mac(0) {
        return wrong(s, &format!("nobody can tell what ran last: {}", run["status"]));
    }
    let server = hardware(s);
    if server["spec"]["interfaces"][0]["netboot"]["allowPXE"] != false || s.scene.hosts[0].medium() != Medium::Ejected {
        return wrong(s, "the server may boot the installer still");
    }
    let ours = [OWNER_NAME, OWNER_NAMESPACE].iter().all(|label| server["metadata"]["labels"].get(label).is_some());
    if !ours || server["metadata"]["finalizers"] != json!([FINALIZER]) {
        return wrong(s, &format!("what CAPT wrote is not there any more: {}", server["metadata"]));
    }
    s.change(HARDWARE, INVENTORY, SERVER, |server| server["metadata"]["annotations"][PROVISIONED] = json!("true"));
    Ok(())
}

async fn delete(s: &Simulation) -> Result<(), String> {
    s.delete(MACHINES, USER, "bm-03");
    s.delete(TEMPLATES, INVENTORY, MACHINE);
    s.delete(WORKFLOWS, INVENTORY, MACHINE);
    let name = format!("{MACHINE}-poweroff");
    s.create(
        JOBS,
        INVENTORY,
        json!({"apiVersion": "bmc.tinkerbell.org/v1alpha1", "kind": "Job", "metadata": meta(&name),
            "spec": {"machineRef": {"name": SERVER, "namespace": INVENTORY}, "tasks": [{"powerAction": "off"}]}}),
    );
    let job = |s: &Simulation| s.scene.server.get(JOBS, INVENTORY, &name).unwrap_or_default();
    let says = |s: &Simulation, type_: &str| condition(&job(s), type_) == "True";
    s.until("the Job has ended", |s| says(s, "Completed") || says(s, "Failed")).await?;
    if !says(s, "Completed") || s.scene.hosts[0].power() != PowerState::Off {
        return wrong(s, &format!("the server is not off: {}", job(s)["status"]));
    }
    s.change(HARDWARE, INVENTORY, SERVER, |server| {
        server["metadata"]["labels"].as_object_mut().expect("labels").retain(|key, _| !key.contains("/owner"));
        server["metadata"]["annotations"].as_object_mut().expect("annotations").remove(PROVISIONED);
        server["metadata"]["finalizers"] = json!([]);
    });
    match hardware(s)["metadata"].get("deletionTimestamp") {
        None => Ok(()),
        Some(_) => wrong(s, "the Hardware is being deleted"),
    }
}
