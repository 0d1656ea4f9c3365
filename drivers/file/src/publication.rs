//! Who else has a volume: the nodes that the CSI driver has published it to, and other DPUs.
//!
//! Who writes is a volume's only client; readers may share it. Nodes are in the CSI driver's record of the volume (`volume.json`),
//! a DPU that writes is in its agent's (`writer.json`), one that reads has a file in the pool's folder `readers`. Each side
//! takes the pool's lock, looks at all three, and only then writes its own: of two that ask at the same moment one is refused.

use crate::records;
use crate::volume::{Located, readers};
use serde::Deserialize;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

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
#[serde(rename_all = "camelCase")]
struct Publication {
    node: String,
    #[serde(default)]
    read_only: bool,
}

/// Keeps the CSI driver, other DPUs and fences out of the pool until the file is dropped.
pub(crate) fn lock(located: &Located) -> io::Result<File> {
    let file = File::options().create(true).truncate(false).write(true).open(located.pool_lock())?;
    file.lock()?;
    Ok(file)
}

/// A node that has the volume and is in the way: of a reader only who writes is. A node that is not registered has nothing: so
/// an administrator frees the volumes of a node that will not come back.
pub(crate) fn node(located: &Located, reads: bool) -> io::Result<Option<String>> {
    let record = records::read::<VolumeRecord>(&located.record())?.unwrap_or_default();
    let all = record.published.into_iter().chain(record.staged);
    let mut nodes = all.filter(|publication| !(reads && publication.read_only)).map(|publication| publication.node);
    Ok(nodes.find(|node| located.registration(node).is_some_and(|file| file.is_file())))
}

/// Another DPU's file, by which it reads the volume.
pub(crate) fn reader(located: &Located) -> io::Result<Option<PathBuf>> {
    let own = located.reader("");
    let of_it = |file: &PathBuf| file.as_os_str().as_encoded_bytes().starts_with(own.as_os_str().as_encoded_bytes());
    Ok(files(located.pool())?.into_iter().find(of_it))
}

pub(crate) fn write_reader(located: &Located, identity: &str) -> io::Result<()> {
    let folder = readers(located.pool());
    fs::create_dir_all(&folder)?;
    fs::write(located.reader(identity), "")?;
    File::open(folder)?.sync_all()
}

/// Whatever volume it was: nobody is left who knows, where a connect was interrupted or the DPU has booted since.
pub(crate) fn forget_reader(pool: &Path, identity: &str) -> io::Result<()> {
    let of_it = |file: &PathBuf| file.extension().is_some_and(|extension| extension == identity);
    files(pool)?.iter().filter(|file| of_it(file)).try_for_each(|file| records::remove(file))
}

fn files(pool: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(readers(pool)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.map(|entry| Ok(entry?.path())).collect(),
    }
}
