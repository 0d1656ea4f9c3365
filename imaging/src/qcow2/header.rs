//! The header (qcow2.txt, "Header"): what is read, and what is refused by its name.

use std::io;

pub const MAGIC: &[u8] = b"QFI\xfb";
/// What is read of a file's beginning; version 2 has 72 bytes.
pub const LENGTH: usize = 112;
/// QEMU's own limit for the first table.
const LARGEST_TABLE: u64 = 32 << 20;
/// Each entry of a table.
const ENTRY: u64 = 8;

/// How compressed clusters are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    Deflate,
    Zstd,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub version: u32,
    pub cluster_bits: u32,
    /// Of the disk, in bytes.
    pub size: u64,
    /// Entries, and where they are.
    pub l1: (u64, u64),
    pub compression: Compression,
}

impl Header {
    /// `bytes`: the file's first [`LENGTH`], or all of it.
    pub fn read(bytes: &[u8]) -> io::Result<Self> {
        let short = || damaged("its header is cut off".to_owned());
        let word = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
        let long = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes);
        if !bytes.starts_with(MAGIC) {
            return Err(damaged("it does not begin as one".to_owned()));
        }
        let version = word(4).ok_or_else(short)?;
        if !(2..=3).contains(&version) {
            return Err(refused(&format!("is of version {version}; 2 and 3 are read")));
        }
        let header = Self {
            version,
            cluster_bits: word(20).ok_or_else(short)?,
            size: long(24).ok_or_else(short)?,
            l1: (word(36).ok_or_else(short)?.into(), long(40).ok_or_else(short)?),
            compression: compression(bytes, version).ok_or_else(short)??,
        };
        match (long(8), word(32)) {
            (None, _) | (_, None) => return Err(short()),
            (Some(1..), _) => return Err(refused("has a backing file: convert it to one that has none")),
            (_, Some(1..)) => return Err(refused("is encrypted")),
            _ => {}
        }
        header.check()?;
        Ok(header)
    }

    pub fn cluster(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Clusters that one table of the second level names.
    pub fn per_table(&self) -> u64 {
        self.cluster() / ENTRY
    }

    fn check(&self) -> io::Result<()> {
        if !(9..=21).contains(&self.cluster_bits) {
            return Err(damaged(format!("its clusters have 2^{} bytes, which QEMU never makes", self.cluster_bits)));
        }
        let tables = self.size.div_ceil(self.cluster()).div_ceil(self.per_table());
        let (entries, place) = self.l1;
        if entries < tables || entries * ENTRY > LARGEST_TABLE || !place.is_multiple_of(self.cluster()) {
            return Err(damaged(format!("its first table of {entries} entries at {place} does not fit its size")));
        }
        Ok(())
    }
}

/// Of the incompatible features, which version 3 has. `None`: cut off.
fn compression(bytes: &[u8], version: u32) -> Option<io::Result<Compression>> {
    if version == 2 {
        return Some(Ok(Compression::Deflate));
    }
    let features = u64::from_be_bytes(bytes.get(72..80)?.try_into().ok()?);
    let length = u32::from_be_bytes(bytes.get(100..104)?.try_into().ok()?);
    let has = |bit: u32| features >> bit & 1 == 1;
    Some(match () {
        // 0: its counts of references are not up to date; they are not read.
        () if has(1) => Err(refused("is marked as corrupt: repair it first (qemu-img check -r all)")),
        () if has(2) => Err(refused("has its data in another file: convert it to one that has all")),
        () if has(4) => Err(refused("has extended second tables (extended_l2=on): convert it to one that has not")),
        () if features >> 5 != 0 => Err(refused(&format!("needs a feature that is not known here ({features:#x})"))),
        () if !has(3) || length <= 104 => Ok(Compression::Deflate),
        () => match bytes.get(104)? {
            0 => Ok(Compression::Deflate),
            1 => Ok(Compression::Zstd),
            other => Err(refused(&format!("is compressed in a way that is not known here ({other})"))),
        },
    })
}

/// The same again fails again: it says what the image is.
pub fn refused(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("it {what}"))
}

pub fn damaged(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
