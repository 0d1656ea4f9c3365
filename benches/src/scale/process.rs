//! The controller in a process of its own, with the BMCs in it: its memory and its processor time are its own.
//!
//! The parent reads from its standard output which host was powered how.

use super::Size;
use super::agents::Agents;
use crate::args::ScaleController;
use crate::processes::Process;
use crate::scrape;
use anyhow::{Context, Result, anyhow};
use api::dpu::PowerDomain;
use async_trait::async_trait;
use controller::bmc::{BmcFactory, RedfishEndpoint};
use controller::{Fences, OpenNorthBound, OpenSouthBound, Ovn, Settings, run};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use planner::host::{BootChange, HostObserved, MediumChange, PowerAction};
use ports::conformance::memory::MemorySouthBound;
use ports::{Bmc, ErrorClass, PortError};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tests::sim::host::{Host, HostBmc, Shared};
use tests::sim::random::Random;
use tests::site::{INVENTORY_NAMESPACE, SYSTEM_NAMESPACE, Site};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

/// From power-on to a guest's first packet.
const GUEST: Duration = Duration::from_secs(1);
/// This program as what ships is built; else it is the running one.
const PROGRAM: &str = "METALPLANE_BENCH_CONTROLLER";
const USER: &str = "metalplane-controller";

pub struct Controller {
    child: Child,
    pub process: Process,
    http: SocketAddr,
}

impl Controller {
    pub fn start(site: &Site, size: Size, agents: Agents, tasks: &mut JoinSet<()>) -> Result<Self> {
        let http = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let folder = crate::root().join("target/bench");
        std::fs::create_dir_all(&folder)?;
        let log = std::fs::File::create(folder.join("scale-controller.log"))?;
        let program = std::env::var_os(PROGRAM).map(PathBuf::from).map_or_else(std::env::current_exe, Ok)?;
        let mut child = Command::new(program)
            .arg("scale-controller")
            .arg("--kubeconfig")
            .arg(site.sandbox.kubeconfig())
            .arg(format!("--http={http}"))
            .arg(format!("--hosts={}", size.machines))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("start the controller")?;
        let pid = child.id().context("it runs")?;
        let mut lines = BufReader::new(child.stdout.take().context("its output is a pipe")?).lines();
        tasks.spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let Some((server, "On")) = line.split_once(' ') else { continue };
                let (agents, dpu) = (agents.clone(), server.replace("server-", "dpu-"));
                tokio::spawn(async move {
                    tokio::time::sleep(GUEST).await;
                    agents.guest_speaks(&dpu).await;
                });
            }
        });
        Ok(Self { child, process: Process(i32::try_from(pid)?), http })
    }

    /// Comes back only if it ends by itself, which is an error.
    pub async fn ended(&self) -> anyhow::Error {
        loop {
            // One that has ended holds no memory, even while nobody has asked how it ended.
            if self.process.memory("VmRSS").is_err() {
                return anyhow!("the controller ended: see target/bench/scale-controller.log");
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    pub async fn stop(&mut self) -> Result<()> {
        self.child.kill().await.context("end the controller")
    }

    /// Its metrics, as lines.
    pub async fn metrics(&self) -> Result<String> {
        scrape::metrics(self.http).await
    }
}

/// `bench scale-controller`: becomes the controller, with the rights that its account has in a cluster.
pub async fn controller(args: &ScaleController) -> Result<()> {
    let kubeconfig = Kubeconfig::read_from(&args.kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{SYSTEM_NAMESPACE}")];
    config.auth_info = AuthInfo {
        impersonate: Some(format!("system:serviceaccount:{SYSTEM_NAMESPACE}:{USER}")),
        impersonate_groups: Some([groups.as_slice(), &["system:authenticated".to_owned()]].concat()),
        ..config.auth_info
    };
    let settings = Settings {
        namespace: SYSTEM_NAMESPACE.to_owned(),
        inventory_namespace: INVENTORY_NAMESPACE.to_owned(),
        seeds_namespace: "metalplane-seeds".to_owned(),
        identity: "bench".to_owned(),
        nonce: std::process::id().into(),
        holder_image: "pause".to_owned(),
        holder_pull_secrets: Vec::new(),
        discovers: false,
        installer_iso: None,
        discover_boot_options: false,
        concurrency: 64,
        bmc_concurrency: 128,
        http: Some(args.http),
        pages: controller::Pages::default(),
    };
    let folder = tempfile::tempdir()?;
    let (shared, random) = (Shared::default(), Random::new(1));
    let host = |number| Host::new(number, PowerDomain::Standby, folder.path(), &shared, random.clone());
    let hosts = (1..=usize::from(args.hosts)).map(host).map(|host| (host.name.clone(), host)).collect();
    let factory = Arc::new(Bmcs { hosts });
    let north = shared.north_bound.clone();
    let north_bound: OpenNorthBound = Arc::new(move |site| Arc::new(north.open(site)));
    let south_bound: OpenSouthBound = Arc::new(move || Arc::new(MemorySouthBound::of(&shared.north_bound)));
    let ovn = Ovn { north_bound, south_bound: Some(south_bound) };
    let client = Client::try_from(config)?;
    Box::pin(run(client, factory, Fences::default(), Some(ovn), settings, std::future::pending())).await
}

/// The simulation's BMCs, by the address in their endpoint.
struct Bmcs {
    hosts: HashMap<String, Arc<Host>>,
}

impl BmcFactory for Bmcs {
    fn redfish(&self, endpoint: &RedfishEndpoint) -> Result<Arc<dyn Bmc>, PortError> {
        let missing = || PortError::new(ErrorClass::Unreachable, format!("no host {}", endpoint.host));
        let host = self.hosts.get(&endpoint.host).ok_or_else(missing)?;
        Ok(Arc::new(Told { name: host.name.clone(), bmc: HostBmc(host.clone()) }))
    }
}

/// A BMC that says on standard output what it was told to do.
struct Told {
    name: String,
    bmc: HostBmc,
}

#[async_trait]
impl Bmc for Told {
    async fn observe(&self) -> Result<HostObserved, PortError> {
        self.bmc.observe().await
    }

    async fn power(&self, action: PowerAction) -> Result<(), PortError> {
        self.bmc.power(action).await?;
        println!("{} {action:?}", self.name);
        Ok(())
    }

    async fn configure_boot(&self, change: &BootChange) -> Result<(), PortError> {
        self.bmc.configure_boot(change).await
    }

    async fn change_medium(&self, change: &MediumChange) -> Result<(), PortError> {
        self.bmc.change_medium(change).await
    }
}
