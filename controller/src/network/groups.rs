//! A SecurityGroup: its rules in OVN.

use super::in_force::{Wanted, enforce, unwritten};
use super::{deleted, said};
use crate::Controller;
use crate::cache::key;
use crate::error::{Error, call};
use crate::objects;
use api::conditions;
use api::{SecurityGroup, VNic, labels};
use kube::api::ListParams;
use planner::machine::observed::{has_finalizer, name, uid};
use planner::network::rows::{self, Table};
use planner::network::{admission, barrier, desired, flows, port};
use planner::reason::{Blocked, Reason, Waiting};
use runtime::queue::{Key, Next};
use serde_json::json;

pub(crate) async fn reconcile(c: &Controller, key: &Key) -> Result<Next, Error> {
    let Some(group) = c.world.groups.get(&key.0, &key.1) else {
        return Ok(Next::Wait);
    };
    let meta = &group.metadata;
    if meta.deletion_timestamp.is_some() {
        return release(c, &group).await;
    }
    if !has_finalizer(meta, labels::FINALIZER_IN_USE) {
        objects::keep(&c.objects, &c.world.groups, meta, true).await?;
        return Ok(Next::Wait);
    }
    if let Some(wait) = c.network.starting() {
        return Ok(Next::After(wait));
    }
    let (wanted, wrong) = rules(c, &group);
    // Counting looks at every member: of rules that are written that is done now and then only.
    let wait = if flows::were_few(&group) { c.network.numbers.counts_wait(uid(meta)) } else { None };
    let members = |group: &str| c.network.members(group).map(|members| members.count);
    let flows = wait.is_none().then(|| flows::per_member(&wanted, |group| members(group).unwrap_or_default()));
    let too_many = flows.and_then(|flows| flows::too_many(name(meta), flows));
    if too_many.is_some() {
        // A VNic that names it needs a group to be in, if one in which nothing passes.
        let empty = |site: &str| rows::Group { rules: Vec::new(), ..wanted.clone() }.rows(site);
        if let Err(error) = c.network.begin(uid(meta), empty).await {
            return unwritten(c, &c.world.groups, group.as_ref(), error).await;
        }
    }
    let rows = wanted.rows(c.network.site().unwrap_or_default());
    let acls = rows.iter().filter(|row| row.table == Table::Acl).count();
    let own = flows.and_then(|_| c.network.members(uid(meta)).ok());
    let counts = own.map(|own| {
        let chassis = barrier::of_chassis((own.chassis.len(), own.chassis.len()));
        json!({"members": own.count, "acls": acls, "flowsPerMember": flows, "chassis": chassis})
    });
    let wanted = Wanted { rows: too_many.map_or(Ok(rows), Err), wrong, counts, chassis: None };
    let next = enforce(c, &c.world.groups, group.as_ref(), wanted).await?;
    Ok(match (next, wait) {
        (Next::Wait, Some(wait)) => Next::After(wait),
        (next, _) => next,
    })
}

/// What OVN shall have of it, and which of its peers is missing.
fn rules(c: &Controller, group: &SecurityGroup) -> (rows::Group, Option<Reason>) {
    let (namespace, _) = key(&group.metadata);
    let vpc = &group.spec.vpc;
    let peer = |peer: &str| c.world.groups.get(&namespace, peer);
    let wanted = desired::group(group, |name| {
        peer(name).filter(|peer| peer.spec.vpc == *vpc).and_then(|peer| peer.metadata.uid.clone())
    });
    let missing = desired::peers(group).find_map(|name| match peer(name) {
        None => Some(Blocked::SecurityGroupMissing { group: name.to_owned() }.into()),
        Some(peer) if peer.spec.vpc != *vpc => {
            Some(Blocked::GroupOfOtherVpc { group: name.to_owned(), vpc: vpc.name.clone() }.into())
        }
        Some(_) => None,
    });
    let there = c.world.vpcs.get(&namespace, &vpc.name).is_some();
    let vpc_missing = || (!there).then(|| Blocked::VpcMissing { vpc: vpc.name.clone() }.into());
    (wanted, missing.or_else(vpc_missing))
}

/// After the last VNic that is in it, read from quorum.
async fn release(c: &Controller, group: &SecurityGroup) -> Result<Next, Error> {
    let meta = &group.metadata;
    if !has_finalizer(meta, labels::FINALIZER_IN_USE) {
        return Ok(Next::Wait);
    }
    let (namespace, group_name) = key(meta);
    let what = format!("list VNics of SecurityGroup '{group_name}'");
    let vnics = call(&what, c.objects.namespaced::<VNic>(&namespace).list(&ListParams::default())).await?.items;
    let before = group.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    if let Some(vnic) = vnics.iter().find(|vnic| is_in(c, vnic, group)) {
        let by = format!("VNic '{}'", name(&vnic.metadata));
        let reason: Reason = Waiting::SecurityGroupInUse { group: group_name, by }.into();
        return said(c, &c.world.groups, group, &before, (conditions::DELETABLE, Some(reason)), Ok(())).await;
    }
    deleted(c, &c.world.groups, group, &before, c.network.clear(uid(meta)).await).await?;
    c.network.numbers.forget(uid(meta));
    objects::keep(&c.objects, &c.world.groups, meta, false).await?;
    Ok(Next::Wait)
}

fn is_in(c: &Controller, vnic: &VNic, group: &SecurityGroup) -> bool {
    let (namespace, group_name) = key(&group.metadata);
    let vpc = c.world.subnets.get(&namespace, &vnic.spec.subnet).and_then(|subnet| {
        let vpc = admission::vpc_of(&subnet);
        c.world.vpcs.get(&namespace, vpc).filter(|_| vpc == group.spec.vpc.name)
    });
    vpc.is_some_and(|vpc| port::groups(vnic, &vpc).contains(&group_name))
}
