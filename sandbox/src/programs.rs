//! The outside programs of a sandbox: given, found, or built from the pinned Go modules below `tools/`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use crate::outside;
use crate::preflight::Preflight;

const KUBERNETES: [&str; 10] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "kube-proxy",
    "ptp",
    "host-local",
    "loopback",
];
const CONTAINERD: [&str; 3] = ["containerd", "containerd-shim-runc-v2", "ctr"];
/// The oldest Kubernetes that has everything our manifests use.
const OLDEST_MINOR: u32 = 33;
const BUILD_SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tools/build.sh");

#[derive(Clone, Debug)]
pub struct Programs {
    pub kubernetes: PathBuf,
    pub containerd: PathBuf,
    /// Process 1 of pods; a package of the workspace.
    pub pause: PathBuf,
    preflight: Preflight,
}

impl Programs {
    pub async fn find(given: Option<&Path>, preflight: Preflight) -> Result<Self> {
        let pause = std::env::current_exe()?.with_file_name("pause");
        if !pause.exists() {
            bail!("{} is missing: build it with `cargo build --workspace`", pause.display());
        }
        let kubernetes = match given_kubernetes(given, &preflight).await {
            Some(folder) => folder,
            None => build("kubernetes").await?,
        };
        let containerd = match preflight.folder_with_all(&CONTAINERD) {
            Some(folder) if containerd_fits(&folder).await => folder,
            _ => build("containerd").await?,
        };
        Ok(Self { kubernetes, containerd, pause, preflight })
    }

    /// What every process of the sandbox gets: PATH, and where unpacked packages have their libraries.
    pub fn environment(&self) -> BTreeMap<String, String> {
        self.preflight.environment(&[&self.kubernetes, &self.containerd])
    }

    pub fn kubernetes_program(&self, name: &str) -> String {
        self.kubernetes.join(name).to_string_lossy().into_owned()
    }

    pub fn containerd_program(&self, name: &str) -> String {
        self.containerd.join(name).to_string_lossy().into_owned()
    }

    /// A file below `/usr/share`, or where a package was unpacked.
    pub fn shared_file(&self, name: &str) -> Result<PathBuf> {
        self.preflight.shared_file(name)
    }
}

async fn given_kubernetes(given: Option<&Path>, preflight: &Preflight) -> Option<PathBuf> {
    let given = given.filter(|folder| KUBERNETES.iter().all(|name| folder.join(name).exists()));
    let folder = given.map(Path::to_owned).or_else(|| preflight.folder_with_all(&KUBERNETES))?;
    let version = outside::run(folder.join("kube-apiserver"), ["--version"]).await.ok()?;
    let minor = minor_version(&version)?;
    if minor < OLDEST_MINOR {
        tracing::info!("{} has {}: too old, not used", folder.display(), version.trim());
        return None;
    }
    Some(folder)
}

/// containerd before 2 reads another configuration.
async fn containerd_fits(folder: &Path) -> bool {
    let version = outside::run(folder.join("containerd"), ["--version"]).await.unwrap_or_default();
    version.split_ascii_whitespace().any(|word| word.trim_start_matches('v').starts_with("2."))
}

fn minor_version(text: &str) -> Option<u32> {
    text.trim().rsplit_once('v')?.1.split('.').nth(1)?.parse().ok()
}

/// Builds one module; the script builds nothing when that was done before.
pub async fn build(module: &str) -> Result<PathBuf> {
    let output = Command::new(BUILD_SCRIPT)
        .arg(module)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .await
        .with_context(|| format!("cannot run {BUILD_SCRIPT}"))?;
    if !output.status.success() {
        bail!("`{BUILD_SCRIPT} {module}` failed ({}); its messages are above", output.status);
    }
    let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    if !folder.is_dir() {
        bail!("`{BUILD_SCRIPT} {module}` printed {:?}, which is no folder", folder.display());
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minor_version_is_found() {
        assert_eq!(minor_version("Kubernetes v1.37.1\n"), Some(37));
        assert_eq!(minor_version("Kubernetes\n"), None);
    }
}
