//! What is done to a whole machine with two disks, on real parts, in one life: a snapshot while it writes to both, back to it, to the
//! other server, off a DPU that is drained, and a clone.

use super::machine::{SOON, guest, manifest, status, wait_ready};
use super::on_site;
use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::time::Duration;
use tests::shares::Move;
use tests::site::{Site, until};

const SHELL: Duration = Duration::from_secs(60);
const DISKS: &str = "\n  - {name: data, bus: VirtioBlk, size: 64Mi, source: {blank: {}}}\n  interfaces:";
/// A number to one disk, and once that is there the same number to the other; a pause; the next number.
const COUNT: &str = "(n=0; while [ ! -e /halt ]; do n=$((n+1)); echo $n >/mnt/count; sync; printf '%08d' $n | \
                     dd of=/dev/vda bs=512 seek=1 conv=notrunc,fsync 2>/dev/null; echo >/counting; sleep 0.3; done; echo >/halted) &";

/// The line of what the guest prints that has this mark before it.
async fn read(site: &Site, namespace: &str, name: &str, mark: &str, command: &str) -> Result<String> {
    let printed = guest(site, namespace, name).await?.shell(command, SHELL).await?;
    let found = printed.lines().find_map(|line| Some(line.trim().split_once(mark)?.1.to_owned()));
    found.with_context(|| format!("the guest printed {printed}"))
}

/// What is written on both disks.
async fn content(site: &Site, namespace: &str, name: &str) -> Result<String> {
    let command = "echo MP-''BOTH $(cat /mnt/verbs) $(dd if=/dev/vda bs=3 count=1 2>/dev/null)";
    read(site, namespace, name, "MP-BOTH ", command).await
}

async fn write(site: &Site, namespace: &str, text: &str) -> Result<()> {
    let command = format!("echo {text} >/mnt/verbs; printf {text} | dd of=/dev/vda conv=notrunc,fsync; sync");
    guest(site, namespace, "bm").await?.shell(&command, SHELL).await.map(drop)
}

async fn bmctl(site: &Site, namespace: &str, words: &[&str]) -> Result<String> {
    let mut all = vec!["-n", namespace];
    all.extend(words);
    all.extend(["--wait", "--timeout", "180s"]);
    site.bmctl(&all).await
}

/// Of a machine that runs and writes to both: one VolumeGroupSnapshot, which leaves nothing on the claims.
async fn snapshot(site: &Site, namespace: &str) -> Result<()> {
    let console = guest(site, namespace, "bm").await?;
    console.order(COUNT, SHELL).await?;
    console.shell("while [ ! -e /counting ]; do sleep 0.1; done", SHELL).await?;
    bmctl(site, namespace, &["snapshot", "create", "bm", "s1"]).await?;
    console.shell("touch /halt; while [ ! -e /halted ]; do sleep 1; done", SHELL).await?;
    let snapshot = site.get(&["msnap", "s1", "-n", namespace]).await?.context("no snapshot")?;
    let status = &snapshot["status"];
    ensure!(status["consistency"] == "Machine" && status["machineWasOff"] == false, "the snapshot is {status}");
    let label = format!("-l={}", api::labels::GROUP_SNAPSHOT);
    let labelled = site.kubectl(&["get", "pvc", "-n", namespace, &label, "-o", "name"]).await?;
    ensure!(labelled.is_empty(), "a label is left on {labelled}");
    site.kubectl(&["get", "volumegroupsnapshot", "s1", "-n", namespace]).await.map(drop)
}

/// The number on the first disk was written before that on the second, and the next one only after both.
async fn is_of_one_moment(site: &Site, namespace: &str, name: &str) -> Result<()> {
    let command = "echo MP-''COUNTED $(cat /mnt/count) $(dd if=/dev/vda bs=512 skip=1 count=1 2>/dev/null | head -c 8)";
    let counted = read(site, namespace, name, "MP-COUNTED ", command).await?;
    let numbers = counted.split_whitespace().map(str::parse::<u64>).collect::<Result<Vec<_>, _>>();
    match numbers.with_context(|| counted.clone())?.as_slice() {
        [first, second] if *second > 0 && (*first == *second || *first == second + 1) => Ok(()),
        _ => anyhow::bail!("the disks are of two moments: {counted}"),
    }
}

