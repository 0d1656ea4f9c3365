//! `bmctl get`: the machines, in the columns of `kubectl get bmm`.

use crate::args::{Get, Output};
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::output::{list, name_of, structured};
use crate::table::{Table, age};
use api::BareMetalMachine;
use api::conditions::{self, READY};
use kube::api::ListParams;
use kube::{Api, ResourceExt};

pub async fn run(cluster: &Cluster, args: &Get) -> Result<String, Failure> {
    let machines: Api<BareMetalMachine> =
        if args.all_namespaces { Api::all(cluster.client.clone()) } else { cluster.machines() };
    let mut found = Vec::new();
    if args.machines.is_empty() {
        let params = ListParams { label_selector: args.selector.clone(), ..ListParams::default() };
        found = machines.list(&params).await.map_err(|e| cluster.failure(e, ""))?.items;
    }
    for name in &args.machines {
        found.push(cluster.machine(name).await?);
    }
    match args.output {
        Some(Output::Name) => Ok(found.iter().map(|m| format!("{}\n", name_of(m))).collect()),
        Some(output @ (Output::Json | Output::Yaml)) if args.machines.len() == 1 => Ok(structured(output, &found[0])?),
        Some(output @ (Output::Json | Output::Yaml)) => Ok(list(output, &found)?),
        Some(Output::Wide) | None if found.is_empty() => {
            eprintln!(
                "No machines found in {}.",
                if args.all_namespaces { "any namespace" } else { &cluster.namespace }
            );
            Ok(String::new())
        }
        Some(Output::Wide) | None => Ok(table(&found, args.all_namespaces, args.output.is_some())),
    }
}

fn table(machines: &[BareMetalMachine], namespaces: bool, wide: bool) -> String {
    let mut titles = vec!["NAME", "STATE", "READY", "ADDRESS", "HARDWARE", "AGE"];
    if namespaces {
        titles.insert(0, "NAMESPACE");
    }
    if wide {
        titles.extend(["POWER", "DPU", "IMAGE", "REASON"]);
    }
    let mut table = Table::new(&titles);
    for machine in machines {
        table.row(row(machine, namespaces, wide));
    }
    table.render()
}

fn row(machine: &BareMetalMachine, namespaces: bool, wide: bool) -> Vec<String> {
    let status = machine.status.clone().unwrap_or_default();
    let ready = conditions::get(&status.conditions, READY);
    let created = machine.creation_timestamp().map_or(0, |t| jiff::Timestamp::now().as_second() - t.0.as_second());
    let mut cells = vec![
        machine.name_any(),
        status.state.map(|s| format!("{s:?}")).unwrap_or_default(),
        ready.map(|c| c.status.clone()).unwrap_or_default(),
        status.addresses.first().map(|a| a.address.clone()).unwrap_or_default(),
        status.hardware_name.clone().unwrap_or_default(),
        age(created),
    ];
    if namespaces {
        cells.insert(0, machine.namespace().unwrap_or_default());
    }
    if wide {
        let image = machine.spec.disks.iter().find(|d| d.boot_order == Some(1)).and_then(|d| d.source.image.as_ref());
        cells.extend([
            status.power.map(|p| p.state).unwrap_or_default(),
            status.disks.first().and_then(|d| d.dpu_name.clone()).unwrap_or_default(),
            image.map(|i| i.name.clone()).unwrap_or_default(),
            ready.map(|c| c.reason.clone()).unwrap_or_default(),
        ]);
    }
    cells
}
