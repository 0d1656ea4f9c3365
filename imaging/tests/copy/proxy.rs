//! Images that come by a proxy, which hears what is asked of it.

use super::{Case, answer, image, measured};
use imaging::{Proxies, Source};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// `ann:secret`.
const LOGIN: &str = "proxy-authorization: Basic YW5uOnNlY3JldA==";

async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).expect("text")
}

/// Answers what is asked of it with `sent`, and makes tunnels. What it has heard.
async fn proxy(sent: Vec<u8>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let address = listener.local_addr().expect("an address");
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = heard.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (hears, sent) = (hears.clone(), sent.clone());
            tokio::spawn(async move {
                let asked = head(&mut stream).await;
                hears.lock().expect("no panic").push(asked.clone());
                let target = asked.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next());
                // Who has read enough goes away.
                let _ = match target {
                    Some(target) => tunnel(&mut stream, target).await,
                    None => stream.write_all(&sent).await,
                };
            });
        }
    });
    (format!("http://ann:secret@{address}"), heard)
}

async fn tunnel(stream: &mut TcpStream, target: &str) -> std::io::Result<()> {
    // Names of no server here stand for this host.
    let (_, port) = target.rsplit_once(':').expect("a port");
    let mut server = TcpStream::connect(format!("127.0.0.1:{port}")).await?;
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    copy_bidirectional(stream, &mut server).await.map(drop)
}

/// An https server called `images.example`: its port, and its certificate.
async fn https(sent: Vec<u8>) -> (u16, String) {
    let made = rcgen::generate_simple_self_signed(["images.example".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).expect("a key");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut tls) = acceptor.accept(stream).await else { continue };
            respond(&mut tls, &sent).await;
        }
    });
    (port, made.cert.pem())
}

async fn respond(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), sent: &[u8]) {
    let asked = head(stream).await;
    assert!(asked.starts_with("GET /disk") && !asked.to_lowercase().contains("proxy"), "{asked}");
    let _ = stream.write_all(sent).await;
    let _ = stream.shutdown().await;
}

async fn by(url: String, proxies: Proxies, authorities: imaging::Authorities) -> Result<Vec<u8>, String> {
    let case = Case::new(answer("", b"")).await;
    let case = Case { source: Source { url, proxies, authorities, ..case.source.clone() }, ..case };
    case.copy().await.map_err(|error| error.message)?;
    Ok(case.holds())
}

fn public() -> imaging::Authorities {
    imaging::Authorities::Public
}

#[tokio::test]
async fn what_is_http_is_asked_of_the_proxy() {
    let (url, heard) = proxy(measured(&image())).await;
    let proxies = || Proxies::new(&url, "", "").expect("a proxy");
    // Nobody else could say where that is.
    let holds = by("http://images.example:81/disk?sig=1".to_owned(), proxies(), public()).await.expect("copied");
    assert!(holds.starts_with(&image()));
    let heard = heard.lock().expect("no panic").clone();
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert!(heard[0].starts_with("GET http://images.example:81/disk?sig=1 HTTP/1.1\r\n"), "{heard:?}");
    assert!(heard[0].contains("host: images.example:81\r\n") && heard[0].contains(LOGIN), "{heard:?}");
}

#[tokio::test]
async fn what_is_https_goes_through_a_tunnel_and_is_vouched_for_as_ever() {
    let (port, pem) = https(measured(&image())).await;
    let (url, heard) = proxy(Vec::new()).await;
    let proxies = || Proxies::new("", &url, "").expect("a proxy");
    let bundle = Some(trust::Bundle::parse(pem.as_bytes()).expect("PEM"));
    let server = format!("https://images.example:{port}/disk");
    let holds = by(server.clone(), proxies(), bundle.into()).await.expect("copied");
    assert!(holds.starts_with(&image()));
    let heard_now = heard.lock().expect("no panic").clone();
    assert_eq!(heard_now.len(), 1, "{heard_now:?}");
    assert!(heard_now[0].starts_with(&format!("CONNECT images.example:{port} HTTP/1.1\r\n")), "{heard_now:?}");
    assert!(heard_now[0].to_lowercase().contains(&LOGIN.to_lowercase()), "{heard_now:?}");
    let other = rcgen::generate_simple_self_signed(["images.example".to_owned()]).expect("a certificate");
    let other = Some(trust::Bundle::parse(other.cert.pem().as_bytes()).expect("PEM"));
    let refused = by(server, proxies(), other.into()).await.expect_err("another authority's");
    assert!(refused.contains("CA_BUNDLE") && refused.contains("by proxy 127.0.0.1:"), "{refused}");
}

#[tokio::test]
async fn whom_no_proxy_is_for_is_asked_itself_and_a_proxy_that_is_away_is_named() {
    let direct = super::server(measured(&image())).await;
    let away = TcpListener::bind("127.0.0.1:0").await.expect("listen").local_addr().expect("an address");
    let proxies = |no: &str| Proxies::new(&format!("http://ann:secret@{away}"), "", no).expect("a proxy");
    let holds = by(direct.clone(), proxies("127.0.0.0/8"), public()).await.expect("copied");
    assert!(holds.starts_with(&image()));
    let refused = by(direct, proxies("10.0.0.0/8"), public()).await.expect_err("nobody listens");
    assert!(refused.contains(&format!("by proxy {away}: ")) && !refused.contains("secret"), "{refused}");
}
