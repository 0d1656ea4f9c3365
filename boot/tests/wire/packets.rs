//! Packets of our own making, sent by perl: from which address they are answered, though the node has another one before it; and what comes
//! of a thousand at once.

use super::site::{Running, US, beside, client, path, until};
use super::{CLAIMED, MAC, RELAYED};
use dhcproto::v4::{Architecture, DhcpOption, Message, MessageType};
use dhcproto::{Decodable, Decoder, Encodable};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::process::Output;

/// Device, own port, address and port, and a file of packets, in hexadecimal digits, a line each. Prints who answered what, until nobody has
/// for a second. (33 is SO_RCVBUFFORCE, 25 is SO_BINDTODEVICE, 17 is UDP.)
const SEND: &str = r#"use strict; use Socket; my ($device, $port, $to, $at, $file) = @ARGV;
socket(my $socket, PF_INET, SOCK_DGRAM, 17) or die "socket: $!";
setsockopt($socket, SOL_SOCKET, SO_REUSEADDR, 1); setsockopt($socket, SOL_SOCKET, SO_BROADCAST, 1);
setsockopt($socket, SOL_SOCKET, 33, pack('i', 8 << 20)) or die "buffer: $!";
setsockopt($socket, SOL_SOCKET, 25, $device) or die "$device: $!";
bind($socket, sockaddr_in($port, INADDR_ANY)) or die "bind: $!";
open(my $packets, '<', $file) or die "$file: $!";
while (<$packets>) { chomp; send($socket, pack('H*', $_), 0, sockaddr_in($at, inet_aton($to))) or die "send: $!" }
my $bits = ''; vec($bits, fileno($socket), 1) = 1;
while (select(my $there = $bits, undef, undef, 1)) {
    my $from = recv($socket, my $bytes, 2048, 0) or last;
    my ($from_port, $address) = sockaddr_in($from);
    printf "%s:%d %s\n", inet_ntoa($address), $from_port, unpack('H*', $bytes);
}"#;
const AT_ONCE: u32 = 1000;
/// What a thousand packets may add to the memory of the service: 16 bytes for each of them, and what allocators keep.
const MORE_KIB: u64 = 16 << 10;

struct Answer {
    from: String,
    bytes: Vec<u8>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal digits");
    (0..hex.len()).step_by(2).map(byte).collect()
}

fn answers(done: &Output) -> Vec<Answer> {
    assert!(done.status.success(), "{done:?}");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let answers = text.lines().map(|line| line.split_once(' ').expect("who and what"));
    answers.map(|(from, what)| Answer { from: from.to_owned(), bytes: bytes(what) }).collect()
}

fn discover(mac: &str, xid: u32, more: impl FnOnce(&mut Message)) -> Vec<u8> {
    let address: Vec<u8> = mac.split(':').map(|byte| u8::from_str_radix(byte, 16).expect("a MAC address")).collect();
    let none = Ipv4Addr::UNSPECIFIED;
    let mut message = Message::new_with_id(xid, none, none, none, none, &address);
    for option in [
        DhcpOption::MessageType(MessageType::Discover),
        DhcpOption::ClassIdentifier(b"PXEClient:Arch:00007:UNDI:003000".to_vec()),
        DhcpOption::ClientSystemArchitecture(Architecture(7)),
    ] {
        message.opts_mut().insert(option);
    }
    more(&mut message);
    message.to_vec().expect("encodable")
}

fn offered(answer: &Answer) -> Message {
    Message::decode(&mut Decoder::new(&answer.bytes)).expect("decodable")
}

