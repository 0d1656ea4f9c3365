//! One port: as many listening sockets as its guests may have connections, and one answer for each connection.

use crate::device::{CONNECTIONS_PER_GUEST, Tap};
use crate::http::{self, HEAD_LIMIT};
use crate::tokens::Tokens;
use planner::metadata::{ADDRESS_V4, ADDRESS_V6, PORT};
use ports::metadata::MetadataGuest;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio::time::Instant;

/// What one connection holds of an answer at a time.
const SEND_BUFFER: usize = 16 * 1024;
/// A guest that says nothing for so long is gone.
const SILENCE: smoltcp::time::Duration = smoltcp::time::Duration::from_secs(10);
/// From the first byte to the last.
const WHOLE: Duration = Duration::from_secs(60);
/// Sockets of a port, however many guests it has.
const MOST: usize = 512;
/// As EC2 does: an answer goes no further than the guest itself.
const HOPS: u8 = 1;

pub(crate) struct Port {
    tap: Tap,
    interface: Interface,
    sockets: SocketSet<'static>,
    connections: Vec<Connection>,
    tokens: Tokens,
    guests: watch::Receiver<Vec<MetadataGuest>>,
    began: Instant,
}

struct Connection {
    handle: SocketHandle,
    since: Option<Instant>,
    /// What is still to be sent.
    answer: Option<Vec<u8>>,
    sent: usize,
}

impl Port {
    pub(crate) fn new(
        file: File,
        mac: EthernetAddress,
        mtu: u16,
        guests: watch::Receiver<Vec<MetadataGuest>>,
    ) -> io::Result<Self> {
        #[expect(
            deprecated,
            reason = "its successor is `unsafe`; what it asks for, a descriptor that stays open, a File is"
        )]
        let file = AsyncFd::with_interest(file, Interest::READABLE)?;
        let mut tap = Tap::new(file, mtu, guests.borrow().clone());
        let began = Instant::now();
        let config = Config::new(HardwareAddress::Ethernet(mac));
        let mut interface = Interface::new(config, &mut tap, smoltcp::time::Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            // Every guest is on the link.
            let own = [IpCidr::new(ADDRESS_V4.into(), 0), IpCidr::new(ADDRESS_V6.into(), 0)];
            addresses.extend(own);
        });
        let sockets = SocketSet::new(Vec::new());
        Ok(Self { tap, interface, sockets, connections: Vec::new(), tokens: Tokens::default(), guests, began })
    }

    /// Until the device cannot be read any more.
    pub(crate) async fn run(mut self) -> io::Error {
        loop {
            self.make_sockets();
            self.work();
            let pause = self.pause();
            tokio::select! {
                biased;
                changed = self.guests.changed() => {
                    if changed.is_err() {
                        return io::Error::other("nobody is to be answered any more");
                    }
                    let guests = self.guests.borrow_and_update().clone();
                    self.tokens.retain(|mac| guests.iter().any(|guest| guest.nic.mac == mac));
                    self.tap.set_guests(guests);
                }
                ready = self.tap.file.readable() => match ready {
                    Ok(mut ready) => if self.tap.drained { ready.clear_ready() },
                    Err(error) => return error,
                },
                () = tokio::time::sleep(pause) => {}
            }
            // Others of this thread come in between, however much a guest sends.
            tokio::task::yield_now().await;
        }
    }

    fn now(&self) -> smoltcp::time::Instant {
        smoltcp::time::Instant::from_micros(i64::try_from(self.began.elapsed().as_micros()).unwrap_or(i64::MAX))
    }

    fn pause(&mut self) -> Duration {
        let now = self.now();
        let delay = self.interface.poll_delay(now, &self.sockets);
        // Connections have a deadline too.
        delay.map_or(Duration::from_secs(1), Duration::from).min(Duration::from_secs(1))
    }

    /// A bounded number of frames, and what follows from them.
    fn work(&mut self) {
        self.tap.drained = false;
        let now = self.now();
        self.count();
        for _ in 0..64 {
            let result = self.interface.poll_ingress_single(now, &mut self.tap, &mut self.sockets);
            if matches!(result, smoltcp::iface::PollIngressSingleResult::None) {
                break;
            }
            self.count();
        }
        self.serve();
        self.interface.poll_egress(now, &mut self.tap, &mut self.sockets);
        self.interface.poll_maintenance(now);
    }

    fn count(&mut self) {
        self.tap.open.clear();
        for connection in &self.connections {
            if let Some(from) = self.sockets.get::<Socket<'_>>(connection.handle).remote_endpoint() {
                *self.tap.open.entry(from.addr.into()).or_default() += 1;
            }
        }
    }

    fn make_sockets(&mut self) {
        let wanted = (self.tap.guests.len() * CONNECTIONS_PER_GUEST).min(MOST);
        while self.connections.len() < wanted {
            let handle = self.sockets.add(listening());
            self.connections.push(Connection { handle, since: None, answer: None, sent: 0 });
        }
    }

    fn serve(&mut self) {
        let now = Instant::now();
        for connection in &mut self.connections {
            let socket = self.sockets.get_mut::<Socket<'_>>(connection.handle);
            let from: Option<IpAddr> = socket.remote_endpoint().map(|from| from.addr.into());
            let over = match (socket.state(), from) {
                (State::Listen, _) => continue,
                // Both sides have ended; a device of our own remembers nobody for two minutes.
                (State::Closed | State::TimeWait, _) | (_, None) => true,
                (_, Some(from)) => match self.tap.guest(from) {
                    None => true,
                    Some(guest) => {
                        let since = *connection.since.get_or_insert(now);
                        connection.go_on(socket, guest, &mut self.tokens, now);
                        now.duration_since(since) > WHOLE
                    }
                },
            };
            if over {
                self.sockets.remove(connection.handle);
                *connection = Connection { handle: self.sockets.add(listening()), since: None, answer: None, sent: 0 };
            }
        }
    }
}

impl Connection {
    fn go_on(&mut self, socket: &mut Socket<'_>, guest: &MetadataGuest, tokens: &mut Tokens, now: Instant) {
        if self.answer.is_none() {
            let head = socket.peek(HEAD_LIMIT).unwrap_or_default();
            if !head.is_empty() {
                self.answer = http::respond(head, guest, tokens, now);
            }
            if self.answer.is_none() && !socket.may_recv() && socket.state() != State::SynReceived {
                // It has ended without a whole request.
                socket.close();
            }
        }
        let Some(answer) = &self.answer else { return };
        while self.sent < answer.len() && socket.can_send() {
            match socket.send_slice(&answer[self.sent..]) {
                Ok(0) | Err(_) => break,
                Ok(sent) => self.sent += sent,
            }
        }
        if self.sent == answer.len() {
            // What is still in the buffer goes before the end.
            socket.close();
        }
    }
}

fn listening() -> Socket<'static> {
    let mut socket = Socket::new(SocketBuffer::new(vec![0; HEAD_LIMIT]), SocketBuffer::new(vec![0; SEND_BUFFER]));
    socket.set_timeout(Some(SILENCE));
    socket.set_hop_limit(Some(HOPS));
    socket.set_nagle_enabled(false);
    if let Err(error) = socket.listen(PORT) {
        tracing::error!(?error, "a new socket listens on any port");
    }
    socket
}
