//! Container images on the nodes, without a registry: a file is imported where its digest is not there yet.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cluster::{Site, words};
use crate::layout::{Layout, NodeId};
use crate::oci;
use crate::programs::Programs;

/// Large images on a busy machine take a while.
const IMPORT_LIMIT: Duration = Duration::from_secs(300);

/// Process 1 of every pod.
pub const PAUSE: &str = "metalplane.local/pause:1";

pub fn pause_tar(layout: &Layout) -> PathBuf {
    layout.dir.join("images/pause.tar")
}

pub fn write_pause(layout: &Layout, programs: &Programs) -> Result<()> {
    let description = oci::Description { reference: PAUSE, entrypoint: &["/pause"], ..oci::Description::default() };
    oci::write_image(&pause_tar(layout), description, &[(&programs.pause, "/pause", 0o755)])
}

/// Imports an image file into one node. Returns false when the node has that very image already.
pub async fn load(site: &Site, node: &NodeId, tar: &Path) -> Result<bool> {
    let image = oci::read_name(tar)?;
    let ctr = site.programs.containerd_program("ctr");
    let namespace = [ctr.as_ref(), "--namespace".as_ref(), "k8s.io".as_ref(), "images".as_ref()];
    let mut list = words(namespace);
    list.extend(["list".into(), format!("name=={}", image.reference).into()]);
    if site.in_node(node, list).await?.contains(&image.digest) {
        return Ok(false);
    }
    let mut import = words(namespace);
    import.extend(["import".into(), tar.into()]);
    site.in_node_within(node, import, IMPORT_LIMIT)
        .await
        .with_context(|| format!("cannot import {} into {}", image.reference, node.name))?;
    Ok(true)
}
