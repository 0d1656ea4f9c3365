//! Boot programs beside a DHCP server that gives addresses (PXE 2.1, 2.2.4). Whoever does not boot from the network hears nothing.
//!
//! | message | answer |
//! |---|---|
//! | DISCOVER at port 67 | OFFER without an address, with the boot program |
//! | REQUEST or INFORM at port 4011 | ACK with the boot program, to where it came from |
//! | everything else | none: it is the other server's |

use super::request::Request;
use super::{
    Answer, Arrival, Asked, Config, Outcome, PROXY_PORT, SERVER_PORT, Seen, client_of, destination, mac_of, not_known,
    reply, sight, turned_away, unserved,
};
use api::report::DhcpUnservedReason;
use dhcproto::v4::MessageType;
use planner::netboot::{Directory, Unserved, Verdict, verdict};

pub(super) fn answer(
    config: &Config,
    directory: &Directory,
    request: &Request,
    arrival: Arrival<'_>,
    auto: bool,
) -> Outcome {
    let client = client_of(request);
    if client.asked == Asked::AddressOnly {
        return (None, None);
    }
    let (kind, with) = match (MessageType::from(request.message_type()), arrival.port) {
        (MessageType::Discover, SERVER_PORT) => (MessageType::Offer, "proxy OFFER"),
        (MessageType::Request | MessageType::Inform, PROXY_PORT) => (MessageType::Ack, "proxy ACK"),
        _ => return (None, None),
    };
    let mac = mac_of(&request.mac);
    let subject = match directory.by_mac_or_stranger(&mac, auto) {
        Ok(subject) => subject,
        Err(why) => return not_known(request, &mac, &why),
    };
    let said = verdict(&subject).for_server(&subject, sight::uuid(request).as_deref());
    if let Verdict::Nothing(why) = &said {
        return turned_away(request, &mac, &said, why);
    }
    let made = reply::without_address(config, request, kind, &subject, &client, &said);
    let (bytes, file) = match made {
        Ok((bytes, Some(file))) => (bytes, Some(file)),
        Ok((_, None)) => return unserved(request, &mac, &said, reply::no_program(&client)),
        Err(why) => return unserved(request, &mac, &said, Unserved::new(DhcpUnservedReason::DhcpRefused, why)),
    };
    let to = match arrival.port {
        PROXY_PORT if request.giaddr.is_unspecified() => arrival.from,
        _ => destination(request, kind),
    };
    let sight = sight::sight(request, &client, &said, Some(kind), None);
    (Some(Answer { bytes, to }), Some(Seen::Answered { mac, with, address: None, file, sight }))
}
