//! The way out of a Vpc, and in (`planner::network::outside`).
//!
//! | file | what |
//! |---|---|
//! | `provider.rs` | a ProviderNetwork: its switch, and what its deletion waits for |
//! | `gateway.rs` | a NatGateway: a Vpc's router port on that switch |
//! | `floating.rs` | a FloatingIP: a translation to one VNic |
//! | this one | the AddressHolds of the two |

pub(crate) mod floating;
pub(crate) mod gateway;
pub(crate) mod provider;

use super::{holds_of, sweep, vnics};
use crate::Controller;
use crate::cache::Object;
use crate::error::{Error, call, found};
use crate::index::IndexKey;
use crate::objects;
use api::network::{AddressOwner, canonical};
use api::{AddressHold, FloatingIP, NatGateway, ProviderNetwork, labels};
use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use planner::machine::observed::{has_finalizer, name, uid};
use planner::network::outside::{self, Kind};
use planner::network::provider::admits;
use planner::reason::{Blocked, Reason};
use runtime::queue::Key;
use std::net::IpAddr;
use std::sync::Arc;

/// So many addresses that others were faster to take are tried in one round.
const ATTEMPTS: usize = 16;

/// Who has, or shall have, addresses.
struct Holder<'a> {
    kind: Kind,
    owner: AddressOwner,
    /// Those that its status says, else those that it asks for.
    has: &'a [String],
    asks: &'a [String],
}

pub(super) fn network(c: &Controller, named: &str) -> Result<Arc<ProviderNetwork>, Reason> {
    let there = c.world.provider_networks.get("", named);
    there.ok_or_else(|| Blocked::ProviderNetworkMissing { network: named.to_owned() }.into())
}

/// Its addresses, each with a hold; or why it has none. Its finalizer is there.
async fn take(
    c: &Controller,
    network: &ProviderNetwork,
    holder: &Holder<'_>,
) -> Result<Result<Vec<String>, Reason>, Error> {
    let mut all = Vec::new();
    if holder.has.is_empty() {
        let namespace = &holder.owner.namespace;
        let labels = c.world.namespaces.get("", namespace).and_then(|namespace| namespace.metadata.labels.clone());
        let all = c.world.provider_networks.all();
        if let Err(reason) = admits(network, all.iter().map(AsRef::as_ref), namespace, labels.as_ref()) {
            return Ok(Err(reason));
        }
    }
    let fixed = if holder.has.is_empty() { holder.asks } else { holder.has };
    for address in fixed.iter().map(|address| canonical(address)) {
        if holder.has.is_empty()
            && let Err(reason) = outside::fits(network, &address)
        {
            return Ok(Err(reason));
        }
        match hold(c, network, &holder.owner, &address).await? {
            None => all.push(address),
            Some(reason) => return Ok(Err(reason)),
        }
    }
    if !all.is_empty() {
        return Ok(Ok(all));
    }
    for v4 in outside::families(network, holder.kind) {
        match choose(c, network, &holder.owner, v4).await? {
            Ok(address) => all.push(address),
            Err(reason) => return Ok(Err(reason)),
        }
    }
    Ok(Ok(all))
}

/// One that it has the hold of already, else the first that nobody has.
async fn choose(
    c: &Controller,
    network: &ProviderNetwork,
    owner: &AddressOwner,
    v4: bool,
) -> Result<Result<String, Reason>, Error> {
    let of = uid(&network.metadata);
    let own =
        c.world.address_holds.by(&IndexKey::owner(&owner.uid)).into_iter().filter(|hold| hold.spec.subnet.uid == of);
    let of_family = |address: &String| address.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4() == v4);
    if let Some(address) = own.filter_map(|hold| hold.spec.address.clone()).filter(of_family).min() {
        return Ok(Ok(address));
    }
    if let Some(reason) = leaving(network) {
        return Ok(Err(reason));
    }
    let all = c.world.provider_networks.all();
    let is_taken = |address: &str| !holds_of(c, (&network.metadata, Some(network)), &all, address).is_empty();
    for _ in 0..ATTEMPTS {
        let address = match outside::choose(network, v4, is_taken) {
            Ok(address) => address.to_string(),
            Err(reason) => return Ok(Err(reason)),
        };
        if hold(c, network, owner, &address).await?.is_none() {
            return Ok(Ok(address));
        }
    }
    Err(Error::NotConfirmed {
        what: format!("choose an address of {}", name(&network.metadata)),
        message: "others are faster".to_owned(),
    })
}

