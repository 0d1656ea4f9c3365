//! What an image is packed with, told by its first bytes, and its bytes without that.
//!
//! Each decoder reads every member or frame of its stream up to the last byte: a stream without its end, a check that
//! differs, or bytes that belong to none of it are errors. gzip and bzip2 always have checks; zstd and xz may have been
//! written without, and then only a checksum of the whole tells a changed byte.

use crate::fetch::plain;
use crate::qcow2;
use crate::{Error, Kind};
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
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
    /// Whatever it is, it is the disk; qcow2 alone is refused, for nothing boots it.
    AsIs,
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
            return Err(Error::new(Kind::Invalid, format!("{name} is a qcow2 image: convert it to raw first")));
        }
        (Packing::Compressed, true) => return refused("is said to be compressed, and is qcow2: leave that out".into()),
        (_, true) => return Ok(Format::Qcow2),
        _ => {}
    }
    let found = magic(head);
    match (packing, found) {
        (Packing::AsIs, _) => Ok(Format::Raw),
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

pub fn open<'a>(format: Format, packed: &'a mut dyn BufRead) -> Box<dyn Read + 'a> {
    match format {
        Format::Raw | Format::Qcow2 => Box::new(packed),
        Format::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(packed)),
        Format::Zstd => Box::new(Zstd { packed, decoder: FrameDecoder::new(), in_frame: false, given: 0 }),
        Format::Xz => Box::new(lzma_rust2::XzReader::new(packed, true)),
        Format::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(packed)),
    }
}

/// The frames of a zstd stream, each with what it says of itself held against what came.
struct Zstd<'a> {
    packed: &'a mut dyn BufRead,
    decoder: FrameDecoder,
    in_frame: bool,
    /// Of this frame.
    given: u64,
}

/// Decoded at once.
const ZSTD_STEP: usize = 1 << 20;

impl Zstd<'_> {
    /// Whether there is another frame.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.packed.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.packed) {
                Ok(()) => {
                    (self.in_frame, self.given) = (true, 0);
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let length = u64::from(length);
                    let skipped = io::copy(&mut (&mut self.packed).take(length), &mut io::sink())?;
                    if skipped != length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(invalid(&error)),
            }
        }
    }

    fn frame_ended(&mut self) -> io::Result<()> {
        self.in_frame = false;
        let differs =
            |what: &str| Err(io::Error::new(io::ErrorKind::InvalidData, format!("{what} of a frame differs")));
        // A frame that does not say its size says 0.
        let size = self.decoder.content_size();
        if size != 0 && size != self.given {
            return differs("the size");
        }
        match (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum()) {
            (Some(said), Some(found)) if said != found => differs("the checksum"),
            _ => Ok(()),
        }
    }
}

impl Read for Zstd<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.in_frame && !self.next_frame()? {
                return Ok(0);
            }
            if self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let step = BlockDecodingStrategy::UptoBytes(ZSTD_STEP);
                self.decoder.decode_blocks(&mut self.packed, step).map_err(|error| invalid(&error))?;
            }
            let length = self.decoder.read(buffer)?;
            if length > 0 {
                self.given += length as u64;
                return Ok(length);
            }
            if self.decoder.is_finished() {
                self.frame_ended()?;
            }
        }
    }
}

fn invalid(error: &dyn std::error::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

#[cfg(test)]
mod tests;
