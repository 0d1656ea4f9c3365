//! What administrators and tenants make: a node that is a chassis, Vpcs, Subnets, SecurityGroups and VNics, each with what the next rests on.

use super::CHASSIS;
use anyhow::{Context, Result};
use api::{Dpu, SecurityGroup, Subnet, VNic, Vpc};
use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fmt::Debug;
use std::ops::Range;

const NAMESPACE: &str = "bench";
const VPCS: usize = 10;
const SUBNETS: usize = 50;
/// As many groups as Subnets, and as many of both in each Vpc.
const PER_VPC: usize = SUBNETS / VPCS;
const RULES: usize = 20;
/// Of the rule that is changed; above it nothing else has one.
const FIRST_PORT: usize = 30_000;
/// Requests that are under way at the same time.
const AT_ONCE: usize = 32;
/// The first VNics, one in each Subnet of the first Vpc, are plugged on the chassis.
pub const PLUGGED: usize = PER_VPC;
/// Objects that have rows and no port: routers and groups. A switch has one to its router.
pub const WITHOUT_PORT: usize = VPCS + SUBNETS;

pub struct Ground {
    client: Client,
}

impl Ground {
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// By which rows of this cluster are told apart.
    pub async fn site_uid(&self) -> Result<String> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces.get("kube-system").await?.uid().context("it has a UID")
    }

    fn of<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Everything but VNics; the UIDs of what has rows.
    pub async fn make(&self) -> Result<HashSet<String>> {
        let namespace = json!({"metadata": {"name": NAMESPACE}});
        create(&Api::<Namespace>::all(self.client.clone()), namespace).await?;
        let dpus = Api::<Dpu>::all(self.client.clone());
        create(&dpus, json!({"metadata": {"name": CHASSIS}, "spec": {"type": "NIC"}})).await?;
        let status = json!({"status": {"network": {"chassis": CHASSIS}}});
        dpus.patch_status(CHASSIS, &PatchParams::default(), &Patch::Merge(&status)).await?;
        let mut uids = HashSet::new();
        for number in 0..VPCS {
            uids.insert(create(&self.of::<Vpc>(), vpc(number)).await?);
        }
        for number in 0..SUBNETS {
            uids.insert(create(&self.of::<Subnet>(), subnet(number)).await?);
            uids.insert(create(&self.of::<SecurityGroup>(), group(number)).await?);
        }
        Ok(uids)
    }

    /// As fast as the API server takes them; their UIDs, in order.
    pub async fn vnics(&self, numbers: Range<usize>) -> Result<Vec<String>> {
        let api = self.of::<VNic>();
        let make = |number| {
            let api = api.clone();
            async move { create(&api, vnic(&format!("nic-{number}"), number % SUBNETS, number < PLUGGED)).await }
        };
        stream::iter(numbers.map(make)).buffered(AT_ONCE).try_collect().await
    }

    /// One more in a Subnet of the first Vpc, for the chassis.
    pub async fn make_one(&self, turn: usize) -> Result<String> {
        create(&self.of::<VNic>(), vnic(&one(turn), turn % PER_VPC, true)).await
    }

    pub async fn one_uid(&self, turn: usize) -> Result<String> {
        self.of::<VNic>().get(&one(turn)).await?.uid().context("it has a UID")
    }

    pub async fn delete_one(&self, turn: usize) -> Result<()> {
        self.of::<VNic>().delete(&one(turn), &DeleteParams::default()).await.map(drop).context("delete a VNic")
    }

    /// The UID of a group in the first Vpc.
    pub async fn group_uid(&self, turn: usize) -> Result<String> {
        self.of::<SecurityGroup>().get(&group_name(turn % PER_VPC)).await?.uid().context("it has a UID")
    }

    /// Its first rule is for another port from now on.
    pub async fn change_rule(&self, turn: usize) -> Result<()> {
        let change = json!({"spec": {"ingress": rules(turn % PER_VPC, FIRST_PORT + 1 + turn)}});
        let api = self.of::<SecurityGroup>();
        api.patch(&group_name(turn % PER_VPC), &PatchParams::default(), &Patch::Merge(&change)).await?;
        Ok(())
    }
}

/// The UID.
async fn create<K>(api: &Api<K>, object: Value) -> Result<String>
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug,
{
    let object: K = serde_json::from_value(object)?;
    let what = format!("create {} {:?}", K::kind(&()), object.meta().name);
    api.create(&PostParams::default(), &object).await.context(what)?.uid().context("it has a UID")
}

fn group_name(number: usize) -> String {
    format!("group-{number}")
}

fn vpc(number: usize) -> Value {
    json!({"metadata": {"name": format!("vpc-{number}")}, "spec": {}})
}

/// With room for 1,000 VNics.
fn subnet(number: usize) -> Value {
    let vpc = json!({"name": format!("vpc-{}", number / PER_VPC)});
    json!({
        "metadata": {"name": format!("subnet-{number}")},
        "spec": {"vpc": vpc, "cidr": format!("10.{number}.0.0/22")},
    })
}

fn group(number: usize) -> Value {
    json!({
        "metadata": {"name": group_name(number)},
        "spec": {"vpc": {"name": format!("vpc-{}", number / PER_VPC)}, "ingress": rules(number, FIRST_PORT)},
    })
}

/// Half of them from another group of the Vpc, half from a network; each for a port of its own, so that none can be written with another.
fn rules(group: usize, first_port: usize) -> Vec<Value> {
    let first_of_vpc = group / PER_VPC * PER_VPC;
    let rule = |rule: usize| {
        let from = if rule.is_multiple_of(2) {
            let peer = first_of_vpc + (group + 1 + rule / 2) % PER_VPC;
            json!({"securityGroup": {"name": group_name(peer)}})
        } else {
            json!({"cidr": format!("172.16.{rule}.0/24")})
        };
        let port = if rule == 0 { first_port } else { 1_000 + rule };
        json!({"from": [from], "ports": [{"protocol": "TCP", "port": port}]})
    };
    (0..RULES).map(rule).collect()
}

fn one(turn: usize) -> String {
    format!("one-{turn}")
}

fn vnic(name: &str, subnet: usize, on_chassis: bool) -> Value {
    let mut spec = json!({"subnet": format!("subnet-{subnet}"), "securityGroups": [group_name(subnet)]});
    if on_chassis {
        spec["nodeName"] = json!(CHASSIS);
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_of_a_group_are_of_its_vpc() {
        for number in 0..SUBNETS {
            let all = rules(number, 1);
            let peers = all.iter().filter_map(|rule| rule["from"][0]["securityGroup"]["name"].as_str());
            let peers: HashSet<usize> = peers.filter_map(|name| name.rsplit('-').next()?.parse().ok()).collect();
            assert_eq!(peers.len(), PER_VPC, "{peers:?}");
            assert!(peers.iter().all(|peer| peer / PER_VPC == number / PER_VPC), "{number}: {peers:?}");
        }
    }
}
