//! One disk: its blocks, and the commands that it takes beside.

use linux_sys::{ata, nvme};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// As much is written and read at once.
pub(super) const CHUNK: usize = 1 << 20;
/// What direct access asks of an address in memory.
const ALIGNED: usize = 4096;

/// The seam between what is decided of a disk and its commands: a test records these and answers them.
pub trait Device {
    fn size_bytes(&self) -> u64;
    /// From the disk itself, not from a cache; at most [`CHUNK`], whole sectors.
    fn read(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()>;
    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// What was written is on the disk.
    fn flush(&mut self) -> io::Result<()>;
    fn namespace(&mut self) -> io::Result<u32>;
    fn nvme(&mut self, command: &nvme::Command) -> io::Result<nvme::Answer>;
    fn ata(&mut self, command: &ata::Command) -> io::Result<ata::Answer>;
    fn wait(&mut self, time: Duration);
}

/// A block device that nobody else has open, past the page cache: what is read back after it was written came from the disk.
pub struct BlockDevice {
    file: File,
    size_bytes: u64,
    buffer: Vec<u8>,
}

impl BlockDevice {
    /// One that is mounted is refused.
    pub fn open(node: &Path, size_bytes: u64) -> io::Result<Self> {
        let flags = rustix::fs::OFlags::EXCL | rustix::fs::OFlags::DIRECT;
        let file = File::options().read(true).write(true).custom_flags(flags.bits().cast_signed()).open(node)?;
        Ok(Self { file, size_bytes, buffer: vec![0; CHUNK + ALIGNED] })
    }

    fn aligned(&self) -> usize {
        self.buffer.as_ptr().align_offset(ALIGNED)
    }
}

impl Device for BlockDevice {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let at = self.aligned();
        let part = &mut self.buffer[at..at + into.len()];
        self.file.read_exact_at(part, offset)?;
        into.copy_from_slice(part);
        Ok(())
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let at = self.aligned();
        let part = &mut self.buffer[at..at + data.len()];
        part.copy_from_slice(data);
        self.file.write_all_at(part, offset)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn namespace(&mut self) -> io::Result<u32> {
        nvme::namespace(&self.file)
    }

    fn nvme(&mut self, command: &nvme::Command) -> io::Result<nvme::Answer> {
        nvme::submit(&self.file, command)
    }

    fn ata(&mut self, command: &ata::Command) -> io::Result<ata::Answer> {
        ata::submit(&self.file, command)
    }

    fn wait(&mut self, time: Duration) {
        std::thread::sleep(time);
    }
}
