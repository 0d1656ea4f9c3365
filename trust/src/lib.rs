//! Whom a TLS client trusts, and what to do about a server that it does not; in [`pin`], two that know each other's keys alone.
//!
//! A [`Bundle`] is what users write where a server's certificate is signed by an authority of their own: certificates in PEM (RFC 7468).
//! It takes the place of the public authorities, as `caBundle` does in Kubernetes' own objects: who names an authority wants no other.
//! [`refusal`] finds in an error of any library above rustls why a certificate was refused; [`Refusal::advice`] says what to change.

mod anybody;
pub mod pin;

pub use anybody::unverified;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use std::error::Error;
use std::fmt;
use std::io;

/// Authorities whose certificates are trusted: one or more.
#[derive(Clone, PartialEq, Eq)]
pub struct Bundle(Vec<CertificateDer<'static>>);

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} authorities", self.0.len())
    }
}

impl Bundle {
    /// The error says what to write instead; it does not say where the text came from.
    pub fn parse(pem: &[u8]) -> Result<Self, String> {
        let mut certificates = Vec::new();
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem) {
            match section.map_err(|error| format!("is no PEM ({error}): write certificates, {EXAMPLE}"))? {
                (SectionKind::Certificate, der) => certificates.push(CertificateDer::from(der)),
                (SectionKind::RsaPrivateKey | SectionKind::PrivateKey | SectionKind::EcPrivateKey, _) => {
                    return Err("has a private key: write the certificates of authorities alone".to_owned());
                }
                (kind, _) => {
                    return Err(format!(
                        "has a section of another kind ({kind:?}): write certificates alone, {EXAMPLE}"
                    ));
                }
            }
        }
        if certificates.is_empty() {
            return Err(format!("has no certificate: write one or more, {EXAMPLE}"));
        }
        let bundle = Self(certificates);
        bundle.roots()?;
        Ok(bundle)
    }

    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.0
    }

    fn roots(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        for (at, certificate) in self.0.iter().enumerate() {
            let added = roots.add(certificate.clone());
            added.map_err(|error| format!("its certificate number {} cannot be read: {error}", at + 1))?;
        }
        Ok(roots)
    }

    /// Of a client that trusts these authorities, and no other.
    pub fn client(&self) -> Result<ClientConfig, String> {
        Ok(ClientConfig::builder().with_root_certificates(self.roots()?).with_no_client_auth())
    }
}

const EXAMPLE: &str = "each from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----";

/// Why a server's certificate was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Signed by an authority that is not trusted.
    UnknownAuthority,
    Expired,
    NotValidYet,
    /// It names other servers than the one that was asked for.
    WrongName {
        asked: String,
        /// As the certificate has them; may be empty.
        names: Vec<String>,
    },
    /// An authority's own certificate, which many tools make where a self-signed one is asked for.
    AuthorityAsServer,
    Other(String),
}

/// Found anywhere below an error.
pub fn refusal(error: &(dyn Error + 'static)) -> Option<Refusal> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(rustls::Error::InvalidCertificate(refused)) = error.downcast_ref::<rustls::Error>() {
            return Some(Refusal::of(refused));
        }
        // The source of an I/O error is its inner error's source: that one itself would be passed over.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(found) = inner.and_then(|inner| refusal(inner)) {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// Of rustls' `DnsName("bmc.example")` or `IpAddress(10.0.0.1)` what is in it.
fn plain(name: &str) -> String {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.map_or(name, |inner| inner.trim_matches('"')).to_owned()
}

impl Refusal {
    fn of(refused: &CertificateError) -> Self {
        match refused {
            // The second: by another authority than the trusted one of the same name.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::UnknownAuthority,
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::NotValidYet,
            CertificateError::NotValidForNameContext { expected, presented } => Self::WrongName {
                asked: expected.to_str().into_owned(),
                names: presented.iter().map(|name| plain(name)).collect(),
            },
            // rustls has no name of its own for it.
            CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
                Self::AuthorityAsServer
            }
            other => Self::Other(other.to_string()),
        }
    }

    /// What is wrong and what to do; `bundle`: where the reader writes whom to trust.
    pub fn advice(&self, bundle: &str) -> String {
        match self {
            Self::UnknownAuthority => format!(
                "the server's certificate is signed by no authority that is trusted here: write its authority's certificate to {bundle}"
            ),
            Self::Expired => "the server's certificate has expired: renew it on the server".to_owned(),
            Self::NotValidYet => {
                "the server's certificate is not valid yet: compare the server's clock with this one's".to_owned()
            }
            Self::WrongName { asked, names } if names.is_empty() => format!(
                "the server's certificate names no server, so not {asked} either: give the server one with {asked} as a subject alternative name"
            ),
            Self::WrongName { asked, names } => format!(
                "the server's certificate is for {}, not for {asked}: ask for the server by such a name, or give it a certificate for {asked}",
                names.join(", ")
            ),
            Self::AuthorityAsServer => format!(
                "the server's certificate is an authority's own (CA:TRUE), which no server may show: give the server one that an authority \
                 has signed, and write that authority's certificate to {bundle}"
            ),
            Self::Other(why) => {
                format!("this client refuses the server's certificate ({why}): give the server another one")
            }
        }
    }
}
