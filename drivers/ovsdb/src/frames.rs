//! Ethernet frames as pure functions: what a guest's frame says about its addresses, and the frames that ask it.
//!
//! Offsets are those of RFC 826 (ARP over Ethernet), RFC 8200 (IPv6) and RFC 4861 sections 4.3 and 4.4 (neighbour
//! solicitation and advertisement).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(crate) type Mac = [u8; 6];

const ARP: u16 = 0x0806;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const BROADCAST: Mac = [0xff; 6];

/// Asked with this sender, a guest fills no entry of its cache that it could need: RFC 7600's dummy address.
const DUMMY_SENDER: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// What a frame from the guest tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// A reply to somebody's question for this address.
    Answers(IpAddr),
    /// The guest sends from this address: it has finished any duplicate address detection for it.
    Uses(IpAddr),
    /// The guest is looking whether anybody else has this address (RFC 5227 section 2.1.1, RFC 4862 section 5.4).
    Detects(IpAddr),
    Something,
}

/// `None`: not from that guest, or no frame at all.
pub(crate) fn read(frame: &[u8], guest: Mac) -> Option<Heard> {
    if frame.get(6..12)? != guest {
        return None;
    }
    let (kind, payload) = match be16(frame, 12)? {
        VLAN => (be16(frame, 16)?, frame.get(18..)?),
        kind => (kind, frame.get(14..)?),
    };
    let heard = match kind {
        ARP => read_arp(payload),
        IPV4 => array(payload, 12).map(|source: [u8; 4]| uses(Ipv4Addr::from(source).into())),
        IPV6 => read_ipv6(payload),
        _ => None,
    };
    Some(heard.unwrap_or(Heard::Something))
}

fn uses(address: IpAddr) -> Heard {
    if address.is_unspecified() { Heard::Something } else { Heard::Uses(address) }
}

fn read_arp(arp: &[u8]) -> Option<Heard> {
    // Ethernet (1), IPv4, address lengths 6 and 4.
    if arp.get(..6)? != [0, 1, 8, 0, 6, 4] {
        return None;
    }
    let sender = Ipv4Addr::from(array::<4>(arp, 14)?);
    let target = Ipv4Addr::from(array::<4>(arp, 24)?);
    match be16(arp, 6)? {
        1 if sender.is_unspecified() => Some(Heard::Detects(target.into())),
        1 => Some(Heard::Uses(sender.into())),
        2 if !sender.is_unspecified() => Some(Heard::Answers(sender.into())),
        _ => None,
    }
}

fn read_ipv6(packet: &[u8]) -> Option<Heard> {
    let source = Ipv6Addr::from(array::<16>(packet, 8)?);
    // RFC 4861 section 7.1: no extension header, hop limit 255.
    if *packet.get(6)? != ICMPV6 || *packet.get(7)? != 255 {
        return Some(uses(source.into()));
    }
    let icmp = packet.get(40..)?;
    let target = || array::<16>(icmp, 8).map(|octets| IpAddr::from(Ipv6Addr::from(octets)));
    match *icmp.first()? {
        SOLICITATION if source.is_unspecified() => target().map(Heard::Detects),
        // The solicited flag: an answer, not an announcement.
        ADVERTISEMENT if icmp.get(4)? & 0x40 != 0 => target().map(Heard::Answers),
        ADVERTISEMENT => target().map(Heard::Uses),
        _ => Some(uses(source.into())),
    }
}

/// An ARP request that expects a reply and changes nothing at the guest that matters.
pub(crate) fn arp_request(from: Mac, target: Ipv4Addr) -> Vec<u8> {
    arp(from, DUMMY_SENDER, target)
}

/// An ARP probe: RFC 5227 section 1.1.
pub(crate) fn arp_probe(from: Mac, target: Ipv4Addr) -> Vec<u8> {
    arp(from, Ipv4Addr::UNSPECIFIED, target)
}

fn arp(from: Mac, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let mut frame = ethernet(BROADCAST, from, ARP);
    frame.extend([0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(from);
    frame.extend(sender.octets());
    frame.extend([0; 6]);
    frame.extend(target.octets());
    frame
}

/// From a link-local address of ours, so that a guest in the middle of duplicate address detection ignores it (RFC 4862
/// section 5.4.3) instead of giving its address up.
pub(crate) fn neighbor_solicitation(from: Mac, target: Ipv6Addr) -> Vec<u8> {
    let octets = target.octets();
    let [a, b, c] = [octets[13], octets[14], octets[15]];
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]));
    let source = link_local(from);

    let mut icmp = vec![SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
    icmp.extend(octets);
    // Option 1, length 1 (of 8 bytes): source link-layer address.
    icmp.extend([1, 1]);
    icmp.extend(from);
    let checksum = icmpv6_checksum(source, group, &icmp);
    icmp[2..4].copy_from_slice(&checksum.to_be_bytes());

    let mut frame = ethernet([0x33, 0x33, 0xff, a, b, c], from, IPV6);
    frame.extend([0x60, 0, 0, 0, 0, 32, ICMPV6, 255]);
    frame.extend(source.octets());
    frame.extend(group.octets());
    frame.extend(icmp);
    frame
}

