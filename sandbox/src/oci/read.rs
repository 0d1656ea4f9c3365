//! What an image file holds.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::layer::BLOCK;
use super::{NAME_ANNOTATION, blob_path};

/// What an image file holds: its reference and the digest of what that stands for.
#[derive(Debug, PartialEq, Eq)]
pub struct ImageName {
    pub reference: String,
    pub digest: String,
}

/// Reads reference and digest of an image file that [`super::write_image`] wrote.
pub fn read_name(tar: &Path) -> Result<ImageName> {
    let index = read_entry(tar, "index.json").with_context(|| format!("cannot read the image {}", tar.display()))?;
    let index: Value = serde_json::from_slice(&index)?;
    let manifest = &index["manifests"][0];
    match (manifest["annotations"][NAME_ANNOTATION].as_str(), manifest["digest"].as_str()) {
        (Some(reference), Some(digest)) => Ok(ImageName { reference: reference.into(), digest: digest.into() }),
        _ => bail!("{} has no image name: write it with `cargo xtask image`", tar.display()),
    }
}

/// Part of an image file, where it is in there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// `sha256:…`
    pub digest: String,
    /// Of its first byte in the file.
    pub offset: u64,
    pub size: u64,
}

/// What of an image file goes to a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    pub reference: String,
    /// What the reference stands for, and before it what that names: of an index, each architecture's.
    pub manifests: Vec<Manifest>,
    /// Those that the manifests name: configuration and layers.
    pub blobs: Vec<Blob>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    pub digest: String,
    pub media_type: String,
    pub bytes: Vec<u8>,
}

/// Reads what an image file holds, but for the bytes of its blobs.
pub fn read_content(tar: &Path) -> Result<Content> {
    let ImageName { reference, digest } = read_name(tar)?;
    let context = || format!("cannot read the image {}", tar.display());
    let (top, value) = read_manifest(tar, &digest).with_context(context)?;
    let mut content = Content { reference, manifests: Vec::new(), blobs: Vec::new() };
    let inner = list(&value, "manifests").map(|entry| {
        let digest = entry["digest"].as_str().context("a manifest without a digest")?;
        read_manifest(tar, digest)
    });
    let mut inner = inner.collect::<Result<Vec<_>>>().with_context(context)?;
    inner.push((top, value));
    for (manifest, value) in inner {
        let config = value.get("config").into_iter();
        for named in config.chain(list(&value, "layers")) {
            let digest = named["digest"].as_str().context("a blob without a digest").with_context(context)?;
            let (offset, size) = find_entry(&mut open(tar)?, &blob_path(digest)).with_context(context)?;
            content.blobs.push(Blob { digest: digest.to_owned(), offset, size });
        }
        content.manifests.push(manifest);
    }
    Ok(content)
}

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value[name].as_array().into_iter().flatten()
}

fn read_manifest(tar: &Path, digest: &str) -> Result<(Manifest, Value)> {
    let bytes = read_entry(tar, &blob_path(digest))?;
    let value: Value = serde_json::from_slice(&bytes)?;
    let media_type = value["mediaType"].as_str().context("a manifest without a mediaType")?.to_owned();
    Ok((Manifest { digest: digest.to_owned(), media_type, bytes }, value))
}

fn open(tar: &Path) -> Result<BufReader<File>> {
    Ok(BufReader::new(File::open(tar).with_context(|| format!("cannot open {}", tar.display()))?))
}

fn read_entry(tar: &Path, wanted: &str) -> Result<Vec<u8>> {
    let mut input = open(tar)?;
    let (_, size) = find_entry(&mut input, wanted)?;
    let mut bytes = vec![0; usize::try_from(size)?];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Where a file of the archive begins, and its size; the reader is there.
fn find_entry(input: &mut BufReader<File>, wanted: &str) -> Result<(u64, u64)> {
    loop {
        let mut block = [0_u8; BLOCK as usize];
        input.read_exact(&mut block).context("the archive ends early")?;
        let text = |range: std::ops::Range<usize>| {
            String::from_utf8_lossy(&block[range]).trim_end_matches(['\0', ' ']).to_owned()
        };
        let name = text(0..100);
        if name.is_empty() {
            bail!("no {wanted} in the archive");
        }
        let size = u64::from_str_radix(text(124..136).trim(), 8).context("not a tar archive")?;
        if name.trim_start_matches("./") == wanted {
            return Ok((input.stream_position()?, size));
        }
        input.seek(SeekFrom::Current(i64::try_from(size.next_multiple_of(BLOCK))?))?;
    }
}
