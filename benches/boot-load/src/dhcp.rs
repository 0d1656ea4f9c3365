//! Many clients, from DISCOVER to ACK. A client begins when its turn is and there is room among those that are under way. Turns within a
//! second are a hall that is switched on; all at once is more than any socket takes; a few clients over and over are how fast a server is.
//!
//! What is not answered within a second or so (not the same for all, as clients do) is asked again, and counted; the time runs from the
//! first time. One that was asked ten times in vain, another address than the reserved one, and a refusal end the run.

#[cfg(test)]
mod tests;

use crate::packet::{Answer, Asked, Client};
use anyhow::{Context, Result, ensure};
use dhcproto::v4::MessageType;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

/// Of a second try; of the clients one after the other up to half a second later.
const AGAIN: Duration = Duration::from_secs(1);
const LATER: u64 = 500;
const TRIES: u32 = 10;
/// No run is as long.
const STUCK: Duration = Duration::from_secs(120);
/// How long a packet is waited for before the clock is looked at.
const LOOK: Duration = Duration::from_micros(500);

#[derive(clap::Args)]
pub struct Options {
    #[arg(long)]
    server: Ipv4Addr,
    /// The relay's address, which is one of this machine
    #[arg(long)]
    relay: Ipv4Addr,
    /// The address that is reserved for the first client; the others' follow
    #[arg(long)]
    first: Ipv4Addr,
    #[arg(long)]
    clients: u16,
    /// How many are under way at the same time
    #[arg(long)]
    at_once: usize,
    /// Of the server and of the relay; tests have one of their own
    #[arg(long, default_value_t = 67, hide = true)]
    port: u16,
    /// Within so many milliseconds their turns are, one after the other; left out: at once
    #[arg(long, default_value_t = 0)]
    over: u64,
    /// Over and over for so many seconds; left out: each once
    #[arg(long)]
    seconds: Option<u64>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Measured {
    pub seconds: f64,
    /// Packets that were sent a second time, or oftener.
    pub again: usize,
    /// In milliseconds, one of each whole exchange.
    pub offer: Vec<f64>,
    pub whole: Vec<f64>,
}

/// One client that is under way.
struct Exchange {
    asked: Asked,
    began: Instant,
    offered: Option<Instant>,
    sent: Instant,
    tries: u32,
}

struct Run<'a> {
    options: &'a Options,
    socket: UdpSocket,
    under_way: BTreeMap<u16, Exchange>,
    waiting: VecDeque<u16>,
    next_xid: u32,
    measured: Measured,
}

pub fn run(options: &Options) -> Result<Measured> {
    let at = SocketAddrV4::new(options.relay, options.port);
    let socket = UdpSocket::bind(at).with_context(|| format!("listen on UDP {at}"))?;
    socket.connect((options.server, options.port)).context("name the server")?;
    ensure!(options.clients > 0 && options.at_once > 0, "no clients: write how many with --clients and --at-once");
    let mut run = Run {
        options,
        socket,
        under_way: BTreeMap::new(),
        waiting: (0..options.clients).collect(),
        next_xid: 1,
        measured: Measured::default(),
    };
    run.all()?;
    Ok(run.measured)
}

