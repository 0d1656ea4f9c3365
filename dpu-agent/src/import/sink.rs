//! Writing an image: in pieces, zeros told from data, hashed on the way, synced at the end. Blocking; runs on a thread of its own.

use super::Job;
use crate::act::file_error;
use bytes::Bytes;
use ports::volume::{VolumeWriter, WRITE_UNIT};
use ports::{ErrorClass, PortError};
use sha2::{Digest, Sha256};
use std::io;
use tokio::sync::mpsc::Receiver;

/// Written at once. The network gives less, and storage that is far away takes a while for each operation.
const PIECE: usize = 1 << 20;
/// Zeros are left out in units of this, aligned: the block size of every file system and thin pool that matters.
const BLOCK: usize = WRITE_UNIT as usize;
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

pub(super) fn write(
    job: &Job,
    mut volume: Box<dyn VolumeWriter>,
    mut chunks: Receiver<Chunk>,
) -> Result<Written, PortError> {
    let failed = |step: &str, error: &io::Error| file_error(step, &job.volume, error);
    volume.discard().map_err(|e| failed("emptying volume", &e))?;
    let mut image = Image { volume, size_bytes: job.size_bytes, piece: Vec::with_capacity(PIECE), offset: 0 };
    let mut hash = Sha256::new();
    let mut head: Vec<u8> = Vec::with_capacity(QCOW2.len());
    let mut bytes = 0;
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
                image.add(&data).map_err(|e| failed("writing volume", &e))?;
                bytes += data.len() as u64;
            }
            Some(Chunk::End) => break,
            None => {
                let message = format!("writing volume {}: the stream was cut off", job.volume);
                return Err(PortError::new(ErrorClass::Busy, message));
            }
        }
    }
    image.end().map_err(|e| failed("writing volume", &e))?;
    image.volume.sync().map_err(|e| failed("syncing volume", &e))?;
    let sha256 = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Written { bytes, sha256 })
}

impl Job {
    fn volume_source(&self) -> &str {
        self.url.rsplit('/').next().and_then(|name| name.split('?').next()).unwrap_or("the image")
    }
}

/// Its bytes in order, on their way to the volume.
struct Image {
    volume: Box<dyn VolumeWriter>,
    size_bytes: u64,
    /// Not written yet; it begins on a multiple of [`PIECE`].
    piece: Vec<u8>,
    /// Of the piece.
    offset: u64,
}

impl Image {
    fn add(&mut self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let (now, later) = data.split_at(data.len().min(PIECE - self.piece.len()));
            self.piece.extend_from_slice(now);
            data = later;
            if self.piece.len() == PIECE {
                self.put()?;
            }
        }
        Ok(())
    }

    /// What is left, and zeros up to the volume's end.
    fn end(&mut self) -> io::Result<()> {
        // Whole blocks, as a disk has them.
        let room = usize::try_from(self.size_bytes - self.offset).unwrap_or(usize::MAX);
        let whole = self.piece.len().next_multiple_of(BLOCK).min(room);
        self.piece.resize(whole, 0);
        self.put()?;
        match self.size_bytes - self.offset {
            0 => Ok(()),
            left => self.volume.zero(self.offset, left),
        }
    }

    /// In as few calls as there are runs of blocks of zeros and of others.
    fn put(&mut self) -> io::Result<()> {
        let is_zero = |block: &[u8]| block.iter().all(|byte| *byte == 0);
        let mut left = self.piece.as_slice();
        while let Some(first) = left.chunks(BLOCK).next() {
            let zero = is_zero(first);
            let run = left.chunks(BLOCK).take_while(|block| is_zero(block) == zero).map(<[u8]>::len).sum();
            let (now, later) = left.split_at(run);
            match zero {
                true => self.volume.zero(self.offset, run as u64)?,
                false => self.volume.write(self.offset, now)?,
            }
            self.offset += run as u64;
            left = later;
        }
        self.piece.clear();
        Ok(())
    }
}
