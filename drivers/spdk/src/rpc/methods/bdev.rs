//! Block devices.

use super::{Done, methods};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;

methods! {
    "bdev_get_bdevs" => Vec<Bdev>, GetBdevs<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<&'a str>,
    }
    "bdev_aio_create" => Done, AioCreate<'a> { name: &'a str, filename: &'a Path, block_size: u32, readonly: bool }
    /// Takes over the file's present size.
    "bdev_aio_rescan" => Done, AioRescan<'a> { name: &'a str }
    "bdev_aio_delete" => Done, AioDelete<'a> { name: &'a str }
    "bdev_uring_create" => Done, UringCreate<'a> { name: &'a str, filename: &'a Path, block_size: u32 }
    "bdev_uring_rescan" => Done, UringRescan<'a> { name: &'a str }
    "bdev_uring_delete" => Done, UringDelete<'a> { name: &'a str }
    "bdev_iscsi_create" => Done, IscsiCreate<'a> { name: &'a str, initiator_iqn: &'a str, url: &'a str }
    "bdev_iscsi_delete" => Done, IscsiDelete<'a> { name: &'a str }
    "bdev_raid_create" => Done, RaidCreate<'a> {
        name: &'a str,
        raid_level: RaidLevel,
        strip_size_kb: u32,
        base_bdevs: Vec<&'a str>,
    }
    "bdev_raid_delete" => Done, RaidDelete<'a> { name: &'a str }
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RaidLevel {
    Raid0,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Bdev {
    pub name: String,
    #[serde(default)]
    pub aliases: Vec<String>,
    pub product_name: String,
    #[serde(default)]
    pub uuid: String,
    pub block_size: u64,
    pub num_blocks: u64,
    #[serde(default)]
    pub claimed: bool,
    #[serde(default)]
    pub driver_specific: Value,
}

impl Bdev {
    pub fn size_bytes(&self) -> u64 {
        self.block_size.saturating_mul(self.num_blocks)
    }

    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }

    /// The file behind it, if it is one of the `aio` module.
    pub fn file(&self) -> Option<&str> {
        self.driver_specific["aio"]["filename"].as_str()
    }

    /// Of the `uring` module.
    pub fn ring(&self) -> Option<&str> {
        self.driver_specific["uring"]["filename"].as_str()
    }

    /// What a RAID of one stands on.
    pub fn base(&self) -> Option<&str> {
        match self.driver_specific["raid"]["base_bdevs_list"].as_array()?.as_slice() {
            [base] => base["name"].as_str(),
            _ => None,
        }
    }
}
