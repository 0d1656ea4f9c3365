//! What stands in an answer.

use super::request::{Request, code};
use super::reservation::Reservation;
use super::{Config, server_id};
use api::report::DhcpUnservedReason;
use api::tinkerbell::hardware::Dhcp;
use dhcproto::v4::{DhcpOption, DhcpOptions, Flags, HType, Message, MessageType, Opcode, OptionCode, UnknownOption};
use dhcproto::{Encodable, Encoder};
use ipnet::Ipv4Net;
use planner::netboot::{Asked, BootFile, Client, Subject, Unserved, Verdict, boot_file};
use std::net::Ipv4Addr;

/// Of a Hardware that names no time; upstream sends 0, which some clients take for a lease that is over.
const WEEK: u32 = 7 * 24 * 3600;
/// The shortest packet that every client takes (RFC 951).
const SHORTEST: usize = 300;
/// What a client takes that does not say (RFC 2131, less the headers of IP and UDP).
const LONGEST: usize = 548;
/// Of the header's field, with its end.
const FILE: usize = 127;
/// Upstream's word to firmware whose interface may not boot.
const NOT_ALLOWED: &str = "/netboot-not-allowed";

/// What may be left out of an answer that would be too long, in this order.
const DISPENSABLE: [OptionCode; 6] = [
    OptionCode::LogServer,
    OptionCode::NtpServers,
    OptionCode::BroadcastAddr,
    OptionCode::DomainSearch,
    OptionCode::DomainName,
    OptionCode::ClasslessStaticRoute,
];

/// An answer, and the file that it names.
type Made = Result<(Vec<u8>, Option<String>), String>;

pub(super) fn with_address(
    config: &Config,
    request: &Request,
    kind: MessageType,
    subject: &Subject<'_>,
    reservation: &Reservation,
    client: &Client,
    verdict: &Verdict,
) -> Made {
    let mut reply = begun(config, request, kind);
    let mut file = None;
    if kind == MessageType::Nak {
        // A client on a relay's link has no address that the answer could be sent to (RFC 2131, 4.3.2).
        reply.set_flags(Flags::new(request.flags).set_broadcast());
    } else {
        let informs = request.message_type() == u8::from(MessageType::Inform);
        reply.set_ciaddr(request.ciaddr);
        network(config, &mut reply, subject, reservation, informs);
        // No Hardware says whose an address of a pool is, nor which interface of a bond asks from the address that they share.
        let names = if reservation.tells_interface { Names::ByAddress } else { Names::ByPath };
        file = boot(config, &mut reply, request, subject, client, verdict, names);
    }
    Ok((fitted(&mut reply, longest(request))?, file))
}

/// The boot program alone: another server gives the address.
pub(super) fn without_address(
    config: &Config,
    request: &Request,
    kind: MessageType,
    subject: &Subject<'_>,
    client: &Client,
    verdict: &Verdict,
) -> Made {
    let mut reply = begun(config, request, kind);
    reply.set_ciaddr(request.ciaddr);
    let file = boot(config, &mut reply, request, subject, client, verdict, Names::ByPath);
    Ok((fitted(&mut reply, longest(request))?, file))
}

fn begun(config: &Config, request: &Request, kind: MessageType) -> Message {
    let mut reply = Message::default();
    reply
        .set_opcode(Opcode::BootReply)
        .set_htype(HType::Eth)
        .set_xid(request.xid)
        .set_flags(Flags::new(request.flags))
        .set_giaddr(request.giaddr)
        .set_chaddr(&request.mac);
    let options = reply.opts_mut();
    options.insert(DhcpOption::MessageType(kind));
    options.insert(DhcpOption::ServerIdentifier(server_id(config, request)));
    // As the relay and the client sent them (RFC 3046, RFC 6842).
    for number in [code::RELAY, code::CLIENT] {
        echo(options, request, number);
    }
    reply
}

fn echo(options: &mut DhcpOptions, request: &Request, number: u8) {
    if let Some(value) = request.get(number) {
        options.insert(DhcpOption::Unknown(UnknownOption::new(number.into(), value.to_vec())));
    }
}

