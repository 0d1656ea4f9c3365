//! Starts everything in order: caches, election, work.

use crate::args::Args;
use crate::bmc::{BmcFactory, Hosts};
use crate::context::Controller;
use crate::error::Error;
use crate::events::Events;
use crate::fences::Fences;
use crate::memory::{Asked, FirstSeen, Passing, Prepared, SentTasks, ToldPods, ToldWorkflows};
use crate::metrics::{self, Metrics};
use crate::network::{Logical, Ovn};
use crate::objects::Objects;
use crate::volumes::Volumes;
use crate::work::Work;
use crate::world::{Namespaces, World};
use crate::{admissions, collector, dpu, echo, enrol, hold, image, job, machine, network, verbs, workflow};
use anyhow::{Context, Result, anyhow, bail};
use api::labels;
use executor::Confirmed;
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::{Api, Client};
use planner::host::InstallerIso;
use runtime::http::{self, Page};
use runtime::leader::Elector;
use runtime::queue::{self, Key, Next};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Under which each look at an object is traced.
pub const LOOKS: &str = "metalplane::looks";

#[derive(Debug, Clone)]
pub struct Settings {
    pub namespace: String,
    pub inventory_namespace: String,
    pub seeds_namespace: String,
    pub identity: String,
    /// Differs between any two processes, restarts included.
    pub nonce: u64,
    pub holder_image: String,
    pub holder_pull_secrets: Vec<String>,
    /// Whether Hardware is made of servers that nobody has written down.
    pub discovers: bool,
    /// Where BMCs read the installer's ISO.
    pub installer_iso: Option<InstallerIso>,
    pub discover_boot_options: bool,
    pub concurrency: usize,
    pub bmc_concurrency: usize,
    /// None: not served.
    pub http: Option<SocketAddr>,
    pub pages: Pages,
}

/// What is served over HTTP, for whoever runs a controller in its own process.
#[derive(Debug, Clone, Default)]
pub struct Pages(Arc<Mutex<Weak<Controller>>>);

impl Pages {
    /// `None`: it has ended, or has not begun.
    pub fn read(&self, path: &str) -> Option<String> {
        let controller = self.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade()?;
        Some(page(&controller, path).body().to_owned())
    }

    fn begin(&self, controller: &Arc<Controller>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(controller);
    }
}

impl From<&Args> for Settings {
    fn from(args: &Args) -> Self {
        Self {
            namespace: args.namespace.clone(),
            inventory_namespace: args.inventory_namespace.clone(),
            seeds_namespace: args.seeds_namespace.clone(),
            identity: args.identity.clone(),
            nonce: nonce(),
            holder_image: args.holder_image.clone(),
            holder_pull_secrets: args.holder_pull_secrets.clone(),
            discovers: args.discover,
            installer_iso: args.installer_iso.clone(),
            discover_boot_options: args.discover_boot_options,
            concurrency: usize::from(args.concurrency),
            bmc_concurrency: usize::from(args.bmc_concurrency),
            http: Some(args.http),
            pages: Pages::default(),
        }
    }
}

/// Runs until `stop` ends or leadership is lost. Losing it is an error: the process has to end at once, for what is under
/// way must not go on beside the next leader.
pub async fn run(
    client: Client,
    factory: Arc<dyn BmcFactory>,
    fences: Fences,
    ovn: Option<Ovn>,
    settings: Settings,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let metrics = Arc::new(Metrics::default());
    let client = metrics::counted(client, metrics.requests());
    let objects = Objects { client: client.clone() };
    let world = World::new(settings.nonce);
    let (inventory, seeds) = (settings.inventory_namespace.clone(), settings.seeds_namespace.clone());
    let controller = Arc::new(Controller {
        hosts: Hosts::new(
            factory,
            objects.clone(),
            &inventory,
            world.clone(),
            metrics.clone(),
            settings.bmc_concurrency,
        ),
        events: Events::start(&client, &settings.identity),
        volumes: Volumes::default(),
        confirmed: Confirmed::default(),
        network: Logical::new(ovn, metrics.written()),
        metrics,
        prepared: Prepared::default(),
        first_seen: FirstSeen::default(),
        asked: Asked::default(),
        passing: Passing::default(),
        told_pods: ToldPods::default(),
        told_workflows: ToldWorkflows::default(),
        sent: SentTasks::default(),
        namespace: settings.namespace.clone(),
        inventory: inventory.clone(),
        seeds: seeds.clone(),
        holder_image: settings.holder_image.clone(),
        holder_pull_secrets: settings.holder_pull_secrets.clone(),
        discovers: settings.discovers,
        installer_iso: settings.installer_iso.clone(),
        discover_boot_options: settings.discover_boot_options,
        fences,
        objects: objects.clone(),
        world: world.clone(),
    });
    settings.pages.begin(&controller);
    let mut tasks = world.watch(&objects, &Namespaces { inventory, seeds });
    controller.hosts.watch(settings.nonce, &mut tasks);
    let served = serve(settings.http, controller.clone());
    let led = lead(controller, &settings, &mut tasks, stop);
    tokio::select! {
        biased;
        result = led => result,
        result = served => result,
    }
}

