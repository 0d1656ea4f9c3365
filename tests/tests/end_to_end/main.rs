//! Metalplane on real parts: a real Kubernetes with real kubelets, real Open vSwitch, real sidecars, guests that boot.
//!
//! One site for all tests of this program, started by the first of them; each test has a namespace of its own. A test
//! says which servers are its own while it runs: those of different servers run at the same time, for most of their
//! time is waiting. One that does something to all of the site, or takes any server,
//! has the site to itself ([`on_site`]).

mod alone;
mod bmc;
mod dpu_power;
mod guest_power;
mod holder_pods;
mod life;
mod machine;
mod pods;
mod refusals;
mod shared_power;
mod verbs;
mod waiting;
mod workers;

use anyhow::Result;
use sandbox::handle::Options;
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};
use std::time::Instant;
use tests::site::{Agents, GuestKind, Site};
use tokio::runtime::Runtime;

/// A runtime and the site that lives on it, for as long as this program.
struct Stage {
    runtime: Runtime,
    site: Site,
}

/// The ClusterMachineImage that the tests boot.
const IMAGE: &str = "tiny";

static STAGE: OnceLock<Result<Stage, String>> = OnceLock::new();
/// Whose turn it is on each server; and whether somebody has all of the site.
static SERVERS: [Mutex<()>; 2] = [const { Mutex::new(()) }; 2];
static SITE: RwLock<()> = RwLock::new(());

fn raise() -> Result<Stage> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let began = Instant::now();
    let say = |text: &str| eprintln!("[{:6.1} s] {text}", began.elapsed().as_secs_f64());
    let site = runtime.block_on(async {
        let site = Site::start("e2e", Options::default(), Agents::DaemonSet, &say).await?;
        say("importing the golden image");
        site.golden_image(GuestKind::Tiny, None, IMAGE).await?;
        anyhow::Ok(site)
    })?;
    Ok(Stage { runtime, site })
}

/// Runs one test beside those of other servers; `servers`: 1, 2.
fn on_servers(servers: &[usize], name: &str, test: impl AsyncFnOnce(&Site, &str) -> Result<()>) {
    let turns: Vec<_> =
        servers.iter().map(|number| SERVERS[number - 1].lock().unwrap_or_else(PoisonError::into_inner)).collect();
    let shared = SITE.read().unwrap_or_else(PoisonError::into_inner);
    run(name, test);
    drop((shared, turns));
}

/// Runs one test while no other runs.
fn on_site(name: &str, test: impl AsyncFnOnce(&Site, &str) -> Result<()>) {
    let all = SITE.write().unwrap_or_else(PoisonError::into_inner);
    run(name, test);
    drop(all);
}

/// Runs one test on the site, in a namespace of its own, which is deleted behind it.
fn run(name: &str, test: impl AsyncFnOnce(&Site, &str) -> Result<()>) {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIP {name}: only root can make network namespaces");
        return;
    }
    let Stage { runtime, site } = match STAGE.get_or_init(|| raise().map_err(|error| format!("{error:#}"))) {
        Ok(stage) => stage,
        Err(error) => panic!("the site did not start: {error}"),
    };
    let began = Instant::now();
    let namespace = format!("t-{}", name.replace('_', "-"));
    let result = runtime.block_on(async {
        site.kubectl(&["create", "namespace", &namespace]).await?;
        let result = test(site, &namespace).await;
        if result.is_err()
            && let Ok(machines) = site.kubectl(&["describe", "bmm", "-n", &namespace]).await
        {
            eprintln!("{machines}");
        }
        // What a failed test leaves would fail the next ones: they share the servers.
        let deleted = site.kubectl(&["delete", "bmm", "--all", "-n", &namespace, "--timeout=240s"]).await;
        site.kubectl(&["delete", "namespace", &namespace, "--wait=false"]).await?;
        if result.is_ok() {
            deleted?;
        }
        result
    });
    eprintln!("TIME {name} {}", began.elapsed().as_millis());
    if let Err(error) = result {
        panic!("{error:#}\nlogs: {}", site.sandbox.layout().dir.join("logs").display());
    }
}
