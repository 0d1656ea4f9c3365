//! A server without a DPU: `boot` and the agent in its installer, which follow what is on record, and a machine's life there. Its policy
//! says Erase.

use super::Simulation;
use super::api::path::Id;
use super::api::store::{Answer, Part};
use super::host::Host;
use super::life::{MACHINES, condition, is_clean};
use super::scene::Scene;
use super::simulation::{INVENTORY, USER};
use api::HardwareReport;
use api::report::HeardBy;
use api::tinkerbell::attributes::{AgentAttributes, NetworkInterface};
use api::tinkerbell::workflow::WorkflowStatus;
use api::tinkerbell::{Hardware, Template, Workflow};
use kube::Resource;
use planner::erase;
use planner::host::{BootSource, PowerState};
use planner::install::{Phase, Record};
use planner::netboot::report::{Sight, add, is_of};
use planner::netboot::{Directory, Verdict, verdict};
use planner::workflow::{Report, Reported, advance, report, serve, state};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub const HARDWARE: &str = "tinkerbell.org/hardware";
const REPORTS: &str = "metalplane.io/hardwarereports";
const POLICIES: &str = "metalplane.io/hardwarepolicies";
pub const TEMPLATES: &str = "tinkerbell.org/templates";
pub const WORKFLOWS: &str = "tinkerbell.org/workflows";
pub const MAC: &str = "52:54:00:00:00:01";
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 88, 0, 50));
const TEXT: &str = r#"
name: debian
global_timeout: 1800
tasks:
  - name: install
    worker: "{{.device_1}}"
    actions:
      - {name: write, image: image2disk, timeout: 300}
      - {name: restart, image: reboot, timeout: 60}
"#;

/// What the agent is at.
#[derive(Default)]
struct Agent {
    /// The start that led to the network or to the medium, and whether that led to the installer.
    start: Option<(u64, bool)>,
    /// The system on the disk has taken its address since it was started.
    heard: bool,
    /// UIDs of the Workflows whose image was written.
    written: BTreeSet<String>,
    /// The disk has what was written.
    dirty: Arc<AtomicBool>,
}

/// As the installer reports its only disk.
const ERASED: &str = r#"disk {"name":"vda","serial":"V1","bytes":1073741824,"result":"Erased","method":"Overwrite","read":"all of it is zero"}"#;

/// Renders Workflows and runs them on the first host, for as long as it is polled.
pub async fn boot(scene: Arc<Scene>, dirty: Arc<AtomicBool>) {
    let mut agent = Agent { dirty, ..Agent::default() };
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let workflows: Vec<Workflow> = all(&scene, WORKFLOWS);
        let (hardware, templates): (Vec<Hardware>, Vec<Template>) = (all(&scene, HARDWARE), all(&scene, TEMPLATES));
        let named = |meta: &Option<String>, name: &Option<String>| meta.is_some() && meta == name;
        for workflow in &workflows {
            let in_inventory = |t: &&Template| t.metadata.namespace == workflow.metadata.namespace;
            let of_it = |t: &&Template| named(&t.metadata.name, &workflow.spec.template_ref);
            let template = templates.iter().filter(in_inventory).find(of_it);
            let server = hardware.iter().find(|h| named(&h.metadata.name, &workflow.spec.hardware_ref));
            if let Some(status) = advance(workflow, template, server, runtime::clock::now()).status {
                write(&scene, workflow, &status);
            }
        }
        let directory = Directory::new(hardware.into_iter().map(Arc::new).collect());
        agent.step(&scene, &scene.hosts[0], &directory);
    }
}

fn all<T: serde::de::DeserializeOwned>(scene: &Scene, resource: &str) -> Vec<T> {
    let objects = scene.server.list(resource).into_iter();
    objects.map(|object| serde_json::from_value(Value::clone(&object)).expect("an object of its kind")).collect()
}

/// In the version that was read.
fn write(scene: &Scene, workflow: &Workflow, status: &WorkflowStatus) -> bool {
    let id = Id::new(WORKFLOWS, INVENTORY, workflow.metadata.name.as_deref().unwrap_or_default());
    let mut object = serde_json::to_value(workflow).expect("a Workflow is JSON");
    object["status"] = serde_json::to_value(status).expect("a status is JSON");
    scene.server.write(|store| store.update(&id, Part::Status, object)).is_ok()
}

