//! DHCP for servers that are known, and for strangers where the operator gives addresses for them: packet in, packets out. But for the
//! addresses of such a pool there is no state, so two packets in whatever order are answered alike. What cannot be read, and who is not to
//! be answered, gets nothing.
//!
//! | file | what |
//! |---|---|
//! | `request.rs` | a packet, read |
//! | `mode.rs` | which of the two ways below a network is served in |
//! | `reservation.rs` | addresses of the Hardware, and the boot program |
//! | `pool.rs` | addresses of who has none in the inventory |
//! | `answers.rs` | the engine with what it answers from, and whom it tells what it saw |
//! | `refusals.rs` | which refusals the log has not had yet |
//! | `proxy.rs` | the boot program alone, beside a server that gives addresses (PXE 2.1, 2.2.4; port 4011 too) |
//! | `reply.rs` | what stands in an answer |
//! | `sight.rs` | what a packet tells of its server |
//!
//! Of several replicas each answers: an address of the inventory is the same from any, and those of a pool are theirs in turn. None refuses
//! what another may have given.
//!
//! A relay (giaddr) gets its answers by unicast at port 67, with its option 82 as it sent it (RFC 3046). Everybody else is answered by
//! broadcast, but for a client that has its address already.

mod answers;
mod mode;
mod pool;
mod proxy;
mod refusals;
mod reply;
mod request;
mod reservation;
mod sight;
#[cfg(test)]
mod tests;

pub use answers::Answers;
pub use mode::{Mode, Modes};
pub use pool::{Leases, Pool};

use crate::replicas::Replicas;
use api::report::DhcpUnservedReason;
use dhcproto::v4::MessageType;
use jiff::Timestamp;
use planner::netboot::report::Sight;
use planner::netboot::{Asked, Client, Directory, Programs, Unserved, Verdict, Why};
use request::{Request, code, part};
use std::net::{Ipv4Addr, SocketAddrV4};

pub const SERVER_PORT: u16 = 67;
/// Where a client asks again that was told of boot programs by a proxy.
pub const PROXY_PORT: u16 = 4011;
const CLIENT_PORT: u16 = 68;

#[derive(Debug, Clone)]
pub struct Config {
    pub replicas: Replicas,
    pub http_port: u16,
    pub syslog: Option<Ipv4Addr>,
    pub programs: Programs,
    pub modes: Modes,
    /// Of networks that are served by reservation, for servers that have none.
    pub pools: Vec<Pool>,
}

impl Config {
    /// Whether any network has servers that no Hardware names booted.
    pub fn serves_strangers(&self) -> bool {
        self.modes.any_auto() || !self.pools.is_empty()
    }
}

/// What came in.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    pub bytes: &'a [u8],
    /// [`SERVER_PORT`] or [`PROXY_PORT`].
    pub port: u16,
    pub from: SocketAddrV4,
}

/// What goes out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub bytes: Vec<u8>,
    pub to: SocketAddrV4,
}

/// What is told of a packet: in the log, and a sight in the HardwareReport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// `address`: none of a proxy's.
    Answered {
        mac: String,
        with: &'static str,
        address: Option<Ipv4Addr>,
        file: Option<String>,
        sight: Option<Sight>,
    },
    NotAnswered {
        mac: String,
        why: String,
        sight: Option<Sight>,
    },
    Declined {
        mac: String,
        address: Option<Ipv4Addr>,
        sight: Option<Sight>,
    },
    /// A server that has its address from its Hardware took another DHCP server's.
    Foreign {
        mac: String,
        server: Ipv4Addr,
        address: Option<Ipv4Addr>,
        sight: Option<Sight>,
    },
}

type Outcome = (Option<Answer>, Option<Seen>);

pub struct Server {
    pub config: Config,
    pub leases: Leases,
}

