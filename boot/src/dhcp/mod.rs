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
#[cfg(test)]
mod tests;

use dhcproto::v4::relay::{RelayCode, RelayInfo};
use dhcproto::v4::{DhcpOption, HType, Message, MessageType, Opcode, OptionCode};
use dhcproto::{Decodable, Decoder};
use planner::netboot::{Asked, Client, Directory, Programs, Subject, Verdict, verdict};
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
    let Some(request) = read(bytes) else { return (None, None) };
    let mac = mac_of(request.chaddr());
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
        let declined = request.opts().has_msg_type(MessageType::Decline);
        let address = requested(&request);
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

/// A request of an Ethernet interface in DHCP.
fn read(bytes: &[u8]) -> Option<Message> {
    let request = Message::decode(&mut Decoder::new(bytes)).ok()?;
    // The decoder takes any length of hardware address; chaddr() would slice by it.
    let fits = bytes.get(2) == Some(&6) && request.opcode() == Opcode::BootRequest && request.htype() == HType::Eth;
    let unicast = request.chaddr().first().is_some_and(|first| first & 1 == 0);
    (fits && unicast && request.opts().msg_type().is_some()).then_some(request)
}

fn mac_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

fn requested(request: &Message) -> Option<Ipv4Addr> {
    match request.opts().get(OptionCode::RequestedIpAddress) {
        Some(DhcpOption::RequestedIpAddress(address)) => Some(*address),
        _ => None,
    }
}

/// The identifier by which the client knows us: a relay may stand in for it (RFC 5107).
fn server_id(config: &Config, request: &Message) -> Ipv4Addr {
    match request.opts().get(OptionCode::RelayAgentInformation) {
        Some(DhcpOption::RelayAgentInformation(relay)) => match relay.get(RelayCode::ServerIdentifierOverride) {
            Some(RelayInfo::ServerIdentifierOverride(address)) => *address,
            _ => config.address,
        },
        _ => config.address,
    }
}

/// What kind of answer; `None`: none.
fn decide(request: &Message, us: Ipv4Addr, reserved: Ipv4Addr) -> Option<MessageType> {
    match request.opts().msg_type()? {
        MessageType::Discover => Some(MessageType::Offer),
        MessageType::Inform => Some(MessageType::Ack),
        MessageType::Request => {
            let chosen = match request.opts().get(OptionCode::ServerIdentifier) {
                Some(DhcpOption::ServerIdentifier(server)) => Some(*server),
                _ => None,
            };
            if chosen.is_some_and(|server| server != us) {
                return None;
            }
            // Selecting and after a restart by option 50, renewing and rebinding by ciaddr.
            let wanted = requested(request).unwrap_or(request.ciaddr());
            Some(if wanted == reserved { MessageType::Ack } else { MessageType::Nak })
        }
        _ => None,
    }
}

fn destination(request: &Message, kind: MessageType) -> SocketAddrV4 {
    let relay = request.giaddr();
    if !relay.is_unspecified() {
        SocketAddrV4::new(relay, SERVER_PORT)
    } else if kind != MessageType::Nak && !request.ciaddr().is_unspecified() {
        SocketAddrV4::new(request.ciaddr(), CLIENT_PORT)
    } else {
        SocketAddrV4::new(Ipv4Addr::BROADCAST, CLIENT_PORT)
    }
}

/// Upstream's test of a client that boots from the network: options 60, 93 and 94, and 97 empty or 17 bytes that begin with 0.
fn client_of(request: &Message) -> Client {
    let options = request.opts();
    let asked = match options.get(OptionCode::ClassIdentifier) {
        Some(DhcpOption::ClassIdentifier(class)) if class.starts_with(b"PXEClient") => Asked::Pxe,
        Some(DhcpOption::ClassIdentifier(class)) if class.starts_with(b"HTTPClient") => Asked::UefiHttp,
        _ => Asked::AddressOnly,
    };
    let guid_fits = match options.get(OptionCode::ClientMachineIdentifier) {
        Some(DhcpOption::ClientMachineIdentifier(guid)) => {
            guid.is_empty() || (guid.len() == 17 && guid.first() == Some(&0))
        }
        _ => true,
    };
    let arch = match options.get(OptionCode::ClientSystemArchitecture) {
        Some(DhcpOption::ClientSystemArchitecture(arch)) => Some(arch.0),
        _ => None,
    };
    let whole = guid_fits && arch.is_some() && options.get(OptionCode::ClientNetworkInterface).is_some();
    let user_class = match options.get(OptionCode::UserClass) {
        Some(DhcpOption::UserClass(bytes)) => class_of(bytes),
        _ => None,
    };
    let ipxe_http = match options.get(OptionCode::Unknown(175)) {
        Some(DhcpOption::Unknown(option)) => has_sub_option(option.data(), 19),
        _ => false,
    };
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

fn has_sub_option(mut data: &[u8], code: u8) -> bool {
    while let [found, length, rest @ ..] = data {
        if *found == code {
            return true;
        }
        data = rest.get(usize::from(*length)..).unwrap_or_default();
    }
    false
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
