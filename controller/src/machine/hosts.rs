//! Commands to a claimed host. Right before each the claim is read from quorum: a machine that no longer has the host, or
//! is another one under the same name, commands nothing.

use crate::cache::key;
use crate::error::{Error, call};
use crate::objects;
use crate::{Controller, bmc};
use api::machine::BootStrategy;
use api::tinkerbell::Hardware;
use api::{BareMetalMachine, labels};
use jiff::Timestamp;
use planner::host::BootChange;
use planner::machine::action_name;
use planner::machine::observed::{Observed, annotation, name};
use planner::machine::plan::PowerOrder;
use planner::verbs::operation::HardwareVersion;
use ports::{ErrorClass, PortError};
use serde_json::json;
use std::sync::Arc;

/// The server that a plan commands, and the reading that the plan rests on.
pub(super) struct Commanded {
    hardware: String,
    /// The bmc.tinkerbell.org Machine that was read.
    bmc: Option<String>,
    read_at: Option<Timestamp>,
}

impl Commanded {
    pub(super) fn of(o: &Observed) -> Option<Self> {
        let hardware = planner::machine::claim::current(o)?;
        Some(Self {
            hardware: name(&hardware.metadata).to_owned(),
            bmc: bmc::of_server(hardware).map(str::to_owned),
            read_at: o.bmc.read_at,
        })
    }

    /// From quorum: this machine has that server, and its BMC is the one that was read.
    async fn confirm(&self, c: &Controller, machine: &BareMetalMachine) -> Result<Arc<bmc::Host>, Error> {
        let there = confirm_claim(c, machine, &self.hardware).await?;
        if bmc::of_server(&there) != self.bmc.as_deref() {
            let what = format!("get Hardware '{}'", self.hardware);
            c.world.hardware.put(there);
            return Err(Error::NotConfirmed { what, message: "its spec.bmcRef has changed".to_owned() });
        }
        let message = || format!("the BMC of '{}' has not been read yet", self.hardware);
        let host = self.bmc.as_deref().and_then(|bmc| c.hosts.named(bmc));
        host.ok_or_else(|| PortError::new(ErrorClass::Busy, message()).into())
    }
}

async fn confirm_claim(c: &Controller, machine: &BareMetalMachine, hardware: &str) -> Result<Hardware, Error> {
    let what = format!("get Hardware '{hardware}'");
    let there = call(&what, c.objects.namespaced::<Hardware>(&c.inventory).get(hardware)).await?;
    if annotation(&there.metadata, labels::CLAIMED_BY) == machine.metadata.uid.as_deref() {
        return Ok(there);
    }
    c.world.hardware.put(there);
    Err(Error::NotConfirmed { what, message: "this machine's claim is gone".to_owned() })
}

/// Sends a power action whose record has been written. What the BMC refused for certain is taken out of the record.
pub(super) async fn power(
    c: &Controller,
    machine: &Arc<BareMetalMachine>,
    commanded: &Commanded,
    order: &PowerOrder,
) -> Result<(), Error> {
    let (hardware, name) = (&commanded.hardware, action_name(order.action));
    let sent = async {
        let host = commanded.confirm(c, machine).await?;
        Ok::<(), Error>(host.power(order.action, commanded.read_at).await?)
    };
    match sent.await {
        Ok(()) => {
            tracing::info!(hardware, action = name, "power");
            c.metrics.power(name);
            c.events.tell(machine.as_ref(), "PowerCycled", &format!("sent {name} to '{hardware}'"));
            Ok(())
        }
        Err(Error::Bmc(error)) if error.class == ErrorClass::Unreachable => {
            // It may have been done: the next reading tells, the record stands.
            Err(error.into())
        }
        Err(error) => {
            take_back(c, machine).await?;
            Err(error)
        }
    }
}

/// The record is again what it was before.
async fn take_back(c: &Controller, before: &Arc<BareMetalMachine>) -> Result<(), Error> {
    let (namespace, name) = key(&before.metadata);
    let Some(current) = c.world.machines.get(&namespace, &name) else { return Ok(()) };
    let mut updated = BareMetalMachine::clone(&current);
    let old = before.status.clone().unwrap_or_default();
    if let Some(status) = &mut updated.status {
        status.power = old.power;
        status.last_restart_at = old.last_restart_at;
        status.power_on_attempts = old.power_on_attempts;
    }
    let api = c.objects.namespaced::<BareMetalMachine>(&namespace);
    objects::change_status(&api, &c.world.machines, &*current, &updated).await.map(drop)
}

pub(super) async fn configure_boot(
    c: &Controller,
    machine: &Arc<BareMetalMachine>,
    commanded: &Commanded,
    change: &BootChange,
) -> Result<(), Error> {
    let host = commanded.confirm(c, machine).await?;
    tracing::info!(hardware = commanded.hardware, ?change, "boot order");
    Ok(host.configure_boot(change, commanded.read_at).await?)
}

