//! Files that are served: iPXE programs, which are read once and compared with their checksums, and the folder of kernels and
//! initial RAM disks. A name is one word; nothing leads out of the folder.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The MAC address in a path, in lower case with colons. iPXE encodes the colons of an URL that it was given.
pub(crate) fn mac_of_path(part: &str) -> String {
    part.to_ascii_lowercase().replace("%3a", ":").replace('-', ":")
}

/// An iPXE program as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramFile {
    pub name: String,
    /// SHA-256 in hexadecimal digits.
    pub checksum: String,
    pub path: PathBuf,
}

#[derive(Debug, Clone, Default)]
pub struct Files {
    programs: BTreeMap<String, Bytes>,
    folder: Option<PathBuf>,
}

impl Files {
    pub fn read(programs: &[ProgramFile], folder: Option<&Path>) -> Result<Self> {
        let read = |file: &ProgramFile| {
            let bytes = std::fs::read(&file.path).with_context(|| format!("read {}", file.path.display()))?;
            let found: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            let (path, wanted) = (file.path.display(), &file.checksum);
            ensure!(found == *wanted, "--program {}: {path} has the SHA-256 {found}, not {wanted}", file.name);
            Ok((file.name.clone(), Bytes::from(bytes)))
        };
        let programs = programs.iter().map(read).collect::<Result<_>>()?;
        let folder = folder.map(|folder| {
            let found = std::fs::canonicalize(folder).with_context(|| format!("--files {}", folder.display()))?;
            ensure!(found.is_dir(), "--files {}: this is no folder", folder.display());
            Ok(found)
        });
        Ok(Self { programs, folder: folder.transpose()? })
    }

    pub fn program(&self, name: &str) -> Option<&Bytes> {
        self.programs.get(name)
    }

    /// The path of a file in the folder. A link that leads elsewhere is none of it.
    pub fn in_folder(&self, name: &str) -> Option<PathBuf> {
        let folder = self.folder.as_ref()?;
        let plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0']);
        let path = plain.then(|| std::fs::canonicalize(folder.join(name)).ok())??;
        (path.starts_with(folder) && path.is_file()).then_some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_the_one_that_was_meant() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("ipxe.efi");
        std::fs::write(&path, "a").expect("written");
        let checksum = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb".to_owned();
        let file = ProgramFile { name: "ipxe.efi".to_owned(), checksum, path };
        let files = Files::read(std::slice::from_ref(&file), None).expect("read");
        assert_eq!(files.program("ipxe.efi"), Some(&Bytes::from_static(b"a")));
        let other = ProgramFile { checksum: "0".repeat(64), ..file };
        let error = Files::read(&[other], None).expect_err("another file").to_string();
        assert!(error.contains("ca978112"), "{error}");
    }

    #[test]
    fn a_mac_address_is_read_as_clients_write_it() {
        for text in ["52:54:00:AB:00:01", "52-54-00-ab-00-01", "52%3A54%3a00%3AAB%3A00%3A01"] {
            assert_eq!(mac_of_path(text), "52:54:00:ab:00:01");
        }
    }

    #[test]
    fn nothing_leads_out_of_the_folder() {
        let outer = tempfile::tempdir().expect("a folder");
        let folder = outer.path().join("files");
        std::fs::create_dir(&folder).expect("made");
        std::fs::write(outer.path().join("secret"), "s").expect("written");
        std::fs::write(folder.join("vmlinuz"), "k").expect("written");
        std::fs::write(folder.join(".hidden"), "h").expect("written");
        std::os::unix::fs::symlink(outer.path().join("secret"), folder.join("link")).expect("linked");
        let files = Files::read(&[], Some(&folder)).expect("read");
        assert!(files.in_folder("vmlinuz").is_some());
        for name in ["", ".", "..", "../secret", "link", ".hidden", "a/b", "\0", "..\\secret", "%2e%2e"] {
            assert_eq!(files.in_folder(name), None, "{name:?}");
        }
    }
}
