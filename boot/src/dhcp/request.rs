//! A request, read by hand: options are kept as bytes, for what is read of them is little, and one that cannot be understood must not
//! hide those after it. (dhcproto's decoder stops at the first such option, and asserts lengths in debug builds.)

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

const MAGIC: [u8; 4] = [99, 130, 83, 99];
const HEADER: usize = 236;

const END: u8 = 255;
const OVERLOAD: u8 = 52;

/// Numbers of options.
pub(super) mod code {
    pub(in crate::dhcp) const REQUESTED_ADDRESS: u8 = 50;
    pub(in crate::dhcp) const MESSAGE_TYPE: u8 = 53;
    pub(in crate::dhcp) const SERVER: u8 = 54;
    pub(in crate::dhcp) const MAX_SIZE: u8 = 57;
    pub(in crate::dhcp) const CLASS: u8 = 60;
    pub(in crate::dhcp) const CLIENT: u8 = 61;
    pub(in crate::dhcp) const USER_CLASS: u8 = 77;
    pub(in crate::dhcp) const RELAY: u8 = 82;
    pub(in crate::dhcp) const ARCHITECTURE: u8 = 93;
    pub(in crate::dhcp) const INTERFACE: u8 = 94;
    pub(in crate::dhcp) const MACHINE: u8 = 97;
    pub(in crate::dhcp) const IPXE: u8 = 175;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub xid: u32,
    pub flags: u16,
    pub ciaddr: Ipv4Addr,
    pub giaddr: Ipv4Addr,
    pub mac: [u8; 6],
    options: BTreeMap<u8, Vec<u8>>,
}

impl Request {
    /// `None`: no request of an Ethernet interface in DHCP.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let header = bytes.get(..HEADER)?;
        let options = bytes.get(HEADER..)?.strip_prefix(&MAGIC)?;
        let word = |at: usize| <[u8; 4]>::try_from(header.get(at..at + 4)?).ok();
        let mac: [u8; 6] = header[28..34].try_into().ok()?;
        let ethernet = header[0..3] == [1, 1, 6] && mac[0] & 1 == 0;
        let mut request = Self {
            xid: u32::from_be_bytes(word(4)?),
            flags: u16::from_be_bytes([header[10], header[11]]),
            ciaddr: word(12)?.into(),
            giaddr: word(24)?.into(),
            mac,
            options: BTreeMap::new(),
        };
        request.add(options);
        // Options that had no room go on in the fields of file and server (RFC 2132, 9.3), in this order.
        let overload = request.get(OVERLOAD).and_then(|value| value.first().copied()).unwrap_or_default();
        if overload & 1 == 1 {
            request.add(&header[108..236]);
        }
        if overload & 2 == 2 {
            request.add(&header[44..108]);
        }
        (ethernet && request.message_type() != 0).then_some(request)
    }

    /// An option that comes more than once is one in pieces (RFC 3396).
    fn add(&mut self, mut bytes: &[u8]) {
        while let [code, rest @ ..] = bytes {
            match (*code, rest) {
                (0, _) => bytes = rest,
                (END, _) | (_, []) => return,
                (code, [length, rest @ ..]) => {
                    let Some((value, after)) = rest.split_at_checked(usize::from(*length)) else { return };
                    self.options.entry(code).or_default().extend_from_slice(value);
                    bytes = after;
                }
            }
        }
    }

    pub(super) fn get(&self, code: u8) -> Option<&[u8]> {
        self.options.get(&code).map(Vec::as_slice)
    }

    pub(super) fn address(&self, code: u8) -> Option<Ipv4Addr> {
        self.get(code).and_then(|value| <[u8; 4]>::try_from(value).ok()).map(Ipv4Addr::from)
    }

    /// An address in a part of the relay's option.
    pub(super) fn of_relay(&self, wanted: u8) -> Option<Ipv4Addr> {
        let value = self.get(code::RELAY).and_then(|relay| part(relay, wanted))?;
        <[u8; 4]>::try_from(value).ok().map(Ipv4Addr::from)
    }

    pub(super) fn number(&self, code: u8) -> Option<u16> {
        // Of several architectures the first one counts.
        self.get(code).and_then(|value| value.first_chunk::<2>()).map(|two| u16::from_be_bytes(*two))
    }

    /// 0: none.
    pub(super) fn message_type(&self) -> u8 {
        match self.get(code::MESSAGE_TYPE) {
            Some([kind]) => *kind,
            _ => 0,
        }
    }
}

/// A part of an option that has parts.
pub(super) fn part(mut data: &[u8], wanted: u8) -> Option<&[u8]> {
    while let [code, length, rest @ ..] = data {
        let (value, after) = rest.split_at_checked(usize::from(*length))?;
        if *code == wanted {
            return Some(value);
        }
        data = after;
    }
    None
}
