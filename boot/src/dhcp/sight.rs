//! What a packet tells of its server.

use super::client_of;
use super::request::{Request, code};
use api::report::{HeardBy, NetbootStage};
use dhcproto::v4::MessageType;
use planner::netboot::report::Sight;
use planner::netboot::{Asked, Client, Unserved, Verdict};
use std::net::Ipv4Addr;

/// `kind`: how it is answered; `None`: not.
pub(super) fn sight(
    request: &Request,
    client: &Client,
    verdict: &Verdict,
    kind: Option<MessageType>,
    address: Option<Ipv4Addr>,
) -> Option<Sight> {
    let turned =
        |stage, why: String| Some(Sight::Turned { stage, why, client: Some(client.clone()), uuid: uuid(request) });
    let takes = kind == Some(MessageType::Ack) && request.message_type() == u8::from(MessageType::Request);
    match (verdict, client.asked) {
        // The system on its disk takes its address: with a ciaddr it has had it all the time.
        (Verdict::LocalDisk(_) | Verdict::AddressOnly(_), Asked::AddressOnly) if takes => {
            let (address, starts) = (address?.into(), request.ciaddr.is_unspecified());
            Some(Sight::Heard { address, by: HeardBy::Dhcp, starts })
        }
        // What has been booted from the network, or is not ours.
        (_, Asked::AddressOnly) => None,
        (_, _) if kind == Some(MessageType::Nak) => None,
        (Verdict::Boot, _) => Some(Sight::Asked { client: client.clone(), uuid: uuid(request) }),
        (Verdict::LocalDisk(why), _) => turned(NetbootStage::LocalDisk, why.to_string()),
        (Verdict::AddressOnly(why) | Verdict::Nothing(why), _) => turned(NetbootStage::Refused, why.to_string()),
    }
}

/// That DHCP does not serve this server, if it is one that boots, or that has booted the installer: no one waits for any other.
pub(super) fn unserved(request: &Request, verdict: &Verdict, cause: Unserved) -> Option<Sight> {
    let is_awaited = client_of(request).asked != Asked::AddressOnly || *verdict == Verdict::Boot;
    is_awaited.then(|| Sight::Unserved { cause, uuid: uuid(request) })
}

/// Option 97 (RFC 4578, 2.3): the SMBIOS UUID as its bytes are stored, of which the first three fields are little-endian (SMBIOS 2.6,
/// 7.2.1). All zeros and all ones are none.
pub(super) fn uuid(request: &Request) -> Option<String> {
    let [0, bytes @ ..] = request.get(code::MACHINE)? else { return None };
    let bytes: [u8; 16] = bytes.try_into().ok()?;
    let is_set = bytes.iter().any(|byte| *byte != 0) && bytes.iter().any(|byte| *byte != 0xff);
    let [a, b, c, d, e, f, g, h, rest @ ..] = bytes;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let fields = [hex(&[d, c, b, a]), hex(&[f, e]), hex(&[h, g]), hex(&rest[..2]), hex(&rest[2..])];
    is_set.then(|| fields.join("-"))
}
