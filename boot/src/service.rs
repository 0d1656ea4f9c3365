//! What a replica does, but for its sockets: [`crate::run`] gives it what arrives there; the simulation gives it what its servers send.

use crate::args::Args;
use crate::dhcp::{self, Answers};
use crate::files::Files;
use crate::grpc::{self, Arrived, Wire};
use crate::http::{Boots, Reply, asked};
use crate::identity::Identity;
use crate::metrics::Metrics;
use crate::origin::Origins;
use crate::references::Reader;
use crate::replicas::Replicas;
use crate::reports::{self, Sights};
use crate::script;
use crate::seeds::Seeds;
use crate::workflows;
use crate::world::World;
use anyhow::{Result, anyhow};
use futures::Stream;
use kube::Client;
use std::io;
use std::sync::Arc;
use tokio::task::JoinSet;

#[derive(Clone)]
pub struct Service {
    pub(crate) world: Arc<World>,
    pub(crate) seeds: Arc<Seeds>,
    pub(crate) identity: Identity,
    pub(crate) replicas: Replicas,
    pub(crate) boots: Arc<Boots>,
    pub(crate) metrics: Arc<Metrics>,
}

/// What a replica does by itself.
pub struct Work {
    world: Arc<World>,
    identity: Identity,
    reader: Reader,
    kept: reports::All,
    seen: Sights,
    /// Of the replica.
    number: usize,
}

impl Service {
    /// Once the caches are filled; the watches end when the set is dropped. `nonce`: differs between any two processes.
    pub async fn start(
        client: Client,
        args: &Args,
        nonce: u64,
        tasks: &mut JoinSet<()>,
    ) -> Result<(Self, Work, Answers)> {
        let files = Arc::new(Files::read(&args.programs, args.files.as_deref())?);
        let identity = Identity::read(args.agents, args.token_key.as_deref())?;
        let replicas = Replicas::find(args.addresses.clone(), args.own_address)?;
        for pool in &args.dhcp_pools {
            pool.is_enough_for(&replicas).map_err(|why| anyhow!("--dhcp-pool: {why}"))?;
        }
        let seeds = Arc::new(Seeds::new(client.clone(), &args.seeds_namespace));
        let reader = Reader::new(client.clone(), args.rules());
        let world = World::start(client, &args.inventory_namespace, nonce, tasks);
        world.wait_ready().await?;
        tracing::info!(namespace = world.namespace, "the caches are filled");

        let syslog = replicas.syslog(args.syslog);
        let dhcp = dhcp::Config {
            replicas: replicas.clone(),
            http_port: args.http_port,
            syslog,
            programs: args.choice(),
            modes: args.modes(),
            pools: args.dhcp_pools.clone(),
        };
        let script = script::Config {
            replicas: replicas.clone(),
            http_port: args.http_port,
            grpc_port: args.grpc_port,
            syslog,
            kernel_arguments: args.kernel_arguments.clone(),
            identity: identity.clone(),
        };
        let metrics = Arc::new(Metrics::default());
        let (eyes, seen) = reports::channel(metrics.clone());
        let kept = reports::read(&world).await;
        let strangers = dhcp.serves_strangers();
        let answers = Answers::new(dhcp, reports::leases(&kept), world.directory(), eyes.clone());
        let origins = Arc::new(Origins::new(args.origins()));
        let boots = Arc::new(Boots { script, files, origins, strangers, eyes });
        let number = replicas.number();
        let work = Work { world: world.clone(), identity: identity.clone(), reader, kept, seen, number };
        Ok((Self { world, seeds, identity, replicas, boots, metrics }, work, answers))
    }

    /// What a path of HTTP is to whoever asks for it now.
    pub async fn route(&self, path: &str) -> Reply {
        asked(&self.world, &self.boots, path).await
    }

    /// Serves agents, until no more streams can come.
    pub async fn agents<S: Wire>(&self, arriving: impl Stream<Item = io::Result<Arrived<S>>>) -> Result<()> {
        let known = (self.world.clone(), self.seeds.clone());
        grpc::serve(arriving, known, self.identity.clone(), self.boots.eyes.clone()).await
    }
}

impl Work {
    /// For ever.
    pub async fn run(self) {
        let Self { world, identity, reader, kept, seen, number } = self;
        tokio::select! {
            () = workflows::run(world.clone(), identity, reader) => {}
            () = reports::run(&world, kept, seen, number) => {}
        }
    }
}
