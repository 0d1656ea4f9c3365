//! What an entry of a second table says of one cluster, and a compressed cluster's bytes.

use super::header::{Compression, Header, damaged, refused};
use flate2::{Decompress, FlushDecompress, Status};
use std::io;
use zstd::stream::raw::{self, InBuffer, Operation, OutBuffer};

pub(super) const SECTOR: u64 = 512;
const COMPRESSED: u64 = 1 << 62;
const ZERO: u64 = 1;
/// Bits 9 to 55.
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
/// Of a standard cluster: bits 1 to 8, and 56 to 61.
const RESERVED: u64 = 0x3f00_0000_0000_01fe;

/// Of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub first: u64,
    pub length: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// Nothing was ever written, or zeros.
    Zero,
    At(Place),
    Compressed(Place),
}

impl Entry {
    pub fn read(entry: u64, header: &Header) -> io::Result<Self> {
        if entry & COMPRESSED != 0 {
            let bits = 62 - (header.cluster_bits - 8);
            let first = entry & ((1 << bits) - 1);
            let sectors = (entry & (COMPRESSED - 1)) >> bits;
            let length = (sectors + 1) * SECTOR - first % SECTOR;
            return Ok(Self::Compressed(Place { first, length }));
        }
        if entry & RESERVED != 0 {
            return Err(damaged(format!("an entry of a second table is {entry:#x}, which is none")));
        }
        let first = entry & OFFSET;
        match (entry & ZERO != 0, first) {
            (true, _) if header.version == 2 => Err(damaged("a zero cluster in version 2".to_owned())),
            (true, _) | (_, 0) => Ok(Self::Zero),
            (_, first) if !first.is_multiple_of(header.cluster()) => {
                Err(damaged(format!("a cluster is at {first}, which none begins at")))
            }
            (_, first) => Ok(Self::At(Place { first, length: header.cluster() })),
        }
    }
}

/// Where a second table is; 0: nowhere.
pub fn table_at(entry: u64) -> io::Result<u64> {
    match entry & !(OFFSET | 1 << 63) {
        0 => Ok(entry & OFFSET),
        _ => Err(damaged(format!("an entry of its first table is {entry:#x}, which is none"))),
    }
}

/// Unpacks one cluster after the other.
pub struct Unpacker {
    deflate: Decompress,
    zstd: raw::Decoder<'static>,
}

impl Unpacker {
    pub fn new() -> io::Result<Self> {
        Ok(Self { deflate: Decompress::new(false), zstd: raw::Decoder::new()? })
    }

    /// Exactly one cluster, in place of what is in the buffer.
    pub fn unpack(&mut self, packed: &[u8], header: &Header, cluster: &mut Vec<u8>) -> io::Result<()> {
        let length = usize::try_from(header.cluster()).map_err(|_| refused("has clusters that are too large"))?;
        let whole = match header.compression {
            Compression::Deflate => self.deflate(packed, length, cluster),
            Compression::Zstd => self.zstd(packed, length, cluster),
        };
        let broken = |cause: String| Err(damaged(format!("a compressed cluster: {cause}")));
        match whole {
            Ok(true) => Ok(()),
            Ok(false) => broken(format!("it does not end after {length} bytes")),
            Err(error) => broken(error.to_string()),
        }
    }

    /// Whether that was all of it.
    fn deflate(&mut self, packed: &[u8], length: usize, cluster: &mut Vec<u8>) -> io::Result<bool> {
        // With room for one byte too many, so that its end is seen.
        cluster.resize(length + 1, 0);
        self.deflate.reset(false);
        let done = self.deflate.decompress(packed, cluster, FlushDecompress::Finish)?;
        cluster.truncate(length);
        Ok(done == Status::StreamEnd && self.deflate.total_out() == length as u64)
    }

    /// The same. What follows the end is another cluster's: the length of what is packed is rounded up to sectors.
    fn zstd(&mut self, packed: &[u8], length: usize, cluster: &mut Vec<u8>) -> io::Result<bool> {
        cluster.resize(length, 0);
        self.zstd.reinit()?;
        let (mut input, mut output) = (InBuffer::around(packed), OutBuffer::around(cluster.as_mut_slice()));
        loop {
            let before = (input.pos(), output.pos());
            let wanted = self.zstd.run(&mut input, &mut output)?;
            let is_full = output.pos() == length;
            if (wanted == 0 && is_full) || before == (input.pos(), output.pos()) {
                return Ok(wanted == 0 && is_full);
            }
        }
    }
}
