//! A disk of the user's own passes from a DPU whose agent is silent to another one, once the pool refuses the first one's writes; and a
//! Dpu that is deleted while it is in use stays.

use crate::machine::{Machine, SOON};
use crate::on_site;
use anyhow::{Context, Result, ensure};
use tests::site::{STORAGE_CLASS, Site, until};

/// Its host runs on, and writes.
#[test]
fn a_silent_dpus_disk_moves_once_the_pool_refuses_it() {
    on_site("a_silent_dpu", async |site, namespace| {
        let first = Machine::on_second(site, namespace);
        let second = Machine { name: "second", ..Machine::on_first(site, namespace) };
        first.told(life(site, &first, &second).await).await
    });
}

async fn life(site: &Site, first: &Machine<'_>, second: &Machine<'_>) -> Result<()> {
    let namespace = first.namespace;
    first.apply_own_claim(STORAGE_CLASS).await?;
    site.apply(&Machine::with_own_disk(&first.manifest())).await?;
    first.wait_ready().await?;
    write(first, "FIRST").await?;
    site.apply(&Machine::with_own_disk(&second.manifest())).await?;
    let silent = first.on().dpu();
    let holder = second.says("VolumeHeld").await?;
    ensure!(holder.contains(&silent), "the holder is not named: {holder}");

    let (host, frozen) = (first.on().host()?, site.freeze_agent(&silent)?);
    let remove = r#"[{"op":"remove","path":"/spec/disks/1"}]"#;
    site.kubectl(&["patch", "bmm", first.name, "-n", namespace, "--type=json", "-p", remove]).await?;
    let explained = first.says("DpuSilent").await?;
    ensure!(explained.contains(&silent), "the silent DPU is not named: {explained}");
    second.wait_ready().await?;
    let hold = hold(site, first).await?;
    ensure!(hold["spec"]["holder"]["dpuName"] == second.on().dpu().as_str(), "who has the volume: {hold}");
    ensure!(hold["spec"]["fences"][0]["proof"] == "StorageFenced", "how it was fenced: {hold}");
    ensure!(first.on().host()? == host, "somebody switched the first host's power");
    // The first host still has the disk, and what it writes is taken, but goes nowhere.
    begins_with(second, "FIRST").await?;
    write(second, "SECOND").await?;
    write(first, "LATE").await?;
    begins_with(second, "SECOND").await?;

    let had = first.guest().printed().rfind("vda=131072").context("the first guest had no disk")?;
    drop(frozen);
    let lost = |line: &str| line.contains("MP-BLOCK") && !line.contains("vda");
    first.guest().line("the first guest lost the disk", had, SOON, lost).await?;
    first.wait_ready().await?;
    begins_with(second, "SECOND").await?;
    first.delete().await?;

    deleted_in_use(site, second).await?;
    let kept = site.get(&["pvc", "mine", "-n", namespace]).await?.context("the user's claim was deleted")?;
    ensure!(kept["metadata"]["deletionTimestamp"].is_null(), "the user's claim is being deleted");
    Ok(())
}

async fn write(machine: &Machine<'_>, text: &str) -> Result<()> {
    let write = format!("printf {text} | dd of=/dev/vda conv=notrunc,fsync && echo MP-''WRITTEN");
    let said = machine.guest().shell(&write, SOON).await?;
    ensure!(said.contains("MP-WRITTEN"), "{} was not written: {said}", machine.name);
    Ok(())
}

async fn begins_with(machine: &Machine<'_>, text: &str) -> Result<()> {
    let read = format!("dd if=/dev/vda bs=4096 count=1 iflag=direct 2>/dev/null | head -c {}; echo", text.len());
    let said = machine.guest().shell(&read, SOON).await?;
    ensure!(
        said.lines().any(|line| line.trim() == text),
        "the disk of {} begins not with {text}: {said}",
        machine.name
    );
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
