//! Members of a Vpc that come: VNics with `nodeName` until they are in force and until they answer, and pods with one NIC by turns with pods
//! without.
//!
//! A VNic's port is plugged as whoever is root on its node does it, as soon as the VNic has a UID. Nobody asks for a MAC address: who pings
//! and who answers know each other's before, for a question without an answer is asked again only after a second.

use crate::Figures;
use crate::args::Members;
use crate::figure::{Figure, Unit};
use crate::stage::{NAMESPACE, Stage, when};
use anyhow::{Context, Result};
use api::{VNic, conditions};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use sandbox::handle::Options;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tests::shares::milliseconds;
use tests::site::{Agents, ORDINARY_NODE, Place};

/// Milliseconds by figure.
type Samples = BTreeMap<&'static str, Vec<f64>>;

const SUBNET: &str = "apiVersion: metalplane.io/v1alpha1
kind: Subnet
metadata: {name: members}
spec: {cidr: 10.31.0.0/24}
";
/// Who pings: a device on that node, its place, and the MAC address that goes with its address.
const ASKER: (&str, &str, &str) = ("dpu-1", "asker", "02:70:0a:1f:00:fa");
const ASKS_AS: Place = Place { namespace: NAMESPACE, subnet: "members", address: "10.31.0.250/24" };
const ASKER_ADDRESS: &str = "10.31.0.250";
/// Where the VNics are, and the device of each in its turn.
const NODE: &str = "dpu-2";
const DEVICE: &str = "member";

pub async fn measure(options: &Members) -> Result<Figures> {
    let stage = Stage::without_image("bench-members", Options::default(), Agents::DaemonSet).await?;
    let measured = all(&stage, options).await;
    let samples = stage.end(measured).await?;
    let figure =
        |(name, samples): (&'static str, Vec<f64>)| Some((name.to_owned(), Figure::of(Unit::Milliseconds, &samples)?));
    Ok(samples.into_iter().filter_map(figure).collect())
}

async fn all(stage: &Stage, options: &Members) -> Result<Samples> {
    stage.site.apply_in(NAMESPACE, SUBNET).await?;
    let mut samples = Samples::new();
    stage.site.probe(ASKER.0, ASKER.1, ASKS_AS).await?;
    stage.story.say(&format!("{} VNics, one after the other", options.vnics));
    for turn in 0..options.vnics {
        let (in_force, answered) = vnic(stage, turn).await.with_context(|| format!("VNic {turn}"))?;
        samples.entry("vnicInForce").or_default().push(in_force as f64);
        samples.entry("vnicAnswers").or_default().push(answered as f64);
    }
    stage.site.remove_probe(ASKER.0, ASKER.1).await?;
    stage.story.say(&format!("{} pods without a NIC, and as many with one", options.pods));
    let account = ["wait", "--for=create", "serviceaccount/default", "-n", NAMESPACE, "--timeout=60s"];
    stage.site.kubectl(&account).await?;
    for turn in 0..options.pods {
        for (figure, networks) in [("podStart", None), ("podStartNic", Some(r#"[{"name":"net1","subnet":"members"}]"#))]
        {
            let took = pod(stage, networks).await.with_context(|| format!("{figure} {turn}"))?;
            samples.entry(figure).or_default().push(took as f64);
        }
    }
    Ok(samples)
}

/// Milliseconds from its creation until it is in force, and until it has answered from another node.
async fn vnic(stage: &Stage, turn: u16) -> Result<(i64, i64)> {
    let vnics: Api<VNic> = Api::namespaced(stage.client.clone(), NAMESPACE);
    let (address, mac) = (format!("10.31.0.{}", 10 + turn), format!("02:31:00:00:00:{turn:02x}"));
    let neighbour = ["ip", "neigh", "replace", &address, "lladdr", &mac, "nud", "permanent", "dev", ASKER.1];
    stage.site.enter(ASKER.0, &neighbour).await?;
    let name = format!("member-{turn}");
    let spec = json!({"subnet": "members", "addresses": [address], "macAddress": mac, "nodeName": NODE});
    let made: VNic = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;

    let applied = Timestamp::now();
    let uid = vnics.create(&PostParams::default(), &made).await.context("create a VNic")?.uid().context("a UID")?;
    let in_force = when("the VNic is in force", async || {
        let status = vnics.get(&name).await?.status.unwrap_or_default();
        Ok(conditions::is_true(&status.conditions, conditions::IN_FORCE))
    });
    let (in_force, answered, ()) =
        tokio::try_join!(in_force, answers(stage, &address), plug(stage, &uid, &mac, &address))?;

    stage.site.enter(NODE, &["ovs-vsctl", "del-port", "br-int", DEVICE]).await?;
    vnics.delete(&name, &DeleteParams::default()).await.context("delete a VNic")?;
    when("the VNic no longer exists", async || Ok(vnics.get_opt(&name).await?.is_none())).await?;
    Ok((milliseconds(applied, in_force), milliseconds(applied, answered)))
}

/// Asked fifty times a second until the first answer.
async fn answers(stage: &Stage, address: &str) -> Result<Timestamp> {
    let ask = ["ping", "-q", "-i", "0.02", "-c", "1", "-w", "60", "-I", ASKER.1, address];
    stage.site.enter(ASKER.0, &ask).await.map(|_| Timestamp::now())
}

async fn plug(stage: &Stage, uid: &str, mac: &str, address: &str) -> Result<()> {
    let (_, _, asker_mac) = ASKER;
    let plug = format!(
        "set -e
ovs-vsctl add-port br-int {DEVICE} -- set interface {DEVICE} type=internal mac='\"{mac}\"' \
external_ids:iface-id=mp-{uid} external_ids:iface-id-ver={uid}.0
ip address add {address}/24 dev {DEVICE}
ip link set {DEVICE} up
ip neigh replace {ASKER_ADDRESS} lladdr {asker_mac} nud permanent dev {DEVICE}
"
    );
    stage.site.enter(NODE, &["sh", "-c", &plug]).await.map(drop)
}

/// Milliseconds from its creation until kubelet says that it runs.
async fn pod(stage: &Stage, networks: Option<&str>) -> Result<i64> {
    const NAME: &str = "pod";
    let pods: Api<Pod> = Api::namespaced(stage.client.clone(), NAMESPACE);
    let mut metadata = json!({"name": NAME});
    if let Some(networks) = networks {
        metadata["labels"] = json!({"metalplane.io/networks": ""});
        metadata["annotations"] = json!({"metalplane.io/networks": networks});
    }
    let made: Pod = serde_json::from_value(manifest(&metadata))?;
    let applied = Timestamp::now();
    pods.create(&PostParams::default(), &made).await.context("create a pod")?;
    let runs = when("the pod runs", async || {
        let status = pods.get(NAME).await?.status.unwrap_or_default();
        Ok(status.phase.as_deref() == Some("Running"))
    })
    .await?;
    pods.delete(NAME, &DeleteParams::default()).await.context("delete a pod")?;
    when("the pod no longer exists", async || Ok(pods.get_opt(NAME).await?.is_none())).await?;
    Ok(milliseconds(applied, runs))
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
