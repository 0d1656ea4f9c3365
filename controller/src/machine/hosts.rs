//! Commands to a claimed host. Right before each the claim is read from quorum: a machine that no longer has the host, or
//! is another one under the same name, commands nothing.

use crate::cache::key;
use crate::error::Error;
use crate::objects;
use crate::{Controller, bmc};
use api::BareMetalMachine;
use api::tinkerbell::Hardware;
use executor::hosts::{confirm_claim, record_power};
use jiff::Timestamp;
use planner::boot_option::discovery::is_under_way;
use planner::host::{BootChange, MediumChange};
use planner::machine::action_name;
use planner::machine::leftovers;
use planner::machine::observed::{Belongings, Leftovers, Observed, name, uid};
use planner::machine::plan::{Disruptive, PowerOrder};
use ports::{ErrorClass, PortError};
use std::sync::Arc;

/// The server that a plan commands, and the reading that the plan rests on.
pub(crate) struct Commanded {
    hardware: String,
    /// The bmc.tinkerbell.org Machine that was read.
    bmc: Option<String>,
    read_at: Option<Timestamp>,
}

impl Commanded {
    pub(crate) fn of(o: &Observed) -> Option<Self> {
        planner::machine::claim::current(o).map(|hardware| Self::as_read(hardware, o))
    }

    fn as_read(hardware: &Hardware, own: &Belongings) -> Self {
        Self {
            hardware: name(&hardware.metadata).to_owned(),
            bmc: bmc::of_server(hardware).map(str::to_owned),
            read_at: own.bmc.read_at,
        }
    }

    /// From quorum: the machine with this UID has that server, and its BMC is the one that was read.
    pub(crate) async fn confirm(&self, c: &Controller, machine_uid: &str) -> Result<Arc<bmc::Host>, Error> {
        let there = confirm_claim(c, machine_uid, &self.hardware).await?;
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

/// The same for a machine that no longer exists, and for a Dpu that looks for its boot option: the record of a power action is on its Hardware.
pub(crate) async fn disrupt_for_gone(c: &Controller, left: &Leftovers, plan: &leftovers::Plan) -> Result<(), Error> {
    let server = leftovers::server(left);
    let Some((disruptive, there)) = plan.disruptive.as_ref().zip(server) else { return Ok(()) };
    let commanded = Commanded::as_read(there, &left.own);
    let (host, hardware) = (commanded.confirm(c, &left.of.uid).await?, &commanded.hardware);
    let whom = match is_under_way(&there.metadata) {
        true => "to find the boot option of its DPU",
        false => "of a machine that was deleted",
    };
    match disruptive {
        Disruptive::Power(order) => {
            record_power(c, there, &plan.power).await?;
            host.power(order.action, commanded.read_at).await?;
            let name = action_name(order.action);
            tracing::info!(hardware, action = name, "power, {whom}");
            c.metrics.power(name);
            c.events.tell(there, "PowerCycled", &format!("sent {name} to '{hardware}', {whom}"));
        }
        Disruptive::ConfigureBoot(change) => {
            tracing::info!(hardware, ?change, "boot order, {whom}");
            host.configure_boot(change, commanded.read_at).await?;
        }
        Disruptive::ChangeMedium(change) => {
            tracing::info!(hardware, %change, "virtual CD drive, {whom}");
            host.change_medium(change, commanded.read_at).await?;
        }
    }
    Ok(())
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
        let host = commanded.confirm(c, uid(&machine.metadata)).await?;
        Ok::<(), Error>(host.power(order.action, commanded.read_at).await?)
    };
    match sent.await {
        Ok(()) => {
            tracing::info!(hardware, action = name, "power");
            c.metrics.power(name);
            c.events.tell(
                machine.as_ref(),
                "PowerCycled",
                &format!("the controller has sent {name} to the BMC of '{hardware}'"),
            );
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
    let host = commanded.confirm(c, uid(&machine.metadata)).await?;
    tracing::info!(hardware = commanded.hardware, ?change, "boot order");
    Ok(host.configure_boot(change, commanded.read_at).await?)
}

pub(super) async fn change_medium(
    c: &Controller,
    machine: &Arc<BareMetalMachine>,
    commanded: &Commanded,
    change: &MediumChange,
) -> Result<(), Error> {
    let host = commanded.confirm(c, uid(&machine.metadata)).await?;
    tracing::info!(hardware = commanded.hardware, %change, "virtual CD drive");
    Ok(host.change_medium(change, commanded.read_at).await?)
}
