//! Images on their way to a disk: read from an URL, unpacked, written, and believed only when their end was verified.
//!
//! ```text
//! fetch (async) → chunks → feed (counts, hashes) → decode (by magic) → pieces (1 MiB) → sink (zeros told from data) → Disk
//!                          └────────────── unpack: a thread ────────┘                   └───────── a thread ────────┘
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`fetch`] | http and https, a few redirects, a limit for silence |
//! | [`proxy`] | HTTP proxies on the way there |
//! | [`registry`] | where in a registry of containers an image of a disk is, and as whom it is asked for |
//! | [`feed`] | the chunks as a stream that knows whether its end came or was cut off |
//! | [`decode`] | raw, gzip, zstd, xz, bzip2 and qcow2, told from each other by their first bytes |
//! | [`qcow2`] | a qcow2 image as the disk that it stands for, read by parts of its file |
//! | [`unpack`] | the thread that unpacks an image, and says whether it is whole |
//! | [`pieces`] | what goes from that thread to the next one: a few buffers that go round |
//! | [`sink`] | the thread that writes |
//! | [`held`] | a disk that can be taken away from its thread |
//! | [`stream`] | what is no image of a disk, given to a reader of somebody else's |
//! | [`disk`] | [`Disk`], and one that is a file or a block device here |
//! | [`gpt`] | the backup partition table, moved to the disk's end, and a partition there; a new table |
//! | [`labels`] | what a disk was a part of before, and is not to be taken for any more |
//! | [`mbr`] | a new partition table for a BIOS |
//! | [`swap`] | swap space |
//! | [`nocloud`] | the volume that cloud-init reads |
//! | [`eraser`] | the disk from which a server boots the installer to erase its disks, and the report on it |
//! | [`hold_disk`] | the disk that a server's firmware is to list, and from which nothing starts |
//! | [`system_partition`] | the EFI system partition of both |
//!
//! **What counts as an end.** All of: the connection ended where `Content-Length` or the last chunk says; the compressed
//! stream ended by its own rules, and nothing follows it; the checksum, if one was given, is that of the bytes as they were
//! sent; the disk took the flush. A raw image that is neither measured nor has a checksum has no end that could be
//! verified, and is refused. A failure names the disk and the cause. With [`Target::wipe`] it leaves zeros in the first and
//! the last MiB of a disk that was begun, so that half an image never boots.
//!
//! **qcow2.** Its tables may be anywhere in the file, and there is no room to keep the file. So it is read by parts (HTTP Range), all of
//! the same version of the file (ETag, Last-Modified, length). With a checksum all of it is read before, once more, and compared: nothing
//! is written before the file is known to be the one that was meant.
//!
//! The DPU agent's imports and the installer are what uses it. Of ours it depends on `trust`, and on `proto` for the mark of those places.

mod client;
pub mod decode;
pub mod disk;
pub mod eraser;
mod feed;
pub mod fetch;
pub mod gpt;
mod held;
pub mod hold_disk;
pub mod labels;
pub mod mbr;
pub mod nocloud;
mod pieces;
mod proxy;
pub mod qcow2;
pub mod registry;
mod remote;
mod sink;
mod stream;
pub mod swap;
mod system_partition;
mod unpack;

pub use decode::Packing;
pub use disk::{Disk, FileDisk, wipe};
pub use proxy::Proxies;
pub use stream::{Streamed, read};

use held::Held;
use std::io;
use std::sync::atomic::AtomicU64;
use tokio::sync::{Notify, mpsc, oneshot};
use trust::Bundle;

/// Chunks between the network and the disk. A chunk is what one read of the connection gave, at most some 16 KiB with
/// TLS, so this stays below a megabyte.
const CHUNKS: usize = 16;

/// What somebody who was refused can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The same again fails again.
    Invalid,
    Unauthorized,
    NotFound,
    /// Later, perhaps.
    Busy,
    /// Nobody answers, or no longer.
    Unreachable,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    pub kind: Kind,
    /// Names the disk or the URL without its query, and the cause.
    pub message: String,
}

impl Error {
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// An operation on a file or a disk.
    pub fn file(what: &str, object: &str, error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => Kind::NotFound,
            io::ErrorKind::PermissionDenied => Kind::Unauthorized,
            io::ErrorKind::TimedOut => Kind::Unreachable,
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => Kind::Invalid,
            _ => Kind::Busy,
        };
        Self::new(kind, format!("{what} {object}: {error}"))
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    Sha256,
    Sha512,
}

impl Algorithm {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    fn digits(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }
}

/// Of the bytes as the server sends them: what is published beside an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksum {
    pub algorithm: Algorithm,
    /// Lower-case hex.
    pub hex: String,
}

