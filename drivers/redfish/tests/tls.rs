//! A BMC whose certificate the named authorities do not vouch for: each kind is told apart, and no byte of the password is sent.

use ports::{Bmc, ErrorClass};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use redfish::{RedfishBmc, RedfishConfig, Secret, Verify};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use trust::Bundle;

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority")
}

/// What the driver says of a server with this certificate at 127.0.0.1, when it trusts `trusted`.
async fn refused(params: CertificateParams, issuer: &CertifiedIssuer<'static, KeyPair>, trusted: &str) -> String {
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, issuer).expect("signed").der().clone();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(vec![certificate], key).expect("a server")));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let port = listener.local_addr().expect("an address").port();
    let serving = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a client");
        acceptor.accept(stream).await.is_ok()
    });
    let mut config = RedfishConfig::new("127.0.0.1", "admin", Secret::new("hunter2"));
    config.port = port;
    config.use_basic_auth = true;
    config.verify = Verify::Authorities(Bundle::parse(trusted.as_bytes()).expect("a bundle"));
    let error = RedfishBmc::new(config).expect("a client").observe().await.expect_err("refused");
    assert_eq!(error.class, ErrorClass::Unreachable, "{error}");
    assert!(!serving.await.expect("served"), "the client went on: {error}");
    error.message
}

#[tokio::test]
async fn each_refusal_says_what_to_do() {
    let (own, other) = (authority(), authority());
    let named = |name: &str| CertificateParams::new([name.to_owned()]).expect("parameters");
    let mut old = named("127.0.0.1");
    old.not_after = date_time_ymd(2001, 1, 1);
    let cases = [
        (named("127.0.0.1"), other.pem(), "certificate to ca.crt in the Secret of this BMC"),
        (old, own.pem(), "has expired: renew it"),
        (named("bmc.example"), own.pem(), "is for bmc.example, not for 127.0.0.1"),
    ];
    for (params, trusted, said) in cases {
        let message = refused(params, &own, &trusted).await;
        assert!(message.contains(said), "{message}");
    }
}
