//! `bmctl hardware approve`: an administrator's word that a server that was discovered is one of the inventory's.

use super::{change, refused};
use crate::args::HardwareChange;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::output::{changed, dry, name_of};
use api::tinkerbell::{Hardware, Machine};
use api::{HardwareReport, labels};
use kube::{Api, ResourceExt};
use planner::enrol::is_unapproved;
use serde_json::{Value, json};

pub struct Approval<'a> {
    /// The bmc.tinkerbell.org Machine of its BMC.
    pub bmc: Option<&'a str>,
    /// What its agent has to have reported.
    pub serial_number: Option<&'a str>,
}

pub async fn approve(
    cluster: &Cluster,
    name: &str,
    approval: &Approval<'_>,
    asked: HardwareChange,
) -> Result<String, Failure> {
    let mut has_bmc = approval.bmc.is_some();
    let approved = change(cluster, name, asked.dry_run, async |hardware| {
        if !is_unapproved(hardware) {
            return Err(refused(name, "it is approved: no discovery waits for that"));
        }
        same_server(cluster, hardware, approval).await?;
        has_bmc |= hardware.spec.bmc_ref.is_some();
        let mut patch = json!({"metadata": {"labels": {labels::UNAPPROVED: Value::Null}}});
        if let Some(bmc) = approval.bmc {
            may_have(cluster, hardware, bmc).await?;
            patch["spec"] = json!({"bmcRef": {"apiGroup": "bmc.tinkerbell.org", "kind": "Machine", "name": bmc}});
        }
        Ok(patch)
    });
    let hardware = approved.await?;
    let next = if has_bmc { "" } else { "; it has no BMC yet, and no machine claims it before spec.bmcRef is written" };
    let told = || format!("{} approved{}{next}\n", name_of(&hardware), dry(asked.dry_run));
    Ok(changed(asked.output, &hardware, told)?)
}

/// The server in front of whoever has read its serial number is the one that has booted.
async fn same_server(cluster: &Cluster, hardware: &Hardware, approval: &Approval<'_>) -> Result<(), Failure> {
    let Some(wanted) = approval.serial_number else { return Ok(()) };
    let namespace = hardware.namespace().unwrap_or_default();
    let reports: Api<HardwareReport> = Api::namespaced(cluster.client.clone(), &namespace);
    let found = reports.get_opt(&hardware.name_any()).await;
    let found = found.map_err(|error| Failure::from_kube(error, "its HardwareReport", cluster.program))?;
    let attributes = found.and_then(|report| report.status?.attributes).unwrap_or_default();
    match attributes.serial_number() {
        Some(serial) if serial == wanted => Ok(()),
        Some(serial) => Err(refused(
            &hardware.name_any(),
            &format!("its agent reports the serial number '{serial}', not '{wanted}'"),
        )),
        None => Err(refused(&hardware.name_any(), "its agent reports no serial number")),
    }
}

/// A BMC is one server's: whoever has it powers that server off.
async fn may_have(cluster: &Cluster, hardware: &Hardware, bmc: &str) -> Result<(), Failure> {
    let namespace = hardware.namespace().unwrap_or_default();
    let machines: Api<Machine> = Api::namespaced(cluster.client.clone(), &namespace);
    let object = format!("Machine '{bmc}' (bmc.tinkerbell.org) in namespace '{namespace}'");
    let found = machines.get_opt(bmc).await.map_err(|error| Failure::from_kube(error, &object, cluster.program))?;
    if found.is_none() {
        return Err(Failure::NotFound {
            object,
            next: format!("kubectl get machines.bmc.tinkerbell.org -n {namespace}"),
        });
    }
    let of_it = |other: &Hardware| other.spec.bmc_ref.as_ref().is_some_and(|reference| reference.name == bmc);
    let other = super::all(cluster).await?.into_iter().find(|other| {
        other.namespace() == hardware.namespace() && other.name_any() != hardware.name_any() && of_it(other)
    });
    match other {
        Some(other) => {
            let cause = format!("Machine '{bmc}' is the BMC of Hardware '{}'", other.name_any());
            Err(refused(&hardware.name_any(), &cause))
        }
        None => Ok(()),
    }
}
