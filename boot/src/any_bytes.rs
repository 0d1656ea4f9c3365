//! Bytes of any kind through each engine, and what has to be true of its answers: none panics, none is longer than its protocol has it,
//! none goes to anybody but who asked (or whom the packet names), and nothing is kept for a packet. The tests in `boot/tests/bytes` and
//! the fuzz targets in `fuzz` give them.
//!
//! | target | its bytes |
//! |---|---|
//! | `dhcp` | one byte of settings (bit 0: port 4011; bits 1 and 2: the mode; bit 3: a pool), then a packet |
//! | `tftp` | datagrams: each one byte of length with the client in its two highest bits, then so many bytes |
//! | `http` | lines: a path, Range, If-Range |
//! | `syslog` | a datagram |
//! | `template` | the text of a Template |

use crate::dhcp::{self, Arrival, Leases, Mode, Modes, PROXY_PORT, Pool, SERVER_PORT};
use crate::files::{Files, Program};
use crate::http::{self, Boots, Reply};
use crate::identity::Identity;
use crate::origin::{self, Origins};
use crate::replicas::Replicas;
use crate::{reports, script, syslog, tftp};
use ::http::header::{IF_RANGE, RANGE};
use ::http::{HeaderMap, HeaderValue};
use api::tinkerbell::Hardware;
use api::tinkerbell::workflow::Workflow;
use jiff::Timestamp;
use planner::netboot::{Directory, Programs};
use planner::workflow;
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const US: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 1);
/// An Ethernet frame's, without the headers of IP and UDP; a client may say that it takes more.
const LONGEST_DHCP: usize = 65_535 - 28;
/// Of a window.
const MOST_TFTP: usize = 16;
const LONGEST_TFTP: usize = 4 + 1468;
/// Of a client, and there are four.
const MOST_TRANSFERS: usize = 4 * 4;
const LONGEST_SCRIPT: usize = 64 << 10;
const LONGEST_LINE: usize = 1024;

/// Gives bytes to an engine.
pub type Target = fn(&Engines, &[u8]);

/// By their names.
pub const TARGETS: [(&str, Target); 5] = [
    ("dhcp", Engines::dhcp),
    ("tftp", Engines::tftp),
    ("http", Engines::http),
    ("syslog", Engines::syslog),
    ("template", Engines::template),
];

/// A site of one server.
pub struct Engines {
    directory: Directory,
    boots: Boots,
    now: Timestamp,
    began: Instant,
}

struct OneFile(Program);

impl tftp::Files for OneFile {
    fn open(&self, path: &str) -> Result<Program, String> {
        if path == "a" { Ok(self.0.clone()) } else { Err(format!("there is no file '{path}'")) }
    }
}

impl Engines {
    /// `folder`: what HTTP serves files of.
    pub fn new(folder: &Path) -> anyhow::Result<Self> {
        let hardware: Hardware = serde_json::from_value(json!({"metadata": {"name": "s1"}, "spec": {"interfaces": [{
            "dhcp": {"mac": "52:54:00:00:00:01", "hostname": "s1", "domain_name": "example.org", "name_servers": [US],
                "ip": {"address": "10.88.0.50", "netmask": "255.255.255.0", "gateway": US}},
            "netboot": {"allowPXE": true},
        }]}}))?;
        let script = script::Config {
            replicas: Replicas::alone(US),
            http_port: 7080,
            grpc_port: 42113,
            syslog: None,
            kernel_arguments: Vec::new(),
            identity: Identity::Open,
        };
        // Nobody reads what was seen: the channel is full soon, as when a site is too busy.
        let (eyes, _) = reports::channel(Arc::default());
        let origins = Arc::new(Origins::new(origin::Config::default()));
        let files = Arc::new(Files::read(&[], Some(folder))?);
        Ok(Self {
            directory: Directory::new(vec![Arc::new(hardware)]),
            boots: Boots { script, files, origins, strangers: true, eyes },
            now: Timestamp::UNIX_EPOCH,
            began: Instant::now(),
        })
    }

