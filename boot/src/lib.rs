//! The boot service: servers without a DPU boot the installer from the network, and their agents get Workflows from it.
//!
//! | file | what |
//! |---|---|
//! | `dhcp/` | engine: a packet in, a packet out |
//! | `tftp.rs` | engine: a packet in, packets out |
//! | `syslog.rs` | engine: a datagram in, a line out |
//! | `sockets.rs` | the sockets of these three |
//! | `http/`, `script.rs`, `files.rs` | scripts, boot programs, kernels, images with a place for the kernel's arguments |
//! | `origin.rs` | images of other servers, filled on the way |
//! | `identity.rs` | who an agent is |
//! | `metrics.rs` | numbers for Prometheus |
//! | `replicas.rs` | this replica, and the others on its network |
//! | `grpc/` | Tinkerbell's agents |
//! | `any_bytes.rs` | what is true of the engines, whatever is sent to them |
//! | `references.rs` | the objects that templates read as `.references` |
//! | `reports.rs` | what was seen of servers, into their HardwareReports |
//! | `silence.rs` | which agents are no longer heard |
//! | `workflows.rs` | renders Workflows, and ends those whose time is over |
//! | `world.rs` | what the API server told, and the writes |
//!
//! What a server may have is decided by `planner::netboot::verdict`, on every route. What becomes of a Workflow is decided by
//! `planner::workflow`. Nothing is kept here: a replica that starts knows what the API server tells. It writes the status of
//! Workflows, HardwareReports, and nothing else.

pub mod any_bytes;
pub mod args;
pub mod dhcp;
pub mod files;
mod grpc;
mod http;
mod identity;
mod metrics;
mod origin;
mod references;
mod replicas;
mod reports;
mod script;
mod seeds;
mod silence;
mod sockets;
mod syslog;
mod tftp;
mod workflows;
mod world;

use anyhow::{Context, Result, anyhow};
use args::Args;
use files::Files;
use identity::Identity;
use kube::Client;
use origin::Origins;
use references::Reader;
use replicas::Replicas;
use runtime::http::{self as pages, Page};
use seeds::Seeds;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::task::JoinSet;
use world::World;

/// Runs until `stop` ends; an error of any part ends all.
pub async fn run(client: Client, args: &Args, stop: impl Future<Output = ()>) -> Result<()> {
    let files = Arc::new(Files::read(&args.programs, args.files.as_deref())?);
    let identity = Identity::read(args.agents, args.token_key.as_deref())?;
    let replicas = Replicas::find(args.addresses.clone(), args.own_address)?;
    for pool in &args.dhcp_pools {
        pool.is_enough_for(&replicas).map_err(|why| anyhow!("--dhcp-pool: {why}"))?;
    }
    let mut tasks = JoinSet::new();
    let seeds = Arc::new(Seeds::new(client.clone(), &args.seeds_namespace));
    let reader = Reader::new(client.clone(), args.rules());
    let world = World::start(client, &args.inventory_namespace, nonce(), &mut tasks);
    let ready = Arc::new(AtomicBool::new(false));
    let service = async {
        world.wait_ready().await?;
        tracing::info!(namespace = world.namespace, "the caches are filled");
        Box::pin(serve(args, (&world, seeds, reader), files, (identity, replicas), &ready)).await
    };
    let ended = async {
        let ended = tasks.join_next().await;
        Err(anyhow!("a watch ended: {ended:?}"))
    };
    tokio::select! {
        biased;
        result = service => result,
        result = probes(args, ready.clone()) => result,
        result = ended => result,
        () = stop => Ok(()),
    }
}

async fn serve(
    args: &Args,
    (world, seeds, reader): (&Arc<World>, Arc<Seeds>, Reader),
    files: Arc<Files>,
    (identity, replicas): (Identity, Replicas),
    ready: &AtomicBool,
) -> Result<()> {
    let (address, syslog) = (replicas.own, replicas.syslog(args.syslog));
    let modes = args.modes();
    let dhcp = dhcp::Config {
        replicas: replicas.clone(),
        http_port: args.http_port,
        syslog,
        programs: args.choice(),
        modes,
        pools: args.dhcp_pools.clone(),
    };
    let strangers = dhcp.serves_strangers();
    let script = script::Config {
        replicas,
        http_port: args.http_port,
        grpc_port: args.grpc_port,
        syslog,
        kernel_arguments: args.kernel_arguments.clone(),
        identity: identity.clone(),
    };
    let metrics = Arc::new(metrics::Metrics::default());
    let (eyes, seen) = reports::channel(metrics.clone());
    let numbers = metrics::serve(args.metrics, metrics, world.clone(), identity.clone());
    let kept = reports::read(world).await;
    let heard = args.interface.as_deref().map(|interface| sockets::Heard::open(&dhcp, interface)).transpose()?;
    let programs = sockets::tftp_socket(address)?;
    let lines = (syslog == Some(address)).then(|| sockets::syslog_socket(address)).transpose()?;
    let dhcp = dhcp::Server { config: dhcp, leases: reports::leases(&kept) };
    let listen = |port| tokio::net::TcpListener::bind((address, port));
    let listener = listen(args.http_port).await.with_context(|| format!("listen on TCP {}", args.http_port))?;
    let agents = listen(args.grpc_port).await.with_context(|| format!("listen on TCP {}", args.grpc_port))?;
    // Whoever is told that it is ready is heard.
    ready.store(true, Ordering::Relaxed);
    let tftp = sockets::Tftp { files: files.clone(), script: script.clone(), strangers, eyes: eyes.clone() };
    let origins = Arc::new(Origins::new(args.origins()));
    let boots = http::Boots { script, files, origins, strangers, eyes: eyes.clone() };
    let web = http::Server { directory: world.directory(), seeds: seeds.clone(), boots };
    let web = http::serve(listener, web);
    let agents = grpc::serve(agents, (world.clone(), seeds), identity.clone(), eyes.clone());
    // Tasks of their own, each run where its packet is seen: a client of TFTP waits for every block.
    let mut packets = JoinSet::new();
    if let Some(heard) = heard {
        let (directory, eyes) = (world.directory(), eyes.clone());
        packets.spawn(async move { sockets::dhcp(dhcp, heard, directory, &eyes).await.context("DHCP ended") });
    }
    let directory = world.directory();
    packets.spawn(async move { sockets::tftp(programs, tftp, directory).await.context("TFTP ended") });
    let log = async {
        match lines {
            Some(socket) => sockets::syslog(socket, world.directory(), &eyes).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        Some(ended) = packets.join_next() => ended.unwrap_or_else(|panic| Err(panic.into())),
        result = log => result.context("syslog ended"),
        result = web => result.context("HTTP ended"),
        result = agents => result.context("gRPC ended"),
        result = numbers => result.context("serving metrics"),
        () = workflows::run(world.clone(), identity, reader) => Ok(()),
        () = reports::run(world, kept, seen) => Ok(()),
    }
}

async fn probes(args: &Args, ready: Arc<AtomicBool>) -> Result<()> {
    let page = move |path: String| {
        std::future::ready(match path.as_str() {
            "/healthz" | "/livez" => Page::ok(),
            "/readyz" if ready.load(Ordering::Relaxed) => Page::ok(),
            "/readyz" => Page::not_ready("the caches are not filled yet, or not everything listens"),
            _ => Page::not_found("/healthz or /readyz"),
        })
    };
    let never = pages::serve(args.probes, page).await.with_context(|| format!("serve on {}", args.probes))?;
    match never {}
}

/// Differs between any two processes.
fn nonce() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
