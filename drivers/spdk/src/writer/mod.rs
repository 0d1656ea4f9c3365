//! [`VolumeWriter`] on what the target has connected: while an import runs, the target shows the bdev as a vhost-user-blk disk
//! on a socket of its own, and this process opens it as a virtual machine would.
//!
//! | file | what |
//! |---|---|
//! | [`disk`] | the disk: what it can do, one request at a time |
//! | [`ring`] | the memory that is shared with the target |
//!
//! It needs no module of the kernel, and nothing is in it that the target does not have for virtual machines. The target has to have vhost
//! (`nvmf_tgt` has not), and a folder for its sockets.
//!
//! The controller is named after the attachment ([`names::writer`]). It is made for one writer and deleted behind it; one that an agent left
//! behind when it ended has nobody connected, by which [`sweep`] tells it.
//!
//! A thin volume stays thin: what reads as zero is not written with zeros. It is read, because neither a discard nor a
//! fresh volume promises zeros, and because SPDK's logical volumes take up space for zeros that are written.

mod disk;
mod ring;

use crate::names;
use crate::rpc::methods::vhost::{Controller, CreateBlkController, DeleteController, GetControllers};
use crate::rpc::{Rpc, RpcError, error};
use disk::Disk;
use planner::exposure::ExposureId;
use ports::volume::VolumeWriter;
use ports::{ErrorClass, PortError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// How long the target may take to see that a writer has left, and how often it is asked.
const LEAVES: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);

/// The method that a target without vhost lacks.
pub(crate) const NEEDED: &str = "vhost_create_blk_controller";
pub(crate) const NO_VHOST: &str =
    "the SPDK target has no vhost: start spdk_tgt, vhost or spdk-target, with -S and a folder for its sockets";

async fn controllers(rpc: &Rpc) -> Result<Vec<Controller>, RpcError> {
    match rpc.call(&GetControllers {}).await {
        Err(refused) if refused.code() == Some(error::METHOD_NOT_FOUND) => Ok(Vec::new()),
        all => all,
    }
}

async fn find(rpc: &Rpc, id: &ExposureId) -> Result<Option<Controller>, RpcError> {
    let name = names::writer(id);
    Ok(controllers(rpc).await?.into_iter().find(|controller| controller.ctrlr == name))
}

async fn delete(rpc: &Rpc, controller: &Controller) -> Result<(), RpcError> {
    match rpc.call(&DeleteController { ctrlr: &controller.ctrlr }).await {
        Err(error) if !error.is_gone() => Err(error),
        _ => Ok(()),
    }
}

/// Opens `bdev` for this attachment's import.
pub(crate) async fn open(
    rpc: &Rpc,
    id: &ExposureId,
    bdev: &str,
    what: &str,
) -> Result<Box<dyn VolumeWriter>, PortError> {
    close(rpc, id, what).await?;
    let name = names::writer(id);
    match rpc.call(&CreateBlkController { ctrlr: &name, dev_name: bdev, readonly: false }).await {
        Ok(_) => {}
        Err(refused) if refused.code() == Some(error::METHOD_NOT_FOUND) => {
            return Err(PortError::new(ErrorClass::Unsupported, format!("{what}: {NO_VHOST}")));
        }
        Err(refused) => return Err(refused.at(what)),
    }
    let opened = async {
        let made = find(rpc, id).await.map_err(|error| error.at(what))?;
        let socket = made.map(|made| PathBuf::from(made.socket)).unwrap_or_default();
        enter(socket, what).await
    };
    match opened.await {
        Ok(disk) => Ok(Box::new(Writer { disk, piece: vec![0; ring::DATA_BYTES] })),
        Err(error) => {
            if let Err(left) = close(rpc, id, what).await {
                tracing::warn!(error = %left, "{name} is left behind");
            }
            Err(error)
        }
    }
}

async fn enter(socket: PathBuf, what: &str) -> Result<Disk, PortError> {
    if !socket.is_absolute() {
        let cause = format!("the target makes its sockets where it stands ({}): {NO_FOLDER}", socket.display());
        return Err(PortError::new(ErrorClass::Unsupported, format!("{what}: {cause}")));
    }
    let open = {
        let socket = socket.clone();
        tokio::task::spawn_blocking(move || Disk::open(&socket)).await
    };
    let opened = open.unwrap_or_else(|panic| Err(io::Error::other(panic)));
    opened.map_err(|error| at(&socket, what, &error))
}

const NO_FOLDER: &str = "start it with -S and a folder";

fn at(socket: &Path, what: &str, error: &io::Error) -> PortError {
    let class = match error.kind() {
        io::ErrorKind::NotFound => ErrorClass::NotFound,
        io::ErrorKind::PermissionDenied => ErrorClass::Unauthorized,
        _ => ErrorClass::Unreachable,
    };
    PortError::new(class, format!("{what}: opening {}: {error}", socket.display()))
}

/// Deletes this attachment's controller, once nobody is connected to it.
pub(crate) async fn close(rpc: &Rpc, id: &ExposureId, what: &str) -> Result<(), PortError> {
    let begun = Instant::now();
    loop {
        match find(rpc, id).await.map_err(|error| error.at(what))? {
            None => return Ok(()),
            Some(left) if left.sessions.is_empty() => return delete(rpc, &left).await.map_err(|error| error.at(what)),
            Some(_) if begun.elapsed() > LEAVES => {
                return Err(PortError::new(ErrorClass::Busy, format!("{what}: an import still writes it")));
            }
            Some(_) => tokio::time::sleep(LOOK).await,
        }
    }
}

/// [`close`] where nobody is connected; `false`: somebody is.
pub(crate) async fn close_idle(rpc: &Rpc, id: &ExposureId) -> Result<bool, RpcError> {
    match find(rpc, id).await? {
        None => Ok(true),
        Some(left) if left.sessions.is_empty() => delete(rpc, &left).await.map(|()| true),
        Some(_) => Ok(false),
    }
}

/// Deletes what agents left behind when they ended.
pub(crate) async fn sweep(rpc: &Rpc) -> Result<(), RpcError> {
    let left = controllers(rpc).await?;
    for one in left.iter().filter(|one| names::parse_writer(&one.ctrlr).is_some() && one.sessions.is_empty()) {
        tracing::info!(controller = one.ctrlr, "deleting what an import left behind");
        delete(rpc, one).await?;
    }
    Ok(())
}

struct Writer {
    disk: Disk,
    piece: Vec<u8>,
}

impl VolumeWriter for Writer {
    fn discard(&mut self) -> io::Result<()> {
        self.disk.discard()
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut at = offset;
        for piece in data.chunks(ring::DATA_BYTES) {
            self.disk.write(at, piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn zero(&mut self, offset: u64, length: u64) -> io::Result<()> {
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let length = self.piece.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let piece = &mut self.piece[..length];
            self.disk.read(at, piece)?;
            if piece.iter().any(|byte| *byte != 0) {
                piece.fill(0);
                self.disk.write(at, piece)?;
            }
            at += length as u64;
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.flush()
    }
}
