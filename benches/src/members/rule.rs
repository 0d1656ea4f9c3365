//! A rule of a group with a member on a chassis: from the change until the group says that it is in force there.

use super::{DEVICE, NODE, Samples, vnic};
use crate::stage::{NAMESPACE, Stage, when};
use anyhow::{Context, Result};
use api::{SecurityGroup, VNic, conditions};
use jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tests::shares::milliseconds;

const NAME: &str = "ruled";
const ADDRESS: &str = "10.31.0.240";
const MAC: &str = "02:31:00:00:01:00";

pub(super) async fn change(stage: &Stage, times: u16, samples: &mut Samples) -> Result<()> {
    stage.site.apply_in(NAMESPACE, &manifests()).await?;
    let vnics: Api<VNic> = Api::namespaced(stage.client.clone(), NAMESPACE);
    let groups: Api<SecurityGroup> = Api::namespaced(stage.client.clone(), NAMESPACE);
    let uid = vnics.get(NAME).await?.uid().context("a UID")?;
    vnic::plug(stage, &uid, MAC, ADDRESS).await?;
    when("the member is in force", async || {
        let status = vnics.get(NAME).await?.status.unwrap_or_default();
        Ok(conditions::is_true(&status.conditions, conditions::IN_FORCE))
    })
    .await?;
    for turn in 0..times {
        let port = 1000 + turn;
        let rule = json!({"spec": {"ingress": [{"ports": [{"protocol": "TCP", "port": port}]}]}});
        let changed = Timestamp::now();
        let generation = groups.patch(NAME, &PatchParams::default(), &Patch::Merge(rule)).await?.metadata.generation;
        let in_force = when("the rule is in force", async || {
            let status = groups.get(NAME).await?.status.unwrap_or_default();
            let said = conditions::get(&status.conditions, conditions::IN_FORCE);
            Ok(said.is_some_and(|said| said.status == "True" && said.observed_generation == generation))
        })
        .await?;
        samples.took("ruleInForce", milliseconds(changed, in_force));
    }
    stage.site.enter(NODE, &["ovs-vsctl", "del-port", "br-int", DEVICE]).await?;
    vnics.delete(NAME, &DeleteParams::default()).await?;
    groups.delete(NAME, &DeleteParams::default()).await?;
    when("VNic and group no longer exist", async || {
        Ok(vnics.get_opt(NAME).await?.is_none() && groups.get_opt(NAME).await?.is_none())
    })
    .await
    .map(drop)
}

fn manifests() -> String {
    format!(
        "apiVersion: metalplane.io/v1alpha1
kind: SecurityGroup
metadata: {{name: {NAME}}}
spec: {{vpc: {{name: default}}}}
---
apiVersion: metalplane.io/v1alpha1
kind: VNic
metadata: {{name: {NAME}}}
spec: {{subnet: members, addresses: [{ADDRESS}], macAddress: '{MAC}', nodeName: {NODE}, securityGroups: [{NAME}]}}
"
    )
}
