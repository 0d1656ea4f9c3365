//! The sockets of DHCP, TFTP and syslog: the only place of this crate that sends or receives a datagram.

use crate::dhcp::{self, Answers, Arrival, PROXY_PORT, SERVER_PORT};
use crate::files::{Program, mac_of_path};
use crate::http::Boots;
use crate::reports::{self, Eyes};
use crate::script;
use crate::syslog::{self, Budgets, Line};
use crate::tftp::{self, Out};
use anyhow::{Context, Result};
use api::report::{HeardBy, NetbootStage};
use planner::netboot::report::Sight;
use planner::netboot::{Directory, Verdict, verdict};
use proto::syslog::is_installers;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;
use tokio::sync::watch;

const TFTP_PORT: u16 = 69;
const SYSLOG_PORT: u16 = 514;
/// What the kernel keeps of DHCP until it is read; it gives what its administrator allows (net.core.rmem_max). Its default holds some 150
/// packets, which is less than a hall sends when its power comes back.
const BUFFER: usize = 4 << 20;
/// Packets of DHCP that wait for their answers, and so many of one socket are taken before the next answer.
const MOST: usize = 4096;
const AT_ONCE: usize = 64;
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

pub fn tftp_socket(address: Ipv4Addr) -> Result<UdpSocket> {
    bound(SocketAddrV4::new(address, TFTP_PORT), None)
}

pub fn syslog_socket(address: Ipv4Addr) -> Result<UdpSocket> {
    bound(SocketAddrV4::new(address, SYSLOG_PORT), None)
}

/// Where DHCP is heard. Broadcasts of the interface arrive at the first, what is sent to us by it at the second, what relays send to us
/// by another way at the third, and PXE's second question at the fourth. Answers leave from the one that was asked, broadcasts' from the
/// second: so their source is the address that is configured, whatever other addresses there are.
pub struct Heard {
    broadcasts: UdpSocket,
    own: UdpSocket,
    relays: UdpSocket,
    /// Where no network is served as a proxy the port may be another program's.
    proxy: Option<UdpSocket>,
}