/// Into the server's report, as `boot` does it.
fn see(scene: &Scene, directory: &Directory, sight: &Sight) {
    let Ok(subject) = directory.by_mac(MAC) else { return };
    let name = subject.hardware.metadata.name.clone().unwrap_or_default();
    let there = scene.server.get(REPORTS, INVENTORY, &name);
    let mut report = match &there {
        Some(there) => serde_json::from_value(Value::clone(there)).expect("a report"),
        None => {
            let mut report = HardwareReport::new(&name, Default::default());
            report.metadata.namespace = Some(INVENTORY.to_owned());
            report.metadata.owner_references = subject.hardware.owner_ref(&()).map(|owner| vec![owner]);
            report
        }
    };
    let before = report.status.take().unwrap_or_default();
    let Some(status) = add(&before, MAC, sight, runtime::clock::now()).filter(|_| is_of(&report, subject.hardware))
    else {
        return;
    };
    let id = Id::new(REPORTS, INVENTORY, &name);
    // Its Hardware may be registered anew meanwhile: it is seen again.
    let _ = scene.server.write(|store| -> Answer {
        if there.is_none() {
            let object = serde_json::to_value(&report).expect("a report is JSON");
            let made = store.create(&id, object)?;
            report = serde_json::from_value(Value::clone(&made)).expect("a report");
        }
        report.status = Some(status);
        store.update(&id, Part::Status, serde_json::to_value(&report).expect("a report is JSON"))
    });
}

impl Agent {
    fn step(&mut self, scene: &Scene, host: &Arc<Host>, directory: &Directory) {
        let start = host.booted().filter(|_| host.power() == PowerState::On);
        let may_boot = directory.by_mac(MAC).is_ok_and(|subject| verdict(&subject) == Verdict::Boot);
        match start {
            // Whoever has the medium asks nobody.
            Some((start, source)) if self.start.is_none_or(|(known, _)| known != start) => {
                self.start = Some((start, source == BootSource::Cd || may_boot));
            }
            Some(_) => {}
            None => self.start = None,
        }
        if !self.start.is_some_and(|(_, allowed)| allowed) {
            // The firmware went on with the disk.
            let runs = !may_boot && host.power() == PowerState::On;
            if runs {
                // Later it renews its lease.
                see(scene, directory, &Sight::Heard { address: ADDRESS, by: HeardBy::Dhcp, starts: !self.heard });
            }
            self.heard = runs;
            return;
        }
        self.heard = false;
        let nic = NetworkInterface { mac: Some(MAC.to_owned()), ..NetworkInterface::default() };
        let attributes = AgentAttributes { network_interfaces: vec![nic], ..AgentAttributes::default() };
        let (id, address) = (MAC.to_owned(), Some(ADDRESS));
        see(scene, directory, &Sight::Agent { id, address, attributes: Some(Box::new(attributes)) });
        let workflows: Vec<Workflow> = all(scene, WORKFLOWS);
        let next = directory.candidates(MAC, &workflows).into_iter().next();
        let Some((workflow, served)) = next.and_then(|workflow| Some((workflow, serve(MAC, workflow)?))) else {
            return;
        };
        if let Some(status) = &served.status {
            // It is answered in the next round, from what is there then.
            write(scene, workflow, status);
            return;
        }
        let actions = workflow.status.iter().flat_map(|status| &status.tasks).flat_map(|task| &task.actions);
        let runs = actions
            .into_iter()
            .any(|action| action.id == served.action_id && action.state.as_deref() == Some(state::RUNNING));
        if served.name == "write" {
            self.writes(scene, workflow);
        }
        let erased = served.name == "erase" && self.erases(scene, workflow, runs);
        let said = Report {
            agent_id: MAC.to_owned(),
            task_id: served.task_id,
            action_id: served.action_id,
            state: if runs { Reported::Success } else { Reported::Running },
            start: None,
            stop: None,
            duration: String::new(),
            message: if erased { ERASED.to_owned() } else { String::new() },
        };
        let reported = report(workflow, &said, runtime::clock::now()).is_some_and(|new| write(scene, workflow, &new));
        if reported && runs && served.name == "restart" {
            host.resets_itself();
        }
    }

    /// A disk is written only while that is on record, for the claim that stands, and once.
    fn writes(&mut self, scene: &Scene, workflow: &Workflow) {
        let uid = workflow.metadata.uid.clone().unwrap_or_default();
        let server = scene.server.get(HARDWARE, INVENTORY, &scene.hosts[0].name).unwrap_or_default();
        let record = server["metadata"]["annotations"]["metalplane.io/install"].as_str().and_then(Record::parse);
        if !record.is_some_and(|record| record.phase == Phase::Begun && record.workflow == uid) {
            scene.violated(format!("Workflow {uid} writes a disk without being on record: {}", server["metadata"]));
        }
        self.dirty.store(true, Ordering::Relaxed);
        self.written.insert(uid);
        if self.written.len() > 1 {
            scene.violated(format!("installed by {:?}", self.written));
        }
    }
}

