//! A machine of the tiny image, from `kubectl apply` to its hardware claimable again, many times on one site.
//!
//! Times are a user's: an apply begins when kubectl is started. What the guest does is read from its console, what the
//! host does from its processes.

use crate::Figures;
use crate::args::Starts;
use crate::figure::{Figure, Unit};
use crate::stage::{ADDRESS, ASKS_AS, MACHINE, NAMESPACE, PATIENCE, Stage, when};
use anyhow::{Context, Result};
use api::labels;
use jiff::Timestamp;
use std::collections::BTreeMap;
use tests::guest::Guest;
use tests::shares::{Shares, milliseconds};

/// Milliseconds by figure.
type Samples = BTreeMap<&'static str, Vec<f64>>;

pub async fn measure(options: &Starts) -> Result<Figures> {
    let stage = Stage::raise("bench-starts").await?;
    let measured = all(&stage, options.starts).await;
    let samples = stage.end(measured).await?;
    let figure =
        |(name, samples): (&'static str, Vec<f64>)| Some((name.to_owned(), Figure::of(Unit::Milliseconds, &samples)?));
    Ok(samples.into_iter().filter_map(figure).collect())
}

async fn all(stage: &Stage, starts: u16) -> Result<Samples> {
    let mut samples = Samples::new();
    for start in 1..=starts {
        let one = life(stage).await.with_context(|| format!("start {start} of {starts}"))?;
        let told: Vec<String> = one.iter().map(|(name, ms)| format!("{name} {ms}")).collect();
        stage.story.say(&format!("{start} of {starts}: {}", told.join(", ")));
        for (name, ms) in one {
            samples.entry(name).or_default().push(ms as f64);
        }
    }
    Ok(samples)
}

async fn life(stage: &Stage) -> Result<Vec<(&'static str, i64)>> {
    let before = stage.printed();
    let applied = stage.apply().await?;
    let own = presenting_dpu(stage).await?;
    let answered = stage.site.ping_from_another_dpu(&own, ASKS_AS, ADDRESS, PATIENCE).await?;
    stage.wait_ready().await?;
    let machine = stage.machine().await?;
    let shares = Shares::of(&machine, applied)?;
    let guest = stage.guest(&machine, &before).await?;
    let (plugged, nic) = (hot_plug(stage, &guest).await?, hot_plug_nic(stage, &guest).await?);
    let (deleted, off, claimable) = delete(stage).await?;
    Ok(vec![
        ("ours", shares.ours()),
        ("applyToPowerOnSent", shares.apply_to_power_on_sent),
        ("firstPacketToGuestReachable", shares.first_packet_to_guest_reachable),
        ("applyToVolumesReady", shares.step("VolumesReady").context("its volumes are ready")?),
        ("applyToPing", milliseconds(applied, answered)),
        ("hotPlug", plugged),
        ("hotPlugNic", nic),
        ("deleteToOff", milliseconds(deleted, off)),
        ("offToClaimable", milliseconds(off, claimable)),
    ])
}

async fn presenting_dpu(stage: &Stage) -> Result<String> {
    let machines = stage.machines();
    let mut found = String::new();
    when("the machine has a DPU", async || {
        let status = machines.get(MACHINE).await?.status.unwrap_or_default();
        let dpu = status.disks.first().and_then(|disk| disk.dpu_name.clone());
        found = dpu.unwrap_or_default();
        Ok(!found.is_empty())
    })
    .await?;
    Ok(found)
}

pub(crate) const NEW_DISK: &str = r#"[{"op":"add","path":"/spec/disks/-","value":
    {"name":"data","size":"64Mi","bus":"VirtioBlk","source":{"blank":{}}}}]"#;

/// Whether the guest has said since then that it sees it.
pub(crate) fn shows_the_disk(guest: &Guest, from: usize) -> bool {
    let printed = guest.printed();
    let mut news = printed.get(from..).unwrap_or_default().lines();
    news.any(|line| line.contains("MP-BLOCK") && line.contains("vda=131072"))
}

/// From the start of kubectl to the guest's kernel showing the disk (its userland looks five times a second).
async fn hot_plug(stage: &Stage, guest: &Guest) -> Result<i64> {
    let from = guest.printed().len();
    let applied = Timestamp::now();
    stage.site.kubectl(&["patch", "bmm", MACHINE, "-n", NAMESPACE, "--type=json", "-p", NEW_DISK]).await?;
    let there = when("the guest has the new disk", async || Ok(shows_the_disk(guest, from))).await?;
    Ok(milliseconds(applied, there))
}

const NEW_NIC: &str = r#"[{"op":"add","path":"/spec/interfaces/-","value":{"name":"eth1","subnet":"blue"}}]"#;
/// As soon as its link is up, which it is once the port is in force. The script says MP-ADDRESS.
const ASK: &str = "(until ip link set eth1 up 2>/dev/null && [ \"$(cat /sys/class/net/eth1/carrier)\" = 1 ]; do sleep 0.05; done; \
    udhcpc -i eth1 -s /etc/metalplane/lease -O mtu -t 15 -T 1 -n -q </dev/null >/dev/null 2>&1) &";

/// From the start of kubectl until the guest has the address. The NIC is taken out again: the end of the machine is without it.
async fn hot_plug_nic(stage: &Stage, guest: &Guest) -> Result<i64> {
    guest.order(ASK, PATIENCE).await?;
    let from = guest.printed().len();
    let applied = Timestamp::now();
    stage.site.kubectl(&["patch", "bmm", MACHINE, "-n", NAMESPACE, "--type=json", "-p", NEW_NIC]).await?;
    let there = when("the guest has the new NIC's address", async || {
        Ok(guest.printed().get(from..).unwrap_or_default().contains("MP-ADDRESS eth1="))
    })
    .await?;
    let limit = format!("{}s", PATIENCE.as_secs());
    let remove = ["-n", NAMESPACE, "removeinterface", MACHINE, "eth1", "--wait", "--timeout", &limit];
    stage.site.bmctl(&remove).await?;
    Ok(milliseconds(applied, there))
}

/// When the deletion was asked for, when the host was off, when its Hardware was claimable again.
async fn delete(stage: &Stage) -> Result<(Timestamp, Timestamp, Timestamp)> {
    let hardware = stage.hardware();
    let deleted = Timestamp::now();
    stage.site.kubectl(&["delete", "bmm", MACHINE, "-n", NAMESPACE, "--wait=false"]).await?;
    let off = when("the host is off", async || Ok(tests::site::running_guests(&stage.site)?.is_empty())).await?;
    let claimable = when("the hardware is claimable", async || {
        let claimed = |hardware: &api::tinkerbell::Hardware| {
            hardware.metadata.annotations.iter().flatten().any(|(key, _)| key == labels::CLAIMED_BY)
        };
        Ok(!hardware.list(&kube::api::ListParams::default()).await?.items.iter().any(claimed))
    })
    .await?;
    stage.delete().await?;
    Ok((deleted, off, claimable))
}
