//! The bdev under a disk. It is ours, has the attachment's name, and ends with the namespace.
//!
//! A file or block device becomes a bdev of the `aio` module. A bdev that a connector made is wrapped into a RAID 0 of
//! one: that gives it our name without touching the connector's, passes new sizes on, and hides from the host what
//! the storage answers to Identify. OVMF cannot boot from a passed-on Identify: its buffer spans two pages, which
//! SPDK's passthru refuses.

use crate::rpc::{
    Rpc, RpcError,
    methods::bdev::{
        AioCreate, AioDelete, AioRescan, Bdev, EnableHistogram, GetBdevs, RaidCreate, RaidDelete, RaidLevel,
        SetQosLimit,
    },
};
use planner::exposure::Limits;
use ports::{
    ErrorClass, PortError,
    emulation::{Backend, DiskFunction},
};
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// What every host can boot from.
const BLOCK_SIZE: u32 = 512;
/// Without a second disk no I/O is ever split at it.
const STRIP_KIB: u32 = 4;
/// How long a change of limits may keep the target from the next one, and how often to ask.
const SETTLES_WITHIN: Duration = Duration::from_secs(2);
const ASK_AGAIN: Duration = Duration::from_millis(20);
const RAID: &str = "Raid Volume";

fn find<'a>(bdevs: &'a [Bdev], name: &str) -> Option<&'a Bdev> {
    bdevs.iter().find(|bdev| bdev.is_called(name))
}

/// Makes the bdev `name`. One that an interrupted call left is taken over if it is the same, and replaced if not: no
/// namespace shows it.
pub(crate) async fn make(rpc: &Rpc, bdevs: &[Bdev], disk: &DiskFunction, name: &str) -> Result<(), PortError> {
    if let Some(left) = find(bdevs, name) {
        if is_over(left, &disk.backend, disk.read_only) {
            return Ok(());
        }
        delete(rpc, left).await.map_err(|e| e.at(&format!("{name}: deleting what was left of it")))?;
    }
    match &disk.backend {
        Backend::Path(path) => over_file(rpc, bdevs, disk, name, path).await,
        Backend::Bdev(base) => over_bdev(rpc, bdevs, disk, name, base).await,
        Backend::Rbd(source) => {
            let what = format!("{name}: the target connects images by a connector of its own, not {}", source.image);
            Err(PortError::new(ErrorClass::Unsupported, what))
        }
        Backend::Nbd(export) => {
            let what = format!("{name}: the target has no client of NBD for {}", export.name);
            Err(PortError::new(ErrorClass::Unsupported, what))
        }
    }
}

fn is_over(bdev: &Bdev, backend: &Backend, read_only: bool) -> bool {
    match backend {
        Backend::Path(path) => {
            bdev.file().is_some_and(|file| Path::new(file) == path)
                && bdev.driver_specific["aio"]["readonly"] == read_only
        }
        Backend::Bdev(base) => {
            let bases = &bdev.driver_specific["raid"]["base_bdevs_list"];
            bases.as_array().is_some_and(|all| all.iter().any(|one| one["name"] == base.as_str()))
        }
        Backend::Rbd(_) | Backend::Nbd(_) => false,
    }
}

async fn over_file(rpc: &Rpc, bdevs: &[Bdev], disk: &DiskFunction, name: &str, path: &Path) -> Result<(), PortError> {
    if let Some(user) = bdevs.iter().find(|b| b.file().is_some_and(|file| Path::new(file) == path)) {
        let message = format!("{name}: {} is in use by {}", path.display(), user.name);
        return Err(PortError::new(ErrorClass::Busy, message));
    }
    // The target sees the same files. It would say no more than "Invalid argument".
    if let Err(error) = tokio::fs::metadata(path).await {
        let class = match error.kind() {
            std::io::ErrorKind::NotFound => ErrorClass::NotFound,
            std::io::ErrorKind::PermissionDenied => ErrorClass::Unauthorized,
            _ => ErrorClass::Busy,
        };
        return Err(PortError::new(class, format!("{name}: {}: {error}", path.display())));
    }
    let create = AioCreate { name, filename: path, block_size: BLOCK_SIZE, readonly: disk.read_only };
    rpc.call(&create).await.map(drop).map_err(|e| e.at(&format!("{name} over {}", path.display())))
}