    fn dhcp(&self, bytes: &[u8]) {
        let Some((settings, packet)) = bytes.split_first() else { return };
        let port = if settings & 1 == 0 { SERVER_PORT } else { PROXY_PORT };
        let mode = [Mode::Reservation, Mode::Proxy, Mode::AutoProxy, Mode::Off][usize::from(settings >> 1 & 3)];
        let pool = "10.88.0.200-10.88.0.203/24@10.88.0.1".parse::<Pool>();
        let pools = if settings & 8 == 0 { Vec::new() } else { pool.into_iter().collect() };
        let config = dhcp::Config {
            replicas: Replicas::alone(US),
            http_port: 7080,
            syslog: Some(US),
            programs: Programs::default(),
            modes: Modes { interface: mode, subnets: Vec::new() },
            pools,
        };
        let from = SocketAddrV4::new(Ipv4Addr::new(10, 88, 0, 77), 68);
        let mut server = dhcp::Server { config, leases: Leases::default() };
        for _ in 0..3 {
            let (answer, _) = server.answer(&self.directory, Arrival { bytes: packet, port, from }, self.now);
            let Some(answer) = answer else { continue };
            assert!(answer.bytes.len() <= LONGEST_DHCP, "{} bytes", answer.bytes.len());
            assert_eq!(answer.bytes[4..8], packet[4..8], "the transaction of who asked");
            assert_eq!(answer.bytes[28..34], packet[28..34], "the hardware address of who asked");
            let named = |at: usize, port| packet[at..at + 4] == answer.to.ip().octets() && answer.to.port() == port;
            let is_fine = answer.to == SocketAddrV4::new(Ipv4Addr::BROADCAST, 68)
                || named(24, 67)
                || named(12, 68)
                || (port == PROXY_PORT && answer.to == from);
            assert!(is_fine, "an answer to {}", answer.to);
        }
        assert!(server.leases.kept() <= 4, "{} addresses of four", server.leases.kept());
    }

    fn tftp(&self, bytes: &[u8]) {
        let files = OneFile(Program::of(vec![7; 5000]));
        let (mut server, mut rest, mut now) = (tftp::Server::default(), bytes, self.began);
        let client = |n: u8| SocketAddr::from(([10, 88, 0, 50 + n / 2], 2000 + u16::from(n)));
        while let Some((head, after)) = rest.split_first() {
            let (datagram, after) = after.split_at(usize::from(head & 0x3f).min(after.len()));
            let from = client(head >> 6);
            let out = server.datagram(datagram, from, &files, now);
            assert!(out.len() <= MOST_TFTP && out.iter().all(|out| out.to == from), "answers to another");
            now += Duration::from_millis(400);
            let again = server.tick(now);
            assert!(again.len() <= 4 * MOST_TFTP && again.iter().all(|out| (0..4).any(|n| out.to == client(n))));
            for packet in out.iter().chain(&again) {
                let is_error = packet.bytes.starts_with(&[0, 5]);
                assert!(packet.bytes.len() <= LONGEST_TFTP || is_error, "{} bytes", packet.bytes.len());
            }
            assert!(server.under_way() <= MOST_TRANSFERS, "{} transfers", server.under_way());
            rest = after;
        }
        // Clients that say no more are forgotten, whatever timeout they asked for.
        for _ in 0..16 {
            now += Duration::from_secs(256);
            server.tick(now);
        }
        assert_eq!(server.under_way(), 0);
    }

    fn http(&self, bytes: &[u8]) {
        let mut lines = bytes.splitn(3, |byte| *byte == b'\n');
        let path = String::from_utf8_lossy(lines.next().unwrap_or_default());
        match http::route(&self.directory, &self.boots, &path) {
            Reply::Text(text) => assert!(text.len() <= LONGEST_SCRIPT, "{} bytes", text.len()),
            Reply::File(file) | Reply::Image { path: file, .. } => {
                assert!(self.boots.files.is_of_folder(&file), "{} is outside of the folder", file.display());
            }
            Reply::Told(_) | Reply::Program(_) | Reply::Remote { .. } | Reply::Refused(..) => {}
        }
        let mut headers = HeaderMap::new();
        for (name, value) in [RANGE, IF_RANGE].into_iter().zip(lines) {
            HeaderValue::from_bytes(value).into_iter().for_each(|value| {
                headers.insert(name.clone(), value);
            });
        }
        for length in [0, 1, 1000, u64::MAX] {
            let (_, first, wanted, _) = http::served(&headers, "\"e\"", length);
            assert!(first.checked_add(wanted).is_some_and(|end| end <= length), "{first}+{wanted} of {length}");
        }
    }

    fn syslog(&self, bytes: &[u8]) {
        let line = syslog::line(bytes);
        assert!(line.text.chars().count() <= LONGEST_LINE && !line.text.contains(char::is_control), "{:?}", line.text);
    }

    fn template(&self, bytes: &[u8]) {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        let data = json!({"device_1": "52:54:00:00:00:01", "list": ["a", 1, null, {"b": 2.5}], "map": {"a": "x"}});
        if let Ok(rendered) = workflow::plain(text, &data) {
            assert!(rendered.len() <= workflow::MAX_RENDERED, "{} bytes", rendered.len());
        }
        let mut workflow = Workflow::default();
        workflow.spec.hardware_map.insert("device_1".to_owned(), "52:54:00:00:00:01".to_owned());
        if let Ok(rendered) = workflow::render(text, &workflow, None) {
            assert!(!rendered.tasks.is_empty(), "a text without tasks");
        }
    }
}
