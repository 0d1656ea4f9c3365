//! Zeros over all of a disk, and all of it read back.

use super::device::{CHUNK, Device};
use super::{Stop, in_time};
use tokio::time::Instant;

/// How often progress is said: one in so many parts.
const TOLD: u64 = 20;

pub(super) fn all(device: &mut dyn Device, until: Instant, say: &dyn Fn(&str)) -> Result<String, Stop> {
    let zeros = vec![0; CHUNK];
    let size = device.size_bytes();
    for (offset, length) in parts(size) {
        in_time(until)?;
        told(size, offset, "written", say);
        let written = device.write(offset, &zeros[..length]);
        written.map_err(|error| Stop::Disk(format!("writing at byte {offset}: {error}")))?;
    }
    device.flush().map_err(|error| Stop::Disk(format!("flushing what was written: {error}")))?;
    let mut read = vec![0; CHUNK];
    for (offset, length) in parts(size) {
        in_time(until)?;
        told(size, offset, "read back", say);
        let part = &mut read[..length];
        part.fill(1);
        device.read(offset, part).map_err(|error| Stop::Disk(format!("reading at byte {offset}: {error}")))?;
        if let Some(at) = part.iter().position(|byte| *byte != 0) {
            return Err(Stop::Disk(format!("zeros were written, and byte {} is another", offset + at as u64)));
        }
    }
    Ok("all of it is zero".to_owned())
}

fn parts(size: u64) -> impl Iterator<Item = (u64, usize)> {
    let offsets = (0..size).step_by(CHUNK);
    offsets.map(move |offset| (offset, usize::try_from(size - offset).unwrap_or(CHUNK).min(CHUNK)))
}

fn told(size: u64, offset: u64, what: &str, say: &dyn Fn(&str)) {
    let every = (size / TOLD).max(1 << 30) / CHUNK as u64 * CHUNK as u64;
    if offset > 0 && offset.is_multiple_of(every) {
        say(&format!("{offset} of {size} bytes {what}"));
    }
}
