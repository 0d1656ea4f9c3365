//! Rows of objects that no longer exist: a finalizer was taken away by force, or etcd was restored.

use crate::Controller;
use crate::error::{Error, call};
use api::{AddressHold, FloatingIP, NatGateway, ProviderNetwork, SecurityGroup, Subnet, VNic, Vpc};
use kube::api::ListParams;
use kube::{Api, Resource};
use planner::network::rows::KIND;
use planner::network::subnets;
use ports::NorthBound;
use ports::north_bound::NorthBoundError;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fmt::Debug;

/// Ports before the switches that they are on, those before the router.
const ORDER: [&str; 7] = ["FloatingIP", "NatGateway", "VNic", "SecurityGroup", "Subnet", "Vpc", "ProviderNetwork"];

/// Deletes them, once lists from quorum show that there is no such object. Nothing while it is not known what hosts have: what a
/// host was shown before a restore of etcd would lose its network. Whether it could be done.
pub(super) async fn rows(c: &Controller, north_bound: &dyn NorthBound) -> Result<bool, Error> {
    let mut left = north_bound.uids().map_err(NorthBoundError::from)?;
    if left.is_empty() {
        return Ok(true);
    }
    if crate::went_back::forbids_grant(c).is_some() || !crate::orphans::nics(c).await?.is_empty() {
        return Ok(false);
    }
    for there in [
        uids::<VNic>(c).await?,
        uids::<SecurityGroup>(c).await?,
        uids::<Subnet>(c).await?,
        uids::<Vpc>(c).await?,
        uids::<FloatingIP>(c).await?,
        uids::<NatGateway>(c).await?,
        uids::<ProviderNetwork>(c).await?,
        in_use(c).await?,
    ] {
        left = left.difference(&there).cloned().collect();
    }
    let mut gone = Vec::new();
    for uid in left {
        let found = north_bound.rows(&uid).map_err(NorthBoundError::from)?;
        let kind = found.first().and_then(|found| found.row.external_ids.get(KIND).cloned()).unwrap_or_default();
        gone.push((ORDER.iter().position(|known| *known == kind), kind, uid));
    }
    gone.sort();
    for (_, kind, uid) in gone {
        tracing::warn!(kind, uid, "the object no longer exists: its rows in OVN are deleted");
        c.network.clear(&uid).await?;
    }
    Ok(true)
}

/// Before an address is given: what an orphan had is nobody's only once OVN has no port with it.
pub(super) async fn before_a_hold(c: &Controller) -> Result<(), Error> {
    if c.network.is_unswept() && rows(c, c.network.north_bound()?).await? {
        c.network.swept(true);
    }
    Ok(())
}

/// The Subnets and ProviderNetworks that somebody has an address of, whether they exist or not: without their rows a guest that runs would lose its
/// network.
async fn in_use(c: &Controller) -> Result<BTreeSet<String>, Error> {
    let held = call("list AddressHolds", c.objects.cluster::<AddressHold>().list(&ListParams::default())).await?.items;
    Ok(held.into_iter().filter(|hold| !subnets::is_own(hold)).map(|hold| hold.spec.subnet.uid).collect())
}

async fn uids<K>(c: &Controller) -> Result<BTreeSet<String>, Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = Api::all(c.objects.client.clone());
    let what = format!("list {}", K::plural(&()));
    let all = call(&what, api.list_metadata(&ListParams::default())).await?.items;
    Ok(all.into_iter().filter_map(|object| object.metadata.uid).collect())
}
