//! Writes a container image as one file: an OCI image layout in a tar archive, as `ctr images import` takes it.
//!
//! An image here is one layer of static programs: no base, no engine, and the same bytes in give the same digest out, so a node
//! that has the image already can be told apart from one that has not. What ships is an index of one manifest for each architecture,
//! of which a node takes its own.

mod layer;
mod read;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::architecture::Architecture;
use layer::{BLOCK, Digests, header, padding, write_layer};
pub use read::{Blob, Content, ImageName, Manifest, read_content, read_name};

const NAME_ANNOTATION: &str = "io.containerd.image.name";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

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

/// Path on this machine, path in the image, mode.
pub type Files<'a> = [(&'a Path, &'a str, u32)];

/// Writes the image with these files, for machines like this one, to `path_out`.
pub fn write_image(path_out: &Path, description: Description<'_>, files: &Files<'_>) -> Result<()> {
    write(path_out, description, &[(Architecture::here(), files)], Top::Manifest)
}

/// The same for the architectures of nodes, each with its files. It is an index for one architecture too: a node of another one refuses an
/// index that lacks its own, but starts the program of a bare manifest whatever architecture that is of, which ends with `exec format error`.
pub fn write_images(
    path_out: &Path,
    description: Description<'_>,
    variants: &[(Architecture, &Files<'_>)],
) -> Result<()> {
    write(path_out, description, variants, Top::Index)
}

/// What the reference stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Top {
    Manifest,
    Index,
}

fn write(
    path_out: &Path,
    description: Description<'_>,
    variants: &[(Architecture, &Files<'_>)],
    top: Top,
) -> Result<()> {
    let reference = description.reference;
    let folder = path_out.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let part = path_out.with_extension("part");
    let layers: Vec<PathBuf> =
        variants.iter().map(|(architecture, _)| path_out.with_extension(format!("{architecture}.layer"))).collect();
    let write_all = || -> Result<()> {
        ensure!(!variants.is_empty(), "it would have no architecture");
        let mut written = Vec::new();
        for ((architecture, files), path) in variants.iter().zip(&layers) {
            let digests = write_layer(path, description.compressed, files)?;
            written.push(Layer { architecture: *architecture, path, digests });
        }
        write_layout(&part, description, &written, top)?;
        Ok(std::fs::rename(&part, path_out)?)
    };
    let written = write_all().with_context(|| format!("cannot write the image {reference} to {}", path_out.display()));
    for rest in layers.iter().chain([&part]) {
        let _ = std::fs::remove_file(rest);
    }
    written
}

struct Layer<'a> {
    architecture: Architecture,
    path: &'a Path,
    digests: Digests,
}

/// By the OCI image layout.
fn blob_path(digest: &str) -> String {
    format!("blobs/{}", digest.replacen(':', "/", 1))
}

fn write_layout(path: &Path, description: Description<'_>, layers: &[Layer<'_>], top: Top) -> Result<()> {
    let mut documents = Vec::new();
    let mut entries = Vec::new();
    for layer in layers {
        let config = config(description, layer)?;
        let manifest = manifest(description, layer, &config)?;
        let entry = descriptor(MANIFEST, &digest(&manifest), manifest.len() as u64);
        entries.push(with(entry, "platform", json!({"os": "linux", "architecture": layer.architecture.name()})));
        documents.extend([manifest, config]);
    }
    if top == Top::Index {
        let index = serde_json::to_vec(&json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}))?;
        entries = vec![descriptor(INDEX, &digest(&index), index.len() as u64)];
        documents.insert(0, index);
    }
    let name = json!({NAME_ANNOTATION: description.reference});
    let entries: Vec<Value> = entries.into_iter().map(|entry| with(entry, "annotations", name.clone())).collect();

    let mut out = BufWriter::new(File::create(path)?);
    // The index first: a reader that wants the name need not pass the layers.
    append(&mut out, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    append(&mut out, "index.json", &serde_json::to_vec(&json!({"schemaVersion": 2, "manifests": entries}))?)?;
    for document in documents {
        append(&mut out, &format!("blobs/sha256/{}", digest(&document)), &document)?;
    }
    for layer in layers {
        let size = layer.path.metadata()?.len();
        out.write_all(&header(&format!("blobs/sha256/{}", layer.digests.blob), size, 0o644, b'0')?)?;
        std::io::copy(&mut File::open(layer.path)?, &mut out)?;
        out.write_all(&padding(size))?;
    }
    out.write_all(&[0; 2 * BLOCK as usize])?;
    out.flush()?;
    Ok(())
}

