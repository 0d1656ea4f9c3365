//! Lines of log that servers send: RFC 5424 and RFC 3164 by UDP (RFC 5426), a datagram in, a line out. A server may say whatever it
//! likes: a line is cut, has no control characters, and loses what looks like an agent's token, which is in every installer's
//! `/proc/cmdline`. Of one server so many lines are kept in a while; the next that is kept says how many were not.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// RFC 5424, 6.2.1.
const SEVERITIES: [&str; 8] = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];
const HIGHEST: u16 = 191;
/// RFC 3164, 4.3.3: what has no priority is user.notice.
const DEFAULT: u16 = 13;
const LONGEST: usize = 1024;
/// A kernel's own lines when it starts are about a thousand.
const AT_ONCE: u32 = 2000;
const PER_SECOND: u32 = 20;
/// Digits of a token's tag: HMAC-SHA256.
const TAG: usize = 64;

#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    pub severity: &'static str,
    pub text: String,
}

pub fn line(datagram: &[u8]) -> Line {
    let text = String::from_utf8_lossy(datagram);
    let (priority, rest) = priority(&text).unwrap_or((DEFAULT, &text));
    let printable: String = rest.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let text = without_tokens(printable.trim()).chars().take(LONGEST).collect();
    Line { severity: SEVERITIES[usize::from(priority % 8)], text }
}

fn priority(text: &str) -> Option<(u16, &str)> {
    let (digits, rest) = text.strip_prefix('<')?.split_once('>')?;
    let is_number = (1..=3).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse().ok().filter(|number| is_number && *number <= HIGHEST)?;
    Some((number, rest))
}

/// `AGENT.EXPIRY.TAG` becomes `AGENT.(token)`, wherever it stands.
fn without_tokens(text: &str) -> String {
    let is_hex = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parts: Vec<&str> = text.split('.').collect();
    let mut kept = String::new();
    let mut at = 0;
    while at < parts.len() {
        if at > 0 {
            kept.push('.');
        }
        let tag = parts
            .get(at + 1)
            .map(|next| next.split_at(next.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(next.len())));
        match tag {
            Some((tag, rest)) if at > 0 && is_hex(parts[at]) && tag.len() >= TAG => {
                kept.push_str("(token)");
                kept.push_str(rest);
                at += 2;
            }
            _ => {
                kept.push_str(parts[at]);
                at += 1;
            }
        }
    }
    kept
}

/// How much each server may still say.
#[derive(Default)]
pub struct Budgets(HashMap<IpAddr, Budget>);

struct Budget {
    left: u32,
    filled: Instant,
    dropped: u64,
}

impl Budgets {
    /// Whether a line of this server is kept, and how many of it were not since the last one that was. `from` is an address of the
    /// inventory, so there are no more budgets than servers.
    pub fn take(&mut self, from: IpAddr, now: Instant) -> Option<u64> {
        let budget = self.0.entry(from).or_insert(Budget { left: AT_ONCE, filled: now, dropped: 0 });
        let seconds = now.saturating_duration_since(budget.filled).as_secs();
        if seconds > 0 {
            let more = u32::try_from(seconds).unwrap_or(u32::MAX).saturating_mul(PER_SECOND);
            budget.left = budget.left.saturating_add(more).min(AT_ONCE);
            budget.filled += Duration::from_secs(seconds);
        }
        match budget.left.checked_sub(1) {
            Some(left) => {
                budget.left = left;
                Some(std::mem::take(&mut budget.dropped))
            }
            None => {
                budget.dropped += 1;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn said(text: &str) -> (&'static str, String) {
        let Line { severity, text } = line(text.as_bytes());
        (severity, text)
    }

    #[test]
    fn both_generations_are_read() {
        assert_eq!(said("<34>Oct 11 22:14:15 s1 su: failed"), ("crit", "Oct 11 22:14:15 s1 su: failed".to_owned()));
        assert_eq!(
            said("<165>1 2026-11-25T20:00:00Z s1 app - - - up\n"),
            ("notice", "1 2026-11-25T20:00:00Z s1 app - - - up".to_owned())
        );
        for (text, severity) in [
            ("no priority", "notice"),
            ("<192>x", "notice"),
            ("<1234>x", "notice"),
            ("<+1>x", "notice"),
            ("<0>x", "emerg"),
        ] {
            assert_eq!(said(text).0, severity, "{text}");
        }
        assert_eq!(said("<6>a\u{1b}[2Jb\nlevel=error c").1, "a [2Jb level=error c", "one line stays one line");
    }

    /// On the wire, by its own code.
    #[tokio::test]
    async fn what_the_installer_sends_is_read_and_known_as_its_own() {
        let server = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        let port = server.local_addr().expect("an address").port();
        let tag = "0123456789abcdef".repeat(4);
        let worker = format!("52:54:00:00:00:01.69a0b1c2.{tag}");
        let log = installer::syslog::Syslog::to("127.0.0.1", port, &worker).await.expect("an address");
        log.send(&format!("write: https://u:p@x/y.raw?sig=s ended early\nasked as {worker}"));
        for expected in ["write: https://x/y.raw ended early", "asked as 52:54:00:00:00:01.69a0b1c2.(token)"] {
            let mut buffer = [0; 2048];
            let received = tokio::time::timeout(Duration::from_secs(10), server.recv(&mut buffer)).await;
            let length = received.expect("a datagram comes").expect("received");
            let Line { severity, text } = line(&buffer[..length]);
            assert_eq!((severity, text), ("info", format!("1 - - metalplane-installer - - - {expected}")));
            assert!(proto::syslog::is_installers(&buffer[..length]));
        }
        for other in
            ["<6>1 - - sshd - - - metalplane-installer", "metalplane-installer", "a b c metalplane-installer d"]
        {
            assert!(!proto::syslog::is_installers(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn a_token_is_not_kept() {
        let tag = "0123456789abcdef".repeat(4);
        let kernel = format!("<6>Command line: worker_id=52:54:00:00:00:01.69a0b1c2.{tag} quiet 10.88.0.1 a.b.{tag}");
        let (_, kept) = said(&kernel);
        assert_eq!(kept, "Command line: worker_id=52:54:00:00:00:01.(token) quiet 10.88.0.1 a.(token)");
    }

    proptest! {
        #[test]
        fn any_datagram_is_one_short_line(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
            let line = line(&bytes);
            prop_assert!(line.text.chars().count() <= LONGEST && !line.text.contains(char::is_control));
        }

        /// Wherever it stands.
        #[test]
        fn no_tag_survives(before in "[ -~]{0,40}", after in "[ -~]{0,40}", expiry in "[0-9a-f]{1,16}", tag in "[0-9a-f]{64}") {
            let kept = line(format!("{before}.{expiry}.{tag}{after}").as_bytes()).text;
            prop_assert!(!kept.contains(&tag), "{kept}");
        }
    }

    #[test]
    fn a_server_that_shouts_is_cut_off_for_a_while() {
        let (mut budgets, start) = (Budgets::default(), Instant::now());
        let [one, other] = [1, 2].map(|last| IpAddr::from([10, 88, 0, last]));
        let kept = (0..3000).filter(|_| budgets.take(one, start).is_some()).count();
        assert_eq!(kept, 2000);
        assert_eq!(budgets.take(other, start), Some(0), "others are heard");
        let later = start + Duration::from_secs(2);
        assert_eq!(budgets.take(one, later), Some(1000), "and how many were not");
        assert_eq!((0..100).filter(|_| budgets.take(one, later).is_some()).count(), 39);
    }
}
