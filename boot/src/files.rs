//! Files that are served: boot programs, which are read once and compared with their checksums, and the folder of kernels, initial RAM
//! disks and ISO images. A name is one word; nothing leads out of the folder.

use crate::script::KERNEL_PARAMS;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use proto::argument_area::{self as area, Places};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// The MAC address in a path, in lower case with colons. iPXE encodes the colons of an URL that it was given.
pub(crate) fn mac_of_path(part: &str) -> String {
    part.to_ascii_lowercase().replace("%3a", ":").replace('-', ":")
}

/// A boot program, for one server.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    configured: Configured,
    filling: Arc<[u8]>,
}

/// The same for all servers.
#[derive(Debug, Clone, PartialEq)]
struct Configured {
    bytes: Bytes,
    places: Places,
    /// The beginning of its checksum.
    version: String,
}

/// The beginning of a SHA-256: tells versions of a file from each other.
pub(crate) fn short_digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

impl Program {
    pub fn length(&self) -> usize {
        self.configured.bytes.len()
    }

    pub fn etag(&self) -> String {
        let own = if self.filling.is_empty() { String::new() } else { format!("-{}", short_digest(&self.filling)) };
        format!("\"{}{own}\"", self.configured.version)
    }

    /// What of it there is from `first` on, `length` bytes at most.
    pub fn part(&self, first: usize, length: usize) -> Bytes {
        let Configured { bytes, places, .. } = &self.configured;
        let first = first.min(bytes.len());
        let part = bytes.slice(first..first.saturating_add(length).min(bytes.len()));
        if !area::touches(places, first as u64, part.len() as u64) {
            return part;
        }
        let mut part = part.to_vec();
        area::fill(places, &self.filling, first as u64, &mut part);
        part.into()
    }

    /// One that is the same for all servers.
    pub(crate) fn of(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let version = short_digest(&bytes);
        Self { configured: Configured { bytes, places: Arc::new([]), version }, filling: Arc::new([]) }
    }
}

/// A boot program as it is configured: iPXE, or the installer as a unified kernel image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramFile {
    pub name: String,
    /// SHA-256 in hexadecimal digits.
    pub checksum: String,
    pub path: PathBuf,
}

#[derive(Debug, Clone, Default)]
pub struct Files {
    programs: BTreeMap<String, Configured>,
    folder: Option<PathBuf>,
    images: Arc<Mutex<Images>>,
}

/// The places of ISO images, by what would be another one if the image were replaced: path, length, time of its last change.
type Images = BTreeMap<(PathBuf, u64, SystemTime), Places>;

impl Files {
    pub fn read(programs: &[ProgramFile], folder: Option<&Path>) -> Result<Self> {
        let read = |file: &ProgramFile| {
            let bytes = std::fs::read(&file.path).with_context(|| format!("read {}", file.path.display()))?;
            let found: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            let (path, wanted) = (file.path.display(), &file.checksum);
            ensure!(found == *wanted, "--program {}: {path} has the SHA-256 {found}, not {wanted}", file.name);
            let places = area::find(&bytes[..]).with_context(|| format!("read {path}"))?;
            let version = found.chars().take(16).collect();
            Ok((file.name.clone(), Configured { bytes: Bytes::from(bytes), places, version }))
        };
        let programs = programs.iter().map(read).collect::<Result<_>>()?;
        let folder = folder.map(|folder| {
            let found = std::fs::canonicalize(folder).with_context(|| format!("--files {}", folder.display()))?;
            ensure!(found.is_dir(), "--files {}: this is no folder", folder.display());
            Ok(found)
        });
        Ok(Self { programs, folder: folder.transpose()?, images: Arc::default() })
    }

    /// `arguments`: what the kernel is told, if the program is one.
    pub fn program(&self, name: &str, arguments: impl FnOnce() -> Result<String, String>) -> Result<Program, String> {
        let missing = || format!("no program '{name}' is configured");
        let configured = self.programs.get(name).cloned().ok_or_else(missing)?;
        let filling: Arc<[u8]> =
            if configured.places.is_empty() { Arc::new([]) } else { area::filling(&arguments()?, KERNEL_PARAMS)? };
        Ok(Program { configured, filling })
    }

    /// Where the arguments go in an ISO image; looked for once.
    pub fn places(&self, path: &Path) -> io::Result<Places> {
        let file = std::fs::File::open(path)?;
        let meta = file.metadata()?;
        let key = (path.to_owned(), meta.len(), meta.modified()?);
        let known = self.images.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(places) = known {
            return Ok(places);
        }
        let found = area::find(file)?;
        let mut images = self.images.lock().unwrap_or_else(PoisonError::into_inner);
        images.retain(|(other, ..), _| other != path);
        images.insert(key, found.clone());
        Ok(found)
    }

    pub(crate) fn is_of_folder(&self, path: &Path) -> bool {
        self.folder.as_deref().is_some_and(|folder| path.parent() == Some(folder))
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
        let none = || Err("no arguments are wanted".to_owned());
        assert_eq!(files.program("ipxe.efi", none), Ok(Program::of("a")));
        assert!(files.program("other.efi", none).expect_err("none").contains("other.efi"));
        let other = ProgramFile { checksum: "0".repeat(64), ..file };
        let error = Files::read(&[other], None).expect_err("another file").to_string();
        assert!(error.contains("ca978112"), "{error}");
    }

    #[test]
    fn a_unified_image_has_the_servers_arguments() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("installer.efi");
        let bytes = [&b"MZ"[..], proto::argument_area::empty().as_bytes(), b"end"].concat();
        std::fs::write(&path, &bytes).expect("written");
        let checksum: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let files =
            Files::read(&[ProgramFile { name: "i".to_owned(), checksum, path: path.clone() }], None).expect("read");
        let program = files.program("i", || Ok("worker_id=a".to_owned())).expect("filled");
        assert_eq!(program.length(), bytes.len());
        assert_eq!(program.part(0, 16), "MZworker_id=a   ");
        assert_eq!(program.part(1024, 99), "  end");
        assert_eq!(program.part(9999, 99), "");
        assert!(files.program("i", || Err("agentID: a blank".to_owned())).is_err());
        assert_eq!(*files.places(&path).expect("found"), [2]);
        std::fs::write(&path, "another").expect("written");
        assert!(files.places(&path).expect("looked for again").is_empty());
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
