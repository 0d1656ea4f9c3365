//! A DPU's agent falls silent: how long until its Dpu says so.
//!
//! The agent is stopped by a signal, so nothing ends and nobody tells: neither kubelet nor the API server sees more than
//! a Lease that does not change.

use crate::Figures;
use crate::args::Lost;
use crate::figure::{Figure, Unit};
use crate::processes::Process;
use crate::stage::{Stage, when};
use anyhow::{Context, Result};
use api::{Dpu, conditions};
use jiff::Timestamp;
use kube::Api;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::Duration;
use tests::shares::milliseconds;

const DPU: &str = "dpu-1";
/// The agent renews each second: it is stopped at another moment of that second each time.
const SHIFT: Duration = Duration::from_millis(137);

pub async fn measure(options: &Lost) -> Result<Figures> {
    let stage = Stage::raise("bench-lost").await?;
    let measured = all(&stage, options.times).await;
    let samples = stage.end(measured).await?;
    let figure = Figure::of(Unit::Milliseconds, &samples).context("it was silenced at least once")?;
    Ok([("noticed".to_owned(), figure)].into())
}

async fn all(stage: &Stage, times: u16) -> Result<Vec<f64>> {
    let dpus: Api<Dpu> = Api::all(stage.client.clone());
    let agent = Process::find(stage.site.sandbox.layout(), "dpu-agent", &format!("--node-name={DPU}"))?;
    let mut samples = Vec::new();
    for turn in 1..=times {
        when("the DPU is ready", async || Ok(ready(&dpus).await? == "True")).await?;
        tokio::time::sleep(SHIFT * u32::from(turn % 8)).await;
        let silence = Silence::of(agent)?;
        let began = Timestamp::now();
        let noticed = when("the silent DPU is noticed", async || Ok(ready(&dpus).await? == "Unknown")).await?;
        drop(silence);
        let took = milliseconds(began, noticed);
        stage.story.say(&format!("{turn} of {times}: noticed after {took} ms"));
        samples.push(took as f64);
    }
    Ok(samples)
}

async fn ready(dpus: &Api<Dpu>) -> Result<String> {
    let status = dpus.get(DPU).await?.status.unwrap_or_default();
    let ready = conditions::get(&status.conditions, conditions::READY);
    Ok(ready.map(|condition| condition.status.clone()).unwrap_or_default())
}

/// The agent is stopped for as long as this lives.
struct Silence(Pid);

impl Silence {
    fn of(agent: Process) -> Result<Self> {
        let pid = Pid::from_raw(agent.0);
        kill(pid, Signal::SIGSTOP).context("stop the agent")?;
        Ok(Self(pid))
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        // One that is gone needs no waking.
        let _ = kill(self.0, Signal::SIGCONT);
    }
}
