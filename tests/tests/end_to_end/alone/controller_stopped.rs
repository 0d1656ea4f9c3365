//! The controller that leads is stopped, not killed, between a grant and the boot order. Another one takes the Lease and goes on; the first
//! one resumes in the middle of what it did, with a token that is too old for OVN and for the BMC, and ends.

use crate::machine::{Machine, SOON, SOON_FLAG};
use crate::on_site;
use anyhow::{Context, Result, ensure};
use sandbox::server::faults::Faults;
use serde_json::{Value, json};
use tests::site::{ORDINARY_NODE, SYSTEM_NAMESPACE, Site, until};

const DEPLOYMENT: &str = "deployment/metalplane-controller";
/// What the second controller alone writes to OVN.
const LATER: &str = "later";

#[test]
fn the_controller_is_stopped_and_another_one_goes_on() {
    on_site("the_controller_is_stopped", async |site, namespace| {
        let machine = Machine::on_first(site, namespace);
        let result = machine.told(life(site, &machine).await).await;
        machine.on().inject(Faults::default()).await?;
        scale(site, 1).await?;
        site.wait_for_workloads().await?;
        let deleted = machine.delete().await;
        result.and(deleted)
    });
}

async fn life(site: &Site, machine: &Machine<'_>) -> Result<()> {
    let before = machine.power_actions()?.len();
    machine.on().inject(Faults { refused_change: 1_000_000, ..Faults::default() }).await?;
    site.apply(&machine.manifest()).await?;
    until("the boot disk is granted", SOON, async || {
        let all = site.get(&["diskattachments", "-A"]).await?.unwrap_or_default();
        let mut all = all["items"].as_array().into_iter().flatten();
        Ok(if all.any(|one| one["spec"]["grant"]["epoch"].is_u64()) { Ok(()) } else { Err("no grant".to_owned()) })
    })
    .await?;

    let (first, frozen) = (leader(site).await?, site.freeze_controller()?);
    machine.on().inject(Faults::default()).await?;
    scale(site, 2).await?;
    until("another controller leads", SOON, async || {
        let now = leader(site).await?;
        Ok(if now.is_empty() || now == first { Err(now) } else { Ok(()) })
    })
    .await?;
    let vnic = json!({
        "apiVersion": "metalplane.io/v1alpha1", "kind": "VNic",
        "metadata": {"name": LATER, "namespace": machine.namespace},
        "spec": {"subnet": "blue", "nodeName": ORDINARY_NODE},
    });
    site.apply(&vnic.to_string()).await?;
    let stopped = frozen.resume();
    site.controllers_end(&stopped, SOON).await?;

    machine.kubectl(&["wait", "vnic", LATER, "--for=condition=Programmed", &format!("--timeout={SOON_FLAG}")]).await?;
    machine.wait_ready().await?;
    ensure!(machine.power_actions()?[before..] == ["On"], "it was sent {:?}", &machine.power_actions()?[before..]);
    let claims = machine.kubectl(&["get", "pvc", "-o", "name"]).await?;
    ensure!(claims.lines().count() == 1, "claims: {claims}");
    machine.kubectl(&["delete", "vnic", LATER, &format!("--timeout={SOON_FLAG}")]).await.map(drop)
}

async fn scale(site: &Site, replicas: usize) -> Result<()> {
    let replicas = format!("--replicas={replicas}");
    site.kubectl(&["scale", DEPLOYMENT, "-n", SYSTEM_NAMESPACE, &replicas]).await.map(drop)
}

async fn leader(site: &Site) -> Result<String> {
    let lease: Value =
        site.get(&["lease", "metalplane-controller", "-n", SYSTEM_NAMESPACE]).await?.context("nobody leads")?;
    Ok(lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned())
}
