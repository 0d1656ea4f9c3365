//! Logical volumes, by `lvstore/volume` or by UUID.

use super::{Done, methods};
use serde::Deserialize;

methods! {
    /// All bdevs, with what only a logical volume has.
    "bdev_get_bdevs" => Vec<LvolBdev>, GetLvolBdevs {}
    "bdev_lvol_get_lvstores" => Vec<Lvstore>, GetLvstores<'a> { lvs_name: &'a str }
    /// The answer is its UUID.
    "bdev_lvol_create" => String, Create<'a> {
        lvs_name: &'a str,
        lvol_name: &'a str,
        size_in_mib: u64,
        thin_provision: bool,
    }
    "bdev_lvol_snapshot" => String, Snapshot<'a> { lvol_name: &'a str, snapshot_name: &'a str }
    "bdev_lvol_clone" => String, CloneSnapshot<'a> { snapshot_name: &'a str, clone_name: &'a str }
    /// Both without the lvstore's name.
    "bdev_lvol_rename" => Done, Rename<'a> { old_name: &'a str, new_name: &'a str }
    /// Larger or smaller, without asking.
    "bdev_lvol_resize" => Done, Resize<'a> { name: &'a str, size_in_mib: u64 }
    /// Answers when all is copied.
    "bdev_lvol_decouple_parent" => Done, DecoupleParent<'a> { name: &'a str }
    /// Takes the namespaces on it away, too.
    "bdev_lvol_delete" => Done, Delete<'a> { name: &'a str }
    /// 0: no limit.
    "bdev_set_qos_limit" => Done, SetLimits<'a> {
        name: &'a str,
        rw_ios_per_sec: u64,
        rw_mbytes_per_sec: u64,
        r_mbytes_per_sec: u64,
        w_mbytes_per_sec: u64,
    }
}

#[derive(Debug, Clone, Deserialize)]
pub struct Lvstore {
    pub total_data_clusters: u64,
    pub free_clusters: u64,
    pub cluster_size: u64,
}

/// Its own name is its UUID.
#[derive(Debug, Clone, Deserialize)]
pub struct LvolBdev {
    pub name: String,
    #[serde(default)]
    pub aliases: Vec<String>,
    #[serde(default)]
    pub uuid: String,
    pub block_size: u64,
    pub num_blocks: u64,
    #[serde(default)]
    pub assigned_rate_limits: AssignedLimits,
    #[serde(default)]
    pub supported_io_types: IoTypes,
    #[serde(default)]
    pub driver_specific: Specific,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct AssignedLimits {
    #[serde(default)]
    pub rw_ios_per_sec: u64,
    #[serde(default)]
    pub rw_mbytes_per_sec: u64,
    #[serde(default)]
    pub r_mbytes_per_sec: u64,
    #[serde(default)]
    pub w_mbytes_per_sec: u64,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct IoTypes {
    /// `None`: it is not said.
    #[serde(default)]
    pub write: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct Specific {
    /// `None`: it is of another kind.
    #[serde(default)]
    pub lvol: Option<Details>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct Details {
    /// Not of one without clones that a target loaded when it started.
    #[serde(default)]
    pub snapshot: bool,
    #[serde(default)]
    pub base_snapshot: Option<String>,
    #[serde(default)]
    pub clones: Vec<String>,
}
