//! `bmctl dpu get`, `bmctl dpu confirm-down`.

use crate::args::Output;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::output::{list, name_of};
use crate::table::{Table, age};
use api::Dpu;
use api::conditions::{self, READY};
use api::dpu::ConfirmedDown;
use api::labels::OUT_OF_SERVICE;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::io::{IsTerminal, Write};

async fn all(cluster: &Cluster) -> Result<Vec<Dpu>, Failure> {
    let dpus: Api<Dpu> = Api::all(cluster.client.clone());
    let found = dpus.list(&ListParams::default()).await;
    Ok(found.map_err(|e| Failure::from_kube(e, "the list of DPUs", cluster.program))?.items)
}

pub async fn get(cluster: &Cluster, output: Option<Output>) -> Result<String, Failure> {
    let dpus = all(cluster).await?;
    match output {
        Some(Output::Name) => return Ok(dpus.iter().map(|d| format!("{}\n", name_of(d))).collect()),
        Some(output @ (Output::Json | Output::Yaml)) => return Ok(list(output, &dpus)?),
        Some(Output::Wide) | None => {}
    }
    // The UID is what confirm-down takes; the rest is in `kubectl get dpu`.
    let mut table = Table::new(&["NAME", "READY", "HARDWARE", "UID", "AGE"]);
    for dpu in &dpus {
        let status = dpu.status.clone().unwrap_or_default();
        let created = dpu.creation_timestamp().map_or(0, |t| jiff::Timestamp::now().as_second() - t.0.as_second());
        table.row(vec![
            dpu.name_any(),
            conditions::get(&status.conditions, READY).map(|c| c.status.clone()).unwrap_or_default(),
            dpu.spec.hardware_ref.as_ref().map(|r| r.name.clone()).unwrap_or_default(),
            dpu.uid().unwrap_or_default(),
            age(created),
        ]);
    }
    Ok(table.render())
}

/// Writes `spec.confirmedDown` for the boot that the Dpu last reported (docs/design/fencing.md, *ConfirmedDownIsProof*).
///
/// The write carries the resourceVersion of what was looked at: an agent that comes back meanwhile, or reports another
/// boot, makes it a conflict, and everything is looked at again.
pub async fn confirm_down(cluster: &Cluster, uid: &str, yes: bool, dry_run: bool) -> Result<String, Failure> {
    let params = PatchParams { dry_run, field_manager: Some("bmctl".to_owned()), ..PatchParams::default() };
    let mut confirmed_boot = None;
    loop {
        let Some(dpu) = all(cluster).await?.into_iter().find(|d| d.uid().as_deref() == Some(uid)) else {
            let next = format!("{} dpu get", cluster.program);
            return Err(Failure::NotFound { object: format!("a Dpu with the UID '{uid}'"), next });
        };
        let name = dpu.name_any();
        let object = format!("Dpu '{name}'");
        let boot_id = silent_boot(&dpu, &object)?;
        if !yes && confirmed_boot.as_ref() != Some(&boot_id) {
            confirm(
                "Dpu",
                &name,
                &format!(
                    "If {name} still runs, two writers can destroy its volumes. Type its name to confirm that it is down: "
                ),
            )?;
        }
        confirmed_boot = Some(boot_id.clone());
        // A word of before a restore of etcd does not count after it: what stands there is taken back, and said anew.
        let stands = !dry_run && dpu.spec.confirmed_down.as_ref().is_some_and(|down| down.boot_id == boot_id);
        let down = (!stands).then(|| ConfirmedDown { boot_id: boot_id.clone() });
        let seen = json!({"uid": dpu.metadata.uid, "resourceVersion": dpu.metadata.resource_version});
        let word = Patch::Merge(json!({"metadata": seen, "spec": {"confirmedDown": down}}));
        match Api::<Dpu>::all(cluster.client.clone()).patch(&name, &params, &word).await {
            Ok(_) if stands => {}
            Ok(changed) => {
                let dry = if dry_run { " (server dry run)" } else { "" };
                let taint = taint(cluster, &name).await;
                return Ok(format!("{} confirmed down for boot {boot_id}{dry}\n{taint}", name_of(&changed)));
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(Failure::from_kube(error, &object, cluster.program)),
        }
    }
}

/// The boot to confirm; an agent that says anything, good or bad, is not down.
fn silent_boot(dpu: &Dpu, object: &str) -> Result<String, Failure> {
    let refused = |cause: &str| Failure::Refused { object: object.to_owned(), cause: cause.to_owned() };
    let status = dpu.status.clone().unwrap_or_default();
    let boot_id =
        status.boot_id.ok_or_else(|| refused("it never reported a bootID, so there is nothing to confirm"))?;
    match conditions::get(&status.conditions, READY).map(|ready| ready.status.as_str()) {
        Some("True" | "False") => Err(refused("its agent answers, so it is not down")),
        _ => Ok(boot_id),
    }
}

/// The other half of the proof: whether it is there, or how to give it.
async fn taint(cluster: &Cluster, node: &str) -> String {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    // Whoever may not read nodes is told the command.
    let found = nodes.get_opt(node).await.ok().flatten().and_then(|node| node.spec).and_then(|spec| spec.taints);
    if found.unwrap_or_default().iter().any(|taint| taint.key == OUT_OF_SERVICE) {
        return String::new();
    }
    format!(
        "It counts once its node has the taint: kubectl taint node {node} {OUT_OF_SERVICE}=nodeshutdown:NoExecute\n"
    )
}

/// Asks back; the answer is the object's name.
pub fn confirm(kind: &str, name: &str, question: &str) -> Result<(), Failure> {
    let refused = |cause: &str| Failure::Refused { object: format!("{kind} '{name}'"), cause: cause.to_owned() };
    if !std::io::stdin().is_terminal() {
        return Err(refused("give --yes to confirm without a terminal"));
    }
    eprint!("{question}");
    std::io::stderr().flush().map_err(anyhow::Error::from)?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(anyhow::Error::from)?;
    if answer.trim() == name { Ok(()) } else { Err(refused("not confirmed; nothing was changed")) }
}
