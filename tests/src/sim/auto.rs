//! A machine with `boot.strategy: Auto`, and a server whose DPU is unwell: nothing is installed there.

use super::Simulation;
use super::bare::create_template;
use super::host::serial_number;
use super::life::{self, MACHINES, condition};
use super::lives::{create_image, image_is_ready};
use super::netboot::{HARDWARE, Servers, interfaces};
use super::simulation::{INVENTORY, USER};
use api::labels;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::time::Duration;

const DPUS: &str = "metalplane.io/dpus";
/// Long enough for an installation.
const LONG: Duration = Duration::from_mins(15);
/// Of nobody here.
const FINALIZER: &str = "example.com/waits";

/// What is wrong with the server's Dpu.
#[derive(Debug, Clone, Copy)]
pub enum Unwell {
    Unresponsive,
    NotApproved,
    /// Nobody says in which server it sits.
    Unassigned,
    BeingDeleted,
}

impl Unwell {
    pub const ALL: [Self; 4] = [Self::Unresponsive, Self::NotApproved, Self::Unassigned, Self::BeingDeleted];

    async fn befalls(self, s: &Simulation) -> Result<(), String> {
        match self {
            Self::Unresponsive => {
                s.scene.cut("dpu-1", true);
                let is_told = |s: &Simulation| {
                    let dpu = s.scene.server.get(DPUS, "", "dpu-1").unwrap_or_default();
                    condition(&dpu, "Ready") == "Unknown"
                };
                s.until("its agent is unresponsive", is_told).await?;
            }
            Self::NotApproved => s.change(DPUS, "", "dpu-1", |dpu| dpu["spec"]["approved"] = json!(false)),
            Self::Unassigned => s.change(DPUS, "", "dpu-1", |dpu| dpu["spec"]["hardwareRef"] = Value::Null),
            Self::BeingDeleted => {
                s.change(DPUS, "", "dpu-1", |dpu| dpu["metadata"]["finalizers"] = json!([FINALIZER]));
                s.delete(DPUS, "", "dpu-1");
            }
        }
        Ok(())
    }

    async fn heals(self, s: &Simulation) -> Result<(), String> {
        match self {
            Self::Unresponsive => s.scene.cut("dpu-1", false),
            Self::NotApproved => s.change(DPUS, "", "dpu-1", |dpu| dpu["spec"]["approved"] = json!(true)),
            Self::Unassigned => assign(s),
            Self::BeingDeleted => {
                let uid = |s: &Simulation| {
                    s.scene.server.get(DPUS, "", "dpu-1").map(|dpu| dpu["metadata"]["uid"].clone()).unwrap_or_default()
                };
                let before = uid(s);
                s.change(DPUS, "", "dpu-1", |dpu| {
                    let others = dpu["metadata"]["finalizers"].as_array_mut();
                    others.into_iter().for_each(|all| all.retain(|one| one != FINALIZER));
                });
                s.until("its agent has registered anew", |s| ![Value::Null, before.clone()].contains(&uid(s))).await?;
                tokio::time::sleep(LONG).await;
                assign(s);
            }
        }
        Ok(())
    }
}

fn assign(s: &Simulation) {
    s.change(DPUS, "", "dpu-1", |dpu| {
        dpu["spec"]["hardwareRef"] = json!({"name": "server-1", "serialNumber": serial_number("server-1")});
        dpu["spec"]["powerDomain"] = json!("Standby");
        dpu["spec"]["approved"] = json!(true);
    });
}

/// Nothing of an installation was ever on record at the server.
fn is_let_alone(s: &Simulation, servers: &Servers) -> Result<(), String> {
    let of_server = |object: &Value| {
        let annotations = &object["metadata"]["annotations"];
        annotations[labels::BOOT_STRATEGY] == "Workflow" || annotations[labels::INSTALL].is_string()
    };
    let log = s.scene.server.store().log.clone();
    let wrong = log.iter().find(|event| event.id.resource == HARDWARE && of_server(&event.object));
    match wrong {
        Some(event) => Err(format!("to be installed: {}\n{}", event.object["metadata"], s.story())),
        None if servers.disks[0].is_dirty.load(Ordering::Relaxed) => {
            Err(format!("its disk was written\n{}", s.story()))
        }
        None => Ok(()),
    }
}

/// It would be installed on any server without a DPU. It waits, and says why, until its DPU is well, and then boots from a volume. The
/// image is imported by another server's DPU.
pub async fn waits_for_its_dpu(s: &Simulation, unwell: Unwell) -> Result<(), String> {
    let servers = Servers::start(&s.scene, 1);
    s.change(HARDWARE, INVENTORY, "server-1", |server| server["spec"]["interfaces"] = interfaces(0));
    create_template(s);
    create_image(s);
    image_is_ready(s).await?;
    unwell.befalls(s).await?;
    let mut machine = life::machine("bm-04", 0);
    machine["spec"]["interfaces"] = json!([]);
    machine["spec"]["cloudInit"] = Value::Null;
    machine["spec"]["hardware"] = json!({"name": "server-1"});
    machine["spec"]["disks"] = json!([{"name": "root", "bootOrder": 1, "bus": "NVMe", "size": "4Gi",
        "source": {"image": {"kind": "MachineImage", "name": "imported"}}}]);
    machine["spec"]["boot"] = json!({"strategy": "Auto", "workflow": {"templateName": "debian"}});
    s.create(MACHINES, USER, machine);
    let waits = |s: &Simulation| condition(&s.machine("bm-04").unwrap_or_default(), "HardwareClaimed") == "False";
    s.until("it says that it has no server", waits).await?;
    tokio::time::sleep(LONG).await;
    is_let_alone(s, &servers)?;
    if !waits(s) {
        return Err(format!("it has a server\n{}", s.story()));
    }
    unwell.heals(s).await?;
    s.until("it runs from a volume", |s| life::is_ready(s, "bm-04")).await?;
    is_let_alone(s, &servers)
}
