//! What is done to a whole machine, on real parts, in one life: a snapshot, back to it, to the other server, and a clone.

use super::machine::{guest, manifest, status, wait_ready};
use super::on_site;
use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::json;
use std::time::Duration;
use tests::shares::Move;
use tests::site::Site;

const SHELL: Duration = Duration::from_secs(60);

/// What the file on the guest's root disk says.
async fn content(site: &Site, namespace: &str, name: &str) -> Result<String> {
    let printed = guest(site, namespace, name).await?.shell("cat /mnt/verbs", SHELL).await?;
    let found = printed.lines().map(str::trim).find(|line| ["old", "new"].contains(line));
    Ok(found.with_context(|| format!("the guest printed {printed}"))?.to_owned())
}

async fn write(site: &Site, namespace: &str, text: &str) -> Result<()> {
    let command = format!("echo {text} >/mnt/verbs; sync");
    guest(site, namespace, "bm").await?.shell(&command, SHELL).await.map(drop)
}

async fn bmctl(site: &Site, namespace: &str, words: &[&str]) -> Result<String> {
    let mut all = vec!["-n", namespace];
    all.extend(words);
    all.extend(["--wait", "--timeout", "180s"]);
    site.bmctl(&all).await
}

#[test]
fn a_machine_goes_back_to_a_snapshot_moves_to_another_server_and_is_cloned() {
    on_site("verbs", async |site, namespace| {
        site.apply(&manifest(namespace, "bm", "10.30.0.7")).await?;
        wait_ready(site, namespace, "bm").await?;
        write(site, namespace, "old").await?;
        bmctl(site, namespace, &["snapshot", "create", "bm", "s1"]).await?;
        write(site, namespace, "new").await?;
        bmctl(site, namespace, &["stop", "bm"]).await?;
        bmctl(site, namespace, &["restore", "bm", "s1"]).await?;
        bmctl(site, namespace, &["start", "bm"]).await?;
        ensure!(content(site, namespace, "bm").await? == "old", "the disk is not what it was in the snapshot");

        let before = status(site, namespace, "bm").await?;
        let asked = Timestamp::now();
        bmctl(site, namespace, &["migrate", "bm"]).await?;
        let after = status(site, namespace, "bm").await?;
        ensure!(after["hardwareName"] != before["hardwareName"], "it is still on {}", after["hardwareName"]);
        for same in ["/disks/0/claimName", "/disks/0/wwid", "/interfaces/0/macAddress", "/addresses"] {
            ensure!(after.pointer(same) == before.pointer(same), "{same} has changed");
        }
        ensure!(content(site, namespace, "bm").await? == "old", "the disk did not come with the machine");
        let migrations = site.get(&["mmig", "-n", namespace]).await?.context("no migration")?;
        let share = Move::of(&migrations["items"][0], &json!({"status": after}), asked)?;
        eprintln!("cold migration: ours {} ms; {share:?}", share.ours());

        let clone = ["clone", "bm", "bm-2", "--snapshot", "s1", "--address", "eth0=10.30.0.8"];
        bmctl(site, namespace, &clone).await?;
        let cloned = status(site, namespace, "bm-2").await?;
        ensure!(cloned["hardwareName"] == before["hardwareName"], "the server that was left is not free");
        ensure!(cloned["interfaces"][0]["macAddress"] != after["interfaces"][0]["macAddress"], "one MAC address twice");
        ensure!(content(site, namespace, "bm-2").await? == "old", "the clone has another disk");
        Ok(())
    });
}