fn longest(request: &Request) -> usize {
    // It counts the headers of IP and UDP.
    request.number(code::MAX_SIZE).map_or(LONGEST, |size| usize::from(size).saturating_sub(28).max(LONGEST))
}

fn fitted(reply: &mut Message, longest: usize) -> Result<Vec<u8>, String> {
    let mut dispensable = DISPENSABLE.iter();
    loop {
        let mut bytes = Vec::new();
        reply
            .encode(&mut Encoder::new(&mut bytes))
            .map_err(|error| format!("the answer cannot be written: {error}"))?;
        if bytes.len() <= longest {
            bytes.resize(bytes.len().max(SHORTEST), 0);
            return Ok(bytes);
        }
        let next = dispensable.next().ok_or("the answer is longer than the client takes")?;
        reply.opts_mut().remove(*next);
    }
}

fn network(config: &Config, reply: &mut Message, subject: &Subject<'_>, reservation: &Reservation, informs: bool) {
    let empty = Dhcp::default();
    let dhcp = subject.interface.dhcp.as_ref().unwrap_or(&empty);
    if !informs {
        reply.set_yiaddr(reservation.address);
        let lease = dhcp.lease_time.and_then(|seconds| u32::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
        reply.opts_mut().insert(DhcpOption::AddressLeaseTime(reservation.lease.or(lease).unwrap_or(WEEK)));
    }
    let options = reply.opts_mut();
    options.insert(DhcpOption::SubnetMask(reservation.netmask));
    if let Ok(net) = Ipv4Net::with_netmask(reservation.address, reservation.netmask) {
        options.insert(DhcpOption::BroadcastAddr(net.broadcast()));
    }
    if let Some(gateway) = reservation.gateway {
        options.insert(DhcpOption::Router(vec![gateway]));
    }
    let addresses = |texts: &[String]| texts.iter().filter_map(|text| text.parse().ok()).collect::<Vec<Ipv4Addr>>();
    let names = addresses(&dhcp.name_servers);
    if !names.is_empty() {
        options.insert(DhcpOption::DomainNameServer(names));
    }
    let times = addresses(&dhcp.time_servers);
    if !times.is_empty() {
        options.insert(DhcpOption::NtpServers(times));
    }
    if let Some(syslog) = config.syslog {
        options.insert(DhcpOption::LogServer(vec![syslog]));
    }
    let text = |text: &Option<String>| text.clone().filter(|text| !text.is_empty() && text.len() <= 255);
    if let Some(name) = text(&dhcp.hostname) {
        options.insert(DhcpOption::Hostname(name));
    }
    if let Some(name) = text(&dhcp.domain_name) {
        let wire = wire_name(&name);
        options.insert(DhcpOption::DomainName(name));
        if let Some(wire) = wire {
            options.insert(DhcpOption::Unknown(UnknownOption::new(OptionCode::DomainSearch, wire)));
        }
    }
    let routes: Vec<(Ipv4Net, Ipv4Addr)> = dhcp
        .classless_static_routes
        .iter()
        .filter_map(|route| Some((route.destination_descriptor.parse().ok()?, route.router.parse().ok()?)))
        .collect();
    if !routes.is_empty() {
        // A client that takes option 121 ignores option 3 (RFC 3442).
        let default = reservation.gateway.map(|gateway| (Ipv4Net::default(), gateway));
        let has_default = routes.iter().any(|(net, _)| net.prefix_len() == 0);
        let all = routes.into_iter().chain(default.filter(|_| !has_default)).collect();
        options.insert(DhcpOption::ClasslessStaticRoute(all));
    }
}

/// A domain in DNS's form (RFC 1035).
fn wire_name(name: &str) -> Option<Vec<u8>> {
    let mut wire = Vec::new();
    for label in name.trim_end_matches('.').split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..64).contains(length))?;
        wire.push(length);
        wire.extend(label.bytes());
    }
    wire.push(0);
    (wire.len() <= 255).then_some(wire)
}

