//! qcow2 images (QEMU's docs/interop/qcow2.txt), as the disk that they stand for: versions 2 and 3, clusters of every size, compressed
//! by deflate or zstd, zero clusters. Read in the disk's order, by parts of the file that may be anywhere.
//!
//! Refused by name: a backing file, encryption, data in another file, extended second tables, a corrupt mark, unknown features.
//! Snapshots inside the file are left alone: the disk is what it is now.

mod cluster;
mod header;
#[cfg(test)]
mod tests;

pub use header::{Header, MAGIC};

use cluster::{Entry, Place};
use header::damaged;
use std::io::{self, Read};

/// The file, by parts.
pub trait Parts {
    /// Exactly these bytes.
    fn read(&mut self, first: u64, length: usize) -> io::Result<Vec<u8>>;
}

/// Read at once of the file's data, so that what lies side by side is not asked for one by one.
const SPAN: u64 = 4 << 20;

/// The disk's bytes, in order.
pub struct Reader<P> {
    parts: P,
    length: u64,
    pub header: Header,
    l1: Vec<u64>,
    /// The second table that was read last, and which it is.
    l2: Option<(u64, Vec<u64>)>,
    /// Of the file: where it begins, and its bytes.
    span: (u64, Vec<u8>),
    /// The next one of the disk.
    next: u64,
    cluster: Vec<u8>,
    /// What of it was given out.
    given: usize,
}

impl<P: Parts> Reader<P> {
    /// `length`: the file's, in bytes.
    pub fn open(mut parts: P, length: u64) -> io::Result<Self> {
        let head = parts.read(0, header::LENGTH.min(usize::try_from(length).unwrap_or(usize::MAX)))?;
        let header = Header::read(&head)?;
        let (entries, place) = header.l1;
        let l1 = table(&mut parts, length, place, entries)?;
        Ok(Self { parts, length, header, l1, l2: None, span: (0, Vec::new()), next: 0, cluster: Vec::new(), given: 0 })
    }

    fn entry(&mut self, number: u64) -> io::Result<Entry> {
        let per_table = self.header.per_table();
        let (which, at) = (number / per_table, usize::try_from(number % per_table).unwrap_or(usize::MAX));
        if self.l2.as_ref().is_none_or(|(known, _)| *known != which) {
            let place = usize::try_from(which).ok().and_then(|which| self.l1.get(which)).copied().unwrap_or_default();
            let place = cluster::table_at(place)?;
            let entries = match place {
                0 => vec![0; usize::try_from(per_table).unwrap_or_default()],
                place if place.is_multiple_of(self.header.cluster()) => {
                    table(&mut self.parts, self.length, place, per_table)?
                }
                place => return Err(damaged(format!("a second table is at {place}, which no cluster begins at"))),
            };
            self.l2 = Some((which, entries));
        }
        let entry = self.l2.as_ref().and_then(|(_, entries)| entries.get(at)).copied().unwrap_or_default();
        Entry::read(entry, &self.header)
    }

    /// The next cluster of the disk; its last one may be shorter.
    fn load(&mut self) -> io::Result<()> {
        let begin = self.next * self.header.cluster();
        let wanted = usize::try_from(self.header.cluster().min(self.header.size - begin)).unwrap_or(usize::MAX);
        match self.entry(self.next)? {
            Entry::Zero => {
                self.cluster.clear();
                self.cluster.resize(wanted, 0);
            }
            Entry::At(place) => {
                let length = wanted as u64;
                if place.first.checked_add(length).is_none_or(|end| end > self.length) {
                    return Err(damaged(format!("a cluster is at {}, behind the file's end", place.first)));
                }
                self.cluster = self.part(Place { first: place.first, length })?;
            }
            Entry::Compressed(place) => {
                let Some(left @ 1..) = self.length.checked_sub(place.first) else {
                    return Err(damaged(format!("a cluster is at {}, behind the file's end", place.first)));
                };
                // The last one may claim more than the file has: it is rounded up to sectors.
                let packed = self.part(Place { length: place.length.min(left), ..place })?;
                self.cluster = cluster::unpack(&packed, &self.header)?;
                self.cluster.truncate(wanted);
            }
        }
        (self.next, self.given) = (self.next + 1, 0);
        Ok(())
    }

    fn part(&mut self, place: Place) -> io::Result<Vec<u8>> {
        let (begin, bytes) = &self.span;
        if place.first < *begin || place.first + place.length > begin + bytes.len() as u64 {
            let wanted = SPAN.max(place.length).min(self.length - place.first);
            let length = self.ahead(place, wanted)?;
            self.span = (place.first, self.parts.read(place.first, usize::try_from(length).unwrap_or(usize::MAX))?);
        }
        let (begin, bytes) = &self.span;
        let at = usize::try_from(place.first - begin).unwrap_or(usize::MAX);
        Ok(bytes[at..at + usize::try_from(place.length).unwrap_or(usize::MAX)].to_vec())
    }

    /// How much of `wanted` bytes from this place on the next clusters of the same table use: no more is fetched.
    fn ahead(&self, place: Place, wanted: u64) -> io::Result<u64> {
        let mut end = place.first + place.length;
        let at = usize::try_from(self.next % self.header.per_table()).unwrap_or(usize::MAX);
        let entries = self.l2.as_ref().map(|(_, entries)| entries.as_slice()).unwrap_or_default();
        for entry in entries.get(at + 1..).unwrap_or_default() {
            let next = match Entry::read(*entry, &self.header)? {
                Entry::Zero => continue,
                Entry::At(next) | Entry::Compressed(next) => next,
            };
            let next_end = next.first.saturating_add(next.length).min(self.length);
            if next.first < end.saturating_sub(cluster::SECTOR) || next_end > place.first + wanted {
                break;
            }
            end = end.max(next_end);
        }
        Ok(end - place.first)
    }
}

impl<P: Parts> Read for Reader<P> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given == self.cluster.len() {
            if self.next >= self.header.size.div_ceil(self.header.cluster()) {
                return Ok(0);
            }
            self.load()?;
        }
        let left = &self.cluster[self.given..];
        let length = left.len().min(buffer.len());
        buffer[..length].copy_from_slice(&left[..length]);
        self.given += length;
        Ok(length)
    }
}

fn table(parts: &mut impl Parts, file: u64, place: u64, entries: u64) -> io::Result<Vec<u64>> {
    let length = entries * 8;
    if place.checked_add(length).is_none_or(|end| end > file) {
        return Err(damaged(format!("a table is at {place}, behind the file's end")));
    }
    let bytes = parts.read(place, usize::try_from(length).unwrap_or(usize::MAX))?;
    Ok(bytes.chunks_exact(8).map(|entry| entry.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))).collect())
}
