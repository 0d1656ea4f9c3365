//! Replicas of the boot service, and the provisioning network that they are on: what a server sends there reaches those that run. They
//! know agents by sessions, as the chart has it.

use super::api::service;
use super::faults::Who;
use super::process::Process;
use super::scene::Scene;
use super::simulation::{INVENTORY, SEEDS};
use anyhow::Result;
use boot::args::Args;
use boot::dhcp::{Answers, Arrival};
use boot::{Reply, Service};
use clap::Parser;
use futures::FutureExt;
use installer::session::{Dial, Stream};
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{DuplexStream, copy_bidirectional, duplex};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_stream::wrappers::UnboundedReceiverStream;

const REPLICAS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 88, 0, 1), Ipv4Addr::new(10, 88, 0, 2)];
/// Where ISO images come from whose Hardware names none.
pub const IMAGE: &str = "http://images.example/installer.iso?signature=2b9e44f1";
const RESTART: Duration = Duration::from_secs(1);
/// Of a connection, on its way.
const ROOM: usize = 64 << 10;

/// One replica that runs.
struct Reached {
    process: Arc<Process>,
    service: Service,
    answers: Answers,
    streams: mpsc::UnboundedSender<io::Result<(DuplexStream, Option<SocketAddr>)>>,
}

/// The replicas end with it.
pub struct Network {
    reached: Arc<Mutex<BTreeMap<Ipv4Addr, Reached>>>,
    lives: Vec<JoinHandle<()>>,
}

impl Drop for Network {
    fn drop(&mut self) {
        self.lives.iter().for_each(JoinHandle::abort);
        std::mem::take(&mut *lock(&self.reached)).into_values().for_each(|replica| replica.process.die());
    }
}

fn lock<T>(all: &Mutex<T>) -> MutexGuard<'_, T> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Network {
    pub fn start(scene: &Arc<Scene>) -> Arc<Self> {
        let key = scene.volumes.with_file_name("token-key");
        std::fs::write(&key, [7; 32]).expect("the simulation's folder is writable");
        let reached = Arc::<Mutex<BTreeMap<_, _>>>::default();
        let names: Vec<_> = REPLICAS.iter().map(Ipv4Addr::to_string).collect();
        let life = |own: Ipv4Addr| {
            let args = Args::parse_from([
                "boot",
                &format!("--inventory-namespace={INVENTORY}"),
                &format!("--seeds-namespace={SEEDS}"),
                &format!("--address={}", names.join(",")),
                &format!("--own-address={own}"),
                &format!("--token-key={}", key.display()),
                &format!("--iso-url={IMAGE}"),
            ]);
            tokio::spawn(lives(scene.clone(), reached.clone(), own, args))
        };
        let lives = REPLICAS.map(life).into();
        Arc::new(Self { reached, lives })
    }

    /// Broadcast. What those answer that run, in the order of their addresses.
    pub fn dhcp(&self, packet: &[u8]) -> Vec<Vec<u8>> {
        let from = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 68);
        let arrival = Arrival { bytes: packet, port: boot::dhcp::SERVER_PORT, from };
        let mut reached = lock(&self.reached);
        let answers = reached.values_mut().filter_map(|replica| replica.answers.of(arrival));
        answers.map(|answer| answer.bytes).collect()
    }

    /// By HTTP; `None`: nobody answers there.
    pub async fn get(&self, from: Ipv4Addr, path: &str) -> Option<Reply> {
        let service = lock(&self.reached).get(&from).map(|replica| replica.service.clone())?;
        Some(service.route(path).await)
    }

    /// Every replica that runs dies at once, and is started again.
    pub fn dies(&self) {
        lock(&self.reached).values().for_each(|replica| replica.process.die());
    }

    /// Any replica that runs.
    pub fn one(&self) -> Option<Ipv4Addr> {
        lock(&self.reached).keys().next().copied()
    }

    /// `from`: whose agent it is.
    pub fn dial(self: &Arc<Self>, from: SocketAddr) -> Dial {
        let network = self.clone();
        Arc::new(move |server| std::future::ready(network.connect(&server, from)).boxed())
    }

    /// The stream of one that dies ends.
    fn connect(&self, server: &str, from: SocketAddr) -> io::Result<Stream> {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let at = server.parse::<SocketAddrV4>().map_err(io::Error::other)?;
        let reached = lock(&self.reached);
        let replica = reached.get(at.ip()).ok_or_else(refused)?;
        let ((agents, mut one), (mut other, servers)) = (duplex(ROOM), duplex(ROOM));
        replica.streams.send(Ok((servers, Some(from)))).map_err(|_| refused())?;
        let process = replica.process.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = copy_bidirectional(&mut one, &mut other) => {}
                () = process.died() => {}
            }
        });
        Ok(Box::new(agents))
    }
}

type All = Arc<Mutex<BTreeMap<Ipv4Addr, Reached>>>;

/// One process after the other, as a StatefulSet does it.
async fn lives(scene: Arc<Scene>, reached: All, own: Ipv4Addr, args: Args) {
    for life in 1.. {
        let process = Process::new(&scene, Who::Boot, &format!("boot-{own} life {life}"));
        let run = Box::pin(run(&process, &reached, own, &args));
        tokio::select! {
            biased;
            result = run => tracing::info!("boot at {own} ended: {result:?}"),
            () = process.died() => tracing::info!("boot at {own} died"),
        }
        lock(&reached).remove(&own);
        process.die();
        tokio::time::sleep(RESTART).await;
    }
}

async fn run(process: &Arc<Process>, reached: &All, own: Ipv4Addr, args: &Args) -> Result<()> {
    let mut tasks = JoinSet::new();
    let (client, nonce) = (service::client_of(process), process.scene.random.next());
    let (service, work, answers) = Service::start(client, args, nonce, &mut tasks).await?;
    let (streams, arriving) = mpsc::unbounded_channel();
    let replica = Reached { process: process.clone(), service: service.clone(), answers, streams };
    lock(reached).insert(own, replica);
    tokio::select! {
        biased;
        result = service.agents(UnboundedReceiverStream::new(arriving)) => result,
        () = work.run() => Ok(()),
        _ = tasks.join_next() => Ok(()),
    }
}
