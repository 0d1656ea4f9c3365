//! Addresses are reservations of the Hardware; where a network has a pool, who has none boots with one of it.
//!
//! | message | answer |
//! |---|---|
//! | DISCOVER | OFFER of the reservation |
//! | REQUEST | ACK, or NAK where another address is asked for, but for one that another replica gives; nothing where another server was chosen, which is told unless it is a replica |
//! | INFORM | ACK without an address |
//! | DECLINE | none; it is told, for a second server has the address |
//! | RELEASE | none: a reservation is never free, and what has booted may still be running |

use super::pool::{LEASE_SECONDS, Leases, Pool, pool_of};
use super::request::{Request, code};
use super::{
    Answer, Config, Outcome, RELAY_LINK, Seen, client_of, destination, mac_of, not_known, reply, server_id, sight,
    turned_away, unserved,
};
use api::report::DhcpUnservedReason;
use dhcproto::v4::MessageType;
use ipnet::Ipv4Net;
use jiff::Timestamp;
use planner::netboot::{Asked, Directory, Subject, Unserved, Verdict, verdict};
use std::net::Ipv4Addr;

pub(super) fn answer(
    config: &Config,
    leases: &mut Leases,
    directory: &Directory,
    request: &Request,
    now: Timestamp,
) -> Outcome {
    let mac = mac_of(&request.mac);
    let client = client_of(request);
    let pool = pool_of(&config.pools, request, config.replicas.own);
    // Of strangers those that boot from the network, and what they have booted.
    let boots = client.asked != Asked::AddressOnly || leases.has(&mac, now);
    let subject = match directory.by_mac_or_stranger(&mac, pool.is_some() && boots) {
        Ok(subject) => subject,
        Err(why) => return not_known(request, &mac, &why),
    };
    let said = verdict(&subject).for_server(&subject, sight::uuid(request).as_deref());
    if let Verdict::Nothing(why) = &said {
        return turned_away(request, &mac, &said, why);
    }
    let silent = |cause: Unserved| unserved(request, &mac, &said, cause);
    if subject.interface.disable_dhcp == Some(true) {
        return silent(refused(format!("disableDhcp is true for the interface {mac}")));
    }
    let is_other = |address: Ipv4Addr| config.replicas.has(address) || directory.has_address(address.into());
    let reservation = match pool.filter(|_| has_no_address(&subject)) {
        Some(pool) => match leases.offer((pool, &config.replicas), request, &mac, is_other, now) {
            Some(address) => Ok(Reservation::of_pool(pool, address)),
            None => Err(Unserved::new(
                DhcpUnservedReason::DhcpPoolFull,
                format!("all addresses of the pool {pool} are taken"),
            )),
        },
        None => {
            let found = Reservation::of(&subject, directory).and_then(|found| found.on_link_of(request, &subject));
            found.map_err(refused)
        }
    };
    let reservation = match reservation {
        Ok(reservation) => reservation,
        Err(cause) => return silent(cause),
    };
    let us = server_id(config, request);
    let asked_for = request.address(code::REQUESTED_ADDRESS);
    let is_of_other =
        |address| reservation.lease.is_some() && pool.is_some_and(|pool| pool.is_of_other(&config.replicas, address));
    let kind = match decide(request, us, reservation.address) {
        Decision::Answer(MessageType::Nak) if is_of_other(wanted(request)) => return (None, None),
        Decision::Answer(kind) => kind,
        Decision::Declined => {
            asked_for.iter().for_each(|address| leases.decline(*address, &mac, now));
            let message = format!("the server declined address {}: somebody else has it", told(asked_for));
            let cause = Unserved::new(DhcpUnservedReason::DhcpAddressInUse, message);
            let sight = sight::unserved(request, &said, Unserved { address: asked_for, ..cause });
            return (None, Some(Seen::Declined { mac, address: asked_for, sight }));
        }
        Decision::Foreign(server) if config.replicas.has(server) => return (None, None),
        Decision::Foreign(server) => {
            let message = format!("the server took address {} of DHCP server {server}", told(asked_for));
            let cause = Unserved::new(DhcpUnservedReason::ForeignDhcp, message);
            let sight = sight::unserved(request, &said, Unserved { server: Some(server), address: asked_for, ..cause });
            return (None, Some(Seen::Foreign { mac, server, address: asked_for, sight }));
        }
        Decision::Nothing => return (None, None),
    };
    if kind == MessageType::Ack && reservation.lease.is_some() {
        leases.take(reservation.address, &mac, now);
    }
    let (bytes, file) = match reply::with_address(config, request, kind, &subject, &reservation, &client, &said) {
        Ok(made) => made,
        Err(why) => return silent(refused(why)),
    };
    let with = match kind {
        MessageType::Offer => "OFFER",
        MessageType::Nak => "NAK",
        _ => "ACK",
    };
    let to = destination(request, kind);
    let address = Some(reservation.address);
    let boots = said == Verdict::Boot && client.asked != Asked::AddressOnly && kind != MessageType::Nak;
    let sight = match boots && file.is_none() {
        true => sight::unserved(request, &said, reply::no_program(&client)),
        false => sight::sight(request, &client, &said, Some(kind), address),
    };
    let seen = Seen::Answered { mac, with, address, file, sight };
    (Some(Answer { bytes, to }), Some(seen))
}

