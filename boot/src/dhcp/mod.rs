//! DHCP for servers that are known: packet in, packets out. Addresses are reservations of the Hardware; there is no state, so
//! two packets in whatever order are answered alike. What cannot be read, and who is not to be answered, gets nothing.
//!
//! | message | answer |
//! |---|---|
//! | DISCOVER | OFFER of the reservation |
//! | REQUEST | ACK, or NAK where another address is asked for; nothing where another server was chosen |
//! | INFORM | ACK without an address |
//! | DECLINE | none; it is told, for a second server has the address |
//! | RELEASE | none: a reservation is never free |
//!
//! A relay (giaddr) gets its answers by unicast at port 67, with its option 82 as it sent it. Everybody else is answered by
//! broadcast, but for a client that has its address already.

mod reply;
mod request;
#[cfg(test)]
mod tests;

use dhcproto::v4::MessageType;
use planner::netboot::{Asked, Client, Directory, Programs, Subject, Verdict, verdict};
use request::{Request, code, part};
use std::net::{Ipv4Addr, SocketAddrV4};

pub const SERVER_PORT: u16 = 67;
const CLIENT_PORT: u16 = 68;

#[derive(Debug, Clone)]
pub struct Config {
    /// Ours, on the provisioning network.
    pub address: Ipv4Addr,
    pub http_port: u16,
    pub syslog: Option<Ipv4Addr>,
    pub programs: Programs,
}

/// What goes out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub bytes: Vec<u8>,
    pub to: SocketAddrV4,
}

/// What is told of a packet, in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    Answered { mac: String, with: &'static str, address: Ipv4Addr, file: Option<String> },
    NotAnswered { mac: String, why: String },
    Declined { mac: String, address: Option<Ipv4Addr> },
}

/// Never panics, whatever the bytes are.
pub fn answer(config: &Config, directory: &Directory, bytes: &[u8]) -> (Option<Answer>, Option<Seen>) {
    let Some(request) = Request::read(bytes) else { return (None, None) };
    let mac = mac_of(&request.mac);
    let silent = |why: String| (None, Some(Seen::NotAnswered { mac: mac.clone(), why }));
    let subject = match directory.by_mac(&mac) {
        Ok(subject) => subject,
        Err(why) => return silent(why.to_string()),
    };
    let said = verdict(&subject);
    if let Verdict::Nothing(why) = &said {
        return silent(why.to_string());
    }
    if subject.interface.disable_dhcp == Some(true) {
        return silent(format!("disableDhcp is true for the interface {mac}"));
    }
    let reservation = match Reservation::of(&subject) {
        Ok(reservation) => reservation,
        Err(why) => return silent(why),
    };
    let Some(kind) = decide(&request, server_id(config, &request), reservation.address) else {
        let declined = request.message_type() == u8::from(MessageType::Decline);
        let address = request.address(code::REQUESTED_ADDRESS);
        return (None, declined.then_some(Seen::Declined { mac, address }));
    };
    let client = client_of(&request);
    let (bytes, file) = match reply::make(config, &request, kind, &subject, &reservation, &client, &said) {
        Ok(made) => made,
        Err(why) => return silent(why),
    };
    let with = match kind {
        MessageType::Offer => "OFFER",
        MessageType::Nak => "NAK",
        _ => "ACK",
    };
    let to = destination(&request, kind);
    let seen = Seen::Answered { mac, with, address: reservation.address, file };
    (Some(Answer { bytes, to }), Some(seen))
}

fn mac_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// The identifier by which the client knows us: a relay may stand in for it (RFC 5107).
fn server_id(config: &Config, request: &Request) -> Ipv4Addr {
    let other = request.get(code::RELAY).and_then(|relay| part(relay, 11));
    other.and_then(|value| <[u8; 4]>::try_from(value).ok()).map_or(config.address, Ipv4Addr::from)
}

/// What kind of answer; `None`: none.
fn decide(request: &Request, us: Ipv4Addr, reserved: Ipv4Addr) -> Option<MessageType> {
    match MessageType::from(request.message_type()) {
        MessageType::Discover => Some(MessageType::Offer),
        MessageType::Inform => Some(MessageType::Ack),
        MessageType::Request => {
            if request.address(code::SERVER).is_some_and(|server| server != us) {
                return None;
            }
            // Selecting and after a restart by option 50, renewing and rebinding by ciaddr.
            let wanted = request.address(code::REQUESTED_ADDRESS).unwrap_or(request.ciaddr);
            Some(if wanted == reserved { MessageType::Ack } else { MessageType::Nak })
        }
        _ => None,
    }
}

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

/// The address that a Hardware gives to one interface.
#[derive(Debug, Clone, Copy)]
struct Reservation {
    address: Ipv4Addr,
    netmask: Ipv4Addr,
    gateway: Option<Ipv4Addr>,
}

impl Reservation {
    fn of(subject: &Subject<'_>) -> Result<Self, String> {
        let ip = subject.interface.dhcp.as_ref().and_then(|dhcp| dhcp.ip.as_ref());
        let name = subject.hardware.metadata.name.as_deref().unwrap_or_default();
        let field = |field: &str, text: Option<&String>| -> Result<Option<Ipv4Addr>, String> {
            let text = text.map(String::as_str).filter(|text| !text.is_empty());
            let read = |text: &str| {
                text.parse().map_err(|_| {
                    format!("Hardware '{name}', interface {}: dhcp.ip.{field} '{text}' is no IPv4 address", subject.mac)
                })
            };
            text.map(read).transpose()
        };
        let missing = |field: &str| format!("Hardware '{name}', interface {}: dhcp.ip.{field} is missing", subject.mac);
        let address = field("address", ip.and_then(|ip| ip.address.as_ref()))?.ok_or_else(|| missing("address"))?;
        let netmask = field("netmask", ip.and_then(|ip| ip.netmask.as_ref()))?.ok_or_else(|| missing("netmask"))?;
        let gateway = field("gateway", ip.and_then(|ip| ip.gateway.as_ref()))?;
        if address.is_unspecified() || address.is_multicast() || address.is_broadcast() {
            return Err(format!(
                "Hardware '{name}', interface {}: dhcp.ip.address '{address}' is no host's",
                subject.mac
            ));
        }
        Ok(Self { address, netmask, gateway })
    }
}
