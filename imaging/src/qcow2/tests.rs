use super::*;
use proptest::prelude::*;

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
