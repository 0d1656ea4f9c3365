//! The network: who has which address, and what OVN has of each object (`planner::network`).
//!
//! | file | what |
//! |---|---|
//! | `vpcs.rs`, `subnets.rs`, `groups.rs` | one object: its rows in OVN, its condition Ready, what its deletion waits for |
//! | `admitted.rs` | which Subnets a Vpc and a ProviderNetwork have admitted |
//! | `vnics.rs`, `orphaned.rs`, `upgrade.rs` | a VNic's AddressHolds: created before it has the addresses, deleted after its port |
//! | `pools.rs` | which addresses of a Subnet are free, as far as the caches tell |
//! | `router.rs` | the AddressHolds of a Subnet's router |
//! | `program.rs` | a VNic's port |
//! | `outside/` | the way out: ProviderNetwork, NatGateway, FloatingIP |
//! | `pods.rs` | a pod that asks for NICs: its VNics and attachments |
//! | `logical.rs`, `settled.rs`, `follow.rs` | the north-bound database: the token, transactions, whose rows changed |
//! | `barrier.rs`, `numbers.rs`, `in_force.rs` | when a port, a Subnet and a SecurityGroup are in force |
//! | `sweep.rs` | rows of objects that no longer exist |
//!
//! What an event wakes is found by index (`crate::kinds`): nothing here looks at a whole Subnet.

mod admitted;
mod barrier;
pub(crate) mod chassis;
mod follow;
pub(crate) mod groups;
mod in_force;
mod logical;
mod numbers;
mod orphaned;
pub(crate) mod outside;
pub(crate) mod pods;
mod pools;
mod program;
mod router;
mod settled;
pub(crate) mod subnets;
mod sweep;
mod upgrade;
pub(crate) mod vnics;
pub(crate) mod vpcs;

pub(crate) use follow::follow;
pub use logical::{Logical, OpenNorthBound, OpenSouthBound, Ovn};
pub use pools::Pools;
pub(crate) use upgrade::before_all;

use crate::cache::{Cache, Object};
use crate::error::Error;
use crate::index::IndexKey;
use crate::{Controller, clock, objects};
use api::conditions::DELETABLE;
use api::{AddressHold, ProviderNetwork, VNic, Vpc};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::Resource;
use planner::network::{provider, ready};
use planner::reason::{Reason, Waiting};
use runtime::queue::{Key, Next};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The Subnet that a VNic names.
pub(crate) fn subnet_of(vnic: &VNic) -> Key {
    (vnic.metadata.namespace.clone().unwrap_or_default(), vnic.spec.subnet.clone())
}

/// What VNics that have or ask for an address, or a MAC address, are found by.
pub(crate) fn about(subnet: &Key, address: &str) -> IndexKey {
    IndexKey::Address(subnet.clone(), address.to_owned())
}

/// What VNics of the Subnet are found by that ask for no address and have none.
pub(crate) fn choosers(subnet: &Key) -> IndexKey {
    about(subnet, "any")
}

/// What VNics are found by whose guests may have the address beside their own.
pub(crate) fn allowed(subnet: &Key, address: &str) -> IndexKey {
    IndexKey::Allowed(subnet.clone(), address.to_owned())
}

/// What VNics of the namespace are found by that ask for addresses beside their own.
pub(crate) fn allowing(namespace: &str) -> IndexKey {
    IndexKey::Allowed((namespace.to_owned(), String::new()), "any".to_owned())
}

/// What VNics of the Subnet are found by that may have addresses without a hold.
pub(crate) fn unassigned(subnet: &Key) -> IndexKey {
    about(subnet, "unassigned")
}

/// The holds of an address, whoever has them. `of`, `network`: as for [`provider::hold_names`]; `all`: the ProviderNetworks that there are.
fn holds_of(
    c: &Controller,
    (of, network): (&ObjectMeta, Option<&ProviderNetwork>),
    all: &[Arc<ProviderNetwork>],
    address: &str,
) -> Vec<Arc<AddressHold>> {
    let names = provider::hold_names(of, network, all.iter().map(AsRef::as_ref), address);
    names.iter().filter_map(|name| c.world.address_holds.get("", name)).collect()
}

/// The chassis that have a port of the Vpc.
fn chassis_of(c: &Controller, vpc: &Vpc) -> BTreeSet<String> {
    let admitted = vpc.status.iter().flat_map(|status| &status.subnets);
    // Where the database is away, that is said of the rows.
    admitted
        .flat_map(|subnet| c.network.members(&subnet.uid).map(|members| members.chassis).unwrap_or_default())
        .collect()
}

/// What became of the rows of an object that is being deleted. While the database is away, that is what its deletion waits for.
async fn deleted<K, T>(
    c: &Controller,
    cache: &Cache<K>,
    object: &K,
    before: &[Condition],
    rows: Result<T, Error>,
) -> Result<T, Error>
where
    K: Object + Resource<Scope = NamespaceResourceScope>,
{
    if let Err(error) = &rows
        && error.is_north_bound_away()
    {
        said(c, cache, object, before, (DELETABLE, Some(away(error))), Ok(())).await?;
    }
    rows
}

fn away(error: &Error) -> Reason {
    Waiting::NorthBoundUnreachable { message: error.to_string() }.into()
}

/// Says how far an object is, by one condition, if it says anything new. `written`: what came of writing its rows.
async fn said<K>(
    c: &Controller,
    cache: &Cache<K>,
    object: &K,
    before: &[Condition],
    (type_, reason): (&str, Option<Reason>),
    written: Result<(), Error>,
) -> Result<Next, Error>
where
    K: Object + Resource<Scope = NamespaceResourceScope>,
{
    let reason = match &written {
        Ok(()) => reason,
        Err(error) if error.is_north_bound_away() => Some(away(error)),
        Err(_) => return written.map(|()| Next::Wait),
    };
    let meta = object.meta();
    if let Some(conditions) = ready::say(before, type_, reason.as_ref(), meta, clock::now()) {
        let api = c.objects.namespaced::<K>(meta.namespace.as_deref().unwrap_or_default());
        objects::patch_status(&api, cache, meta, json!({"conditions": conditions})).await?;
        if let Some(reason) = &reason {
            c.events.warn_why(object, reason);
        }
    }
    written.map(|()| Next::Wait)
}
