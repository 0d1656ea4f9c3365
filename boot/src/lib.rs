//! The boot service: servers without a DPU boot the installer from the network, and their agents get Workflows from it.
//!
//! | file | what |
//! |---|---|
//! | `dhcp/` | engine: a packet in, a packet out |
//! | `tftp.rs` | engine: a packet in, packets out |
//! | `syslog.rs` | engine: a datagram in, a line out |
//! | `service.rs` | all that a replica does, but for its sockets |
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
mod service;
mod silence;
mod sockets;
mod syslog;
mod tftp;
mod workflows;
mod world;

pub use http::Reply;
pub use service::{Service, Work};

use anyhow::{Context, Result, anyhow};
use args::Args;
use dhcp::Answers;
use kube::Client;
use runtime::http::{self as pages, Page};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::task::JoinSet;

/// Runs until `stop` ends; an error of any part ends all.
pub async fn run(client: Client, args: &Args, stop: impl Future<Output = ()>) -> Result<()> {
    let mut tasks = JoinSet::new();
    let ready = Arc::new(AtomicBool::new(false));
    let service = async {
        let (service, work, answers) = Service::start(client, args, nonce(), &mut tasks).await?;
        let ended = async {
            let ended = tasks.join_next().await;
            Err(anyhow!("a watch ended: {ended:?}"))
        };
        tokio::select! {
            biased;
            result = Box::pin(serve(args, &service, work, answers, &ready)) => result,
            result = ended => result,
        }
    };
    tokio::select! {
        biased;
        result = service => result,
        result = probes(args, ready.clone()) => result,
        () = stop => Ok(()),
    }
}

async fn serve(args: &Args, service: &Service, work: Work, answers: Answers, ready: &AtomicBool) -> Result<()> {
    let Service { world, seeds, identity, replicas, boots, metrics } = service;
    let (address, syslog) = (replicas.own, replicas.syslog(args.syslog));
    let numbers = metrics::serve(args.metrics, metrics.clone(), world.clone(), identity.clone());
    let open = |interface| sockets::Heard::open(answers.config(), interface);
    let heard = args.interface.as_deref().map(open).transpose()?;
    let programs = sockets::tftp_socket(address)?;
    let lines = (syslog == Some(address)).then(|| sockets::syslog_socket(address)).transpose()?;
    let listen = |port| tokio::net::TcpListener::bind((address, port));
    let listener = listen(args.http_port).await.with_context(|| format!("listen on TCP {}", args.http_port))?;
    let agents = listen(args.grpc_port).await.with_context(|| format!("listen on TCP {}", args.grpc_port))?;
    // Whoever is told that it is ready is heard.
    ready.store(true, Ordering::Relaxed);
    let web = http::Server { world: world.clone(), seeds: seeds.clone(), boots: boots.clone() };
    // Tasks of their own, each run where its packet is seen: a client of TFTP waits for every block.
    let mut packets = JoinSet::new();
    if let Some(heard) = heard {
        packets.spawn(async move { sockets::dhcp(answers, heard).await.context("DHCP ended") });
    }
    let (directory, served) = (world.directory(), boots.clone());
    packets.spawn(async move { sockets::tftp(programs, served, directory).await.context("TFTP ended") });
    let log = async {
        match lines {
            Some(socket) => sockets::syslog(socket, world.directory(), &boots.eyes).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        Some(ended) = packets.join_next() => ended.unwrap_or_else(|panic| Err(panic.into())),
        result = log => result.context("syslog ended"),
        result = http::serve(listener, web) => result.context("HTTP ended"),
        result = service.agents(grpc::arriving(agents)) => result.context("gRPC ended"),
        result = numbers => result.context("serving metrics"),
        () = work.run() => Ok(()),
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
