//! What a choice of a server rests on.
//!
//! Of a machine that is new: one server that it may take, if there is one. The unclaimed ones are looked at one after the other, each as
//! a plan does it; so a choice costs what the looking at a few servers costs, however many there are. Where none will do, and for
//! whatever else has no server: the inventory, of which a plan says why.

use super::{Asked, bmc, dpus, namespace_labels, report, subnets, vnics};
use crate::Controller;
use crate::cache::key;
use crate::error::Error;
use crate::index::IndexKey;
use crate::machine::taking::Taking;
use crate::network::chassis;
use crate::work::Work;
use api::tinkerbell::Hardware;
use api::{BareMetalMachine, Dpu, HardwareReport, labels};
use planner::machine::observed::{Belongings, Observed, has_finalizer, name};
use planner::machine::{claim, foreign_workflow, netboot_mac};
use planner::reason::Reason;
use runtime::queue::Key;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Of a machine that has no server. Nobody else tries the one that is found before `taking` is dropped.
pub(super) async fn for_choice(c: &Controller, o: &mut Observed, taking: &mut Option<Taking>) -> Result<(), Error> {
    let machine = key(&o.machine.metadata);
    if !o.deleting() && !has_finalizer(&o.machine.metadata, labels::FINALIZER_MACHINE) {
        // It claims nothing before.
        return Ok(());
    }
    if claim::chooses(o) {
        let unassigned = dpus(c, c.world.dpus.by(&IndexKey::Unassigned)).await?;
        for hardware in claim::asked_for(o, c.world.hardware.by(&IndexKey::Unclaimed)) {
            let of_it = dpus(c, dpus_of(c, &hardware)).await?;
            o.own.dpus = of_it.into_iter().chain(unassigned.iter().cloned()).collect();
            o.own.hardware = vec![hardware.clone()];
            o.own.same_mac = same_mac(c, &o.own.hardware);
            o.unfit = unfit(c, (Work::Machine, &machine), o);
            o.busy = busy(c, &machine, &o.own.hardware);
            o.installed = installed(c, &machine, &o.own.hardware);
            o.reports = reports(c, o);
            if claim::finds(o) {
                *taking = Taking::begin(&c.world, name(&hardware.metadata), &machine);
                if taking.is_some() {
                    return Ok(());
                }
            }
        }
    }
    let all = c.world.hardware.all();
    (o.busy, o.installed) = (busy(c, &machine, &all), installed(c, &machine, &all));
    inventory(c, &mut o.own).await?;
    o.unfit = unfit(c, (Work::Machine, &machine), o);
    o.reports = reports(c, o);
    Ok(())
}

/// All servers and DPUs; of no BMC anything is read here.
pub(crate) async fn inventory(c: &Controller, own: &mut Belongings) -> Result<(), Error> {
    own.hardware = c.world.hardware.all();
    own.same_mac = same_mac(c, &own.hardware);
    own.dpus = dpus(c, c.world.dpus.all()).await?;
    Ok(())
}

fn dpus_of(c: &Controller, hardware: &Hardware) -> Vec<Arc<Dpu>> {
    c.world.dpus.by(&IndexKey::names::<Hardware>("", name(&hardware.metadata)))
}

/// Of a machine that this MachineMigration moves: the inventory, beside the machine and what is presented of it.
pub(crate) async fn for_move(c: &Controller, by: &Key, machine: Arc<BareMetalMachine>) -> Result<Observed, Error> {
    let owner = IndexKey::Owner(machine.metadata.uid.clone().unwrap_or_default());
    let namespace = machine.metadata.namespace.clone().unwrap_or_default();
    let world = &c.world;
    let own = Belongings {
        namespace_labels: namespace_labels(c, &namespace),
        policies: world.policies.all(),
        disk_attachments: world.disks.by(&owner),
        nic_attachments: world.nics.by(&owner),
        vnics: vnics(c, &owner, &namespace, &Asked::by(&machine).vnics),
        ..Belongings::default()
    };
    let mut o = Observed { own, machine, ..Observed::default() };
    let (machine, all) = (key(&o.machine.metadata), world.hardware.all());
    (o.busy, o.installed) = (busy(c, &machine, &all), installed(c, &machine, &all));
    inventory(c, &mut o.own).await?;
    o.subnets = subnets(c, &namespace, &o);
    o.unfit = unfit(c, (Work::MachineMigration, by), &o);
    o.bmc = bmc(c, claim::current(&o));
    Ok(o)
}