/// Gone from one server to the other with all that is its own.
async fn has_moved(site: &Site, namespace: &str, before: &Value) -> Result<Value> {
    let after = status(site, namespace, "bm").await?;
    ensure!(after["hardwareName"] != before["hardwareName"], "it is still on {}", after["hardwareName"]);
    for same in ["/disks/0/claimName", "/disks/1/claimName", "/disks/0/wwid", "/interfaces/0/macAddress", "/addresses"]
    {
        ensure!(after.pointer(same) == before.pointer(same), "{same} has changed");
    }
    ensure!(content(site, namespace, "bm").await? == "old old", "the disks did not come with the machine");
    Ok(after)
}

async fn maintain(site: &Site, dpu: &str, maintenance: &str) -> Result<()> {
    let change = json!({"spec": {"maintenance": maintenance}}).to_string();
    site.kubectl(&["patch", "dpu", dpu, "--type=merge", "-p", &change]).await.map(drop)
}

/// The DPU under the machine is drained: the machine goes back to the server that it came from.
async fn drain(site: &Site, namespace: &str, before: &Value) -> Result<Value> {
    let policy = r#"{"spec":{"maintenancePolicy":"ColdMigrate"}}"#;
    site.kubectl(&["patch", "bmm", "bm", "-n", namespace, "--type=merge", "-p", policy]).await?;
    let dpu = before["disks"][0]["dpuName"].as_str().context("it has no DPU")?;
    maintain(site, dpu, "Drain").await?;
    let moved = until("the machine has left the drained DPU", SOON, async || {
        let now = status(site, namespace, "bm").await?;
        let runs = now["state"] == "Running" && now["hardwareName"] != before["hardwareName"];
        Ok(if runs { Ok(()) } else { Err(now["state"].to_string()) })
    })
    .await;
    maintain(site, dpu, "None").await?;
    moved?;
    wait_ready(site, namespace, "bm").await?;
    has_moved(site, namespace, before).await
}

#[test]
fn a_machine_with_two_disks_goes_back_to_a_snapshot_moves_to_another_server_and_is_cloned() {
    on_site("verbs", async |site, namespace| {
        site.apply(&manifest(namespace, "bm", "10.30.0.7").replace("\n  interfaces:", DISKS)).await?;
        wait_ready(site, namespace, "bm").await?;
        write(site, namespace, "old").await?;
        snapshot(site, namespace).await?;
        write(site, namespace, "new").await?;
        bmctl(site, namespace, &["stop", "bm"]).await?;
        bmctl(site, namespace, &["restore", "bm", "s1"]).await?;
        bmctl(site, namespace, &["start", "bm"]).await?;
        let found = content(site, namespace, "bm").await?;
        ensure!(found == "old old", "the disks are not what they were in the snapshot: {found}");
        is_of_one_moment(site, namespace, "bm").await?;

        let before = status(site, namespace, "bm").await?;
        let asked = Timestamp::now();
        bmctl(site, namespace, &["migrate", "bm"]).await?;
        let after = has_moved(site, namespace, &before).await?;
        let migrations = site.get(&["mmig", "-n", namespace]).await?.context("no migration")?;
        let share = Move::of(&migrations["items"][0], &json!({"status": after}), asked)?;
        eprintln!("cold migration: ours {} ms; {share:?}", share.ours());
        let back = drain(site, namespace, &after).await?;

        let clone = ["clone", "bm", "bm-2", "--snapshot", "s1", "--address", "eth0=10.30.0.8"];
        bmctl(site, namespace, &clone).await?;
        let cloned = status(site, namespace, "bm-2").await?;
        ensure!(cloned["hardwareName"] == after["hardwareName"], "the server that was left is not free");
        ensure!(cloned["interfaces"][0]["macAddress"] != back["interfaces"][0]["macAddress"], "one MAC address twice");
        ensure!(content(site, namespace, "bm-2").await? == "old old", "the clone has other disks");
        is_of_one_moment(site, namespace, "bm-2").await
    });
}
