//! Writes a container image as one file: an OCI image layout in a tar archive, as `ctr images import` takes it.
//!
//! An image here is one layer of static programs: no base, no engine, and the same bytes in give the same digest out, so a node
//! that has the image already can be told apart from one that has not.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const BLOCK: u64 = 512;
const NAME_ANNOTATION: &str = "io.containerd.image.name";

/// What an image says of itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Description<'a> {
    pub reference: &'a str,
    /// What it starts.
    pub entrypoint: &'a [&'a str],
    /// Those of the OCI image specification, "Annotations", as labels, which `docker inspect` and `crictl inspecti` show.
    pub labels: &'a [(&'a str, &'a str)],
    /// Gzip of the layer: worth its time where an image travels, not where it goes into the nodes of a sandbox.
    pub compressed: bool,
}

/// Writes the image with `files` (path on this machine, path in the image, mode) to `path_out`.
pub fn write_image(path_out: &Path, description: Description<'_>, files: &[(&Path, &str, u32)]) -> Result<()> {
    let reference = description.reference;
    let folder = path_out.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let part = path_out.with_extension("part");
    let layer = path_out.with_extension("layer");
    let written = write_layer(&layer, description.compressed, files)
        .and_then(|digests| write_layout(&part, description, &layer, &digests))
        .and_then(|()| Ok(std::fs::rename(&part, path_out)?))
        .with_context(|| format!("cannot write the image {reference} to {}", path_out.display()));
    for rest in [&part, &layer] {
        let _ = std::fs::remove_file(rest);
    }
    written
}

/// What an image file holds: its reference and the digest of its manifest.
#[derive(Debug, PartialEq, Eq)]
pub struct ImageName {
    pub reference: String,
    pub digest: String,
}

/// Reads reference and digest of an image file that [`write_image`] wrote.
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
    pub digest: String,
    pub media_type: String,
    pub manifest: Vec<u8>,
    /// Those that the manifest names: configuration and layers.
    pub blobs: Vec<Blob>,
}

/// Reads what an image file holds, but for the bytes of its blobs.
pub fn read_content(tar: &Path) -> Result<Content> {
    let ImageName { reference, digest } = read_name(tar)?;
    let context = || format!("cannot read the image {}", tar.display());
    let manifest = read_entry(tar, &blob_path(&digest)).with_context(context)?;
    let value: Value = serde_json::from_slice(&manifest).with_context(context)?;
    let layers = value["layers"].as_array().into_iter().flatten();
    let mut blobs = Vec::new();
    for named in std::iter::once(&value["config"]).chain(layers) {
        let digest = named["digest"].as_str().context("a blob without a digest").with_context(context)?;
        let (offset, size) = find_entry(&mut open(tar)?, &blob_path(digest)).with_context(context)?;
        blobs.push(Blob { digest: digest.to_owned(), offset, size });
    }
    let media_type = value["mediaType"].as_str().context("a manifest without a mediaType").with_context(context)?;
    Ok(Content { reference, digest, media_type: media_type.to_owned(), manifest, blobs })
}

/// By the OCI image layout.
fn blob_path(digest: &str) -> String {
    format!("blobs/{}", digest.replacen(':', "/", 1))
}

/// Both in hex.
struct Digests {
    /// Of the archive: the layer's diff ID.
    archive: String,
    /// Of the file, which is the archive or its gzip.
    blob: String,
}

fn write_layer(path: &Path, compressed: bool, files: &[(&Path, &str, u32)]) -> Result<Digests> {
    let file = Hashing { inner: BufWriter::new(File::create(path)?), hash: Sha256::new() };
    if !compressed {
        let digest = hex(&write_archive(file, files)?.hash.finalize());
        return Ok(Digests { archive: digest.clone(), blob: digest });
    }
    // Its header has no name and no time.
    let gzip = flate2::write::GzEncoder::new(file, flate2::Compression::default());
    let archive = write_archive(Hashing { inner: gzip, hash: Sha256::new() }, files)?;
    let mut file = archive.inner.finish()?;
    file.flush()?;
    Ok(Digests { archive: hex(&archive.hash.finalize()), blob: hex(&file.hash.finalize()) })
}

