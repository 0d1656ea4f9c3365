//! A volume that is a file or a block device here.

use ports::volume::VolumeWriter;
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

pub(super) struct FileWriter {
    file: File,
    size_bytes: u64,
    /// All of it is zero where nothing was written.
    empty: bool,
}

impl FileWriter {
    pub(super) fn open(path: &Path, size_bytes: u64) -> io::Result<Self> {
        Ok(Self { file: File::options().write(true).open(path)?, size_bytes, empty: false })
    }
}

impl VolumeWriter for FileWriter {
    /// A hole is zero, unlike what a disk has discarded. Storage that makes no holes is written in full.
    fn discard(&mut self) -> io::Result<()> {
        if self.size_bytes == 0 {
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
        self.file.write_all_at(data, offset)
    }

    fn zero(&mut self, offset: u64, length: u64) -> io::Result<()> {
        if self.empty {
            return Ok(());
        }
        let zeros = vec![0; 256 << 10];
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let length = zeros.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            self.file.write_all_at(&zeros[..length], at)?;
            at += length as u64;
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_all()
    }
}