impl Server {
    /// Never panics, whatever the bytes are.
    pub fn answer(&mut self, directory: &Directory, arrival: Arrival<'_>, now: Timestamp) -> Outcome {
        let Self { config, leases } = self;
        let Some(request) = Request::read(arrival.bytes) else { return (None, None) };
        match (config.modes.of(&request), arrival.port) {
            (Mode::Reservation, SERVER_PORT) => reservation::answer(config, leases, directory, &request, now),
            (Mode::Proxy, _) => proxy::answer(config, directory, &request, arrival, false),
            (Mode::AutoProxy, _) => proxy::answer(config, directory, &request, arrival, true),
            (Mode::Off | Mode::Reservation, _) => (None, None),
        }
    }
}

fn mac_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// Whose MAC address is no one Hardware's.
fn not_known(request: &Request, mac: &str, why: &Why) -> Outcome {
    let cause = || Unserved::new(DhcpUnservedReason::SameMacAddress, why.to_string());
    let is_shared = matches!(why, Why::SameMac { .. }) && client_of(request).asked != Asked::AddressOnly;
    let sight = is_shared.then(|| Sight::Unserved { cause: cause(), uuid: sight::uuid(request) });
    (None, Some(Seen::NotAnswered { mac: mac.to_owned(), why: why.to_string(), sight }))
}

/// A server that may be answered, and cannot be.
fn unserved(request: &Request, mac: &str, verdict: &Verdict, cause: Unserved) -> Outcome {
    let why = cause.message.clone();
    let sight = sight::unserved(request, verdict, cause);
    (None, Some(Seen::NotAnswered { mac: mac.to_owned(), why, sight }))
}

/// A server that the inventory knows, and that may not boot.
fn turned_away(request: &Request, mac: &str, verdict: &Verdict, why: &Why) -> Outcome {
    let sight = sight::sight(request, &client_of(request), verdict, None, None);
    (None, Some(Seen::NotAnswered { mac: mac.to_owned(), why: why.to_string(), sight }))
}

/// The identifier by which the client knows us: a relay may stand in for it (RFC 5107).
fn server_id(config: &Config, request: &Request) -> Ipv4Addr {
    request.of_relay(RELAY_SERVER).unwrap_or(config.replicas.own)
}

/// Parts of option 82: the client's link (RFC 3527), and in whose name to answer (RFC 5107).
const RELAY_LINK: u8 = 5;
const RELAY_SERVER: u8 = 11;

fn destination(request: &Request, kind: MessageType) -> SocketAddrV4 {
    if !request.giaddr.is_unspecified() {
        SocketAddrV4::new(request.giaddr, SERVER_PORT)
    } else if kind != MessageType::Nak && !request.ciaddr.is_unspecified() {
        SocketAddrV4::new(request.ciaddr, CLIENT_PORT)
    } else {
        SocketAddrV4::new(Ipv4Addr::BROADCAST, CLIENT_PORT)
    }
}

/// Upstream's test of a client that boots from the network: options 60, 93 and 94, and 97 empty or 17 bytes that begin with 0.
fn client_of(request: &Request) -> Client {
    let asked = match request.get(code::CLASS) {
        Some(class) if class.starts_with(b"PXEClient") => Asked::Pxe,
        Some(class) if class.starts_with(b"HTTPClient") => Asked::UefiHttp,
        _ => Asked::AddressOnly,
    };
    let guid = request.get(code::MACHINE);
    let guid_fits = guid.is_none_or(|guid| guid.is_empty() || (guid.len() == 17 && guid.first() == Some(&0)));
    let arch = request.number(code::ARCHITECTURE);
    let whole = guid_fits && arch.is_some() && request.get(code::INTERFACE).is_some();
    let user_class = request.get(code::USER_CLASS).and_then(class_of);
    let ipxe_http = request.get(code::IPXE).is_some_and(|features| part(features, 19).is_some());
    Client { arch, user_class, ipxe_http, asked: if whole { asked } else { Asked::AddressOnly } }
}

/// iPXE sends its name as it is, others with a length before it (RFC 3004).
fn class_of(bytes: &[u8]) -> Option<String> {
    let text = match bytes.split_first() {
        Some((length, rest)) if usize::from(*length) == rest.len() && !rest.is_empty() => rest,
        _ => bytes,
    };
    std::str::from_utf8(text).ok().map(str::to_owned)
}
