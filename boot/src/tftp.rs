//! TFTP (RFC 1350, 2347, 2348, 2349, 7440), reading only: packet in, packets out. Answers leave from the port that was asked, so
//! one socket serves all.
//!
//! A block is sent again by the clock alone, never because an acknowledgement came twice: that would double every packet for the
//! rest of a transfer. Block numbers go on from 65,535 to 0.

use crate::files::Program;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// A packet is not longer than an Ethernet frame takes: many firmwares do not join fragments.
const LARGEST_BLOCK: usize = 1468;
const LARGEST_WINDOW: u64 = 16;
const TRANSFERS: usize = 256;
const TRANSFERS_OF_ONE: usize = 4;
const AGAIN: Duration = Duration::from_secs(1);
const TRIES: u32 = 6;

pub struct Out {
    pub bytes: Vec<u8>,
    pub to: SocketAddr,
}

/// What a path holds for who asks; `Err`: why nothing.
pub trait Files {
    fn open(&self, path: &str) -> Result<Program, String>;
}

struct Transfer {
    data: Program,
    block: usize,
    window: u64,
    /// Blocks that the client has; `None`: it has not taken the options yet.
    acknowledged: Option<u64>,
    /// The last block that was sent.
    sent: u64,
    options: Option<Vec<u8>>,
    again: Duration,
    due: Instant,
    tries: u32,
}

#[derive(Default)]
pub struct Server {
    transfers: BTreeMap<SocketAddr, Transfer>,
}

impl Server {
    /// How many transfers are kept.
    pub(crate) fn under_way(&self) -> usize {
        self.transfers.len()
    }

    /// Never panics, whatever the bytes are.
    pub fn datagram(&mut self, bytes: &[u8], from: SocketAddr, files: &dyn Files, now: Instant) -> Vec<Out> {
        let packets = match bytes {
            [0, 1, rest @ ..] => self.read(rest, from, files, now),
            [0, 2, ..] => vec![error(2, "read only: files are fetched here and never written")],
            [0, 4, high, low, ..] => self.acknowledge(u16::from_be_bytes([*high, *low]), from, now),
            [0, 5, ..] => {
                self.transfers.remove(&from);
                Vec::new()
            }
            _ => Vec::new(),
        };
        packets.into_iter().map(|bytes| Out { bytes, to: from }).collect()
    }

    /// What is to be sent again; transfers whose client answers no more are forgotten.
    pub fn tick(&mut self, now: Instant) -> Vec<Out> {
        let mut out = Vec::new();
        self.transfers.retain(|to, transfer| {
            if transfer.due > now {
                return true;
            }
            transfer.tries += 1;
            transfer.due = now + transfer.again;
            if transfer.tries <= TRIES {
                out.extend(transfer.again().into_iter().map(|bytes| Out { bytes, to: *to }));
            }
            transfer.tries <= TRIES
        });
        out
    }

    fn read(&mut self, rest: &[u8], from: SocketAddr, files: &dyn Files, now: Instant) -> Vec<Vec<u8>> {
        let mut words = rest.split(|byte| *byte == 0).map(|word| std::str::from_utf8(word).ok());
        let (Some(Some(path)), Some(Some(mode))) = (words.next(), words.next()) else {
            return vec![error(4, "a request that cannot be read")];
        };
        if !mode.eq_ignore_ascii_case("octet") {
            return vec![error(4, "only the mode octet is served")];
        }
        let of_one = |ip: IpAddr| self.transfers.keys().filter(|known| known.ip() == ip && **known != from).count();
        if self.transfers.len() >= TRANSFERS || of_one(from.ip()) >= TRANSFERS_OF_ONE {
            return vec![error(0, "too many transfers; try again")];
        }
        let data = match files.open(path) {
            Ok(data) => data,
            Err(why) => return vec![error(1, &why)],
        };
        let mut transfer = Transfer {
            data,
            block: 512,
            window: 1,
            acknowledged: Some(0),
            sent: 0,
            options: None,
            again: AGAIN,
            due: now + AGAIN,
            tries: 0,
        };
        let mut accepted = Vec::new();
        while let (Some(Some(name)), Some(Some(value))) = (words.next(), words.next()) {
            transfer.negotiate(&name.to_ascii_lowercase(), value, &mut accepted);
        }
        let packets = if accepted.is_empty() {
            transfer.next()
        } else {
            let packet = [&[0, 6][..], &accepted].concat();
            transfer.acknowledged = None;
            transfer.options = Some(packet.clone());
            vec![packet]
        };
        transfer.due = now + transfer.again;
        self.transfers.insert(from, transfer);
        packets
    }

