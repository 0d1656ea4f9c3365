//! A Redfish client without opinions: one request, one connection, TLS checked against the BMC's own certificate.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

pub const SYSTEM: &str = "/redfish/v1/Systems/1";
const RESET: &str = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset";

/// An answer: status, header lines in lower case, body.
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Value,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

pub struct Redfish {
    address: String,
    tls: Arc<ClientConfig>,
}

impl Redfish {
    pub fn new(url: &str, certificate: &Path) -> Redfish {
        let address = url.strip_prefix("https://").expect("an https address").to_owned();
        // The certificate is written when the first server listens.
        let certificate = super::wait_for("the BMC's certificate", Duration::from_secs(90), || {
            CertificateDer::from_pem_file(certificate).ok()
        });
        let mut roots = RootCertStore::empty();
        roots.add(certificate).expect("trust the certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let tls = builder.expect("TLS versions").with_root_certificates(roots).with_no_client_auth();
        Redfish { address, tls: Arc::new(tls) }
    }

    /// One request; none if the connection was cut without an answer.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Option<Answer> {
        let stream = TcpStream::connect(&self.address).expect("connect to the BMC");
        stream.set_read_timeout(Some(Duration::from_secs(90))).expect("set a time limit");
        let name = ServerName::try_from("127.0.0.1").expect("an address is a name");
        let connection = ClientConnection::new(Arc::clone(&self.tls), name).expect("TLS");
        talk(StreamOwned::new(connection, stream), method, path, headers, body)
    }

    pub fn authorized(&self, method: &str, path: &str, body: &str) -> Option<Answer> {
        let credentials = base64::engine::general_purpose::STANDARD.encode("admin:s3cret");
        self.send(method, path, &[("Authorization", &format!("Basic {credentials}"))], body)
    }

    pub fn get(&self, path: &str) -> Value {
        let answer = self.authorized("GET", path, "").expect("an answer");
        assert_eq!(answer.status, 200, "GET {path}: {}", answer.body);
        answer.body
    }

    pub fn power(&self) -> String {
        self.get(SYSTEM)["PowerState"].as_str().expect("a power state").to_owned()
    }

    pub fn reset(&self, kind: &str) -> u16 {
        self.authorized("POST", RESET, &json!({ "ResetType": kind }).to_string()).expect("an answer").status
    }

    pub fn patch_boot(&self, boot: &Value) -> u16 {
        self.authorized("PATCH", SYSTEM, &json!({ "Boot": boot }).to_string()).expect("an answer").status
    }
}

/// One request over a unix socket; the answer must be a success.
pub fn over_unix_socket(socket: &Path, method: &str, path: &str, body: &str) {
    let stream = super::wait_for("the socket", Duration::from_secs(90), || UnixStream::connect(socket).ok());
    let answer = talk(stream, method, path, &[], body).expect("an answer");
    assert_eq!(answer.status, 200, "{method} {path}: {}", answer.body);
}

fn talk(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Option<Answer> {
    let mut request =
        format!("{method} {path} HTTP/1.1\r\nHost: bmc\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{request}\r\n{body}").as_bytes()).ok()?;
    let mut bytes = Vec::new();
    // A peer that closes without TLS's goodbye has still said what it said.
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers =
        lines.filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    Some(Answer { status, headers: headers.collect(), body: serde_json::from_str(body).unwrap_or_default() })
}
