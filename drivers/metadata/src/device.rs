//! Frames of one port. What is let in comes from a guest that is answered here, by the MAC address and the address that it has, and is
//! ARP, neighbour discovery or TCP; everything else ends here.

use planner::metadata::{self, Interface};
use ports::metadata::MetadataGuest;
use smoltcp::phy::{Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, Icmpv6Packet, Icmpv6Repr, IpProtocol, Ipv4Packet, Ipv6Packet,
    Ipv6Repr, NdiscNeighborFlags, NdiscRepr, TcpPacket,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::IpAddr;
use tokio::io::unix::AsyncFd;

/// Of one guest in a second; a hundred requests are a thousand frames.
const FRAMES_PER_SECOND: u32 = 4_000;
/// Connections of one guest at a time. One more waits until the guest asks again.
pub(crate) const CONNECTIONS_PER_GUEST: usize = 8;
const ETHERNET_HEADER: usize = 14;

pub(crate) fn parse_mac(text: &str) -> Option<EthernetAddress> {
    let bytes: Vec<u8> = text.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect::<Result<_, _>>().ok()?;
    Some(EthernetAddress(bytes.try_into().ok()?))
}

pub(crate) struct Tap {
    pub(crate) file: AsyncFd<File>,
    mtu: usize,
    pub(crate) guests: Vec<MetadataGuest>,
    /// Connections of each address that are open.
    pub(crate) open: BTreeMap<IpAddr, usize>,
    /// By MAC address: the second, and the frames in it.
    spent: BTreeMap<String, (i64, u32)>,
    /// What was let in, behind an [`advertisement`].
    behind: Option<Vec<u8>>,
    /// Nothing more is there to be read.
    pub(crate) drained: bool,
}

impl Tap {
    pub(crate) fn new(file: AsyncFd<File>, mtu: u16, guests: Vec<MetadataGuest>) -> Self {
        let mtu = usize::from(mtu) + ETHERNET_HEADER;
        Self { file, mtu, guests, open: BTreeMap::new(), spent: BTreeMap::new(), behind: None, drained: false }
    }

    pub(crate) fn set_guests(&mut self, guests: Vec<MetadataGuest>) {
        self.spent.retain(|mac, _| guests.iter().any(|guest| guest.nic.mac == *mac));
        self.guests = guests;
    }

    /// The guest that has this MAC address and this address.
    pub(crate) fn guest(&self, address: IpAddr) -> Option<&MetadataGuest> {
        let is = |guest: &&MetadataGuest| {
            metadata::asker(std::slice::from_ref(&guest.nic), &guest.nic.mac, address).is_some()
        };
        self.guests.iter().find(is)
    }

    fn lets_in(&mut self, frame: &[u8], now: Instant) -> bool {
        let Ok(frame) = EthernetFrame::new_checked(frame) else { return false };
        let mac = mac_text(frame.src_addr());
        let Some(nic) = self.guests.iter().find(|guest| guest.nic.mac == mac).map(|guest| &guest.nic) else {
            return false;
        };
        let spent = self.spent.entry(mac).or_default();
        *spent = if spent.0 == now.secs() { (spent.0, spent.1 + 1) } else { (now.secs(), 1) };
        if spent.1 > FRAMES_PER_SECOND {
            return false;
        }
        let (from, protocol, inside) = match frame.ethertype() {
            EthernetProtocol::Arp => return true,
            EthernetProtocol::Ipv4 => match Ipv4Packet::new_checked(frame.payload()) {
                Ok(packet) => (IpAddr::V4(packet.src_addr()), packet.next_header(), packet.payload().to_vec()),
                Err(_) => return false,
            },
            EthernetProtocol::Ipv6 => match Ipv6Packet::new_checked(frame.payload()) {
                Ok(packet) => (IpAddr::V6(packet.src_addr()), packet.next_header(), packet.payload().to_vec()),
                Err(_) => return false,
            },
            EthernetProtocol::Unknown(_) => return false,
        };
        match protocol {
            IpProtocol::Icmpv6 => true,
            IpProtocol::Tcp => has(nic, from) && self.has_room(from, &inside),
            _ => false,
        }
    }

    fn has_room(&self, from: IpAddr, segment: &[u8]) -> bool {
        let begins = TcpPacket::new_checked(segment).is_ok_and(|segment| segment.syn() && !segment.ack());
        !begins || self.open.get(&from).copied().unwrap_or_default() < CONNECTIONS_PER_GUEST
    }
}

fn has(nic: &Interface, address: IpAddr) -> bool {
    metadata::asker(std::slice::from_ref(nic), &nic.mac, address).is_some()
}

/// Of a connection by IPv6 that begins: what its guest would say if it was asked who has the address (RFC 4861 section 4.4). It is asked in
/// vain: OVN (23.03) delivers that to no localport. Whose the two addresses are, the switch and [`Tap::lets_in`] have seen.
fn advertisement(frame: &[u8]) -> Option<Vec<u8>> {
    let frame = EthernetFrame::new_checked(frame).ok().filter(|frame| frame.ethertype() == EthernetProtocol::Ipv6)?;
    let packet =
        Ipv6Packet::new_checked(frame.payload()).ok().filter(|packet| packet.next_header() == IpProtocol::Tcp)?;
    TcpPacket::new_checked(packet.payload()).ok().filter(|segment| segment.syn() && !segment.ack())?;
    let (from, to) = (packet.src_addr(), packet.dst_addr());
    let said = Icmpv6Repr::Ndisc(NdiscRepr::NeighborAdvert {
        flags: NdiscNeighborFlags::OVERRIDE,
        target_addr: from,
        lladdr: Some(frame.src_addr().into()),
    });
    let header = Ipv6Repr {
        src_addr: from,
        dst_addr: to,
        next_header: IpProtocol::Icmpv6,
        payload_len: said.buffer_len(),
        hop_limit: 255,
    };
    let mut told = vec![0; ETHERNET_HEADER + header.buffer_len() + said.buffer_len()];
    let mut outer = EthernetFrame::new_unchecked(&mut told);
    outer.set_src_addr(frame.src_addr());
    outer.set_dst_addr(frame.dst_addr());
    outer.set_ethertype(EthernetProtocol::Ipv6);
    let mut inner = Ipv6Packet::new_unchecked(outer.payload_mut());
    header.emit(&mut inner);
    said.emit(&from, &to, &mut Icmpv6Packet::new_unchecked(inner.payload_mut()), &ChecksumCapabilities::default());
    Some(told)
}

fn mac_text(mac: EthernetAddress) -> String {
    let [a, b, c, d, e, f] = mac.0;
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

impl Device for Tap {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sending<'a>;

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu;
        // A guest may have left the checksum to its network card, and the switch has carried the frame in memory alone.
        capabilities.checksum = ChecksumCapabilities::default();
        capabilities.checksum.tcp = Checksum::Tx;
        capabilities
    }

    fn receive(&mut self, now: Instant) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        if let Some(frame) = self.behind.take() {
            return Some((Received(frame), Sending(self.file.get_ref())));
        }
        loop {
            let mut frame = vec![0; self.mtu + 4];
            match self.file.get_ref().read(&mut frame) {
                Ok(length) => frame.truncate(length),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => {
                    // Empty; or no device any more, which the next wait for the file tells.
                    self.drained = true;
                    return None;
                }
            }
            if self.lets_in(&frame, now) {
                let frame = match advertisement(&frame) {
                    Some(advertisement) => {
                        self.behind = Some(frame);
                        advertisement
                    }
                    None => frame,
                };
                return Some((Received(frame), Sending(self.file.get_ref())));
            }
        }
    }

    fn transmit(&mut self, _: Instant) -> Option<Self::TxToken<'_>> {
        Some(Sending(self.file.get_ref()))
    }
}