impl std::str::FromStr for Checksum {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || format!("{text:?} is no checksum: write sha256:<64 hex digits> or sha512:<128 hex digits>");
        let (algorithm, hex) = text.split_once(':').ok_or_else(wanted)?;
        let algorithm = match algorithm {
            "sha256" => Algorithm::Sha256,
            "sha512" => Algorithm::Sha512,
            _ => return Err(wanted()),
        };
        let hex = hex.to_ascii_lowercase();
        match hex.len() == algorithm.digits() && hex.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            true => Ok(Self { algorithm, hex }),
            false => Err(wanted()),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Source {
    pub url: String,
    pub checksum: Option<Checksum>,
    /// Where the checksum was written, for the message of one that differs.
    pub checksum_field: &'static str,
    pub packing: Packing,
    /// Who asks: the HTTP header `User-Agent`.
    pub user_agent: String,
    pub authorities: Authorities,
    /// Where they are written, for the message of a server that they do not vouch for.
    pub authorities_field: &'static str,
    /// As whom, where the server is a registry.
    pub access: Option<registry::Access>,
    pub proxies: Proxies,
}

/// Who vouches for an https server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authorities {
    /// Those that this system trusts.
    Public,
    /// These alone.
    These(Bundle),
    /// Nobody: whoever answers is the server.
    NotAsked,
}

impl From<Option<Bundle>> for Authorities {
    fn from(named: Option<Bundle>) -> Self {
        named.map_or(Self::Public, Self::These)
    }
}

/// What of the target is kept behind the image's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// Nothing: all of it reads zero.
    Zeroed,
    /// What is there, but for the last MiB: a disk of terabytes that cannot discard is not written from end to end.
    Kept,
}

#[derive(Debug, Clone)]
pub struct Target {
    /// As messages have it: `volume vol-1`, `disk /dev/vda`.
    pub name: String,
    pub size_bytes: u64,
    /// What to do about an image that does not fit.
    pub too_small: &'static str,
    pub rest: Rest,
    /// Whether a failure leaves zeros in the first and the last MiB, if anything was written before it.
    pub wipe: bool,
}

/// An image that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// As they were sent.
    pub bytes: u64,
    /// As they were written.
    pub unpacked: u64,
    /// Lower-case hex; by the checksum's algorithm, sha256 if none was given. None of a qcow2 image without a checksum: not all of its
    /// file was read.
    pub digest: Option<String>,
}

/// How far a copy is, told about once a second.
#[derive(Debug)]
pub struct Progress<'a> {
    pub bytes: &'a AtomicU64,
    /// How many there are, once the server has said so; 0 before, and where it does not.
    pub of: &'a AtomicU64,
    pub wake: &'a Notify,
}

/// Copies an image to a disk. When this returns nothing writes the disk any more, nor when it was dropped: that waits for what is being
/// written at the moment, and zeroes the ends as any failure does. `stopped` ends it early, and says why.
pub async fn copy(
    source: &Source,
    target: Target,
    disk: Box<dyn Disk>,
    progress: &Progress<'_>,
    stopped: impl Future<Output = String>,
) -> Result<Copied, Error> {
    tokio::pin!(stopped);
    let held = Held::new(disk, &target);
    let (sender, chunks) = mpsc::channel(CHUNKS);
    let (image, place, disk) = (source.clone(), target.clone(), held.lend());
    let (ending, ended) = oneshot::channel();
    let writer = tokio::task::spawn_blocking(move || {
        sink::copy(&place, disk, ending, |pieces| unpack::stream(&image, &place, chunks, pieces))
    });
    let fetched = until(stopped.as_mut(), beside(ended, fetch::fetch(source, &sender, progress))).await;
    drop(sender);
    let written = writer.await.map_err(|panic| broken(source, &panic))?;
    match both(fetched, written)? {
        unpack::Outcome::Copied(copied) => Ok(copied),
        unpack::Outcome::Qcow2 => remote::copy(source, target, &held, progress, stopped).await,
    }
}

async fn until<T>(
    stopped: impl Future<Output = String>,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::select! {
        biased;
        done = work => done,
        why = stopped => Err(Error::new(Kind::Busy, why)),
    }
}

/// Work for a thread, or no more of it once that has ended: it says itself why.
async fn beside(ended: oneshot::Receiver<()>, work: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    tokio::select! {
        biased;
        done = work => done,
        _ = ended => Ok(()),
    }
}

fn broken(source: &Source, panic: &tokio::task::JoinError) -> Error {
    Error::new(Kind::Invalid, format!("writing the image of {}: {panic}", fetch::plain(&source.url)))
}

/// What came of both sides of a copy.
fn both<T>(fetched: Result<(), Error>, written: Result<T, Error>) -> Result<T, Error> {
    match (fetched, written) {
        // That its stream was cut off is all a writer knows of what ended the other side.
        (_, Err(error)) if error.kind != Kind::Busy => Err(error),
        (Err(error), _) | (Ok(()), Err(error)) => Err(error),
        (Ok(()), Ok(done)) => Ok(done),
    }
}
