//! What a DPU that does not answer may present to its host stays taken: the address of its NIC is nobody's before that DPU is shown to be off.

use super::life::{self, MACHINES, condition};
use super::network::{LONG, VNICS, object, port};
use super::simulation::{Simulation, USER};
use planner::network::rows::Cell;
use serde_json::json;

const ADDRESS: &str = "10.20.0.7";

fn is_assigned(s: &Simulation) -> bool {
    condition(&s.scene.server.get(VNICS, USER, "next").unwrap_or_default(), "AddressesAssigned") == "True"
}

/// The next one says that it waits for the address, and for whom.
fn is_told(s: &Simulation) -> bool {
    let next = s.scene.server.get(VNICS, USER, "next").unwrap_or_default();
    let all = next["status"]["conditions"].as_array().into_iter().flatten();
    let mut said = all.filter(|said| said["type"] == "AddressesAssigned" && said["status"] == "False");
    said.any(|said| {
        let why = said["reason"].as_str().unwrap_or_default();
        let message = said["message"].as_str().unwrap_or_default();
        ["AddressTaken", "AddressReleasing"].contains(&why) && message.contains("bm-01-eth0")
    })
}

/// Its hold, and OVN's port.
fn is_kept(s: &Simulation) -> bool {
    let holds = s.scene.server.list("metalplane.io/addressholds");
    let mut of_it = holds.iter().filter(|hold| hold["spec"]["address"] == ADDRESS);
    let is_held = of_it.all(|hold| hold["spec"]["owner"]["name"] == "bm-01-eth0");
    let there = holds.iter().any(|hold| hold["spec"]["address"] == ADDRESS);
    let port = port(s, "bm-01");
    let has = port.is_some_and(|port| match port.columns.get("addresses") {
        Some(Cell::Text(known)) => known.split_whitespace().any(|known| known == ADDRESS),
        _ => false,
    });
    there && is_held && has
}

/// The machine is deleted, or the NIC is taken out of it, while the agent of its DPU is cut off. `deleted`: the machine.
pub async fn keeps_its_address(s: &Simulation, deleted: bool) -> Result<(), String> {
    let host = s.scene.hosts[0].clone();
    s.name_dpu_bmcs();
    life::create(s, "bm-01", 7).await?;
    s.until("the BMC of the DPU is verified", |s| {
        let dpu = s.scene.server.get("metalplane.io/dpus", "", &host.dpu_name).unwrap_or_default();
        condition(&dpu, "BmcVerified") == "True"
    })
    .await?;
    s.scene.cut(&host.dpu_name, true);
    match deleted {
        true => s.delete(MACHINES, USER, "bm-01"),
        false => s.change(MACHINES, USER, "bm-01", |machine| machine["spec"]["interfaces"] = json!([])),
    }
    s.create(VNICS, USER, object("VNic", "next", &json!({"subnet": "blue", "addresses": [ADDRESS]})));
    s.until("the next one is told who has the address", is_told).await?;
    for _ in 0..5 {
        tokio::time::sleep(LONG).await;
        if is_assigned(s) || !is_told(s) || !is_kept(s) {
            return Err(format!("the address of a NIC that a host may have was given away\n{}", s.story()));
        }
    }
    host.power_dpu(false);
    s.until("the DPU is off, and the next one has the address", is_assigned).await?;
    host.power_dpu(true);
    s.scene.cut(&host.dpu_name, false);
    if !deleted {
        s.until("the machine has its disks again", |s| life::is_ready(s, "bm-01")).await?;
        s.delete(MACHINES, USER, "bm-01");
    }
    s.delete(VNICS, USER, "next");
    s.until("nothing is left", life::is_clean).await
}
