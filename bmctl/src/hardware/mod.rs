//! `bmctl hardware get`, `approve`, `erase`, `release`: servers, those that were discovered (`approve.rs`), what network boot has seen of
//! them (`seen.rs`), and what becomes of their disks when a machine gives them back.

mod approve;
mod seen;

pub use approve::{Approval, approve};

use crate::args::{HardwareChange, Output};
use crate::cluster::Cluster;
use crate::dpus::confirm;
use crate::failure::Failure;
use crate::output::{changed, dry, list, name_of};
use crate::table::{Table, age};
use api::tinkerbell::Hardware;
use api::{BareMetalMachine, labels};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use planner::enrol::is_unapproved;
use planner::erase::{Phase, Record, Report};
use planner::meta::annotation;
use serde_json::{Value, json};

async fn all(cluster: &Cluster) -> Result<Vec<Hardware>, Failure> {
    let found = Api::<Hardware>::all(cluster.client.clone()).list(&ListParams::default()).await;
    Ok(found.map_err(|error| Failure::from_kube(error, "the list of Hardware", cluster.program))?.items)
}

pub async fn get(cluster: &Cluster, names: &[String], output: Option<Output>) -> Result<String, Failure> {
    let mut hardware = all(cluster).await?;
    if let Some(unknown) = names.iter().find(|name| !hardware.iter().any(|there| there.name_any() == **name)) {
        return Err(not_found(cluster, unknown));
    }
    hardware.retain(|there| names.is_empty() || names.contains(&there.name_any()));
    match output {
        Some(Output::Name) => return Ok(hardware.iter().map(|one| format!("{}\n", name_of(one))).collect()),
        Some(output @ (Output::Json | Output::Yaml)) => return Ok(list(output, &hardware)?),
        Some(Output::Wide) | None => {}
    }
    let mut table = Table::new(&["NAME", "APPROVED", "CLAIMED-BY", "BOOT", "DISKS", "AGE"]);
    for one in &hardware {
        let of = |key| annotation(&one.metadata, key).unwrap_or_default().to_owned();
        let created = one.creation_timestamp().map_or(0, |at| jiff::Timestamp::now().as_second() - at.0.as_second());
        table.row(vec![
            one.name_any(),
            if is_unapproved(one) { "False" } else { "True" }.to_owned(),
            of(labels::CLAIMED_BY_NAME),
            of(labels::BOOT_STRATEGY),
            disks(one),
            age(created),
        ]);
    }
    let mut text = table.render();
    // Of servers that were asked for by name, all that is known of their disks, and what network boot has seen of them.
    for one in hardware.iter().filter(|_| !names.is_empty()) {
        for line in seen::seen(cluster, one).await? {
            text.push_str(&format!("\n{line}\n"));
        }
        if let Some(report) = Report::of(&one.metadata) {
            text.push_str(&format!("\n{}: {}\n", report.at, report.told(&one.name_any())));
        }
    }
    Ok(text)
}

/// What is done to the disks now, or was at the last release.
fn disks(hardware: &Hardware) -> String {
    let meta = &hardware.metadata;
    match (Record::of(meta).map(|record| record.phase), Report::of(meta)) {
        (Some(Phase::Begun), _) => "Erasing".to_owned(),
        (_, Some(report)) => report.result,
        (Some(phase), None) => phase.word().to_owned(),
        (None, None) => String::new(),
    }
}

fn not_found(cluster: &Cluster, name: &str) -> Failure {
    let next = format!("{} hardware get", cluster.program);
    Failure::NotFound { object: format!("Hardware '{name}'"), next }
}

/// One more try of an erasing that failed.
pub async fn erase(cluster: &Cluster, name: &str, asked: HardwareChange) -> Result<String, Failure> {
    let at = jiff::Timestamp::now().to_string();
    let erased = change(cluster, name, asked.dry_run, async |hardware| {
        match Record::of(&hardware.metadata).map(|record| record.phase) {
            Some(Phase::Begun) => Ok(annotated(labels::ERASE_REQUESTED_AT, &at)),
            _ => Err(refused(name, "nothing of it is being erased: its disks are erased when its machine is deleted")),
        }
    });
    let hardware = erased.await?;
    let told = || format!("{} is erased once more, if it has failed{}\n", name_of(&hardware), dry(asked.dry_run));
    Ok(changed(asked.output, &hardware, told)?)
}