/// The claim and how the machine boots: annotations, by one compare-and-swap. What an earlier machine may have left there is none of
/// this one's.
pub(super) async fn claim(
    c: &Controller,
    machine: &BareMetalMachine,
    name: &str,
    uid: &str,
    resource_version: &str,
    strategy: BootStrategy,
) -> Result<(), Error> {
    let (namespace, machine_name) = key(&machine.metadata);
    let change = json!({"metadata": {"annotations": {
        labels::CLAIMED_BY: machine.metadata.uid,
        labels::CLAIMED_BY_NAME: format!("{namespace}/{machine_name}"),
        labels::BOOT_STRATEGY: planner::install::word(strategy),
        labels::INSTALL: null,
        labels::INSTALL_REQUEST: null,
    }}});
    annotate(c, name, uid, Some(resource_version), change).await
}

pub(super) async fn remember_boot_order(c: &Controller, name: &str, order: &str) -> Result<(), Error> {
    let there = seen(c, name)?;
    if annotation(&there.metadata, labels::BOOT_ORDER_BEFORE).is_some() {
        return Ok(());
    }
    let change = json!({"metadata": {"annotations": {labels::BOOT_ORDER_BEFORE: order}}});
    let (uid, version) = (there.metadata.uid.clone(), there.metadata.resource_version.clone());
    annotate(c, name, &uid.unwrap_or_default(), version.as_deref(), change).await
}

/// `None`: what is on record is taken off.
pub(super) async fn remember_boot_path(c: &Controller, name: &str, path: Option<&str>) -> Result<(), Error> {
    let there = seen(c, name)?;
    if annotation(&there.metadata, labels::BOOT_PATH) == path {
        return Ok(());
    }
    let change = json!({"metadata": {"annotations": {labels::BOOT_PATH: path}}});
    let (uid, version) = (there.metadata.uid.clone(), there.metadata.resource_version.clone());
    annotate(c, name, &uid.unwrap_or_default(), version.as_deref(), change).await
}

/// The claim on a second Hardware, which the machine moves to: marked for the migration.
pub(crate) async fn claim_target(
    c: &Controller,
    machine: &BareMetalMachine,
    hardware: &HardwareVersion,
    migration: &str,
) -> Result<(), Error> {
    let (namespace, machine_name) = key(&machine.metadata);
    let change = json!({"metadata": {"annotations": {
        labels::CLAIMED_BY: machine.metadata.uid,
        labels::CLAIMED_BY_NAME: format!("{namespace}/{machine_name}"),
        labels::CLAIMED_FOR: migration,
        labels::BOOT_STRATEGY: planner::install::word(BootStrategy::CloudDisk),
    }}});
    annotate(c, &hardware.name, &hardware.uid, Some(&hardware.resource_version), change).await
}

/// The mark goes, if it is this migration's.
pub(crate) async fn keep_target(c: &Controller, hardware: &str, migration: &str) -> Result<(), Error> {
    let there = seen(c, hardware)?;
    if annotation(&there.metadata, labels::CLAIMED_FOR) != Some(migration) {
        return Ok(());
    }
    let change = json!({"metadata": {"annotations": {labels::CLAIMED_FOR: null}}});
    let (uid, version) = (there.metadata.uid.clone(), there.metadata.resource_version.clone());
    annotate(c, hardware, &uid.unwrap_or_default(), version.as_deref(), change).await
}

/// One Hardware is given up for another, which must still be this machine's.
pub(super) async fn move_on(c: &Controller, machine: &BareMetalMachine, from: &str, to: &str) -> Result<(), Error> {
    confirm_claim(c, machine, to).await?;
    unclaim(c, machine, from).await
}

pub(crate) async fn unclaim(c: &Controller, machine: &BareMetalMachine, name: &str) -> Result<(), Error> {
    let there = seen(c, name)?;
    if annotation(&there.metadata, labels::CLAIMED_BY) != machine.metadata.uid.as_deref() {
        return Ok(());
    }
    let change = json!({"metadata": {"annotations": {
        labels::CLAIMED_BY: null,
        labels::CLAIMED_BY_NAME: null,
        labels::CLAIMED_FOR: null,
        labels::BOOT_STRATEGY: null,
        labels::INSTALL: null,
        labels::INSTALL_REQUEST: null,
        labels::BOOT_ORDER_BEFORE: null,
    }}});
    let (uid, version) = (there.metadata.uid.clone(), there.metadata.resource_version.clone());
    annotate(c, name, &uid.unwrap_or_default(), version.as_deref(), change).await
}

fn seen(c: &Controller, name: &str) -> Result<Arc<Hardware>, Error> {
    let what = format!("Hardware '{name}'");
    c.world.hardware.get(&c.inventory, name).ok_or(Error::NotFound { what })
}

async fn annotate(
    c: &Controller,
    name: &str,
    uid: &str,
    version: Option<&str>,
    change: serde_json::Value,
) -> Result<(), Error> {
    let api = c.objects.namespaced::<Hardware>(&c.inventory);
    objects::patch(&api, &c.world.hardware, name, uid, version, change).await.map(drop)
}
