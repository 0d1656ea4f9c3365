//! A layer: a tar archive of files, and the headers of that form.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::hex;

pub(super) const BLOCK: u64 = 512;

/// Both in hex.
pub(super) struct Digests {
    /// Of the archive: the layer's diff ID.
    pub(super) archive: String,
    /// Of the file, which is the archive or its gzip.
    pub(super) blob: String,
}

pub(super) fn write_layer(path: &Path, compressed: bool, files: &[(&Path, &str, u32)]) -> Result<Digests> {
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

/// One ustar header. Owner root, time zero: the digest depends on the content alone.
pub(super) fn header(name: &str, size: u64, mode: u32, kind: u8) -> Result<[u8; BLOCK as usize]> {
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

pub(super) fn padding(size: u64) -> Vec<u8> {
    vec![0; (size.next_multiple_of(BLOCK) - size) as usize]
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
    use super::super::digest;
    use super::*;

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
