//! Follows the north-bound database: takes the token, wakes whose rows have changed, and asks the chassis to tell when they have
//! what has come up.

use super::logical::Databases;
use super::{barrier::Barrier, sweep};
use crate::Controller;
use crate::cache::key;
use crate::error::{Error, call};
use crate::index::IndexKey;
use crate::metrics::Writing;
use crate::work::Work;
use api::labels;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use ports::north_bound::{Changes, NorthBoundError, Token};
use ports::{NorthBound, PortError, SouthBound};
use runtime::leader::Leadership;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// A step that failed is tried again after this.
const AGAIN: Duration = Duration::from_secs(1);
/// Rows of objects that are gone are looked for this often; an event tells of each, but a controller may have missed it.
const SWEEP: Duration = Duration::from_secs(600);
/// While it is not known what hosts have.
const PUT_OFF: Duration = Duration::from_secs(5);
/// The namespace whose UID names the site: every cluster has it, and it is never made again.
const SITE: &str = "kube-system";

pub(crate) async fn follow(c: Arc<Controller>, leadership: Leadership) {
    let Some((north_bound, south_bound)) = open(&c).await else { return };
    let (mut heard, mut unreachable) = (false, false);
    let mut barrier = Barrier::default();
    let mut next_sweep = Instant::now();
    let mut seen = false;
    loop {
        // Nothing is asked for before the database answers.
        let at = barrier.next(&c).filter(|_| !unreachable && c.network.leads());
        let at = at.unwrap_or_else(|| Instant::now() + AGAIN);
        let told = tokio::select! {
            biased;
            vnics = c.network.programmed() => {
                barrier.look(&c, north_bound.as_ref(), &vnics);
                None
            }
            changes = north_bound.changes() => Some(changes),
            chassis = chassis(south_bound.as_deref()) => {
                look_at_chassis(&c, &chassis, &mut seen);
                None
            }
            () = sleep_until(at) => None,
        };
        if let Some(Changes { uids, link }) = told {
            heard = true;
            if let Err(error) = &link
                && !unreachable
            {
                tracing::warn!("OVN's north-bound database: {error}");
                fails(&c);
            }
            if unreachable && link.is_ok() {
                c.network.numbers.void();
                // What has no rows yet is told by no change of a row.
                wake_all(&c);
            }
            unreachable = link.is_err();
            wake(&c, &uids);
            barrier.look(&c, north_bound.as_ref(), &uids);
        }
        // A copy that is still being made is no failure: the first change tells that it is there, or why it cannot be had.
        if !heard || unreachable {
            continue;
        }
        if !c.network.leads() {
            if let Err(error) = take_token(&c, north_bound.as_ref(), &leadership).await {
                tracing::warn!("{error}");
                fails(&c);
                continue;
            }
            wake_all(&c);
        }
        if let Err(error) = barrier.raise(&c, north_bound.as_ref()).await {
            tracing::warn!("{error}");
        }
        if next_sweep <= Instant::now() {
            match sweep::rows(&c, north_bound.as_ref()).await {
                Ok(done) => {
                    c.network.swept(done);
                    let pause = if done { SWEEP } else { PUT_OFF };
                    next_sweep = Instant::now() + pause;
                }
                Err(error) => tracing::warn!("{error}"),
            }
        }
    }
}

/// Whoever waits for a leader that has only just begun waits for less.
fn fails(c: &Controller) {
    if c.network.fails() {
        wake_all(c);
    }
}

/// Waits until a chassis tells something.
async fn chassis(south_bound: Option<&dyn SouthBound>) -> Result<(), PortError> {
    match south_bound {
        Some(south_bound) => south_bound.changes().await,
        None => std::future::pending().await,
    }
}

/// Looks at whoever has waited for it. `seen`: the chassis could be read the last time.
fn look_at_chassis(c: &Controller, chassis: &Result<(), PortError>, seen: &mut bool) {
    let before = std::mem::replace(seen, chassis.is_ok());
    if let Err(error) = chassis
        && before
    {
        tracing::warn!("OVN's south-bound database: {error}");
    }
    c.world.look_at_those_told_of_chassis();
    let numbers = &c.network.numbers;
    if before && chassis.is_ok() && !numbers.wait_for_chassis() {
        return;
    }
    let waiting = match c.network.installed() {
        Ok(installed) if before => numbers.reached(&installed),
        _ => numbers.all(),
    };
    waiting.into_iter().for_each(|(work, key)| c.world.look(work, key));
}

