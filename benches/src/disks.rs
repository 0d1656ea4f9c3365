//! Disks of a machine that runs, and the machine on other hardware.
//!
//! An attachment begins when the machine is given a claim that is bound, and has ended when its DiskAttachment says `Exposed`:
//! hold, grant, connection and function are in it, the guest's driver is not. A holder pod is scheduled, started and attached by
//! Kubernetes in between. Where SPDK is installed, a second site takes its disks from it, as many as one host can have.

use crate::Figures;
use crate::args::Disks;
use crate::figure::{Figure, Unit};
use crate::stage::{MACHINE, NAMESPACE, PATIENCE, Stage, when};
use anyhow::{Context, Result};
use api::attachment::DiskSlot;
use api::{BareMetalMachine, DiskAttachment, conditions};
use jiff::Timestamp;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use sandbox::handle::Options;
use sandbox::spdk::real;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tests::shares::{Move, milliseconds};
use tests::site::{Agents, HELD_CLASS, HELD_MANIFEST, STORAGE_CLASS};

/// With the boot disk and its cloud-init disk these are 64.
const MANY: usize = 62;

type Samples = BTreeMap<&'static str, Vec<f64>>;

pub async fn measure(options: &Disks) -> Result<Figures> {
    let stage = Stage::raise("bench-disks").await?;
    let measured = on_pods(&stage, options).await;
    let mut samples = stage.end(measured).await?;
    if let Err(missing) = real::program("nvmf_tgt") {
        eprintln!("SKIP disks by SPDK: {missing}");
    } else {
        let site = Options {
            nodes: vec!["dpu-1".to_owned(), "node-1".to_owned()],
            servers: vec!["server-1".to_owned()],
            vfio_user: true,
            ..Options::default()
        };
        let stage = Stage::raise_on("bench-disks-spdk", site, Agents::Process).await?;
        let measured = on_spdk(&stage, options).await;
        samples.extend(stage.end(measured).await?);
    }
    let figure = |(name, samples): (&str, Vec<f64>)| Some((name.to_owned(), Figure::of(Unit::Milliseconds, &samples)?));
    Ok(samples.into_iter().filter_map(figure).collect())
}

async fn on_pods(stage: &Stage, options: &Disks) -> Result<Samples> {
    stage.site.apply(HELD_MANIFEST).await?;
    stage.apply().await?;
    stage.wait_ready().await?;
    let mut samples = Samples::new();
    samples.insert("native", attachments(stage, "VirtioBlk", STORAGE_CLASS, options.times).await?);
    samples.insert("holderPod", attachments(stage, "VirtioBlk", HELD_CLASS, options.times).await?);
    for _ in 0..options.moves {
        let asked = Timestamp::now();
        stage.site.bmctl(&["-n", NAMESPACE, "migrate", MACHINE, "--wait", "--timeout", "180s"]).await?;
        let all = stage.site.get(&["mmig", "-n", NAMESPACE]).await?.context("no migration")?;
        let share = Move::of(&all["items"][0], &stage.machine().await?, asked)?;
        stage.story.say(&format!("moved: {share:?}"));
        samples.entry("move").or_default().push(share.all as f64);
        samples.entry("moveOurs").or_default().push(share.ours() as f64);
        stage.site.kubectl(&["delete", "mmig", "--all", "-n", NAMESPACE, "--timeout=60s"]).await?;
    }
    stage.delete().await?;
    Ok(samples)
}

async fn on_spdk(stage: &Stage, options: &Disks) -> Result<Samples> {
    stage.apply().await?;
    stage.wait_ready().await?;
    let mut samples = Samples::new();
    samples.insert("spdk", attachments(stage, "NVMe", STORAGE_CLASS, options.times).await?);
    let names: Vec<String> = (1..=MANY).map(|number| format!("many-{number}")).collect();
    for name in &names {
        claim(stage, STORAGE_CLASS, name).await?;
    }
    samples.insert("spdkMany", vec![attach(stage, "NVMe", &names).await?]);
    detach(stage).await?;
    stage.delete().await?;
    Ok(samples)
}

async fn attachments(stage: &Stage, bus: &str, class: &str, times: u16) -> Result<Vec<f64>> {
    let mut all = Vec::new();
    for number in 1..=times {
        let name = format!("{class}-{number}");
        claim(stage, class, &name).await?;
        all.push(attach(stage, bus, &[name]).await?);
        detach(stage).await?;
    }
    stage.story.say(&format!("attached by {class}: {all:?} ms"));
    Ok(all)
}

/// A claim that is bound.
async fn claim(stage: &Stage, class: &str, name: &str) -> Result<()> {
    stage
        .site
        .apply(&format!(
            "apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}, namespace: {NAMESPACE}}}
spec:
  accessModes: [ReadWriteOnce]
  volumeMode: Block
  storageClassName: {class}
  resources: {{requests: {{storage: 16Mi}}}}
"
        ))
        .await?;
    let limit = format!("--timeout={}s", PATIENCE.as_secs());
    let bound = ["wait", "--for=jsonpath={.status.phase}=Bound", &format!("pvc/{name}"), "-n", NAMESPACE, &limit];
    stage.site.kubectl(&bound).await.map(drop)
}

/// Milliseconds until the host has all of them.
async fn attach(stage: &Stage, bus: &str, claims: &[String]) -> Result<f64> {
    let disk = |claim: &String| {
        let source = json!({"persistentVolumeClaim": {"claimName": claim}});
        json!({"op": "add", "path": "/spec/disks/-", "value": {"name": claim, "bus": bus, "source": source}})
    };
    let asked = Timestamp::now();
    patch(&stage.machines(), claims.iter().map(disk).collect()).await?;
    let exposed = async || {
        let all = attachments_of(stage).await?;
        let has = |claim: &String| {
            all.iter().any(|one| {
                let conditions = one.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
                one.spec.disk_name == *claim && conditions::is_true(conditions, "Exposed")
            })
        };
        Ok(claims.iter().all(has))
    };
    let there = when("the disks are exposed", exposed).await?;
    Ok(milliseconds(asked, there) as f64)
}

/// Takes away all but the boot disk.
async fn detach(stage: &Stage) -> Result<()> {
    let machines = stage.machines();
    let disks = machines.get(MACHINE).await?.spec.disks.len();
    let remove = |place: usize| json!({"op": "remove", "path": format!("/spec/disks/{place}")});
    patch(&machines, (1..disks).rev().map(remove).collect()).await?;
    let gone = async || Ok(!attachments_of(stage).await?.iter().any(|one| one.spec.slot == DiskSlot::HotPlug));
    when("the disks are taken back", gone).await.map(drop)
}

async fn attachments_of(stage: &Stage) -> Result<Vec<DiskAttachment>> {
    let all: Api<DiskAttachment> = Api::all(stage.client.clone());
    Ok(all.list(&ListParams::default()).await?.items)
}

async fn patch(machines: &Api<BareMetalMachine>, operations: Vec<Value>) -> Result<()> {
    let operations = serde_json::from_value(Value::from(operations)).context("a JSON patch")?;
    machines.patch(MACHINE, &PatchParams::default(), &Patch::<()>::Json(operations)).await?;
    Ok(())
}
