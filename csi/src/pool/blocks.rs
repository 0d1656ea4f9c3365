//! What a pool's volumes are made of. Records, locks and names are the pool's; where the bytes are is said here.

use super::{Ailment, Capacity, Fault, Handle, Limits, Volume};
use std::{fmt, path::PathBuf};

/// What a copy is made of: a volume or a snapshot that exists.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    pub(super) id: Handle,
    pub(super) is_snapshot: bool,
    /// Where its record is.
    pub(super) folder: PathBuf,
    /// As on record.
    pub(super) size_bytes: u64,
}

/// A volume or snapshot that is being made: its record and all that belongs beside it go into the folder, which is renamed
/// into place when the blocks are there.
#[derive(Debug)]
pub(super) struct New<'a> {
    pub(super) id: &'a Handle,
    pub(super) folder: PathBuf,
    pub(super) size_bytes: u64,
}

/// Whatever changes something is called with the pool's lock, and may be called again after it was interrupted.
pub(super) trait Blocks: fmt::Debug + Send + Sync {
    fn capacity(&self) -> Result<Capacity, Fault>;

    /// Sizes are multiples of this.
    fn step(&self) -> Result<u64, Fault>;

    /// Volumes are files in their folders: nodes that have the pool open them, and several can be cut at one moment. `false`:
    /// they are to be had from a storage node, wherever a DPU is.
    fn are_files(&self) -> bool;

    /// A volume, blank or as a copy. The answer is the UUID of its blocks, where they have one.
    fn make(&self, new: &New<'_>, origin: Option<&Origin>) -> Result<Option<String>, Fault>;

    fn snapshot(&self, new: &New<'_>, volume: &Origin) -> Result<(), Fault>;

    fn grow(&self, volume: &Origin, size_bytes: u64) -> Result<(), Fault>;

    fn limit(&self, volume: &Handle, limits: &Limits) -> Result<(), Fault>;

    /// Whom the storage itself shows connected to the volume: that keeps it from being deleted.
    fn user(&self, volume: &Handle) -> Result<Option<String>, Fault>;

    /// Before the record goes.
    fn remove(&self, volume: &Handle) -> Result<(), Fault>;

    /// Before the record goes.
    fn remove_snapshot(&self, id: &Handle) -> Result<(), Fault>;

    /// What is wrong with the blocks of a volume.
    fn ailment(&self, volume: &Origin) -> Option<Ailment>;

    /// What whoever opens a volume needs besides pool and handle.
    fn context(&self, volume: &Volume) -> Vec<(&'static str, String)>;

    /// Puts right what a restart of the storage, or a crash of ours, left otherwise than it is on record.
    fn tend(&self, volume: &Volume, folder: PathBuf) -> Result<(), Fault>;

    /// Removes what nothing depends on any more. `anew`: this process has just started.
    fn sweep(&self, anew: bool) -> Result<(), Fault>;
}
