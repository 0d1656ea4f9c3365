//! Block devices.

use super::{Done, methods};
use planner::exposure::Limits;
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
    /// Each is changed that is named.
    "bdev_set_qos_limit" => Done, SetQosLimit<'a> {
        name: &'a str,
        #[serde(flatten)]
        limits: RateLimits,
    }
    "bdev_get_iostat" => Iostat, GetIostat {}
    /// Of these bdevs; since SPDK 26.01.
    "bdev_get_iostat" => Iostat, GetIostatOf<'a> { names: [&'a str; 1] }
    /// Of one bdev; until SPDK 26.01.
    "bdev_get_iostat" => Iostat, GetIostatOfOne<'a> { name: &'a str }
    "bdev_enable_histogram" => Done, EnableHistogram<'a> { name: &'a str, enable: bool }
    "bdev_get_histogram" => Histogram, GetHistogram<'a> { name: &'a str }
}

#[derive(Debug, Clone, Deserialize)]
pub struct Iostat {
    /// Ticks in a second.
    pub tick_rate: u64,
    pub bdevs: Vec<BdevTraffic>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct BdevTraffic {
    pub name: String,
    pub num_read_ops: u64,
    pub bytes_read: u64,
    pub read_latency_ticks: u64,
    pub num_write_ops: u64,
    pub bytes_written: u64,
    pub write_latency_ticks: u64,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Histogram {
    /// Numbers of 64 bits, in base 64.
    pub histogram: String,
    /// SPDK 23.01 calls it `bucket_shift`, and counts from range 0 on.
    #[serde(alias = "bucket_shift")]
    pub granularity: u32,
    #[serde(default)]
    pub min_range: u32,
    pub tsc_rate: u64,
}

/// As a bdev has them; 0: none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimits {
    pub rw_ios_per_sec: u64,
    pub rw_mbytes_per_sec: u64,
    pub r_mbytes_per_sec: u64,
    pub w_mbytes_per_sec: u64,
}

impl From<Limits> for RateLimits {
    fn from(limits: Limits) -> Self {
        Self {
            rw_ios_per_sec: limits.iops.unwrap_or_default(),
            rw_mbytes_per_sec: limits.bandwidth_mib.unwrap_or_default(),
            r_mbytes_per_sec: limits.read_mib.unwrap_or_default(),
            w_mbytes_per_sec: limits.write_mib.unwrap_or_default(),
        }
    }
}

impl From<RateLimits> for Limits {
    fn from(limits: RateLimits) -> Self {
        let limit = |number: u64| (number > 0).then_some(number);
        Self {
            iops: limit(limits.rw_ios_per_sec),
            bandwidth_mib: limit(limits.rw_mbytes_per_sec),
            read_mib: limit(limits.r_mbytes_per_sec),
            write_mib: limit(limits.w_mbytes_per_sec),
        }
    }
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
    pub assigned_rate_limits: RateLimits,
    #[serde(default)]
    pub driver_specific: Value,
}

impl Bdev {
    pub fn size_bytes(&self) -> u64 {
        self.block_size.saturating_mul(self.num_blocks)
    }

    pub fn limits(&self) -> Limits {
        self.assigned_rate_limits.into()
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
