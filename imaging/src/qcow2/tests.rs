use super::*;
use crate::qcow2::header::Compression;
use proptest::prelude::*;
use std::io::Write;

/// A file in memory.
pub struct Memory(pub Vec<u8>);

impl Parts for Memory {
    fn read(&mut self, first: u64, length: usize) -> io::Result<Vec<u8>> {
        let first = usize::try_from(first).map_err(io::Error::other)?;
        let part = self.0.get(first..).and_then(|rest| rest.get(..length));
        part.map(<[u8]>::to_vec).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

fn disk(file: Vec<u8>) -> io::Result<Vec<u8>> {
    let (length, mut disk) = (file.len() as u64, Vec::new());
    let mut reader = Reader::open(Memory(file), length)?;
    // As much as the tests' own images have, and a little more.
    let read = reader.by_ref().take(1 << 20).read_to_end(&mut disk);
    read.map(|_| disk)
}

const CLUSTER: usize = 512;

/// Version 3, of clusters of 512 bytes: header, first table, second table, then data. The disk: data, zeros, data compressed, and 100
/// bytes of a cluster that was never written.
fn image() -> Vec<u8> {
    let mut file = vec![0; 5 * CLUSTER];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, MAGIC);
    put(4, &3_u32.to_be_bytes());
    put(20, &9_u32.to_be_bytes());
    put(24, &(3 * CLUSTER as u64 + 100).to_be_bytes());
    put(36, &1_u32.to_be_bytes());
    put(40, &(CLUSTER as u64).to_be_bytes());
    put(100, &104_u32.to_be_bytes());
    put(CLUSTER, &((1 << 63) | (2 * CLUSTER as u64)).to_be_bytes());
    put(2 * CLUSTER, &((1 << 63) | (3 * CLUSTER as u64)).to_be_bytes());
    put(2 * CLUSTER + 8, &1_u64.to_be_bytes());
    put(2 * CLUSTER + 16, &((1 << 62) | (4 * CLUSTER as u64)).to_be_bytes());
    put(3 * CLUSTER, &[7; CLUSTER]);
    let mut packed = Vec::new();
    let mut deflate = flate2::Compress::new(flate2::Compression::fast(), false);
    packed.reserve(CLUSTER);
    deflate.compress_vec(&[8; CLUSTER], &mut packed, flate2::FlushCompress::Finish).expect("packed");
    put(4 * CLUSTER, &packed);
    // It need not fill its sectors.
    file.truncate(4 * CLUSTER + packed.len());
    file
}

#[test]
fn a_disk_is_read_in_its_order() {
    let wanted = [&[7; CLUSTER][..], &[0; CLUSTER], &[8; CLUSTER], &[0; 100]].concat();
    assert_eq!(disk(image()).expect("read"), wanted);
}

#[test]
fn what_is_not_read_is_refused_by_its_name() {
    for (at, byte, said) in [
        (7, 4, "is of version 4"),
        (15, 1, "has a backing file"),
        (35, 2, "is encrypted"),
        (79, 1 << 1, "marked as corrupt"),
        (79, 1 << 2, "data in another file"),
        (79, 1 << 4, "extended_l2"),
        (78, 1, "not known here"),
        (23, 30, "2^30 bytes"),
        (39, 0, "first table"),
        (40, 1, "behind the file's end"),
        (CLUSTER + 6, 0x0a, "behind the file's end"),
        (2 * CLUSTER + 5, 1, "behind the file's end"),
        (2 * CLUSTER + 7, 4, "which is none"),
        (4 * CLUSTER, 0xff, "compressed cluster"),
    ] {
        let mut file = image();
        file[at] = byte;
        let error = disk(file).expect_err(said).to_string();
        assert!(error.contains(said), "{at}: {error}");
    }
    let mut old = image();
    old[7] = 2;
    let error = disk(old).expect_err("zero clusters are version 3's").to_string();
    assert!(error.contains("version 2"), "{error}");
}

#[test]
fn a_dirty_mark_is_of_what_is_not_read() {
    let mut file = image();
    file[79] = 1;
    assert!(disk(file).is_ok());
}

#[test]
fn every_prefix_is_a_failure() {
    let file = image();
    for length in 0..file.len() {
        assert!(disk(file[..length].to_vec()).is_err(), "{length}");
    }
}

/// A file that notes what is read of it, and what it was told to expect.
struct Noted<'a>(Memory, &'a mut Vec<(&'static str, u64, usize)>);

impl Parts for Noted<'_> {
    fn read(&mut self, first: u64, length: usize) -> io::Result<Vec<u8>> {
        self.1.push(("read", first, length));
        self.0.read(first, length)
    }

    fn expect(&mut self, first: u64, length: usize) -> io::Result<()> {
        self.1.push(("expect", first, length));
        Ok(())
    }
}

/// Clusters that lie in the file in another order than in the disk: no two are read at once.
#[test]
fn what_is_read_next_is_asked_for_before_what_is_there_is_unpacked() {
    let mut file = image();
    let (length, mut noted) = (6 * CLUSTER, Vec::new());
    file.resize(length, 9);
    for (cluster, at) in [(0, 5), (1, 4), (2, 3)] {
        let place = 2 * CLUSTER + cluster * 8;
        file[place..place + 8].copy_from_slice(&((1 << 63) | (at * CLUSTER as u64)).to_be_bytes());
    }
    let mut reader = Reader::open(Noted(Memory(file), &mut noted), length as u64).expect("opened");
    let read = reader.read_to_end(&mut Vec::new()).expect("read");
    assert_eq!(read, 3 * CLUSTER + 100);
    let at = |cluster: u64| cluster * CLUSTER as u64;
    let data = [("read", at(5)), ("expect", at(4)), ("read", at(4)), ("expect", at(3)), ("read", at(3))];
    assert_eq!(noted[3..], data.map(|(what, first)| (what, first, CLUSTER)), "behind header and tables: {noted:?}");
}

fn pack(compression: Compression, data: &[u8]) -> Vec<u8> {
    match compression {
        Compression::Deflate => {
            let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(data).expect("packed");
            encoder.finish().expect("packed")
        }
        Compression::Zstd => zstd::encode_all(data, 1).expect("packed"),
    }
}

fn header(compression: Compression) -> Header {
    Header { version: 3, cluster_bits: 9, size: CLUSTER as u64, l1: (1, 0), compression }
}

#[test]
fn a_compressed_cluster_has_its_size_and_an_end() {
    let data: Vec<u8> = (0..2 * CLUSTER).map(|at| (at * at / 7 % 251) as u8).collect();
    let (mut unpacker, mut cluster) = (Unpacker::new().expect("memory"), Vec::new());
    for compression in [Compression::Deflate, Compression::Zstd] {
        let header = header(compression);
        let packed = pack(compression, &data[..CLUSTER]);
        // One after the other, also after a failure; the length is rounded up, so another one's beginning follows.
        for follows in [&[][..], &[0; 20], &packed] {
            let packed = [&packed, follows].concat();
            unpacker.unpack(&packed, &header, &mut cluster).expect("a cluster");
            assert!(cluster == data[..CLUSTER], "{compression:?}");
            for length in 0..packed.len() - follows.len() {
                let error = unpacker.unpack(&packed[..length], &header, &mut cluster);
                let error = error.expect_err("it is cut off").to_string();
                assert!(error.contains("a compressed cluster"), "{compression:?}, {length} bytes: {error}");
            }
        }
        for other in [0, CLUSTER - 1, CLUSTER + 1, 2 * CLUSTER] {
            assert!(
                unpacker.unpack(&pack(compression, &data[..other]), &header, &mut cluster).is_err(),
                "{compression:?}, {other}"
            );
        }
    }
    // QEMU reads a cluster of several frames.
    let two = [&data[..100], &data[100..CLUSTER]].map(|part| pack(Compression::Zstd, part)).concat();
    unpacker.unpack(&two, &header(Compression::Zstd), &mut cluster).expect("a cluster");
    assert!(cluster == data[..CLUSTER]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_change_is_survived(changes in proptest::collection::vec((0usize..4 * CLUSTER, any::<u8>()), 0..8)) {
        let mut file = image();
        for (at, byte) in changes {
            file[at] = byte;
        }
        let _ = disk(file);
    }

    #[test]
    fn any_header_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = disk([MAGIC, &bytes].concat());
    }
}
