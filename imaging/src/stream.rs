//! A file of a server, unpacked and given to a reader of the caller's: an archive, say, which is no image of a disk. It is believed as an
//! image is: to its end, and by its checksum. That may be of the file as the server sends it or of what is packed in it, for both are
//! published beside archives.

use crate::decode::{self, Format};
use crate::feed::{Chunk, End, Feed, Hash};
use crate::fetch::{fetch, plain};
use crate::{Algorithm, CHUNKS, Error, Kind, Progress, Source, both, broken, until};
use std::io::{self, Read};
use tokio::sync::mpsc::{self, Receiver};

/// A stream that was read to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Streamed<T> {
    /// As they were sent.
    pub bytes: u64,
    /// As they were read.
    pub unpacked: u64,
    /// What the reader made of it.
    pub made: T,
}

/// `reader` runs in a thread where it may block, and has ended when this returns; its error is a message. What it does not read is read
/// after it. `stopped` ends it early, as in [`crate::copy`].
pub async fn read<T: Send + 'static>(
    source: &Source,
    progress: &Progress<'_>,
    stopped: impl Future<Output = String>,
    reader: impl FnOnce(&mut dyn Read) -> Result<T, String> + Send + 'static,
) -> Result<Streamed<T>, Error> {
    let (sender, chunks) = mpsc::channel(CHUNKS);
    let file = source.clone();
    let made = tokio::task::spawn_blocking(move || attempt(&file, chunks, reader));
    let fetched = until(stopped, fetch(source, &sender, progress)).await;
    drop(sender);
    both(fetched, made.await.map_err(|panic| broken(source, &panic))?)
}

fn attempt<T>(
    source: &Source,
    chunks: Receiver<Chunk>,
    reader: impl FnOnce(&mut dyn Read) -> Result<T, String>,
) -> Result<Streamed<T>, Error> {
    let url = plain(&source.url);
    let invalid = |cause: String| Error::new(Kind::Invalid, cause);
    let cut_off = || Error::new(Kind::Busy, format!("reading {url}: the stream was cut off"));
    let algorithm = source.checksum.as_ref().map_or(Algorithm::Sha256, |checksum| checksum.algorithm);
    let mut feed = Feed::new(chunks, algorithm);
    let head = feed.head(decode::HEAD);
    if feed.end == Some(End::CutOff) {
        return Err(cut_off());
    }
    let format = decode::format(&head, &source.url, source.packing)?;
    if format == Format::Qcow2 {
        return Err(invalid(format!("{url} is a qcow2 image of a disk")));
    }
    let (made, hash, unpacked, failed) = {
        let unpacked = decode::open(format, &mut feed).map_err(|error| Error::file("reading", &url, &error))?;
        let mut counted = Counted { reader: unpacked, hash: Hash::new(algorithm), bytes: 0, failed: None };
        let made = reader(&mut counted);
        if made.is_ok() {
            // Its end is held against what it says of itself, and is a part of what the checksum is of. That this fails is in `failed`.
            let _ = io::copy(&mut counted, &mut io::sink());
        }
        (made, counted.hash, counted.bytes, counted.failed)
    };
    if feed.end == Some(End::CutOff) {
        return Err(cut_off());
    }
    let damaged = |cause: &str| invalid(format!("{url}: its {} stream is damaged: {cause}", format.name()));
    if let Some(failed) = failed {
        return Err(damaged(&failed));
    }
    let made = made.map_err(invalid)?;
    match (feed.drain(), feed.end) {
        (_, Some(End::CutOff) | None) => return Err(cut_off()),
        (0, Some(End::Closed)) if format == Format::Raw && source.checksum.is_none() => {
            let cause = "the server gave neither a Content-Length nor chunks, so that it may be cut off";
            return Err(invalid(format!("{url}: {cause}: write its checksum as {}", source.checksum_field)));
        }
        (0, _) => {}
        (left, _) => return Err(damaged(&format!("{left} bytes follow its end"))),
    }
    let bytes = feed.received;
    if let Some(wanted) = &source.checksum {
        let (sent, inside, name) = (feed.digest(), hash.digest(), wanted.algorithm.as_str());
        if sent != wanted.hex && inside != wanted.hex {
            let (field, wanted) = (source.checksum_field, &wanted.hex);
            let inside = if inside == sent { String::new() } else { format!(" ({name}:{inside} unpacked)") };
            return Err(invalid(format!("{url} has {name}:{sent}{inside}, {field} says {name}:{wanted}")));
        }
    }
    Ok(Streamed { bytes, unpacked, made })
}

/// What has been read, and whether reading failed: a reader's own error would not tell.
struct Counted<'a> {
    reader: Box<dyn Read + 'a>,
    hash: Hash,
    bytes: u64,
    failed: Option<String>,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer);
        match &read {
            Ok(length) => {
                self.hash.update(&buffer[..*length]);
                self.bytes += *length as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => self.failed = Some(error.to_string()),
        }
        read
    }
}
