//! What an administrator writes about BMCs: objects that two refer to, that are made anew, or that ask for what is not spoken.

use super::host::{Host, serial_number};
use super::life::{self, runs};
use super::simulation::{INVENTORY, Simulation, USER};
use planner::host::{Lack, PowerAction};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const MACHINES: &str = "metalplane.io/baremetalmachines";
const BMCS: &str = "bmc.tinkerbell.org/machines";
const DPUS: &str = "metalplane.io/dpus";

/// An object has a condition with this reason.
fn says(object: Option<Arc<Value>>, reason: &str) -> bool {
    let object = object.unwrap_or_default();
    object["status"]["conditions"].as_array().into_iter().flatten().any(|c| c["reason"] == reason)
}

fn dpu(s: &Simulation, host: &Host) -> Option<Arc<Value>> {
    s.scene.server.get(DPUS, "", &host.dpu_name)
}

/// Only the first server can be claimed.
fn only_first(s: &Simulation) -> Arc<Host> {
    s.change(DPUS, "", "dpu-2", |dpu| dpu["spec"]["approved"] = json!(false));
    s.scene.hosts[0].clone()
}

/// The Dpu names, as its own, the BMC of its server: there is one task and one session for both. (More at once is a violation.)
pub async fn shared(s: &Simulation) -> Result<(), String> {
    let host = only_first(s);
    let reference = json!({"name": host.name, "serialNumber": serial_number(&host.name)});
    s.change(DPUS, "", &host.dpu_name, |dpu| dpu["spec"]["bmcRef"] = reference);
    s.create(MACHINES, USER, life::machine("bm-01", 7));
    s.until("the machine runs, and the BMC counts as the DPU's", |s| runs(s, "bm-01") && says(dpu(s, &host), "ReadOn"))
        .await?;
    life::delete(s, "bm-01").await
}

/// Under a running machine: the object is made anew with the address of another server, and corrected by an edit. That is seen
/// although the session with the right BMC has not failed, and no server gets a command meanwhile.
pub async fn made_anew(s: &Simulation) -> Result<(), String> {
    let (host, other) = (only_first(s), s.scene.hosts[1].clone());
    s.create(MACHINES, USER, life::machine("bm-01", 7));
    s.until("the machine runs", |s| runs(s, "bm-01")).await?;
    let (sent, sessions) = (host.actions().len(), host.sessions());
    // Two objects that stand for one BMC have a session with it each.
    s.delete(BMCS, INVENTORY, &other.name);
    s.delete(BMCS, INVENTORY, &host.name);
    s.create_bmc(&host.name, &other.name, &host.name);
    s.change(MACHINES, USER, "bm-01", |machine| machine["metadata"]["annotations"] = life::restart_now());
    s.until("it is another server's", |s| says(s.machine("bm-01"), "HardwareMismatch")).await?;
    tokio::time::sleep(Duration::from_secs(120)).await;
    if host.actions().len() != sent || !other.actions().is_empty() {
        return Err(format!("a server was commanded on the word of another one's BMC\n{}", s.story()));
    }
    s.change(BMCS, INVENTORY, &host.name, |bmc| bmc["spec"]["connection"]["host"] = json!(host.name));
    s.until("it is restarted as it asked", |s| runs(s, "bm-01") && host.actions().len() == sent + 1).await?;
    if host.sessions() != sessions + 1 {
        return Err(format!("{} sessions were opened", host.sessions() - sessions));
    }
    s.delete(BMCS, INVENTORY, &host.name);
    s.until("it is missing", |s| says(s.machine("bm-01"), "BmcMissing")).await?;
    s.create_bmc(&host.name, &host.name, &host.name);
    s.until("it is read again", |s| runs(s, "bm-01")).await?;
    life::delete(s, "bm-01").await
}