async fn serve(address: Option<SocketAddr>, controller: Arc<Controller>) -> Result<()> {
    match address {
        Some(address) => {
            let page = move |path: String| std::future::ready(page(&controller, &path));
            let never = http::serve(address, page).await.with_context(|| format!("serve on {address}"))?;
            match never {}
        }
        None => std::future::pending().await,
    }
}

fn page(c: &Controller, path: &str) -> Page {
    match path {
        "/healthz" | "/livez" => Page::ok(),
        "/readyz" if c.world.is_ready() => Page::ok(),
        "/readyz" => Page::not_ready("the caches are not filled yet"),
        // Writing to a text cannot fail.
        "/metrics" => Page::metrics(c.metrics.text(&c.world, &c.network, c.hosts.count()).unwrap_or_default()),
        _ => Page::not_found("/healthz, /readyz or /metrics"),
    }
}

async fn lead(
    c: Arc<Controller>,
    settings: &Settings,
    tasks: &mut JoinSet<()>,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let mut stop = std::pin::pin!(stop);
    let identity = format!("{}_{:016x}", settings.identity, settings.nonce);
    let leases = Api::namespaced(c.objects.client.clone(), &settings.namespace);
    let elector = Elector::new(leases, labels::CONTROLLER, &identity);
    let ready = async {
        c.world.wait_ready().await;
        tracing::info!("the caches are filled");
        elector.acquire().await
    };
    let leadership = tokio::select! {
        biased;
        leadership = ready => leadership.map_err(|lost| anyhow!("did not begin to lead: {lost}"))?,
        () = &mut stop => return Ok(()),
    };
    tracing::info!(token = leadership.token, identity, "leading");
    c.hosts.lead(leadership.token);
    c.world.liveness.lead();
    c.metrics.leads(leadership.token);
    c.told_workflows.begin(c.world.workflows.all());
    let worked = async {
        network::before_all(&c).await;
        work(&c, settings.concurrency, tasks);
        tasks.spawn(network::follow(c.clone(), leadership.clone()));
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        biased;
        lost = elector.hold(&leadership) => bail!("leadership is lost: {lost}"),
        () = c.network.deposed() => bail!("OVN's north-bound database is led by another controller"),
        () = &mut stop => {}
        never = worked => match never {},
    }
    // Nothing of ours goes on when the next one starts.
    tasks.shutdown().await;
    elector.release(&leadership).await.context("give the lease back")
}

/// Every queue is worked on from now on.
fn work(c: &Arc<Controller>, concurrency: usize, tasks: &mut JoinSet<()>) {
    for work in Work::ALL {
        c.metrics.controller(work.name());
        let (c, queue) = (c.clone(), c.world.queue(work).clone());
        tasks.spawn(queue::work(queue, concurrency, move |key| reconcile(c.clone(), work, key)));
    }
    tasks.spawn(dpu::listen(c.clone()));
    if c.fences.admit_by_list() {
        tasks.spawn(admissions::keep(c.clone()));
    }
}

/// Works on one object, and tells of it.
async fn reconcile(c: Arc<Controller>, work: Work, key: Key) -> Next {
    let began = Instant::now();
    let (c, k) = (&c, &key);
    let done: BoxFuture<'_, Result<Next, Error>> = match work {
        Work::Machine => machine::reconcile(c, k).boxed(),
        Work::Leftovers => collector::reconcile(c, k).boxed(),
        Work::Dpu => dpu::reconcile(c, k).boxed(),
        Work::Job => job::reconcile(c, k).boxed(),
        Work::Contact => job::contact::reconcile(c, k).boxed(),
        Work::Workflow => workflow::reconcile(c, k).boxed(),
        Work::Enrolment => enrol::reconcile(c, k).boxed(),
        Work::Image => image::reconcile(c, k).boxed(),
        Work::Hold => hold::reconcile(c, k).boxed(),
        Work::Pod => network::pods::reconcile(c, k).boxed(),
        Work::VNic => network::vnics::reconcile(c, k).boxed(),
        Work::Vpc => network::vpcs::reconcile(c, k).boxed(),
        Work::Subnet => network::subnets::reconcile(c, k).boxed(),
        Work::SecurityGroup => network::groups::reconcile(c, k).boxed(),
        Work::ProviderNetwork => network::outside::provider::reconcile(c, k).boxed(),
        Work::NatGateway => network::outside::gateway::reconcile(c, k).boxed(),
        Work::FloatingIP => network::outside::floating::reconcile(c, k).boxed(),
        Work::MachineSnapshot => verbs::snapshot::reconcile(c, k).boxed(),
        Work::MachineRestore => verbs::restore::reconcile(c, k).boxed(),
        Work::MachineMigration => verbs::migration::reconcile(c, k).boxed(),
    };
    let result = echo::looking((work, key.clone()), done).await;
    tracing::trace!(target: LOOKS, work = work.name());
    c.metrics.reconciled(work.name(), began.elapsed(), result.as_ref().err().map(Error::class));
    result.unwrap_or_else(|error| {
        // What was read was not the newest: the next look is on what is.
        if error.is_stale() {
            tracing::debug!(work = work.name(), namespace = %key.0, name = %key.1, "{error}");
        } else {
            tracing::warn!(work = work.name(), namespace = %key.0, name = %key.1, "{error}");
        }
        Next::BackOff
    })
}

fn nonce() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one((std::process::id(), jiff::Timestamp::now().as_nanosecond()))
}
