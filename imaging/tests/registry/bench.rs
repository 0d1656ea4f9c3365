//! A registry with artifacts in it, and a pull from it onto a file that was full of something else.

use imaging::registry::{self, Access, Login};
use imaging::{Authorities, Copied, Error, FileDisk, Packing, Progress, Proxies, Rest, Source, Target};
use oci_client::client::{Certificate, CertificateEncoding, ClientConfig, ClientProtocol};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference, RegistryOperation};
use sandbox::registry::{PASSWORD, Registry, USER, program, serve};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::process::Child;
use tokio::sync::Notify;
use tokio::time::timeout;
use trust::Bundle;

const MIB: usize = 1 << 20;
const SIZE: usize = 8 * MIB;
pub const OCI: &str = "application/vnd.oci.image.manifest.v1+json";
pub const LOGIN: Option<(&str, &str)> = Some((USER, PASSWORD));
const EMPTY: &[u8] = b"{}";

/// Type, title, content.
pub type Layer<'a> = (&'a str, Option<&'a str>, &'a [u8]);

pub struct Bench {
    pub folder: tempfile::TempDir,
    pub address: SocketAddr,
    trusted: Option<Bundle>,
    _process: Child,
}

#[derive(Debug)]
pub struct Pulled {
    pub title: String,
    pub digest: String,
    pub others: Vec<String>,
    pub copied: Copied,
    pub disk: Vec<u8>,
}

/// Does not begin or end with zeros.
pub fn image() -> Vec<u8> {
    (0..3 * MIB + 777).map(|i| if (MIB..2 * MIB).contains(&i) { 0 } else { (i * 7 % 251) as u8 + 1 }).collect()
}

pub fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).expect("packed");
    encoder.finish().expect("packed")
}

