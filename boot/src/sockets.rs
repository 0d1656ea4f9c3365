//! The sockets of DHCP, TFTP and syslog: the only place of this crate that sends or receives a datagram.

use crate::dhcp::refusals::Refusals;
use crate::dhcp::{self, Arrival, PROXY_PORT, SERVER_PORT, Seen};
use crate::files::{Files, Program, mac_of_path};
use crate::reports::{self, Eyes};
use crate::script;
use crate::syslog::{self, Budgets, Line};
use crate::tftp::{self, Out};
use anyhow::{Context, Result};
use api::report::{HeardBy, NetbootStage};
use planner::netboot::report::Sight;
use planner::netboot::{Directory, Verdict, Why, verdict};
use runtime::clock;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
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

    /// The next packet's length, where it came from, and by which socket and port it is answered.
    async fn next(&self, buffers: &mut [[u8; 2048]; 4]) -> std::io::Result<(usize, usize, SocketAddr)> {
        let [first, second, third, fourth] = buffers;
        let proxy = async {
            match &self.proxy {
                Some(socket) => socket.recv_from(fourth).await,
                None => std::future::pending().await,
            }
        };
        let (which, (length, from)) = tokio::select! {
            got = self.broadcasts.recv_from(first) => (0, got?),
            got = self.own.recv_from(second) => (1, got?),
            got = self.relays.recv_from(third) => (2, got?),
            got = proxy => (3, got?),
        };
        Ok((which, length, from))
    }

    fn answers(&self, which: usize) -> (&UdpSocket, u16) {
        match (which, &self.proxy) {
            (3, Some(proxy)) => (proxy, PROXY_PORT),
            (2, _) => (&self.relays, SERVER_PORT),
            _ => (&self.own, SERVER_PORT),
        }
    }
}

pub async fn dhcp(
    mut server: dhcp::Server,
    heard: Heard,
    directory: watch::Receiver<Arc<Directory>>,
    eyes: &Eyes,
) -> Result<()> {
    let mut buffers = [[0; 2048]; 4];
    let mut refusals = Refusals::default();
    loop {
        let (which, length, from) = match heard.next(&mut buffers).await {
            Ok(packet) => packet,
            Err(error) => {
                tracing::warn!(%error, "receiving DHCP");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let SocketAddr::V4(from) = from else { continue };
        let (socket, port) = heard.answers(which);
        let known = directory.borrow().clone();
        let arrival = Arrival { bytes: &buffers[which][..length], port, from };
        let (answer, seen) = server.answer(&known, arrival, clock::now());
        if let Some(answer) = answer
            && let Err(error) = socket.send_to(&answer.bytes, SocketAddr::V4(answer.to)).await
        {
            tracing::warn!(%error, to = %answer.to, "sending DHCP");
        }
        if let Some(seen) = seen {
            tell(seen, &known, eyes, &mut refusals);
        }
    }
}

fn tell(seen: Seen, directory: &Directory, eyes: &Eyes, refusals: &mut Refusals) {
    let saw = |mac: &str, sight: Option<Sight>| {
        // Of a stranger there is a sight where it was answered.
        if let (Some(sight), Ok(subject)) = (sight, directory.by_mac_or_stranger(mac, true)) {
            eyes.saw(&subject, sight);
        }
    };
    match seen {
        Seen::Answered { mac, with, address, file, sight } => {
            saw(&mac, sight);
            let address = address.map(tracing::field::display);
            tracing::info!(mac, with, address, file, "DHCP");
        }
        Seen::NotAnswered { mac, why, sight } => {
            saw(&mac, sight);
            // Of the inventory's an administrator has to know; of all others on the network there may be any number.
            let known = !matches!(directory.by_mac(&mac), Err(Why::UnknownMac { .. }));
            if known && refusals.is_news(&mac, &why, Instant::now()) {
                tracing::warn!(mac, why, "DHCP: not answered");
            } else {
                tracing::debug!(mac, why, "DHCP: not answered");
            }
        }
        Seen::Declined { mac, address } => {
            tracing::warn!(mac, ?address, "DHCP: declined; somebody else has the address");
        }
        Seen::Foreign { mac, server, address } => {
            tracing::warn!(
                mac,
                %server,
                ?address,
                "DHCP: another server's offer was taken, so this server gets no boot program: switch that DHCP server off here, or \
                 write Proxy as the mode of this network"
            );
        }
    }
}

/// What one client may read: programs, by their names or below its MAC.
struct Allowed<'a> {
    directory: &'a Directory,
    config: &'a Tftp,
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
            Some(mac) => self.directory.by_mac_or_stranger(mac, self.config.strangers),
        };
        let subject = subject.map_err(|why| why.to_string())?;
        match verdict(&subject) {
            Verdict::Boot => {
                let program = self.config.files.program(name, || script::of_image(&self.config.script, &subject));
                if program.is_ok() {
                    self.config.eyes.saw(&subject, Sight::Came(NetbootStage::Program));
                }
                program
            }
            Verdict::LocalDisk(why) | Verdict::AddressOnly(why) | Verdict::Nothing(why) => Err(why.to_string()),
        }
    }
}

/// What TFTP serves.
pub struct Tftp {
    pub files: Arc<Files>,
    pub script: script::Config,
    /// Whether servers that no Hardware names are booted.
    pub strangers: bool,
    pub eyes: Eyes,
}

pub async fn tftp(socket: UdpSocket, config: Tftp, directory: watch::Receiver<Arc<Directory>>) -> Result<()> {
    let mut server = tftp::Server::default();
    let mut buffer = [0; 2048];
    let mut clock = tokio::time::interval(TICK);
    loop {
        let out = tokio::select! {
            got = socket.recv_from(&mut buffer) => match got {
                Ok((length, from)) => {
                    let known = directory.borrow().clone();
                    let allowed = Allowed { directory: &known, config: &config, from };
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
                if let Some(sight) = reports::heard(&subject, from.ip(), HeardBy::Syslog) {
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
