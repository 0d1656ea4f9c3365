//! An image of a disk in a registry of containers (OCI distribution specification): which blob it is, and as whom it is asked for.
//!
//! ```text
//! reference → manifest (held against the reference's digest, if it has one) → the one layer that is a disk → Source of its blob
//! ```
//!
//! The blob is copied as any other file is; the layer's digest is its checksum, so nobody has to write one.

mod access;
mod manifest;
mod reference;

pub use access::{Access, Login};
pub use reference::Reference;

use crate::feed::Hash;
use crate::fetch::{follow, plain};
use crate::{Algorithm, Checksum, Error, Kind, Source, client};
use http::{HeaderMap, HeaderValue, header};
use manifest::{ACCEPT, Manifest};

/// Registries take no larger ones (4 MiB is what the specification wants of them at least).
const MANIFEST: usize = 4 << 20;

/// The disk that a reference names.
#[derive(Debug)]
pub struct Found {
    pub source: Source,
    /// Of the manifest: what pins it.
    pub digest: String,
    /// As whoever pushed it called the file.
    pub title: String,
    /// As it is packed.
    pub bytes: u64,
    /// What else the artifact has, and is not written anywhere.
    pub others: Vec<String>,
}

/// `source` says how to ask and what to make of the blob; its URL and checksum are those of the blob afterwards.
pub async fn find(reference: &Reference, source: Source) -> Result<Found, Error> {
    let (digest, manifest) = fetch(reference, &reference.of(), reference.digest.as_ref(), &source).await?;
    let (digest, manifest) = match manifest.only().map_err(|cause| invalid(reference, &cause))? {
        None => (digest, manifest),
        Some(inner) => {
            let wanted = inner.checksum().map_err(|cause| invalid(reference, &cause))?;
            let found = fetch(reference, &inner.digest, Some(&wanted), &source).await?;
            if found.1.is_index() {
                return Err(invalid(reference, "it is an index of an index: push the image of the disk itself"));
            }
            found
        }
    };
    let disk = manifest.disk().map_err(|cause| invalid(reference, &cause))?;
    let checksum = disk.layer.checksum().map_err(|cause| invalid(reference, &cause))?;
    let url = reference.url("blobs", &disk.layer.digest);
    let (title, bytes) = (disk.layer.title().unwrap_or_default().to_owned(), disk.layer.size);
    let others = disk.others.iter().map(|layer| layer.told()).collect();
    Ok(Found { source: Source { url, checksum: Some(checksum), ..source }, digest, title, bytes, others })
}

async fn fetch(
    reference: &Reference,
    of: &str,
    wanted: Option<&Checksum>,
    source: &Source,
) -> Result<(String, Manifest), Error> {
    let source = Source { url: reference.url("manifests", of), ..source.clone() };
    let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(ACCEPT))]);
    let (response, url) = follow(&source, &headers).await.map_err(|error| match error.kind {
        Kind::NotFound => Error::new(Kind::NotFound, format!("{reference}: the registry has none: {error}")),
        _ => error,
    })?;
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let bytes = client::whole(&url, response, MANIFEST).await?;
    let algorithm = wanted.map_or(Algorithm::Sha256, |wanted| wanted.algorithm);
    let mut hash = Hash::new(algorithm);
    hash.update(&bytes);
    let hex = hash.digest();
    let digest = format!("{}:{hex}", algorithm.as_str());
    if wanted.is_some_and(|wanted| wanted.hex != hex) {
        return Err(invalid(reference, &format!("{} gave another manifest, {digest}", plain(url.as_str()))));
    }
    let manifest = Manifest::parse(&bytes, kind.as_deref()).map_err(|cause| invalid(reference, &cause))?;
    Ok((digest, manifest))
}

fn invalid(reference: &Reference, cause: &str) -> Error {
    Error::new(Kind::Invalid, format!("{reference}: {cause}"))
}
