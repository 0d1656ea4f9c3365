//! Seeds: cloud-init's NoCloud disk (label CIDATA, files meta-data, user-data, network-config) as a FAT image.

use fatfs::{FileSystem, FormatVolumeOptions, FsOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

/// What cloud-init reads; the first two have to be there.
const FILES: [(&str, bool); 3] = [("meta-data", true), ("user-data", true), ("network-config", false)];
/// A FAT volume of this size has room for what a Secret can hold (1 MiB).
const IMAGE_BYTES: u64 = 4 << 20;
const LABEL: [u8; 11] = *b"CIDATA     ";

#[derive(Debug, Clone)]
pub struct Seeds {
    dir: PathBuf,
}

impl Seeds {
    pub fn open(dir: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&dir)?;
        Ok(Self { dir })
    }

    pub fn path(&self, uid: &str) -> PathBuf {
        self.dir.join(format!("{uid}.img"))
    }

    /// UIDs of the complete images.
    pub fn list(&self) -> io::Result<BTreeSet<String>> {
        let mut uids = BTreeSet::new();
        for file in fs::read_dir(&self.dir)? {
            if let Some(uid) = file?.file_name().to_str().and_then(|name| name.strip_suffix(".img")) {
                uids.insert(uid.to_owned());
            }
        }
        Ok(uids)
    }

    /// Makes the image from a Secret's data. Whole or not at all.
    pub fn write(&self, uid: &str, data: &BTreeMap<String, Vec<u8>>) -> io::Result<()> {
        let missing = |name: &&(&str, bool)| name.1 && !data.contains_key(name.0);
        if let Some((name, _)) = FILES.iter().find(missing) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("the Secret has no key {name}")));
        }
        let path = self.path(uid);
        let new = path.with_extension("new");
        let image = File::options().read(true).write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        image.set_len(IMAGE_BYTES)?;
        fatfs::format_volume(&image, FormatVolumeOptions::new().volume_label(LABEL))?;
        label_root(&image)?;
        {
            let volume = FileSystem::new(&image, FsOptions::new())?;
            for (name, content) in FILES.iter().filter_map(|(name, _)| Some((name, data.get(*name)?))) {
                volume.root_dir().create_file(name)?.write_all(content)?;
            }
        }
        image.sync_all()?;
        fs::rename(&new, &path)
    }

    pub fn remove(&self, uid: &str) -> io::Result<()> {
        match fs::remove_file(self.path(uid)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The label as an entry of the root folder too: that is the one that blkid calls LABEL, and older cloud-init looks for.
/// Offsets: Microsoft's FAT specification 1.03, "Boot Sector and BPB Structure" and "FAT Directory Structure".
fn label_root(image: &File) -> io::Result<()> {
    let mut bpb = [0; 24];
    image.read_exact_at(&mut bpb, 0)?;
    let word = |at: usize| u64::from(u16::from_le_bytes([bpb[at], bpb[at + 1]]));
    let (sector, reserved, fats, sectors_per_fat) = (word(11), word(14), u64::from(bpb[16]), word(22));
    let root = (reserved + fats * sectors_per_fat) * sector;
    let mut entry = [0; 32];
    entry[..11].copy_from_slice(&LABEL);
    entry[11] = 0x08;
    image.write_all_at(&entry, root)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;

    fn data(files: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        files.iter().map(|(name, content)| ((*name).to_owned(), content.as_bytes().to_vec())).collect()
    }

    #[test]
    fn an_image_has_the_label_and_the_files() {
        let dir = tempfile::tempdir().expect("a folder");
        let seeds = Seeds::open(dir.path().join("seeds")).expect("open");
        let network = "version: 2\n".repeat(1000);
        let files =
            data(&[("meta-data", "instance-id: a\n"), ("user-data", "#cloud-config\n"), ("network-config", &network)]);
        seeds.write("a", &files).expect("write");
        assert_eq!(seeds.list().expect("list"), BTreeSet::from(["a".to_owned()]));
        assert_eq!(fs::metadata(seeds.path("a")).expect("metadata").permissions().mode() & 0o777, 0o600);

        let image = File::open(seeds.path("a")).expect("open the image");
        let volume = FileSystem::new(&image, FsOptions::new()).expect("a FAT volume");
        assert_eq!(volume.volume_label().trim_end(), "CIDATA");
        let in_root = volume.read_volume_label_from_root_dir().expect("readable");
        assert_eq!(in_root.as_deref().map(str::trim_end), Some("CIDATA"));
        for (name, expected) in &files {
            let mut content = Vec::new();
            volume.root_dir().open_file(name).expect(name).read_to_end(&mut content).expect("read");
            assert_eq!(&content, expected, "{name}");
        }
        seeds.remove("a").expect("remove");
        seeds.remove("a").expect("remove again");
        assert_eq!(seeds.list().expect("list"), BTreeSet::new());
    }

    #[test]
    fn a_secret_without_user_data_is_refused_by_name() {
        let dir = tempfile::tempdir().expect("a folder");
        let seeds = Seeds::open(dir.path().to_owned()).expect("open");
        let error = seeds.write("a", &data(&[("meta-data", "")])).expect_err("no user-data");
        assert!(error.to_string().contains("user-data"), "{error}");
        assert_eq!(seeds.list().expect("list"), BTreeSet::new());
    }
}
