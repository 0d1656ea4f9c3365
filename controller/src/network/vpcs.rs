//! A Vpc: its router with its routes, and the SecurityGroup of the one that the controller has created.

use super::in_force::{Wanted, enforce};
use super::{about, chassis_of, deleted, said};
use crate::Controller;
use crate::cache::key;
use crate::error::{Error, call};
use crate::index::IndexKey;
use crate::objects;
use crate::work::Work;
use api::conditions::{self, READY};
use api::network::{DEFAULT, EgressRule, IngressRule, Peer, SecurityGroupSpec, VpcSpec, default_vpc};
use api::{NatGateway, SecurityGroup, Subnet, Vpc, labels};
use kube::api::ListParams;
use planner::machine::observed::{has_finalizer, label, name, uid};
use planner::network::{admission, desired, routes};
use planner::reason::{Reason, Waiting};
use runtime::queue::{Key, Next};
use std::collections::BTreeMap;

pub(crate) async fn reconcile(c: &Controller, key: &Key) -> Result<Next, Error> {
    let Some(vpc) = c.world.vpcs.get(&key.0, &key.1) else {
        return Ok(Next::Wait);
    };
    let meta = &vpc.metadata;
    if meta.deletion_timestamp.is_some() {
        return release(c, &vpc).await;
    }
    if !has_finalizer(meta, labels::FINALIZER_IN_USE) {
        objects::keep(&c.objects, &c.world.vpcs, meta, true).await?;
        return Ok(Next::Wait);
    }
    if label(meta, labels::MANAGED_BY) == Some(labels::MANAGED_BY_VALUE) {
        create_group(c, &key.0).await?;
    }
    if let Some(wait) = c.network.starting() {
        return Ok(Next::After(wait));
    }
    let subnet = |subnet: &str| c.world.subnets.get(&key.0, subnet);
    let vnics = |subnet: &str, address: &str| c.world.vnics.by(&about(&(key.0.clone(), subnet.to_owned()), address));
    let (hops, wrong) = routes::plan(&vpc, subnet, vnics);
    let rows = desired::vpc(&vpc, hops).rows(c.network.site().unwrap_or_default());
    let before = vpc.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    if conditions::get(&before, READY).and_then(|said| said.observed_generation) != meta.generation {
        // Its defaultSecurityGroups may be others now.
        for subnet in c.world.subnets.by(&IndexKey::names::<Vpc>(&key.0, &key.1)) {
            let (namespace, subnet) = crate::cache::key(&subnet.metadata);
            c.world.look_at_each(Work::VNic, &c.world.vnics, &IndexKey::names::<Subnet>(&namespace, &subnet));
        }
    }
    let wanted = Wanted { rows: Ok(rows), wrong, counts: None, chassis: Some(chassis_of(c, &vpc)) };
    enforce(c, &c.world.vpcs, vpc.as_ref(), wanted).await
}

/// What a Subnet that names no Vpc is in.
pub(super) async fn create_default(c: &Controller, namespace: &str) -> Result<(), Error> {
    let spec = VpcSpec { default_security_groups: vec![DEFAULT.to_owned()], ..VpcSpec::default() };
    let mut vpc = Vpc::new(DEFAULT, spec);
    (vpc.metadata.namespace, vpc.metadata.labels) = (Some(namespace.to_owned()), Some(managed()));
    objects::create(&c.objects.namespaced(namespace), &c.world.vpcs, &vpc, |_| true).await.map(drop)
}

/// Its members reach each other, and send to everybody.
async fn create_group(c: &Controller, namespace: &str) -> Result<(), Error> {
    if c.world.groups.get(namespace, DEFAULT).is_some() {
        return Ok(());
    }
    let members = vec![Peer { security_group: Some(default_vpc()), ..Peer::default() }];
    let spec = SecurityGroupSpec {
        vpc: default_vpc(),
        ingress: vec![IngressRule { from: Some(members), ..IngressRule::default() }],
        egress: Some(vec![EgressRule::default()]),
    };
    let mut group = SecurityGroup::new(DEFAULT, spec);
    (group.metadata.namespace, group.metadata.labels) = (Some(namespace.to_owned()), Some(managed()));
    objects::create(&c.objects.namespaced(namespace), &c.world.groups, &group, |_| true).await.map(drop)
}

fn managed() -> BTreeMap<String, String> {
    BTreeMap::from([(labels::MANAGED_BY.to_owned(), labels::MANAGED_BY_VALUE.to_owned())])
}

/// After the last Subnet and the last SecurityGroup of it, read from quorum.
async fn release(c: &Controller, vpc: &Vpc) -> Result<Next, Error> {
    let meta = &vpc.metadata;
    if !has_finalizer(meta, labels::FINALIZER_IN_USE) {
        return Ok(Next::Wait);
    }
    let (namespace, vpc_name) = key(meta);
    let what = format!("list Subnets of Vpc '{vpc_name}'");
    let subnets = call(&what, c.objects.namespaced::<Subnet>(&namespace).list(&ListParams::default())).await?.items;
    let what = format!("list SecurityGroups of Vpc '{vpc_name}'");
    let groups =
        call(&what, c.objects.namespaced::<SecurityGroup>(&namespace).list(&ListParams::default())).await?.items;
    let what = format!("list NatGateways of Vpc '{vpc_name}'");
    let gateways =
        call(&what, c.objects.namespaced::<NatGateway>(&namespace).list(&ListParams::default())).await?.items;
    let gateway = gateways.iter().find(|gateway| gateway.spec.vpc.name == vpc_name);
    let subnet = subnets.iter().find(|subnet| admission::vpc_of(subnet) == vpc_name);
    let group = groups.iter().find(|group| group.spec.vpc.name == vpc_name);
    let by = subnet.map(|subnet| format!("Subnet '{}'", name(&subnet.metadata)));
    let by = by.or_else(|| group.map(|group| format!("SecurityGroup '{}'", name(&group.metadata))));
    let by = by.or_else(|| gateway.map(|gateway| format!("NatGateway '{}'", name(&gateway.metadata))));
    let before = vpc.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    if let Some(by) = by {
        let reason: Reason = Waiting::VpcInUse { vpc: vpc_name, by }.into();
        return said(c, &c.world.vpcs, vpc, &before, (conditions::DELETABLE, Some(reason)), Ok(())).await;
    }
    deleted(c, &c.world.vpcs, vpc, &before, c.network.clear(uid(meta)).await).await?;
    c.network.numbers.forget(uid(meta));
    objects::keep(&c.objects, &c.world.vpcs, meta, false).await?;
    Ok(Next::Wait)
}
