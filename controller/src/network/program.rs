//! One VNic's port in OVN.

use super::{about, allowed as beside_own, away, chassis, subnet_of};
use crate::Controller;
use crate::cache::key;
use crate::clock;
use crate::error::{Error, call, found};
use crate::index::IndexKey;
use crate::objects;
use crate::work::Work;
use api::conditions::{IN_FORCE, PROGRAMMED};
use api::network::Programmed;
use api::{VNic, Vpc};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use planner::machine::observed::{name, uid};
use planner::network::barrier::{Known, Verdict};
use planner::network::port::{self, Observed, Parent};
use planner::network::rows::Port;
use planner::network::{admission, allowed, bound, desired, ready};
use planner::reason::Reason;
use runtime::queue::{Key, Next};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a group may tell of fewer chassis than it is on.
const COUNTED_WITHIN: Duration = Duration::from_secs(5);

/// What OVN has of it.
struct Written {
    programmed: Programmed,
    allowed: Vec<String>,
    in_force: Result<(), Reason>,
}

/// Writes it, then has it granted. That OVN has it is said with what comes of that, or after a moment (`bound::passes`).
pub(super) async fn reconcile(c: &Controller, key: &Key) -> Result<Next, Error> {
    let Some(vnic) = c.world.vnics.get(&key.0, &key.1) else {
        return Ok(Next::Wait);
    };
    let plan = plan(c, &c.network.as_written(&vnic));
    let Some(wanted) = plan.port else {
        if let Some(reason) = plan.reason {
            say(c, &vnic, None, Some(reason)).await?;
        }
        return Ok(Next::Wait);
    };
    let vnic = say_allowed_first(c, vnic, &wanted.allowed).await?;
    confirm_offered(c, &vnic, &wanted).await?;
    let (own, began) = (uid(&vnic.metadata), Instant::now());
    let rows = wanted.rows(c.network.site().unwrap_or_default());
    let attachments = c.world.nics.by(&IndexKey::owner(own));
    let under_grant = bound::is_granted(&c.network.as_written(&vnic), &attachments, plan.epoch);
    if under_grant && !bound::is_changing(&vnic) && c.network.differs(own, &rows).unwrap_or_default() {
        let said = ready::say(conditions(&vnic), IN_FORCE, Some(&bound::changing(&vnic)), &vnic.metadata, clock::now());
        patch(c, &vnic, json!({"conditions": said})).await?;
        c.world.look(Work::VNic, key.clone());
        return Ok(Next::Wait);
    }
    if !under_grant {
        // What the agent will say of this grant is of later rows than those.
        c.network.numbers.forget(own);
    }
    let changing = |commit| {
        if under_grant {
            c.network.commits(own, (Work::VNic, key.clone()), began, commit);
        }
    };
    match c.network.write(own, &rows, changing).await {
        Ok(()) => {
            c.network.tell_programmed(own);
            if plan.epoch.is_some() && !under_grant {
                // No event tells whoever grants it; where the answer was lost, the status does in a moment.
                c.world.granters_of(own);
            }
            tell_groups(c, &vnic, plan.epoch, &wanted);
            let programmed = Programmed { generation: vnic.metadata.generation, epoch: plan.epoch, nb_cfg: None };
            let chassis = wanted.binding.as_ref().map(|binding| binding.chassis.as_str());
            let (in_force, next) = in_force(c, &vnic, chassis, began)?;
            let written = Written { programmed, allowed: wanted.allowed, in_force };
            Ok(next.sooner(say(c, &vnic, Some(written), plan.reason).await?))
        }
        Err(error) => {
            if error.is_north_bound_away() {
                say(c, &vnic, None, Some(away(&error))).await?;
            }
            Err(error)
        }
    }
}

/// Its groups tell on how many chassis they are, and no row of theirs changes by a port that is bound: they count once, for all that are bound
/// meanwhile. Before the status says that it is: whoever dies in between tells them again.
fn tell_groups(c: &Controller, vnic: &VNic, epoch: Option<u64>, port: &Port) {
    let before = vnic.status.as_ref().and_then(|status| status.programmed.as_ref()?.epoch);
    let groups = port.groups.iter().filter(|_| before != epoch);
    for group in groups.flat_map(|group| c.world.groups.by(&IndexKey::uid(group))) {
        c.world.queue(Work::SecurityGroup).add_after(key(&group.metadata), COUNTED_WITHIN);
    }
}

fn conditions(vnic: &VNic) -> &[Condition] {
    vnic.status.as_ref().map_or(&[], |status| &status.conditions)
}