async fn open(c: &Controller) -> Option<Databases> {
    loop {
        match c.world.namespaces.get("", SITE).and_then(|namespace| namespace.metadata.uid.clone()) {
            Some(site) => return c.network.open(&site),
            None => tracing::warn!("there is no namespace '{SITE}', by whose UID rows in OVN are told apart"),
        }
        sleep(AGAIN).await;
    }
}

/// From now on the database takes nothing of a leader before this one.
async fn take_token(c: &Controller, north_bound: &dyn NorthBound, leadership: &Leadership) -> Result<(), Error> {
    let token = Token { lease_uid: leadership.lease_uid.clone(), transitions: leadership.token };
    let there = north_bound.token().map_err(NorthBoundError::from)?;
    match &there {
        Some(there) if there.lease_uid != token.lease_uid => confirm_lease(c, leadership).await?,
        Some(there) if !token.may_follow(there) => {
            // A restore of etcd has put back the Lease: nobody could ever write again.
            raise_lease(c, leadership, there.transitions).await?;
            c.network.depose();
        }
        _ => {}
    }
    let taken = north_bound.take_token(&token, there.as_ref()).await;
    c.network.written.transaction(Writing::Token, &taken);
    match taken {
        Ok(()) => {
            tracing::info!(%token, "leading in OVN's north-bound database");
            c.network.lead();
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

fn leases(c: &Controller) -> Api<Lease> {
    Api::namespaced(c.objects.client.clone(), &c.namespace)
}

/// From quorum: the Lease is still this one, and this leader's.
async fn confirm_lease(c: &Controller, leadership: &Leadership) -> Result<(), Error> {
    let what = format!("get Lease '{}'", labels::CONTROLLER);
    let lease = call(&what, leases(c).get(labels::CONTROLLER)).await?;
    if leadership.is_of(&lease) {
        return Ok(());
    }
    c.network.depose();
    Err(Error::NotConfirmed { what, message: "another controller leads".to_owned() })
}

/// Above what the database has seen; the next leader, this process started anew for example, is above that.
async fn raise_lease(c: &Controller, leadership: &Leadership, transitions: u64) -> Result<(), Error> {
    let what = format!("raise Lease '{}'", labels::CONTROLLER);
    let lease = call(&what, leases(c).get(labels::CONTROLLER)).await?;
    if !leadership.is_of(&lease) {
        return Err(Error::NotConfirmed { what, message: "another controller leads".to_owned() });
    }
    tracing::warn!(
        "OVN's north-bound database knows a later leader ({transitions}) of this Lease: a restore of etcd put it back"
    );
    let change = json!({"metadata": {"uid": lease.metadata.uid, "resourceVersion": lease.metadata.resource_version},
        "spec": {"leaseTransitions": transitions, "holderIdentity": ""}});
    call(&what, leases(c).patch(labels::CONTROLLER, &PatchParams::default(), &Patch::Merge(&change))).await.map(drop)
}

/// Whoever has these rows.
fn wake(c: &Controller, uids: &BTreeSet<String>) {
    let world = &c.world;
    for index in uids.iter().map(|uid| IndexKey::uid(uid)) {
        world.look_at_each(Work::VNic, &world.vnics, &index);
        world.look_at_each(Work::Subnet, &world.subnets, &index);
        world.look_at_each(Work::SecurityGroup, &world.groups, &index);
        // Who its members are decides what others may have: one that is being deleted says nothing of them.
        world.groups.by(&index).iter().for_each(|peer| world.groups_held_back_by(peer));
        world.look_at_each(Work::Vpc, &world.vpcs, &index);
        world.look_at_each(Work::ProviderNetwork, &world.provider_networks, &index);
        world.look_at_each(Work::NatGateway, &world.nat_gateways, &index);
        world.look_at_each(Work::FloatingIP, &world.floating_ips, &index);
    }
}

/// Everything that has, or shall have, rows.
fn wake_all(c: &Controller) {
    let world = &c.world;
    world.vpcs.all().iter().for_each(|vpc| world.look(Work::Vpc, key(&vpc.metadata)));
    world.subnets.all().iter().for_each(|subnet| world.look(Work::Subnet, key(&subnet.metadata)));
    world.groups.all().iter().for_each(|group| world.look(Work::SecurityGroup, key(&group.metadata)));
    let networks = world.provider_networks.all();
    networks.iter().for_each(|network| world.look(Work::ProviderNetwork, key(&network.metadata)));
    world.nat_gateways.all().iter().for_each(|gateway| world.look(Work::NatGateway, key(&gateway.metadata)));
    world.floating_ips.all().iter().for_each(|floating| world.look(Work::FloatingIP, key(&floating.metadata)));
    world.vnics.all().iter().for_each(|vnic| world.look(Work::VNic, key(&vnic.metadata)));
}