pub fn sha256(data: &[u8]) -> String {
    format!("sha256:{}", Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

fn port() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address")
}

async fn is_missing(test: &str) -> bool {
    let missing = program().await.err();
    if let Some(missing) = &missing {
        eprintln!("SKIP {test}: {missing:#}");
    }
    missing.is_some()
}

impl Bench {
    pub async fn with_password(test: &str) -> Option<Self> {
        if is_missing(test).await {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let registry = Registry::prepare(folder.path(), port()).expect("prepared");
        let process = registry.start().await.expect("the registry starts");
        let pem = std::fs::read(&registry.ca_file).expect("its authority");
        let trusted = Some(Bundle::parse(&pem).expect("its authority"));
        Some(Self { folder, address: registry.address, trusted, _process: process })
    }

    /// Without TLS, for everybody.
    pub async fn open(test: &str) -> Option<Self> {
        if is_missing(test).await {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let address = port();
        let process = without_tls(folder.path(), address, "").await;
        Some(Self { folder, address, trusted: None, _process: process })
    }

    /// The same images, asked for otherwise; `auth`: a section of the registry's configuration.
    pub async fn restarted(self, auth: &str) -> Self {
        let Self { folder, address, trusted, _process: mut process } = self;
        process.kill().await.expect("it ends");
        let process = without_tls(folder.path(), address, auth).await;
        Self { folder, address, trusted, _process: process }
    }

    pub fn trusted(&self) -> Authorities {
        self.trusted.clone().into()
    }

    pub async fn push(&self, name: &str, layers: &[Layer<'_>]) -> String {
        self.push_as(OCI, name, layers).await
    }

    /// By a client of somebody else's. The digest of the manifest.
    pub async fn push_as(&self, kind: &str, name: &str, layers: &[Layer<'_>]) -> String {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let certificates = self.trusted.iter().flat_map(|bundle| bundle.certificates().to_vec());
        let certificates =
            certificates.map(|der| Certificate { encoding: CertificateEncoding::Der, data: der.to_vec() }).collect();
        let protocol = match self.trusted {
            Some(_) => ClientProtocol::Https,
            None => ClientProtocol::Http,
        };
        let config = ClientConfig {
            tls_certs_only: certificates,
            protocol,
            use_monolithic_push: true,
            ..ClientConfig::default()
        };
        let client = Client::try_from(config).expect("a client");
        let reference: Reference = format!("{}/{name}", self.address).parse().expect("a reference");
        let auth = match self.trusted {
            Some(_) => RegistryAuth::Basic(USER.to_owned(), PASSWORD.to_owned()),
            None => RegistryAuth::Anonymous,
        };
        client.auth(&reference, &auth, RegistryOperation::Push).await.expect("a login");
        let config = match kind {
            OCI => "application/vnd.oci.empty.v1+json",
            _ => "application/vnd.docker.container.image.v1+json",
        };
        client.push_blob(&reference, EMPTY.to_vec(), &sha256(EMPTY)).await.expect("pushed");
        let mut described = Vec::new();
        for (kind, title, content) in layers {
            client.push_blob(&reference, content.to_vec(), &sha256(content)).await.expect("pushed");
            let annotations = title.map_or_else(|| json!({}), |title| json!({"org.opencontainers.image.title": title}));
            described.push(
                json!({"mediaType": kind, "digest": sha256(content), "size": content.len(), "annotations": annotations}),
            );
        }
        let config = json!({"mediaType": config, "digest": sha256(EMPTY), "size": EMPTY.len()});
        let manifest: Value = json!({"schemaVersion": 2, "mediaType": kind, "config": config, "layers": described});
        let bytes = manifest.to_string().into_bytes();
        let kind = kind.parse().expect("a header");
        client.push_manifest_raw(&reference, bytes.clone(), kind).await.expect("pushed");
        sha256(&bytes)
    }

    pub async fn pull(
        &self,
        name: &str,
        login: Option<(&str, &str)>,
        authorities: Authorities,
    ) -> Result<Pulled, Error> {
        let scheme = if self.trusted.is_some() { "https" } else { "http" };
        pull(&format!("{scheme}://{}/{name}", self.address), login, authorities).await
    }
}

/// A failure leaves a disk that was not begun as it was, and one that was begun with zeros at both ends.
pub async fn pull(reference: &str, login: Option<(&str, &str)>, authorities: Authorities) -> Result<Pulled, Error> {
    let reference: registry::Reference = reference.parse().expect("a reference");
    let login = login.map(|(user, password)| Login { user: user.to_owned(), password: password.to_owned() });
    let source = Source {
        url: String::new(),
        checksum: None,
        checksum_field: "the layer's digest",
        packing: Packing::ByMagic,
        user_agent: "test".to_owned(),
        authorities,
        authorities_field: "CA_BUNDLE",
        access: Some(Access::new(&reference, login, "REGISTRY_LOGIN").expect("access")),
        proxies: Proxies::default(),
    };
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), vec![0xff; SIZE]).expect("written");
    let found = registry::find(&reference, source).await?;
    let disk = FileDisk::open(file.path(), SIZE as u64).expect("opened");
    let target = Target {
        name: "disk /dev/test".to_owned(),
        size_bytes: SIZE as u64,
        too_small: "choose a larger disk",
        rest: Rest::Kept,
        wipe: true,
    };
    let (bytes, of, wake) = (AtomicU64::new(0), AtomicU64::new(0), Notify::new());
    let progress = Progress { bytes: &bytes, of: &of, wake: &wake };
    let copying = imaging::copy(&found.source, target, Box::new(disk), &progress, std::future::pending());
    let copied = timeout(Duration::from_secs(60), copying).await.expect("within a minute");
    let disk = std::fs::read(file.path()).expect("read");
    if copied.is_err() {
        let is_whole = disk.iter().all(|byte| *byte == 0xff);
        let cannot_boot = disk[..MIB].iter().chain(&disk[SIZE - MIB..]).all(|byte| *byte == 0);
        assert!(is_whole || cannot_boot, "half an image cannot boot");
    }
    let copied = copied?;
    Ok(Pulled { title: found.title, digest: found.digest, others: found.others, copied, disk })
}

async fn without_tls(folder: &Path, address: SocketAddr, auth: &str) -> Child {
    let (config, images) = (folder.join("open.yml"), folder.join("images"));
    let text = format!(
        "version: 0.1\nlog: {{level: warn}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: \"{address}\"}}\n{auth}",
        images.display()
    );
    std::fs::write(&config, text).expect("written");
    serve(&config, address).await.expect("the registry starts")
}
