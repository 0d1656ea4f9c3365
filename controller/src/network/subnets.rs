//! A Subnet: in its Vpc beside those that it does not overlap, its switch in OVN, and deleted after the last VNic that has an
//! address of it.

use super::in_force::{Wanted, enforce};
use super::{admitted, deleted, outside, router, vpcs};
use crate::Controller;
use crate::clock;
use crate::error::{Error, call};
use crate::index::IndexKey;
use crate::objects;
use crate::work::Work;
use api::conditions::{self, READY};
use api::network::DEFAULT;
use api::{AddressHold, ProviderNetwork, Subnet, VNic, Vpc, labels};
use kube::api::ListParams;
use planner::about::About;
use planner::machine::observed::{has_finalizer, name, uid};
use planner::network::subnets::{self, Observed};
use planner::network::{admission, desired, provider as provider_network, ready};
use planner::reason::{Blocked, Reason, Waiting};
use runtime::queue::{Key, Next};
use serde_json::json;
use std::sync::Arc;

pub(crate) async fn reconcile(c: &Controller, key: &Key) -> Result<Next, Error> {
    admitted::collect(c, key).await?;
    let Some(subnet) = c.world.subnets.get(&key.0, &key.1) else { return Ok(Next::Wait) };
    if subnet.metadata.deletion_timestamp.is_some() {
        return release(c, key, subnet).await.map(|()| Next::Wait);
    }
    let meta = &subnet.metadata;
    if !has_finalizer(meta, labels::FINALIZER_IN_USE) {
        objects::keep(&c.objects, &c.world.subnets, meta, true).await?;
        return Ok(Next::Wait);
    }
    if let Some(wait) = c.network.starting() {
        return Ok(Next::After(wait));
    }
    let before = subnet.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    let rows = match vpc(c, key, &subnet).await? {
        Err(reason) => Err(reason),
        Ok(vpc) => match (provider(c, key, &subnet).await?, router::hold(c, &subnet).await?) {
            (Err(reason), _) | (_, Some(reason)) => Err(reason),
            (Ok(provider), None) => {
                let wanted = desired::subnet(&subnet, &vpc, provider.as_deref());
                Ok(wanted.map(|wanted| wanted.rows(c.network.site().unwrap_or_default())).unwrap_or_default())
            }
        },
    };
    let wanted = Wanted { rows, wrong: None, counts: None, chassis: None };
    let enforced = enforce(c, &c.world.subnets, subnet.as_ref(), wanted).await?;
    if conditions::get(&before, READY).and_then(|said| said.observed_generation) != meta.generation {
        // Whether it has DHCP options may be another matter now.
        c.world.look_at_each(Work::VNic, &c.world.vnics, &IndexKey::names::<Subnet>(&key.0, &key.1));
    }
    Ok(enforced.sooner(measure(c, key).await?))
}

/// Says how much of it is used, and what its guests are told.
async fn measure(c: &Controller, key: &Key) -> Result<Next, Error> {
    let Some(subnet) = c.world.subnets.get(&key.0, &key.1) else { return Ok(Next::Wait) };
    let (meta, now) = (&subnet.metadata, clock::now());
    let before = subnet.status.clone().unwrap_or_default();
    let provider = subnet.spec.provider_network.as_ref().and_then(|named| c.world.provider_networks.get("", named));
    let measured = c.world.pools.with(uid(meta), |pool| subnets::measured(&subnet, provider.as_deref(), pool));
    if measured == before {
        return Ok(Next::Wait);
    }
    if let Some(again) = c.world.pools.may_tell(uid(meta), now) {
        return Ok(Next::at(Some(again)));
    }
    let api = c.objects.namespaced::<Subnet>(&key.0);
    let said =
        json!({"mtu": measured.mtu, "gateways": measured.gateways, "ipv4": measured.ipv4, "ipv6": measured.ipv6});
    objects::patch_status(&api, &c.world.subnets, meta, said).await.map(|_| Next::Wait)
}

/// The finalizer, the Vpc, the admission; what is not there after so many writes somebody else takes away.
const STEPS: usize = 3;

/// Without OVN, as far as it gets: what addresses rest on is that its Vpc has admitted it.
pub(super) async fn be_admitted(c: &Controller, key: &Key) -> Result<(), Error> {
    for _ in 0..STEPS {
        let Some(subnet) = c.world.subnets.get(&key.0, &key.1) else { return Ok(()) };
        let meta = &subnet.metadata;
        if meta.deletion_timestamp.is_some() {
            return Ok(());
        }
        if !has_finalizer(meta, labels::FINALIZER_IN_USE) {
            objects::keep(&c.objects, &c.world.subnets, meta, true).await?;
        } else if !matches!(admit(c, key, &subnet).await?, Err(Reason::Waiting(Waiting::Creating { .. }))) {
            return Ok(());
        }
    }
    Ok(())
}