    fn acknowledge(&mut self, block: u16, from: SocketAddr, now: Instant) -> Vec<Vec<u8>> {
        let Some(transfer) = self.transfers.get_mut(&from) else { return Vec::new() };
        match transfer.acknowledged {
            None if block == 0 => transfer.acknowledged = Some(0),
            None => return Vec::new(),
            Some(known) => {
                // The block of that number that is under way: numbers repeat after 65,536.
                #[expect(clippy::cast_possible_truncation, reason = "the number on the wire")]
                let ahead = u64::from(block.wrapping_sub(known as u16));
                if ahead == 0 || known + ahead > transfer.sent {
                    return Vec::new();
                }
                transfer.acknowledged = Some(known + ahead);
            }
        }
        transfer.tries = 0;
        transfer.due = now + transfer.again;
        if transfer.acknowledged == Some(transfer.blocks()) {
            self.transfers.remove(&from);
            return Vec::new();
        }
        transfer.next()
    }
}

impl Transfer {
    fn negotiate(&mut self, name: &str, value: &str, accepted: &mut Vec<u8>) {
        let Ok(number) = value.parse::<u64>() else { return };
        let taken = match name {
            "blksize" if number >= 8 => {
                let size = usize::try_from(number).unwrap_or(LARGEST_BLOCK).min(LARGEST_BLOCK);
                self.block = size;
                size as u64
            }
            "windowsize" if number >= 1 => {
                self.window = number.min(LARGEST_WINDOW);
                self.window
            }
            "tsize" => self.data.length() as u64,
            "timeout" if (1..=255).contains(&number) => {
                self.again = Duration::from_secs(number);
                number
            }
            _ => return,
        };
        accepted.extend_from_slice(format!("{name}\0{taken}\0").as_bytes());
    }

    /// The last one is shorter than the others, and may be empty.
    fn blocks(&self) -> u64 {
        (self.data.length() / self.block) as u64 + 1
    }

    /// The window after what the client has.
    fn next(&mut self) -> Vec<Vec<u8>> {
        let known = self.acknowledged.unwrap_or_default();
        let last = (known + self.window).min(self.blocks());
        self.sent = last;
        (known + 1..=last).map(|block| self.packet(block)).collect()
    }

    fn again(&mut self) -> Vec<Vec<u8>> {
        match (&self.options, self.acknowledged) {
            (Some(options), None) => vec![options.clone()],
            _ => self.next(),
        }
    }

    fn packet(&self, block: u64) -> Vec<u8> {
        let begin = usize::try_from(block - 1).unwrap_or(usize::MAX).saturating_mul(self.block);
        #[expect(clippy::cast_possible_truncation, reason = "the number on the wire")]
        let number = (block as u16).to_be_bytes();
        [&[0, 3][..], &number, &self.data.part(begin, self.block)].concat()
    }
}

