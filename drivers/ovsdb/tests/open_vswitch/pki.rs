//! Authorities and certificates of a test, good and bad ones.

use ovsdb::{Named, TlsFiles};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// What a certificate is for, and when.
#[derive(Clone, Copy)]
pub struct Kind {
    pub usage: Option<Usage>,
    /// Years.
    pub valid: (i32, i32),
    /// In subjectAltName.
    pub names: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    Server,
    Client,
}

pub const SERVER: Kind = Kind { usage: Some(Usage::Server), valid: (2000, 4000), names: &["127.0.0.1", "ovn-nb.test"] };
pub const CLIENT: Kind = Kind { usage: Some(Usage::Client), names: &[], ..SERVER };

/// A folder with an authority's certificate, `NAME-ca.crt`, and what it signs.
pub struct Pki {
    folder: TempDir,
    name: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Pki {
    pub fn new(name: &str) -> Self {
        Self::with_key(name, name)
    }

    /// `called`: the subject of the authority, which several may have.
    pub fn with_key(name: &str, called: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("pki").tempdir_in("/var/tmp").expect("a directory");
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, called);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        fs::write(folder.path().join(format!("{name}-ca.crt")), certificate).expect("written");
        Self { folder, name: name.to_owned(), issuer: Issuer::new(params, key) }
    }

    pub fn authority(&self) -> PathBuf {
        self.folder.path().join(format!("{}-ca.crt", self.name))
    }

    /// Signs `FILE.crt` for `FILE.key`.
    pub fn sign(&self, file: &str, kind: Kind) -> TlsFiles {
        let names: Vec<String> = kind.names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, file);
        params.not_before = date_time_ymd(kind.valid.0, 1, 1);
        params.not_after = date_time_ymd(kind.valid.1, 1, 1);
        params.extended_key_usages = match kind.usage {
            Some(Usage::Server) => vec![ExtendedKeyUsagePurpose::ServerAuth],
            Some(Usage::Client) => vec![ExtendedKeyUsagePurpose::ClientAuth],
            None => Vec::new(),
        };
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        let path = |suffix: &str| self.folder.path().join(format!("{file}.{suffix}"));
        fs::write(path("crt"), certificate).expect("written");
        fs::write(path("key"), key.serialize_pem()).expect("written");
        let authority = self.authority();
        TlsFiles { certificate: path("crt"), private_key: path("key"), authority, named: Named::Host }
    }
}

/// What a server of Open vSwitch is told of its files.
pub fn options(files: &TlsFiles) -> Vec<String> {
    let option = |name: &str, path: &Path| format!("--{name}={}", path.display());
    vec![
        option("private-key", &files.private_key),
        option("certificate", &files.certificate),
        option("ca-cert", &files.authority),
    ]
}

/// As kubelet replaces what a Secret is mounted as: each file is whole at any time.
pub fn replace(target: &TlsFiles, by: &TlsFiles) {
    for (to, from) in [
        (&target.certificate, &by.certificate),
        (&target.private_key, &by.private_key),
        (&target.authority, &by.authority),
    ] {
        let part = to.with_extension("part");
        fs::copy(from, &part).and_then(|_| fs::rename(&part, to)).expect("replaced");
    }
}
