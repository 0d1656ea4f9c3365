//! A FloatingIP: an address of a ProviderNetwork that one VNic has beside its own.
//!
//! `status.vnicUID` is written before the rows and cleared after them: for as long as it names a VNic, that keeps its addresses
//! (`vnics.rs`), so OVN never translates to an address that another VNic has by now.

use super::{Holder, collect, gateway_of, network, release as release_addresses, take};
use crate::Controller;
use crate::cache::key;
use crate::error::{Error, call, found};
use crate::index::IndexKey;
use crate::network::deleted;
use crate::network::in_force::{Wanted, enforce, unwritten};
use crate::objects;
use crate::work::Work;
use api::{FloatingIP, ProviderNetwork, VNic, labels};
use planner::machine::observed::{has_finalizer, name, uid};
use planner::network::admission;
use planner::network::outside::{self, Kind, Target, Use};
use planner::network::rows::Row;
use planner::reason::Reason;
use runtime::queue::{Key, Next};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) async fn reconcile(c: &Controller, key: &Key) -> Result<Next, Error> {
    let floating = c.world.floating_ips.get(&key.0, &key.1);
    collect::<FloatingIP>(c, key, floating.as_ref().and_then(|floating| floating.metadata.uid.clone())).await?;
    let Some(floating) = floating else { return Ok(Next::Wait) };
    let meta = &floating.metadata;
    if meta.deletion_timestamp.is_some() {
        return release(c, floating).await;
    }
    if !has_finalizer(meta, labels::FINALIZER_IN_USE) {
        objects::keep(&c.objects, &c.world.floating_ips, meta, true).await?;
        return Ok(Next::Wait);
    }
    if let Some(wait) = c.network.starting() {
        return Ok(Next::After(wait));
    }
    let vnic = floating.spec.vnic.as_ref().and_then(|vnic| c.world.vnics.get(&key.0, vnic));
    let used = outside::used_for(&floating, vnic.as_deref());
    if used == Use::TakeBack {
        return match translates_no_more(c, &floating).await {
            Ok(_) => Ok(Next::Wait),
            Err(error) => unwritten(c, &c.world.floating_ips, floating.as_ref(), error).await,
        };
    }
    let network = match network(c, &floating.spec.provider_network) {
        Ok(network) => network,
        Err(reason) => return write(c, &floating, Err(reason), BTreeSet::new()).await,
    };
    let status = floating.status.clone().unwrap_or_default();
    let has: Vec<String> = status.address.iter().cloned().collect();
    let asks: Vec<String> = floating.spec.address.iter().cloned().collect();
    let owner = outside::owner(Kind::FloatingIP, meta);
    let holder = Holder { kind: Kind::FloatingIP, owner, has: &has, asks: &asks };
    let address = match take(c, &network, &holder).await? {
        Ok(all) => all.into_iter().next().unwrap_or_default(),
        Err(reason) => return write(c, &floating, Err(reason), BTreeSet::new()).await,
    };
    if status.address.as_ref() != Some(&address) {
        patch(c, &floating, json!({"address": address})).await?;
        return Ok(Next::Wait);
    }
    match (used, vnic) {
        (Use::Translate, Some(vnic)) => translate(c, &floating, &address, &vnic, &network).await,
        (Use::Wait(reason), _) => write(c, &floating, Err(reason), BTreeSet::new()).await,
        // Of a translation that was taken back: they may have it still.
        _ => write(c, &floating, Ok(Vec::new()), carriers(&network)).await,
    }
}

/// Those that translate, whatever VNic it is to.
fn carriers(network: &ProviderNetwork) -> BTreeSet<String> {
    outside::chassis(network).unwrap_or_default().into_iter().collect()
}

/// The status first, then OVN.
async fn translate(
    c: &Controller,
    floating: &FloatingIP,
    address: &str,
    vnic: &VNic,
    network: &ProviderNetwork,
) -> Result<Next, Error> {
    match rows(c, floating, address, vnic, network) {
        Err(reason) => write(c, floating, Err(reason), BTreeSet::new()).await,
        Ok(_) if floating.status.as_ref().is_none_or(|status| status.vnic_uid.is_none()) => {
            patch(c, floating, json!({"vnicUID": vnic.metadata.uid})).await?;
            Ok(Next::Wait)
        }
        Ok((rows, chassis)) => {
            confirm(c, floating, vnic, &rows).await?;
            write(c, floating, Ok(rows), chassis).await
        }
    }
}

