//! A disk of the user's own passes from a DPU that is lost to another one, but only when it is certain that it is lost;
//! and a Dpu that is deleted while it is in use stays.

use crate::machine::{Machine, SOON};
use crate::on_site;
use anyhow::{Context, Result, ensure};
use tests::site::{OUT_OF_SERVICE, STORAGE_CLASS, Site, until};

#[test]
fn a_lost_dpus_disk_moves_only_when_an_administrator_says_that_it_is_down() {
    on_site("a_lost_dpu", async |site, namespace| {
        let first = Machine::on_second(site, namespace);
        let second = Machine { name: "second", ..Machine::on_first(site, namespace) };
        let result = first.told(life(site, &first, &second).await).await;
        let dpu = first.on().dpu();
        if result.is_err() {
            // Its agent takes back what the test's end deletes.
            site.sandbox.power(&dpu, "on").await?;
        }
        site.back_in_service(&dpu).await?;
        result
    });
}

async fn life(site: &Site, first: &Machine<'_>, second: &Machine<'_>) -> Result<()> {
    let namespace = first.namespace;
    first.apply_own_claim(STORAGE_CLASS).await?;
    site.apply(&Machine::with_own_disk(&first.manifest())).await?;
    first.wait_ready().await?;
    site.apply(&Machine::with_own_disk(&second.manifest())).await?;
    let lost = first.on().dpu();
    let holder = second.says("VolumeHeld").await?;
    ensure!(holder.contains(&lost), "the holder is not named: {holder}");

    site.sandbox.power(&lost, "off").await?;
    site.kubectl(&["delete", "bmm", first.name, "-n", namespace, "--wait=false"]).await?;
    let explained = first.says("DpuSilent").await;
    ensure!(explained?.contains(&lost), "the silent DPU is not named");
    // Half of an administrator's word is none.
    site.kubectl(&["taint", "node", &lost, &format!("{OUT_OF_SERVICE}=nodeshutdown:NoExecute")]).await?;
    second.says("VolumeHeld").await?;
    ensure!(hold(site, first).await?["spec"]["holder"]["dpuName"] == lost.as_str(), "the volume has moved");
    site.confirm_down(&lost).await?;
    site.kubectl(&["wait", "--for=delete", &format!("bmm/{}", first.name), "-n", namespace, "--timeout=240s"]).await?;
    second.wait_ready().await?;
    let hold = hold(site, first).await?;
    ensure!(hold["spec"]["holder"]["dpuName"] == second.on().dpu().as_str(), "who has the volume: {hold}");
    ensure!(hold["spec"]["fences"][0]["proof"] == "ConfirmedDown", "how it was fenced: {hold}");

    deleted_in_use(site, second).await?;
    let kept = site.get(&["pvc", "mine", "-n", namespace]).await?.context("the user's claim was deleted")?;
    ensure!(kept["metadata"]["deletionTimestamp"].is_null(), "the user's claim is being deleted");
    Ok(())
}

/// The hold on the user's volume.
async fn hold(site: &Site, machine: &Machine<'_>) -> Result<serde_json::Value> {
    let volume = machine.kubectl(&["get", "pvc", "mine", "-o", "jsonpath={.spec.volumeName}"]).await?;
    let holds = site.get(&["volumeholds"]).await?.unwrap_or_default();
    let mut holds = holds["items"].as_array().cloned().unwrap_or_default().into_iter();
    holds.find(|hold| hold["spec"]["persistentVolumeName"] == volume.as_str()).context("the volume has no hold")
}

/// Its Dpu stays for as long as the machine does; then it goes, and the agent registers again.
async fn deleted_in_use(site: &Site, machine: &Machine<'_>) -> Result<()> {
    let (dpu, host) = (machine.on().dpu(), machine.on().host()?);
    let uid = ["get", "dpu", &dpu, "-o", "jsonpath={.metadata.uid}"];
    let before = site.kubectl(&uid).await?;
    site.kubectl(&["delete", "dpu", &dpu, "--wait=false"]).await?;
    machine.plug_a_disk("more").await?;
    ensure!(site.kubectl(&uid).await? == before && machine.on().host()? == host, "the Dpu went under its machine");
    machine.delete().await?;
    until("the agent has registered again", SOON, async || {
        let now = site.get(&["dpu", &dpu]).await?.unwrap_or_default();
        let uid = now["metadata"]["uid"].as_str().unwrap_or("none").to_owned();
        Ok(if uid != "none" && uid != before { Ok(()) } else { Err(uid) })
    })
    .await?;
    site.approve(&dpu, &machine.hardware(), "Standby").await
}
