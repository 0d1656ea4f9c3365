//! A registry that takes tokens alone, and the server that gives them: to everybody for what is public, else to who has the password.

use super::DISK;
use super::bench::{Bench, image};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use imaging::{Authorities, Kind};
use rcgen::{CertificateParams, KeyPair, SigningKey};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const PUBLIC: &str = "repository:public/debian:pull";

/// As the distribution's registry verifies it: an ES256 signature by a certificate that it was told of.
struct Signer {
    key: KeyPair,
    certificate: rcgen::Certificate,
}

impl Signer {
    fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(["tokens".to_owned()]).expect("parameters");
        Self { certificate: params.self_signed(&key).expect("a certificate"), key }
    }

    fn token(&self, scope: &str) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let name = scope.split(':').nth(1).unwrap_or_default();
        let header = json!({"typ": "JWT", "alg": "ES256", "x5c": [STANDARD.encode(self.certificate.der())]});
        let claims = json!({
            "iss": "tokens", "aud": "registry", "sub": "", "iat": now, "nbf": now - 60, "exp": now + 60, "jti": "1",
            "access": [{"type": "repository", "name": name, "actions": ["pull"]}],
        });
        let signed =
            format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims.to_string()));
        let signature = fixed(&self.key.sign(signed.as_bytes()).expect("signed"));
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// Of the two numbers in DER (RFC 3279, 2.2.3) those of JWS: 32 bytes each (RFC 7518, 3.4).
fn fixed(der: &[u8]) -> Vec<u8> {
    let mut rest = &der[2..];
    let mut both = Vec::new();
    for _ in 0..2 {
        let (number, after) = rest[2..].split_at(usize::from(rest[1]));
        let number = &number[number.len().saturating_sub(32)..];
        both.extend(std::iter::repeat_n(0, 32 - number.len()).chain(number.iter().copied()));
        rest = after;
    }
    both
}

/// What it was asked: the line, and whether with a password.
async fn server(signer: Signer) -> (SocketAddr, Arc<Mutex<Vec<(String, bool)>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let address = listener.local_addr().expect("an address");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let kept = asked.clone();
    let right = format!("authorization: Basic {}\r\n", STANDARD.encode("ann:right"));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 8192];
            let length = stream.read(&mut request).await.unwrap_or_default();
            let text = String::from_utf8_lossy(&request[..length]).into_owned();
            let line = text.lines().next().unwrap_or_default().replace("%3A", ":").replace("%2F", "/");
            let scope = line.split("scope=").nth(1).and_then(|rest| rest.split([' ', '&']).next()).unwrap_or_default();
            let (status, body) = match text.contains("authorization: ") {
                true if !text.contains(&right) => ("401 Unauthorized", "{}".to_owned()),
                true => ("200 OK", json!({"access_token": signer.token(scope)}).to_string()),
                false if scope == PUBLIC => ("200 OK", json!({"token": signer.token(scope)}).to_string()),
                // As Docker's does it: a token that is good for nothing.
                false => ("200 OK", json!({"token": signer.token("repository:nothing:pull")}).to_string()),
            };
            kept.lock().expect("no panic").push((line, text.contains("authorization: ")));
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = stream.write_all((head + &body).as_bytes()).await;
        }
    });
    (address, asked)
}

#[tokio::test]
async fn a_registry_of_tokens_is_pulled_from_by_everybody_and_by_who_has_a_password() {
    let test = "a_registry_of_tokens_is_pulled_from_by_everybody_and_by_who_has_a_password";
    let Some(bench) = Bench::open(test).await else { return };
    for name in ["public/debian:1", "private/debian:1"] {
        bench.push(name, &[(DISK, Some("debian.raw"), &image())]).await;
    }
    let signer = Signer::new();
    let certificates = bench.folder.path().join("tokens.crt");
    std::fs::write(&certificates, signer.certificate.pem()).expect("written");
    let (tokens, asked) = server(signer).await;
    let auth = format!(
        "auth: {{token: {{realm: \"http://{tokens}/token\", service: registry, issuer: tokens, rootcertbundle: {}}}}}\n",
        certificates.display()
    );
    let bench = bench.restarted(&auth).await;

    let pulled =
        bench.pull("public/debian:1", None, Authorities::Public).await.unwrap_or_else(|error| panic!("{error}"));
    assert!(pulled.disk[..image().len()] == image());
    let lines = std::mem::take(&mut *asked.lock().expect("no panic"));
    let expected = (format!("GET /token?service=registry&scope={PUBLIC} HTTP/1.1"), false);
    assert_eq!(lines, [expected], "one token for the manifest and the blob");

    let right = Some(("ann", "right"));
    bench.pull("private/debian:1", right, Authorities::Public).await.unwrap_or_else(|error| panic!("{error}"));
    assert!(asked.lock().expect("no panic").iter().all(|(_, password)| *password));
    for (login, said) in [
        (None, "write REGISTRY_LOGIN of somebody who may"),
        (Some(("ann", "wrong")), "what REGISTRY_LOGIN say is wrong, or may not pull private/debian"),
    ] {
        let error = bench.pull("private/debian:1", login, Authorities::Public).await;
        let error = error.map(|pulled| pulled.title).expect_err(said);
        assert!(error.kind == Kind::Unauthorized && error.message.contains(said), "{error}");
    }
}
