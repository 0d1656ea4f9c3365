//! A ProviderNetwork: its switch in OVN, and which chassis carry the gateways on it.

use crate::Controller;
use crate::error::{Error, call};
use crate::index::IndexKey;
use crate::network::{away, chassis};
use crate::work::Work;
use crate::{clock, objects};
use api::conditions::{DELETABLE, GATEWAY_NODES_USED, READY};
use api::network::ProviderNetworkStatus;
use api::{AddressHold, Dpu, FloatingIP, NatGateway, ProviderNetwork, Subnet, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::ListParams;
use planner::machine::observed::{has_finalizer, name, uid};
use planner::network::outside::{self, Carriers, Node};
use planner::network::{provider, ready};
use planner::reason::{Reason, Waiting};
use runtime::queue::{Key, Next};
use serde_json::json;
use std::sync::Arc;

pub(crate) async fn reconcile(c: &Controller, key: &Key) -> Result<Next, Error> {
    let Some(network) = c.world.provider_networks.get("", &key.1) else { return Ok(Next::Wait) };
    let meta = &network.metadata;
    if meta.deletion_timestamp.is_some() {
        return release(c, &network).await.map(|()| Next::Wait);
    }
    if !has_finalizer(meta, labels::FINALIZER_IN_USE) {
        keep(c, meta, true).await?;
        return Ok(Next::Wait);
    }
    if let Some(wait) = c.network.starting() {
        return Ok(Next::After(wait));
    }
    let (by, all) = ((Work::ProviderNetwork, key), chassis::known(c));
    let named = |node: &String| (node.clone(), c.world.dpus.get("", node));
    let dpus: Vec<(String, Option<Arc<Dpu>>)> = network.spec.gateway_nodes.iter().map(named).collect();
    let mut nodes = Vec::with_capacity(dpus.len());
    for (name, dpu) in &dpus {
        let dpu = dpu.as_deref();
        let taken = dpu.and_then(|dpu| chassis::taken(c, dpu, by));
        let maps = dpu.and_then(|dpu| chassis::maps(c, &all, (dpu, &network.spec.physical_network), by));
        nodes.push(Node { name, dpu, taken, maps });
    }
    let Carriers { chassis, none, unused } = outside::carriers(&network, &nodes);
    let written = c.network.settle(uid(meta), |site| outside::provider(&network).rows(site)).await;
    let all = c.world.provider_networks.all();
    let reason: Option<Reason> = match &written {
        Ok(()) => provider::overlaps(&network, all.iter().map(AsRef::as_ref)).err().or(none),
        Err(error) if error.is_north_bound_away() => Some(away(error)),
        Err(_) => return written.map(|()| Next::Wait),
    };
    let mut said = vec![(READY, reason)];
    said.extend((!nodes.is_empty()).then_some((GATEWAY_NODES_USED, unused)));
    say(c, &network, &said, Some(chassis)).await?;
    written.map(|()| Next::Wait)
}

/// If it is anything new. `said`: conditions, each true or with a reason. `chassis`: `None`: those that are said stay.
async fn say(
    c: &Controller,
    network: &ProviderNetwork,
    said: &[(&str, Option<Reason>)],
    chassis: Option<Vec<String>>,
) -> Result<(), Error> {
    let meta = &network.metadata;
    let before = network.status.clone().unwrap_or_default();
    let used = provider::used(c.world.address_holds.by(&IndexKey::owner(uid(meta))).iter().map(AsRef::as_ref));
    let (mut conditions, mut new) = (before.conditions.clone(), None);
    for (type_, reason) in said {
        if let Some(changed) = ready::say(&conditions, type_, reason.as_ref(), meta, clock::now()) {
            (conditions, new) = (changed, new.or(reason.as_ref()));
        }
    }
    let now = ProviderNetworkStatus {
        chassis: chassis.unwrap_or_else(|| before.chassis.clone()),
        subnet: before.subnet.clone(),
        used: u64::try_from(used).ok(),
        conditions,
    };
    if now == before {
        return Ok(());
    }
    let said = json!({"chassis": now.chassis, "used": now.used, "conditions": now.conditions});
    objects::patch_status(&c.objects.cluster(), &c.world.provider_networks, meta, said).await?;
    if let Some(reason) = new {
        c.events.warn_why(network, reason);
    }
    Ok(())
}

/// After the last one that has, or is about to have, an address of it, read from quorum.
async fn release(c: &Controller, network: &ProviderNetwork) -> Result<(), Error> {
    let meta = &network.metadata;
    if !has_finalizer(meta, labels::FINALIZER_IN_USE) {
        return Ok(());
    }
    if let Some(by) = user(c, network).await? {
        let reason: Reason = Waiting::ProviderNetworkInUse { network: name(meta).to_owned(), by }.into();
        return say(c, network, &[(DELETABLE, Some(reason))], None).await;
    }
    let cleared = c.network.clear(uid(meta)).await;
    if let Err(error) = &cleared
        && error.is_north_bound_away()
    {
        say(c, network, &[(DELETABLE, Some(away(error)))], None).await?;
    }
    cleared?;
    c.world.pools.forget(uid(meta));
    keep(c, meta, false).await
}

async fn user(c: &Controller, network: &ProviderNetwork) -> Result<Option<String>, Error> {
    let own = name(&network.metadata);
    let told = |kind: &str, meta: &ObjectMeta| {
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        format!("{kind} '{}' of namespace '{namespace}'", name(meta))
    };
    let keeps = |meta: &ObjectMeta, named: &str| named == own && has_finalizer(meta, labels::FINALIZER_IN_USE);
    let client = || c.objects.client.clone();
    let gateways: Api<NatGateway> = Api::all(client());
    let gateways = call("list NatGateways", gateways.list(&ListParams::default())).await?.items;
    if let Some(one) = gateways.iter().find(|one| keeps(&one.metadata, &one.spec.provider_network)) {
        return Ok(Some(told("NatGateway", &one.metadata)));
    }
    let floating: Api<FloatingIP> = Api::all(client());
    let floating = call("list FloatingIPs", floating.list(&ListParams::default())).await?.items;
    if let Some(one) = floating.iter().find(|one| keeps(&one.metadata, &one.spec.provider_network)) {
        return Ok(Some(told("FloatingIP", &one.metadata)));
    }
    let subnets: Api<Subnet> = Api::all(client());
    let subnets = call("list Subnets", subnets.list(&ListParams::default())).await?.items;
    let on = |one: &&Subnet| one.spec.provider_network.as_ref().is_some_and(|named| keeps(&one.metadata, named));
    if let Some(one) = subnets.iter().find(on) {
        return Ok(Some(told("Subnet", &one.metadata)));
    }
    let holds = call("list AddressHolds", c.objects.cluster::<AddressHold>().list(&ListParams::default())).await?.items;
    let held = holds.iter().find(|hold| hold.spec.subnet.uid == uid(&network.metadata));
    Ok(held.map(|hold| format!("AddressHold '{}'", name(&hold.metadata))))
}

async fn keep(c: &Controller, meta: &ObjectMeta, present: bool) -> Result<(), Error> {
    let api = c.objects.cluster::<ProviderNetwork>();
    objects::finalize(&api, &c.world.provider_networks, meta, labels::FINALIZER_IN_USE, present).await
}