async fn patch(c: &Controller, vnic: &VNic, status: serde_json::Value) -> Result<VNic, Error> {
    let meta = &vnic.metadata;
    let api = c.objects.namespaced::<VNic>(meta.namespace.as_deref().unwrap_or_default());
    objects::patch_status(&api, &c.world.vnics, meta, status).await
}

/// Whether its rows are in force; asks for what has to be known for that.
fn in_force(
    c: &Controller,
    vnic: &VNic,
    chassis: Option<&str>,
    began: Instant,
) -> Result<(Result<(), Reason>, Next), Error> {
    let (network, own) = (&c.network, uid(&vnic.metadata));
    let known = network.numbers.known(own);
    let (known, since) = known.unwrap_or((Known::Nothing, began));
    let (installed, peers) = match bound::asks_chassis(vnic, known) {
        true => (network.installed(), peers(c, vnic)?),
        false => (Ok(BTreeMap::new()), BTreeSet::new()),
    };
    let concerned = || bound::concerned(chassis, &peers);
    let (said, verdict) = bound::judge(&bound::Observed {
        vnic,
        attachments: &c.world.nics.by(&IndexKey::owner(own)),
        chassis,
        peers: peers.clone(),
        known,
        number: network.number()?,
        installed: installed.as_ref().map_err(Clone::clone),
        elapsed: since.elapsed(),
    });
    let object = || (Work::VNic, key(&vnic.metadata));
    let next = match verdict {
        Some(Verdict::Ask(_)) => {
            network.ask(own, object(), began, known);
            Next::Wait
        }
        Some(Verdict::Lags { number, .. }) => {
            Next::After(network.wait_for_chassis(own, object(), number, concerned(), since))
        }
        Some(Verdict::InForce { .. }) => {
            network.settle_in_force(own, Work::VNic);
            Next::Wait
        }
        None => Next::Wait,
    };
    Ok((said, next))
}

/// The chassis of every member of a group of its Vpc that lets members of a group in: which groups the VNic was in before is not known.
fn peers(c: &Controller, vnic: &VNic) -> Result<BTreeSet<String>, Error> {
    let (namespace, subnet) = subnet_of(vnic);
    let Some(subnet) = c.world.subnets.get(&namespace, &subnet) else { return Ok(BTreeSet::new()) };
    let groups = c.world.groups.by(&IndexKey::names::<Vpc>(&namespace, admission::vpc_of(&subnet)));
    let mut all = BTreeSet::new();
    for group in groups.iter().filter(|group| desired::peers(group).next().is_some()) {
        all.extend(c.network.members(uid(&group.metadata))?.chassis);
    }
    Ok(all)
}

fn plan(c: &Controller, vnic: &VNic) -> port::Plan {
    let world = &c.world;
    let (namespace, subnet) = subnet_of(vnic);
    let of_subnet = (namespace.clone(), subnet.clone());
    let subnet = world.subnets.get(&namespace, &subnet);
    let vpc = subnet.as_ref().and_then(|subnet| world.vpcs.get(&namespace, admission::vpc_of(subnet)));
    let attachments = world.nics.by(&IndexKey::owner(uid(&vnic.metadata)));
    let holder = vnic.status.as_ref().and_then(|status| status.holder.as_ref());
    let node = holder.map(|holder| &holder.dpu_name).or(vnic.spec.node_name.as_ref());
    let dpu = node.and_then(|node| world.dpus.get("", node));
    let (subnet, vpc, dpu) = (subnet.as_deref(), vpc.as_deref(), dpu.as_deref());
    let parents = parents(c, vnic, &of_subnet);
    let own = key(&vnic.metadata);
    let by = (Work::VNic, &own);
    let taken = dpu.and_then(|dpu| chassis::taken(c, dpu, by));
    let lacked = dpu.and_then(|dpu| chassis::Needed::by(c, subnet.into_iter()).lacked(c, dpu, by));
    port::plan(
        &Observed { vnic, subnet, vpc, attachments: &attachments, dpu, parents, taken, lacked },
        |group| world.groups.get(&namespace, group),
        |address| world.vnics.by(&about(&of_subnet, address)),
    )
}

/// Others whose guests may have one of its addresses.
fn parents(c: &Controller, vnic: &VNic, subnet: &Key) -> Vec<Parent> {
    let mut all = BTreeSet::new();
    for address in vnic.status.iter().flat_map(|status| &status.addresses) {
        let others = c.world.vnics.by(&beside_own(subnet, address));
        let shares = |other: &&Arc<VNic>| {
            other.metadata.uid != vnic.metadata.uid && allowed::said(other).any(|said| said == address)
        };
        all.extend(others.iter().filter(shares).map(|other| {
            let attachments = c.world.nics.by(&IndexKey::owner(uid(&other.metadata)));
            let port = port::name_of(other, &attachments);
            Parent { port, vnic: name(&other.metadata).to_owned(), address: address.clone() }
        }));
    }
    all.into_iter().collect()
}

