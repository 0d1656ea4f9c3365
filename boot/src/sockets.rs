//! The sockets of DHCP and TFTP: the only place of this crate that sends or receives a datagram.

use crate::dhcp::{self, SERVER_PORT, Seen};
use crate::files::{Files, mac_of_path};
use crate::tftp::{self, Out};
use anyhow::{Context, Result};
use bytes::Bytes;
use planner::netboot::{Directory, Verdict, verdict};
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;
use tokio::sync::watch;

const TFTP_PORT: u16 = 69;
/// How often TFTP's clock is looked at.
const TICK: Duration = Duration::from_millis(250);

fn bound(to: SocketAddrV4, interface: Option<&str>) -> Result<UdpSocket> {
    let open = || {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_reuse_address(true)?;
        socket.set_broadcast(true)?;
        socket.set_nonblocking(true)?;
        if let Some(interface) = interface {
            socket.bind_device(Some(interface.as_bytes()))?;
        }
        socket.bind(&to.into())?;
        UdpSocket::from_std(socket.into())
    };
    open().with_context(|| format!("listen on UDP {to}"))
}

/// Broadcasts arrive at the first socket, what is sent to us at the second; answers leave from the second, so that their source is
/// the address that is configured, whatever other addresses the interface has.
pub async fn dhcp(config: dhcp::Config, interface: &str, directory: watch::Receiver<Arc<Directory>>) -> Result<()> {
    let all = bound(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, SERVER_PORT), Some(interface))?;
    let own = bound(SocketAddrV4::new(config.address, SERVER_PORT), Some(interface))?;
    let (mut first, mut second) = ([0; 2048], [0; 2048]);
    loop {
        let packet = tokio::select! {
            got = all.recv_from(&mut first) => got.map(|(length, _)| &first[..length]),
            got = own.recv_from(&mut second) => got.map(|(length, _)| &second[..length]),
        };
        let packet = match packet {
            Ok(packet) => packet,
            Err(error) => {
                tracing::warn!(%error, "receiving DHCP");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let known = directory.borrow().clone();
        let (answer, seen) = dhcp::answer(&config, &known, packet);
        if let Some(answer) = answer
            && let Err(error) = own.send_to(&answer.bytes, SocketAddr::V4(answer.to)).await
        {
            tracing::warn!(%error, to = %answer.to, "sending DHCP");
        }
        tell(seen);
    }
}

fn tell(seen: Option<Seen>) {
    match seen {
        Some(Seen::Answered { mac, with, address, file }) => tracing::info!(mac, with, %address, file, "DHCP"),
        Some(Seen::NotAnswered { mac, why }) => tracing::debug!(mac, why, "DHCP: not answered"),
        Some(Seen::Declined { mac, address }) => {
            tracing::warn!(mac, ?address, "DHCP: declined; somebody else has the address");
        }
        None => {}
    }
}

/// What one client may read: programs, by their names or below its MAC.
struct Allowed<'a> {
    directory: &'a Directory,
    files: &'a Files,
    from: SocketAddr,
}

impl tftp::Files for Allowed<'_> {
    fn open(&self, path: &str) -> Result<Bytes, String> {
        let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (subject, name) = match parts.as_slice() {
            [name] => (self.directory.by_address(self.from.ip()), *name),
            [mac, name] => (self.directory.by_mac(&mac_of_path(mac)), *name),
            _ => return Err("no such file".to_owned()),
        };
        match verdict(&subject.map_err(|why| why.to_string())?) {
            Verdict::Boot => self.files.program(name).cloned().ok_or_else(|| "no such file".to_owned()),
            Verdict::LocalDisk(why) | Verdict::AddressOnly(why) | Verdict::Nothing(why) => Err(why.to_string()),
        }
    }
}

pub async fn tftp(address: Ipv4Addr, files: Arc<Files>, directory: watch::Receiver<Arc<Directory>>) -> Result<()> {
    let socket = bound(SocketAddrV4::new(address, TFTP_PORT), None)?;
    let mut server = tftp::Server::default();
    let mut buffer = [0; 2048];
    let mut clock = tokio::time::interval(TICK);
    loop {
        let out = tokio::select! {
            got = socket.recv_from(&mut buffer) => match got {
                Ok((length, from)) => {
                    let known = directory.borrow().clone();
                    let allowed = Allowed { directory: &known, files: &files, from };
                    server.datagram(&buffer[..length], from, &allowed, Instant::now())
                }
                // A client that is gone: its host says so.
                Err(error) => {
                    tracing::debug!(%error, "receiving TFTP");
                    Vec::new()
                }
            },
            _ = clock.tick() => server.tick(Instant::now()),
        };
        for Out { bytes, to } in out {
            if let Err(error) = socket.send_to(&bytes, to).await {
                tracing::debug!(%error, %to, "sending TFTP");
            }
        }
    }
}
