//! Servers without a DPU that DHCP does not serve: whoever waits for one says so, and goes on as soon as it is mended, with no other event.

use super::bare::{WORKFLOWS, furnish, machine};
use super::jobs;
use super::life::{MACHINES, condition};
use super::netboot::{HARDWARE, Servers, interfaces};
use super::simulation::{INVENTORY, Simulation, USER};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const REPORTS: &str = "metalplane.io/hardwarereports";
/// In which nothing happens to whoever waits.
const CALM: Duration = Duration::from_mins(5);
/// From the cure to what rests on it.
const SOON: Duration = Duration::from_secs(15);

/// Why the condition is what it is.
fn reason(object: &Value, type_: &str) -> String {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let told = all.into_iter().find(|condition| condition["type"] == type_).unwrap_or_default();
    told["reason"].as_str().unwrap_or_default().to_owned()
}

fn of_machine(s: &Simulation, name: &str, type_: &str) -> String {
    reason(&s.machine(name).unwrap_or_default(), type_)
}

fn workflow(s: &Simulation) -> Arc<Value> {
    s.scene.server.get(WORKFLOWS, INVENTORY, "look").unwrap_or_default()
}

fn report(s: &Simulation) -> Arc<Value> {
    s.scene.server.get(REPORTS, INVENTORY, "server-1").unwrap_or_default()
}

/// Nobody has written down an address of the server. Its report says that it was refused one, and a Workflow that waits for its agent says it
/// too; while the firmware still asks, the address is written down.
pub async fn without_address(s: &Simulation) -> Result<(), String> {
    let _servers = Servers::start(&s.scene, 1);
    jobs::prepare(s);
    let address = interfaces(0)[0]["dhcp"]["ip"].clone();
    let give = |address: Value| {
        s.change(HARDWARE, INVENTORY, "server-1", |server| {
            server["spec"]["interfaces"][0]["dhcp"]["ip"] = address.clone();
        });
    };
    give(Value::Null);
    jobs::create(s, "look", &json!({"bootMode": "netboot", "toggleAllowNetboot": true}));
    s.until("the Workflow says why no agent comes", |s| reason(&workflow(s), "ServerNotServed") == "DhcpRefused")
        .await?;
    let is_told = |s: &Simulation| {
        let report = report(s);
        let unserved = &report["status"]["unserved"];
        let names = unserved["message"].as_str().is_some_and(|message| message.contains("dhcp.ip.address is missing"));
        unserved["reason"] == "DhcpRefused" && names && reason(&report, "DhcpServed") == "DhcpRefused"
    };
    s.until("the report says it", is_told).await?;
    give(address);
    s.until("the Workflow has ended", |s| ["SUCCESS", "FAILED"].contains(&state(s).as_str())).await?;
    let says_still = |s: &Simulation| {
        let conditions = [reason(&workflow(s), "ServerNotServed"), reason(&report(s), "DhcpServed")];
        !report(s)["status"]["unserved"].is_null() || conditions.iter().any(|reason| !reason.is_empty())
    };
    s.until("nothing says it any more", |s| !says_still(s)).await?;
    match state(s).as_str() {
        "SUCCESS" => Ok(()),
        _ => Err(format!("{}\n{}", workflow(s)["status"], s.story())),
    }
}

fn state(s: &Simulation) -> String {
    workflow(s)["status"]["state"].as_str().unwrap_or_default().to_owned()
}

/// How a machine asks for the one server that would do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// It is told `SameMacAddress`.
    Name,
    /// It is told `NoHardwareFits`, which names no server.
    Label,
}

/// A machine has a server that gets the MAC address of another one, which is free. Both that machine and one that asks for the free server
/// wait; the cure is an edit of the Hardware that is claimed.
pub async fn with_a_mac_of_another(s: &Simulation, choice: Choice) -> Result<(), String> {
    furnish(s, 2);
    s.change(HARDWARE, INVENTORY, "server-1", |server| server["metadata"]["labels"] = json!({"rack": "a"}));
    let mut has = machine("bm-00");
    has["spec"]["hardware"] = json!({"name": "server-2"});
    s.create(MACHINES, USER, has);
    // No boot service runs: nothing comes of what its server asks.
    s.until("its server is awaited", |s| of_machine(s, "bm-00", "Installed") == "NetbootAwaited").await?;
    let give = |number: usize| {
        s.change(HARDWARE, INVENTORY, "server-2", |server| server["spec"]["interfaces"] = interfaces(number));
    };
    give(0);
    s.until("the machine says it", |s| of_machine(s, "bm-00", "Installed") == "SameMacAddress").await?;
    let mut asks = machine("bm-01");
    let (hardware, told) = match choice {
        Choice::Name => (json!({"name": "server-1"}), "SameMacAddress"),
        Choice::Label => (json!({"selector": {"matchLabels": {"rack": "a"}}}), "NoHardwareFits"),
    };
    asks["spec"]["hardware"] = hardware;
    s.create(MACHINES, USER, asks);
    s.until("it finds no server", |s| of_machine(s, "bm-01", "HardwareClaimed") == told).await?;
    tokio::time::sleep(CALM).await;
    let still = [of_machine(s, "bm-01", "HardwareClaimed"), of_machine(s, "bm-00", "Installed")];
    if still != [told, "SameMacAddress"] {
        return Err(format!("{still:?}\n{}", s.story()));
    }
    give(1);
    let is_mended = |s: &Simulation| {
        let has_server = condition(&s.machine("bm-01").unwrap_or_default(), "HardwareClaimed") == "True";
        has_server && of_machine(s, "bm-00", "Installed") != "SameMacAddress"
    };
    let mended = tokio::time::timeout(SOON, s.until("both go on", is_mended)).await;
    mended.map_err(|_| format!("nothing went on in {SOON:?}\n{}", s.story()))?
}
