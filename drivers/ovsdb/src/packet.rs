//! An AF_PACKET socket on one device (packet(7)): what the guest sends, before the switch takes it; and frames to it.
//!
//! `ETH_P_ALL`, because a switch in the kernel takes frames before sockets of one protocol see them. So that a busy guest
//! costs nothing, a socket filter lets through only what is still of interest.

use crate::frames::Mac;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, recvfrom, send, socket,
};
use socket2::{SockFilter, SockRef};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Which of the guest's frames reach us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listen {
    /// All: the first one is waited for, and any address in use.
    Everything,
    /// ARP and ICMPv6.
    Answers,
}

/// Enough for every header that is looked at.
const SNAP: u32 = 128;

pub(crate) struct PacketSocket {
    socket: AsyncFd<OwnedFd>,
    index: usize,
    guest: Mac,
}

impl PacketSocket {
    /// In the network namespace of the calling thread. `index` guards against another device with the same name.
    pub(crate) fn open(device: &str, index: u32, guest: Mac) -> io::Result<Self> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let fd = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)?;
        SockRef::from(&fd).attach_filter(&filter(Listen::Everything, guest))?;
        let address = link_address(device, index as usize)?;
        // sll_protocol is 0 there, which keeps the protocol that the socket was made with.
        bind(fd.as_raw_fd(), &address)?;
        #[expect(
            deprecated,
            reason = "its successor is `unsafe`; what it asks for, a descriptor that stays open, OwnedFd is"
        )]
        let socket = AsyncFd::with_interest(fd, Interest::READABLE)?;
        Ok(Self { socket, index: index as usize, guest })
    }

    pub(crate) fn listen(&self, listen: Listen) -> io::Result<()> {
        SockRef::from(self.socket.get_ref()).attach_filter(&filter(listen, self.guest))
    }

    /// The next frame of the guest; cancel-safe.
    pub(crate) async fn receive<'b>(&self, buffer: &'b mut [u8]) -> io::Result<&'b [u8]> {
        let length = loop {
            let mut ready = self.socket.readable().await?;
            let received = ready.try_io(|fd| Ok(recvfrom::<LinkAddr>(fd.as_raw_fd(), buffer)?));
            match received {
                // Between its creation and `bind` the socket hears every device.
                Ok(Ok((length, Some(from)))) if from.ifindex() == self.index => break length,
                Ok(Ok(_)) | Err(_) => {}
                Ok(Err(error)) => return Err(error),
            }
        };
        Ok(&buffer[..length])
    }

    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        send(self.socket.as_raw_fd(), frame, MsgFlags::MSG_DONTWAIT)?;
        Ok(())
    }
}

fn link_address(device: &str, index: usize) -> io::Result<LinkAddr> {
    getifaddrs()?
        .filter(|interface| interface.interface_name == device)
        .find_map(|interface| interface.address?.as_link_addr().copied())
        .filter(|address| address.ifindex() == index)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no network device {device}")))
}

/// A classic BPF program (bpf(4) of the BSDs; linux/Documentation/networking/filter.rst).
fn filter(listen: Listen, guest: Mac) -> Vec<SockFilter> {
    const LOAD_WORD: u16 = 0x20;
    const LOAD_HALF: u16 = 0x28;
    const LOAD_BYTE: u16 = 0x30;
    const JUMP_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let [a, b, c, d, e, f] = guest;
    let (first, last) = (u32::from_be_bytes([a, b, c, d]), u32::from(u16::from_be_bytes([e, f])));
    // Jumps count from the next instruction: (if equal, else).
    match listen {
        Listen::Everything => vec![
            SockFilter::new(LOAD_WORD, 0, 0, 6),
            SockFilter::new(JUMP_EQUAL, 0, 3, first),
            SockFilter::new(LOAD_HALF, 0, 0, 10),
            SockFilter::new(JUMP_EQUAL, 0, 1, last),
            SockFilter::new(RETURN, 0, 0, SNAP),
            SockFilter::new(RETURN, 0, 0, 0),
        ],
        Listen::Answers => vec![
            SockFilter::new(LOAD_WORD, 0, 0, 6),
            SockFilter::new(JUMP_EQUAL, 0, 8, first),
            SockFilter::new(LOAD_HALF, 0, 0, 10),
            SockFilter::new(JUMP_EQUAL, 0, 6, last),
            SockFilter::new(LOAD_HALF, 0, 0, 12),
            SockFilter::new(JUMP_EQUAL, 3, 0, 0x0806),
            SockFilter::new(JUMP_EQUAL, 0, 3, 0x86dd),
            SockFilter::new(LOAD_BYTE, 0, 0, 20),
            SockFilter::new(JUMP_EQUAL, 0, 1, 58),
            SockFilter::new(RETURN, 0, 0, SNAP),
            SockFilter::new(RETURN, 0, 0, 0),
        ],
    }
}
