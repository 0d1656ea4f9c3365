//! A VNic's port is plugged as whoever is root on its node does it, as soon as the VNic has a UID. Nobody asks for a MAC address: who pings
//! and who answers know each other's before, for a question without an answer is asked again only after a second.

use super::{ASKER, ASKER_ADDRESS, DEVICE, NODE, Samples};
use crate::stage::{NAMESPACE, Stage, when};
use anyhow::{Context, Result};
use api::{VNic, conditions};
use jiff::Timestamp;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tests::shares::milliseconds;

/// From its creation until it is in force, and until it has answered from another node.
pub(super) async fn come(stage: &Stage, turn: u16, samples: &mut Samples) -> Result<()> {
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
    samples.took("vnicInForce", milliseconds(applied, in_force));
    samples.took("vnicAnswers", milliseconds(applied, answered));
    Ok(())
}

/// Asked fifty times a second until the first answer.
async fn answers(stage: &Stage, address: &str) -> Result<Timestamp> {
    let ask = ["ping", "-q", "-i", "0.02", "-c", "1", "-w", "60", "-I", ASKER.1, address];
    stage.site.enter(ASKER.0, &ask).await.map(|_| Timestamp::now())
}

pub(super) async fn plug(stage: &Stage, uid: &str, mac: &str, address: &str) -> Result<()> {
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
