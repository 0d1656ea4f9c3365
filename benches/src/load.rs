//! Sustained load: disks come and go under a guest that writes, the host restarts; meanwhile the Dpus are watched. No
//! agent may be called silent, and no part of a DPU unreachable.

use crate::Figures;
use crate::args::Load;
use crate::figure::{Figure, Unit};
use crate::stage::{MACHINE, NAMESPACE, PATIENCE, Stage, when};
use anyhow::{Context, Result};
use api::{Dpu, conditions};
use futures::StreamExt;
use jiff::Timestamp;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tests::guest::Guest;
use tests::shares::milliseconds;
use tokio::task::JoinSet;

/// The host is restarted after so many disks.
const DISKS_PER_RESTART: u32 = 10;
/// The guest writes to each new disk, synced, before it goes.
const WRITE: &str =
    "for i in 1 2 3 4; do dd if=/dev/zero of=/dev/vda bs=64k count=128 conv=fsync 2>/dev/null || echo MP-IO-BAD; done";

/// Reasons of a Dpu that is not ready, and how often each was seen.
type Alarms = Arc<Mutex<BTreeMap<String, u32>>>;

pub async fn measure(options: &Load) -> Result<Figures> {
    let stage = Stage::raise("bench-load").await?;
    let measured = under_load(&stage, Duration::from_secs(60 * u64::from(options.minutes))).await;
    stage.end(measured).await
}

async fn under_load(stage: &Stage, long: Duration) -> Result<Figures> {
    let before = stage.printed();
    stage.apply().await?;
    stage.wait_ready().await?;
    let mut guest = stage.guest(&stage.machine().await?, &before).await?;
    let (alarms, mut watch) = (Alarms::default(), JoinSet::new());
    watch.spawn(listen(stage.client.clone(), alarms.clone()));
    let (began, mut plugged, mut bad, mut restarts) = (Instant::now(), Vec::new(), 0, 0);
    while began.elapsed() < long {
        for _ in 0..DISKS_PER_RESTART {
            plugged.push(plug(stage, &guest).await? as f64);
            let written = guest.shell(WRITE, PATIENCE).await?;
            bad += written.lines().filter(|line| line.trim() == "MP-IO-BAD").count();
            unplug(stage, &guest).await?;
        }
        let before = stage.printed();
        stage.site.bmctl(&["-n", NAMESPACE, "restart", MACHINE, "--wait", "--timeout", "180s"]).await?;
        guest = stage.guest(&stage.machine().await?, &before).await?;
        stage.wait_ready().await?;
        restarts += 1;
        let seen = alarms.lock().unwrap_or_else(PoisonError::into_inner).clone();
        stage.story.say(&format!("{} disks, {restarts} restarts, alarms {seen:?}", plugged.len()));
    }
    let alarms = alarms.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let count = |reason: &str| f64::from(alarms.get(reason).copied().unwrap_or_default());
    Ok([
        ("minutes", Figure::one(Unit::Count, began.elapsed().as_secs_f64() / 60.0)),
        ("hotPlug", Figure::of(Unit::Milliseconds, &plugged).context("disks were plugged")?),
        ("restarts", Figure::one(Unit::Count, f64::from(restarts))),
        ("failedWrites", Figure::one(Unit::Count, bad as f64)),
        ("calledSilent", Figure::one(Unit::Count, count("AgentSilent"))),
        ("emulationUnreachable", Figure::one(Unit::Count, count("EmulationUnreachable"))),
        ("switchUnreachable", Figure::one(Unit::Count, count("SwitchUnreachable"))),
    ]
    .map(|(name, figure)| (name.to_owned(), figure))
    .into())
}

/// Counts every time that a Dpu becomes not ready, by its reason. For ever.
async fn listen(client: Client, alarms: Alarms) {
    let dpus: Api<Dpu> = Api::all(client);
    let mut dpus = watcher(dpus, watcher::Config::default()).default_backoff().applied_objects().boxed();
    let mut reasons: BTreeMap<String, String> = BTreeMap::new();
    while let Some(dpu) = dpus.next().await {
        let Ok(dpu) = dpu else { continue };
        let status = dpu.status.clone().unwrap_or_default();
        let ready = conditions::get(&status.conditions, conditions::READY).filter(|ready| ready.status != "True");
        let reason = ready.map(|ready| ready.reason.clone()).unwrap_or_default();
        if reasons.insert(dpu.name_any(), reason.clone()) != Some(reason.clone()) && !reason.is_empty() {
            *alarms.lock().unwrap_or_else(PoisonError::into_inner).entry(reason).or_default() += 1;
        }
    }
}

async fn patch(stage: &Stage, patch: &str) -> Result<Timestamp> {
    let applied = Timestamp::now();
    stage.site.kubectl(&["patch", "bmm", MACHINE, "-n", NAMESPACE, "--type=json", "-p", patch]).await?;
    Ok(applied)
}

/// From the start of kubectl to the guest's kernel showing the disk.
async fn plug(stage: &Stage, guest: &Guest) -> Result<i64> {
    let from = guest.printed().len();
    let applied = patch(stage, crate::starts::NEW_DISK).await?;
    let there = when("the guest has the new disk", async || Ok(crate::starts::shows_the_disk(guest, from))).await?;
    Ok(milliseconds(applied, there))
}

async fn unplug(stage: &Stage, guest: &Guest) -> Result<()> {
    let from = guest.printed().len();
    patch(stage, r#"[{"op":"remove","path":"/spec/disks/1"}]"#).await?;
    let gone = |line: &str| line.contains("MP-BLOCK") && !line.contains("vda");
    guest.line("the guest has lost the disk", from, PATIENCE, gone).await?;
    // A disk that was taken out of the list is kept; the next one has the same name.
    let claim = format!("{MACHINE}-data");
    let delete = ["delete", "pvc", &claim, "-n", NAMESPACE, "--ignore-not-found", "--timeout=180s"];
    stage.site.kubectl(&delete).await.map(drop)
}
