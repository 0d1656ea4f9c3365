//! A pod's life: how long it takes to start, and what its start and its end write to the API server.

use super::Samples;
use super::writes::Writes;
use crate::stage::{NAMESPACE, Stage, when};
use anyhow::{Context, Result};
use api::{VNic, conditions};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use tests::shares::milliseconds;
use tests::site::ORDINARY_NODE;

const NAME: &str = "pod";

/// What a pod asks for, and the names of its figures.
pub(super) struct Kind {
    networks: Option<&'static str>,
    pub(super) start: &'static str,
    start_writes: &'static str,
    end_writes: &'static str,
    events: &'static str,
}

pub(super) const WITHOUT: Kind = Kind {
    networks: None,
    start: "podStart",
    start_writes: "podStartWrites",
    end_writes: "podEndWrites",
    events: "podEvents",
};
pub(super) const WITH_NIC: Kind = Kind {
    networks: Some(r#"[{"name":"net1","subnet":"members"}]"#),
    start: "podStartNic",
    start_writes: "podStartNicWrites",
    end_writes: "podEndNicWrites",
    events: "podNicEvents",
};

/// From its creation until kubelet says that it runs; what is written until nothing is written any more, and again at its end.
pub(super) async fn live(stage: &Stage, kind: &Kind, samples: &mut Samples) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(stage.client.clone(), NAMESPACE);
    let vnics: Api<VNic> = Api::namespaced(stage.client.clone(), NAMESPACE);
    let mut metadata = json!({"name": NAME});
    if let Some(networks) = kind.networks {
        metadata["labels"] = json!({"metalplane.io/networks": ""});
        metadata["annotations"] = json!({"metalplane.io/networks": networks});
    }
    let made: Pod = serde_json::from_value(manifest(&metadata))?;
    let before = Writes::at_rest(stage).await?;
    let applied = Timestamp::now();
    pods.create(&PostParams::default(), &made).await.context("create a pod")?;
    let runs = when("the pod runs", async || {
        let status = pods.get(NAME).await?.status.unwrap_or_default();
        Ok(status.phase.as_deref() == Some("Running"))
    })
    .await?;
    samples.took(kind.start, milliseconds(applied, runs));
    when("the pod's VNics are in force", async || {
        let vnics = vnics.list(&ListParams::default()).await?.items;
        let in_force = |vnic: &VNic| {
            vnic.status.as_ref().is_some_and(|status| conditions::is_true(&status.conditions, conditions::IN_FORCE))
        };
        Ok(vnics.iter().all(in_force))
    })
    .await?;
    let started = Writes::at_rest(stage).await?;
    pods.delete(NAME, &DeleteParams::default()).await.context("delete a pod")?;
    when("pod and VNic no longer exist", async || {
        Ok(pods.get_opt(NAME).await?.is_none() && vnics.list(&ListParams::default()).await?.items.is_empty())
    })
    .await?;
    let ended = Writes::at_rest(stage).await?;
    let (start, end) = (started.since(&before), ended.since(&started));
    samples.counted(kind.start_writes, start.total(false));
    samples.counted(kind.end_writes, end.total(false));
    samples.counted(kind.events, start.total(true) + end.total(true));
    stage.story.say(&format!("{}: start {start}; end {end}", kind.start));
    Ok(())
}

fn manifest(metadata: &Value) -> Value {
    json!({
        "metadata": metadata,
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"kubernetes.io/hostname": ORDINARY_NODE},
            "containers": [
                {"name": "pause", "image": sandbox::cluster::images::PAUSE, "imagePullPolicy": "Never"},
            ],
        },
    })
}
