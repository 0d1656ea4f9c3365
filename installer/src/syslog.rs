//! Lines of log for the server of syslog that the kernel's arguments name (RFC 5424, by UDP: RFC 5426). They go in the clear, and to whoever
//! has that address: without the token by which this start is known, and without what in an URL may be a password.

use proto::syslog::INSTALLER;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;
use tokio::net::lookup_host;
use tokio::time::timeout;

/// RFC 5426, 3.3.
pub const PORT: u16 = 514;
/// user.info (RFC 5424, 6.2.1).
const PRIORITY: u8 = 8 + 6;
/// Of one line, in characters: with what is before it a server that cuts at 1,024 keeps all of it.
const LONGEST: usize = 960;
/// For a name.
const LOOKED_UP: Duration = Duration::from_secs(10);
/// Digits of the tag in a token (`AGENT.EXPIRY.TAG`).
const TAG: usize = 64;

pub struct Syslog {
    socket: UdpSocket,
    server: SocketAddr,
    /// The secret part of the token, if there is one.
    tag: Option<String>,
}

impl Syslog {
    /// `worker`: by whose token this start is known.
    pub async fn to(host: &str, port: u16, worker: &str) -> io::Result<Self> {
        let found = timeout(LOOKED_UP, lookup_host((host, port))).await.map_err(io::Error::other)?;
        let server = found?.next().ok_or_else(|| io::Error::other("the name has no address"))?;
        let any: SocketAddr = match server {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        // Nobody waits for a log.
        socket.set_nonblocking(true)?;
        let is_tag = |tag: &&str| tag.len() >= TAG && tag.bytes().all(|byte| byte.is_ascii_hexdigit());
        let tag = worker.rsplit_once('.').map(|(_, tag)| tag).filter(is_tag).map(str::to_owned);
        Ok(Self { socket, server, tag })
    }

    /// One that is lost is lost: the console has it.
    pub fn send(&self, line: &str) {
        for line in line.lines().filter(|line| !line.trim().is_empty()) {
            let _ = self.socket.send_to(&datagram(line, self.tag.as_deref()), self.server);
        }
    }
}

/// No time, for the clock may be wrong, and no name: the server knows who sends it.
fn datagram(line: &str, tag: Option<&str>) -> Vec<u8> {
    let line = match tag {
        Some(tag) => line.replace(tag, "(token)"),
        None => line.to_owned(),
    };
    let words: Vec<String> = line.split(' ').map(plain).collect();
    let text: String = words.join(" ").chars().take(LONGEST).collect();
    format!("<{PRIORITY}>1 - - {INSTALLER} - - - {text}").into_bytes()
}

/// An URL without user, password and query, whatever stands around it; any other word as it is.
fn plain(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_no_query_and_no_token_leaves() {
        let tag = "0123456789abcdef".repeat(4);
        let sent = |line: &str| String::from_utf8(datagram(line, Some(&tag))).expect("text");
        for (line, text) in [
            ("write: image2disk", "write: image2disk"),
            (
                "fetching 'https://u:p@ss@x.example/a/b?sig=s#f' by http://u:p@proxy:3128",
                "fetching 'https://x.example/a/b by http://proxy:3128",
            ),
            (
                &format!("worker 52:54:00:00:00:01.69a0b1c2.{tag} is another's"),
                "worker 52:54:00:00:00:01.69a0b1c2.(token) is another's",
            ),
            ("what? a question", "what? a question"),
        ] {
            assert_eq!(sent(line), format!("<14>1 - - metalplane-installer - - - {text}"));
        }
        assert!(sent(&"ä".repeat(2000)).chars().count() < 1024);
    }

    #[tokio::test]
    async fn a_server_is_known_by_address_or_name_and_one_that_is_not_there_holds_up_nobody() {
        let log = Syslog::to("127.0.0.1", 9, "a").await.expect("an address");
        assert_eq!((log.server, log.tag.as_deref()), (([127, 0, 0, 1], 9).into(), None));
        for _ in 0..3 {
            log.send("nobody hears it");
        }
        let log = Syslog::to("localhost", PORT, &format!("a.1.{}", "0".repeat(TAG))).await.expect("a name");
        assert!(log.server.ip().is_loopback() && log.tag.is_some());
        assert!(Syslog::to("a..b", PORT, "a").await.is_err());
    }
}