impl Run<'_> {
    fn all(&mut self) -> Result<()> {
        let began = Instant::now();
        let until = self.options.seconds.map(|seconds| began + Duration::from_secs(seconds));
        let may_begin = |client: u16| {
            let turn = Duration::from_millis(self.options.over) * u32::from(client) / u32::from(self.options.clients);
            let now = Instant::now();
            now >= began + turn && until.is_none_or(|until| now < until)
        };
        loop {
            while self.under_way.len() < self.options.at_once {
                let Some(client) = self.waiting.front().copied().filter(|client| may_begin(*client)) else { break };
                self.waiting.pop_front();
                self.begin(client)?;
                // What is there already is not kept waiting for those that have not begun.
                while self.hear(None)? {}
            }
            let is_over = self.waiting.is_empty() || until.is_some_and(|until| Instant::now() >= until);
            if self.under_way.is_empty() && is_over {
                break;
            }
            if self.hear(Some(LOOK))? {
                while self.hear(None)? {}
            }
            self.ask_again()?;
            ensure!(began.elapsed() < STUCK, "{} clients are under way after {STUCK:?}", self.under_way.len());
        }
        self.measured.seconds = began.elapsed().as_secs_f64();
        Ok(())
    }

    fn begin(&mut self, client: u16) -> Result<()> {
        let asked = Asked { client: Client(client), xid: self.next_xid, relay: self.options.relay, taken: None };
        self.next_xid += 1;
        let bytes = asked.bytes()?;
        let now = Instant::now();
        self.socket.send(&bytes).context("send a DISCOVER")?;
        self.under_way.insert(client, Exchange { asked, began: now, offered: None, sent: now, tries: 1 });
        Ok(())
    }

    /// The next packet, if one comes in time.
    fn hear(&mut self, limit: Option<Duration>) -> Result<bool> {
        use std::io::ErrorKind::{TimedOut, WouldBlock};
        self.socket.set_nonblocking(limit.is_none())?;
        if limit.is_some() {
            self.socket.set_read_timeout(limit)?;
        }
        let mut buffer = [0; 2048];
        match self.socket.recv(&mut buffer) {
            Ok(length) => self.answered(&buffer[..length]).map(|()| true),
            Err(error) if matches!(error.kind(), WouldBlock | TimedOut) => Ok(false),
            Err(error) => Err(error).context("receive an answer"),
        }
    }

    fn answered(&mut self, bytes: &[u8]) -> Result<()> {
        let now = Instant::now();
        let answer = Answer::read(bytes)?;
        // The second answer to what was asked twice.
        let Some(exchange) = self.under_way.get_mut(&answer.client.0) else { return Ok(()) };
        if answer.xid != exchange.asked.xid {
            return Ok(());
        }
        let reserved = answer.client.address(self.options.first);
        ensure!(answer.kind != MessageType::Nak, "{:?} was refused the address {reserved}", answer.client);
        ensure!(answer.address == reserved, "{:?} was given {}, not {reserved}", answer.client, answer.address);
        match (answer.kind, exchange.asked.taken) {
            (MessageType::Offer, None) => {
                exchange.asked.taken = Some((answer.server, answer.address));
                (exchange.offered, exchange.sent, exchange.tries) = (Some(now), now, 1);
                let bytes = exchange.asked.bytes()?;
                self.socket.send(&bytes).context("send a REQUEST")?;
            }
            (MessageType::Ack, Some(_)) => {
                let passed = |at: Instant| at.duration_since(exchange.began).as_secs_f64() * 1000.0;
                self.measured.offer.extend(exchange.offered.map(passed));
                self.measured.whole.push(passed(now));
                self.under_way.remove(&answer.client.0);
                if self.options.seconds.is_some() {
                    self.waiting.push_back(answer.client.0);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn ask_again(&mut self) -> Result<()> {
        let now = Instant::now();
        let again = |client: Client| AGAIN + Duration::from_millis(u64::from(client.0) % LATER);
        let is_due = |exchange: &Exchange| now - exchange.sent >= again(exchange.asked.client);
        for exchange in self.under_way.values_mut().filter(|exchange| is_due(exchange)) {
            let what = if exchange.asked.taken.is_some() { "REQUEST" } else { "DISCOVER" };
            ensure!(exchange.tries < TRIES, "{:?}: no answer to {TRIES} times {what}", exchange.asked.client);
            self.socket.send(&exchange.asked.bytes()?).with_context(|| format!("send a {what} again"))?;
            (exchange.sent, exchange.tries) = (now, exchange.tries + 1);
            self.measured.again += 1;
        }
        Ok(())
    }
}
