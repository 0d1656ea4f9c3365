//! `cargo xtask push REGISTRY` (`make push REGISTRY=…`): the images of a release into a registry, by the OCI distribution specification.
//!
//! What is there already is not sent again: an image whose manifest is there, and of any other each blob that is. So a push that was cut
//! off goes on where it was, blob by blob, when it is called again, and one that is done changes nothing. A manifest goes last: a tag
//! that can be pulled is whole.

mod credentials;
mod refused;

use crate::programs::VERSION;
use anyhow::{Context, Result, bail, ensure};
use credentials::Credentials;
use futures::TryStreamExt;
use oci_client::client::{Certificate, CertificateEncoding, ClientConfig, ClientProtocol};
use oci_client::errors::OciDistributionError;
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference, RegistryOperation};
use sandbox::oci::{self, Blob, Content};
use std::fs;
use std::io::SeekFrom;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio_util::io::ReaderStream;
use trust::Bundle;

const CONNECT: Duration = Duration::from_secs(10);
/// The registry says nothing for so long; it hashes a blob when all of it has come.
const SILENCE: Duration = Duration::from_secs(120);
const USER_AGENT: &str = concat!("metalplane-xtask/", env!("CARGO_PKG_VERSION"));

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Host and port of the registry, and a path in it where it has one: registry.example:5000/metalplane
    registry: String,
    /// The folder with the images [default: dist/VERSION/images, else target/release-images]
    #[arg(long)]
    images: Option<PathBuf>,
    /// Certificates in PEM of the authorities that vouch for the registry, instead of the public ones
    #[arg(long, env = "METALPLANE_REGISTRY_CA_FILE")]
    ca_file: Option<PathBuf>,
    /// Where `docker login` wrote the password; METALPLANE_REGISTRY_USER and METALPLANE_REGISTRY_PASSWORD come first
    /// [default: $DOCKER_CONFIG/config.json, else ~/.docker/config.json]
    #[arg(long)]
    docker_config: Option<PathBuf>,
    /// Speak HTTP without TLS: everybody on the way reads the password
    #[arg(long)]
    plain_http: bool,
}

/// What became of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Done {
    /// It was there.
    Present,
    /// So many blobs were sent; the others were there.
    Pushed { blobs: usize, bytes: u64 },
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let folder = images(root, options)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start a runtime")?;
    runtime.block_on(push(options, &folder))
}

fn images(root: &Path, options: &Options) -> Result<PathBuf> {
    if let Some(given) = &options.images {
        return Ok(given.clone());
    }
    let known = [root.join("dist").join(VERSION).join("images"), root.join("target/release-images")];
    let found = known.iter().find(|folder| folder.is_dir()).cloned();
    found.context(
        "there are no images: write them with `make release` or `make images`, or name their folder by --images",
    )
}

async fn push(options: &Options, folder: &Path) -> Result<()> {
    let target = Target::of(options)?;
    let entries = fs::read_dir(folder).with_context(|| format!("read the images in {}", folder.display()))?;
    let mut tars: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    tars.retain(|path| path.extension().is_some_and(|ending| ending == "tar"));
    tars.sort();
    ensure!(
        !tars.is_empty(),
        "{} has no image (*.tar): write them with `make release` or `make images`",
        folder.display()
    );
    for tar in &tars {
        let content = oci::read_content(tar)?;
        let reference = target.reference(&content.reference)?;
        let done = target.image(tar, &content, &reference).await?;
        match done {
            Done::Present => println!("{reference}: is there"),
            Done::Pushed { blobs, bytes } => println!("{reference}: pushed ({blobs} blobs, {bytes} bytes)"),
        }
    }
    println!("install from there with: --set images.registry={}", target.registry);
    Ok(())
}

struct Target {
    client: Client,
    /// As it was given.
    registry: String,
    credentials: Credentials,
}

