//! One page for Prometheus, by HTTP/1.1.
//!
//! A thread of its own, which answers one caller after the other: SPDK's cores never wait for it. A caller that is slow is
//! given up.

use anyhow::{Context, Result};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// For a caller to ask and to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);
const LONGEST_REQUEST: usize = 8 << 10;
/// What `prometheus-client` writes.
const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves `page` at `/metrics` for as long as the process lives; tells where.
pub fn serve(address: SocketAddr, page: impl Fn() -> Result<String> + Send + 'static) -> Result<SocketAddr> {
    let listener = TcpListener::bind(address).with_context(|| format!("--metrics-listen {address}"))?;
    let address = listener.local_addr()?;
    let thread = std::thread::Builder::new().name("metrics".to_owned());
    thread.spawn(move || {
        // One that has gone again, and one that breaks off: their own affair.
        for stream in listener.incoming().flatten() {
            let _ = answer(stream, &page);
        }
    })?;
    Ok(address)
}

fn answer(mut stream: TcpStream, page: &impl Fn() -> Result<String>) -> std::io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let line = first_line(&mut stream)?;
    let (status, kind, body) = match line.split(' ').collect::<Vec<_>>()[..] {
        ["GET", "/metrics", _] => match page() {
            Ok(text) => ("200 OK", KIND, text),
            Err(error) => ("503 Service Unavailable", "text/plain", format!("{error:#}\n")),
        },
        ["GET", ..] => ("404 Not Found", "text/plain", "there is /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "text/plain", "GET is served\n".to_owned()),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// Reads to the end of the request: an answer to half of it might be lost.
fn first_line(stream: &mut TcpStream) -> std::io::Result<String> {
    let until = Instant::now() + PATIENCE;
    let mut said = Vec::new();
    let mut piece = [0; 1024];
    while !said.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || said.len() > LONGEST_REQUEST {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            length => said.extend_from_slice(&piece[..length]),
        }
    }
    let text = String::from_utf8_lossy(&said).into_owned();
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut said = String::new();
        stream.read_to_string(&mut said).expect("answered");
        said
    }

    fn served(page: fn() -> Result<String>) -> SocketAddr {
        serve(([127, 0, 0, 1], 0).into(), page).expect("a port is free")
    }

    #[test]
    fn the_page_is_served_and_nothing_else() {
        let address = served(|| Ok("up 1\n".to_owned()));
        let page = ask(address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("\r\n\r\nup 1\n"), "{page}");
        assert!(ask(address, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(ask(address, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    }

    #[test]
    fn a_page_that_cannot_be_made_says_why() {
        let address = served(|| anyhow::bail!("SPDK does not answer"));
        let page = ask(address, "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(page.starts_with("HTTP/1.1 503 ") && page.ends_with("SPDK does not answer\n"), "{page}");
    }

    #[test]
    fn who_says_nothing_does_not_keep_others_waiting_for_ever() {
        let address = served(|| Ok("up 1\n".to_owned()));
        let _silent = TcpStream::connect(address).expect("it listens");
        assert!(ask(address, "GET /metrics HTTP/1.1\r\n\r\n").ends_with("up 1\n"));
    }
}
