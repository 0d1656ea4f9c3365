//! Metalplane on real parts: a real Kubernetes with real kubelets, real Open vSwitch, real sidecars, guests that boot.
//!
//! One site for all tests of this program, started by the first of them; each test has a namespace of its own. They run
//! one after the other: the machine has few processors, and a guest under emulation takes one.

mod faults;
mod life;
mod refusals;

use anyhow::Result;
use sandbox::handle::Options;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
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

static STAGE: OnceLock<Mutex<Result<Stage, String>>> = OnceLock::new();

fn stage() -> MutexGuard<'static, Result<Stage, String>> {
    let stage = STAGE.get_or_init(|| Mutex::new(raise().map_err(|error| format!("{error:#}"))));
    stage.lock().unwrap_or_else(PoisonError::into_inner)
}

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

/// Runs one test on the site, in a namespace of its own, which is deleted behind it.
fn on_site(name: &str, test: impl AsyncFnOnce(&Site, &str) -> Result<()>) {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIP {name}: only root can make network namespaces");
        return;
    }
    let stage = stage();
    let Stage { runtime, site } = match stage.as_ref() {
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
        let deleted = site.kubectl(&["delete", "bmm", "--all", "-n", &namespace, "--timeout=120s"]).await;
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
