//! One image onto a disk, by the crate `imaging` as the installer's image2disk calls it: a disk that is empty behind the image, no
//! checksum, ends zeroed after a failure, all of it flushed.

use anyhow::{Context, Result};
use imaging::{Authorities, FileDisk, Packing, Progress, Proxies, Rest, Source, Target};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::time::Instant;
use tokio::sync::Notify;

#[derive(clap::Args)]
pub struct Options {
    url: String,
    disk: PathBuf,
    /// The disk's, in bytes
    size: u64,
}

#[derive(Debug, Serialize)]
pub struct Measured {
    pub seconds: f64,
    /// As they were sent, and as they were written.
    pub bytes: u64,
    pub unpacked: u64,
}

pub fn run(options: &Options) -> Result<Measured> {
    // One thread for the network, as in the installer.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start tokio")?;
    let name = format!("disk {}", options.disk.display());
    let source = Source {
        url: options.url.clone(),
        checksum: None,
        checksum_field: "CHECKSUM",
        packing: Packing::ByMagic,
        user_agent: "boot-load".to_owned(),
        authorities: Authorities::Public,
        authorities_field: "CA_BUNDLE",
        access: None,
        proxies: Proxies::default(),
    };
    let target = Target {
        name: name.clone(),
        size_bytes: options.size,
        too_small: "choose a larger disk",
        rest: Rest::Zeroed,
        wipe: true,
    };
    let (bytes, of, wake) = (AtomicU64::new(0), AtomicU64::new(0), Notify::new());
    let progress = Progress { bytes: &bytes, of: &of, wake: &wake };
    let began = Instant::now();
    let disk = FileDisk::exclusive(&options.disk, options.size, true).with_context(|| format!("open {name}"))?;
    let copied = runtime.block_on(imaging::copy(&source, target, Box::new(disk), &progress, std::future::pending()))?;
    Ok(Measured { seconds: began.elapsed().as_secs_f64(), bytes: copied.bytes, unpacked: copied.unpacked })
}
