//! The state of a network device, asked of the kernel by rtnetlink (`RTM_GETLINK`, rtnetlink(7)).
//!
//! sysfs would be simpler, but shows the network namespace of whoever mounted it. And a state that is polled could miss
//! a short carrier loss; the kernel counts how often the carrier came and went, so nothing is missed.

use nix::sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_CARRIER_CHANGES: u16 = 35;
const IFF_RUNNING: u32 = 0x40;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    pub index: u32,
    pub mac: [u8; 6],
    /// Up and with a carrier: for a tap, somebody has it open.
    pub running: bool,
    /// How often the carrier has come and gone since the device was made.
    pub carrier_changes: u32,
}

pub(crate) struct Links {
    socket: OwnedFd,
}

impl Links {
    /// Asks in the network namespace of the calling thread.
    pub(crate) fn open() -> io::Result<Self> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            SockProtocol::NetlinkRoute,
        )?;
        Ok(Self { socket })
    }

    /// `Ok(None)`: there is no device of that name. The kernel has put the answer into the socket when the request is
    /// sent, so this does not wait.
    pub(crate) fn get(&self, name: &str) -> io::Result<Option<Link>> {
        sendto(self.socket.as_raw_fd(), &request(name), &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
        let mut reply = [0; 16_384];
        let length = recv(self.socket.as_raw_fd(), &mut reply, MsgFlags::empty())?;
        read_reply(&reply[..length])
    }
}

fn request(name: &str) -> Vec<u8> {
    let attribute = 4 + name.len() + 1;
    let padded = attribute.next_multiple_of(4);
    let total = 16 + 16 + padded;
    let mut message = Vec::with_capacity(total);
    message.extend(u32::try_from(total).expect("a short name").to_ne_bytes());
    message.extend(RTM_GETLINK.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    // Sequence and port: one question at a time needs neither.
    message.extend([0; 8]);
    // ifinfomsg: any family, index 0 (by name).
    message.extend([0; 16]);
    message.extend(u16::try_from(attribute).expect("a short name").to_ne_bytes());
    message.extend(IFLA_IFNAME.to_ne_bytes());
    message.extend(name.as_bytes());
    message.resize(total, 0);
    message
}

fn read_reply(message: &[u8]) -> io::Result<Option<Link>> {
    let garbled = || io::Error::new(io::ErrorKind::InvalidData, "a netlink message that is cut short");
    match u16_at(message, 4).ok_or_else(garbled)? {
        RTM_NEWLINK => read_link(message).map(Some).ok_or_else(garbled),
        NLMSG_ERROR => {
            let error = io::Error::from_raw_os_error(-u32_at(message, 16).ok_or_else(garbled)?.cast_signed());
            if error.raw_os_error() == Some(nix::libc::ENODEV) { Ok(None) } else { Err(error) }
        }
        _ => Err(garbled()),
    }
}

fn read_link(message: &[u8]) -> Option<Link> {
    let length = usize::try_from(u32_at(message, 0)?).ok()?;
    let message = message.get(..length)?;
    let mut link = Link {
        index: u32_at(message, 20)?,
        mac: [0; 6],
        running: u32_at(message, 24)? & IFF_RUNNING != 0,
        carrier_changes: 0,
    };
    let mut rest = message.get(32..)?;
    while let Some(length) = u16_at(rest, 0).map(usize::from).filter(|&length| length >= 4) {
        let value = rest.get(4..length)?;
        match u16_at(rest, 2)? {
            IFLA_ADDRESS => link.mac = value.try_into().unwrap_or_default(),
            IFLA_CARRIER_CHANGES => link.carrier_changes = u32_at(value, 0)?,
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(link)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_kernel_tells_of_the_loopback_device() {
        let links = Links::open().expect("a netlink socket");
        let loopback = links.get("lo").expect("an answer").expect("lo is everywhere");
        assert_eq!((loopback.index, loopback.mac), (1, [0; 6]));
        assert_eq!(links.get("no-such-device").expect("an answer"), None);
    }

    proptest! {
        #[test]
        fn any_reply_is_read_without_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), link in any::<bool>()) {
            if bytes.len() > 6 && link {
                let length = u32::try_from(bytes.len()).expect("short");
                bytes[..4].copy_from_slice(&length.to_ne_bytes());
                bytes[4..6].copy_from_slice(&RTM_NEWLINK.to_ne_bytes());
            }
            let _ = read_reply(&bytes);
        }
    }
}