impl Heard {
    pub fn open(config: &dhcp::Config, interface: &str) -> Result<Self> {
        let ours = |port| SocketAddrV4::new(config.replicas.own, port);
        let open = |at, interface| {
            let socket = bound(at, interface)?;
            SockRef::from(&socket).set_recv_buffer_size(BUFFER).with_context(|| format!("the buffer of UDP {at}"))?;
            anyhow::Ok(socket)
        };
        let proxy = config.modes.any_proxy().then(|| open(ours(PROXY_PORT), None));
        Ok(Self {
            broadcasts: open(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, SERVER_PORT), Some(interface))?,
            own: open(ours(SERVER_PORT), Some(interface))?,
            relays: open(ours(SERVER_PORT), None)?,
            proxy: proxy.transpose()?,
        })
    }

    fn all(&self) -> impl Iterator<Item = (usize, &UdpSocket)> {
        [Some(&self.broadcasts), Some(&self.own), Some(&self.relays), self.proxy.as_ref()]
            .into_iter()
            .enumerate()
            .filter_map(|(which, socket)| Some((which, socket?)))
    }

    /// Until there is a packet.
    async fn wait(&self) -> std::io::Result<()> {
        let proxy = async {
            match &self.proxy {
                Some(socket) => socket.readable().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            there = self.broadcasts.readable() => there,
            there = self.own.readable() => there,
            there = self.relays.readable() => there,
            there = proxy => there,
        }
    }

    /// Takes what is there, so that it does not wait where there is little room.
    fn take(&self, queue: &mut Queue) -> std::io::Result<()> {
        let mut buffer = [0; 2048];
        for (which, socket) in self.all() {
            for _ in 0..AT_ONCE {
                match socket.try_recv_from(&mut buffer) {
                    Ok((length, SocketAddr::V4(from))) => {
                        queue.add(Packet { which, bytes: buffer[..length].to_vec(), from })
                    }
                    Ok(_) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    fn answers(&self, which: usize) -> (&UdpSocket, u16) {
        match (which, &self.proxy) {
            (3, Some(proxy)) => (proxy, PROXY_PORT),
            (2, _) => (&self.relays, SERVER_PORT),
            _ => (&self.own, SERVER_PORT),
        }
    }
}

/// By which socket it came, and from where.
struct Packet {
    which: usize,
    bytes: Vec<u8>,
    from: SocketAddrV4,
}

/// What waits for its answer. Where too much does, the oldest is not answered: its client has asked again by then.
#[derive(Default)]
struct Queue {
    packets: VecDeque<Packet>,
    dropped: usize,
}

impl Queue {
    fn add(&mut self, packet: Packet) {
        if self.packets.len() == MOST {
            self.packets.pop_front();
            self.dropped += 1;
        }
        self.packets.push_back(packet);
    }

    /// The one that has waited longest; says how many were dropped once none is left.
    fn next(&mut self) -> Option<Packet> {
        let next = self.packets.pop_front();
        if next.is_none() && self.dropped > 0 {
            let packets = std::mem::take(&mut self.dropped);
            tracing::warn!(packets, "DHCP: more came than could be answered");
        }
        next
    }
}

pub async fn dhcp(mut answers: Answers, heard: Heard) -> Result<()> {
    let mut queue = Queue::default();
    loop {
        if let Err(error) = heard.take(&mut queue) {
            tracing::warn!(%error, "receiving DHCP");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let Some(Packet { which, bytes, from }) = queue.next() else {
            heard.wait().await.context("wait for DHCP")?;
            continue;
        };
        let (socket, port) = heard.answers(which);
        let answer = answers.of(Arrival { bytes: &bytes, port, from });
        if let Some(answer) = answer
            && let Err(error) = socket.send_to(&answer.bytes, SocketAddr::V4(answer.to)).await
        {
            tracing::warn!(%error, to = %answer.to, "sending DHCP");
        }
    }
}

/// What one client may read: programs, by their names or below its MAC.
struct Allowed<'a> {
    directory: &'a Directory,
    boots: &'a Boots,
    from: SocketAddr,
}

impl tftp::Files for Allowed<'_> {
    fn open(&self, path: &str) -> Result<Program, String> {
        let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (mac, name) = match parts.as_slice() {
            [name] => (None, *name),
            [mac, name] => (Some(mac_of_path(mac)), *name),
            _ => return Err("no such file".to_owned()),
        };
        let subject = match &mac {
            None => self.directory.by_address(self.from.ip()),
            Some(mac) => self.directory.by_mac_or_stranger(mac, self.boots.strangers),
        };
        let subject = subject.map_err(|why| why.to_string())?;
        match verdict(&subject) {
            Verdict::Boot => {
                let program = self.boots.files.program(name, || script::of_image(&self.boots.script, &subject));
                if program.is_ok() {
                    self.boots.eyes.saw(&subject, Sight::Came(NetbootStage::Program));
                }
                program
            }
            Verdict::LocalDisk(why) | Verdict::AddressOnly(why) | Verdict::Nothing(why) => Err(why.to_string()),
        }
    }
}

pub async fn tftp(socket: UdpSocket, boots: Arc<Boots>, directory: watch::Receiver<Arc<Directory>>) -> Result<()> {
    let mut server = tftp::Server::default();
    let mut buffer = [0; 2048];
    let mut clock = tokio::time::interval(TICK);
    loop {
        let out = tokio::select! {
            got = socket.recv_from(&mut buffer) => match got {
                Ok((length, from)) => {
                    let known = directory.borrow().clone();
                    let allowed = Allowed { directory: &known, boots: &boots, from };
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

/// What the inventory's servers say, each line with the Hardware's name. Nobody else is heard.
pub async fn syslog(socket: UdpSocket, directory: watch::Receiver<Arc<Directory>>, eyes: &Eyes) -> Result<()> {
    let mut budgets = Budgets::default();
    // What a receiver should be able to take (RFC 5426, 3.2).
    let mut buffer = [0; 2048];
    loop {
        let (length, from) = match socket.recv_from(&mut buffer).await {
            Ok(got) => got,
            Err(error) => {
                tracing::warn!(%error, "receiving syslog");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let known = directory.borrow().clone();
        let hardware = match known.by_address(from.ip()) {
            Ok(subject) => {
                // The installer's last lines may come after its success is on record: they are not the installed system's.
                let own_system = !is_installers(&buffer[..length]);
                if let Some(sight) = reports::heard(&subject, from.ip(), HeardBy::Syslog).filter(|_| own_system) {
                    eyes.saw(&subject, sight);
                }
                subject.hardware.metadata.name.clone().unwrap_or_default()
            }
            Err(why) => {
                tracing::debug!(%why, "syslog: not heard");
                continue;
            }
        };
        let Some(dropped) = budgets.take(from.ip(), Instant::now()) else { continue };
        let Line { severity, text } = syslog::line(&buffer[..length]);
        let dropped = (dropped > 0).then_some(dropped);
        tracing::info!(target: "syslog", hardware, severity, dropped, "{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_packets_the_oldest_is_not_answered() {
        let mut queue = Queue::default();
        let from = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 68);
        for number in 0..MOST + 2 {
            queue.add(Packet { which: 0, bytes: number.to_be_bytes().to_vec(), from });
        }
        assert_eq!((queue.packets.len(), queue.dropped), (MOST, 2));
        assert_eq!(queue.next().expect("one").bytes, 2_usize.to_be_bytes());
        while queue.next().is_some() {}
        assert_eq!(queue.dropped, 0, "it is told once");
    }
}
