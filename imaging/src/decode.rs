//! What an image is packed with, told by its first bytes, and its bytes without that.
//!
//! Each decoder reads every member or frame of its stream up to the last byte: a stream without its end, a check that
//! differs, or bytes that belong to none of it are errors. gzip and bzip2 always have checks; zstd and xz may have been
//! written without, and then only a checksum of the whole tells a changed byte.

use crate::fetch::plain;
use crate::qcow2;
use crate::{Error, Kind};
use std::io::{self, BufRead, Read};

/// What is looked at.
pub const HEAD: usize = 10;

/// What the image's bytes are said to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// What the first bytes say; a name that ends as a compressed file's does has to be one.
    ByMagic,
    /// One of the known formats, whichever.
    Compressed,
    /// Not compressed. What looks compressed is refused.
    Uncompressed,
    /// An image's `format: Raw`: whatever it is, it is the disk; qcow2 alone is refused, for nothing boots it.
    AsIs,
    /// An image's `format: Qcow2`, and nothing else.
    Qcow2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Raw,
    Gzip,
    Zstd,
    Xz,
    Bzip2,
    /// Not a stream: see [`crate::qcow2`].
    Qcow2,
}

impl Format {
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Xz => "xz",
            Self::Bzip2 => "bzip2",
            Self::Qcow2 => "qcow2",
        }
    }
}

/// Of the two kinds of block that a bzip2 stream can begin with: data, or its end.
const BZIP2_BLOCKS: [&[u8]; 2] = [&[0x31, 0x41, 0x59, 0x26, 0x53, 0x59], &[0x17, 0x72, 0x45, 0x38, 0x50, 0x90]];

/// As file names end.
const ENDINGS: &[&str] = &[".gz", ".zst", ".zs", ".xz", ".bz2", ".bzip2"];

fn magic(head: &[u8]) -> Option<Format> {
    if head.starts_with(&[0x1f, 0x8b]) {
        return Some(Format::Gzip);
    }
    if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) || skippable(head).is_some() {
        return Some(Format::Zstd);
    }
    if head.starts_with(b"\xfd7zXZ\0") {
        return Some(Format::Xz);
    }
    let bzip2 = head.starts_with(b"BZh") && head.get(3).is_some_and(|level| (b'1'..=b'9').contains(level));
    (bzip2 && BZIP2_BLOCKS.iter().any(|block| head[4..].starts_with(block))).then_some(Format::Bzip2)
}

/// The first four bytes of a zstd frame without data.
fn skippable(head: &[u8]) -> Option<()> {
    let number = u32::from_le_bytes(head.get(..4)?.try_into().ok()?);
    (0x184d_2a50..=0x184d_2a5f).contains(&number).then_some(())
}

/// Decides by the image's first bytes, before anything is written.
pub fn format(head: &[u8], url: &str, packing: Packing) -> Result<Format, Error> {
    let refused = |cause: String| Err(Error::new(Kind::Invalid, format!("{} {cause}", plain(url))));
    match (packing, head.starts_with(qcow2::MAGIC)) {
        (Packing::AsIs, true) => {
            let name = plain(url);
            let name = name.rsplit('/').next().unwrap_or("the image");
            let message = format!("{name} is a qcow2 image, not a raw one: write format: Qcow2, or convert it to raw");
            return Err(Error::new(Kind::Invalid, message));
        }
        (Packing::Compressed, true) => return refused("is said to be compressed, and is qcow2: leave that out".into()),
        (_, true) => return Ok(Format::Qcow2),
        _ => {}
    }
    let found = magic(head);
    match (packing, found) {
        (Packing::AsIs, _) => Ok(Format::Raw),
        (Packing::Qcow2, Some(format)) => refused(format!("is {}, not qcow2: unpack the file", format.name())),
        (Packing::Qcow2, None) => refused("is not a qcow2 image: write format: Raw, or convert it to qcow2".into()),
        (Packing::ByMagic | Packing::Compressed, Some(format)) => Ok(format),
        (Packing::Compressed, None) => {
            refused("is said to be compressed, and is neither gzip nor zstd, xz or bzip2".into())
        }
        (Packing::Uncompressed, Some(format)) => {
            refused(format!("is said not to be compressed, and is {}: say that it is", format.name()))
        }
        (Packing::Uncompressed, None) => Ok(Format::Raw),
        (Packing::ByMagic, None) => match ENDINGS.iter().find(|ending| plain(url).ends_with(*ending)) {
            Some(ending) => refused(format!("ends with {ending}, and is neither gzip nor zstd, xz or bzip2")),
            None => Ok(Format::Raw),
        },
    }
}

/// A zstd stream that wants more of what it has given kept, 2 to the power of this, is refused: memory is bounded, whatever a stream
/// says of itself. It is what the program `zstd` takes, and so what everybody packs with.
const ZSTD_WINDOW: u32 = 27;

/// `Err`: there is no memory for a decoder.
pub fn open<'a>(format: Format, packed: &'a mut dyn BufRead) -> io::Result<Box<dyn Read + 'a>> {
    Ok(match format {
        Format::Raw | Format::Qcow2 => Box::new(packed),
        Format::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(packed)),
        Format::Zstd => {
            // Frames are read up to the stream's end, each with its size and its checksum held against what came.
            let mut decoder = zstd::Decoder::with_buffer(packed)?;
            decoder.window_log_max(ZSTD_WINDOW)?;
            Box::new(decoder)
        }
        Format::Xz => Box::new(lzma_rust2::XzReader::new(packed, true)),
        Format::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(packed)),
    })
}

#[cfg(test)]
mod tests;
