//! What a Vpc and a ProviderNetwork say of the Subnets that they have admitted: written at the admission, taken back after the Subnet's rows,
//! and where a Subnet no longer exists because somebody took its finalizer away by force.

use super::{router, vnics};
use crate::Controller;
use crate::error::{Error, call, found};
use crate::index::IndexKey;
use crate::objects;
use api::{AddressHold, ProviderNetwork, Subnet, Vpc};
use kube::api::ListParams;
use planner::machine::observed::{name, uid};
use planner::network::{admission, provider, subnets};
use runtime::queue::Key;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) async fn say_in(c: &Controller, vpc: &Vpc, subnets: Value) -> Result<(), Error> {
    let api = c.objects.namespaced::<Vpc>(vpc.metadata.namespace.as_deref().unwrap_or_default());
    objects::patch_status(&api, &c.world.vpcs, &vpc.metadata, json!({"subnets": subnets})).await.map(drop)
}

pub(super) async fn say_on(c: &Controller, network: &ProviderNetwork, subnet: Value) -> Result<(), Error> {
    let api = c.objects.cluster::<ProviderNetwork>();
    let said = json!({"subnet": subnet});
    objects::patch_status(&api, &c.world.provider_networks, &network.metadata, said).await.map(drop)
}

/// The Subnet's rows were deleted: another one may have its networks.
pub(super) async fn dismiss(c: &Controller, subnet: &Subnet) -> Result<(), Error> {
    leave_provider(c, subnet).await?;
    let namespace = subnet.metadata.namespace.as_deref().unwrap_or_default();
    let Some(vpc) = c.world.vpcs.get(namespace, admission::vpc_of(subnet)) else { return Ok(()) };
    match admission::dismiss(&vpc, uid(&subnet.metadata)) {
        Some(left) => say_in(c, &vpc, json!(left)).await,
        None => Ok(()),
    }
}

async fn leave_provider(c: &Controller, subnet: &Subnet) -> Result<(), Error> {
    let Some(named) = &subnet.spec.provider_network else { return Ok(()) };
    // From quorum: a copy that does not know of the Subnet would leave it there for good.
    let api = c.objects.cluster::<ProviderNetwork>();
    let there = found(call(&format!("get ProviderNetwork '{named}'"), api.get(named)).await)?;
    let Some(network) = there else { return Ok(()) };
    match provider::holder(&network) {
        Some(holder) if holder.uid == uid(&subnet.metadata) => say_on(c, &network, json!(null)).await,
        _ => Ok(()),
    }
}

/// Of Subnets that had this name and no longer exist: their rows, what was admitted, and the holds of their routers, one of which a controller
/// that was deposed may have created too late.
pub(super) async fn collect(c: &Controller, key: &Key) -> Result<(), Error> {
    let known = c.world.subnets.get(&key.0, &key.1).and_then(|subnet| subnet.metadata.uid.clone());
    let named = IndexKey::names::<Subnet>(&key.0, &key.1);
    let (vpcs, networks) = (c.world.vpcs.by(&named), c.world.provider_networks.by(&named));
    let held = router::held(c, key);
    let in_vpcs = vpcs.iter().flat_map(|vpc| admission::admitted(vpc)).filter(|subnet| subnet.name == key.1);
    let on_networks = networks.iter().filter_map(|network| provider::holder(network));
    let mut others: BTreeSet<&String> = held.iter().map(|hold| &hold.spec.owner.uid).collect();
    others.extend(in_vpcs.map(|subnet| &subnet.uid));
    others.extend(on_networks.map(|subnet| &subnet.uid));
    for other in others.into_iter().filter(|other| Some(*other) != known.as_ref()) {
        if !has_departed(c, key, other).await? {
            continue;
        }
        tracing::warn!(subnet = key.1, namespace = key.0, uid = other, "the Subnet no longer exists: it is dismissed");
        c.network.clear(other).await?;
        c.network.numbers.forget(other);
        for hold in held.iter().filter(|hold| hold.spec.owner.uid == *other) {
            vnics::delete(c, hold).await?;
        }
        for (vpc, left) in vpcs.iter().filter_map(|vpc| Some((vpc, admission::dismiss(vpc, other)?))) {
            say_in(c, vpc, json!(left)).await?;
        }
        let is_holder = |network: &&ProviderNetwork| provider::holder(network).is_some_and(|one| one.uid == *other);
        for network in networks.iter().map(AsRef::as_ref).filter(is_holder) {
            say_on(c, network, json!(null)).await?;
        }
    }
    Ok(())
}

/// From quorum: it no longer exists, and nobody has an address of it: without its rows a guest that runs would lose its network. The deletion of
/// the last hold wakes its Subnet's name.
async fn has_departed(c: &Controller, key: &Key, subnet: &str) -> Result<bool, Error> {
    let api = c.objects.namespaced::<Subnet>(&key.0);
    let there = found(call(&format!("get Subnet '{}'", key.1), api.get(&key.1)).await)?;
    if there.is_some_and(|there| uid(&there.metadata) == subnet) {
        return Ok(false);
    }
    let what = format!("list AddressHolds of Subnet '{}'", key.1);
    let held = call(&what, c.objects.cluster::<AddressHold>().list(&ListParams::default())).await?.items;
    let by = held.iter().find(|hold| hold.spec.subnet.uid == subnet && !subnets::is_own(hold));
    if let Some(hold) = by {
        let hold = name(&hold.metadata);
        tracing::warn!(
            subnet = key.1,
            namespace = key.0,
            hold,
            "the Subnet no longer exists, and has addresses in use"
        );
    }
    Ok(by.is_none())
}
