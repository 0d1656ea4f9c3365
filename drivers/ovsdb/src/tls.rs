//! TLS as OVN's own clients have it (`--private-key`, `--certificate`, `--ca-cert`; ovn-nbctl(8)): both ends show a certificate, and
//! each believes what one authority has signed.
//!
//! Of the server's certificate is checked that the authority signed it, that it is in force, and, where it names what it is for
//! (extended key usage, RFC 5280 section 4.2.1.12), that servers are among that. OVN's clients stop there. They compare no name, since
//! databases are reached by addresses that certificates of `ovs-pki` do not have; so whoever has any certificate of that authority
//! for no purpose, or for servers, could stand in for the database. [`Named`] closes that.
//!
//! The files are read anew for each connection: who replaces them (a mounted Secret) needs no restart. A connection that is open
//! stays.

use crate::tls_error::explain;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// What we show, intermediates behind it.
    pub certificate: PathBuf,
    pub private_key: PathBuf,
    /// The authority that has signed the server's certificate; several are allowed, while one follows another.
    pub authority: PathBuf,
    pub named: Named,
}

/// What the server's certificate has to name in its subjectAltName (RFC 5280 section 4.2.1.6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// Whatever it names, as with OVN's own clients.
    Anything,
    /// The host of the address that is connected to.
    Host,
    /// This name or address, whichever the address is.
    This(String),
}

impl FromStr for Named {
    type Err = String;

    /// Empty: anything.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Ok(Self::Anything),
            "HOST" => Ok(Self::Host),
            name => server_name(name).map(|_| Self::This(name.to_owned())),
        }
    }
}

fn server_name(name: &str) -> Result<ServerName<'static>, String> {
    let refused = |_| format!("`{name}` is neither a DNS name nor an address, as certificates have them");
    ServerName::try_from(name.to_owned()).map_err(refused)
}

impl TlsFiles {
    /// What one connection needs, from the files as they are now. `host`: of the address.
    pub(crate) async fn read(&self, host: &str) -> Result<Client, String> {
        let name = match &self.named {
            Named::Anything | Named::Host => host,
            Named::This(name) => name,
        };
        let name = server_name(name)?;
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.authority).await? {
            let unfit = |error| format!("{}: no certificate of an authority: {error}", self.authority.display());
            roots.add(certificate).map_err(unfit)?;
        }
        let key = PrivateKeyDer::from_pem_slice(&content(&self.private_key).await?).map_err(|error| {
            format!("{}: {} (an encrypted key is not read)", self.private_key.display(), no_pem("private key", &error))
        })?;
        let verifier = OfAuthority { roots, provider: provider.clone(), check_name: self.named != Named::Anything };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(certificates(&self.certificate).await?, key)
            .map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => {
                    format!("{} is not the private key of {}", self.private_key.display(), self.certificate.display())
                }
                error => format!("{}, {}: {error}", self.certificate.display(), self.private_key.display()),
            })?;
        Ok(Client { config: Arc::new(config), name, files: self.clone() })
    }
}

async fn content(file: &Path) -> Result<Vec<u8>, String> {
    tokio::fs::read(file).await.map_err(|error| format!("cannot read {}: {error}", file.display()))
}

async fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let content = content(file).await?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    let all = all.map_err(|error| format!("{}: {}", file.display(), no_pem("certificate", &error)))?;
    if all.is_empty() { Err(format!("{}: it holds no certificate in PEM", file.display())) } else { Ok(all) }
}

fn no_pem(what: &str, error: &pem::Error) -> String {
    match error {
        pem::Error::NoItemsFound => format!("it holds no {what} in PEM"),
        error => format!("no PEM: {error}"),
    }
}

pub(crate) struct Client {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    files: TlsFiles,
}

impl Client {
    pub(crate) async fn connect(self, stream: TcpStream) -> Result<TlsStream<TcpStream>, String> {
        let connected = TlsConnector::from(self.config).connect(self.name, stream).await;
        connected.map_err(|error| explain(&error, &self.files))
    }
}

#[derive(Debug)]
struct OfAuthority {
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
    check_name: bool,
}

impl ServerCertVerifier for OfAuthority {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(shown)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &self.roots, intermediates, now, algorithms)?;
        if self.check_name {
            verify_server_name(&certificate, name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
