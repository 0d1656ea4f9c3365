//! cloud-init's NoCloud volume: FAT, labelled CIDATA, with the files meta-data, user-data, vendor-data and network-config.

use fatfs::{FileSystem, FormatVolumeOptions, FsOptions, ReadWriteSeek};
use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// What cloud-init reads; those that have to be there.
const FILES: [(&str, bool); 4] =
    [("meta-data", true), ("user-data", true), ("vendor-data", false), ("network-config", false)];
/// A FAT volume of this size has room for what a Secret can hold (1 MiB).
pub const BYTES: u64 = 4 << 20;
const LABEL: [u8; 11] = *b"CIDATA     ";

/// Onto [`BYTES`] of a disk whose sectors have `sector` bytes. Other keys than the files' names are left out.
pub fn write<T: ReadWriteSeek>(mut into: T, sector: u16, data: &BTreeMap<String, Vec<u8>>) -> io::Result<()> {
    if let Some((name, _)) = FILES.iter().find(|(name, needed)| *needed && !data.contains_key(*name)) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("there is no {name}")));
    }
    let sectors = u32::try_from(BYTES / u64::from(sector)).expect("a few thousand");
    let options = FormatVolumeOptions::new().bytes_per_sector(sector).total_sectors(sectors).volume_label(LABEL);
    fatfs::format_volume(&mut into, options)?;
    label_root(&mut into)?;
    into.rewind()?;
    let volume = FileSystem::new(&mut into, FsOptions::new())?;
    for (name, content) in FILES.iter().filter_map(|(name, _)| Some((name, data.get(*name)?))) {
        volume.root_dir().create_file(name)?.write_all(content)?;
    }
    volume.unmount()
}

/// The label as an entry of the root folder too: that is the one that blkid calls LABEL, and older cloud-init looks for.
/// Offsets: Microsoft's FAT specification 1.03, "Boot Sector and BPB Structure" and "FAT Directory Structure".
fn label_root(volume: &mut (impl Read + Write + Seek)) -> io::Result<()> {
    let mut bpb = [0; 24];
    volume.rewind()?;
    volume.read_exact(&mut bpb)?;
    let word = |at: usize| u64::from(u16::from_le_bytes([bpb[at], bpb[at + 1]]));
    let (sector, reserved, fats, sectors_per_fat) = (word(11), word(14), u64::from(bpb[16]), word(22));
    let root = (reserved + fats * sectors_per_fat) * sector;
    let mut entry = [0; 32];
    entry[..11].copy_from_slice(&LABEL);
    entry[11] = 0x08;
    volume.seek(SeekFrom::Start(root))?;
    volume.write_all(&entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn a_volume_has_the_label_and_the_files() {
        let network = "version: 2\n".repeat(1000);
        let files = [("meta-data", "instance-id: a\n"), ("user-data", "#cloud-config\n"), ("network-config", &network)];
        let mut data: BTreeMap<_, _> =
            files.map(|(name, content)| (name.to_owned(), content.as_bytes().to_vec())).into();
        data.insert("public-keys".to_owned(), Vec::new());
        for sector in [512, 4096] {
            let mut bytes = vec![0; usize::try_from(BYTES).expect("small")];
            write(Cursor::new(&mut bytes[..]), sector, &data).expect("written");
            let volume = FileSystem::new(Cursor::new(&mut bytes[..]), FsOptions::new()).expect("a FAT volume");
            assert_eq!(volume.volume_label().trim_end(), "CIDATA");
            let in_root = volume.read_volume_label_from_root_dir().expect("readable");
            assert_eq!(in_root.as_deref().map(str::trim_end), Some("CIDATA"));
            for (name, expected) in &files {
                let mut content = String::new();
                volume.root_dir().open_file(name).expect(name).read_to_string(&mut content).expect("read");
                assert_eq!(content, *expected, "{name}");
            }
            assert_eq!(volume.root_dir().iter().count(), 3, "nothing else");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let mut bytes = vec![0; 1 << 20];
        let data = BTreeMap::from([("meta-data".to_owned(), Vec::new())]);
        let error = write(Cursor::new(&mut bytes[..]), 512, &data).expect_err("no user-data");
        assert!(error.to_string().contains("user-data"), "{error}");
        assert!(bytes.iter().all(|byte| *byte == 0), "nothing was written");
    }
}
