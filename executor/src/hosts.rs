//! The claim on a server, and what is noted on it meanwhile: annotations of its Hardware, by compare-and-swap.

use crate::verbs::what;
use crate::writes;
use crate::{Error, Shell, get, known, list, put};
use api::dpu::LocalDisks;
use api::machine::BootStrategy;
use api::tinkerbell::Hardware;
use api::{BareMetalMachine, NicAttachment, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use planner::boot_option::discovery::Record;
use planner::erase::PowerRecord;
use planner::meta::{annotation, name};
use planner::verbs::operation::HardwareVersion;
use serde_json::{Value, json};
use std::sync::Arc;

/// What stands beside a claim, and is of that claim alone.
const BESIDE_CLAIM: [&str; 9] = [
    labels::LOCAL_DISKS,
    labels::INSTALL,
    labels::INSTALL_REQUEST,
    labels::DISKS_SEEN,
    labels::SYSTEM_UUID,
    labels::ERASE,
    labels::ERASE_REQUESTED_AT,
    labels::ERASE_POWER,
    labels::RELEASE_WITH_DATA,
];

/// Without what another claim has left: of that a change of annotations keeps what it sets itself.
fn alone(mut change: Value) -> Value {
    let annotations = &mut change["metadata"]["annotations"];
    for key in BESIDE_CLAIM {
        if annotations.get(key).is_none() {
            annotations[key] = Value::Null;
        }
    }
    change
}

/// From quorum: the machine with this UID has that server.
pub async fn confirm_claim(c: &impl Shell, machine_uid: &str, hardware: &str) -> Result<Hardware, Error> {
    let there = get::<Hardware>(c, c.inventory(), hardware).await?;
    if annotation(&there.metadata, labels::CLAIMED_BY) == Some(machine_uid) {
        return Ok(there);
    }
    put(c, there);
    let what = what::<Hardware>("get", hardware);
    Err(Error::NotConfirmed { what, message: "the claim of this machine no longer exists".to_owned() })
}

/// The claim and how the machine boots: annotations, by one compare-and-swap. What an earlier machine may have left there is none of
/// this one's.
pub async fn claim(
    c: &impl Shell,
    machine: &BareMetalMachine,
    name: &str,
    uid: &str,
    resource_version: &str,
    (strategy, local_disks): (BootStrategy, LocalDisks),
) -> Result<(), Error> {
    let local_disks = (local_disks == LocalDisks::Erase).then_some("Erase");
    let change = json!({"metadata": {"annotations": {
        labels::CLAIMED_BY: machine.metadata.uid,
        labels::CLAIMED_BY_NAME: full_name(machine),
        labels::BOOT_STRATEGY: planner::install::word(strategy),
        labels::LOCAL_DISKS: local_disks,
        labels::ERASE_REPORT: null,
    }}});
    annotate(c, &version(c, name, uid, resource_version), alone(change)).await
}

/// That a DPU is in that server, for when no Dpu says so any more: in the version that was seen, in which nothing said it.
pub async fn remember_dpu(c: &impl Shell, hardware: &Hardware, dpu: &str) -> Result<(), Error> {
    annotate(c, &hardware.metadata, json!({"metadata": {"annotations": {labels::HAD_DPU: dpu}}})).await
}

/// The claim of a Dpu that looks for its boot option: in the version that was seen, as a machine's.
pub async fn claim_for_discovery(c: &impl Shell, dpu: &str, hardware: &Hardware, record: &Record) -> Result<(), Error> {
    let change = json!({"metadata": {"annotations": {
        labels::CLAIMED_BY: record.dpu,
        labels::CLAIMED_BY_NAME: format!("Dpu '{dpu}'"),
        labels::BOOT_STRATEGY: labels::DISCOVERY,
        labels::BOOT_DISCOVERY: record.text(),
    }}});
    annotate(c, &hardware.metadata, alone(change)).await
}

/// How it ended, while the server is still claimed for it.
pub async fn record_discovery(c: &impl Shell, dpu_uid: &str, name: &str, record: &Record) -> Result<(), Error> {
    let there = seen(c, name)?;
    if annotation(&there.metadata, labels::CLAIMED_BY) != Some(dpu_uid) {
        return Ok(());
    }
    let change = json!({"metadata": {"annotations": {labels::BOOT_DISCOVERY: record.text()}}});
    annotate(c, &there.metadata, change).await
}

pub async fn remember_boot_order(c: &impl Shell, name: &str, order: &str) -> Result<(), Error> {
    let there = seen(c, name)?;
    if annotation(&there.metadata, labels::BOOT_ORDER_BEFORE).is_some() {
        return Ok(());
    }
    let change = json!({"metadata": {"annotations": {labels::BOOT_ORDER_BEFORE: order}}});
    annotate(c, &there.metadata, change).await
}

/// `None`: what is on record is taken off.
pub async fn remember_boot_path(c: &impl Shell, name: &str, path: Option<&str>) -> Result<(), Error> {
    remember(c, name, labels::BOOT_PATH, path).await
}

pub async fn remember_netboot(c: &impl Shell, name: &str, by: Option<&str>) -> Result<(), Error> {
    remember(c, name, labels::NETBOOT_BY, by).await
}

pub async fn remember_system_uuid(c: &impl Shell, name: &str, uuid: Option<&str>) -> Result<(), Error> {
    remember(c, name, labels::SYSTEM_UUID, uuid).await
}

async fn remember(c: &impl Shell, name: &str, key: &str, value: Option<&str>) -> Result<(), Error> {
    let there = seen(c, name)?;
    if annotation(&there.metadata, key) == value {
        return Ok(());
    }
    annotate(c, &there.metadata, json!({"metadata": {"annotations": {key: value}}})).await
}

/// The claim on a second Hardware, which the machine moves to: marked for the migration.
pub async fn claim_target(
    c: &impl Shell,
    machine: &BareMetalMachine,
    hardware: &HardwareVersion,
    migration: &str,
) -> Result<(), Error> {
    let change = json!({"metadata": {"annotations": {
        labels::CLAIMED_BY: machine.metadata.uid,
        labels::CLAIMED_BY_NAME: full_name(machine),
        labels::CLAIMED_FOR: migration,
        labels::BOOT_STRATEGY: planner::install::word(BootStrategy::CloudDisk),
        labels::ERASE_REPORT: null,
    }}});
    annotate(c, &version(c, &hardware.name, &hardware.uid, &hardware.resource_version), change).await
}

/// The mark goes, if it is this migration's.
pub async fn keep_target(c: &impl Shell, hardware: &str, migration: &str) -> Result<(), Error> {
    let there = seen(c, hardware)?;
    if annotation(&there.metadata, labels::CLAIMED_FOR) != Some(migration) {
        return Ok(());
    }
    let change = json!({"metadata": {"annotations": {labels::CLAIMED_FOR: null}}});
    annotate(c, &there.metadata, change).await
}

/// One Hardware is given up for another, which must still be this machine's.
pub async fn move_on(c: &impl Shell, machine_uid: &str, from: &str, to: &str) -> Result<(), Error> {
    confirm_claim(c, machine_uid, to).await?;
    unclaim(c, machine_uid, from).await
}

/// Of a machine that no longer exists: the record of a power action, before that is sent. A machine that exists has it in its status.
pub async fn record_power(c: &impl Shell, hardware: &Hardware, power: &PowerRecord) -> Result<(), Error> {
    annotate(c, &hardware.metadata, json!({"metadata": {"annotations": {labels::ERASE_POWER: power.text()}}})).await
}

pub async fn unclaim(c: &impl Shell, machine_uid: &str, name: &str) -> Result<(), Error> {
    let there = seen(c, name)?;
    if annotation(&there.metadata, labels::CLAIMED_BY) != Some(machine_uid) {
        return Ok(());
    }
    confirm_no_pod_nics(c, machine_uid).await?;
    if planner::erase::is_owed(&there.metadata) {
        let message = "its disks are not erased".to_owned();
        return Err(Error::NotConfirmed { what: what::<Hardware>("release", name), message });
    }
    let change = json!({"metadata": {"annotations": {
        labels::CLAIMED_BY: null,
        labels::CLAIMED_BY_NAME: null,
        labels::CLAIMED_FOR: null,
        labels::BOOT_STRATEGY: null,
        labels::BOOT_ORDER_BEFORE: null,
    }}});
    annotate(c, &there.metadata, alone(change)).await
}

/// From quorum: no pod that runs on the machine has a NIC there. The machine was marked as leaving before, so none is granted any more
/// ([`crate::nics::grant_worker`]).
async fn confirm_no_pod_nics(c: &impl Shell, machine_uid: &str) -> Result<(), Error> {
    let all = list::<NicAttachment>(c, Some((labels::WORKER_UID, machine_uid))).await?;
    let Some(pod) = all.first().map(|nic| nic.spec.owner.name.clone()) else { return Ok(()) };
    all.into_iter().for_each(|nic| put(c, nic));
    let what = "list NicAttachments of pods on the machine".to_owned();
    Err(Error::NotConfirmed { what, message: format!("Pod '{pod}' has one") })
}

fn full_name(machine: &BareMetalMachine) -> String {
    format!("{}/{}", machine.metadata.namespace.as_deref().unwrap_or_default(), name(&machine.metadata))
}

pub(crate) fn version(c: &impl Shell, name: &str, uid: &str, resource_version: &str) -> ObjectMeta {
    ObjectMeta {
        namespace: Some(c.inventory().to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        resource_version: Some(resource_version.to_owned()),
        ..ObjectMeta::default()
    }
}

fn seen(c: &impl Shell, name: &str) -> Result<Arc<Hardware>, Error> {
    let what = format!("Hardware '{name}'");
    known(c, c.inventory(), name).ok_or(Error::NotFound { what })
}

async fn annotate(c: &impl Shell, seen: &ObjectMeta, change: Value) -> Result<(), Error> {
    writes::patch::<Hardware>(c, seen, change).await.map(drop)
}
