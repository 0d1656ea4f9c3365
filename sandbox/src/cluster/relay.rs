//! The one way into a sandbox from outside its namespaces: a loopback port of this machine, relayed to an address in
//! the control plane's network. Only the supervisor opens such ports, and only towards the sandbox.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpStream as BlockingStream};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sched::{CloneFlags, setns};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

const CONNECT_LIMIT: Duration = Duration::from_secs(5);

type Wanted = (SocketAddr, oneshot::Sender<io::Result<BlockingStream>>);

/// Opens connections inside a network namespace. A socket belongs to the namespace of the thread that made it, so a
/// thread lives there and hands out connected sockets.
#[derive(Clone)]
pub struct Dialer {
    wanted: mpsc::Sender<Wanted>,
}

impl Dialer {
    pub fn new(netns: &Path) -> Result<Self> {
        let file = File::open(netns).with_context(|| format!("cannot open the namespace {}", netns.display()))?;
        let (wanted, receiver) = mpsc::channel::<Wanted>();
        let (entered, has_entered) = mpsc::channel();
        std::thread::Builder::new().name("dialer".into()).spawn(move || {
            let result = setns(file, CloneFlags::CLONE_NEWNET);
            let usable = result.is_ok();
            if entered.send(result).is_err() || !usable {
                return;
            }
            for (address, reply) in receiver {
                // A new thread starts in its maker's namespace; one that waits for an answer holds up no other.
                std::thread::spawn(move || {
                    let _ = reply.send(BlockingStream::connect_timeout(&address, CONNECT_LIMIT));
                });
            }
        })?;
        has_entered.recv().context("the dialer ended")?.context("cannot enter the network namespace")?;
        Ok(Self { wanted })
    }

    pub async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let (reply, connected) = oneshot::channel();
        self.wanted.send((address, reply)).map_err(io::Error::other)?;
        let stream = connected.await.map_err(io::Error::other)??;
        stream.set_nonblocking(true)?;
        TcpStream::from_std(stream)
    }
}

/// Relays every connection that `listener` accepts to `target`.
pub fn serve(listener: TcpListener, dialer: Dialer, target: SocketAddr) {
    tokio::spawn(async move {
        loop {
            let Ok((mut outside, _)) = listener.accept().await else { continue };
            let dialer = dialer.clone();
            tokio::spawn(async move {
                match dialer.connect(target).await {
                    Ok(mut inside) => {
                        let _ = outside.set_nodelay(true).and_then(|()| inside.set_nodelay(true));
                        // Either side may end the connection; that is no error of ours.
                        let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
                    }
                    Err(error) => tracing::debug!("no connection to {target}: {error}"),
                }
            });
        }
    });
}
