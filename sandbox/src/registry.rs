//! A registry of container images: the distribution's own (Debian's `docker-registry`), with TLS and a password, as a site has one.
//!
//! Its certificate is signed by an authority of its own, which containerd, and whoever pushes, has to be told.

use crate::preflight;
use anyhow::{Context, Result, bail, ensure};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

pub const USER: &str = "metalplane";
/// Not a secret: it is here.
pub const PASSWORD: &str = "only-in-a-sandbox";
/// Made of both with `htpasswd -nbB`; the registry takes no other hash.
const HTPASSWD: &str = "metalplane:$2b$04$LB04C316KeAhvUYA2MqBQOIGAUZYHECDbD5Ppa8GX1AV2ZG.w9Xuq\n";
/// Where a node's containerd looks for the authorities of registries, one folder each (containerd, `docs/hosts.md`).
pub const HOSTS: &str = "/var/lib/containerd-certs.d";

/// A registry that was started.
const LISTENS: Duration = Duration::from_secs(60);

/// The files of a registry that is not started yet.
#[derive(Debug, Clone)]
pub struct Registry {
    pub address: SocketAddr,
    /// The authority's certificate.
    pub ca_file: PathBuf,
    config: PathBuf,
}

/// The registry's program, and the environment that it needs.
pub async fn program() -> Result<(PathBuf, BTreeMap<String, String>)> {
    preflight::unpacked("docker-registry", "docker-registry").await
}

/// With a configuration, until it is dropped. It listens when this returns.
pub async fn serve(config: &Path, address: SocketAddr) -> Result<Child> {
    let (program, environment) = program().await?;
    let mut command = Command::new(program);
    command.arg("serve").arg(config).envs(environment).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = command.kill_on_drop(true).spawn().context("start the registry")?;
    let began = Instant::now();
    while let Err(error) = TcpStream::connect(address).await {
        if let Some(status) = process.try_wait()? {
            bail!("the registry ended: {status}");
        }
        ensure!(began.elapsed() < LISTENS, "the registry does not listen: {error}");
        sleep(Duration::from_millis(20)).await;
    }
    Ok(process)
}

impl Registry {
    /// Keys and configuration go into the folder, and later the images.
    pub fn prepare(folder: &Path, address: SocketAddr) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "the sandbox's registries");
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new([address.ip().to_string()])?;
        params.distinguished_name.push(DnType::CommonName, "registry");
        let certificate = params.signed_by(&key, &authority)?;
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let write = |name: &str, content: &str| -> Result<PathBuf> {
            let file = folder.join(name);
            fs::write(&file, content).with_context(|| format!("cannot write {}", file.display()))?;
            Ok(file)
        };
        let ca_file = write("ca.crt", &authority.pem())?;
        let (tls, key) = (write("registry.crt", &certificate.pem())?, write("registry.key", &key.serialize_pem())?);
        let (passwords, images) = (write("htpasswd", HTPASSWD)?, folder.join("images"));
        let (tls, key, passwords, images) = (tls.display(), key.display(), passwords.display(), images.display());
        let config = format!(
            "version: 0.1\nlog: {{level: warn}}\nstorage: {{filesystem: {{rootdirectory: {images}}}}}\n\
             http: {{addr: \"{address}\", tls: {{certificate: {tls}, key: {key}}}}}\n\
             auth: {{htpasswd: {{realm: sandbox, path: {passwords}}}}}\n"
        );
        Ok(Self { address, ca_file, config: write("config.yml", &config)? })
    }

    /// As [`serve`] does it.
    pub async fn start(&self) -> Result<Child> {
        serve(&self.config, self.address).await
    }

    pub fn arguments(&self) -> [String; 2] {
        ["serve".to_owned(), self.config.display().to_string()]
    }

    /// Makes a containerd trust it, `hosts`: its folder of [`HOSTS`]; what runs takes it up by itself.
    pub fn trusted_by(&self, hosts: &Path) -> Result<()> {
        let folder = hosts.join(self.address.to_string());
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let address = self.address;
        let text = format!(
            "server = \"https://{address}\"\n\n[host.\"https://{address}\"]\nca = \"{HOSTS}/{address}/ca.crt\"\n"
        );
        fs::write(folder.join("hosts.toml"), text)
            .and_then(|()| fs::copy(&self.ca_file, folder.join("ca.crt")))
            .with_context(|| format!("cannot write to {}", folder.display()))
            .map(drop)
    }
}