/// Of the servers that the choice is among, where the machine asks for the size of a local disk.
fn reports(c: &Controller, o: &Observed) -> BTreeMap<String, Arc<HardwareReport>> {
    if claim::asked_size(&o.machine.spec).is_none() {
        return BTreeMap::new();
    }
    let of = |hardware: &Arc<Hardware>| Some((name(&hardware.metadata).to_owned(), report(c, Some(hardware))?));
    o.hardware.iter().filter_map(of).collect()
}

/// Of each of these Hardware, by its name: that another one has the MAC address by which it boots from the network.
pub(crate) fn same_mac(c: &Controller, hardware: &[Arc<Hardware>]) -> BTreeMap<String, Reason> {
    let shared = |hardware: &Arc<Hardware>| Some((name(&hardware.metadata).to_owned(), shares_mac(c, hardware)?));
    hardware.iter().filter_map(shared).collect()
}

pub(crate) fn shares_mac(c: &Controller, hardware: &Hardware) -> Option<Reason> {
    let mac = netboot_mac(hardware)?;
    planner::netboot::same_mac(hardware, mac, c.world.hardware.by(&IndexKey::agent(mac)))
}

/// Of the Dpus that the choice is among: those on whose chassis the machine's VNics cannot be.
fn unfit(c: &Controller, by: (Work, &Key), o: &Observed) -> BTreeMap<String, Reason> {
    if o.subnets.is_empty() {
        return BTreeMap::new();
    }
    let needed = chassis::Needed::by(c, o.subnets.values().map(AsRef::as_ref));
    let of = |dpu: &Dpu| chassis::taken(c, dpu, by).or_else(|| needed.lacked(c, dpu, by));
    o.dpus.iter().filter_map(|seen| Some((seen.name().to_owned(), of(&seen.dpu)?))).collect()
}

/// The Workflow, Job or machine that has this server, or is about to, for one that is no machine.
pub(crate) fn busy_with(c: &Controller, hardware: &Arc<Hardware>) -> Option<String> {
    let (nobody, hardware) = (Key::default(), std::slice::from_ref(hardware));
    busy(c, &nobody, hardware).into_values().chain(installed(c, &nobody, hardware).into_values()).next()
}

/// By the name of a Hardware: the Workflow or Job that is no machine's and runs there, or another machine that is about to claim it.
fn busy(c: &Controller, machine: &Key, hardware: &[Arc<Hardware>]) -> BTreeMap<String, String> {
    let names = hardware.iter().map(|hardware| name(&hardware.metadata));
    let workflow = |name: &str| {
        let runs = foreign_workflow(&c.world.workflows.by(&IndexKey::names::<Hardware>("", name)));
        runs.map(|workflow| (name.to_owned(), format!("Workflow '{workflow}'")))
    };
    let job = |hardware: &Arc<Hardware>| {
        let job = crate::job::that_has(c, hardware)?;
        Some((name(&hardware.metadata).to_owned(), format!("Job '{}'", name(&job.metadata))))
    };
    let claim = |name: &str| {
        let by = c.world.placement.taken_by_other(name, machine)?;
        Some((name.to_owned(), format!("machine '{}/{}'", by.0, by.1)))
    };
    let claims = names.clone().filter_map(claim);
    names.filter_map(workflow).chain(hardware.iter().filter_map(job)).chain(claims).collect()
}

/// By the name of a Hardware: another machine that is installed there, and whose claim was lost with an earlier Hardware of that name. Its system
/// runs on.
fn installed(c: &Controller, machine: &Key, hardware: &[Arc<Hardware>]) -> BTreeMap<String, String> {
    let by = |hardware: &Arc<Hardware>| {
        let name = name(&hardware.metadata);
        let there = c.world.machines.by(&IndexKey::names::<Hardware>("", name));
        let by = there.iter().map(|there| key(&there.metadata)).find(|there| there != machine)?;
        Some((name.to_owned(), format!("BareMetalMachine '{}/{}', which a Workflow has installed there", by.0, by.1)))
    };
    hardware.iter().filter_map(by).collect()
}
