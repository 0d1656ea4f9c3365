//! Who else has a volume: the nodes that the CSI driver has published it to.
//!
//! A volume has one client. Nodes are in the CSI driver's record of the volume (`volume.json`), a DPU that writes is in its
//! agent's (`writer.json`). Either side takes the pool's lock, looks at both records, and only then writes its own: of two
//! that ask at the same moment one is refused.

use crate::records;
use crate::volume::Located;
use serde::Deserialize;
use std::fs::File;
use std::io;

/// As much of the CSI driver's record as matters here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct VolumeRecord {
    /// By ControllerPublishVolume.
    published: Vec<Publication>,
    /// By NodeStageVolume: a cluster may do without an attacher.
    staged: Vec<Publication>,
}

#[derive(Debug, Deserialize)]
struct Publication {
    node: String,
}

/// Keeps the CSI driver, other DPUs and fences out of the pool until the file is dropped.
pub(crate) fn lock(located: &Located) -> io::Result<File> {
    let file = File::options().create(true).truncate(false).write(true).open(located.pool_lock())?;
    file.lock()?;
    Ok(file)
}

/// A node that has the volume. One that is not registered has nothing: so an administrator frees the volumes of a node that
/// will not come back.
pub(crate) fn node(located: &Located) -> io::Result<Option<String>> {
    let record = records::read::<VolumeRecord>(&located.record())?.unwrap_or_default();
    let mut nodes = record.published.into_iter().chain(record.staged).map(|publication| publication.node);
    Ok(nodes.find(|node| located.registration(node).is_some_and(|file| file.is_file())))
}