/// The Hardware of a running machine gets a bmcRef to the BMC of another server, and gets its own back. Before, a Dpu waited for a
/// Hardware that came later than itself.
pub async fn named_anew(s: &Simulation) -> Result<(), String> {
    let (host, other) = (only_first(s), s.scene.hosts[1].clone());
    let hardware = "tinkerbell.org/hardware";
    let (first, second) = (host.name.clone(), other.name.clone());
    let refer = |s: &Simulation, to: &str| {
        let reference = json!({"apiGroup": "bmc.tinkerbell.org", "kind": "Machine", "name": to});
        s.change(hardware, INVENTORY, &first, |hardware| hardware["spec"]["bmcRef"] = reference);
    };
    s.change(hardware, INVENTORY, &first, |hardware| hardware["spec"] = json!({}));
    s.until("no BMC is named", |s| says(dpu(s, &host), "BmcNotRead")).await?;
    refer(s, &first);
    s.until("its BMC is read", |s| says(dpu(s, &host), "SerialNumberMatches")).await?;
    s.create(MACHINES, USER, life::machine("bm-01", 7));
    s.until("the machine runs", |s| runs(s, "bm-01")).await?;
    let sent = host.actions().len();
    refer(s, &second);
    s.change(MACHINES, USER, "bm-01", |machine| machine["metadata"]["annotations"] = life::restart_now());
    s.until("it is another server's", |s| says(s.machine("bm-01"), "HardwareMismatch")).await?;
    tokio::time::sleep(Duration::from_secs(120)).await;
    if host.actions().len() != sent || !other.actions().is_empty() {
        return Err(format!("a server was commanded on the word of another one's BMC\n{}", s.story()));
    }
    refer(s, &first);
    s.until("it is restarted as it asked", |s| runs(s, "bm-01") && host.actions().len() == sent + 1).await?;
    life::delete(s, "bm-01").await
}

/// The Dpu and the machine say which protocol is not spoken; a Machine that asks for Redfish again is read.
pub async fn by_ipmi(s: &Simulation) -> Result<(), String> {
    let host = only_first(s);
    let prefer = |s: &Simulation, provider: &str| {
        let options = json!({"preferredOrder": [provider]});
        s.change(BMCS, INVENTORY, &host.name, |bmc| bmc["spec"]["connection"]["providerOptions"] = options);
    };
    let refused = "BmcProtocolUnsupported";
    s.until("its server is verified", |s| says(dpu(s, &host), "SerialNumberMatches")).await?;
    s.create(MACHINES, USER, life::machine("bm-01", 7));
    s.until("the machine runs", |s| runs(s, "bm-01")).await?;
    prefer(s, "ipmitool");
    s.until("the machine says it", |s| says(s.machine("bm-01"), refused)).await?;
    prefer(s, "gofish");
    s.until("the machine is read again", |s| runs(s, "bm-01")).await?;
    life::delete(s, "bm-01").await?;

    prefer(s, "ipmitool");
    // What is expected of it was found of nothing yet.
    s.change(DPUS, "", &host.dpu_name, |dpu| dpu["spec"]["hardwareRef"]["serialNumber"] = json!("ANOTHER"));
    s.until("the Dpu says it", |s| says(dpu(s, &host), refused)).await?;
    let told = dpu(s, &host).unwrap_or_default().to_string();
    if !told.contains("IPMI") || !told.contains("preferredOrder: [gofish]") {
        return Err(format!("neither the protocol nor what to write is told: {told}"));
    }
    Ok(())
}

/// A BMC without a graceful shutdown: the host is switched off all the same, and nothing is tried that is refused.
pub async fn without_shutdown(s: &Simulation) -> Result<(), String> {
    let host = only_first(s);
    host.lacks(&[Lack::Power(PowerAction::SoftOff)]);
    s.create(MACHINES, USER, life::machine("bm-01", 7));
    s.until("the machine runs", |s| runs(s, "bm-01")).await?;
    life::stop(s, "bm-01").await?;
    match host.actions().as_slice() {
        [PowerAction::On, PowerAction::ForceOff] => life::delete(s, "bm-01").await,
        actions => Err(format!("{actions:?} was sent\n{}", s.story())),
    }
}
