//! What an image is written to, and one that is a file or a block device here.

use rustix::fs::{Advice, FallocateFlags, fadvise};
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// The largest block size of any disk.
pub const BLOCK: u64 = 4096;

/// What a failure zeroes at either end.
pub(crate) const END: u64 = 1 << 20;

/// Written from its beginning to its end, each byte once. It blocks, and needs no runtime to go on: its calls are a thread's, and a copy
/// that is dropped waits for the one under way. Offsets and lengths are multiples of [`BLOCK`], but for the disk's end.
pub trait Disk: Send {
    /// Gives up what the disk holds. What is read from it then is not known.
    fn discard(&mut self) -> io::Result<()>;

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Makes so much of it zero; takes no space for that where the storage has none in use there.
    fn zero(&mut self, offset: u64, length: u64) -> io::Result<()>;

    /// All that was written is kept, whatever loses its power afterwards.
    fn sync(&mut self) -> io::Result<()>;
}

/// So much is written before the disk is made to begin with it. Else it would wait in the memory of a large server until the flush at the
/// end, and the disk would stand still while the image comes.
const BEGIN: u64 = 8 << 20;

pub struct FileDisk {
    file: File,
    size_bytes: u64,
    /// Whether holes are made at all.
    holes: bool,
    /// All of it is zero where nothing was written.
    empty: bool,
    /// Written, but for holes in it, and not begun with by the disk.
    waiting: Range<u64>,
}

impl FileDisk {
    pub fn open(path: &Path, size_bytes: u64) -> io::Result<Self> {
        Ok(Self::of(File::options().write(true).open(path)?, size_bytes, true))
    }

    /// A block device that nobody else has: one that is mounted is refused. `holes`: whether it discards; one that
    /// does not would be written from end to end by the kernel.
    pub fn exclusive(path: &Path, size_bytes: u64, holes: bool) -> io::Result<Self> {
        let exclusive = rustix::fs::OFlags::EXCL.bits().cast_signed();
        let file = File::options().write(true).custom_flags(exclusive).open(path)?;
        Ok(Self::of(file, size_bytes, holes))
    }

    fn of(file: File, size_bytes: u64, holes: bool) -> Self {
        Self { file, size_bytes, holes, empty: false, waiting: 0..0 }
    }

    fn put(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, offset)?;
        let end = offset + data.len() as u64;
        self.waiting = if self.waiting.end <= offset { self.waiting.start..end } else { offset..end };
        match NonZeroU64::new(self.waiting.end - self.waiting.start).filter(|length| length.get() >= BEGIN) {
            None => Ok(()),
            Some(length) => {
                // What is asked for not to be kept in memory is written first; it is not waited for.
                fadvise(&self.file, self.waiting.start, Some(length), Advice::DontNeed)?;
                self.waiting = end..end;
                Ok(())
            }
        }
    }
}

impl Disk for FileDisk {
    /// A hole is zero, unlike what a disk has discarded: of a block device the kernel makes one only where the device
    /// promises zeros. Storage that makes no holes is written in full.
    fn discard(&mut self) -> io::Result<()> {
        if self.size_bytes == 0 || !self.holes {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.empty = match rustix::fs::fallocate(&self.file, flags, 0, self.size_bytes) {
            Ok(()) => true,
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => false,
            Err(error) => return Err(error.into()),
        };
        Ok(())
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.put(offset, data)
    }

    fn zero(&mut self, offset: u64, length: u64) -> io::Result<()> {
        if self.empty {
            return Ok(());
        }
        let zeros = vec![0; 256 << 10];
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let length = zeros.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            self.put(at, &zeros[..length])?;
            at += length as u64;
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_all()
    }
}

/// Zeros in the first and the last MiB. Written, not left out: nobody knows what a disk that failed believes to be empty.
pub fn wipe(disk: &mut dyn Disk, size_bytes: u64) -> io::Result<()> {
    let length = END.min(size_bytes);
    let last = size_bytes - length;
    // Whole blocks, whatever the disk's size is.
    let from = last - last % BLOCK;
    for (offset, length) in [(0, length), (from, size_bytes - from)] {
        disk.write(offset, &vec![0; usize::try_from(length).unwrap_or(usize::MAX)])?;
    }
    disk.sync()
}
