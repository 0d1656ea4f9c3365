//! Seeds: cloud-init's NoCloud disk (label CIDATA, files meta-data, user-data, network-config) as a FAT image.

use imaging::nocloud;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// The host's disk has sectors of this size.
const SECTOR: u16 = 512;

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
        self.make(uid, |image| {
            image.set_len(nocloud::BYTES)?;
            nocloud::write(image, SECTOR, data)
                .map_err(|error| io::Error::new(error.kind(), format!("of the Secret: {error}")))
        })
    }

    /// An image of another kind, kept and removed as a seed's.
    pub(crate) fn make(&self, uid: &str, fill: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
        let path = self.path(uid);
        let new = path.with_extension("new");
        let image = File::options().read(true).write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        fill(&image)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn data(files: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        files.iter().map(|(name, content)| ((*name).to_owned(), content.as_bytes().to_vec())).collect()
    }

    #[test]
    fn an_image_is_there_whole_and_for_its_owner_alone() {
        let dir = tempfile::tempdir().expect("a folder");
        let seeds = Seeds::open(dir.path().join("seeds")).expect("open");
        let files = data(&[("meta-data", "instance-id: a\n"), ("user-data", "#cloud-config\n")]);
        seeds.write("a", &files).expect("write");
        assert_eq!(seeds.list().expect("list"), BTreeSet::from(["a".to_owned()]));
        let meta = fs::metadata(seeds.path("a")).expect("metadata");
        assert_eq!((meta.permissions().mode() & 0o777, meta.len()), (0o600, nocloud::BYTES));
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
