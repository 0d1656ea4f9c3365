//! A machine's life on a server without a DPU, whose policy says Erase.

use super::Simulation;
use super::api::store::Event;
use super::life::{MACHINES, condition, is_clean};
use super::netboot::{HARDWARE, Servers, interfaces};
use super::secrets;
use super::simulation::{INVENTORY, SEEDS, USER};
use api::labels;
use planner::host::{Medium, PowerState};
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::time::Duration;

const POLICIES: &str = "metalplane.io/hardwarepolicies";
/// As long as nothing is known of POST, a start of which nothing is seen is not given up.
const SILENT: Duration = Duration::from_mins(20);
/// The API server is, for so long.
const AWAY: Duration = Duration::from_mins(5);
/// What is on record to be done is done after so long.
const UNDER_WAY: Duration = Duration::from_secs(10);
pub const TEMPLATES: &str = "tinkerbell.org/templates";
pub const WORKFLOWS: &str = "tinkerbell.org/workflows";
const TEXT: &str = r#"
name: debian
global_timeout: 1800
tasks:
  - name: install
    worker: "{{.device_1}}"
    actions:
      - {name: write, image: image2disk, timeout: 300, environment: {IMG_URL: "http://images.example/debian.raw?signature=2b9e44f1"}}
      - {name: restart, image: reboot, timeout: 60}
"#;

/// As `kubectl delete` is told to.
#[derive(Clone, Copy, Debug)]
pub enum Cascade {
    Background,
    Foreground,
}

/// A machine is installed, stopped, started and deleted.
pub async fn life(s: &Simulation) -> Result<(), String> {
    lived(s, Duration::ZERO).await
}

/// The same of one that is deleted as soon as `once` is so, at the latest when it runs.
pub async fn life_deleted(s: &Simulation, once: &dyn Fn() -> bool, cascade: Cascade) -> Result<(), String> {
    lived_on(s, &Servers::start(&s.scene, 1), Duration::ZERO, Some((once, cascade))).await
}

/// The same where an override for one boot leads to the disk: as long as nothing is known of POST, that is waited for.
pub async fn life_without_once(s: &Simulation) -> Result<(), String> {
    lived(s, SILENT).await
}

/// The same where nothing leads to the network: it is installed, and erased, by the installer's ISO in the virtual drive of its BMC.
pub async fn life_by_medium(s: &mut Simulation) -> Result<(), String> {
    s.scene.hosts[0].knows_no_network();
    s.stop_controllers();
    s.installer_iso = Some("http://10.88.0.1:7080/iso/{mac}/installer.iso".parse()?);
    s.start_controller("controller-2", "default");
    // Before it by an override and by the boot option of its NIC.
    lived(s, 2 * SILENT).await?;
    let (host, server) = (&s.scene.hosts[0], s.scene.hosts[0].name.as_str());
    let hardware = s.scene.server.get(HARDWARE, INVENTORY, server).unwrap_or_default();
    let by = hardware["metadata"]["annotations"][labels::NETBOOT_BY].clone();
    match host.medium() {
        Medium::Ejected if by == "VirtualMedia" => Ok(()),
        medium => Err(format!("it was installed by {by}, and has {medium}\n{}", s.story())),
    }
}

/// The same where something befalls the server once, when it is on after `reached` is so; a start of which nothing is seen is waited for as long.
pub async fn life_befallen(
    s: &Simulation,
    befalls: impl Fn(&Simulation, &Servers) + Send,
    reached: impl Fn() -> bool,
) -> Result<(), String> {
    let is_due = || reached() && s.scene.hosts[0].power() == PowerState::On;
    let fate = async |servers: &Servers| {
        befalls(s, servers);
        Ok(())
    };
    life_with(s, SILENT, fate, is_due, &reached).await
}

/// The same where the API server answers nobody for five minutes once `reached` is so: the installer goes on with what it was told, and no
/// power action rests on what was read before.
pub async fn life_without_api_server(s: &Simulation, reached: impl Fn() -> bool) -> Result<(), String> {
    let fate = async |_: &Servers| {
        s.scene.api_server_is_away(true);
        tokio::time::sleep(UNDER_WAY).await;
        let before = s.scene.hosts[0].actions();
        tokio::time::sleep(AWAY - UNDER_WAY).await;
        let after = s.scene.hosts[0].actions();
        s.scene.api_server_is_away(false);
        match after == before {
            true => Ok(()),
            false => Err(format!("without an API server: {before:?}, then {after:?}\n{}", s.story())),
        }
    };
    let lived = life_with(s, Duration::ZERO, fate, &reached, &reached).await;
    let resets = |event: &Event| event.object.pointer("/status/power/agentResets").and_then(Value::as_u64);
    let was_reset = s.scene.server.store().log.iter().filter_map(resets).any(|resets| resets > 0);
    lived.and(if was_reset { Err("an agent that could not be heard was reset".to_owned()) } else { Ok(()) })
}

/// The same where the machine is paused for five minutes once `reached` is so: nothing is sent to the BMC meanwhile.
pub async fn life_paused(s: &Simulation, reached: impl Fn() -> bool) -> Result<(), String> {
    let fate = async |_: &Servers| {
        pause(s, true);
        tokio::time::sleep(UNDER_WAY).await;
        let before = sent(s);
        tokio::time::sleep(AWAY - UNDER_WAY).await;
        let after = sent(s);
        pause(s, false);
        match after == before {
            true => Ok(()),
            false => Err(format!("sent while it is paused: {:?}\n{}", &after[before.len()..], s.story())),
        }
    };
    life_with(s, Duration::ZERO, fate, &reached, &reached).await
}

