//! What `rootio` reads: the storage section of a server's metadata, in the shape of Packet's, as Tinkerbell's metadata service serves it.

use serde::Deserialize;

#[derive(Debug, Deserialize)]
struct Document {
    metadata: Metadata,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    #[serde(default)]
    instance: Instance,
}

#[derive(Debug, Default, Deserialize)]
struct Instance {
    #[serde(default)]
    storage: Storage,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Storage {
    #[serde(default)]
    pub(super) disks: Vec<Disk>,
    #[serde(default)]
    pub(super) filesystems: Vec<Filesystem>,
    #[serde(default)]
    raid: Vec<serde_json::Value>,
    #[serde(default)]
    volume_groups: Vec<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Disk {
    pub(super) device: String,
    #[serde(default)]
    pub(super) wipe_table: bool,
    #[serde(default)]
    pub(super) partitions: Vec<Partition>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Partition {
    #[serde(default)]
    pub(super) label: String,
    pub(super) number: usize,
    /// In sectors of 512 bytes; 0: what is left.
    #[serde(default)]
    pub(super) size: u64,
    start: Option<u64>,
    type_guid: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Filesystem {
    pub(super) mount: Mount,
}

#[derive(Debug, Deserialize)]
pub(super) struct Mount {
    pub(super) device: String,
    pub(super) format: String,
    #[serde(default)]
    pub(super) point: String,
    #[serde(default)]
    pub(super) create: Create,
    #[serde(default)]
    files: Vec<serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Create {
    #[serde(default)]
    pub(super) options: Vec<String>,
}

impl Storage {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let document: Document =
            serde_json::from_str(text).map_err(|error| format!("the metadata cannot be read: {error}"))?;
        let storage = document.metadata.instance.storage;
        for (key, has) in [("raid", !storage.raid.is_empty()), ("volume_groups", !storage.volume_groups.is_empty())] {
            if has {
                return Err(format!(
                    "storage.{key}: the installer makes none: leave it out, or boot HookOS or Captain"
                ));
            }
        }
        Ok(storage)
    }

    /// Keys that are there, and that rootio does not read.
    pub(super) fn unread(&self) -> Vec<String> {
        let mut unread = Vec::new();
        for (at, disk) in self.disks.iter().enumerate() {
            for (number, partition) in disk.partitions.iter().enumerate() {
                let keys = [("start", partition.start.is_some()), ("type_guid", partition.type_guid.is_some())];
                let there = keys.into_iter().filter(|(_, has)| *has);
                unread.extend(there.map(|(key, _)| format!("storage.disks[{at}].partitions[{number}].{key}")));
            }
        }
        let with_files = self.filesystems.iter().enumerate().filter(|(_, one)| !one.mount.files.is_empty());
        unread.extend(with_files.map(|(at, _)| format!("storage.filesystems[{at}].mount.files")));
        unread
    }
}