/// Whoever has one of the addresses waits for this VNic from now on.
async fn say_allowed_first(c: &Controller, vnic: Arc<VNic>, wanted: &[String]) -> Result<Arc<VNic>, Error> {
    let all: BTreeSet<String> = allowed::said(&vnic).chain(wanted).cloned().collect();
    if all.iter().eq(allowed::said(&vnic)) {
        return Ok(vnic);
    }
    Ok(Arc::new(patch(c, &vnic, json!({"allowedAddresses": all})).await?))
}

/// From quorum, before OVN lets a guest have an address of another VNic: that VNic is not being deleted, and no host has it. From now on
/// its deletion, and the binding of its port, wait for this one.
async fn confirm_offered(c: &Controller, vnic: &VNic, wanted: &Port) -> Result<(), Error> {
    let subnet = subnet_of(vnic);
    let rows = wanted.rows(c.network.site().unwrap_or_default());
    if wanted.allowed.is_empty() || !c.network.differs(uid(&vnic.metadata), &rows).unwrap_or(true) {
        return Ok(());
    }
    for address in &wanted.allowed {
        let owners = c.world.vnics.by(&about(&subnet, address));
        let is_other = |owner: &&Arc<VNic>| owner.metadata.uid != vnic.metadata.uid && allowed::offers(owner, address);
        let Some(owner) = owners.iter().find(is_other) else { continue };
        let meta = &owner.metadata;
        let what = format!("get VNic '{}'", name(meta));
        let there = found(call(&what, c.objects.namespaced::<VNic>(&subnet.0).get(name(meta))).await)?;
        if there.as_ref().is_some_and(|there| there.metadata.uid == meta.uid && allowed::shares(there, address)) {
            continue;
        }
        match there {
            Some(there) => c.world.vnics.put(there),
            None => c.world.vnics.forget(meta),
        }
        return Err(Error::NotConfirmed {
            what,
            message: "it is being deleted, was created again, or a host has it".to_owned(),
        });
    }
    Ok(())
}

/// `None`: what was said of the grant stays.
async fn say(
    c: &Controller,
    vnic: &Arc<VNic>,
    written: Option<Written>,
    reason: Option<Reason>,
) -> Result<Next, Error> {
    let (meta, now) = (&vnic.metadata, clock::now());
    let status = vnic.status.clone().unwrap_or_default();
    let passing = written.as_ref().filter(|written| reason.is_none() && written.allowed == status.allowed_addresses);
    let passing = passing.and_then(|written| written.in_force.as_ref().err());
    let passing = passing.filter(|in_force| bound::passes(vnic, Some(in_force))).map(Reason::name);
    let programmed = ready::say(&status.conditions, PROGRAMMED, reason.as_ref(), meta, now);
    let is_new = programmed.is_some();
    let mut said = programmed.unwrap_or_else(|| status.conditions.clone());
    let (programmed, allowed) = match written {
        Some(Written { programmed, allowed, in_force }) => {
            said = ready::say(&said, IN_FORCE, in_force.err().as_ref(), meta, now).unwrap_or(said);
            (Some(programmed), allowed)
        }
        None => (status.programmed.clone(), status.allowed_addresses.clone()),
    };
    bound::tell_metadata(&mut said, vnic, &c.world.nics.by(&IndexKey::owner(uid(meta))), now);
    if said == status.conditions && programmed == status.programmed && allowed == status.allowed_addresses {
        c.passing.forget(uid(meta), IN_FORCE);
        return Ok(Next::Wait);
    }
    if let Some(rest) = passing.and_then(|reason| c.passing.rest(uid(meta), IN_FORCE, reason)) {
        return Ok(Next::Unless(rest));
    }
    c.passing.forget(uid(meta), IN_FORCE);
    // What is left out of a merge patch would stay.
    let programmed = programmed.map(|said| json!({"generation": said.generation, "epoch": said.epoch}));
    let mut change = json!({"programmed": programmed, "conditions": said});
    if allowed != status.allowed_addresses {
        change["allowedAddresses"] = json!(allowed);
    }
    patch(c, vnic, change).await?;
    // No event tells whoever has an address that this one has no more.
    for address in &status.allowed_addresses {
        c.world.look_at_each(Work::VNic, &c.world.vnics, &about(&subnet_of(vnic), address));
    }
    if let Some(reason) = reason.filter(|_| is_new) {
        c.events.warn_why(vnic.as_ref(), &reason);
    }
    Ok(Next::Wait)
}