impl Agent {
    /// A disk is erased only while that is on record, for the claim that stands; `runs`: to its end.
    fn erases(&mut self, scene: &Scene, workflow: &Workflow, runs: bool) -> bool {
        let uid = workflow.metadata.uid.clone().unwrap_or_default();
        let server = scene.server.get(HARDWARE, INVENTORY, &scene.hosts[0].name).unwrap_or_default();
        let record = server["metadata"]["annotations"]["metalplane.io/erase"].as_str().and_then(erase::Record::parse);
        if !record.is_some_and(|record| !record.is_over() && record.workflow == uid) {
            scene.violated(format!("Workflow {uid} erases a disk without being on record: {}", server["metadata"]));
        }
        self.dirty.store(!runs && self.dirty.load(Ordering::Relaxed), Ordering::Relaxed);
        runs
    }
}

/// A machine is installed, stopped, started and deleted; `deleted`: it is deleted as soon as that is so, at the latest when it runs.
pub async fn life(s: &Simulation, deleted: Option<&dyn Fn() -> bool>) -> Result<(), String> {
    lived(s, Duration::ZERO, deleted).await
}

/// The same where an override for one boot leads to the disk: as long as nothing is known of POST, that is waited for.
pub async fn life_without_once(s: &Simulation) -> Result<(), String> {
    lived(s, Duration::from_mins(20), None).await
}

async fn lived(s: &Simulation, silent: Duration, deleted: Option<&dyn Fn() -> bool>) -> Result<(), String> {
    let dirty = Arc::new(AtomicBool::new(false));
    let service = tokio::spawn(boot(s.scene.clone(), dirty.clone()));
    s.change(POLICIES, INVENTORY, "default", |policy| policy["spec"]["releasePolicy"]["localDisks"] = json!("Erase"));
    let lived = lives(s, silent, deleted).await;
    service.abort();
    match dirty.load(Ordering::Relaxed) {
        true => lived.and(Err(format!("the server was released with its data\n{}", s.story()))),
        false => lived,
    }
}

/// `silent`: nothing is to be seen of the installation for so long.
async fn lives(s: &Simulation, silent: Duration, deleted: Option<&dyn Fn() -> bool>) -> Result<(), String> {
    // Nobody says in which server its DPU sits.
    s.delete("metalplane.io/dpus", "", "dpu-1");
    s.change(HARDWARE, INVENTORY, "server-1", |server| {
        server["spec"]["interfaces"] = json!([{"dhcp": {"mac": MAC, "uefi": true}}]);
    });
    let template = json!({"apiVersion": "tinkerbell.org/v1alpha1", "kind": "Template",
        "metadata": {"name": "debian"}, "spec": {"data": TEXT}});
    s.create(TEMPLATES, USER, template);
    let machine = json!({"apiVersion": "metalplane.io/v1alpha1", "kind": "BareMetalMachine",
        "metadata": {"name": "bm-03"}, "spec": {"terminationGracePeriodSeconds": 20,
            "boot": {"strategy": "Workflow", "workflow": {"templateName": "debian"}}}});
    s.create(MACHINES, USER, machine);
    tokio::time::sleep(silent).await;
    if let Some(deleted) = deleted {
        s.until("it is so far", |s| deleted() || is_running(s)).await?;
        return delete(s).await;
    }
    s.until("the machine is installed and runs", is_running).await?;
    let is_heard =
        |s: &Simulation| s.machine("bm-03").is_some_and(|machine| condition(&machine, "GuestReachable") == "True");
    s.until("its system is heard of", is_heard).await?;
    let strategy = |s: &Simulation, strategy: &str| {
        s.change(MACHINES, USER, "bm-03", |machine| machine["spec"]["runStrategy"] = json!(strategy));
    };
    strategy(s, "Halted");
    s.until("it is stopped", |s| s.scene.hosts[0].power() == PowerState::Off && is(s, "Stopped")).await?;
    strategy(s, "Always");
    s.until("it runs again", is_running).await?;
    delete(s).await
}

fn is(s: &Simulation, state: &str) -> bool {
    s.machine("bm-03").is_some_and(|machine| machine["status"]["state"] == state)
}

fn is_running(s: &Simulation) -> bool {
    let ready = s.machine("bm-03").is_some_and(|machine| condition(&machine, "Ready") == "True");
    ready && is(s, "Running") && s.scene.hosts[0].power() == PowerState::On
}

async fn delete(s: &Simulation) -> Result<(), String> {
    if s.machine("bm-03").is_some() {
        s.delete(MACHINES, USER, "bm-03");
    }
    let left = |s: &Simulation| {
        let in_inventory = |object: &Arc<Value>| object["metadata"]["namespace"] == INVENTORY;
        s.scene.server.list(WORKFLOWS).len() + s.scene.server.list(TEMPLATES).iter().filter(|t| in_inventory(t)).count()
    };
    s.until("nothing is left", |s| left(s) == 0 && is_clean(s)).await?;
    match s.scene.hosts[0].power() {
        PowerState::Off => Ok(()),
        other => Err(format!("the server was released {other:?}\n{}", s.story())),
    }
}
