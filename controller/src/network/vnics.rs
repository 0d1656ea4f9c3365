//! One VNic: gather → plan → act → status, until there is nothing to do but wait.

use super::{about, deleted, holds_of, orphaned, subnet_of, unassigned};
use crate::Controller;
use crate::clock;
use crate::error::{Error, call, found};
use crate::index::IndexKey;
use crate::objects;
use crate::work::Work;
use crate::world::Kind;
use api::conditions::DELETABLE;
use api::{AddressHold, NicAttachment, Subnet, VNic, labels};
use kube::Api;
use kube::api::ListParams;
use planner::machine::observed::{has_finalizer, name, uid};
use planner::network::addresses::{self, Action, Observed, Plan};
use planner::network::pool::Pool;
use planner::network::{admission, allowed, provider};
use planner::reason::{Reason, Waiting};
use runtime::queue::{Key, Next};
use serde_json::json;
use std::sync::Arc;

/// A VNic that is not settled after so many rounds lets others go first.
const ROUNDS: usize = 16;

/// Until it has written nothing: no event tells a VNic of what it wrote itself (`echo.rs`).
pub(crate) async fn reconcile(c: &Controller, key: &Key) -> Result<Next, Error> {
    orphaned::collect(c, key).await?;
    let version = || Some(c.world.vnics.get(&key.0, &key.1)?.metadata.resource_version.clone());
    for _ in 0..ROUNDS {
        let before = version();
        let next = rounds(c, key).await?;
        if let Some(wait) = c.network.starting() {
            return Ok(next.sooner(Next::After(wait)));
        }
        let next = next.sooner(super::program::reconcile(c, key).await?);
        if version() == before {
            return Ok(next);
        }
    }
    c.world.look(Work::VNic, key.clone());
    Ok(Next::Wait)
}

pub(super) async fn rounds(c: &Controller, key: &Key) -> Result<Next, Error> {
    let mut is_listed = false;
    for _ in 0..ROUNDS {
        let Some(vnic) = c.world.vnics.get(&key.0, &key.1) else { return Ok(Next::Wait) };
        let o = Observed { is_listed, ..gather(c, vnic).await? };
        let plan = plan(c, &o);
        if plan.actions.is_empty() {
            if let Some(Reason::Waiting(Waiting::AddressShownElsewhere { .. })) = &plan.reason {
                c.world.told_of_chassis.add(Work::VNic, key);
            }
            let told = write(c, &o, &plan).await?;
            return Ok(Next::at(plan.wake_at).sooner(told));
        }
        let releases = |action: &Action| matches!(action, Action::DeleteAddressHold(_) | Action::Unprotect);
        if plan.actions.iter().any(releases) {
            confirm_unused(c, &o.vnic).await?;
            let before = o.vnic.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
            // Whoever has one of its addresses beside it has first to be written too.
            deleted(c, &c.world.vnics, o.vnic.as_ref(), &before, c.network.is_there()).await?;
            confirm_untranslated(c, &o.vnic)?;
            confirm_unshared(c, &o.vnic)?;
            // Its addresses are nobody's only once OVN has no port with them.
            let cleared = c.network.clear(uid(&o.vnic.metadata)).await;
            deleted(c, &c.world.vnics, o.vnic.as_ref(), &before, cleared).await?;
        }
        for action in &plan.actions {
            act(c, &o, action).await?;
        }
        is_listed |= plan.actions.contains(&Action::ListAddressHolds);
    }
    c.world.look(Work::VNic, key.clone());
    Ok(Next::Wait)
}

fn plan(c: &Controller, o: &Observed) -> Plan {
    let now = clock::now();
    match &o.subnet {
        Some(subnet) => c.world.pools.with(uid(&subnet.metadata), |pool| addresses::plan(o, pool, now)),
        None => addresses::plan(o, &Pool::default(), now),
    }
}

