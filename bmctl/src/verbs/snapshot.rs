//! `snapshot create`, `snapshot list`, `snapshot delete`.

use super::args::{CreateSnapshot, DeleteSnapshots, ListSnapshots};
use super::making;
use crate::args::Output;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::output::{self, name_of};
use crate::table::{Table, age};
use api::MachineSnapshot;
use api::conditions::{self, READY};
use api::machine::DeletionPolicy;
use api::verbs::snapshot::{Consistency, MachineSnapshotSpec};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};

/// `bm-01-20261121-093000`: shortened, so that a disk's name has room behind it.
fn default_name(machine: &str) -> String {
    let machine: String = machine.chars().take(63).collect();
    format!("{machine}-{}", jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S"))
}

pub async fn create(cluster: &Cluster, args: &CreateSnapshot) -> Result<String, Failure> {
    // Rather an error now than an object that waits for a machine that was misspelt.
    cluster.machine(&args.machine).await?;
    let wanted = MachineSnapshot::new(
        &args.name.clone().unwrap_or_else(|| default_name(&args.machine)),
        MachineSnapshotSpec {
            machine_name: args.machine.clone(),
            consistency: if args.per_disk { Consistency::PerDisk } else { Consistency::Machine },
            volume_snapshot_class_name: args.volume_snapshot_class.clone(),
            volume_group_snapshot_class_name: args.volume_group_snapshot_class.clone(),
            deletion_policy: if args.retain { DeletionPolicy::Retain } else { DeletionPolicy::Delete },
        },
    );
    let done = if args.making.wait { "taken" } else { "submitted" };
    making::make(cluster, &args.making, &wanted, done).await
}

pub async fn list(cluster: &Cluster, args: &ListSnapshots) -> Result<String, Failure> {
    let all: Api<MachineSnapshot> =
        if args.all_namespaces { Api::all(cluster.client.clone()) } else { making::api(cluster) };
    let params = match &args.machine {
        Some(machine) => ListParams::default().fields(&format!("spec.machineName={machine}")),
        None => ListParams::default(),
    };
    let found = all.list(&params).await.map_err(|e| cluster.failure(e, ""))?.items;
    match args.output {
        Some(Output::Name) => Ok(found.iter().map(|s| format!("{}\n", name_of(s))).collect()),
        Some(output @ (Output::Json | Output::Yaml)) => Ok(output::list(output, &found)?),
        Some(Output::Wide) | None if found.is_empty() => {
            eprintln!("No snapshots found.");
            Ok(String::new())
        }
        Some(Output::Wide) | None => Ok(table(&found, args.all_namespaces, args.output.is_some())),
    }
}

fn table(snapshots: &[MachineSnapshot], namespaces: bool, wide: bool) -> String {
    let mut titles = vec!["NAME", "MACHINE", "READY", "REASON", "AGE"];
    if namespaces {
        titles.insert(0, "NAMESPACE");
    }
    if wide {
        titles.extend(["CONSISTENCY", "DISKS"]);
    }
    let mut table = Table::new(&titles);
    for snapshot in snapshots {
        let status = snapshot.status.clone().unwrap_or_default();
        let ready = conditions::get(&status.operation.conditions, READY);
        let created = snapshot.creation_timestamp().map_or(0, |t| jiff::Timestamp::now().as_second() - t.0.as_second());
        let mut cells = vec![
            snapshot.name_any(),
            snapshot.spec.machine_name.clone(),
            ready.map(|c| c.status.clone()).unwrap_or_default(),
            ready.map(|c| c.reason.clone()).unwrap_or_default(),
            age(created),
        ];
        if namespaces {
            cells.insert(0, snapshot.namespace().unwrap_or_default());
        }
        if wide {
            let disks: Vec<&str> = status.disks.iter().map(|disk| disk.name.as_str()).collect();
            cells.extend([status.consistency.map(|c| format!("{c:?}")).unwrap_or_default(), disks.join(",")]);
        }
        table.row(cells);
    }
    table.render()
}

pub async fn delete(cluster: &Cluster, args: &DeleteSnapshots) -> Result<String, Failure> {
    let params = DeleteParams { dry_run: args.dry_run, ..DeleteParams::default() };
    let mut text = String::new();
    for name in &args.names {
        let deleted = making::api::<MachineSnapshot>(cluster).delete(name, &params).await;
        deleted.map_err(|error| match error {
            kube::Error::Api(status) if status.code == 404 => Failure::NotFound {
                object: making::object::<MachineSnapshot>(cluster, name),
                next: format!("{} snapshot list", cluster.program),
            },
            error => Failure::from_kube(error, &making::object::<MachineSnapshot>(cluster, name), cluster.program),
        })?;
        let dry = if args.dry_run { " (server dry run)" } else { "" };
        text.push_str(&format!("machinesnapshot.metalplane.io/{name} deleted{dry}\n"));
    }
    Ok(text)
}
