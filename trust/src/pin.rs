//! Trust in one key: TLS between two that have no authority in common, and no clock that is right.
//!
//! A [`Pin`] names a key as RFC 7469, 2.4, does: the SHA-256 of its SubjectPublicKeyInfo. A client that was told the pin of a server
//! trusts whoever has that key, whatever the certificate says of names and times ([`client`]); a server takes the key of any client, and
//! learns its pin ([`server`], [`of_peer`]). That both have the keys is what TLS 1.3 proves (RFC 8446, 4.4.3); older versions are not
//! spoken.

use ring::digest::{SHA256, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

const TLS: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];
/// ALPN of HTTP/2 over TLS (RFC 9113, 3.2), which gRPC needs.
const HTTP2: &[u8] = b"h2";
/// RFC 8410, 7: an Ed25519 key in PKCS #8, up to its 32 bytes.
const ED25519: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pin([u8; 32]);

impl Pin {
    fn of(certificate: &CertificateDer<'_>) -> Result<Self, Error> {
        let info = ParsedCertificate::try_from(certificate)?.subject_public_key_info();
        let digest = digest(&SHA256, &info);
        Ok(Self(digest.as_ref().try_into().map_err(|_| Error::General("SHA-256 has 32 bytes".to_owned()))?))
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Pin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix("sha256:").filter(|digits| digits.len() == 64);
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let digits = digits.ok_or_else(|| format!("{text:?} is no pin: write sha256: and 64 hexadecimal digits"))?;
        let mut pin = [0; 32];
        for (at, byte) in pin.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).map_err(|error| error.to_string())?;
        }
        Ok(Self(pin))
    }
}

/// An Ed25519 key with a certificate that it has signed itself.
pub struct Key {
    private: PrivatePkcs8KeyDer<'static>,
    certificate: CertificateDer<'static>,
    pin: Pin,
}

impl Key {
    /// In memory alone.
    pub fn generate() -> Result<Self, String> {
        let mut seed = [0; 32];
        let random = ring::rand::SystemRandom::new();
        ring::rand::SecureRandom::fill(&random, &mut seed)
            .map_err(|_| "the system gives no random bytes".to_owned())?;
        Self::of_seed(&seed)
    }

    /// The same for the same seed, and as secret as that.
    pub fn of_seed(seed: &[u8; 32]) -> Result<Self, String> {
        let private = PrivatePkcs8KeyDer::from([&ED25519[..], seed].concat());
        let pair = rcgen::KeyPair::from_pkcs8_der_and_sign_algo(&private, &rcgen::PKCS_ED25519);
        let pair = pair.map_err(|error| format!("make a key: {error}"))?;
        let params = rcgen::CertificateParams::new(["metalplane".to_owned()]).map_err(|error| error.to_string())?;
        let certificate = params.self_signed(&pair).map_err(|error| format!("make a certificate: {error}"))?;
        let certificate = certificate.der().clone();
        let pin = Pin::of(&certificate).map_err(|error| error.to_string())?;
        Ok(Self { private, certificate, pin })
    }

    pub fn pin(&self) -> Pin {
        self.pin
    }

    fn private(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.private.clone_key())
    }
}

/// Of a client with this key, for HTTP/2 with the server of that pin.
pub fn client(key: &Key, server: Pin) -> Result<ClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(Pinned { server, provider: provider.clone() });
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(TLS)?;
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = builder.with_client_auth_cert(vec![key.certificate.clone()], key.private())?;
    config.alpn_protocols = vec![HTTP2.to_vec()];
    Ok(config)
}

/// Of a server with this key, for HTTP/2 with clients of any key, or of none.
pub fn server(key: &Key) -> Result<ServerConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(AnyKey { provider: provider.clone() });
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(TLS)?;
    let builder = builder.with_client_cert_verifier(verifier);
    let mut config = builder.with_single_cert(vec![key.certificate.clone()], key.private())?;
    config.alpn_protocols = vec![HTTP2.to_vec()];
    Ok(config)
}

/// Whose key the other end has, by the certificates that it showed.
pub fn of_peer(certificates: Option<&[CertificateDer<'_>]>) -> Option<Pin> {
    Pin::of(certificates?.first()?).ok()
}

/// That the other end has its key, which is asked of servers and clients alike.
macro_rules! proven_by_tls13 {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(older())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let algorithms = &self.provider.signature_verification_algorithms;
            rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.provider.signature_verification_algorithms.supported_schemes()
        }
    };
}

#[derive(Debug)]
struct Pinned {
    server: Pin,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match Pin::of(end_entity)? == self.server {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)),
        }
    }

    proven_by_tls13!();
}

#[derive(Debug)]
struct AnyKey {
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AnyKey {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    proven_by_tls13!();
}

fn older() -> Error {
    Error::General("TLS 1.3 alone is spoken here".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    fn key(byte: u8) -> Key {
        Key::of_seed(&[byte; 32]).expect("a key")
    }

    /// What the server knows of the client, once both have talked.
    async fn talk(client: ClientConfig, server: &Key) -> Result<Option<Pin>, String> {
        let (near, far) = tokio::io::duplex(1 << 16);
        let acceptor = TlsAcceptor::from(Arc::new(super::server(server).expect("a server")));
        let serving = async {
            let mut stream = acceptor.accept(far).await.map_err(|error| error.to_string())?;
            stream.write_all(b"x").await.map_err(|error| error.to_string())?;
            Ok(of_peer(stream.get_ref().1.peer_certificates()))
        };
        let asking = async {
            let name = ServerName::try_from("metalplane").expect("a name");
            let connected = TlsConnector::from(Arc::new(client)).connect(name, near).await;
            let mut stream = connected.map_err(|error| error.to_string())?;
            stream.read_u8().await.map_err(|error| error.to_string())
        };
        let (served, asked) = tokio::join!(serving, asking);
        asked.and(served)
    }

    #[tokio::test]
    async fn both_ends_know_each_other_by_their_keys() {
        let (one, two) = (key(1), Key::generate().expect("a key"));
        let config = client(&two, one.pin()).expect("a client");
        assert_eq!(talk(config, &one).await, Ok(Some(two.pin())));
        let refused = talk(client(&two, two.pin()).expect("a client"), &one).await;
        assert!(refused.expect_err("another server").contains("certificate"), "another server's key");
    }

    #[test]
    fn a_seed_is_a_key_and_a_pin_is_read_as_it_is_written() {
        assert_eq!(key(1).pin(), key(1).pin());
        assert_ne!(key(1).pin(), key(2).pin());
        assert_ne!(Key::generate().expect("a key").pin(), Key::generate().expect("a key").pin());
        let text = key(1).pin().to_string();
        assert_eq!(text.parse(), Ok(key(1).pin()));
        for bad in ["", "sha256:", &text[7..], &format!("{text}0"), &text.replace("sha256:", "sha256:é")] {
            let error = bad.parse::<Pin>().expect_err("refused");
            assert!(error.contains("64 hexadecimal digits"), "{error}");
        }
    }
}