async fn gather(c: &Controller, vnic: Arc<VNic>) -> Result<Observed, Error> {
    let (world, own, subnet_key) = (&c.world, uid(&vnic.metadata).to_owned(), subnet_of(&vnic));
    let subnet = world.subnets.get(&subnet_key.0, &subnet_key.1);
    let provider = subnet.as_ref().and_then(|subnet| subnet.spec.provider_network.as_ref());
    let provider = provider.and_then(|provider| world.provider_networks.get("", provider));
    let interests = addresses::interests(&vnic);
    let networks = provider.as_ref().map(|_| world.provider_networks.all()).unwrap_or_default();
    let mut holds = world.address_holds.by(&IndexKey::owner(&own));
    if let Some(subnet) = &subnet {
        let of_interest = |address: &String| holds_of(c, (&subnet.metadata, provider.as_deref()), &networks, address);
        let of_interest = interests.iter().flat_map(of_interest);
        holds.extend(of_interest.filter(|hold| hold.spec.owner.uid != own));
    }
    if let Some(provider) = provider.as_deref().filter(|_| addresses::chooses(&vnic)) {
        let beside = networks.iter().filter(|other| provider::is_beside(provider, other));
        for other in beside.flat_map(|other| provider::held_for(other)) {
            let held = world.address_holds.by(&IndexKey::owner(other));
            holds.extend(held.into_iter().filter(|hold| hold.spec.owner.uid != own));
        }
    }
    let mut rivals: Vec<Arc<VNic>> = Vec::new();
    let without_hold = addresses::chooses(&vnic).then(|| world.vnics.by(&unassigned(&subnet_key)));
    let of_interest = interests.iter().flat_map(|address| world.vnics.by(&about(&subnet_key, address)));
    for rival in of_interest.chain(without_hold.into_iter().flatten()) {
        if uid(&rival.metadata) != own && !rivals.iter().any(|known| known.metadata.uid == rival.metadata.uid) {
            rivals.push(rival);
        }
    }
    let refused = subnet.as_ref().and_then(|subnet| {
        let vpc = world.vpcs.get(&subnet_key.0, admission::vpc_of(subnet));
        admission::refused(subnet, vpc.as_deref(), provider.as_deref(), networks.iter().map(AsRef::as_ref))
    });
    let attachments = world.nics.by(&IndexKey::owner(&own));
    let orphans = crate::orphans::nics(c).await?;
    Ok(Observed { vnic, subnet, provider, refused, holds, rivals, attachments, orphans, is_listed: false })
}

async fn act(c: &Controller, o: &Observed, action: &Action) -> Result<(), Error> {
    match action {
        Action::ProtectSubnet => match &o.subnet {
            Some(subnet) => objects::keep(&c.objects, &c.world.subnets, &subnet.metadata, true).await,
            None => Ok(()),
        },
        Action::Protect => objects::keep(&c.objects, &c.world.vnics, &o.vnic.metadata, true).await,
        Action::CreateAddressHold(hold) => {
            c.world.pools.expect(hold);
            let created = create(c, o, hold).await;
            match &created {
                Ok(there) => c.world.note(there),
                Err(_) => c.world.note(hold),
            };
            created.map(drop)
        }
        Action::ListAddressHolds => list(c, o).await,
        Action::DropAddressHold(hold) => {
            confirm_surplus(c, &o.vnic, hold).await?;
            delete(c, hold).await
        }
        Action::DeleteAddressHold(hold) => delete(c, hold).await,
        Action::Unprotect => objects::keep(&c.objects, &c.world.vnics, &o.vnic.metadata, false).await,
    }
}

/// Whose it is, is what the next round looks at.
async fn create(c: &Controller, o: &Observed, hold: &AddressHold) -> Result<AddressHold, Error> {
    confirm_subnet(c, o).await?;
    super::sweep::before_a_hold(c).await?;
    objects::create(&c.objects.cluster(), &c.world.address_holds, hold, |_| true).await
}

/// The Subnet's holds, from quorum.
async fn list(c: &Controller, o: &Observed) -> Result<(), Error> {
    let Some(subnet) = o.subnet.as_ref().map(|subnet| &subnet.metadata) else { return Ok(()) };
    let what = format!("list AddressHolds of Subnet '{}'", name(subnet));
    let all = call(&what, c.objects.cluster::<AddressHold>().list(&ListParams::default())).await?.items;
    c.world.pools.replace(uid(subnet), all.iter().filter(|hold| hold.spec.subnet.uid == uid(subnet)));
    Ok(())
}

/// From quorum: the VNic has addresses, which are set once, and this one is not among them.
async fn confirm_surplus(c: &Controller, vnic: &VNic, hold: &AddressHold) -> Result<(), Error> {
    let meta = &vnic.metadata;
    let what = format!("get VNic '{}'", name(meta));
    let api = c.objects.namespaced::<VNic>(meta.namespace.as_deref().unwrap_or_default());
    let there = call(&what, api.get(name(meta))).await?;
    let has = there.status.as_ref().map(|status| status.addresses.as_slice()).unwrap_or_default();
    if there.metadata.uid == meta.uid && !has.is_empty() && !has.iter().any(|has| has == hold.spec.held()) {
        return Ok(());
    }
    c.world.vnics.put(there);
    let message = format!("address {} may be the VNic's", hold.spec.held());
    Err(Error::NotConfirmed { what, message })
}

/// Exactly the hold with this UID.
pub(super) async fn delete(c: &Controller, hold: &AddressHold) -> Result<(), Error> {
    objects::delete(&c.objects.cluster(), &c.world.address_holds, &hold.metadata, false).await?;
    // Of a hold that a restore of etcd has taken away no event tells.
    hold.wake(&c.world);
    Ok(())
}

/// From quorum: the Subnet stays. Whoever takes its finalizer away looks for VNics after the deletion began, and this one has its
/// own finalizer by now.
async fn confirm_subnet(c: &Controller, o: &Observed) -> Result<(), Error> {
    let Some(seen) = o.subnet.as_ref().map(|subnet| &subnet.metadata) else { return Ok(()) };
    let what = format!("get Subnet '{}'", name(seen));
    let api = c.objects.namespaced::<Subnet>(seen.namespace.as_deref().unwrap_or_default());
    let there = call(&what, api.get(name(seen))).await?;
    let now = &there.metadata;
    let stays = now.deletion_timestamp.is_none() && has_finalizer(now, labels::FINALIZER_IN_USE);
    if now.uid == seen.uid && stays {
        return Ok(());
    }
    c.world.subnets.put(there);
    Err(Error::NotConfirmed { what, message: "it is being deleted, or was created again".to_owned() })
}