/// The Vpc that it is in, once that is in OVN.
async fn vpc(c: &Controller, key: &Key, subnet: &Subnet) -> Result<Result<Arc<Vpc>, Reason>, Error> {
    let admitted = admit(c, key, subnet).await?;
    Ok(admitted.and_then(|vpc| ready::is_programmed(&vpc).map(|()| vpc)))
}

/// The Vpc that it is in, as it was before.
async fn admit(c: &Controller, key: &Key, subnet: &Subnet) -> Result<Result<Arc<Vpc>, Reason>, Error> {
    let vpc_name = admission::vpc_of(subnet).to_owned();
    let Some(vpc) = c.world.vpcs.get(&key.0, &vpc_name) else {
        if vpc_name != DEFAULT {
            return Ok(Err(Blocked::VpcMissing { vpc: vpc_name }.into()));
        }
        vpcs::create_default(c, &key.0).await?;
        return Ok(Err(Waiting::Creating { what: About::Vpc(vpc_name.to_owned()) }.into()));
    };
    match admission::admit(&vpc, subnet) {
        Err(reason) => return Ok(Err(reason)),
        Ok(None) => {}
        Ok(Some(subnets)) => admitted::say_in(c, &vpc, json!(subnets)).await?,
    }
    Ok(Ok(vpc))
}

/// The ProviderNetwork that it is on, once that says so.
async fn provider(
    c: &Controller,
    key: &Key,
    subnet: &Subnet,
) -> Result<Result<Option<Arc<ProviderNetwork>>, Reason>, Error> {
    let Some(named) = &subnet.spec.provider_network else { return Ok(Ok(None)) };
    let network = match outside::network(c, named) {
        Ok(network) => network,
        Err(reason) => return Ok(Err(reason)),
    };
    let labels = c.world.namespaces.get("", &key.0).and_then(|namespace| namespace.metadata.labels.clone());
    let all = c.world.provider_networks.all();
    match provider_network::admit(&network, all.iter().map(AsRef::as_ref), subnet, labels.as_ref()) {
        Err(reason) => return Ok(Err(reason)),
        Ok(None) => {}
        Ok(Some(said)) => admitted::say_on(c, &network, json!(said)).await?,
    }
    Ok(Ok(Some(network)))
}

async fn release(c: &Controller, key: &Key, subnet: Arc<Subnet>) -> Result<(), Error> {
    let world = &c.world;
    let vnics = world.vnics.by(&IndexKey::names::<Subnet>(&key.0, &key.1));
    let attachments = vnics.iter().flat_map(|vnic| world.nics.by(&IndexKey::owner(uid(&vnic.metadata)))).collect();
    let holds = world.address_holds.by(&IndexKey::owner(uid(&subnet.metadata)));
    let plan = subnets::plan(&Observed { subnet: subnet.clone(), vnics, holds, attachments }, clock::now());
    if plan.release {
        confirm_unused(c, &subnet).await?;
        let before = subnet.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
        let cleared = c.network.clear(uid(&subnet.metadata)).await;
        deleted(c, &world.subnets, subnet.as_ref(), &before, cleared).await?;
        c.network.numbers.forget(uid(&subnet.metadata));
        router::release(c, &subnet).await?;
        admitted::dismiss(c, &subnet).await?;
        return objects::keep(&c.objects, &world.subnets, &subnet.metadata, false).await;
    }
    let (Some(conditions), Some(reason)) = (plan.conditions, plan.reason) else { return Ok(()) };
    let api = c.objects.namespaced::<Subnet>(&key.0);
    objects::patch_status(&api, &world.subnets, &subnet.metadata, json!({"conditions": conditions})).await?;
    c.events.warn_why(subnet.as_ref(), &reason);
    Ok(())
}

/// From quorum: no VNic has an address of it. One that is created from now on reads the Subnet from quorum before it gets one.
async fn confirm_unused(c: &Controller, subnet: &Subnet) -> Result<(), Error> {
    let meta = &subnet.metadata;
    let what = format!("list VNics of Subnet '{}'", name(meta));
    let api = c.objects.namespaced::<VNic>(meta.namespace.as_deref().unwrap_or_default());
    let all = call(&what, api.list(&ListParams::default())).await?.items;
    let keeps = |vnic: &VNic| vnic.spec.subnet == name(meta) && subnets::keeps(vnic);
    if let Some(vnic) = all.into_iter().find(keeps) {
        let message = format!("VNic '{}' is in it", name(&vnic.metadata));
        c.world.vnics.put(vnic);
        return Err(Error::NotConfirmed { what, message });
    }
    let what = format!("list AddressHolds of Subnet '{}'", name(meta));
    let api = c.objects.cluster::<AddressHold>();
    let held = call(&what, api.list(&ListParams::default())).await?.items;
    match held.into_iter().find(|hold| hold.spec.subnet.uid == uid(meta) && !subnets::is_own(hold)) {
        Some(hold) => {
            let message = format!("AddressHold '{}' is of it", name(&hold.metadata));
            c.world.address_holds.put(hold);
            Err(Error::NotConfirmed { what, message })
        }
        None => Ok(()),
    }
}
