//! What agent and controller hold and use while nothing happens: one machine runs, with three disks, its seed and a NIC.

use crate::Figures;
use crate::args::Footprint;
use crate::figure::{Figure, Unit};
use crate::processes::Process;
use crate::stage::{MACHINE, NAMESPACE, Stage};
use anyhow::{Context, Result};
use std::time::{Duration, Instant};

/// After the last change, until nothing is settled any more.
const CALM: Duration = Duration::from_secs(30);

pub async fn measure(options: &Footprint) -> Result<Figures> {
    let stage = Stage::raise("bench-footprint").await?;
    let measured = idle(&stage, Duration::from_secs(options.seconds.into())).await;
    stage.end(measured).await
}

async fn idle(stage: &Stage, over: Duration) -> Result<Figures> {
    stage.apply().await?;
    stage.wait_ready().await?;
    for name in ["one", "two"] {
        let words = ["adddisk", MACHINE, name, "--size", "64Mi", "--bus", "VirtioBlk", "--wait", "--timeout", "120s"];
        stage.site.bmctl(&[&["-n", NAMESPACE], words.as_slice()].concat()).await?;
    }
    let machine = stage.machine().await?;
    let dpu = machine["status"]["disks"][0]["dpuName"].as_str().context("no DPU presents it")?;
    let layout = stage.site.sandbox.layout();
    let agent = Process::find(layout, "dpu-agent", &format!("--node-name={dpu}"))?;
    let controller = Process::find(layout, "controller", "--inventory-namespace=metalplane-inventory")?;
    stage.story.say("waiting until it is calm");
    tokio::time::sleep(CALM).await;

    let before = (agent.cpu_seconds()?, controller.cpu_seconds()?);
    let began = Instant::now();
    tokio::time::sleep(over).await;
    let percent = |before: f64, after: f64| (after - before) / began.elapsed().as_secs_f64() * 100.0;
    let mebibytes =
        |process: Process, field: &str| -> Result<Figure> { Ok(Figure::one(Unit::Mebibytes, process.memory(field)?)) };
    Ok([
        ("agentMemory", mebibytes(agent, "VmRSS")?),
        ("agentAnonymous", mebibytes(agent, "RssAnon")?),
        ("agentCpu", Figure::one(Unit::Percent, percent(before.0, agent.cpu_seconds()?))),
        ("controllerMemory", mebibytes(controller, "VmRSS")?),
        ("controllerAnonymous", mebibytes(controller, "RssAnon")?),
        ("controllerCpu", Figure::one(Unit::Percent, percent(before.1, controller.cpu_seconds()?))),
    ]
    .map(|(name, figure)| (name.to_owned(), figure))
    .into())
}
