//! The controller dies at five points of one machine's life: one volume, one start, and the machine runs.
//!
//! Each point is held open by what the next step needs and does not get, so that it is met on any machine: an image that
//! is not there, a StorageClass that is not there, a BMC that takes no change, a second disk whose StorageClass is not there either.

use crate::machine::{Machine, SOON};
use crate::{IMAGE, on_site};
use anyhow::{Result, ensure};
use sandbox::server::faults::Faults;
use serde_json::Value;
use tests::site::{GuestKind, STORAGE_CLASS, Site, until};

const LATER_IMAGE: &str = "later";
const LATER_CLASS: &str = "later";
const LAST_CLASS: &str = "last";

#[test]
fn the_controller_is_killed_at_five_points_of_one_life() {
    on_site("the_controller_is_killed", async |site, namespace| {
        let machine = Machine::on_first(site, namespace);
        let result = machine.told(life(site, &machine).await).await;
        machine.on().inject(Faults::default()).await?;
        let deleted = machine.delete().await;
        site.kubectl(&["delete", "cmi", LATER_IMAGE, "--ignore-not-found", "--timeout=120s"]).await?;
        site.kubectl(&["delete", "storageclass", LATER_CLASS, LAST_CLASS, "--ignore-not-found"]).await?;
        result.and(deleted)
    });
}

async fn life(site: &Site, machine: &Machine<'_>) -> Result<()> {
    let (server, before) = (machine.on(), machine.power_actions()?.len());
    // The boot order is set as soon as a server is claimed, whatever else is awaited.
    server.inject(Faults { refused_change: 1_000_000, ..Faults::default() }).await?;
    machine.apply_own_claim(LAST_CLASS).await?;
    let manifest = Machine::with_own_disk(&machine.manifest());
    let manifest = manifest.replace(&format!("name: {IMAGE}}}"), &format!("name: {LATER_IMAGE}}}"));
    site.apply(&manifest.replace("bootOrder: 1,", &format!("bootOrder: 1, storageClassName: {LATER_CLASS},"))).await?;
    machine.says("ImageMissing").await?;
    kill(site, "after the claim").await?;

    site.golden_image(GuestKind::Tiny, None, LATER_IMAGE).await?;
    machine.says("ClaimPending").await?;
    let volume = claim(machine).await?["metadata"]["uid"].clone();
    kill(site, "after the PersistentVolumeClaim").await?;

    offer_class(site, LATER_CLASS).await?;
    until("the boot disk is granted", SOON, async || {
        let all = site.get(&["diskattachments", "-A"]).await?.unwrap_or_default();
        let granted = all["items"].as_array().into_iter().flatten().any(|attachment| {
            attachment["spec"]["diskName"] == "root" && attachment["spec"]["grant"]["epoch"].is_u64()
        });
        Ok(if granted { Ok(()) } else { Err("no grant".to_owned()) })
    })
    .await?;
    ensure!(server.boot_order()?.first().is_none_or(|first| first != "Boot0001"), "the boot order is set already");
    kill(site, "after the grant").await?;

    server.inject(Faults::default()).await?;
    server.boots_from_the_slot(SOON).await?;
    ensure!(machine.power_actions()?.len() == before, "the host was started without its second disk");
    kill(site, "after the boot order").await?;

    offer_class(site, LAST_CLASS).await?;
    until("power-on is sent", SOON, async || {
        Ok(if machine.power_actions()?.len() > before { Ok(()) } else { Err("no action".to_owned()) })
    })
    .await?;
    kill(site, "after power-on was sent").await?;

    machine.wait_ready().await?;
    machine.wait_state("Running").await?;
    ensure!(claim(machine).await?["metadata"]["uid"] == volume, "the boot volume was made twice");
    let claims = machine.kubectl(&["get", "pvc", "-o", "name"]).await?;
    ensure!(claims.lines().count() == 2, "claims: {claims}");
    ensure!(machine.power_actions()?[before..] == ["On"], "it was sent {:?}", &machine.power_actions()?[before..]);
    Ok(())
}

async fn kill(site: &Site, point: &str) -> Result<()> {
    eprintln!("killing the controller {point}");
    site.kill_controller().await
}

async fn claim(machine: &Machine<'_>) -> Result<Value> {
    let name = format!("{}-root", machine.name);
    Ok(machine.site.get(&["pvc", &name, "-n", machine.namespace]).await?.unwrap_or_default())
}

/// The file pool's class under another name.
async fn offer_class(site: &Site, name: &str) -> Result<()> {
    let mut class = site.get(&["storageclass", STORAGE_CLASS]).await?.unwrap_or_default();
    class["metadata"] = serde_json::json!({"name": name});
    site.apply(&class.to_string()).await.map(drop)
}
