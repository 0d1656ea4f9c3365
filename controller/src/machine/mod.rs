//! One machine: gather → plan → act → status, until there is nothing to do but wait.
//!
//! Actions of a plan are independent of each other and carried out at the same time ([`executor::act`]). Their answers are in the caches, so
//! the next round can begin at once. The status is written when a round has nothing to do, and before anything disruptive
//! is sent: with the record of that action, by compare-and-swap on the machine.

pub(crate) mod gather;
pub(crate) mod hosts;
mod taking;

use crate::Controller;
use crate::bmc::{Owner, Which};
use crate::cache::key;
use crate::clock;
use crate::error::Error;
use crate::objects;
use crate::work::Work;
use api::BareMetalMachine;
use executor::act;
use gather::Memo;
use planner::machine::{Action, BmcNeed, Disruptive, Observed, Plan};
use runtime::queue::{Key, Next};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A machine that is not settled after so many rounds lets others go first.
const ROUNDS: usize = 16;

pub async fn reconcile(c: &Controller, key: &Key) -> Result<Next, Error> {
    let (mut memo, owner) = (Memo::default(), Owner::Machine(key.clone()));
    for _ in 0..ROUNDS {
        let Some(machine) = c.world.machines.get(&key.0, &key.1) else {
            c.hosts.needs(&owner, &[]);
            c.world.placement.ended(key);
            return Ok(Next::Wait);
        };
        let o = gather::gather(c, machine.clone(), &mut memo).await?;
        let plan = planner::machine::plan(&o, clock::now());
        want_bmc(c, &owner, plan.status.hardware_name.as_deref(), (plan.bmc, &plan.dpu_bmcs));
        if plan.is_empty() {
            // What follows from the status is planned here: no event tells a machine of it (`echo.rs`).
            if write(c, &machine, &plan).await? {
                continue;
            }
            return Ok(Next::at(plan.wake_at));
        }
        let acted = act::all(c, act::Owner::Machine(&machine), &plan.actions).await;
        if let Err(error) = acted {
            // What is known is told, whatever failed. The error that matters is the first one.
            if let Err(second) = write(c, &machine, &plan).await {
                tracing::debug!(machine = %key.1, "{second}");
            }
            return Err(error);
        }
        for told in plan.actions.iter().filter_map(Action::told) {
            c.events.told(machine.as_ref(), &told);
        }
        if plan.actions.is_empty()
            && let Some(disruptive) = &plan.disruptive
        {
            disrupt(c, &o, &plan, disruptive).await?;
        }
    }
    c.world.look(Work::Machine, key.clone());
    Ok(Next::Wait)
}

/// The BMC of the owner's server, and those of DPUs whose agents are unresponsive.
pub(crate) fn want_bmc(
    c: &Controller,
    owner: &Owner,
    server: Option<&str>,
    (need, dpu_bmcs): (BmcNeed, &BTreeMap<String, BmcNeed>),
) {
    let server = server.map(|hardware| (Which::Server(hardware.to_owned()), need.max(BmcNeed::Slow)));
    let dpus = dpu_bmcs.iter().map(|(bmc, need)| (Which::Dpu(bmc.clone()), *need));
    c.hosts.needs(owner, &server.into_iter().chain(dpus).collect::<Vec<_>>());
}

/// Writes the status if it says anything new, and tells what became so. Whether it was written.
async fn write(c: &Controller, machine: &Arc<BareMetalMachine>, plan: &Plan) -> Result<bool, Error> {
    // The machine may have been written to in this round.
    let (namespace, name) = key(&machine.metadata);
    let Some(current) = c.world.machines.get(&namespace, &name) else { return Ok(false) };
    if current.metadata.uid != machine.metadata.uid || current.status.as_ref() == Some(&plan.status) {
        return Ok(false);
    }
    let mut updated = BareMetalMachine::clone(&current);
    updated.status = Some(plan.status.clone());
    let api = c.objects.namespaced::<BareMetalMachine>(&namespace);
    match objects::change_status(&api, &c.world.machines, &*current, &updated).await {
        Ok(_) => {}
        // The last finalizer went in this round.
        Err(Error::NotFound { .. }) => return Ok(false),
        Err(error) => return Err(error),
    }
    for told in &plan.tell {
        c.events.told(machine.as_ref(), told);
    }
    Ok(true)
}

/// The one disruptive action of a plan: first its record, then itself.
async fn disrupt(c: &Controller, o: &Observed, plan: &Plan, disruptive: &Disruptive) -> Result<(), Error> {
    let machine = &o.machine;
    // Nothing disruptive is planned without a server.
    let Some(commanded) = hosts::Commanded::of(o) else { return Ok(()) };
    // The plan rests on this very version of the machine: a newer one may say `paused`.
    let (namespace, name) = key(&machine.metadata);
    let current = c.world.machines.get(&namespace, &name);
    if current.is_none_or(|current| current.metadata.resource_version != machine.metadata.resource_version) {
        c.world.look(Work::Machine, (namespace, name));
        return Ok(());
    }
    write(c, machine, plan).await?;
    match disruptive {
        Disruptive::Power(order) => hosts::power(c, machine, &commanded, order).await,
        Disruptive::ConfigureBoot(change) => hosts::configure_boot(c, machine, &commanded, change).await,
        Disruptive::ChangeMedium(change) => hosts::change_medium(c, machine, &commanded, change).await,
    }
}
