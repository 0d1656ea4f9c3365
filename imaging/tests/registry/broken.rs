//! Connections that break off, and servers that lie, between a registry and who pulls.

use super::DISK;
use super::bench::{Bench, image, pull};
use imaging::{Authorities, Kind};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// Each answer with a blob ends after so many bytes, but the last one.
    Cut(usize),
    /// One byte of a blob is another one.
    Changed,
    /// And every question for the rest is answered with all of it.
    CutWithoutRange(usize),
}

/// Answers as the registry does, but for blobs. What was asked of it, by line and `Range`.
async fn proxy(registry: SocketAddr, fault: Fault) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let address = listener.local_addr().expect("an address");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let kept = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if client.read_exact(&mut byte).await.is_err() {
                    break;
                }
                request.push(byte[0]);
            }
            let mut text = String::from_utf8(request).expect("a request");
            let range = text.lines().find(|line| line.starts_with("range:")).unwrap_or_default().to_owned();
            kept.lock().expect("no panic").push(format!("{} {range}", text.lines().next().unwrap_or_default()));
            if matches!(fault, Fault::CutWithoutRange(_)) && !range.is_empty() {
                text = text.replace(&format!("{range}\r\n"), "");
            }
            let text = text.replacen("\r\n", "\r\nConnection: close\r\n", 1);
            let mut server = TcpStream::connect(registry).await.expect("the registry answers");
            server.write_all(text.as_bytes()).await.expect("asked");
            let mut answer = Vec::new();
            server.read_to_end(&mut answer).await.expect("answered");
            if text.contains("/blobs/") {
                match fault {
                    Fault::Cut(length) | Fault::CutWithoutRange(length) => answer.truncate(length),
                    Fault::Changed => answer[2_000_000] ^= 1,
                }
            }
            // Who has read enough goes away.
            let _ = client.write_all(&answer).await;
        }
    });
    (address, asked)
}

#[tokio::test]
async fn a_pull_that_is_broken_off_goes_on_where_it_was() {
    let Some(bench) = Bench::open("a_pull_that_is_broken_off_goes_on_where_it_was").await else { return };
    bench.push("disks/debian:1", &[(DISK, Some("debian.raw"), &image())]).await;
    let (address, asked) = proxy(bench.address, Fault::Cut(1_500_000)).await;
    let pulled = pull(&format!("http://{address}/disks/debian:1"), None, Authorities::Public).await;
    let pulled = pulled.unwrap_or_else(|error| panic!("{error}"));
    assert!(pulled.disk[..image().len()] == image(), "all of it is the image");
    let asked = asked.lock().expect("no panic").clone();
    let parts: Vec<_> = asked.iter().filter(|line| line.contains("range: bytes=1")).collect();
    assert_eq!((asked.len(), parts.len()), (4, 1), "the manifest, all of the blob, two times the rest: {asked:?}");

    let (address, asked) = proxy(bench.address, Fault::CutWithoutRange(1_500_000)).await;
    let error = pull(&format!("http://{address}/disks/debian:1"), None, Authorities::Public).await;
    let error = error.map(|pulled| pulled.title).expect_err("the rest cannot be had");
    assert!(error.kind == Kind::Unreachable && error.message.contains("it ended after"), "{error}");
    assert_eq!(asked.lock().expect("no panic").len(), 3, "it was asked for once");
}

#[tokio::test]
async fn a_layer_that_is_another_one_than_its_digest_is_a_failure() {
    let Some(bench) = Bench::open("a_layer_that_is_another_one_than_its_digest_is_a_failure").await else { return };
    bench.push("disks/debian:1", &[(DISK, Some("debian.raw"), &image())]).await;
    let (address, _) = proxy(bench.address, Fault::Changed).await;
    let error = pull(&format!("http://{address}/disks/debian:1"), None, Authorities::Public).await;
    let error = error.map(|pulled| pulled.title).expect_err("another image");
    assert!(error.kind == Kind::Invalid && error.message.contains("the layer's digest says sha256:"), "{error}");

    let wrong = super::bench::sha256(b"another manifest");
    let error = bench.pull(&format!("disks/debian@{wrong}"), None, Authorities::Public).await;
    assert_eq!(error.map(|pulled| pulled.title).expect_err("none").kind, Kind::NotFound);
}
