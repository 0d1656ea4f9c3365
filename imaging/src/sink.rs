//! Writing an image: in pieces, zeros told from data, synced at the end. Blocking; runs on a thread of its own.

use crate::decode;
use crate::disk::BLOCK as BLOCK_BYTES;
use crate::feed::{Chunk, End, Feed};
use crate::fetch::plain;
use crate::qcow2;
use crate::{Algorithm, Copied, Disk, Error, Kind, Packing, Rest, Source, Target};
use std::io::{self, Read};
use tokio::sync::mpsc::Receiver;

/// Written at once. The network gives less, and storage that is far away takes a while for each operation.
const PIECE: usize = 1 << 20;
/// Zeros are left out in units of this, aligned: the block size of every file system and thin pool that matters.
const BLOCK: usize = BLOCK_BYTES as usize;
/// What a failure zeroes at either end.
const END: u64 = 1 << 20;

/// What came of a stream.
pub(crate) enum Outcome {
    Copied(Copied),
    /// It is a qcow2 image, which is read by parts; nothing was written.
    Qcow2,
}

/// With zeros at its ends if that fails after it was begun.
fn wiped<T>(
    target: &Target,
    disk: &mut dyn Disk,
    write: impl FnOnce(&mut dyn Disk, &mut bool) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut begun = false;
    let mut result = write(disk, &mut begun);
    if let Err(error) = &mut result
        && begun
        && target.wipe
        && let Err(wiping) = wipe(disk, target.size_bytes)
    {
        error.message += &format!("; zeroing the ends of {} failed, too: {wiping}", target.name);
    }
    result
}

/// Of a stream.
pub(crate) fn write(
    source: &Source,
    target: &Target,
    disk: &mut dyn Disk,
    chunks: Receiver<Chunk>,
) -> Result<Outcome, Error> {
    wiped(target, disk, |disk, begun| attempt(source, target, disk, chunks, begun))
}

/// Of a qcow2 image's file. `bytes`: its length.
pub(crate) fn write_qcow2(
    source: &Source,
    target: &Target,
    disk: &mut dyn Disk,
    parts: impl qcow2::Parts,
    bytes: u64,
) -> Result<u64, Error> {
    let url = plain(&source.url);
    let unread = |error: io::Error| match error.downcast::<Error>() {
        Ok(error) => error,
        Err(error) => Error::new(Kind::Invalid, format!("{url} for {}: as a qcow2 image {error}", target.name)),
    };
    wiped(target, disk, |disk, begun| {
        let mut reader = qcow2::Reader::open(parts, bytes).map_err(unread)?;
        let size = reader.header.size;
        if size > target.size_bytes {
            return Err(too_large(source, target, Some(size)));
        }
        *begun = true;
        disk.discard().map_err(|error| Error::file("emptying", &target.name, &error))?;
        let mut image = Image::new(disk, target);
        let unpacked = pour(source, target, &mut reader, &mut image)?.map_err(unread)?;
        image.finish(target)?;
        Ok(unpacked)
    })
}

fn attempt(
    source: &Source,
    target: &Target,
    disk: &mut dyn Disk,
    chunks: Receiver<Chunk>,
    begun: &mut bool,
) -> Result<Outcome, Error> {
    let algorithm = source.checksum.as_ref().map_or(Algorithm::Sha256, |checksum| checksum.algorithm);
    let mut feed = Feed::new(chunks, algorithm);
    let head = feed.head(decode::HEAD);
    if feed.end == Some(End::CutOff) {
        return Err(cut_off(target));
    }
    let format = decode::format(&head, &source.url, source.packing)?;
    if format == decode::Format::Qcow2 {
        return Ok(Outcome::Qcow2);
    }
    let raw = format == decode::Format::Raw;
    if let Some(length) = feed.length.filter(|length| raw && *length > target.size_bytes) {
        return Err(too_large(source, target, Some(length)));
    }
    *begun = true;
    disk.discard().map_err(|error| Error::file("emptying", &target.name, &error))?;
    let mut image = Image::new(disk, target);
    let unpacked = pour(source, target, decode::open(format, &mut feed).as_mut(), &mut image)?;
    if feed.end == Some(End::CutOff) {
        return Err(cut_off(target));
    }
    let url = plain(&source.url);
    let unpacked = unpacked.map_err(|error| damaged(&url, target, format, &feed, &error.to_string()))?;
    let left = feed.drain();
    match feed.end {
        Some(End::CutOff) | None => return Err(cut_off(target)),
        _ if left > 0 => {
            let cause = format!("{left} bytes follow its end");
            return Err(damaged(&url, target, format, &feed, &cause));
        }
        Some(End::Closed) if raw && source.checksum.is_none() => {
            let message = format!(
                "{url} for {}: the server gave neither a Content-Length nor chunks, so that a raw image of {} bytes may be \
                 cut off: give its checksum",
                target.name, feed.received
            );
            return Err(Error::new(Kind::Invalid, message));
        }
        _ => {}
    }
    image.finish(target)?;
    let (bytes, digest) = (feed.received, feed.digest());
    checked(source, target, &digest)?;
    Ok(Outcome::Copied(Copied { bytes, unpacked, digest: Some(digest) }))
}