fn write_archive<W: Write>(mut out: Hashing<W>, files: &[(&Path, &str, u32)]) -> Result<Hashing<W>> {
    let mut folders: Vec<String> = Vec::new();
    for (_, name, _) in files {
        let parts: Vec<&str> = name.trim_start_matches('/').split('/').collect();
        for depth in 1..parts.len() {
            let folder = format!("{}/", parts[..depth].join("/"));
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
    }
    // Every container needs somewhere to put its temporary files.
    folders.push("tmp/".into());
    for folder in folders {
        out.write_all(&header(&folder, 0, if folder == "tmp/" { 0o1777 } else { 0o755 }, b'5')?)?;
    }
    for (source, name, mode) in files {
        let mut file = File::open(source).with_context(|| format!("cannot read {}", source.display()))?;
        let size = file.metadata()?.len();
        out.write_all(&header(name.trim_start_matches('/'), size, *mode, b'0')?)?;
        std::io::copy(&mut file, &mut out)?;
        out.write_all(&padding(size))?;
    }
    out.write_all(&[0; 2 * BLOCK as usize])?;
    out.flush()?;
    Ok(out)
}

fn write_layout(path: &Path, description: Description<'_>, layer: &Path, digests: &Digests) -> Result<()> {
    let Description { reference, entrypoint, labels, compressed } = description;
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
    let config = serde_json::to_vec(&json!({
        "architecture": architecture,
        "os": "linux",
        "config": {"Entrypoint": entrypoint, "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", digests.archive)]},
    }))?;
    // "Image Layer Filesystem Changeset" of the specification.
    let kind = ["application/vnd.oci.image.layer.v1.tar", if compressed { "+gzip" } else { "" }].concat();
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", &digest(&config), config.len() as u64),
        "layers": [descriptor(&kind, &digests.blob, layer.metadata()?.len())],
    }))?;
    let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", &digest(&manifest), manifest.len() as u64);
    entry["annotations"] = json!({NAME_ANNOTATION: reference});
    let index = serde_json::to_vec(&json!({"schemaVersion": 2, "manifests": [entry]}))?;

    let mut out = BufWriter::new(File::create(path)?);
    // The index first: a reader that wants the name need not pass the layer.
    append(&mut out, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    append(&mut out, "index.json", &index)?;
    append(&mut out, &format!("blobs/sha256/{}", digest(&manifest)), &manifest)?;
    append(&mut out, &format!("blobs/sha256/{}", digest(&config)), &config)?;
    let size = layer.metadata()?.len();
    out.write_all(&header(&format!("blobs/sha256/{}", digests.blob), size, 0o644, b'0')?)?;
    std::io::copy(&mut File::open(layer)?, &mut out)?;
    out.write_all(&padding(size))?;
    out.write_all(&[0; 2 * BLOCK as usize])?;
    out.flush()?;
    Ok(())
}

fn descriptor(media_type: &str, digest: &str, size: u64) -> Value {
    json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": size})
}

fn append(out: &mut impl Write, name: &str, bytes: &[u8]) -> Result<()> {
    out.write_all(&header(name, bytes.len() as u64, 0o644, b'0')?)?;
    out.write_all(bytes)?;
    out.write_all(&padding(bytes.len() as u64))?;
    Ok(())
}

/// One ustar header. Owner root, time zero: the digest depends on the content alone.
fn header(name: &str, size: u64, mode: u32, kind: u8) -> Result<[u8; BLOCK as usize]> {
    let mut block = [0_u8; BLOCK as usize];
    if name.len() > 100 {
        bail!("path {name:?} in an image: at most 100 bytes");
    }
    if size >= 1 << 33 {
        bail!("file {name:?} in an image: at most 8 GiB");
    }
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, format!("{mode:07o}\0").as_bytes());
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|b| u32::from(*b)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(block)
}

fn padding(size: u64) -> Vec<u8> {
    vec![0; (size.next_multiple_of(BLOCK) - size) as usize]
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

fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

struct Hashing<W> {
    inner: W,
    hash: Sha256,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        let written = self.inner.write(buf)?;
        self.hash.update(&buf[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_files_give_the_same_digest_and_others_do_not() {
        let dir = tempfile::tempdir().expect("a folder");
        let program = dir.path().join("program");
        let mut digests = Vec::new();
        for (round, (content, compressed)) in
            [("one", false), ("one", false), ("two", false), ("one", true), ("one", true)].into_iter().enumerate()
        {
            std::fs::write(&program, content).expect("written");
            let tar = dir.path().join(format!("{round}.tar"));
            let description = Description {
                reference: "example.test/x:1",
                entrypoint: &["/bin/program"],
                compressed,
                ..Description::default()
            };
            write_image(&tar, description, &[(&program, "/bin/program", 0o755)]).expect("an image");
            let name = read_name(&tar).expect("a name");
            assert_eq!(name.reference, "example.test/x:1");
            digests.push(name.digest);
        }
        assert_eq!(digests[0], digests[1]);
        assert_ne!(digests[0], digests[2]);
        assert_ne!(digests[0], digests[3]);
        assert_eq!(digests[3], digests[4]);
    }

    #[test]
    fn a_compressed_layer_unpacks_to_its_diff_id() {
        let dir = tempfile::tempdir().expect("a folder");
        let program = dir.path().join("program");
        std::fs::write(&program, vec![7_u8; 100_000]).expect("written");
        let layer = dir.path().join("layer.tar.gz");
        let digests = write_layer(&layer, true, &[(&program, "/program", 0o755)]).expect("a layer");
        let packed = std::fs::read(&layer).expect("read");
        assert!(packed.len() < 10_000, "{} bytes", packed.len());
        assert_eq!(digest(&packed), digests.blob);
        let unpacked = std::process::Command::new("gzip").arg("-dc").arg(&layer).output().expect("gzip runs");
        assert_eq!(digest(&unpacked.stdout), digests.archive);
    }

    #[test]
    fn tar_agrees_with_what_was_written() {
        let dir = tempfile::tempdir().expect("a folder");
        let program = dir.path().join("program");
        std::fs::write(&program, vec![7_u8; 1000]).expect("written");
        let layer = dir.path().join("layer.tar");
        write_layer(&layer, false, &[(&program, "/usr/bin/program", 0o755)]).expect("a layer");
        let listed = std::process::Command::new("tar").arg("-tvf").arg(&layer).output().expect("tar runs");
        assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        assert!(listed.contains("-rwxr-xr-x") && listed.contains("1000") && listed.contains("usr/bin/program"));
        assert!(listed.contains("drwxrwxrwt") && listed.contains("tmp/"), "{listed}");
    }
}
