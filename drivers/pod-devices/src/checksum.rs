//! Transmit checksum offload off, by ethtool's netlink interface (Documentation/networking/ethtool-netlink.rst): one question for the
//! number of its family, one request. The kept libraries for it read features and cannot set them.

use nix::libc::EPERM;
use nix::sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NESTED: u16 = 1 << 15;
/// genetlink: the family of families, and its question.
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
/// ethtool.
const MSG_FEATURES_SET: u8 = 12;
const A_FEATURES_HEADER: u16 = 1;
const A_FEATURES_WANTED: u16 = 3;
const A_HEADER_DEV_NAME: u16 = 2;
const A_BITSET_BITS: u16 = 3;
const A_BITSET_BITS_BIT: u16 = 1;
const A_BITSET_BIT_NAME: u16 = 2;
/// A veth device has these two; a bit without a value is cleared, the others stay.
const FEATURES: [&str; 2] = ["tx-checksum-ip-generic", "tx-checksum-sctp"];

/// Of a device in the network namespace of the calling thread.
pub(crate) fn off(device: &str) -> io::Result<()> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkGeneric)?;
    let question = attribute(CTRL_ATTR_FAMILY_NAME, b"ethtool\0");
    let answer = ask(&socket, &message(GENL_ID_CTRL, NLM_F_REQUEST, CTRL_CMD_GETFAMILY, &question))?;
    let family = family(&answer).ok_or_else(|| io::Error::other("the kernel has no ethtool over netlink"))?;
    let name = [device.as_bytes(), b"\0"].concat();
    let bit = |feature: &&str| {
        let name = attribute(A_BITSET_BIT_NAME, &[feature.as_bytes(), b"\0"].concat());
        attribute(A_BITSET_BITS_BIT | NESTED, &name)
    };
    let bits = attribute(A_BITSET_BITS | NESTED, &FEATURES.iter().flat_map(bit).collect::<Vec<u8>>());
    let header = attribute(A_FEATURES_HEADER | NESTED, &attribute(A_HEADER_DEV_NAME, &name));
    let request = [header, attribute(A_FEATURES_WANTED | NESTED, &bits)].concat();
    let flags = NLM_F_REQUEST | NLM_F_ACK;
    ask(&socket, &message(family, flags, MSG_FEATURES_SET, &request)).map(drop)
}

/// The kernel has put the answer into the socket when the request is sent, so this does not wait.
fn ask(socket: &OwnedFd, request: &[u8]) -> io::Result<Vec<u8>> {
    sendto(socket.as_raw_fd(), request, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    let mut reply = vec![0; 16_384];
    let length = recv(socket.as_raw_fd(), &mut reply, MsgFlags::empty())?;
    reply.truncate(length);
    let garbled = || io::Error::new(io::ErrorKind::InvalidData, "a netlink message that is cut short");
    if u16_at(&reply, 4).ok_or_else(garbled)? == NLMSG_ERROR {
        let code = reply.get(16..20).and_then(|code| code.try_into().ok()).map_or(-EPERM, i32::from_ne_bytes);
        if code != 0 {
            return Err(io::Error::from_raw_os_error(-code));
        }
    }
    Ok(reply)
}

/// nlmsghdr, genlmsghdr, attributes.
fn message(kind: u16, flags: u16, command: u8, attributes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(20 + attributes.len()).expect("a short message");
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // Sequence and port: one question at a time needs neither.
    message.extend([0; 8]);
    message.extend([command, 1, 0, 0]);
    message.extend(attributes);
    message
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).expect("a short attribute");
    let mut attribute = length.to_ne_bytes().to_vec();
    attribute.extend(kind.to_ne_bytes());
    attribute.extend(value);
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    attribute
}

fn family(answer: &[u8]) -> Option<u16> {
    let mut rest = answer.get(20..)?;
    while let Some(length) = u16_at(rest, 0).map(usize::from).filter(|length| *length >= 4) {
        if u16_at(rest, 2)? == CTRL_ATTR_FAMILY_ID {
            return u16_at(rest, 4);
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}