/// All that comes, onto the disk; inside: how much that was, or why the reader failed.
fn pour(
    source: &Source,
    target: &Target,
    reader: &mut dyn Read,
    image: &mut Image<'_>,
) -> Result<io::Result<u64>, Error> {
    let (mut unpacked, mut buffer) = (0u64, vec![0; 64 << 10]);
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(Ok(unpacked)),
            Ok(length) => {
                if unpacked == 0 && source.packing != Packing::AsIs && buffer[..length].starts_with(qcow2::MAGIC) {
                    let url = plain(&source.url);
                    let cause = format!(
                        "{url} is a compressed qcow2 image: unpack the file, the image can be compressed itself"
                    );
                    return Err(Error::new(Kind::Invalid, cause));
                }
                unpacked += length as u64;
                if unpacked > target.size_bytes {
                    return Err(too_large(source, target, None));
                }
                image.add(&buffer[..length]).map_err(|error| Error::file("writing", &target.name, &error))?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Ok(Err(error)),
        }
    }
}

/// Reads all of a stream and compares its checksum; gives it.
pub(crate) fn check(source: &Source, target: &Target, chunks: Receiver<Chunk>) -> Result<String, Error> {
    let algorithm = source.checksum.as_ref().map_or(Algorithm::Sha256, |checksum| checksum.algorithm);
    let mut feed = Feed::new(chunks, algorithm);
    feed.drain();
    if feed.end == Some(End::CutOff) {
        return Err(cut_off(target));
    }
    let digest = feed.digest();
    checked(source, target, &digest)?;
    Ok(digest)
}

fn checked(source: &Source, target: &Target, digest: &str) -> Result<(), Error> {
    match &source.checksum {
        Some(wanted) if wanted.hex != digest => {
            let (url, name) = (plain(&source.url), wanted.algorithm.as_str());
            let (field, wanted) = (source.checksum_field, &wanted.hex);
            let message =
                format!("{url} has {name}:{digest}, {field} says {name}:{wanted}: {} is not used", target.name);
            Err(Error::new(Kind::Invalid, message))
        }
        _ => Ok(()),
    }
}

fn cut_off(target: &Target) -> Error {
    Error::new(Kind::Busy, format!("writing {}: the stream was cut off", target.name))
}

fn damaged(url: &str, target: &Target, format: decode::Format, feed: &Feed, cause: &str) -> Error {
    let (format, received) = (format.name(), feed.received);
    let message =
        format!("{url} for {}: its {format} stream is damaged: {cause} ({received} bytes received)", target.name);
    Error::new(Kind::Invalid, message)
}

fn too_large(source: &Source, target: &Target, length: Option<u64>) -> Error {
    let length = length.map_or_else(|| "more".to_owned(), |length| format!("{length} bytes"));
    let (url, name, size, hint) = (plain(&source.url), &target.name, target.size_bytes, target.too_small);
    Error::new(Kind::Invalid, format!("{url} has {length}, {name} has {size} bytes: {hint}"))
}

/// Zeros in the first and the last MiB. Written, not left out: nobody knows what a disk that failed believes to be empty.
pub fn wipe(disk: &mut dyn Disk, size_bytes: u64) -> io::Result<()> {
    let length = END.min(size_bytes);
    let last = size_bytes - length;
    // Whole blocks, whatever the disk's size is.
    let from = last - last % BLOCK_BYTES;
    for (offset, length) in [(0, length), (from, size_bytes - from)] {
        disk.write(offset, &vec![0; usize::try_from(length).unwrap_or(usize::MAX)])?;
    }
    disk.sync()
}

/// Its bytes in order, on their way to the disk.
struct Image<'a> {
    disk: &'a mut dyn Disk,
    size_bytes: u64,
    /// Not written yet; it begins on a multiple of [`PIECE`].
    piece: Vec<u8>,
    /// Of the piece.
    offset: u64,
}

impl<'a> Image<'a> {
    fn new(disk: &'a mut dyn Disk, target: &Target) -> Self {
        Self { disk, size_bytes: target.size_bytes, piece: Vec::with_capacity(PIECE), offset: 0 }
    }

    /// To the disk's end, and safely there.
    fn finish(&mut self, target: &Target) -> Result<(), Error> {
        self.end(target.rest).map_err(|error| Error::file("writing", &target.name, &error))?;
        self.disk.sync().map_err(|error| Error::file("syncing", &target.name, &error))
    }

    fn add(&mut self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let (now, later) = data.split_at(data.len().min(PIECE - self.piece.len()));
            self.piece.extend_from_slice(now);
            data = later;
            if self.piece.len() == PIECE {
                self.put()?;
            }
        }
        Ok(())
    }

    /// What is left, and zeros: up to the disk's end, or over its last MiB.
    fn end(&mut self, rest: Rest) -> io::Result<()> {
        // Whole blocks, as a disk has them.
        let room = usize::try_from(self.size_bytes - self.offset).unwrap_or(usize::MAX);
        let whole = self.piece.len().next_multiple_of(BLOCK).min(room);
        self.piece.resize(whole, 0);
        self.put()?;
        let from = match rest {
            Rest::Zeroed => self.offset,
            Rest::Kept => {
                let last = self.size_bytes.saturating_sub(END);
                self.offset.max(last - last % BLOCK_BYTES)
            }
        };
        match self.size_bytes - from {
            0 => Ok(()),
            left => self.disk.zero(from, left),
        }
    }

    /// In as few calls as there are runs of blocks of zeros and of others.
    fn put(&mut self) -> io::Result<()> {
        let is_zero = |block: &[u8]| block.iter().all(|byte| *byte == 0);
        let mut left = self.piece.as_slice();
        while let Some(first) = left.chunks(BLOCK).next() {
            let zero = is_zero(first);
            let run = left.chunks(BLOCK).take_while(|block| is_zero(block) == zero).map(<[u8]>::len).sum();
            let (now, later) = left.split_at(run);
            match zero {
                true => self.disk.zero(self.offset, run as u64)?,
                false => self.disk.write(self.offset, now)?,
            }
            self.offset += run as u64;
            left = later;
        }
        self.piece.clear();
        Ok(())
    }
}