/// RFC 4291 appendix A.
fn link_local([a, b, c, d, e, f]: Mac) -> Ipv6Addr {
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// RFC 8200 section 8.1: over the pseudo-header and the message.
fn icmpv6_checksum(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> u16 {
    let mut sum = message.len() as u64 + u64::from(ICMPV6);
    for half in [&source.octets()[..], &destination.octets()[..], message].into_iter().flat_map(|part| part.chunks(2)) {
        sum += u64::from(u16::from_be_bytes([half[0], half.get(1).copied().unwrap_or(0)]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("folded to 16 bits")
}

fn ethernet(to: Mac, from: Mac, kind: u16) -> Vec<u8> {
    let mut frame = Vec::with_capacity(96);
    frame.extend(to);
    frame.extend(from);
    frame.extend(kind.to_be_bytes());
    frame
}

/// `02:00:00:aa:bb:cc`.
pub(crate) fn parse_mac(text: &str) -> Option<Mac> {
    let mut mac = Mac::default();
    let mut parts = text.split(':');
    for byte in &mut mac {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GUEST: Mac = [2, 0, 0, 0, 0, 7];
    const OURS: Mac = [2, 0, 0, 0, 0, 1];
    const V4: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 7);

    /// The reply that RFC 826 asks for.
    fn arp_reply(from: Mac, address: Ipv4Addr) -> Vec<u8> {
        let mut frame = arp(from, address, Ipv4Addr::UNSPECIFIED);
        frame[21] = 2;
        frame
    }

    fn advertisement(target: Ipv6Addr, flags: u8) -> Vec<u8> {
        let mut frame = neighbor_solicitation(GUEST, target);
        frame[54] = ADVERTISEMENT;
        frame[58] = flags;
        frame
    }

    #[test]
    fn arp_from_the_guest_is_told_apart() {
        assert_eq!(read(&arp_reply(GUEST, V4), GUEST), Some(Heard::Answers(V4.into())));
        assert_eq!(read(&arp_reply(OURS, V4), GUEST), None, "from somebody else");
        assert_eq!(read(&arp(GUEST, V4, V4), GUEST), Some(Heard::Uses(V4.into())), "an announcement");
        assert_eq!(read(&arp_probe(GUEST, V4), GUEST), Some(Heard::Detects(V4.into())));
        assert_eq!(read(&ethernet(BROADCAST, GUEST, 0x88cc), GUEST), Some(Heard::Something), "LLDP");
        let mut tagged = arp_reply(GUEST, V4);
        tagged.splice(12..12, [0x81, 0x00, 0x00, 0x05]);
        assert_eq!(read(&tagged, GUEST), Some(Heard::Answers(V4.into())), "with a VLAN tag");
    }

    #[test]
    fn ipv6_from_the_guest_is_told_apart() {
        let address: Ipv6Addr = "fd00::9:7".parse().expect("a literal address");
        let own = IpAddr::from(link_local(GUEST));
        assert_eq!(read(&advertisement(address, 0x60), GUEST), Some(Heard::Answers(address.into())));
        assert_eq!(read(&advertisement(address, 0x20), GUEST), Some(Heard::Uses(address.into())), "unsolicited");
        assert_eq!(read(&neighbor_solicitation(GUEST, address), GUEST), Some(Heard::Uses(own)), "it asks for another");
        let mut detection = neighbor_solicitation(GUEST, address);
        detection[22..38].fill(0);
        assert_eq!(read(&detection, GUEST), Some(Heard::Detects(address.into())));
        let mut routed = advertisement(address, 0x60);
        routed[21] = 64;
        assert_eq!(read(&routed, GUEST), Some(Heard::Uses(own)), "hop limit below 255: forged from afar");
    }

    #[test]
    fn a_solicitation_is_what_the_kernel_would_send() {
        let target: Ipv6Addr = "2001:db8::1:800:200e:8c6c".parse().expect("RFC 4291 section 2.7.1's example");
        let frame = neighbor_solicitation(OURS, target);
        assert_eq!(frame[..6], [0x33, 0x33, 0xff, 0x0e, 0x8c, 0x6c]);
        let group: Ipv6Addr = "ff02::1:ff0e:8c6c".parse().expect("the group of the same example");
        assert_eq!(frame[38..54], group.octets());
        assert_eq!(icmpv6_checksum(link_local(OURS), group, &frame[54..]), 0, "a valid checksum sums to zero");
    }

    #[test]
    fn macs_are_six_pairs_of_digits() {
        assert_eq!(parse_mac("02:00:00:00:00:07"), Some(GUEST));
        for wrong in
            ["", "02:00:00:00:00", "02:00:00:00:00:07:08", "2:0:0:0:0:7", "02:00:00:00:00:0g", "02-00-00-00-00-07"]
        {
            assert_eq!(parse_mac(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(mut frame in prop::collection::vec(any::<u8>(), 0..120), kind in 0usize..4) {
            if frame.len() > 14 {
                frame[6..12].copy_from_slice(&GUEST);
                frame[12..14].copy_from_slice(&[ARP, IPV4, IPV6, VLAN][kind].to_be_bytes());
            }
            let heard = read(&frame, GUEST);
            prop_assert!(heard.is_some() || frame.len() <= 18);
        }

        #[test]
        fn every_cut_of_an_answer_is_no_answer(length in 0usize..42) {
            let whole = arp_reply(GUEST, V4);
            prop_assert!(!matches!(read(&whole[..length], GUEST), Some(Heard::Answers(_))));
        }

        #[test]
        fn checksums_hold_for_any_target(octets in any::<[u8; 16]>(), mac in any::<[u8; 6]>()) {
            let frame = neighbor_solicitation(mac, octets.into());
            let group = Ipv6Addr::from(array::<16>(&frame, 38).expect("a whole frame"));
            prop_assert_eq!(icmpv6_checksum(link_local(mac), group, &frame[54..]), 0);
        }
    }
}
