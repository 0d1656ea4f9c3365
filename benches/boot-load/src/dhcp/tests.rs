//! Clients and a server that is as a test wants it: what is lost, wrong or refused is counted or ends the run.

use super::*;
use dhcproto::v4::{DhcpOption, Message, Opcode, OptionCode};
use dhcproto::{Decodable, Decoder, Encodable, Encoder};
use std::thread;

const SERVER: Ipv4Addr = Ipv4Addr::LOCALHOST;
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 120, 1, 0);

/// What a server makes of an answer before it is sent; `false`: it is not sent.
type Change = fn(&mut Message, usize) -> bool;

/// Serves until nothing has come for a while; the count is of its packets.
fn serve(change: Change) -> u16 {
    let socket = UdpSocket::bind((SERVER, 0)).expect("a socket");
    let port = socket.local_addr().expect("an address").port();
    socket.set_read_timeout(Some(Duration::from_secs(15))).expect("set");
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        for count in 0.. {
            let Ok((length, from)) = socket.recv_from(&mut buffer) else { return };
            let mut message = Message::decode(&mut Decoder::new(&buffer[..length])).expect("a packet");
            let Some(DhcpOption::MessageType(kind)) = message.opts().get(OptionCode::MessageType) else { return };
            let kind = if *kind == MessageType::Discover { MessageType::Offer } else { MessageType::Ack };
            let number = u16::from_be_bytes([message.chaddr()[4], message.chaddr()[5]]);
            message.set_opcode(Opcode::BootReply).set_yiaddr(Client(number).address(FIRST)).set_fname_str("ipxe.efi");
            message.opts_mut().insert(DhcpOption::MessageType(kind));
            message.opts_mut().insert(DhcpOption::ServerIdentifier(SERVER));
            if change(&mut message, count) {
                let mut bytes = Vec::new();
                message.encode(&mut Encoder::new(&mut bytes)).expect("written");
                socket.send_to(&bytes, from).expect("sent");
            }
        }
    });
    port
}

fn ask(port: u16, clients: u16, at_once: usize) -> Result<Measured> {
    let relay = Ipv4Addr::new(127, 0, 0, 2);
    run(&Options { server: SERVER, relay, first: FIRST, clients, at_once, port, over: 0, seconds: None })
}

#[test]
fn every_client_has_its_address_and_is_counted_once() {
    let measured = ask(serve(|_, _| true), 100, 10).expect("measured");
    assert_eq!((measured.offer.len(), measured.whole.len(), measured.again), (100, 100, 0));
    assert!(measured.offer.iter().zip(&measured.whole).all(|(offer, whole)| *offer > 0.0 && whole > offer));
}

#[test]
fn a_lost_answer_is_asked_for_again_and_its_time_counts() {
    let measured = ask(serve(|_, count| count != 0), 3, 1).expect("measured");
    assert_eq!((measured.offer.len(), measured.again), (3, 1));
    assert!(measured.offer[0] >= 1000.0 && measured.offer[1] < 1000.0, "{:?}", measured.offer);
}

#[test]
fn another_address_a_refusal_and_silence_end_the_run() {
    let cases: [(Change, &str); 3] = [
        (
            |message, _| {
                message.set_yiaddr(Ipv4Addr::new(10, 120, 9, 9));
                true
            },
            "not 10.120.1.0",
        ),
        (
            |message, count| {
                let kind = if count == 0 { MessageType::Offer } else { MessageType::Nak };
                message.opts_mut().insert(DhcpOption::MessageType(kind));
                true
            },
            "was refused",
        ),
        (|_, _| false, "no answer to 10 times DISCOVER"),
    ];
    for (change, why) in cases {
        let error = ask(serve(change), 1, 1).expect_err("no figure").to_string();
        assert!(error.contains(why), "{error}");
    }
}
