//! Starts everything in order: caches, election, work.

use crate::args::Args;
use crate::bmc::{BmcFactory, Hosts};
use crate::events::Events;
use crate::fences::Fences;
use crate::leader::Elector;
use crate::metrics::{self, Metrics};
use crate::objects::Objects;
use crate::queue;
use crate::volumes::Volumes;
use crate::world::World;
use crate::{admissions, dpu, hold, holder_pods, http, image, machine, orphans, verbs};
use anyhow::{Context, Result, bail};
use api::labels;
use kube::{Api, Client};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::task::JoinSet;

/// What the work of every kind shares.
pub struct Controller {
    pub objects: Objects,
    pub world: Arc<World>,
    pub hosts: Arc<Hosts>,
    pub events: Events,
    pub volumes: Volumes,
    pub(crate) metrics: Arc<Metrics>,
    pub prepared: dpu::Prepared,
    pub first_seen: orphans::FirstSeen,
    /// The controller's own namespace.
    pub namespace: String,
    pub inventory: String,
    pub holder_image: String,
    pub fences: Fences,
}

impl Controller {
    pub(crate) fn numbers(&self) -> String {
        // Writing to a text cannot fail.
        self.metrics.text(&self.world, self.hosts.count()).unwrap_or_default()
    }
}

#[derive(Debug, Clone)]
pub struct Settings {
    pub namespace: String,
    pub inventory_namespace: String,
    pub identity: String,
    /// Differs between any two processes, restarts included.
    pub nonce: u64,
    pub holder_image: String,
    pub concurrency: usize,
    pub bmc_concurrency: usize,
    /// None: not served.
    pub http: Option<SocketAddr>,
}

impl From<&Args> for Settings {
    fn from(args: &Args) -> Self {
        Self {
            namespace: args.namespace.clone(),
            inventory_namespace: args.inventory_namespace.clone(),
            identity: args.identity.clone(),
            nonce: nonce(),
            holder_image: args.holder_image.clone(),
            concurrency: usize::from(args.concurrency),
            bmc_concurrency: usize::from(args.bmc_concurrency),
            http: Some(args.http),
        }
    }
}

/// Runs until `stop` ends or leadership is lost. Losing it is an error: the process has to end at once, for what is under
/// way must not go on beside the next leader.
pub async fn run(
    client: Client,
    factory: Arc<dyn BmcFactory>,
    fences: Fences,
    settings: Settings,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let metrics = Arc::new(Metrics::default());
    let client = metrics::counted(client, metrics.requests());
    let objects = Objects { client: client.clone() };
    let world = World::new(settings.nonce);
    let inventory = settings.inventory_namespace.clone();
    let controller = Arc::new(Controller {
        hosts: Hosts::new(
            factory,
            objects.clone(),
            &inventory,
            world.clone(),
            metrics.clone(),
            settings.bmc_concurrency,
        ),
        events: Events::start(client.clone(), &settings.identity),
        volumes: Volumes::default(),
        metrics,
        prepared: dpu::Prepared::default(),
        first_seen: orphans::FirstSeen::default(),
        namespace: settings.namespace.clone(),
        inventory: inventory.clone(),
        holder_image: settings.holder_image.clone(),
        fences,
        objects: objects.clone(),
        world: world.clone(),
    });
    let mut tasks = world.watch(&objects, &inventory);
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
            let never = http::serve(address, controller).await.with_context(|| format!("serve on {address}"))?;
            match never {}
        }
        None => std::future::pending().await,
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
        leadership = ready => leadership,
        () = &mut stop => return Ok(()),
    };
    tracing::info!(token = leadership.token, identity, "leading");
    c.hosts.lead(leadership.token);
    c.metrics.leads(leadership.token);
    let queues = &c.world.queues;
    queues.named().iter().for_each(|(name, _)| c.metrics.controller(name));
    let n = settings.concurrency;
    let (machines, dpus, images, holds, pods) = (c.clone(), c.clone(), c.clone(), c.clone(), c.clone());
    tasks.spawn(queue::work(queues.machines.clone(), n, move |key| machine::reconcile(machines.clone(), key)));
    let gone = c.clone();
    tasks.spawn(queue::work(queues.leftovers.clone(), n, move |key| machine::leftovers::reconcile(gone.clone(), key)));
    let gone = c.clone();
    tasks.spawn(queue::work(queues.image_leftovers.clone(), n, move |key| {
        image::leftovers::reconcile(gone.clone(), key)
    }));
    tasks.spawn(queue::work(queues.dpus.clone(), n, move |key| dpu::reconcile(dpus.clone(), key)));
    tasks.spawn(queue::work(queues.images.clone(), n, move |key| image::reconcile(images.clone(), key)));
    tasks.spawn(queue::work(queues.holds.clone(), n, move |key| hold::reconcile(holds.clone(), key)));
    verbs::work(&c, n, tasks);
    let work = move |key| holder_pods::reconcile(pods.clone(), key);
    tasks.spawn(queue::work(queues.holder_pods.clone(), n, work));
    tasks.spawn(dpu::listen(c.clone()));
    if c.fences.admit_by_list() {
        tasks.spawn(admissions::keep(c.clone()));
    }
    tokio::select! {
        biased;
        lost = elector.hold(leadership) => bail!("leadership is lost: {lost}"),
        () = &mut stop => {}
    }
    // Nothing of ours goes on when the next one starts.
    tasks.shutdown().await;
    elector.release(leadership).await.context("give the lease back")
}

fn nonce() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one((std::process::id(), jiff::Timestamp::now().as_nanosecond()))
}