/// An administrator's word that a server is released with the data on its disks.
pub async fn release(cluster: &Cluster, name: &str, yes: bool, asked: HardwareChange) -> Result<String, Failure> {
    let mut confirmed = yes;
    let released = change(cluster, name, asked.dry_run, async |hardware| {
        let Some(owner) = annotation(&hardware.metadata, labels::CLAIMED_BY) else {
            return Err(refused(name, "no machine has it: it is free"));
        };
        runs_not(cluster, hardware, owner).await?;
        if !confirmed {
            let question = format!(
                "The next machine on {name} can read what is on its disks. Type {name} to release it with that data: "
            );
            confirm("Hardware", name, &question)?;
            confirmed = true;
        }
        Ok(annotated(labels::RELEASE_WITH_DATA, owner))
    });
    let hardware = released.await?;
    let told = || format!("{} is released with the data on its disks{}\n", name_of(&hardware), dry(asked.dry_run));
    Ok(changed(asked.output, &hardware, told)?)
}

/// A machine that is not being deleted keeps its server, and what is said now would be forgotten by then.
async fn runs_not(cluster: &Cluster, hardware: &Hardware, owner: &str) -> Result<(), Failure> {
    let by = annotation(&hardware.metadata, labels::CLAIMED_BY_NAME).unwrap_or_default();
    let Some((namespace, machine)) = by.split_once('/') else { return Ok(()) };
    let machines: Api<BareMetalMachine> = Api::namespaced(cluster.client.clone(), namespace);
    let found = machines.get_opt(machine).await.map_err(|error| cluster.failure(error, machine))?;
    let runs =
        found.filter(|found| found.uid().as_deref() == Some(owner) && found.metadata.deletion_timestamp.is_none());
    match runs {
        None => Ok(()),
        Some(_) => Err(Failure::Told {
            object: format!("Hardware '{}'", hardware.name_any()),
            cause: format!("machine '{by}' has it and is not being deleted"),
            next: format!("kubectl delete bmm {machine} -n {namespace}"),
        }),
    }
}

fn refused(name: &str, cause: &str) -> Failure {
    Failure::Refused { object: format!("Hardware '{name}'"), cause: cause.to_owned() }
}

fn annotated(key: &str, value: &str) -> Value {
    json!({"metadata": {"annotations": {key: value}}})
}

/// A merge patch, of the version that was looked at. Claims are on Hardware of the inventory alone: of several of that name the one that
/// has a claim is meant.
async fn change(
    cluster: &Cluster,
    name: &str,
    dry_run: bool,
    mut patch: impl AsyncFnMut(&Hardware) -> Result<Value, Failure>,
) -> Result<Hardware, Failure> {
    let params = PatchParams { dry_run, field_manager: Some("bmctl".to_owned()), ..PatchParams::default() };
    loop {
        let mut found: Vec<Hardware> = all(cluster).await?.into_iter().filter(|one| one.name_any() == name).collect();
        found.sort_by_key(|one| annotation(&one.metadata, labels::CLAIMED_BY).is_none());
        let Some(hardware) = found.first() else { return Err(not_found(cluster, name)) };
        let mut patch = patch(hardware).await?;
        patch["metadata"]["uid"] = json!(hardware.uid());
        patch["metadata"]["resourceVersion"] = json!(hardware.resource_version());
        let api: Api<Hardware> = Api::namespaced(cluster.client.clone(), &hardware.namespace().unwrap_or_default());
        match api.patch(name, &params, &Patch::Merge(patch)).await {
            Ok(changed) => return Ok(changed),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(Failure::from_kube(error, &format!("Hardware '{name}'"), cluster.program)),
        }
    }
}
