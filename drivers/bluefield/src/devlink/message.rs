//! Netlink messages: RFC 3549, section 2.3; generic netlink and devlink as in `linux/genetlink.h` and `linux/devlink.h`. No I/O.

use std::io;

/// The family that tells of the others: `GENL_ID_CTRL`.
pub const CONTROL: u16 = 0x10;
const CONTROL_GET_FAMILY: u8 = 3;
const CONTROL_FAMILY_ID: u16 = 1;
const CONTROL_FAMILY_NAME: u16 = 2;

pub const PORT_GET: u8 = 5;
pub const PORT_SET: u8 = 6;

pub const BUS_NAME: u16 = 1;
pub const DEV_NAME: u16 = 2;
pub const PORT_INDEX: u16 = 3;
pub const PORT_NETDEV_NAME: u16 = 7;
pub const PORT_FLAVOUR: u16 = 77;
pub const PORT_PF_NUMBER: u16 = 127;
pub const PORT_VF_NUMBER: u16 = 128;
pub const PORT_FUNCTION: u16 = 145;
pub const PORT_EXTERNAL: u16 = 149;
pub const PORT_CONTROLLER: u16 = 150;
pub const FUNCTION_HW_ADDR: u16 = 1;
pub const FLAVOUR_PCI_PF: u16 = 3;
pub const FLAVOUR_PCI_VF: u16 = 4;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const NLA_F_NESTED: u16 = 0x8000;
const NLA_TYPE_MASK: u16 = 0x3fff;

const HEADER: usize = 16;
const GENERIC_HEADER: usize = 4;
const ATTRIBUTE_HEADER: usize = 4;

#[derive(Debug, Clone)]
pub struct Request {
    flags: u16,
    command: u8,
    attributes: Vec<u8>,
}

impl Request {
    /// All that there are.
    pub fn dump(command: u8) -> Self {
        Self { flags: NLM_F_REQUEST | NLM_F_DUMP, command, attributes: Vec::new() }
    }

    /// Answered with an acknowledgement.
    pub fn change(command: u8) -> Self {
        Self { flags: NLM_F_REQUEST | NLM_F_ACK, command, attributes: Vec::new() }
    }

    pub fn family(name: &str) -> Self {
        Self::change(CONTROL_GET_FAMILY).text(CONTROL_FAMILY_NAME, name)
    }

    pub fn text(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attribute(kind, &bytes)
    }

    pub fn number(self, kind: u16, value: u32) -> Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    pub fn nested(self, kind: u16, inner: u16, value: &[u8]) -> Self {
        let mut bytes = Vec::new();
        push(&mut bytes, inner, value);
        self.attribute(kind | NLA_F_NESTED, &bytes)
    }

    fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        push(&mut self.attributes, kind, value);
        self
    }

    pub fn into_bytes(self, family: u16) -> Vec<u8> {
        let length = HEADER + GENERIC_HEADER + self.attributes.len();
        let mut message = Vec::with_capacity(length);
        message.extend(u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
        message.extend(family.to_ne_bytes());
        message.extend(self.flags.to_ne_bytes());
        // Sequence and port: one question at a time needs neither.
        message.extend([0; 8]);
        message.extend([self.command, 1, 0, 0]);
        message.extend(self.attributes);
        message
    }
}

fn push(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = ATTRIBUTE_HEADER + value.len();
    to.extend(u16::try_from(length).unwrap_or(u16::MAX).to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

#[derive(Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// What follows the netlink header.
    Data(&'a [u8]),
    /// Of a dump, or an acknowledgement.
    End,
    Refused(i32),
}

/// The messages of a datagram.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(datagram: &'a [u8]) -> Self {
        Self { rest: datagram }
    }

    fn read(&mut self) -> Option<Message<'a>> {
        let length = usize::try_from(number(self.rest)?).ok().filter(|length| *length >= HEADER)?;
        let message = self.rest.get(..length)?;
        let payload = message.get(HEADER..)?;
        let read = match short(message.get(4..)?)? {
            NLMSG_DONE => Message::End,
            NLMSG_ERROR => match number(payload)?.cast_signed() {
                0 => Message::End,
                errno => Message::Refused(errno.checked_neg()?),
            },
            _ => Message::Data(payload),
        };
        self.rest = self.rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(read)
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = io::Result<Message<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let read = self.read();
        if read.is_none() {
            self.rest = &[];
        }
        Some(read.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a netlink message that is cut short")))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute<'a> {
    pub kind: u16,
    pub value: &'a [u8],
}

/// Of what follows a netlink header. What is cut short ends them.
pub fn attributes(payload: &[u8]) -> impl Iterator<Item = Attribute<'_>> {
    nested(payload.get(GENERIC_HEADER..).unwrap_or_default())
}

pub fn nested(mut rest: &[u8]) -> impl Iterator<Item = Attribute<'_>> {
    std::iter::from_fn(move || {
        let length = usize::from(short(rest)?);
        let value = rest.get(ATTRIBUTE_HEADER..length)?;
        let kind = short(rest.get(2..)?)? & NLA_TYPE_MASK;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Attribute { kind, value })
    })
}

pub fn family_id(payload: &[u8]) -> Option<u16> {
    short(attributes(payload).find(|attribute| attribute.kind == CONTROL_FAMILY_ID)?.value)
}

pub fn number(value: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(value.get(..4)?.try_into().ok()?))
}

pub fn short(value: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(value.get(..2)?.try_into().ok()?))
}

/// Up to the zero that ends it.
pub fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let request = Request::change(PORT_SET).text(BUS_NAME, "pci").number(PORT_INDEX, 196_608).nested(
            PORT_FUNCTION,
            FUNCTION_HW_ADDR,
            &[2, 0, 0, 0, 0, 7],
        );
        let bytes = request.into_bytes(0x14);
        let mut messages = Reader::new(&bytes);
        let Some(Ok(Message::Data(payload))) = messages.next() else { panic!("one message") };
        assert!(messages.next().is_none());
        let all: Vec<_> = attributes(payload).collect();
        assert_eq!(all.iter().map(|a| a.kind).collect::<Vec<_>>(), [BUS_NAME, PORT_INDEX, PORT_FUNCTION]);
        assert_eq!((text(all[0].value), number(all[1].value)), ("pci".to_owned(), Some(196_608)));
        let inner: Vec<_> = nested(all[2].value).collect();
        assert_eq!(inner, [Attribute { kind: FUNCTION_HW_ADDR, value: &[2, 0, 0, 0, 0, 7] }]);
    }

    #[test]
    fn an_error_is_told_by_its_number() {
        let mut bytes = vec![20, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend((-95i32).to_ne_bytes());
        assert_eq!(Reader::new(&bytes).next().and_then(Result::ok), Some(Message::Refused(95)));
        bytes.truncate(18);
        assert!(Reader::new(&bytes).next().is_some_and(|read| read.is_err()), "cut short");
    }

    #[test]
    fn any_bytes_are_read_without_panic_and_come_to_an_end() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..20_000 {
            let mut bytes = Vec::new();
            for _ in 0..16 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                // Small numbers make lengths that fit.
                bytes.extend((state as u32 & 0x00ff_001f).to_ne_bytes());
            }
            for read in Reader::new(&bytes).take(100) {
                if let Ok(Message::Data(payload)) = read {
                    assert!(attributes(payload).take(100).count() < 100);
                }
            }
        }
    }
}
