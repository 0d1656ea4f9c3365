//! Golden images: built once, served by HTTP inside the sandbox, imported as MachineImages.

use super::{GuestKind, POOL_CLASS, STORAGE_CLASS, Site, until};
use anyhow::{Context, Result};
use sandbox::supervisor::process::ProcessSpec;
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PORT: u16 = 8000;

impl Site {
    /// Imports the golden image of `kind` as the MachineImage `name` of a namespace, or as a ClusterMachineImage.
    pub async fn golden_image(&self, kind: GuestKind, namespace: Option<&str>, name: &str) -> Result<()> {
        let (url, checksum, size) = self.golden_source(kind).await?;
        let class = self.spdk.as_ref().map_or(STORAGE_CLASS, |_| POOL_CLASS);
        let (what, place) = match namespace {
            Some(namespace) => ("MachineImage", format!(", namespace: {namespace}")),
            None => ("ClusterMachineImage", String::new()),
        };
        self.apply(&format!(
            "apiVersion: metalplane.io/v1alpha1\nkind: {what}\nmetadata: {{name: {name}{place}}}\nspec:\n  source:\n    \
             http: {{url: \"{url}\", checksum: \"sha256:{checksum}\"}}\n  size: \"{size}\"\n  storageClassName: {class}\n"
        ))
        .await?;
        let object = format!("{}/{name}", what.to_lowercase());
        let mut get = vec![object.as_str()];
        get.extend(namespace.iter().flat_map(|namespace| ["-n", namespace]));
        until(&format!("{what} {name} is Ready"), Duration::from_secs(300), async || {
            let image = self.get(&get).await?.unwrap_or_default();
            let conditions = image["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let ready = conditions.iter().find(|c| c["type"] == "Ready");
            Ok(match ready {
                Some(condition) if condition["status"] == "True" => Ok(()),
                Some(condition) => Err(format!("{}: {}", condition["reason"], condition["message"])),
                None => Err("no condition yet".to_owned()),
            })
        })
        .await
    }

    /// Where the golden image is served, its SHA-256, and its size.
    pub async fn golden_source(&self, kind: GuestKind) -> Result<(String, String, u64)> {
        let cache = sandbox::args::cache_folder();
        let disk = tokio::task::spawn_blocking(move || sandbox::guest::image(kind, &cache)).await??;
        let folder = disk.parent().context("an image lies in a folder")?.to_owned();
        let hashed = disk.clone();
        let checksum = tokio::task::spawn_blocking(move || checksum(&hashed)).await??;
        let size = std::fs::metadata(&disk)?.len();
        let port = PORT + kind as u16;
        self.serve(kind, &folder, port).await?;
        let url = format!("http://{}:{port}/disk.raw", sandbox::layout::API_ADDRESS);
        Ok((url, checksum, size))
    }

    async fn serve(&self, kind: GuestKind, folder: &Path, port: u16) -> Result<()> {
        let name = format!("control-plane/images-{}", kind.name());
        if self.sandbox.list().await?.iter().any(|process| process.name == name) {
            return Ok(());
        }
        let listen = format!("{}:{port}", sandbox::layout::API_ADDRESS);
        let program = super::program("sandbox")?.display().to_string();
        let argv =
            [program, "serve-files".into(), "--listen".into(), listen, "--folder".into(), folder.display().to_string()];
        self.sandbox.spawn(&ProcessSpec::new(name, argv).enter(sandbox::layout::CONTROL_PLANE)).await
    }
}

/// SHA-256 of a file, kept beside it: the image never changes once built.
fn checksum(disk: &Path) -> Result<String> {
    let kept: PathBuf = disk.with_extension("sha256");
    if let Ok(text) = std::fs::read_to_string(&kept) {
        return Ok(text);
    }
    let mut file = std::fs::File::open(disk).with_context(|| format!("open {}", disk.display()))?;
    let (mut hasher, mut piece) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut piece)? {
            0 => break,
            read => hasher.update(&piece[..read]),
        }
    }
    let text: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    std::fs::write(&kept, &text).with_context(|| format!("write {}", kept.display()))?;
    Ok(text)
}