pub(crate) struct Received(Vec<u8>);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

pub(crate) struct Sending<'a>(&'a File);

impl TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, fill: F) -> R {
        let mut frame = vec![0; length];
        let result = fill(&mut frame);
        let mut file = self.0;
        if let Err(error) = file.write(&frame) {
            // As on any link: it is sent again.
            tracing::debug!(%error, "a frame is lost");
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smoltcp::wire::{Ipv6Address, TcpControl, TcpRepr, TcpSeqNumber};

    const GUEST: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 7]);
    const FROM: Ipv6Address = Ipv6Address::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 7);
    const TO: Ipv6Address = metadata::ADDRESS_V6;

    /// A segment of a guest's, by IPv6.
    fn segment(control: TcpControl, ack_number: Option<TcpSeqNumber>) -> Vec<u8> {
        let repr = TcpRepr {
            src_port: 40_000,
            dst_port: metadata::PORT,
            control,
            seq_number: TcpSeqNumber(1),
            ack_number,
            window_len: 64,
            window_scale: None,
            max_seg_size: None,
            sack_permitted: false,
            sack_ranges: [None; 3],
            timestamp: None,
            payload: &[],
        };
        let header = Ipv6Repr {
            src_addr: FROM,
            dst_addr: TO,
            next_header: IpProtocol::Tcp,
            payload_len: repr.buffer_len(),
            hop_limit: 64,
        };
        let mut frame = vec![0; ETHERNET_HEADER + header.buffer_len() + repr.buffer_len()];
        let mut outer = EthernetFrame::new_unchecked(&mut frame);
        outer.set_src_addr(GUEST);
        outer.set_ethertype(EthernetProtocol::Ipv6);
        let mut inner = Ipv6Packet::new_unchecked(outer.payload_mut());
        header.emit(&mut inner);
        let mut tcp = TcpPacket::new_unchecked(inner.payload_mut());
        repr.emit(&mut tcp, &FROM.into(), &TO.into(), &ChecksumCapabilities::default());
        frame
    }

    #[test]
    fn a_connection_that_begins_by_ipv6_tells_its_guests_hardware_address() {
        let told = advertisement(&segment(TcpControl::Syn, None)).expect("it begins");
        let frame = EthernetFrame::new_checked(told.as_slice()).expect("a frame");
        let packet = Ipv6Packet::new_checked(frame.payload()).expect("a packet");
        assert_eq!((packet.src_addr(), packet.dst_addr(), packet.hop_limit()), (FROM, TO, 255));
        let inside = Icmpv6Packet::new_checked(packet.payload()).expect("ICMPv6");
        let said =
            Icmpv6Repr::parse(&FROM, &TO, &inside, &ChecksumCapabilities::default()).expect("its checksum is right");
        let Icmpv6Repr::Ndisc(NdiscRepr::NeighborAdvert { target_addr, lladdr, .. }) = said else { panic!("{said:?}") };
        assert_eq!((target_addr, lladdr), (FROM, Some(GUEST.into())));
        assert_eq!(advertisement(&segment(TcpControl::None, Some(TcpSeqNumber(2)))), None, "it has begun");
        assert_eq!(advertisement(&segment(TcpControl::Syn, Some(TcpSeqNumber(2)))), None, "nobody is asked from here");
        assert_eq!(advertisement(&[0; 60]), None, "no IPv6");
    }
}
