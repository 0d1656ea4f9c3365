//! What an entry of a second table says of one cluster, and a compressed cluster's bytes.

use super::header::{Compression, Header, damaged, refused};
use flate2::{Decompress, FlushDecompress, Status};
use std::io::{self, Read};

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

/// Exactly one cluster.
pub fn unpack(packed: &[u8], header: &Header) -> io::Result<Vec<u8>> {
    let length = usize::try_from(header.cluster()).map_err(|_| refused("has clusters that are too large"))?;
    let mut unpacked = vec![0; length];
    let broken = |cause: String| damaged(format!("a compressed cluster: {cause}"));
    match header.compression {
        Compression::Deflate => {
            // With room for one byte too many, so that its end is seen.
            unpacked.push(0);
            let mut inflate = Decompress::new(false);
            let done = inflate.decompress(packed, &mut unpacked, FlushDecompress::Finish);
            let done = done.map_err(|error| broken(error.to_string()))?;
            if done != Status::StreamEnd || inflate.total_out() != header.cluster() {
                return Err(broken(format!("{} of {length} bytes, without an end", inflate.total_out())));
            }
            unpacked.truncate(length);
        }
        Compression::Zstd => {
            let mut packed = packed;
            let decoder = ruzstd::decoding::StreamingDecoder::new(&mut packed);
            let mut decoder = decoder.map_err(|error| broken(error.to_string()))?;
            decoder.read_exact(&mut unpacked).map_err(|error| broken(error.to_string()))?;
        }
    }
    Ok(unpacked)
}