fn config(description: Description<'_>, layer: &Layer<'_>) -> Result<Vec<u8>> {
    let Description { entrypoint, labels, .. } = description;
    let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
    Ok(serde_json::to_vec(&json!({
        "architecture": layer.architecture.name(),
        "os": "linux",
        "config": {"Entrypoint": entrypoint, "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", layer.digests.archive)]},
    }))?)
}

fn manifest(description: Description<'_>, layer: &Layer<'_>, config: &[u8]) -> Result<Vec<u8>> {
    // "Image Layer Filesystem Changeset" of the specification.
    let kind = ["application/vnd.oci.image.layer.v1.tar", if description.compressed { "+gzip" } else { "" }].concat();
    Ok(serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": descriptor("application/vnd.oci.image.config.v1+json", &digest(config), config.len() as u64),
        "layers": [descriptor(&kind, &layer.digests.blob, layer.path.metadata()?.len())],
    }))?)
}

fn with(mut entry: Value, name: &str, value: Value) -> Value {
    entry[name] = value;
    entry
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

fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
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
    fn an_index_names_the_manifest_of_each_architecture() {
        let dir = tempfile::tempdir().expect("a folder");
        let programs = ["amd64", "arm64"].map(|name| {
            let program = dir.path().join(name);
            std::fs::write(&program, name).expect("written");
            program
        });
        let files = [0, 1].map(|at: usize| [(programs[at].as_path(), "/program", 0o755)]);
        let variants = [(Architecture::Amd64, &files[0][..]), (Architecture::Arm64, &files[1][..])];
        let tar = dir.path().join("x.tar");
        let description = Description { reference: "example.test/x:1", ..Description::default() };
        write_images(&tar, description, &variants).expect("an image");
        let content = read_content(&tar).expect("its content");
        let kinds: Vec<&str> = content.manifests.iter().map(|manifest| manifest.media_type.as_str()).collect();
        assert_eq!(kinds, [MANIFEST, MANIFEST, INDEX]);
        assert_eq!(content.blobs.len(), 4);
        let [.., top] = content.manifests.as_slice() else { panic!("no index") };
        assert_eq!(read_name(&tar).expect("a name").digest, top.digest);
        let index: Value = serde_json::from_slice(&top.bytes).expect("JSON");
        for (at, architecture) in ["amd64", "arm64"].into_iter().enumerate() {
            let entry = &index["manifests"][at];
            assert_eq!(entry["platform"], json!({"os": "linux", "architecture": architecture}));
            assert_eq!(entry["digest"], *content.manifests[at].digest);
        }
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 3, "layers are left");
    }

    #[test]
    fn an_image_of_one_architecture_says_of_which() {
        let dir = tempfile::tempdir().expect("a folder");
        let program = dir.path().join("program");
        std::fs::write(&program, "arm64").expect("written");
        let tar = dir.path().join("x.tar");
        let description = Description { reference: "example.test/x:1", ..Description::default() };
        let files = [(program.as_path(), "/program", 0o755)];
        write_images(&tar, description, &[(Architecture::Arm64, &files)]).expect("an image");
        let content = read_content(&tar).expect("its content");
        let [_, top] = content.manifests.as_slice() else { panic!("{} manifests", content.manifests.len()) };
        assert_eq!(top.media_type, INDEX);
        let index: Value = serde_json::from_slice(&top.bytes).expect("JSON");
        assert_eq!(index["manifests"].as_array().map(Vec::len), Some(1));
        assert_eq!(index["manifests"][0]["platform"], json!({"os": "linux", "architecture": "arm64"}));
    }
}