fn refused(why: String) -> Unserved {
    Unserved::new(DhcpUnservedReason::DhcpRefused, why)
}

fn told(address: Option<Ipv4Addr>) -> String {
    address.map_or_else(|| "that is not known".to_owned(), |address| address.to_string())
}

enum Decision {
    Answer(MessageType),
    Declined,
    /// The client took what this server offered.
    Foreign(Ipv4Addr),
    Nothing,
}

fn decide(request: &Request, us: Ipv4Addr, reserved: Ipv4Addr) -> Decision {
    match MessageType::from(request.message_type()) {
        MessageType::Discover => Decision::Answer(MessageType::Offer),
        MessageType::Inform => Decision::Answer(MessageType::Ack),
        MessageType::Decline => Decision::Declined,
        MessageType::Request => match request.address(code::SERVER) {
            Some(server) if server != us => Decision::Foreign(server),
            // Selecting and after a restart by option 50, renewing and rebinding by ciaddr.
            _ if wanted(request) == reserved => Decision::Answer(MessageType::Ack),
            _ => Decision::Answer(MessageType::Nak),
        },
        _ => Decision::Nothing,
    }
}

fn wanted(request: &Request) -> Ipv4Addr {
    request.address(code::REQUESTED_ADDRESS).unwrap_or(request.ciaddr)
}

/// The address that a Hardware gives to one interface.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reservation {
    pub address: Ipv4Addr,
    pub netmask: Ipv4Addr,
    pub gateway: Option<Ipv4Addr>,
    /// Of a pool: for how many seconds.
    pub lease: Option<u32>,
    /// Who asks from it is this interface and no other one, as the inventory has it.
    pub tells_interface: bool,
}

fn has_no_address(subject: &Subject<'_>) -> bool {
    let ip = subject.interface.dhcp.as_ref().and_then(|dhcp| dhcp.ip.as_ref());
    ip.and_then(|ip| ip.address.as_deref()).unwrap_or_default().is_empty()
}

impl Reservation {
    fn of_pool(pool: &Pool, address: Ipv4Addr) -> Self {
        let (netmask, gateway, lease) = (pool.netmask(), pool.gateway, Some(LEASE_SECONDS));
        Self { address, netmask, gateway, lease, tells_interface: false }
    }

    fn of(subject: &Subject<'_>, directory: &Directory) -> Result<Self, String> {
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
        let tells_interface = directory.tells_interface(address.into());
        Ok(Self { address, netmask, gateway, lease: None, tells_interface })
    }

    /// A relay that names the client's link wants an address of that link (RFC 3527): another one would be of no use there.
    fn on_link_of(self, request: &Request, subject: &Subject<'_>) -> Result<Self, String> {
        let Some(link) = request.of_relay(RELAY_LINK) else { return Ok(self) };
        match Ipv4Net::with_netmask(self.address, self.netmask) {
            Ok(net) if net.contains(&link) => Ok(self),
            _ => Err(format!(
                "Hardware '{}', interface {}: the relay asks for an address of the link of {link}, dhcp.ip.address is {}",
                subject.hardware.metadata.name.as_deref().unwrap_or_default(),
                subject.mac,
                self.address
            )),
        }
    }
}