/// By what TFTP knows who asks for a program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    /// The address that it was given here.
    ByAddress,
    /// A MAC address in the file's name.
    ByPath,
}

/// What the client boots, if it asks; for the log.
fn boot(
    config: &Config,
    reply: &mut Message,
    request: &Request,
    subject: &Subject<'_>,
    client: &Client,
    verdict: &Verdict,
    names: Names,
) -> Option<String> {
    let class: &[u8] = match client.asked {
        Asked::AddressOnly => return None,
        Asked::Pxe => b"PXEClient",
        Asked::UefiHttp => b"HTTPClient",
    };
    let options = reply.opts_mut();
    options.insert(DhcpOption::ClassIdentifier(class.to_vec()));
    echo(options, request, code::MACHINE);
    if client.asked == Asked::Pxe {
        // Boot what is named here, without a menu and without asking further servers (PXE 2.1, sub-option 6).
        options.insert(DhcpOption::VendorExtensions(vec![6, 1, 8, 255]));
    }
    // An iPXE is told by its script to go on with the disk; firmware does so when there is no file of that name.
    let goes_on = matches!(verdict, Verdict::LocalDisk(_)) && boot_file_is_script(config, client);
    if *verdict != Verdict::Boot && !goes_on {
        // Firmware that boots by HTTP ignores an offer without an URL, and waits for another one for a minute.
        let file = match client.asked {
            Asked::UefiHttp => format!("http://{}:{}{NOT_ALLOWED}", config.replicas.own, config.http_port),
            _ => NOT_ALLOWED.to_owned(),
        };
        set_file(reply, &file);
        return Some(file);
    }
    if let Some(file) = own_file(reply, subject) {
        return Some(file);
    }
    let program = subject.interface.netboot.as_ref().and_then(|netboot| netboot.ipxe.as_ref()?.binary.as_deref());
    let (us, http, mac) = (config.replicas.own, config.http_port, subject.mac);
    let file = match boot_file(client, &config.programs, program)? {
        BootFile::Script => format!("http://{us}:{http}/ipxe/script/{mac}/auto.ipxe"),
        BootFile::HttpProgram(name) => format!("http://{us}:{http}/ipxe/binary/{mac}/{name}"),
        BootFile::TftpProgram { name, by_url: true } => format!("tftp://{us}/{mac}/{name}"),
        BootFile::TftpProgram { name, .. } if names == Names::ByPath => format!("{mac}/{name}"),
        BootFile::TftpProgram { name, .. } => name,
    };
    reply.set_siaddr(us);
    set_file(reply, &file);
    Some(file)
}

/// The server and file that a Hardware names by itself.
fn own_file(reply: &mut Message, subject: &Subject<'_>) -> Option<String> {
    let dhcp = subject.interface.dhcp.as_ref()?;
    let set = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let (server, file) = (set(&dhcp.tftp_server_name)?, set(&dhcp.boot_file_name)?);
    if let Ok(address) = server.parse::<Ipv4Addr>() {
        reply.set_siaddr(address);
    }
    let options = reply.opts_mut();
    options.insert(DhcpOption::TFTPServerName(server.into_bytes()));
    options.insert(DhcpOption::BootfileName(file.clone().into_bytes()));
    if file.len() <= FILE {
        reply.set_fname_str(&file);
    }
    Some(file)
}

pub(super) fn no_program(client: &Client) -> Unserved {
    let why = format!("no boot program is known for {client}");
    Unserved::new(DhcpUnservedReason::NoBootProgram, why)
}

fn boot_file_is_script(config: &Config, client: &Client) -> bool {
    boot_file(client, &config.programs, None) == Some(BootFile::Script)
}

fn set_file(reply: &mut Message, file: &str) {
    if file.len() <= FILE {
        reply.set_fname_str(file);
    } else {
        reply.opts_mut().insert(DhcpOption::BootfileName(file.as_bytes().to_vec()));
    }
}
