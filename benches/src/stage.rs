//! A site to measure on, and a machine of the tiny image on it.

use anyhow::{Context, Result, bail};
use api::BareMetalMachine;
use api::tinkerbell::Hardware;
use jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use sandbox::handle::Options;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use tests::guest::Guest;
use tests::site::{Agents, GuestKind, INVENTORY_NAMESPACE, Place, Site};

pub const IMAGE: &str = "tiny";
pub const NAMESPACE: &str = "bench";
pub const MACHINE: &str = "bm";
pub const ADDRESS: &str = "10.30.0.7";
/// Of whoever asks the guest for an answer.
pub const ASKS_AS: Place = Place { namespace: NAMESPACE, subnet: "blue", addresses: &["10.30.0.250/24"] };
/// Generous: a figure that is late is a figure, one that is missing is none.
pub const PATIENCE: Duration = Duration::from_secs(180);
const LOOK: Duration = Duration::from_millis(20);

/// Prints each step with the seconds since the start.
pub struct Story {
    began: Instant,
}

impl Default for Story {
    fn default() -> Self {
        Self { began: Instant::now() }
    }
}

impl Story {
    pub fn say(&self, text: &str) {
        eprintln!("[{:6.1} s] {text}", self.began.elapsed().as_secs_f64());
    }
}

pub struct Stage {
    pub site: Site,
    pub client: Client,
    pub story: Story,
}

/// As administrator, from this machine.
pub async fn client(kubeconfig: &Path) -> Result<Client> {
    client_as(kubeconfig, None).await
}

/// In the name of another user, whose requests the API server queues: an administrator's never wait.
pub async fn client_as(kubeconfig: &Path, user: Option<&str>) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.auth_info.impersonate = user.map(str::to_owned);
    Client::try_from(config).context("make a client for the API server")
}

impl Stage {
    /// A site as users have it: controller and agents as pods, the tiny image imported.
    pub async fn raise(name: &str) -> Result<Self> {
        Self::raise_on(name, Options::default(), Agents::DaemonSet).await
    }

    pub async fn raise_on(name: &str, options: Options, agents: Agents) -> Result<Self> {
        let stage = Self::without_image(name, options, agents).await?;
        stage.story.say("importing the golden image");
        stage.site.golden_image(GuestKind::Tiny, None, IMAGE).await?;
        Ok(stage)
    }

    /// No machine can be started on it.
    pub async fn without_image(name: &str, options: Options, agents: Agents) -> Result<Self> {
        let story = Story::default();
        let site = Site::start(name, options, agents, &|text| story.say(text)).await?;
        site.kubectl(&["create", "namespace", NAMESPACE]).await?;
        let client = client(&site.sandbox.kubeconfig()).await?;
        Ok(Self { site, client, story })
    }

    /// Ends the site, whatever was measured. What was measured counts also where something is left behind.
    pub async fn end<T>(self, result: Result<T>) -> Result<T> {
        if result.is_err()
            && let Ok(machines) = self.site.kubectl(&["describe", "bmm", "-n", NAMESPACE]).await
        {
            eprintln!("{machines}");
        }
        self.story.say("ending the cluster");
        if let Err(left) = self.site.down().await {
            eprintln!("bench: the cluster has not ended well: {left:#}");
        }
        result
    }

    pub fn machines(&self) -> Api<BareMetalMachine> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub fn hardware(&self) -> Api<Hardware> {
        Api::namespaced(self.client.clone(), INVENTORY_NAMESPACE)
    }

    /// Applies the machine as a user would; tells when that began.
    pub async fn apply(&self) -> Result<Timestamp> {
        let applied = Timestamp::now();
        self.site.apply(&manifest()).await?;
        Ok(applied)
    }

    pub async fn wait_ready(&self) -> Result<()> {
        let limit = format!("--timeout={}s", PATIENCE.as_secs());
        let wait = ["wait", "--for=condition=Ready", &format!("bmm/{MACHINE}"), "-n", NAMESPACE, &limit];
        self.site.kubectl(&wait).await.map(drop)
    }

    pub async fn machine(&self) -> Result<Value> {
        self.site.get(&["bmm", MACHINE, "-n", NAMESPACE]).await?.context("the machine no longer exists")
    }

    /// The console of the guest that the machine runs on, which has finished its boot; `before`: what the consoles had
    /// printed before it.
    pub async fn guest(&self, machine: &Value, before: &BTreeMap<String, usize>) -> Result<Guest> {
        let hardware = machine["status"]["hardwareName"].as_str().context("no hardware is claimed")?;
        let server = hardware.replace("rack1-u0", "server-");
        let guest = Guest::new(self.site.sandbox.layout(), &server);
        let from = before.get(&server).copied().unwrap_or_default();
        guest.line("the guest has finished its boot", from, PATIENCE, |line| line.contains("MP-BOOT")).await?;
        Ok(guest)
    }

    /// How much each server's console has printed so far.
    pub fn printed(&self) -> BTreeMap<String, usize> {
        let servers = self.site.sandbox.ready().servers.iter();
        let printed = |name: &str| Guest::new(self.site.sandbox.layout(), name).printed().len();
        servers.map(|server| (server.name.clone(), printed(&server.name))).collect()
    }

    /// Waits until the machine is gone.
    pub async fn delete(&self) -> Result<()> {
        let limit = format!("--timeout={}s", PATIENCE.as_secs());
        let delete = ["delete", "bmm", MACHINE, "-n", NAMESPACE, "--ignore-not-found", &limit];
        self.site.kubectl(&delete).await.map(drop)
    }
}

/// Looks often, because it is time that is measured; tells when it was so.
pub async fn when(awaited: &str, mut is_so: impl AsyncFnMut() -> Result<bool>) -> Result<Timestamp> {
    let began = Instant::now();
    loop {
        if is_so().await? {
            return Ok(Timestamp::now());
        }
        if began.elapsed() > PATIENCE {
            bail!("{awaited}: not within {} s", PATIENCE.as_secs());
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn manifest() -> String {
    format!(
        "apiVersion: metalplane.io/v1alpha1
kind: Subnet
metadata: {{name: blue, namespace: {NAMESPACE}}}
spec: {{cidr: 10.30.0.0/24}}
---
apiVersion: metalplane.io/v1alpha1
kind: BareMetalMachine
metadata: {{name: {MACHINE}, namespace: {NAMESPACE}}}
spec:
  readinessProbe: {{icmp: {{}}}}
  terminationGracePeriodSeconds: 30
  disks:
  - {{name: root, bootOrder: 1, source: {{image: {{kind: ClusterMachineImage, name: {IMAGE}}}}}}}
  interfaces:
  - {{name: eth0, subnet: blue, addresses: [{ADDRESS}]}}
"
    )
}