async fn write(
    c: &Controller,
    floating: &FloatingIP,
    rows: Result<Vec<Row>, Reason>,
    chassis: BTreeSet<String>,
) -> Result<Next, Error> {
    let wanted = Wanted { rows, wrong: None, counts: None, chassis: Some(chassis) };
    enforce(c, &c.world.floating_ips, floating, wanted).await
}

/// And which chassis have to install them.
fn rows(
    c: &Controller,
    floating: &FloatingIP,
    address: &str,
    vnic: &VNic,
    network: &ProviderNetwork,
) -> Result<(Vec<Row>, BTreeSet<String>), Reason> {
    let (namespace, _) = key(&floating.metadata);
    let subnet = c.world.subnets.get(&namespace, &vnic.spec.subnet);
    let vpc = subnet.as_ref().and_then(|subnet| c.world.vpcs.get(&namespace, admission::vpc_of(subnet)));
    let gateway = vpc.as_ref().and_then(|vpc| gateway_of(c, &namespace, name(&vpc.metadata)));
    let holder = vnic.status.as_ref().and_then(|status| status.holder.as_ref());
    let dpu = holder.and_then(|holder| c.world.dpus.get("", &holder.dpu_name));
    let attachments = c.world.nics.by(&IndexKey::owner(uid(&vnic.metadata)));
    let bound = outside::bound(vnic, dpu.as_deref(), &attachments);
    let (subnet, vpc, gateway) = (subnet.as_deref(), vpc.as_deref(), gateway.as_deref());
    let target = Target { vnic, subnet, vpc, gateway, network, bound };
    let wanted = outside::floating(floating, address, &target)?;
    Ok((wanted.rows(c.network.site().unwrap_or_default()), outside::concerned(&target)?))
}

/// From quorum, before OVN translates to a VNic that it did not: the VNic is not being deleted. From now on it waits for this FloatingIP.
async fn confirm(c: &Controller, floating: &FloatingIP, vnic: &VNic, rows: &[Row]) -> Result<(), Error> {
    // While the database is away that is not known, and what cannot be written is said by whoever tries to.
    if !c.network.differs(uid(&floating.metadata), rows).unwrap_or(true) {
        return Ok(());
    }
    let meta = &vnic.metadata;
    let what = format!("get VNic '{}'", name(meta));
    let api = c.objects.namespaced::<VNic>(meta.namespace.as_deref().unwrap_or_default());
    match found(call(&what, api.get(name(meta))).await)? {
        Some(there) if there.metadata.uid == meta.uid && outside::serves(&there) => Ok(()),
        there => {
            match there {
                Some(there) => c.world.vnics.put(there),
                None => c.world.vnics.forget(meta),
            }
            c.world.look(Work::FloatingIP, key(&floating.metadata));
            Err(Error::NotConfirmed { what, message: "it is being deleted, or was created again".to_owned() })
        }
    }
}

async fn patch(c: &Controller, floating: &FloatingIP, status: serde_json::Value) -> Result<FloatingIP, Error> {
    let meta = &floating.metadata;
    let api = c.objects.namespaced::<FloatingIP>(meta.namespace.as_deref().unwrap_or_default());
    let patched = objects::patch_status(&api, &c.world.floating_ips, meta, status).await?;
    c.world.look(Work::FloatingIP, key(meta));
    Ok(patched)
}

/// OVN first, then the status: the VNic that it says may go from now on.
async fn translates_no_more(c: &Controller, floating: &FloatingIP) -> Result<FloatingIP, Error> {
    let meta = &floating.metadata;
    let Some(vnic) = floating.status.as_ref().and_then(|status| status.vnic_uid.clone()) else {
        return Ok(floating.clone());
    };
    c.network.clear(uid(meta)).await?;
    c.network.numbers.forget(uid(meta));
    let patched = patch(c, floating, json!({"vnicUID": null, "programmed": null})).await?;
    c.world.look_at_each(Work::VNic, &c.world.vnics, &IndexKey::uid(&vnic));
    Ok(patched)
}

async fn release(c: &Controller, floating: Arc<FloatingIP>) -> Result<Next, Error> {
    if !has_finalizer(&floating.metadata, labels::FINALIZER_IN_USE) {
        return Ok(Next::Wait);
    }
    let before = floating.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    let cleared = match translates_no_more(c, &floating).await {
        Ok(there) => c.network.clear(uid(&there.metadata)).await.map(|()| there),
        Err(error) => Err(error),
    };
    let floating = deleted(c, &c.world.floating_ips, floating.as_ref(), &before, cleared).await?;
    let meta = &floating.metadata;
    release_addresses(c, uid(meta)).await?;
    objects::keep(&c.objects, &c.world.floating_ips, meta, false).await?;
    Ok(Next::Wait)
}
