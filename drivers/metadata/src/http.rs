//! One request, HTTP/1.1 (RFC 9112), to one answer; the connection ends with it.

use crate::tokens::Tokens;
use planner::metadata;
use ports::metadata::MetadataGuest;
use std::time::Duration;
use tokio::time::Instant;

/// The longest head of a request.
pub(crate) const HEAD_LIMIT: usize = 8 * 1024;
const HEADERS: usize = 64;

const TOKEN: &str = "x-aws-ec2-metadata-token";
const TOKEN_SECONDS: &str = "x-aws-ec2-metadata-token-ttl-seconds";
const TOKEN_PATH: &str = "/latest/api/token";
/// What EC2 allows.
const LONGEST: u64 = 21_600;

/// `None`: the head is not complete yet.
pub(crate) fn respond(head: &[u8], guest: &MetadataGuest, tokens: &mut Tokens, now: Instant) -> Option<Vec<u8>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if head.len() < HEAD_LIMIT => return None,
        Ok(httparse::Status::Partial) => return Some(plain("431 Request Header Fields Too Large", "")),
        Err(_) => return Some(plain("400 Bad Request", "")),
    }
    let header = |name: &str| {
        let found = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        found.and_then(|header| std::str::from_utf8(header.value).ok())
    };
    let target = request.path.unwrap_or_default();
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let mac = guest.nic.mac.as_str();
    let proxied = metadata::is_ec2(path) && header("x-forwarded-for").is_some();
    Some(match request.method {
        _ if proxied => plain("403 Forbidden", "a request that a proxy has passed on is not answered\n"),
        Some("PUT") if path == TOKEN_PATH => {
            match header(TOKEN_SECONDS)
                .and_then(|text| text.parse().ok())
                .filter(|seconds| (1..=LONGEST).contains(seconds))
            {
                None => plain("400 Bad Request", &format!("{TOKEN_SECONDS} must be 1 to {LONGEST}\n")),
                Some(seconds) => {
                    let token = tokens.make(mac, Duration::from_secs(seconds), now);
                    whole("200 OK", &[(TOKEN_SECONDS, &seconds.to_string())], token.as_bytes(), true)
                }
            }
        }
        Some(method @ ("GET" | "HEAD")) => {
            let left = header(TOKEN).map(|token| tokens.left(mac, token, now));
            if metadata::is_ec2(path) && left == Some(None) {
                return Some(plain("401 Unauthorized", "the token is not one of this guest, or has ended\n"));
            }
            let seconds = left.flatten().map(|left| left.as_secs().to_string());
            let extra: Vec<(&str, &str)> = seconds.iter().map(|seconds| (TOKEN_SECONDS, seconds.as_str())).collect();
            match metadata::answer(&guest.instance, mac, path) {
                Some(content) => whole("200 OK", &extra, &content, method == "GET"),
                None => plain("404 Not Found", ""),
            }
        }
        _ => plain("405 Method Not Allowed", ""),
    })
}

fn plain(status: &str, text: &str) -> Vec<u8> {
    whole(status, &[], text.as_bytes(), true)
}

fn whole(status: &str, extra: &[(&str, &str)], content: &[u8], with_content: bool) -> Vec<u8> {
    let mut head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n",
        content.len()
    );
    for (name, value) in extra {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let mut all = head.into_bytes();
    if with_content {
        all.extend_from_slice(content);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use planner::metadata::{Instance, Interface};
    use std::sync::Arc;

    fn guest(number: u8) -> MetadataGuest {
        let nic = Interface { mac: format!("02:00:00:00:00:{number:02x}"), addresses: vec![] };
        let data = [("user-data".to_owned(), b"#!/bin/sh\n".to_vec())].into();
        let instance = Instance {
            id: format!("uid-{number}"),
            hostname: "a".into(),
            interfaces: vec![nic.clone()],
            data,
            further: [].into(),
        };
        MetadataGuest { nic, instance: Arc::new(instance) }
    }

    fn ask(tokens: &mut Tokens, guest: &MetadataGuest, head: &str, now: Instant) -> (u16, String) {
        let answer = respond(head.as_bytes(), guest, tokens, now).expect("a whole request");
        let answer = String::from_utf8(answer).expect("text");
        let (head, content) = answer.split_once("\r\n\r\n").expect("a head");
        (head[9..12].parse().expect("a number"), content.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_one_guests_for_its_time() {
        let (one, two, mut tokens, now) = (guest(1), guest(2), Tokens::default(), Instant::now());
        let put = |seconds: &str| {
            format!("PUT /latest/api/token HTTP/1.1\r\nX-aws-ec2-metadata-token-ttl-seconds: {seconds}\r\n\r\n")
        };
        let (status, token) = ask(&mut tokens, &one, &put("60"), now);
        assert_eq!(status, 200);
        let get = format!("GET /latest/meta-data/instance-id HTTP/1.1\r\nX-aws-ec2-metadata-token: {token}\r\n\r\n");
        assert_eq!(ask(&mut tokens, &one, &get, now), (200, "uid-1".to_owned()));
        assert_eq!(ask(&mut tokens, &two, &get, now).0, 401, "another's");
        assert_eq!(ask(&mut tokens, &one, &get, now + Duration::from_secs(60)).0, 401, "ended");
        for wrong in ["0", "21601", "x", ""] {
            assert_eq!(ask(&mut tokens, &one, &put(wrong), now).0, 400, "{wrong}");
        }
        for _ in 0..2 * PER_GUEST_AND_MORE {
            ask(&mut tokens, &one, &put("60"), now);
        }
        assert_eq!(ask(&mut tokens, &one, &get, now).0, 401, "the oldest went for newer ones");
    }

    const PER_GUEST_AND_MORE: usize = 64;

    #[tokio::test(start_paused = true)]
    async fn what_is_no_request_is_refused() {
        let (one, mut tokens, now) = (guest(1), Tokens::default(), Instant::now());
        let mut status = |head: &str| ask(&mut tokens, &one, head, now).0;
        assert_eq!(status("GET /latest/user-data HTTP/1.0\r\n\r\n"), 200);
        assert_eq!(status("GET /nothing HTTP/1.1\r\n\r\n"), 404);
        assert_eq!(status("POST /latest/user-data HTTP/1.1\r\n\r\n"), 405);
        assert_eq!(status("GET /latest/user-data HTTP/1.1\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n"), 403);
        assert_eq!(status("\u{1}\u{2}\r\n\r\n"), 400);
        assert_eq!(status(&format!("GET /{} HTTP/1.1\r\n", "a".repeat(HEAD_LIMIT))), 431);
        assert_eq!(respond(b"GET /latest", &one, &mut tokens, now), None, "more is to come");
    }
}
