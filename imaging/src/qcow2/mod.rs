//! qcow2 images (QEMU's docs/interop/qcow2.txt), as the disk that they stand for: versions 2 and 3, clusters of every size, compressed
//! by deflate or zstd, zero clusters. Read in the disk's order, by parts of the file that may be anywhere.
//!
//! Refused by name: a backing file, encryption, data in another file, extended second tables, a corrupt mark, unknown features.
//! Snapshots inside the file are left alone: the disk is what it is now.

mod cluster;
mod header;
#[cfg(test)]
mod tests;

pub use header::{Header, LENGTH as HEAD, MAGIC};

use cluster::{Entry, Place, Unpacker};
use header::damaged;
use std::io::{self, Read};

/// The file, by parts.
pub trait Parts {
    /// Exactly these bytes.
    fn read(&mut self, first: u64, length: usize) -> io::Result<Vec<u8>>;

    /// These bytes are what is read next, most likely: they can come while others are unpacked.
    fn expect(&mut self, _first: u64, _length: usize) -> io::Result<()> {
        Ok(())
    }
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
    span: Span,
    /// The next one of the disk.
    next: u64,
    cluster: Vec<u8>,
    /// What of it was given out.
    given: usize,
    unpacker: Unpacker,
}

/// Bytes of the file, and where they begin.
#[derive(Default)]
struct Span {
    first: u64,
    bytes: Vec<u8>,
}

impl Span {
    fn part(&self, place: Place) -> Option<&[u8]> {
        let at = usize::try_from(place.first.checked_sub(self.first)?).ok()?;
        self.bytes.get(at..)?.get(..usize::try_from(place.length).ok()?)
    }
}

impl<P: Parts> Reader<P> {
    /// `length`: the file's, in bytes.
    pub fn open(mut parts: P, length: u64) -> io::Result<Self> {
        let head = parts.read(0, header::LENGTH.min(usize::try_from(length).unwrap_or(usize::MAX)))?;
        let header = Header::read(&head)?;
        let (entries, place) = header.l1;
        let l1 = table(&mut parts, length, place, entries)?;
        let (span, unpacker) = (Span::default(), Unpacker::new()?);
        Ok(Self { parts, length, header, l1, l2: None, span, next: 0, cluster: Vec::new(), given: 0, unpacker })
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

    /// How much of the disk a cluster is: the last one may be shorter.
    fn wanted(&self, number: u64) -> u64 {
        self.header.cluster().min(self.header.size - number * self.header.cluster())
    }

    /// Where of the file a cluster is; none: it is zero.
    fn place(&self, number: u64, entry: Entry) -> io::Result<Option<Place>> {
        let behind = |first| damaged(format!("a cluster is at {first}, behind the file's end"));
        match entry {
            Entry::Zero => Ok(None),
            Entry::At(Place { first, .. }) => {
                let length = self.wanted(number);
                match first.checked_add(length).is_none_or(|end| end > self.length) {
                    true => Err(behind(first)),
                    false => Ok(Some(Place { first, length })),
                }
            }
            Entry::Compressed(Place { first, length }) => match self.length.checked_sub(first) {
                // The last one may claim more than the file has: it is rounded up to sectors.
                Some(left @ 1..) => Ok(Some(Place { first, length: length.min(left) })),
                _ => Err(behind(first)),
            },
        }
    }

    /// The next cluster of the disk.
    fn load(&mut self) -> io::Result<()> {
        let wanted = usize::try_from(self.wanted(self.next)).unwrap_or(usize::MAX);
        let entry = self.entry(self.next)?;
        match self.place(self.next, entry)? {
            None => {
                self.cluster.clear();
                self.cluster.resize(wanted, 0);
            }
            Some(place) => {
                self.fetch(place)?;
                let part = self.span.part(place).ok_or_else(|| damaged("a part of it is missing".to_owned()))?;
                match entry {
                    Entry::Compressed(_) => self.unpacker.unpack(part, &self.header, &mut self.cluster)?,
                    _ => {
                        self.cluster.clear();
                        self.cluster.extend_from_slice(part);
                    }
                }
                self.cluster.truncate(wanted);
            }
        }
        (self.next, self.given) = (self.next + 1, 0);
        Ok(())
    }

    /// So that what the next cluster needs is there. What comes behind that is asked for already.
    fn fetch(&mut self, place: Place) -> io::Result<()> {
        if self.span.part(place).is_some() {
            return Ok(());
        }
        let Place { first, length } = self.ahead(self.next, place)?;
        let bytes = self.parts.read(first, usize::try_from(length).unwrap_or(usize::MAX))?;
        self.span = Span { first, bytes };
        match self.behind() {
            Some(Place { first, length }) => self.parts.expect(first, usize::try_from(length).unwrap_or(usize::MAX)),
            None => Ok(()),
        }
    }

    /// The entries of the table at hand, from a cluster on.
    fn entries(&self, number: u64) -> impl Iterator<Item = (u64, u64)> {
        let at = usize::try_from(number % self.header.per_table()).unwrap_or(usize::MAX);
        let entries = self.l2.as_ref().map(|(_, entries)| entries.as_slice()).unwrap_or_default();
        (number..).zip(entries.get(at..).unwrap_or_default().iter().copied())
    }

    /// What is read at once for a cluster at this place: so much as the clusters behind it in the same table use, and no more.
    fn ahead(&self, number: u64, place: Place) -> io::Result<Place> {
        let wanted = SPAN.max(place.length).min(self.length - place.first);
        let mut end = place.first + place.length;
        for (_, entry) in self.entries(number).skip(1) {
            let next = match Entry::read(entry, &self.header)? {
                Entry::Zero => continue,
                Entry::At(next) | Entry::Compressed(next) => next,
            };
            let next_end = next.first.saturating_add(next.length).min(self.length);
            if next.first < end.saturating_sub(cluster::SECTOR) || next_end > place.first + wanted {
                break;
            }
            end = end.max(next_end);
        }
        Ok(Place { first: place.first, length: end - place.first })
    }

    /// What is read after the span, as far as the table at hand says. What is wrong in there is told when it is read.
    fn behind(&self) -> Option<Place> {
        // Behind the disk's end a table has entries of nothing.
        let disk = self.header.size.div_ceil(self.header.cluster());
        for (number, entry) in self.entries(self.next).take_while(|(number, _)| *number < disk) {
            let entry = Entry::read(entry, &self.header).ok()?;
            if let Some(place) = self.place(number, entry).ok()?
                && self.span.part(place).is_none()
            {
                return self.ahead(number, place).ok();
            }
        }
        None
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
