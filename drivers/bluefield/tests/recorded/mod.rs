//! devlink without a kernel: answers as those of `DEVLINK_CMD_PORT_GET` and `DEVLINK_CMD_PORT_SET` are laid out in `linux/devlink.h`, written here
//! independently of the driver. Indexes, names and order are whatever a recording has.

use crate::dpu::ip;
use bluefield::devlink::{Conversation, Wire};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

fn add_representor(name: &str, host: &str) {
    ip(&["link", "add", name, "type", "veth", "peer", "name", host]);
    ip(&["link", "set", host, "up"]);
}

const FAMILY: u16 = 0x1b;
pub const PARENT: &str = "0000:03:00.0";

#[derive(Debug, Clone, Default)]
pub struct Port {
    index: u32,
    flavour: u16,
    device: String,
    controller: Option<u32>,
    pf: Option<u16>,
    vf: Option<u16>,
    external: Option<bool>,
    mac: Option<[u8; 6]>,
}

pub fn port(index: u32) -> Port {
    Port { index, ..Port::default() }
}

impl Port {
    pub fn physical(self, device: &str) -> Self {
        Self { flavour: 0, device: device.to_owned(), ..self }
    }

    pub fn pf(self, device: &str, controller: u32, number: u16, external: bool) -> Self {
        let mac = external.then_some([0; 6]);
        let (controller, pf, external) = (Some(controller), Some(number), Some(external));
        Self { flavour: 3, device: device.to_owned(), controller, pf, external, mac, ..self }
    }

    pub fn vf(self, device: &str, controller: u32, pf: u16, number: u16, external: bool) -> Self {
        Self { flavour: 4, vf: Some(number), ..self.pf(device, controller, pf, external) }
    }

    pub fn sf(self, device: &str, controller: u32, pf: u16, number: u16) -> Self {
        Self { flavour: 7, vf: Some(number), ..self.pf(device, controller, pf, false) }
    }
}

#[derive(Clone)]
pub struct Recorded(Arc<Mutex<Board>>);

struct Board {
    ports: Vec<Port>,
    /// errno(3) of every change; 0: none.
    refuses: i32,
}

impl Recorded {
    pub fn new(ports: Vec<Port>) -> Self {
        Self(Arc::new(Mutex::new(Board { ports, refuses: 0 })))
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add_devices(&self) {
        for port in self.board().ports.iter().filter(|port| !port.device.is_empty()) {
            add_representor(&port.device, &format!("{}-h", port.device));
        }
    }

    pub fn refuse(&self, errno: i32) {
        self.board().refuses = errno;
    }

    pub fn mac(&self, device: &str) -> Option<String> {
        let mac = self.board().ports.iter().find(|port| port.device == device)?.mac?;
        Some(mac.map(|octet| format!("{octet:02x}")).join(":"))
    }
}

impl Wire for Recorded {
    fn open(&self) -> io::Result<Box<dyn Conversation>> {
        Ok(Box::new(Socket { board: self.clone(), answers: Mutex::default() }))
    }
}

struct Socket {
    board: Recorded,
    answers: Mutex<VecDeque<Vec<u8>>>,
}

impl Conversation for Socket {
    fn send(&self, request: &[u8]) -> io::Result<()> {
        let (kind, command) = (u16_at(request, 4), request[16]);
        let attributes = attributes(&request[20..]);
        let answers: Vec<Vec<u8>> = match (kind, command) {
            (0x10, 3) => {
                assert_eq!(attributes, [(2, b"devlink\0".to_vec())]);
                vec![message(0x10, 1, &[attribute(2, b"devlink\0"), attribute(1, &FAMILY.to_ne_bytes())]), error(0)]
            }
            // One port in the first datagram, the others in the next: a reader has to go on to the end.
            (FAMILY, 5) => {
                assert_eq!(u16_at(request, 6) & 0x300, 0x300, "a dump is asked for");
                let all: Vec<_> = self.board.board().ports.iter().map(answer).collect();
                let (first, rest) = all.split_at(1);
                vec![first.concat(), [rest.concat(), done()].concat()]
            }
            (FAMILY, 6) => vec![error(self.set(&attributes))],
            _ => panic!("message {kind:#x}, command {command}"),
        };
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).extend(answers);
        Ok(())
    }

    fn receive(&self) -> io::Result<Vec<u8>> {
        let answer = self.answers.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        answer.ok_or_else(|| io::Error::from(io::ErrorKind::WouldBlock))
    }
}

impl Socket {
    /// errno(3).
    fn set(&self, given: &[(u16, Vec<u8>)]) -> i32 {
        let find = |kind: u16| given.iter().find(|(there, _)| *there == kind).map(|(_, value)| value.clone());
        assert_eq!((find(1), find(2)), (Some(b"pci\0".to_vec()), Some(format!("{PARENT}\0").into_bytes())));
        let index = find(3).and_then(|value| value.try_into().ok()).map(u32::from_ne_bytes).expect("an index");
        let function = attributes(&find(145).expect("DEVLINK_ATTR_PORT_FUNCTION"));
        let mac: [u8; 6] = function[0].1.clone().try_into().expect("six octets");
        assert_eq!(function[0].0, 1, "DEVLINK_PORT_FUNCTION_ATTR_HW_ADDR");
        let mut board = self.board.board();
        if board.refuses != 0 {
            return board.refuses;
        }
        match board.ports.iter_mut().find(|port| port.index == index) {
            Some(port) => {
                port.mac = Some(mac);
                0
            }
            None => 19,
        }
    }
}

fn answer(port: &Port) -> Vec<u8> {
    let mut all = vec![
        attribute(1, b"pci\0"),
        attribute(2, format!("{PARENT}\0").as_bytes()),
        attribute(3, &port.index.to_ne_bytes()),
        attribute(4, &2u16.to_ne_bytes()),
    ];
    if !port.device.is_empty() {
        all.push(attribute(6, &7u32.to_ne_bytes()));
        all.push(attribute(7, format!("{}\0", port.device).as_bytes()));
    }
    all.push(attribute(77, &port.flavour.to_ne_bytes()));
    let number = |kind: u16, value: u16| attribute(kind, &value.to_ne_bytes());
    all.extend(port.controller.map(|controller| attribute(150, &controller.to_ne_bytes())));
    all.extend(port.pf.map(|pf| number(127, pf)));
    all.extend(port.vf.map(|vf| number(128, vf)));
    all.extend(port.external.map(|external| attribute(149, &[u8::from(external)])));
    // Nested without the flag, as older kernels send it.
    all.extend(port.mac.map(|mac| attribute(145, &attribute(1, &mac))));
    message(FAMILY, 5, &all)
}

fn message(kind: u16, command: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
    let payload = attributes.concat();
    let mut bytes = Vec::new();
    bytes.extend((u32::try_from(20 + payload.len()).expect("short")).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(2u16.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([command, 1, 0, 0]);
    bytes.extend(payload);
    bytes
}

fn error(errno: i32) -> Vec<u8> {
    let mut bytes = vec![36, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend((-errno).to_ne_bytes());
    bytes.extend([0; 16]);
    bytes
}

fn done() -> Vec<u8> {
    vec![20, 0, 0, 0, 3, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(u16::try_from(4 + value.len()).expect("short").to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn attributes(mut rest: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut all = Vec::new();
    while rest.len() >= 4 {
        let length = usize::from(u16_at(rest, 0));
        all.push((u16_at(rest, 2) & 0x3fff, rest[4..length].to_vec()));
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    all
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}
