//! The thread that unpacks an image, and judges it: every reason by which one is refused is found here, before its end is put.

use crate::decode;
use crate::feed::{Chunk, End, Feed};
use crate::fetch::plain;
use crate::pieces::{Filling, Gone, Step};
use crate::qcow2;
use crate::{Algorithm, Copied, Error, Kind, Packing, Source, Target};
use std::io::{self, Read};
use tokio::sync::mpsc::Receiver;

/// What came of a stream.
pub(crate) enum Outcome {
    Copied(Copied),
    /// It is a qcow2 image, which is read by parts; nothing was written.
    Qcow2,
}

/// Why this thread ended early.
pub(crate) enum Stop {
    Failed(Error),
    /// Nobody writes any more: who did says why.
    Unwritten,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Gone> for Stop {
    fn from(_: Gone) -> Self {
        Self::Unwritten
    }
}

/// A stream.
pub(crate) fn stream(
    source: &Source,
    target: &Target,
    chunks: Receiver<Chunk>,
    mut pieces: Filling,
) -> Result<Outcome, Stop> {
    let algorithm = source.checksum.as_ref().map_or(Algorithm::Sha256, |checksum| checksum.algorithm);
    let mut feed = Feed::new(chunks, algorithm);
    let head = feed.head(decode::HEAD);
    if feed.end == Some(End::CutOff) {
        return Err(cut_off(target).into());
    }
    let format = decode::format(&head, &source.url, source.packing)?;
    if format == decode::Format::Qcow2 {
        return Ok(Outcome::Qcow2);
    }
    let raw = format == decode::Format::Raw;
    if let Some(length) = feed.length.filter(|length| raw && *length > target.size_bytes) {
        return Err(too_large(source, target, Some(length)).into());
    }
    pieces.put(Step::Begin)?;
    let unpacked = match decode::open(format, &mut feed) {
        Ok(mut reader) => pour(source, target, reader.as_mut(), &mut pieces)?,
        Err(error) => Err(error),
    };
    if feed.end == Some(End::CutOff) {
        return Err(cut_off(target).into());
    }
    let url = plain(&source.url);
    let unpacked = unpacked.map_err(|error| damaged(&url, target, format, &feed, &error.to_string()))?;
    let left = feed.drain();
    match feed.end {
        Some(End::CutOff) | None => return Err(cut_off(target).into()),
        _ if left > 0 => {
            let cause = format!("{left} bytes follow its end");
            return Err(damaged(&url, target, format, &feed, &cause).into());
        }
        Some(End::Closed) if raw && source.checksum.is_none() => {
            let message = format!(
                "{url} for {}: the server gave neither a Content-Length nor chunks, so that a raw image of {} bytes may be \
                 cut off: give its checksum",
                target.name, feed.received
            );
            return Err(Error::new(Kind::Invalid, message).into());
        }
        _ => {}
    }
    let (bytes, digest) = (feed.received, feed.digest());
    checked(source, target, &digest)?;
    pieces.put(Step::End)?;
    Ok(Outcome::Copied(Copied { bytes, unpacked, digest: Some(digest) }))
}

/// A qcow2 image's file. `bytes`: its length.
pub(crate) fn qcow2(
    source: &Source,
    target: &Target,
    parts: impl qcow2::Parts,
    bytes: u64,
    mut pieces: Filling,
) -> Result<u64, Stop> {
    let unread = |error| unread(source, target, error);
    let mut reader = qcow2::Reader::open(parts, bytes).map_err(unread)?;
    fits(source, target, &reader.header)?;
    pieces.put(Step::Begin)?;
    let unpacked = pour(source, target, &mut reader, &mut pieces)?.map_err(unread)?;
    pieces.put(Step::End)?;
    Ok(unpacked)
}

/// Whether a qcow2 image that begins so can be written: told before all of its file is read for its checksum.
pub(crate) fn begins(source: &Source, target: &Target, head: &[u8]) -> Result<(), Error> {
    let header = qcow2::Header::read(head).map_err(|error| unread(source, target, error))?;
    fits(source, target, &header)
}

fn fits(source: &Source, target: &Target, header: &qcow2::Header) -> Result<(), Error> {
    match header.size > target.size_bytes {
        true => Err(too_large(source, target, Some(header.size))),
        false => Ok(()),
    }
}

/// Why a qcow2 image was not read: its file did not come, or it is one that is not served.
fn unread(source: &Source, target: &Target, error: io::Error) -> Error {
    error.downcast().unwrap_or_else(|error| {
        let (url, name) = (plain(&source.url), &target.name);
        Error::new(Kind::Invalid, format!("{url} for {name}: as a qcow2 image {error}"))
    })
}

/// All that comes, to the writer; inside: how much that was, or why the reader failed.
fn pour(
    source: &Source,
    target: &Target,
    reader: &mut dyn Read,
    pieces: &mut Filling,
) -> Result<io::Result<u64>, Stop> {
    let mut unpacked = 0;
    loop {
        let mut piece = pieces.buffer()?;
        let length = match fill(reader, &mut piece) {
            Ok(length) => length,
            Err(error) => return Ok(Err(error)),
        };
        if unpacked == 0 && source.packing != Packing::AsIs && piece[..length].starts_with(qcow2::MAGIC) {
            let url = plain(&source.url);
            let cause =
                format!("{url} is a compressed qcow2 image: unpack the file, the image can be compressed itself");
            return Err(Error::new(Kind::Invalid, cause).into());
        }
        unpacked += length as u64;
        if unpacked > target.size_bytes {
            return Err(too_large(source, target, None).into());
        }
        let is_last = length < piece.len();
        piece.truncate(length);
        pieces.put(Step::Piece(piece))?;
        if is_last {
            return Ok(Ok(unpacked));
        }
    }
}

/// To the brim, or to the reader's end.
fn fill(reader: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match reader.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
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
