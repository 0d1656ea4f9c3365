//! A split virtqueue in shared memory (Virtual I/O Device 1.2, section 2.7), for one request at a time: it has a header,
//! at most one piece of data, and a status byte.
//!
//! The memory is that of a file without a name, which the target maps, too. All of it is read and written through
//! `vm-memory`, which is made for memory that another process changes.

use std::fs::File;
use std::io;
use std::sync::atomic::Ordering;

use vhost::{VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

/// Descriptors: more than a request has.
pub(super) const LENGTH: u16 = 8;
/// The most that one request moves.
pub(super) const DATA_BYTES: usize = 1 << 20;

/// Where the target is told that the memory is; an address of zero would look like none.
const BASE: u64 = 1 << 30;
const SIZE: usize = 2 << 20;
const DESCRIPTORS: u64 = BASE;
const AVAILABLE: u64 = BASE + 0x1000;
const USED: u64 = BASE + 0x2000;
const HEADER: u64 = BASE + 0x3000;
const STATUS: u64 = BASE + 0x4000;
const DATA: u64 = BASE + SIZE as u64 / 2;

const HEADER_BYTES: u32 = 16;
const DESCRIPTOR_BYTES: u64 = 16;
/// VIRTQ_DESC_F_NEXT, VIRTQ_DESC_F_WRITE.
const NEXT: u16 = 1;
const DEVICE_WRITES: u16 = 2;
/// No status of virtio-blk: the device has not answered.
const UNANSWERED: u8 = 0xff;

/// What a request does with the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToDevice,
    FromDevice,
}

pub(super) struct Ring {
    memory: GuestMemoryMmap<()>,
    /// Requests made so far, as the ring counts them.
    made: u16,
}

fn broken(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("the memory that is shared with the target: {error}"))
}

impl Ring {
    pub(super) fn new() -> io::Result<Self> {
        let file = File::from(rustix::fs::memfd_create("metalplane-import", rustix::fs::MemfdFlags::CLOEXEC)?);
        file.set_len(SIZE as u64)?;
        let range = (GuestAddress(BASE), SIZE, Some(FileOffset::new(file, 0)));
        Ok(Self { memory: GuestMemoryMmap::from_ranges_with_files([range]).map_err(broken)?, made: 0 })
    }

    pub(super) fn region(&self) -> io::Result<VhostUserMemoryRegionInfo> {
        let region = self.memory.find_region(GuestAddress(BASE)).ok_or_else(|| broken("it has no region"))?;
        VhostUserMemoryRegionInfo::from_guest_region(region).map_err(broken)
    }

    /// Rings are told by this process' own addresses, what is in them by those of [`BASE`].
    pub(super) fn places(&self) -> io::Result<VringConfigData> {
        let own = self.region()?.userspace_addr;
        Ok(VringConfigData {
            queue_max_size: LENGTH,
            queue_size: LENGTH,
            flags: 0,
            desc_table_addr: own + (DESCRIPTORS - BASE),
            used_ring_addr: own + (USED - BASE),
            avail_ring_addr: own + (AVAILABLE - BASE),
            log_addr: None,
        })
    }

    pub(super) fn put(&self, data: &[u8]) -> io::Result<()> {
        self.memory.write_slice(data, GuestAddress(DATA)).map_err(broken)
    }

    pub(super) fn take(&self, data: &mut [u8]) -> io::Result<()> {
        self.memory.read_slice(data, GuestAddress(DATA)).map_err(broken)
    }

    /// Makes a request of `kind` at a sector; its data are where [`Ring::put`] and [`Ring::take`] have them.
    pub(super) fn make(&mut self, kind: u32, sector: u64, data: Option<(u32, Direction)>) -> io::Result<()> {
        let mut header = [0; HEADER_BYTES as usize];
        header[..4].copy_from_slice(&kind.to_le_bytes());
        header[8..].copy_from_slice(&sector.to_le_bytes());
        self.memory.write_slice(&header, GuestAddress(HEADER)).map_err(broken)?;
        self.memory.write_obj(UNANSWERED, GuestAddress(STATUS)).map_err(broken)?;
        let status = if data.is_some() { 2 } else { 1 };
        self.describe(0, HEADER, HEADER_BYTES, NEXT, 1)?;
        if let Some((length, direction)) = data {
            let writes = if direction == Direction::FromDevice { DEVICE_WRITES } else { 0 };
            self.describe(1, DATA, length, NEXT | writes, status)?;
        }
        self.describe(status, STATUS, 1, DEVICE_WRITES, 0)?;
        // The chain begins at descriptor 0.
        let place = AVAILABLE + 4 + 2 * u64::from(self.made % LENGTH);
        self.memory.write_obj(0u16.to_le(), GuestAddress(place)).map_err(broken)?;
        self.made = self.made.wrapping_add(1);
        // Behind all of the above.
        self.memory.store(self.made.to_le(), GuestAddress(AVAILABLE + 2), Ordering::SeqCst).map_err(broken)
    }

    fn describe(&self, number: u16, address: u64, length: u32, flags: u16, next: u16) -> io::Result<()> {
        let mut bytes = [0; DESCRIPTOR_BYTES as usize];
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        bytes[12..14].copy_from_slice(&flags.to_le_bytes());
        bytes[14..].copy_from_slice(&next.to_le_bytes());
        let place = DESCRIPTORS + DESCRIPTOR_BYTES * u64::from(number);
        self.memory.write_slice(&bytes, GuestAddress(place)).map_err(broken)
    }

    /// The device is done with every request.
    pub(super) fn is_done(&self) -> io::Result<bool> {
        let used: u16 = self.memory.load(GuestAddress(USED + 2), Ordering::SeqCst).map_err(broken)?;
        Ok(u16::from_le(used) == self.made)
    }

    /// What the device said to the last request.
    pub(super) fn status(&self) -> io::Result<u8> {
        self.memory.read_obj(GuestAddress(STATUS)).map_err(broken)
    }
}