fn error(code: u8, text: &str) -> Vec<u8> {
    [&[0, 5, 0, code][..], text.as_bytes(), &[0]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;

    struct One(Bytes);

    impl Files for One {
        fn open(&self, path: &str) -> Result<Program, String> {
            if path == "a" { Ok(Program::of(self.0.clone())) } else { Err("no such file".to_owned()) }
        }
    }

    fn client() -> SocketAddr {
        "10.88.0.50:2000".parse().expect("an address")
    }

    fn rrq(options: &str) -> Vec<u8> {
        [b"\0\x01a\0octet\0", options.replace(' ', "\0").as_bytes()].concat()
    }

    fn ack(block: u16) -> Vec<u8> {
        [&[0, 4][..], &block.to_be_bytes()].concat()
    }

    /// A whole transfer; gives what arrived and the number of data packets.
    fn fetch(data: &[u8], options: &str) -> (Vec<u8>, u64) {
        let (files, now) = (One(Bytes::copy_from_slice(data)), Instant::now());
        let mut server = Server::default();
        let mut out = server.datagram(&rrq(options), client(), &files, now);
        if out[0].bytes.starts_with(&[0, 6]) {
            out = server.datagram(&ack(0), client(), &files, now);
        }
        let (mut got, mut packets) = (Vec::new(), 0);
        while !server.transfers.is_empty() {
            assert!(!out.is_empty());
            let last = &out[out.len() - 1].bytes;
            let number = u16::from_be_bytes([last[2], last[3]]);
            for packet in &out {
                got.extend_from_slice(&packet.bytes[4..]);
                packets += 1;
            }
            out = server.datagram(&ack(number), client(), &files, now);
        }
        (got, packets)
    }

    #[test]
    fn files_of_every_length_arrive_whole() {
        for length in [0, 1, 511, 512, 513, 1024, 5000] {
            let data: Vec<u8> = (0..length).map(|n| u8::try_from(n % 251).expect("small")).collect();
            for options in ["", "blksize 8 ", "blksize 1468 tsize 0 ", "windowsize 4 blksize 100 ", "windowsize 999 "] {
                assert_eq!(fetch(&data, options).0, data, "{length} {options}");
            }
        }
    }

    #[test]
    fn block_numbers_go_on_after_65535() {
        let data = vec![7; 8 * 70_000 + 3];
        let (got, packets) = fetch(&data, "blksize 8 windowsize 16 ");
        assert_eq!((got.len(), packets), (data.len(), 70_001));
    }

    #[test]
    fn options_are_answered() {
        let mut server = Server::default();
        let asked = rrq("blksize 60000 tsize 0 windowsize 64 timeout 3 other 1 blksize2 x ");
        let out = server.datagram(&asked, client(), &One(Bytes::from_static(b"12345")), Instant::now());
        assert_eq!(out[0].bytes, b"\0\x06blksize\x001468\0tsize\x005\0windowsize\x0016\0timeout\x003\0");
    }

    #[test]
    fn a_repeated_acknowledgement_sends_nothing_and_the_clock_does() {
        let (files, now) = (One(Bytes::from(vec![1; 2000])), Instant::now());
        let mut server = Server::default();
        server.datagram(&rrq(""), client(), &files, now);
        assert_eq!(server.datagram(&ack(1), client(), &files, now).len(), 1);
        for _ in 0..10 {
            assert!(server.datagram(&ack(1), client(), &files, now).is_empty());
        }
        assert!(server.datagram(&ack(9), client(), &files, now).is_empty(), "it was not sent");
        let mut now = now;
        let mut again = 0;
        while !server.transfers.is_empty() {
            now += Duration::from_secs(1);
            again += server.tick(now).len();
        }
        assert_eq!(again, 6, "then the transfer is given up");
    }

    #[test]
    fn who_asks_for_something_else_is_told() {
        let (files, now) = (One(Bytes::new()), Instant::now());
        let mut server = Server::default();
        let mut code = |bytes: &[u8]| server.datagram(bytes, client(), &files, now)[0].bytes[3];
        assert_eq!(code(b"\0\x02a\0octet\0"), 2, "writing");
        assert_eq!(code(b"\0\x01a\0netascii\0"), 4);
        assert_eq!(code(b"\0\x01b\0octet\0"), 1);
        assert_eq!(code(b"\0\x01\xff\xff"), 4);
        for port in 1..=4 {
            assert_eq!(server.datagram(&rrq(""), (client().ip(), port).into(), &files, now)[0].bytes[1], 3);
        }
        assert_eq!(server.datagram(&rrq(""), (client().ip(), 5).into(), &files, now)[0].bytes[1], 5, "too many");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_are_survived(packets in proptest::collection::vec(
            prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..40),
                any::<u16>().prop_map(ack),
                (0u16..20).prop_map(ack),
                "[a-z0-9 ]{0,40}".prop_map(|options| rrq(&options)),
                Just(rrq("blksize 8 windowsize 3 ")),
            ], 0..30)) {
            let files = One(Bytes::from(vec![3; 100]));
            let (mut server, mut now) = (Server::default(), Instant::now());
            for bytes in packets {
                let out = server.datagram(&bytes, client(), &files, now);
                prop_assert!(out.len() <= 16);
                now += Duration::from_millis(300);
                server.tick(now);
            }
        }
    }
}
