//! A file and a server that is as a test wants it.

use super::*;
use std::thread;

const BYTES: usize = 5000;

/// What a server does otherwise.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// It takes no windows.
    NoWindow,
    /// It loses the third packet of data, once.
    Loses,
    OtherData,
}

fn content(flaw: Flaw) -> Vec<u8> {
    (0..BYTES).map(|at| if flaw == Flaw::OtherData { 0 } else { (at % 251) as u8 }).collect()
}

/// One transfer with blocks of 1,000 bytes and windows of 3, from the port that was asked.
fn serve(flaw: Flaw) -> u16 {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let port = socket.local_addr().expect("an address").port();
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
    thread::spawn(move || {
        let (data, mut buffer, mut lost) = (content(flaw), [0; 2048], flaw != Flaw::Loses);
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let window: &[u8] = if flaw == Flaw::NoWindow { b"" } else { b"windowsize\x003\0" };
            let packets = match &buffer[..length] {
                [0, 1, ..] => vec![[&[0, 6][..], b"blksize\x001000\0", window].concat()],
                [0, 4, high, low] => {
                    let first = usize::from(u16::from_be_bytes([*high, *low]));
                    let blocks = (first + 1..=first + 3).filter(|block| (block - 1) * 1000 <= BYTES);
                    let packet = |block: usize| {
                        let part = &data[(block - 1) * 1000..BYTES.min(block * 1000)];
                        [&[0, 3][..], &u16::try_from(block).expect("small").to_be_bytes(), part].concat()
                    };
                    blocks.filter(|block| *block != 3 || std::mem::replace(&mut lost, true)).map(packet).collect()
                }
                _ => return,
            };
            for packet in packets {
                socket.send_to(&packet, from).expect("sent");
            }
        }
    });
    port
}

fn fetch(flaw: Flaw) -> Result<Measured> {
    let sha256 = Sha256::digest(content(Flaw::None)).iter().map(|byte| format!("{byte:02x}")).collect();
    let (server, file) = (Ipv4Addr::LOCALHOST, "a".to_owned());
    run(&Options { server, file, block: 1000, window: 3, port: serve(flaw), sha256 })
}

#[test]
fn a_file_arrives_whole_and_what_was_lost_is_counted() {
    for (flaw, is_lost) in [(Flaw::None, false), (Flaw::Loses, true)] {
        let measured = fetch(flaw).expect("measured");
        assert_eq!((measured.bytes, measured.again > 0), (BYTES, is_lost));
    }
}

#[test]
fn other_bytes_and_another_window_are_no_figure() {
    for (flaw, why) in [(Flaw::OtherData, "their SHA-256 is"), (Flaw::NoWindow, "does not take windowsize 3")] {
        let error = fetch(flaw).expect_err("no figure").to_string();
        assert!(error.contains(why), "{error}");
    }
}
