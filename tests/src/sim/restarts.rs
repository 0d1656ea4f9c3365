//! A controller or an agent that is started again whenever it ends: as a Deployment does, and kubelet.

use super::api::service;
use super::bmcs::Bmcs;
use super::faults::Who;
use super::host::Host;
use super::north_bound::{Reached, ReachedChassis};
use super::parts::{Parts, fences};
use super::process::Process;
use super::scene::Scene;
use clap::Parser;
use controller::{OpenNorthBound, OpenSouthBound, Ovn, Settings};
use dpu_agent::session::Access;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

const RESTART: Duration = Duration::from_secs(1);

type Current = Arc<Mutex<Option<Arc<Process>>>>;

/// One process after the other.
pub struct Lives {
    supervisor: JoinHandle<()>,
    /// The present one.
    current: Current,
}

impl Lives {
    pub fn of_controller(scene: &Arc<Scene>, settings: Settings) -> Self {
        let current = Current::default();
        Self { supervisor: tokio::spawn(controller(scene.clone(), settings, current.clone())), current }
    }

    pub fn of_agent(scene: &Arc<Scene>, host: &Arc<Host>) -> Self {
        let current = Current::default();
        Self { supervisor: tokio::spawn(agent(scene.clone(), host.clone(), current.clone())), current }
    }

    pub fn abort(&self) {
        self.supervisor.abort();
    }

    /// It is dead, and nobody starts it again.
    pub fn end(self) {
        self.supervisor.abort();
        if let Some(process) = self.current.lock().unwrap_or_else(PoisonError::into_inner).take() {
            process.die();
        }
    }
}

async fn controller(scene: Arc<Scene>, mut settings: Settings, current: Current) {
    let name = settings.identity.clone();
    for life in 1u64.. {
        settings.nonce = scene.random.next();
        let process = Process::new(&scene, Who::Controller, &format!("{name} life {life}"));
        *current.lock().unwrap_or_else(PoisonError::into_inner) = Some(process.clone());
        let client = service::client_of(&process);
        let bmcs = Arc::new(Bmcs::new(process.clone()));
        let fences = fences(&process);
        let reached = process.clone();
        let north_bound: OpenNorthBound = Arc::new(move |site| Arc::new(Reached::open(&reached, site)));
        let reached = process.clone();
        let south_bound: OpenSouthBound = Arc::new(move || Arc::new(ReachedChassis::open(&reached)));
        let ovn = Ovn { north_bound, south_bound: Some(south_bound) };
        let run = Box::pin(controller::run(client, bmcs, fences, Some(ovn), settings.clone(), std::future::pending()));
        tokio::select! {
            biased;
            result = run => tracing::info!("{name} ended: {result:?}"),
            () = process.died() => tracing::info!("{name} died"),
        }
        process.die();
        tokio::time::sleep(RESTART).await;
    }
}

/// Lives of one agent, as kubelet starts them again for as long as its DPU runs.
async fn agent(scene: Arc<Scene>, host: Arc<Host>, current: Current) {
    let mut running = host.running();
    for life in 1.. {
        // The sender lives as long as the host.
        let boot = running.wait_for(Option::is_some).await.map(|boot| *boot).unwrap_or_default();
        let process = Process::new(&scene, Who::Agent, &format!("{} life {life}", host.dpu_name));
        *current.lock().unwrap_or_else(PoisonError::into_inner) = Some(process.clone());
        let dpu = host.dpu();
        let run_dir = dpu.run_dir.display().to_string();
        let boot_id_file = dpu.run_dir.join("boot-id").display().to_string();
        let erasers = dpu.run_dir.join("erasers").display().to_string();
        let arguments = [
            ["dpu-agent", "--node-name", &host.dpu_name, "--run-dir", &run_dir],
            ["--boot-id-file", &boot_id_file, "--erasers", &erasers, "--eraser-arguments=console=ttyS0"],
        ]
        .concat();
        let arguments = arguments.into_iter().chain(["--hold-disks", &erasers]);
        let args = dpu_agent::args::Args::parse_from(arguments);
        let (own, bootstrap) = (process.clone(), service::client_of(&process));
        let access = Access { bootstrap, own: Box::new(move |_| Ok(service::client_of(&own))) };
        let ports = Parts { process: process.clone(), host: host.clone(), dpu }.ports();
        let run = Box::pin(dpu_agent::run_with(&args, access, ports, std::future::pending()));
        tokio::select! {
            biased;
            result = run => tracing::info!("the agent of {} ended: {result:?}", host.dpu_name),
            () = process.died() => tracing::info!("the agent of {} died", host.dpu_name),
            _ = running.wait_for(|now| *now != boot) => tracing::info!("{} lost its power", host.dpu_name),
        }
        process.die();
        tokio::time::sleep(RESTART).await;
    }
}
