//! What this DPU has itself. No storage system knows of these volumes, so nothing can be told to refuse a writer: who
//! takes a block device that several DPUs reach gets fence `None`.
//!
//! A path becomes a bdev of `aio` or `uring`. A bdev that the target has already (a logical volume, a local disk, memory)
//! is claimed by a RAID 0 of one with the connection's name, which passes new sizes on.

use super::{BLOCK_SIZE, Claim, Held, Storage};
use crate::names;
use crate::rpc::methods::bdev::{
    AioCreate, AioDelete, AioRescan, Bdev, GetBdevs, RaidCreate, RaidDelete, RaidLevel, UringCreate, UringDelete,
    UringRescan,
};
use crate::rpc::{Rpc, RpcError};
use async_trait::async_trait;
use planner::exposure::ExposureId;
use planner::target::{LocalVolume, Module, Target};
use ports::{ErrorClass, PortError};
use std::path::Path;

pub const DRIVER: &str = "bdev.metalplane.io";

/// Without a second disk no I/O is ever split at it.
const STRIP_KIB: u32 = 4;

#[derive(Debug, Clone, Copy, Default)]
pub struct Local;

/// Present size of a file or block device, of which the target hears only when it is told to look.
async fn size_of(path: &str) -> std::io::Result<u64> {
    use tokio::io::AsyncSeekExt;
    let mut file = tokio::fs::File::open(path).await?;
    file.seek(std::io::SeekFrom::End(0)).await
}

/// Looked at before the target is asked, which would say no more than "Invalid argument".
async fn check_path(path: &str, bdevs: &[Bdev]) -> Result<(), PortError> {
    if let Some(user) = bdevs.iter().find(|bdev| [bdev.file(), bdev.ring()].contains(&Some(path))) {
        return Err(PortError::new(ErrorClass::Busy, format!("{path} is in use by {}", user.name)));
    }
    let size = size_of(path).await.map_err(|error| {
        let class = match error.kind() {
            std::io::ErrorKind::NotFound => ErrorClass::NotFound,
            std::io::ErrorKind::PermissionDenied => ErrorClass::Unauthorized,
            _ => ErrorClass::Busy,
        };
        PortError::new(class, format!("{path}: {error}"))
    })?;
    if size == 0 || size % u64::from(BLOCK_SIZE) != 0 {
        let cause = format!("{path} has {size} bytes, which is no number of blocks of {BLOCK_SIZE}");
        return Err(PortError::new(ErrorClass::Invalid, cause));
    }
    Ok(())
}

/// The bdev's own name: a logical volume is asked for by an alias.
fn own_name<'a>(name: &'a str, bdevs: &'a [Bdev]) -> &'a str {
    bdevs.iter().find(|bdev| bdev.is_called(name)).map_or(name, |bdev| bdev.name.as_str())
}

async fn over_bdev(rpc: &Rpc, name: &str, base: &str, bdevs: &[Bdev]) -> Result<(), PortError> {
    let Some(bdev) = bdevs.iter().find(|bdev| bdev.name == base) else {
        return Err(PortError::new(ErrorClass::NotFound, format!("the target has no bdev {base}")));
    };
    if names::parse_bdev(base).is_some() || names::parse_connection(base).is_some() {
        return Err(PortError::new(ErrorClass::Invalid, format!("bdev {base} is a disk or a connection of ours")));
    }
    if bdev.claimed {
        return Err(PortError::new(ErrorClass::Busy, format!("bdev {base} is in use inside the target")));
    }
    let create = RaidCreate { name, raid_level: RaidLevel::Raid0, strip_size_kb: STRIP_KIB, base_bdevs: vec![base] };
    rpc.call(&create).await.map(drop).map_err(|error| error.at(&format!("over bdev {base}")))
}

/// Takes over the size of the file under it.
async fn rescanned(rpc: &Rpc, bdev: &Bdev) -> Result<Bdev, RpcError> {
    let name = bdev.name.as_str();
    let (path, is_ring) = match (bdev.file(), bdev.ring()) {
        (Some(path), _) => (path, false),
        (None, Some(path)) => (path, true),
        (None, None) => return Ok(bdev.clone()),
    };
    let Ok(size) = size_of(path).await else { return Ok(Bdev { num_blocks: 0, ..bdev.clone() }) };
    if size < bdev.size_bytes() + bdev.block_size {
        return Ok(bdev.clone());
    }
    if is_ring {
        rpc.call(&UringRescan { name }).await?;
    } else {
        rpc.call(&AioRescan { name }).await?;
    }
    let now = rpc.call(&GetBdevs { name: Some(name) }).await?;
    Ok(now.into_iter().next().unwrap_or_else(|| bdev.clone()))
}

#[async_trait]
impl Storage for Local {
    type Place = LocalVolume;

    fn driver(&self) -> &'static str {
        DRIVER
    }

    fn identity(&self, id: &ExposureId) -> String {
        names::client(id)
    }

    fn place(&self, target: Target) -> Option<Result<LocalVolume, PortError>> {
        match target {
            Target::Local(place) => Some(Ok(place)),
            _ => None,
        }
    }

    fn key(&self, place: &LocalVolume, bdevs: &[Bdev]) -> String {
        own_name(&place.name, bdevs).to_owned()
    }

    async fn held(&self, rpc: &Rpc, bdevs: &[Bdev]) -> Result<Vec<Held>, RpcError> {
        let mut held = Vec::new();
        for bdev in bdevs {
            let key = bdev.file().or(bdev.ring()).or(bdev.base());
            if let (Some(key), Some(id)) = (key, names::parse_connection(&bdev.name)) {
                let bdev = rescanned(rpc, bdev).await?;
                held.push(Held { id, name: bdev.name.clone(), key: Some(key.to_owned()), bdev: Some(bdev), up: true });
            }
        }
        Ok(held)
    }

    async fn attach(&self, rpc: &Rpc, claim: &Claim<'_>, place: &LocalVolume, bdevs: &[Bdev]) -> Result<(), PortError> {
        let (name, filename) = (claim.name, Path::new(&place.name));
        let made = match place.module {
            Module::Bdev => return over_bdev(rpc, name, own_name(&place.name, bdevs), bdevs).await,
            Module::Aio => {
                check_path(&place.name, bdevs).await?;
                rpc.call(&AioCreate { name, filename, block_size: BLOCK_SIZE, readonly: false }).await
            }
            Module::Uring => {
                check_path(&place.name, bdevs).await?;
                rpc.call(&UringCreate { name, filename, block_size: BLOCK_SIZE }).await
            }
        };
        made.map(drop).map_err(|error| error.at(&place.name))
    }

    async fn detach(&self, rpc: &Rpc, held: &Held) -> Result<(), RpcError> {
        let name = held.name.as_str();
        match &held.bdev {
            Some(bdev) if bdev.file().is_some() => rpc.call(&AioDelete { name }).await.map(drop),
            Some(bdev) if bdev.ring().is_some() => rpc.call(&UringDelete { name }).await.map(drop),
            _ => rpc.call(&RaidDelete { name }).await.map(drop),
        }
    }
}