pub async fn are_answered_from_the_address_that_was_asked(dir: &tempfile::TempDir) {
    let file = path(dir, "packets");
    let file_text = file.display().to_string();
    let write = |packet: &[u8]| std::fs::write(&file, format!("{}\n", hex(packet))).expect("written");
    let ours = |port: u16| format!("{US}:{port}");
    let perl = |device: &'static str, port: &'static str, to: &'static str, at: &'static str| {
        [["perl", "-e", SEND, device], [port, to, at, ""]].concat()
    };
    let sent = async |words: Vec<&str>| {
        let words: Vec<&str> =
            words.into_iter().map(|word| if word.is_empty() { file_text.as_str() } else { word }).collect();
        answers(&client(&words).await)
    };
    // A broadcast, what is sent to the address, and what is sent to another one of the node's.
    for to in ["255.255.255.255", US, "10.88.0.253"] {
        write(&discover(MAC, 7, |_| ()));
        let all = sent(perl("eth0", "68", to, "67")).await;
        let [answer] = &all[..] else { panic!("{to}: {} answers", all.len()) };
        assert_eq!((answer.from.clone(), offered(answer).yiaddr()), (ours(67), Ipv4Addr::new(10, 88, 0, 50)), "{to}");
    }
    // A relay's, by another way into the node.
    write(&discover(RELAYED, 9, |message| {
        message.set_giaddr(Ipv4Addr::new(10, 89, 0, 1)).set_hops(1);
    }));
    let mut words = perl("up0", "67", US, "67");
    words[7] = &file_text;
    let all = answers(&beside(&words).await);
    let [answer] = &all[..] else { panic!("the relay has {} answers", all.len()) };
    assert_eq!((answer.from.clone(), offered(answer).yiaddr()), (ours(67), Ipv4Addr::new(10, 89, 0, 50)));
    // TFTP: a read request, whose answer comes from the one port that is open.
    write(b"\0\x01ipxe.efi\0octet\0blksize\x001024\0");
    let all = sent(perl("eth0", "2069", US, "69")).await;
    assert!(!all.is_empty() && all.iter().all(|answer| answer.from == ours(69)), "{} answers", all.len());
    assert_eq!(all[0].bytes[..2], [0, 6], "an acknowledgement of options");
}

/// None is lost for good: who was not answered asks again, as firmware does. Nothing is kept for a packet.
pub async fn a_thousand_at_once(dir: &tempfile::TempDir, service: &Running, log: &std::path::Path) {
    let file = path(dir, "packets");
    let words = ["perl", "-e", SEND, "eth0", "68", "255.255.255.255", "67", &file.display().to_string()];
    let send = async |packets: &[Vec<u8>]| {
        let lines: Vec<String> = packets.iter().map(|packet| hex(packet)).collect();
        std::fs::write(&file, lines.join("\n")).expect("written");
        answers(&client(&words).await)
    };
    let before = resident(service);
    let mut waits: BTreeSet<u32> = (1..=AT_ONCE).collect();
    for _ in 0..20 {
        let packets: Vec<Vec<u8>> = waits.iter().map(|xid| discover(MAC, *xid, |_| ())).collect();
        for answer in send(&packets).await {
            waits.remove(&offered(&answer).xid());
        }
        if waits.is_empty() {
            break;
        }
    }
    assert!(waits.is_empty(), "{} of {AT_ONCE} were never answered", waits.len());
    // Of servers that nobody knows, and of one that is claimed: nobody is answered, and nothing is kept.
    let strangers = (0..AT_ONCE).map(|number| format!("02:00:00:00:{:02x}:{:02x}", number >> 8, number & 0xff));
    let strangers: Vec<Vec<u8>> = strangers.map(|mac| discover(&mac, 1, |_| ())).collect();
    assert!(send(&strangers).await.is_empty());
    assert!(send(&vec![discover(CLAIMED, 1, |_| ()); AT_ONCE as usize]).await.is_empty());
    let after = resident(service);
    assert!(after < before + MORE_KIB, "{before} KiB before, {after} KiB after");
    until("it serves as before", async || {
        let all = send(&[discover(MAC, 4711, |_| ())]).await;
        if all.len() == 1 { Ok(()) } else { Err(format!("{} answers", all.len())) }
    })
    .await;
    let said = std::fs::read_to_string(log).expect("a log");
    assert!(!said.contains("panicked"), "{said}");
}

/// KiB of its memory.
fn resident(service: &Running) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", service.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