impl Target {
    fn of(options: &Options) -> Result<Self> {
        let registry = options.registry.trim_end_matches('/').to_owned();
        ensure!(
            !registry.contains("://"),
            "the registry is {registry:?}: write host and port without a scheme, registry.example:5000/metalplane"
        );
        let host = registry.split('/').next().unwrap_or_default().to_owned();
        let mut config = ClientConfig {
            // A registry of any kind takes it, and a stream can be sent once only.
            use_monolithic_push: true,
            connect_timeout: Some(CONNECT),
            read_timeout: Some(SILENCE),
            user_agent: USER_AGENT,
            ..ClientConfig::default()
        };
        if options.plain_http {
            ensure!(
                options.ca_file.is_none(),
                "--plain-http and --ca-file: without TLS nothing is verified: leave one of them out"
            );
            config.protocol = ClientProtocol::HttpsExcept(vec![host.clone()]);
        }
        if let Some(file) = &options.ca_file {
            let pem = fs::read(file).with_context(|| format!("read --ca-file {}", file.display()))?;
            let bundle = Bundle::parse(&pem);
            let bundle = bundle.map_err(|error| anyhow::anyhow!("--ca-file {} {error}", file.display()))?;
            config.tls_certs_only = bundle.certificates().iter().map(certificate).collect();
        }
        // Fails where one is set already, which then is the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::try_from(config).context("make a client for the registry")?;
        let credentials = Credentials::find(&host, options.docker_config.as_deref(), |name| std::env::var(name).ok())?;
        Ok(Self { client, registry, credentials })
    }

    /// In this registry, by the same rule as the chart's `images.registry`: what is a host in the reference gives way.
    fn reference(&self, reference: &str) -> Result<Reference> {
        let path = match reference.split_once('/') {
            Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => path,
            _ => reference,
        };
        let moved = format!("{}/{path}", self.registry);
        moved.parse().with_context(|| {
            format!("{moved:?} is no reference of an image: write the registry as host:port/path, in lower case")
        })
    }

    fn auth(&self) -> RegistryAuth {
        match &self.credentials {
            Credentials::Anonymous { .. } => RegistryAuth::Anonymous,
            Credentials::Login { user, password, .. } => RegistryAuth::Basic(user.clone(), password.clone()),
        }
    }

    async fn image(&self, tar: &Path, content: &Content, reference: &Reference) -> Result<Done> {
        let auth = self.auth();
        let explain = |step: &'static str| move |error| self.refused(step, reference, &error);
        let asked = self.client.auth(reference, &auth, RegistryOperation::Push).await;
        asked.map_err(explain("log in"))?;
        let (top, others) = content.manifests.split_last().context("an image has a manifest")?;
        match self.client.fetch_manifest_digest(reference, &auth).await {
            Ok(digest) if digest == top.digest => return Ok(Done::Present),
            Ok(_) => {}
            Err(error) if refused::is_absent(&error) => {}
            Err(error) => bail!(self.refused("look for the image", reference, &error)),
        }
        let (mut blobs, mut bytes) = (0, 0);
        for blob in &content.blobs {
            let there = self.client.blob_exists(reference, &blob.digest).await;
            if there.map_err(explain("look for a blob"))? {
                continue;
            }
            let stream = stream(tar, blob).await?;
            let sent = self.client.push_blob_stream(reference, stream, &blob.digest, Some(blob.size)).await;
            sent.map_err(explain("send a blob"))?;
            (blobs, bytes) = (blobs + 1, bytes + blob.size);
        }
        // By digest; the tag is that of what names them.
        let by_digest = others.iter().map(|manifest| (reference.clone_with_digest(manifest.digest.clone()), manifest));
        for (target, manifest) in by_digest.chain([(reference.clone(), top)]) {
            let kind = manifest.media_type.parse().context("the manifest's mediaType as a header")?;
            let sent = self.client.push_manifest_raw(&target, manifest.bytes.clone(), kind).await;
            sent.map_err(explain("send the manifest"))?;
        }
        Ok(Done::Pushed { blobs, bytes })
    }

    fn refused(&self, step: &str, reference: &Reference, error: &OciDistributionError) -> anyhow::Error {
        let advice = refused::advice(reference.registry(), &self.credentials, error);
        anyhow::anyhow!("{reference}: {step}: {advice}")
    }
}

fn certificate(der: &rustls::pki_types::CertificateDer<'static>) -> Certificate {
    Certificate { encoding: CertificateEncoding::Der, data: der.to_vec() }
}

/// The bytes of a blob, from the file of its image.
async fn stream(
    tar: &Path,
    blob: &Blob,
) -> Result<impl futures::Stream<Item = Result<bytes::Bytes, OciDistributionError>> + Send + 'static> {
    let read = async {
        let mut file = tokio::fs::File::open(tar).await?;
        file.seek(SeekFrom::Start(blob.offset)).await?;
        std::io::Result::Ok(file)
    };
    let file = read.await.with_context(|| format!("read {}", tar.display()))?;
    Ok(ReaderStream::with_capacity(file.take(blob.size), 1 << 18).map_err(OciDistributionError::from))
}

#[cfg(test)]
mod tests;
