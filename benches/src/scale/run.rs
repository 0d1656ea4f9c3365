//! The machines: all created at once, until the last is ready; then a while of nothing.

use super::agents::Agents;
use super::inventory::Inventory;
use super::process::Controller;
use crate::Figures;
use crate::figure::{Figure, Unit};
use crate::scrape::{Counts, RECONCILES, REQUESTS};
use crate::stage::Story;
use ::tests::shares::milliseconds;
use anyhow::{Context, Result, bail};
use api::{BareMetalMachine, Dpu, conditions};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Without a machine more in so long something is wrong.
const STUCK: Duration = Duration::from_secs(180);
const CALM: Duration = Duration::from_secs(60);

pub async fn run(story: &Story, inventory: &Inventory, agents: &Agents, controller: &Controller) -> Result<Figures> {
    let dpus = Instant::now();
    dpus_ready(story, inventory).await?;
    story.say(&format!("all DPUs are ready after {:.0} s", dpus.elapsed().as_secs_f64()));
    let process = controller.process;
    let (memory_before, cpu_before) = (process.memory("VmRSS")?, process.cpu_seconds()?);
    let metrics = controller.metrics().await?;
    let (before, reconciled) = (Counts::of(REQUESTS, &metrics), Counts::of(RECONCILES, &metrics));
    let missed = agents.missed();

    let began = Instant::now();
    let silent = AtomicU32::new(0);
    let made = async { tokio::try_join!(inventory.machines(), machines_ready(story, inventory)) };
    let ((), times) = tokio::select! {
        made = made => made?,
        error = watch_silent(controller, &silent) => return Err(error),
    };
    let took = began.elapsed().as_secs_f64();
    let (memory, cpu) = (process.memory("VmRSS")?, process.cpu_seconds()? - cpu_before);
    let metrics = controller.metrics().await?;
    let requests = Counts::of(REQUESTS, &metrics).since(&before);
    let reconciles = Counts::of(RECONCILES, &metrics).since(&reconciled);
    let n = inventory.size.machines as f64;
    story.say(&format!("{n} machines in {took:.0} s; renewals of Leases that failed: {}", agents.missed() - missed));
    requests.show(story, "requests per machine", n);
    reconciles.show(story, "reconciles per machine", n);

    story.say("a minute of nothing");
    let (before, cpu_calm, calm) =
        (Counts::of(REQUESTS, &controller.metrics().await?), process.cpu_seconds()?, Instant::now());
    tokio::time::sleep(CALM).await;
    let idle_percent = (process.cpu_seconds()? - cpu_calm) / calm.elapsed().as_secs_f64() * 100.0;
    let idle_requests = Counts::of(REQUESTS, &controller.metrics().await?).since(&before);
    idle_requests.show(story, "requests per machine", n);
    Ok([
        ("machinesPerMinute", Figure::one(Unit::Count, n / took * 60.0)),
        ("createdToReady", Figure::of(Unit::Milliseconds, &times).context("machines became ready")?),
        ("requestsPerMachine", Figure::one(Unit::Count, requests.total() / n)),
        ("reconcilesPerMachine", Figure::one(Unit::Count, reconciles.total() / n)),
        ("cpuPerMachine", Figure::one(Unit::Milliseconds, cpu / n * 1000.0)),
        ("memoryBefore", Figure::one(Unit::Mebibytes, memory_before)),
        ("memory", Figure::one(Unit::Mebibytes, memory)),
        ("memoryPeak", Figure::one(Unit::Mebibytes, process.memory("VmHWM")?)),
        ("idleCpu", Figure::one(Unit::Percent, idle_percent)),
        ("idleRequestsPerMinute", Figure::one(Unit::Count, idle_requests.total() / CALM.as_secs_f64() * 60.0)),
        ("mostSilent", Figure::one(Unit::Count, silent.into_inner().into())),
    ]
    .map(|(name, figure)| (name.to_owned(), figure))
    .into())
}

/// Every agent renews. One that is called silent was let in too late by the API server. Keeps how many were at one time, at most.
async fn watch_silent(controller: &Controller, most: &AtomicU32) -> anyhow::Error {
    loop {
        match controller.metrics().await {
            Ok(metrics) => most.fetch_max(called_silent(&metrics), Ordering::Relaxed),
            Err(error) => return error,
        };
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn called_silent(metrics: &str) -> u32 {
    let lines = metrics.lines().filter(|line| line.starts_with("metalplane_dpus{") && line.contains("AgentSilent"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u32>().ok()).sum()
}

async fn dpus_ready(story: &Story, inventory: &Inventory) -> Result<()> {
    let is_ready = |dpu: &Dpu| {
        let status = dpu.status.clone().unwrap_or_default();
        conditions::is_true(&status.conditions, conditions::READY) && status.namespace.is_some()
    };
    let why = |dpu: &Dpu| why(dpu.status.as_ref().map(|status| &status.conditions));
    all(story, "DPUs", Api::all(inventory.client.clone()), inventory.size.machines, (is_ready, why)).await.map(drop)
}

/// The milliseconds from each one's creation to its readiness.
async fn machines_ready(story: &Story, inventory: &Inventory) -> Result<Vec<f64>> {
    let is_ready = |machine: &BareMetalMachine| {
        let status = machine.status.clone().unwrap_or_default();
        conditions::is_true(&status.conditions, conditions::READY)
    };
    let why = |machine: &BareMetalMachine| why(machine.status.as_ref().map(|status| &status.conditions));
    all(story, "machines", Api::all(inventory.client.clone()), inventory.size.machines, (is_ready, why)).await
}

/// What one that is not ready says.
fn why(conditions: Option<&Vec<Condition>>) -> String {
    let ready = conditions.and_then(|all| conditions::get(all, conditions::READY));
    ready.map_or_else(|| "nothing".to_owned(), |ready| format!("{}: {}", ready.reason, ready.message))
}

/// Waits until so many objects are so; for each the milliseconds since it was first seen.
async fn all<K>(
    story: &Story,
    what: &str,
    api: Api<K>,
    wanted: usize,
    (is_so, why): (impl Fn(&K) -> bool, impl Fn(&K) -> String),
) -> Result<Vec<f64>>
where
    K: kube::Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let mut objects = watcher(api, watcher::Config::default()).default_backoff().applied_objects().boxed();
    let mut seen: HashMap<String, (Timestamp, Option<f64>)> = HashMap::new();
    let mut waits = BTreeMap::new();
    let mut done = 0;
    while done < wanted {
        let next = tokio::time::timeout(STUCK, objects.next()).await;
        let Ok(Some(object)) = next else {
            bail!("{done} of {wanted} {what}, and nothing more in {STUCK:?}; the others say: {waits:?}")
        };
        let Ok(object) = object else { continue };
        let (now, is_so) = (Timestamp::now(), is_so(&object));
        match is_so {
            true => waits.remove(&object.name_any()),
            false => waits.insert(object.name_any(), why(&object)),
        };
        let entry = seen.entry(object.uid().unwrap_or_default()).or_insert((now, None));
        if is_so && entry.1.is_none() {
            entry.1 = Some(milliseconds(entry.0, now) as f64);
            done += 1;
            if done % 100 == 0 {
                story.say(&format!("{done} of {wanted} {what} are ready"));
            }
        }
    }
    Ok(seen.into_values().filter_map(|(_, took)| took).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_dpus_are_counted() {
        let text = "metalplane_dpus{ready=\"True\",reason=\"AgentRunning\"} 98\n\
                    metalplane_dpus{ready=\"Unknown\",reason=\"AgentSilent\"} 2\n";
        assert_eq!(called_silent(text), 2);
    }
}