/// Nobody gets an address of it any more.
fn leaving(network: &ProviderNetwork) -> Option<Reason> {
    network.metadata.deletion_timestamp.as_ref()?;
    Some(Blocked::ProviderNetworkBeingDeleted { network: name(&network.metadata).to_owned() }.into())
}

/// `None`: the hold is there, and the owner's.
async fn hold(
    c: &Controller,
    network: &ProviderNetwork,
    owner: &AddressOwner,
    address: &str,
) -> Result<Option<Reason>, Error> {
    let wanted = outside::hold(network, owner, address);
    let there = match c.world.address_holds.get("", name(&wanted.metadata)) {
        Some(there) => there,
        None => {
            if let Some(reason) = leaving(network) {
                return Ok(Some(reason));
            }
            let all = c.world.provider_networks.all();
            let others = holds_of(c, (&network.metadata, Some(network)), &all, address);
            if let Some(other) = others.iter().find(|there| there.spec.owner.uid != owner.uid) {
                return Ok(Some(outside::taken(other)));
            }
            confirm(c, network).await?;
            sweep::before_a_hold(c).await?;
            Arc::new(
                objects::create(&c.objects.cluster::<AddressHold>(), &c.world.address_holds, &wanted, |_| true).await?,
            )
        }
    };
    Ok((there.spec.owner.uid != owner.uid).then(|| outside::taken(&there)))
}

/// From quorum: the ProviderNetwork stays. Whoever takes its finalizer away looks for holders after the deletion began, and this one
/// has its own finalizer by now.
async fn confirm(c: &Controller, network: &ProviderNetwork) -> Result<(), Error> {
    let what = format!("get ProviderNetwork '{}'", name(&network.metadata));
    let there = call(&what, c.objects.cluster::<ProviderNetwork>().get(name(&network.metadata))).await?;
    let meta = &there.metadata;
    if meta.uid == network.metadata.uid
        && meta.deletion_timestamp.is_none()
        && has_finalizer(meta, labels::FINALIZER_IN_USE)
    {
        return Ok(());
    }
    c.world.provider_networks.put(there);
    Err(Error::NotConfirmed { what, message: "it is being deleted, was created again, or is new".to_owned() })
}

/// Its rows were deleted: nobody answers by its addresses any more.
async fn release(c: &Controller, owner_uid: &str) -> Result<(), Error> {
    for hold in c.world.address_holds.by(&IndexKey::owner(owner_uid)) {
        if hold.spec.owner.uid == owner_uid {
            vnics::delete(c, &hold).await?;
        }
    }
    Ok(())
}

/// Of those that had this name and no longer exist: a controller that was deposed created a hold too late, or a finalizer was taken
/// away by force.
async fn collect<K>(c: &Controller, key: &Key, known: Option<String>) -> Result<(), Error>
where
    K: Object + Resource<Scope = NamespaceResourceScope>,
{
    for hold in c.world.address_holds.by(&IndexKey::names::<K>(&key.0, &key.1)) {
        let owner = &hold.spec.owner.uid;
        if Some(owner) == known.as_ref() {
            continue;
        }
        let what = format!("get {} '{}'", K::kind(&()), key.1);
        let there = found(call(&what, c.objects.namespaced::<K>(&key.0).get(&key.1)).await)?;
        if there.is_none_or(|there| there.meta().uid.as_ref() != Some(owner)) {
            c.network.clear(owner).await?;
            vnics::delete(c, &hold).await?;
        }
    }
    Ok(())
}

/// That name a ProviderNetwork, in one namespace.
fn floating_of(c: &Controller, namespace: &str, network: &str) -> Vec<Arc<FloatingIP>> {
    c.world.floating_ips.by(&IndexKey::names::<ProviderNetwork>(namespace, network))
}

/// The NatGateway that is in force in a Vpc.
fn gateway_of(c: &Controller, namespace: &str, vpc: &str) -> Option<Arc<NatGateway>> {
    let all = c.world.nat_gateways.by(&IndexKey::names::<api::Vpc>(namespace, vpc));
    let first = outside::first(all.iter().map(AsRef::as_ref)).and_then(|first| first.metadata.uid.clone());
    all.into_iter().find(|gateway| gateway.metadata.uid == first)
}
