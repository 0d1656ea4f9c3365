//! `bmctl dpu get`, `bmctl dpu confirm-down`.

use crate::args::Output;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::output::{list, name_of};
use crate::table::{Table, age};
use api::Dpu;
use api::conditions::{self, READY};
use api::dpu::ConfirmedDown;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
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
    let mut table = Table::new(&["NAME", "READY", "HARDWARE", "POWER-DOMAIN", "APPROVED", "UID", "AGE"]);
    for dpu in &dpus {
        let status = dpu.status.clone().unwrap_or_default();
        let created = dpu.creation_timestamp().map_or(0, |t| jiff::Timestamp::now().as_second() - t.0.as_second());
        table.row(vec![
            dpu.name_any(),
            conditions::get(&status.conditions, READY).map(|c| c.status.clone()).unwrap_or_default(),
            dpu.spec.hardware_ref.as_ref().map(|r| r.name.clone()).unwrap_or_default(),
            format!("{:?}", dpu.spec.power_domain),
            dpu.spec.approved.to_string(),
            dpu.uid().unwrap_or_default(),
            age(created),
        ]);
    }
    Ok(table.render())
}

/// Writes `spec.confirmedDown` for the boot that the Dpu last reported (docs/design/fencing.md, step 13).
pub async fn confirm_down(cluster: &Cluster, uid: &str, yes: bool) -> Result<String, Failure> {
    let dpus = all(cluster).await?;
    let Some(mut dpu) = dpus.into_iter().find(|d| d.uid().as_deref() == Some(uid)) else {
        let next = format!("{} dpu get", cluster.program);
        return Err(Failure::NotFound { object: format!("a Dpu with the UID '{uid}'"), next });
    };
    let name = dpu.name_any();
    let object = format!("Dpu '{name}'");
    let status = dpu.status.clone().unwrap_or_default();
    if conditions::is_true(&status.conditions, READY) {
        let cause = "its agent answers, so it is not down".to_owned();
        return Err(Failure::Refused { object, cause });
    }
    let Some(boot_id) = status.boot_id else {
        return Err(Failure::Refused {
            object,
            cause: "it never reported a bootID, so there is nothing to confirm".to_owned(),
        });
    };
    if !yes {
        confirm(&name)?;
    }
    dpu.spec.confirmed_down = Some(ConfirmedDown { boot_id: boot_id.clone() });
    let params = PostParams { field_manager: Some("bmctl".to_owned()), ..PostParams::default() };
    let changed = Api::<Dpu>::all(cluster.client.clone()).replace(&name, &params, &dpu).await;
    let changed = changed.map_err(|e| Failure::from_kube(e, &object, cluster.program))?;
    Ok(format!(
        "{} confirmed down for boot {boot_id}\nIts node also needs the taint: kubectl taint node {name} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute\n",
        name_of(&changed)
    ))
}

fn confirm(name: &str) -> Result<(), Failure> {
    let refused = |cause: &str| Failure::Refused { object: format!("Dpu '{name}'"), cause: cause.to_owned() };
    if !std::io::stdin().is_terminal() {
        return Err(refused("give --yes to confirm without a terminal"));
    }
    eprint!("If {name} still runs, two writers can destroy its volumes. Type its name to confirm that it is down: ");
    std::io::stderr().flush().map_err(anyhow::Error::from)?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(anyhow::Error::from)?;
    if answer.trim() == name { Ok(()) } else { Err(refused("not confirmed; nothing was changed")) }
}
