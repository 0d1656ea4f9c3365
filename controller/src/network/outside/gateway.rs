//! A NatGateway: the port of a Vpc's router on a ProviderNetwork's switch.

use super::{Holder, collect, floating_of, release as release_addresses, take};
use crate::Controller;
use crate::cache::key;
use crate::error::{Error, call};
use crate::index::IndexKey;
use crate::network::in_force::{Wanted, enforce};
use crate::network::{chassis_of, deleted, said};
use crate::objects;
use api::conditions::{self, DELETABLE};
use api::{FloatingIP, NatGateway, ProviderNetwork, Vpc, labels};
use kube::api::ListParams;
use planner::machine::observed::{has_finalizer, uid};
use planner::network::admission;
use planner::network::outside::{self, Kind};
use planner::network::rows::Row;
use planner::reason::Reason;
use runtime::queue::{Key, Next};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) async fn reconcile(c: &Controller, key: &Key) -> Result<Next, Error> {
    let gateway = c.world.nat_gateways.get(&key.0, &key.1);
    collect::<NatGateway>(c, key, gateway.as_ref().and_then(|gateway| gateway.metadata.uid.clone())).await?;
    let Some(gateway) = gateway else { return Ok(Next::Wait) };
    let meta = &gateway.metadata;
    if meta.deletion_timestamp.is_some() {
        return release(c, &gateway).await;
    }
    if !has_finalizer(meta, labels::FINALIZER_IN_USE) {
        objects::keep(&c.objects, &c.world.nat_gateways, meta, true).await?;
        return Ok(Next::Wait);
    }
    if let Some(wait) = c.network.starting() {
        return Ok(Next::After(wait));
    }
    let (rows, chassis) = match rests_on(c, &gateway) {
        Err(reason) => (Err(reason), BTreeSet::new()),
        Ok((vpc, network)) => match addresses(c, &gateway, &network).await? {
            Addresses::Chosen => return Ok(Next::Wait),
            Addresses::Not(reason) => (Err(reason), BTreeSet::new()),
            Addresses::Has(all) => (rows(c, &gateway, &vpc, &network, &all), concerned(c, &vpc, &network)),
        },
    };
    let is_programmed = |gateway: &NatGateway| {
        gateway.status.as_ref().is_some_and(|status| conditions::is_true(&status.conditions, conditions::PROGRAMMED))
    };
    let wanted = Wanted { rows, wrong: None, counts: None, chassis: Some(chassis) };
    let next = enforce(c, &c.world.nat_gateways, gateway.as_ref(), wanted).await?;
    if !is_programmed(&gateway) {
        for floating in floating_of(c, &key.0, &gateway.spec.provider_network) {
            c.world.look(crate::work::Work::FloatingIP, crate::cache::key(&floating.metadata));
        }
    }
    Ok(next)
}

/// The NatGateways of its Vpc, itself among them.
fn of_vpc(c: &Controller, gateway: &NatGateway) -> Vec<Arc<NatGateway>> {
    let (namespace, _) = key(&gateway.metadata);
    c.world.nat_gateways.by(&IndexKey::names::<Vpc>(&namespace, &gateway.spec.vpc.name))
}

fn rests_on(c: &Controller, gateway: &NatGateway) -> Result<(Arc<Vpc>, Arc<ProviderNetwork>), Reason> {
    let vpc = c.world.vpcs.get(&key(&gateway.metadata).0, &gateway.spec.vpc.name);
    let network = c.world.provider_networks.get("", &gateway.spec.provider_network);
    outside::rests_on(gateway, vpc, &of_vpc(c, gateway), network)
}

enum Addresses {
    Has(Vec<String>),
    /// The status says them now: the next look goes on.
    Chosen,
    Not(Reason),
}

async fn addresses(c: &Controller, gateway: &NatGateway, network: &ProviderNetwork) -> Result<Addresses, Error> {
    let meta = &gateway.metadata;
    let status = gateway.status.clone().unwrap_or_default();
    let owner = outside::owner(Kind::NatGateway, meta);
    let holder = Holder { kind: Kind::NatGateway, owner, has: &status.addresses, asks: &gateway.spec.addresses };
    let all = match take(c, network, &holder).await? {
        Ok(all) => all,
        Err(reason) => return Ok(Addresses::Not(reason)),
    };
    if status.addresses == all {
        return Ok(Addresses::Has(all));
    }
    let api = c.objects.namespaced::<NatGateway>(meta.namespace.as_deref().unwrap_or_default());
    objects::patch_status(&api, &c.world.nat_gateways, meta, json!({"addresses": all})).await?;
    Ok(Addresses::Chosen)
}

fn rows(
    c: &Controller,
    gateway: &NatGateway,
    vpc: &Vpc,
    network: &ProviderNetwork,
    addresses: &[String],
) -> Result<Vec<Row>, Reason> {
    let wanted = outside::gateway(gateway, vpc, network, addresses)?;
    Ok(wanted.rows(c.network.site().unwrap_or_default()))
}

/// The chassis that have a port of the Vpc, and those that carry the gateway.
fn concerned(c: &Controller, vpc: &Vpc, network: &ProviderNetwork) -> BTreeSet<String> {
    chassis_of(c, vpc).into_iter().chain(outside::chassis(network).unwrap_or_default()).collect()
}

/// After the last FloatingIP that is reached by it, read from quorum.
async fn release(c: &Controller, gateway: &NatGateway) -> Result<Next, Error> {
    let meta = &gateway.metadata;
    if !has_finalizer(meta, labels::FINALIZER_IN_USE) {
        return Ok(Next::Wait);
    }
    let (namespace, _) = key(meta);
    let what = format!("list FloatingIPs of namespace '{namespace}'");
    let floating =
        call(&what, c.objects.namespaced::<FloatingIP>(&namespace).list(&ListParams::default())).await?.items;
    let vpc_of = |vnic: &str| {
        let vnic = c.world.vnics.by(&IndexKey::uid(vnic)).pop()?;
        let subnet = c.world.subnets.get(&namespace, &vnic.spec.subnet)?;
        Some(admission::vpc_of(&subnet).to_owned())
    };
    let before = gateway.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    if let Some(reason) = outside::used_by(gateway, &of_vpc(c, gateway), &floating, vpc_of) {
        return said(c, &c.world.nat_gateways, gateway, &before, (DELETABLE, Some(reason)), Ok(())).await;
    }
    deleted(c, &c.world.nat_gateways, gateway, &before, c.network.clear(uid(meta)).await).await?;
    c.network.numbers.forget(uid(meta));
    release_addresses(c, uid(meta)).await?;
    objects::keep(&c.objects, &c.world.nat_gateways, meta, false).await?;
    Ok(Next::Wait)
}
