//! A machine that finds no server: whatever gives it one is noticed, and nothing else has to happen.

use super::life::{self, MACHINES, runs};
use super::simulation::{INVENTORY, Simulation, USER};
use serde_json::{Value, json};
use std::time::Duration;

const HARDWARE: &str = "tinkerbell.org/hardware";
const DPUS: &str = "metalplane.io/dpus";
const POLICIES: &str = "metalplane.io/hardwarepolicies";
/// That no chassis maps to a bridge at first.
const PHYSICAL_NETWORK: &str = "physnet2";
/// In which nothing happens.
const CALM: Duration = Duration::from_mins(30);
/// From the cure to the claim; an agent that comes back has to be believed first.
const SOON: Duration = Duration::from_secs(15);

/// Why the only server will not do.
#[derive(Debug, Clone, Copy)]
pub enum Lack {
    Policy,
    Hardware,
    Label,
    BmcRef,
    Free,
    Approval,
    Service,
    DpuOfTheServer,
    Agent,
    PhysicalNetwork,
}

impl Lack {
    pub const ALL: [Self; 10] = [
        Self::Policy,
        Self::Hardware,
        Self::Label,
        Self::BmcRef,
        Self::Free,
        Self::Approval,
        Self::Service,
        Self::DpuOfTheServer,
        Self::Agent,
        Self::PhysicalNetwork,
    ];
}

fn reason(s: &Simulation) -> String {
    let machine = s.machine("bm-01").unwrap_or_default();
    let all = machine["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let claimed = all.into_iter().find(|condition| condition["type"] == "HardwareClaimed").unwrap_or_default();
    claimed["reason"].as_str().unwrap_or_default().to_owned()
}

/// A Subnet on the physical network.
fn on_vlan(s: &Simulation) {
    let object = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "metalplane.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let network = json!({"physicalNetwork": PHYSICAL_NETWORK, "cidr": "203.0.113.0/24", "gateway": "203.0.113.1"});
    s.create("metalplane.io/providernetworks", "", object("ProviderNetwork", "rack", network));
    let subnet = json!({"providerNetwork": "rack", "routed": false, "cidr": "203.0.113.0/24"});
    s.create("metalplane.io/subnets", USER, object("Subnet", "hosts", subnet));
}

/// It waits, then nothing happens for a while, then `lack` is cured.
pub async fn cured(s: &mut Simulation, lack: Lack) -> Result<(), String> {
    let host = s.scene.hosts[0].clone();
    let (server, dpu) = (host.name.as_str(), host.dpu_name.as_str());
    s.until("the DPU is ready", |s| {
        s.scene.server.get(DPUS, "", dpu).is_some_and(|dpu| life::condition(&dpu, "Ready") == "True")
    })
    .await?;
    let of_dpu = |s: &Simulation, field: &str, value: Value| s.change(DPUS, "", dpu, |dpu| dpu["spec"][field] = value);
    let before = |s: &Simulation, resource: &str, namespace: &str, name: &str| {
        let there = s.scene.server.get(resource, namespace, name);
        let mut object = Value::clone(&there.unwrap_or_default());
        object["metadata"] = json!({"name": name});
        object
    };
    let policy = before(s, POLICIES, INVENTORY, "default");
    let hardware = before(s, HARDWARE, INVENTORY, server);
    let assigned = before(s, DPUS, "", dpu)["spec"]["hardwareRef"].clone();
    let mut machine = life::machine("bm-01", 7);
    match lack {
        Lack::Policy => s.delete(POLICIES, INVENTORY, "default"),
        Lack::Hardware => s.delete(HARDWARE, INVENTORY, server),
        Lack::Label => machine["spec"]["hardware"] = json!({"selector": {"matchLabels": {"rack": "a"}}}),
        Lack::BmcRef => s.change(HARDWARE, INVENTORY, server, |hardware| hardware["spec"]["bmcRef"] = Value::Null),
        Lack::Free => life::create(s, "bm-00", 6).await?,
        Lack::Approval => of_dpu(s, "approved", json!(false)),
        Lack::Service => of_dpu(s, "maintenance", json!("Drain")),
        Lack::DpuOfTheServer => of_dpu(s, "hardwareRef", json!({"name": "another"})),
        Lack::Agent => {
            s.stop_agent(&host);
            s.until("it is silent", |s| {
                s.scene.server.get(DPUS, "", dpu).is_some_and(|dpu| life::condition(&dpu, "Ready") == "Unknown")
            })
            .await?;
        }
        Lack::PhysicalNetwork => {
            on_vlan(s);
            machine["spec"]["interfaces"] = json!([{"name": "eth0", "subnet": "hosts"}]);
        }
    }
    s.create(MACHINES, USER, machine);
    s.until("it finds no server", |s| ["NoFreeHardware", "NoHardwareFits"].contains(&reason(s).as_str())).await?;
    tokio::time::sleep(CALM).await;
    match lack {
        Lack::Policy => s.create(POLICIES, INVENTORY, policy),
        Lack::Hardware => s.create(HARDWARE, INVENTORY, hardware),
        Lack::Label => s.change(HARDWARE, INVENTORY, server, |hardware| {
            hardware["metadata"]["labels"] = json!({"rack": "a"});
        }),
        Lack::BmcRef => s.change(HARDWARE, INVENTORY, server, |now| now["spec"] = hardware["spec"].clone()),
        Lack::Free => {
            s.delete(MACHINES, USER, "bm-00");
            s.until("the other machine no longer exists", |s| s.machine("bm-00").is_none()).await?;
        }
        Lack::Approval => of_dpu(s, "approved", json!(true)),
        Lack::Service => of_dpu(s, "maintenance", json!("None")),
        Lack::DpuOfTheServer => of_dpu(s, "hardwareRef", assigned),
        Lack::Agent => s.start_agent(&host),
        Lack::PhysicalNetwork => {
            let there = before(s, DPUS, "", dpu);
            let chassis = there["status"]["network"]["chassis"].as_str().unwrap_or_default();
            s.scene.north_bound.map(chassis, PHYSICAL_NETWORK);
        }
    }
    let has_server =
        |s: &Simulation| life::condition(&s.machine("bm-01").unwrap_or_default(), "HardwareClaimed") == "True";
    let claimed = tokio::time::timeout(SOON, s.until("it has the server", has_server)).await;
    claimed.map_err(|_| format!("{}: not claimed in {SOON:?}", reason(s)))??;
    s.until("it runs", |s| runs(s, "bm-01")).await
}