/// Of a machine that no longer exists nothing is.
fn pause(s: &Simulation, paused: bool) {
    if s.machine("bm-03").is_none() {
        return;
    }
    let value = if paused { json!("true") } else { Value::Null };
    s.change(MACHINES, USER, "bm-03", |machine| {
        machine["metadata"]["annotations"][labels::PAUSED] = value;
        if let Some(annotations) = machine["metadata"]["annotations"].as_object_mut() {
            annotations.retain(|_, value| !value.is_null());
        }
    });
}

/// What the BMC of the server was told.
fn sent(s: &Simulation) -> Vec<String> {
    let of_bmc = format!("{} ", s.scene.hosts[0].name);
    let journal = s.scene.journal().into_iter();
    journal.map(|effect| effect.what).filter(|what| what.starts_with(&of_bmc)).collect()
}

/// A life in which `fate` comes once `is_due`. It is wrong if `reached` is never so.
pub(super) async fn life_with(
    s: &Simulation,
    silent: Duration,
    fate: impl AsyncFnOnce(&Servers) -> Result<(), String>,
    is_due: impl Fn() -> bool,
    reached: &impl Fn() -> bool,
) -> Result<(), String> {
    let servers = Servers::start(&s.scene, 1);
    let mut life = Box::pin(lived_on(s, &servers, silent, None));
    let fate = async {
        while !is_due() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        fate(&servers).await
    };
    tokio::select! {
        // The last of its stages may be after it was switched off for good.
        lived = &mut life => lived.and(if reached() { Ok(()) } else { Err("nothing befell the server".to_owned()) }),
        befallen = fate => {
            befallen?;
            life.await
        }
    }
}

async fn lived(s: &Simulation, silent: Duration) -> Result<(), String> {
    lived_on(s, &Servers::start(&s.scene, 1), silent, None).await
}

type Deletion<'a> = Option<(&'a dyn Fn() -> bool, Cascade)>;

async fn lived_on(s: &Simulation, on: &Servers, silent: Duration, deleted: Deletion<'_>) -> Result<(), String> {
    s.change(POLICIES, INVENTORY, "default", |policy| policy["spec"]["releasePolicy"]["localDisks"] = json!("Erase"));
    let lived = lives(s, silent, deleted).await.and_then(|()| secrets::stay(s));
    match on.disks[0].is_dirty.load(Ordering::Relaxed) {
        true => lived.and(Err(format!("the server was released with its data\n{}", s.story()))),
        false => lived,
    }
}

/// The first servers are without a DPU, and there is a Template.
pub fn furnish(s: &Simulation, count: usize) {
    for (number, host) in s.scene.hosts.iter().enumerate().take(count) {
        // Nobody says in which server its DPU sits.
        s.delete("metalplane.io/dpus", "", &host.dpu_name);
        s.change(HARDWARE, INVENTORY, &host.name, |server| server["spec"]["interfaces"] = interfaces(number));
    }
    create_template(s);
}

pub(super) fn create_template(s: &Simulation) {
    let template = json!({"apiVersion": "tinkerbell.org/v1alpha1", "kind": "Template",
        "metadata": {"name": "debian"}, "spec": {"data": TEXT}});
    s.create(TEMPLATES, USER, template);
}

pub fn machine(name: &str) -> Value {
    json!({"apiVersion": "metalplane.io/v1alpha1", "kind": "BareMetalMachine",
        "metadata": {"name": name}, "spec": {"terminationGracePeriodSeconds": 20,
            "boot": {"strategy": "Workflow", "workflow": {"templateName": "debian"}}}})
}

/// `silent`: nothing is to be seen of the installation for so long.
async fn lives(s: &Simulation, silent: Duration, deleted: Deletion<'_>) -> Result<(), String> {
    furnish(s, 1);
    let mut machine = machine("bm-03");
    machine["spec"]["cloudInit"] = json!({"source": "Metadata", "userData": secrets::USER_DATA});
    s.create(MACHINES, USER, machine);
    tokio::time::sleep(silent).await;
    if let Some((once, cascade)) = deleted {
        s.until("it is so far", |s| once() || is_running(s)).await?;
        return delete(s, silent, cascade).await;
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
    delete(s, silent, Cascade::Background).await
}

fn is(s: &Simulation, state: &str) -> bool {
    s.machine("bm-03").is_some_and(|machine| machine["status"]["state"] == state)
}

pub(super) fn is_running(s: &Simulation) -> bool {
    let ready = s.machine("bm-03").is_some_and(|machine| condition(&machine, "Ready") == "True");
    ready && is(s, "Running") && s.scene.hosts[0].power() == PowerState::On
}

async fn delete(s: &Simulation, silent: Duration, cascade: Cascade) -> Result<(), String> {
    match cascade {
        _ if s.machine("bm-03").is_none() => {}
        Cascade::Background => s.delete(MACHINES, USER, "bm-03"),
        Cascade::Foreground => s.delete_in_foreground(MACHINES, USER, "bm-03"),
    }
    tokio::time::sleep(silent).await;
    let left = |s: &Simulation| {
        let count = |resource: &str, namespace: &str| {
            let all = s.scene.server.list(resource);
            all.iter().filter(|object| object["metadata"]["namespace"] == namespace).count()
        };
        count(WORKFLOWS, INVENTORY) + count(TEMPLATES, INVENTORY) + count("secrets", SEEDS)
    };
    s.until("nothing is left", |s| left(s) == 0 && is_clean(s)).await?;
    match s.scene.hosts[0].power() {
        PowerState::Off => Ok(()),
        other => Err(format!("the server was released {other:?}\n{}", s.story())),
    }
}