/// From quorum: the VNic is being deleted, so nobody takes it any more; no machine marks it, and no attachment of it
/// exists. One that is created too late is never granted.
async fn confirm_unused(c: &Controller, vnic: &VNic) -> Result<(), Error> {
    let meta = &vnic.metadata;
    let what = format!("get VNic '{}'", name(meta));
    let api = c.objects.namespaced::<VNic>(meta.namespace.as_deref().unwrap_or_default());
    if let Some(there) = found(call(&what, api.get(name(meta))).await)?
        && there.metadata.uid == meta.uid
        && (addresses::is_marked(&there) || there.metadata.deletion_timestamp.is_none())
    {
        c.world.vnics.put(there);
        return Err(Error::NotConfirmed { what, message: "it is in use".to_owned() });
    }
    match attachment_of(c, uid(meta)).await? {
        Some(attachment) => {
            let message = format!("NicAttachment '{}' exists", name(&attachment.metadata));
            c.world.nics.put(attachment);
            Err(Error::NotConfirmed { what, message })
        }
        None => Ok(()),
    }
}

/// No FloatingIP says that OVN may be translating to one of its addresses. Each says so before OVN does (`outside/floating.rs`).
fn confirm_untranslated(c: &Controller, vnic: &VNic) -> Result<(), Error> {
    let Some(floating) = c.world.floating_ips.by(&IndexKey::owner(uid(&vnic.metadata))).pop() else { return Ok(()) };
    c.world.look(Work::FloatingIP, crate::cache::key(&floating.metadata));
    let what = format!("release VNic '{}'", name(&vnic.metadata));
    Err(Error::NotConfirmed { what, message: format!("FloatingIP '{}' is translated to it", name(&floating.metadata)) })
}

/// No other VNic's status names one of its addresses: each does before OVN does (`program.rs`), and this copy has told of the VNic's
/// deletion after that.
fn confirm_unshared(c: &Controller, vnic: &VNic) -> Result<(), Error> {
    let subnet = subnet_of(vnic);
    for address in vnic.status.iter().flat_map(|status| &status.addresses) {
        let others = c.world.vnics.by(&super::allowed(&subnet, address));
        let shares = |other: &&Arc<VNic>| {
            other.metadata.uid != vnic.metadata.uid && allowed::said(other).any(|said| said == address)
        };
        if let Some(other) = others.iter().find(shares) {
            c.world.look(Work::VNic, crate::cache::key(&other.metadata));
            let what = format!("release VNic '{}'", name(&vnic.metadata));
            let message = format!("the guest of VNic '{}' may have {address}", name(&other.metadata));
            return Err(Error::NotConfirmed { what, message });
        }
    }
    Ok(())
}

/// From quorum: an attachment of the VNic with this UID. What a DPU may present exists as long as that may be so.
pub(super) async fn attachment_of(c: &Controller, vnic_uid: &str) -> Result<Option<NicAttachment>, Error> {
    let api: Api<NicAttachment> = Api::all(c.objects.client.clone());
    let of_it = ListParams::default().fields(&format!("spec.vnicUID={vnic_uid}"));
    Ok(call(&format!("list NicAttachments of VNic {vnic_uid}"), api.list(&of_it)).await?.items.pop())
}

/// Writes the status if it says anything new, by compare-and-swap, and tells what the VNic waits for.
async fn write(c: &Controller, o: &Observed, plan: &Plan) -> Result<Next, Error> {
    let Some(status) = &plan.status else { return Ok(Next::Wait) };
    let meta = &o.vnic.metadata;
    let passing = plan.reason.as_ref().filter(|reason| addresses::passes(reason));
    if let Some(rest) = passing.and_then(|reason| c.passing.rest(uid(meta), DELETABLE, reason.name())) {
        return Ok(Next::Unless(rest));
    }
    let api = c.objects.namespaced::<VNic>(meta.namespace.as_deref().unwrap_or_default());
    let said = json!({
        "addresses": status.addresses, "macAddress": status.mac_address, "conditions": status.conditions,
    });
    objects::patch_status(&api, &c.world.vnics, meta, said).await?;
    // Whoever has written the addresses knows them.
    if addresses::chooses(&o.vnic) && !status.addresses.is_empty() {
        let (chosen, subnet) = (status.addresses.join(" and "), &o.vnic.spec.subnet);
        c.events.tell(
            o.vnic.as_ref(),
            "AddressAssigned",
            &format!("the controller has chosen {chosen} of Subnet '{subnet}'"),
        );
    }
    if let Some(reason) = &plan.reason {
        c.events.warn_why(o.vnic.as_ref(), reason);
    }
    Ok(Next::Wait)
}
