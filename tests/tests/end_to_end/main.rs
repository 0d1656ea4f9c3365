//! Metalplane on real parts: a real Kubernetes with real kubelets, real Open vSwitch, real sidecars, guests that boot.
//!
//! One site for all tests of this program, started by the first of them; each test has a namespace of its own. A test
//! says which servers are its own while it runs ([`on_servers`]), or has the site to itself ([`on_site`]): [`turns`].

mod agent_killed;
mod alone;
mod architectures;
mod bmc;
mod by_packets;
mod chart;
mod cni;
mod dpu_power;
mod erased;
mod flooded;
mod guest_power;
mod holder_pods;
mod isoboot;
mod jobs;
mod ladder;
mod life;
mod machine;
mod metadata;
mod netboot;
mod new_server;
mod on_vlan;
mod ovn;
mod pods;
mod refusals;
mod registry;
mod replicas;
mod shared_power;
mod shown;
mod states;
mod subnets;
mod turns;
mod verbs;
mod vpc_pods;
mod waiting;
mod way_out;
mod workers;

use anyhow::Result;
use sandbox::handle::Options;
use sandbox::server::faults::Faults;
use std::sync::OnceLock;
use std::time::Instant;
use tests::site::{Agents, GuestKind, Site, bare};
use tokio::runtime::Runtime;

/// A runtime and the site that lives on it, for as long as this program.
struct Stage {
    runtime: Runtime,
    site: Site,
}

/// The ClusterMachineImage that the tests boot.
const IMAGE: &str = "tiny";

static STAGE: OnceLock<Result<Stage, String>> = OnceLock::new();

/// The third server has no DPU; it is off until a test switches it on.
fn options() -> Options {
    let mut options = Options::default();
    options.servers.push("server-3".to_owned());
    options.personalities.push(bare("server-3"));
    options
}

fn raise() -> Result<Stage> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let began = Instant::now();
    let say = |text: &str| eprintln!("[{:6.1} s] {text}", began.elapsed().as_secs_f64());
    let site = runtime.block_on(async {
        let site = Site::start("e2e", options(), Agents::DaemonSet, &say).await?;
        say("importing the golden image");
        site.golden_image(GuestKind::Tiny, None, IMAGE).await?;
        anyhow::Ok(site)
    })?;
    Ok(Stage { runtime, site })
}

/// Runs one test beside those of other servers; `servers`: 1, 2, and 3, which has no DPU.
fn on_servers(servers: &[usize], name: &str, test: impl AsyncFnOnce(&Site, &str) -> Result<()>) {
    let _turn = turns::of_servers(servers);
    run(name, test);
}

/// Runs one test while no other runs.
fn on_site(name: &str, test: impl AsyncFnOnce(&Site, &str) -> Result<()>) {
    let _turn = turns::of_the_site();
    run(name, test);
}

/// Says why a test failed, the cause first: whoever sees a part of the output only, sees that part.
async fn tell(site: &Site, namespace: &str, error: &anyhow::Error) {
    eprintln!("CAUSE {error:#}");
    for server in &site.sandbox.ready().servers {
        let lines = site.server(&server.name).guest().last_lines(12);
        eprintln!("the last lines of the console of {}:\n{lines}", server.name);
    }
    if let Ok(machines) = site.kubectl(&["describe", "bmm", "-n", namespace]).await {
        eprintln!("{machines}");
    }
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
        if let Err(error) = &result {
            tell(site, &namespace, error).await;
        }
        // What a failed test leaves would fail the next ones: they share the servers and their BMCs.
        if result.is_err() {
            for server in &site.sandbox.ready().servers {
                site.server(&server.name).inject(Faults::default()).await?;
            }
        }
        let deleted = site.kubectl(&["delete", "bmm", "--all", "-n", &namespace, "--timeout=240s"]).await;
        site.kubectl(&["delete", "namespace", &namespace, "--wait=false"]).await?;
        if result.is_ok() {
            deleted?;
        }
        result
    });
    // libtest names a thread after its test.
    eprintln!("TIME {} {}", std::thread::current().name().unwrap_or(name), began.elapsed().as_millis());
    if let Err(error) = result {
        panic!("{error:#}\nlogs: {}", site.sandbox.layout().dir.join("logs").display());
    }
}
