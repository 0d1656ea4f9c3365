//! The thread that writes an image: in pieces, zeros told from data, synced at the end; and beside it the one that unpacks it.
//!
//! The error of the one that fails first is told. The other one is stopped by it: who unpacks by pieces that nobody takes, who writes by an
//! end that does not come; and who fetches for them ends too, for the one that unpacks may be waiting for the network.

use crate::disk::{BLOCK as BLOCK_BYTES, END};
use crate::held::Lent;
use crate::pieces::{Filling, Step, Writing, pieces};
use crate::unpack::Stop;
use crate::{Disk, Error, Kind, Rest, Target};
use std::io;
use std::panic::resume_unwind;
use std::sync::OnceLock;
use std::thread;
use tokio::sync::oneshot;

/// Zeros are left out in units of this, aligned: the block size of every file system and thin pool that matters.
const BLOCK: usize = BLOCK_BYTES as usize;
const ZEROS: [u8; BLOCK] = [0; BLOCK];
/// So much behind the image is zeroed at once: a disk that has to write its zeros is not taken away before that.
const REST: u64 = 64 << 20;

/// Dropped when nothing more is written, so that nothing more is fetched.
pub(crate) type Ended = oneshot::Sender<()>;

/// Writes what `unpack` puts, with zeros at the disk's ends if that fails after it was begun. When this returns both threads have ended.
pub(crate) fn copy<T: Send>(
    target: &Target,
    mut disk: Lent,
    ended: Ended,
    unpack: impl FnOnce(Filling) -> Result<T, Stop> + Send,
) -> Result<T, Error> {
    let (filling, writing) = pieces();
    let first = OnceLock::new();
    // A second error comes of the first one, or is less of a reason.
    let tell = |error: Error| drop(first.set(error));
    let done = thread::scope(|scope| {
        let unpacking = || match unpack(filling) {
            Ok(done) => Some(done),
            Err(Stop::Unwritten) => None,
            Err(Stop::Failed(error)) => {
                tell(error);
                None
            }
        };
        let unpacking = thread::Builder::new().name("unpack".to_owned()).spawn_scoped(scope, unpacking);
        let unpacking = unpacking.map_err(|error| tell(Error::file("starting a thread for", &target.name, &error)));
        let unpacking = unpacking.ok()?;
        let written = write(target, &mut disk, &writing).map_err(tell).ok();
        // Who unpacks may be waiting for a buffer, or for the network.
        drop((writing, ended));
        let unpacked = unpacking.join().unwrap_or_else(|panic| resume_unwind(panic));
        written.and(unpacked)
    });
    if let Some(done) = done {
        return Ok(done);
    }
    let broken = || Error::new(Kind::Busy, format!("writing {}: it ended without an error", target.name));
    let mut error = first.into_inner().unwrap_or_else(broken);
    if let Err(wiping) = disk.wipe() {
        error.message += &format!("; zeroing the ends of {} failed, too: {wiping}", target.name);
    }
    Err(error)
}

/// Until the end, or until the other side has none.
fn write(target: &Target, disk: &mut Lent, writing: &Writing) -> Result<(), Error> {
    let failed = |error: io::Error| Error::file("writing", &target.name, &error);
    let mut image = Image { size_bytes: target.size_bytes, offset: 0 };
    while let Some(step) = writing.next() {
        match step {
            Step::Begin => disk.discard().map_err(|error| Error::file("emptying", &target.name, &error))?,
            Step::Piece(mut piece) => {
                image.add(disk, &mut piece).map_err(failed)?;
                writing.written(piece);
            }
            Step::End => {
                image.end(disk, target.rest).map_err(failed)?;
                disk.sync().map_err(|error| Error::file("syncing", &target.name, &error))?;
                return disk.whole().map_err(failed);
            }
        }
    }
    Ok(())
}

/// Its bytes in order, on their way to the disk.
struct Image {
    size_bytes: u64,
    /// Written so far.
    offset: u64,
}

impl Image {
    /// In as few calls as there are runs of blocks of zeros and of others. The last piece alone may have another length than whole blocks.
    fn add(&mut self, disk: &mut dyn Disk, piece: &mut Vec<u8>) -> io::Result<()> {
        let room = usize::try_from(self.size_bytes - self.offset).unwrap_or(usize::MAX);
        piece.resize(piece.len().next_multiple_of(BLOCK).min(room), 0);
        let is_zero = |block: &[u8]| *block == ZEROS[..block.len()];
        let mut left = piece.as_slice();
        while let Some(first) = left.chunks(BLOCK).next() {
            let zero = is_zero(first);
            let run = left.chunks(BLOCK).take_while(|block| is_zero(block) == zero).map(<[u8]>::len).sum();
            let (now, later) = left.split_at(run);
            match zero {
                true => disk.zero(self.offset, run as u64)?,
                false => disk.write(self.offset, now)?,
            }
            self.offset += run as u64;
            left = later;
        }
        Ok(())
    }

    /// Zeros behind it: up to the disk's end, or over its last MiB.
    fn end(&self, disk: &mut dyn Disk, rest: Rest) -> io::Result<()> {
        let mut from = match rest {
            Rest::Zeroed => self.offset,
            Rest::Kept => {
                let last = self.size_bytes.saturating_sub(END);
                self.offset.max(last - last % BLOCK_BYTES)
            }
        };
        while from < self.size_bytes {
            let length = REST.min(self.size_bytes - from);
            disk.zero(from, length)?;
            from += length;
        }
        Ok(())
    }
}
