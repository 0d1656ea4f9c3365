//! Writing an image: sparse, hashed on the way, synced at the end. Blocking; runs on a thread of its own.

use super::Job;
use crate::act::file_error;
use bytes::Bytes;
use ports::{ErrorClass, PortError};
use rustix::fs::FallocateFlags;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use tokio::sync::mpsc::Receiver;

/// Zeros are left out in units of this, aligned: the block size of every file system and thin pool that matters.
const BLOCK: u64 = 4096;
const QCOW2: &[u8] = b"QFI\xfb";

pub(super) enum Chunk {
    Data(Bytes),
    /// All was sent. Without it the stream was cut off.
    End,
}

pub(super) struct Written {
    pub bytes: u64,
    /// Lower-case hex.
    pub sha256: String,
}

pub(super) fn write(job: &Job, mut chunks: Receiver<Chunk>) -> Result<Written, PortError> {
    let failed = |step: &str, error: &io::Error| file_error(step, &job.volume, error);
    let file = File::options().write(true).open(&job.path).map_err(|e| failed("opening volume", &e))?;
    let sparse = discard(&file, job.size_bytes).map_err(|e| failed("emptying volume", &e))?;
    let mut hash = Sha256::new();
    let mut head: Vec<u8> = Vec::with_capacity(QCOW2.len());
    let mut offset = 0;
    loop {
        match chunks.blocking_recv() {
            Some(Chunk::Data(data)) => {
                if head.len() < QCOW2.len() {
                    head.extend(data.iter().take(QCOW2.len() - head.len()));
                    if head == QCOW2 {
                        let message = format!("{} is a qcow2 image: convert it to raw first", job.volume_source());
                        return Err(PortError::new(ErrorClass::Invalid, message));
                    }
                }
                hash.update(&data);
                put(&file, offset, &data, sparse).map_err(|e| failed("writing volume", &e))?;
                offset += data.len() as u64;
            }
            Some(Chunk::End) => break,
            None => {
                let message = format!("writing volume {}: the stream was cut off", job.volume);
                return Err(PortError::new(ErrorClass::Busy, message));
            }
        }
    }
    if !sparse {
        zero(&file, offset, job.size_bytes).map_err(|e| failed("writing volume", &e))?;
    }
    file.sync_all().map_err(|e| failed("syncing volume", &e))?;
    let sha256 = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Written { bytes: offset, sha256 })
}

impl Job {
    fn volume_source(&self) -> &str {
        self.url.rsplit('/').next().and_then(|name| name.split('?').next()).unwrap_or("the image")
    }
}

/// Makes all of it zero without writing, so that zeros can be left out. `false`: this storage cannot.
fn discard(file: &File, size_bytes: u64) -> io::Result<bool> {
    if size_bytes == 0 {
        return Ok(true);
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(file, flags, 0, size_bytes) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Writes `data` at `offset`, in as few calls as there are runs of blocks that are not zero.
fn put(file: &File, offset: u64, data: &[u8], sparse: bool) -> io::Result<()> {
    if !sparse {
        return file.write_all_at(data, offset);
    }
    let mut run: Option<usize> = None;
    let mut at = 0;
    while at < data.len() {
        let in_block = (BLOCK - (offset + at as u64) % BLOCK) as usize;
        let end = data.len().min(at + in_block);
        let is_zero = data[at..end].iter().all(|byte| *byte == 0);
        match (run, is_zero) {
            (None, false) => run = Some(at),
            (Some(start), true) => {
                file.write_all_at(&data[start..at], offset + start as u64)?;
                run = None;
            }
            _ => {}
        }
        at = end;
    }
    match run {
        Some(start) => file.write_all_at(&data[start..], offset + start as u64),
        None => Ok(()),
    }
}

/// What the image does not reach, where it could not be discarded.
fn zero(file: &File, from: u64, to: u64) -> io::Result<()> {
    let zeros = vec![0; 256 << 10];
    let mut at = from;
    while at < to {
        let length = zeros.len().min(usize::try_from(to - at).unwrap_or(usize::MAX));
        file.write_all_at(&zeros[..length], at)?;
        at += length as u64;
    }
    Ok(())
}
