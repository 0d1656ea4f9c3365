//! A client of rustls against servers with each kind of certificate: the good one is taken, each other one refused with what to do.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType, date_time_ymd};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use std::io;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use trust::{Bundle, Refusal, refusal};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority")
}

fn named(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).expect("parameters")
}

/// What a client that trusts `trusted` gets from a server with this certificate, at 127.0.0.1.
async fn meet(trusted: &Bundle, certificate: &rcgen::Certificate, key: &KeyPair) -> io::Result<()> {
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let server = rustls::ServerConfig::builder().with_no_client_auth();
    let server = server.with_single_cert(vec![certificate.der().clone()], key).expect("a server");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let address = listener.local_addr().expect("an address");
    let serving = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a client");
        // The client decides.
        let _ = TlsAcceptor::from(Arc::new(server)).accept(stream).await;
    });
    let client = TlsConnector::from(Arc::new(trusted.client().expect("a client")));
    let stream = TcpStream::connect(address).await.expect("connected");
    let met = client.connect(ServerName::try_from("127.0.0.1").expect("a name"), stream).await;
    serving.await.expect("served");
    met.map(drop)
}

async fn refused(trusted: &Bundle, params: CertificateParams, issuer: &Authority) -> Refusal {
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, issuer).expect("signed");
    let error = meet(trusted, &certificate, &key).await.expect_err("refused");
    refusal(&error).unwrap_or_else(|| panic!("no certificate was refused: {error}"))
}

#[tokio::test]
async fn each_certificate_gets_its_own_words() {
    let (own, other) = (authority(), authority());
    let trusted = Bundle::parse([other.pem(), own.pem()].concat().as_bytes()).expect("a bundle");
    let key = KeyPair::generate().expect("a key");
    let good = named(&["127.0.0.1"]).signed_by(&key, &own).expect("signed");
    meet(&trusted, &good, &key).await.expect("taken");

    let stranger = authority();
    assert_eq!(refused(&trusted, named(&["127.0.0.1"]), &stranger).await, Refusal::UnknownAuthority);

    let mut old = named(&["127.0.0.1"]);
    (old.not_before, old.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(2001, 1, 1));
    assert_eq!(refused(&trusted, old, &own).await, Refusal::Expired);
    let mut early = named(&["127.0.0.1"]);
    (early.not_before, early.not_after) = (date_time_ymd(4000, 1, 1), date_time_ymd(4001, 1, 1));
    assert_eq!(refused(&trusted, early, &own).await, Refusal::NotValidYet);

    let elsewhere = refused(&trusted, named(&["bmc.example"]), &own).await;
    let advice = elsewhere.advice("ca.crt");
    assert!(advice.contains("bmc.example") && advice.contains("not for 127.0.0.1"), "{advice}");
    let nameless = refused(&trusted, named(&[]), &own).await.advice("ca.crt");
    assert!(nameless.contains("subject alternative name"), "{nameless}");

    let itself = meet(&Bundle::parse(own.pem().as_bytes()).expect("a bundle"), own.as_ref(), own.key()).await;
    let itself = refusal(&itself.expect_err("refused")).expect("its certificate");
    assert_eq!(itself, Refusal::AuthorityAsServer);
    for kind in [Refusal::UnknownAuthority, itself] {
        assert!(kind.advice("ca.crt of the Secret").contains("ca.crt of the Secret"));
    }
}

#[tokio::test]
async fn a_certificate_that_signs_itself_and_nothing_else_can_be_trusted() {
    let key = KeyPair::generate().expect("a key");
    let mut params = named(&[]);
    params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
    let own = params.self_signed(&key).expect("signed");
    meet(&Bundle::parse(own.pem().as_bytes()).expect("a bundle"), &own, &key).await.expect("taken");
}

#[test]
fn what_is_no_bundle_is_refused_with_what_to_write() {
    let key = KeyPair::generate().expect("a key").serialize_pem();
    let cases = [
        ("", "has no certificate"),
        ("hello", "has no certificate"),
        ("-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n", "is no PEM"),
        ("-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n", "certificate number 1"),
        (&key, "private key"),
    ];
    for (text, said) in cases {
        let error = Bundle::parse(text.as_bytes()).expect_err("refused");
        assert!(error.contains(said), "{text:?}: {error}");
    }
}

#[test]
fn an_error_of_something_else_is_no_refusal() {
    assert_eq!(refusal(&io::Error::other("the line is cut")), None);
}