async fn over_bdev(rpc: &Rpc, bdevs: &[Bdev], disk: &DiskFunction, name: &str, base: &str) -> Result<(), PortError> {
    let error = |class, what: String| Err(PortError::new(class, format!("{name}: {what}")));
    if disk.read_only {
        let what = format!("SPDK cannot present bdev {base} read-only, and it is never shown writable");
        return error(ErrorClass::Unsupported, what);
    }
    let Some(bdev) = find(bdevs, base) else {
        return error(ErrorClass::NotFound, format!("the target has no bdev {base}"));
    };
    if bdev.claimed {
        return error(ErrorClass::Busy, format!("bdev {base} is in use inside the target"));
    }
    let create = RaidCreate { name, raid_level: RaidLevel::Raid0, strip_size_kb: STRIP_KIB, base_bdevs: vec![base] };
    let made = match rpc.call(&create).await {
        // No list of bdevs has it: of a request that came so late that it waits for a connection that has ended.
        Err(error) if error.is_exists() => {
            rpc.call(&RaidDelete { name }).await.map_err(|e| e.at(&format!("{name}: deleting what was left of it")))?;
            rpc.call(&create).await
        }
        made => made,
    };
    made.map(drop).map_err(|e| e.at(&format!("{name} over bdev {base}")))
}

/// Its I/O is limited, and the time that it takes is counted.
pub(crate) async fn measure(rpc: &Rpc, name: &str, limits: Limits) -> Result<(), PortError> {
    limit(rpc, name, limits).await?;
    let counted = rpc.call(&EnableHistogram { name, enable: true }).await;
    counted.map(drop).map_err(|e| e.at(&format!("{name}: counting latencies")))
}

/// To these limits and no other.
pub(crate) async fn limit(rpc: &Rpc, name: &str, limits: Limits) -> Result<(), PortError> {
    let limit = SetQosLimit { name, limits: limits.into() };
    let deadline = Instant::now() + SETTLES_WITHIN;
    loop {
        match rpc.call(&limit).await {
            // Still at the change before this one.
            Err(error) if error.is_again() && Instant::now() < deadline => tokio::time::sleep(ASK_AGAIN).await,
            answered => return answered.map(drop).map_err(|e| e.at(&format!("{name}: limiting it to {limits}"))),
        }
    }
}

/// Never called for a bdev that a namespace shows: SPDK would take the disk from under the host. Not there: success.
pub(crate) async fn delete(rpc: &Rpc, bdev: &Bdev) -> Result<(), RpcError> {
    let name = bdev.name.as_str();
    let deleted = if bdev.product_name == RAID {
        rpc.call(&RaidDelete { name }).await
    } else {
        rpc.call(&AioDelete { name }).await
    };
    match deleted {
        Err(e) if !e.is_gone() => Err(e),
        _ => Ok(()),
    }
}

/// Takes over the size of what is under it, which has to be `size_bytes` at least.
pub(crate) async fn grow(rpc: &Rpc, bdev: &Bdev, size_bytes: u64) -> Result<(), PortError> {
    let name = bdev.name.as_str();
    if bdev.file().is_some() {
        rpc.call(&AioRescan { name }).await.map_err(|e| e.at(name))?;
    }
    let now = rpc.call(&GetBdevs { name: Some(name) }).await.map_err(|e| e.at(name))?;
    let now = now.first().map(Bdev::size_bytes).unwrap_or_default();
    if now < size_bytes {
        let what = format!("{name}: the target sees {now} bytes of it, {size_bytes} are asked for");
        return Err(PortError::new(ErrorClass::Busy, what));
    }
    Ok(())
}
