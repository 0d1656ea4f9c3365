//! Finds the disk that the DPU has plugged in: by what the kernel says of each disk in /sys.
//!
//! An NVMe namespace with a UUID is known by that alone. A serial number is its controller's, which may have several
//! namespaces: it counts only where it leads to one disk, and where the emulation could not give the namespace a UUID.

use crate::node::Device;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

#[derive(Debug, Clone)]
pub struct Disks {
    /// /sys/block and /dev, but for tests.
    block: PathBuf,
    dev: PathBuf,
}

/// What a machine's status says of a disk; one of them at least.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiskIdentity {
    pub wwid: Option<String>,
    pub serial: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error("the disks {first} and {second} both have the serial number {serial}: which one is meant cannot be told")]
    Ambiguous { serial: String, first: String, second: String },
    #[error("cannot read {}: {cause}", path.display())]
    Io { path: PathBuf, cause: io::Error },
}

impl Default for Disks {
    fn default() -> Disks {
        Disks::at(Path::new("/sys/block"), Path::new("/dev"))
    }
}

impl Disks {
    pub fn at(block: &Path, dev: &Path) -> Disks {
        Disks { block: block.into(), dev: dev.into() }
    }

    /// `None`: the kernel has not seen it yet, or sees it no more.
    pub fn find(&self, identity: &DiskIdentity) -> Result<Option<Device>, FindError> {
        let names = self.names()?;
        if let Some(wwid) = &identity.wwid
            && let Some(name) =
                names.iter().find(|name| self.wwid(name).is_some_and(|it| it.eq_ignore_ascii_case(wwid)))
        {
            return Ok(Some(self.device(name)));
        }
        let Some(serial) = &identity.serial else { return Ok(None) };
        // A disk with another UUID is another disk, whatever its controller's number.
        let nameless = |name: &&String| identity.wwid.is_none() || !self.has_uuid(name);
        let mut found = names.iter().filter(|name| self.serial(name).as_ref() == Some(serial)).filter(nameless);
        match (found.next(), found.next()) {
            (Some(first), Some(second)) => Err(FindError::Ambiguous {
                serial: serial.clone(),
                first: self.dev.join(first).display().to_string(),
                second: self.dev.join(second).display().to_string(),
            }),
            (only, _) => Ok(only.map(|name| self.device(name))),
        }
    }

    /// Whole disks that have a device node; the hidden paths of a multipath disk have none.
    fn names(&self) -> Result<Vec<String>, FindError> {
        let io = |cause| FindError::Io { path: self.block.clone(), cause };
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.block).map_err(io)? {
            if let Ok(name) = entry.map_err(io)?.file_name().into_string()
                && self.word(&name, "dev").is_some()
                && self.word(&name, "hidden").is_none_or(|hidden| hidden == "0")
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn device(&self, name: &str) -> Device {
        Device { path: self.dev.join(name), read_only: self.word(name, "ro").is_some_and(|ro| ro == "1") }
    }

    fn wwid(&self, name: &str) -> Option<String> {
        self.word(name, "wwid").or_else(|| self.word(name, "uuid").map(|uuid| format!("uuid.{uuid}")))
    }

    fn has_uuid(&self, name: &str) -> bool {
        self.wwid(name).is_some_and(|wwid| wwid.starts_with("uuid."))
    }

    /// virtio has it at the disk, NVMe at the controller.
    fn serial(&self, name: &str) -> Option<String> {
        self.word(name, "serial").or_else(|| self.word(name, "device/serial"))
    }

    /// What a file of /sys says; one that is not there, or that the driver does not answer for, says nothing.
    fn word(&self, name: &str, file: &str) -> Option<String> {
        let text = fs::read_to_string(self.block.join(name).join(file)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::{DiskIdentity, Disks, FindError};
    use std::{fs, path::Path};

    const UUID: &str = "58668891-c3e4-45d0-b90e-824525c16080";

    /// A disk's folder in /sys, with these files.
    fn disk(block: &Path, name: &str, files: &[(&str, &str)]) {
        for (file, text) in [("dev", "259:0"), ("ro", "0")].iter().chain(files) {
            let path = block.join(name).join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, format!("{text}\n")).expect("written");
        }
    }

    fn find(disks: &Disks, wwid: Option<&str>, serial: Option<&str>) -> Result<Option<String>, FindError> {
        let identity = DiskIdentity { wwid: wwid.map(Into::into), serial: serial.map(Into::into) };
        Ok(disks.find(&identity)?.map(|device| device.path.display().to_string()))
    }

    #[test]
    fn a_uuid_is_one_namespace_s_and_a_serial_number_its_controller_s() {
        let sys = tempfile::tempdir().expect("a folder");
        let disks = Disks::at(sys.path(), Path::new("/dev"));
        let (own, other) = (format!("uuid.{UUID}"), "uuid.00000000-0000-4000-8000-000000000001".to_owned());
        assert_eq!(find(&disks, Some(&own), Some("MPA")).expect("read"), None);
        disk(sys.path(), "nvme0n1", &[("wwid", &other), ("device/serial", "MPA   ")]);
        assert_eq!(find(&disks, Some(&own), Some("MPA")).expect("read"), None, "another namespace of that controller");
        disk(sys.path(), "nvme0n2", &[("wwid", &own.to_uppercase()), ("device/serial", "MPA   "), ("ro", "1")]);
        assert_eq!(find(&disks, Some(&own), Some("MPA")).expect("read").as_deref(), Some("/dev/nvme0n2"));
        let identity = DiskIdentity { wwid: Some(own), serial: None };
        assert!(disks.find(&identity).expect("read").expect("found").read_only);
        assert!(matches!(find(&disks, None, Some("MPA")), Err(FindError::Ambiguous { .. })));
    }

    #[test]
    fn where_no_uuid_can_be_set_the_serial_number_leads() {
        let sys = tempfile::tempdir().expect("a folder");
        let disks = Disks::at(sys.path(), Path::new("/dev"));
        // As QEMU's NVMe device, a virtio disk, a path of a multipath disk, and a disk that says nothing.
        disk(sys.path(), "nvme1n1", &[("wwid", "nvme.8086-4d5042-51454d55-00000001"), ("device/serial", "MPB")]);
        disk(sys.path(), "vdb", &[("serial", "MPC")]);
        disk(sys.path(), "nvme1c1n1", &[("device/serial", "MPB"), ("hidden", "1")]);
        disk(sys.path(), "loop0", &[]);
        let wwid = format!("uuid.{UUID}");
        assert_eq!(find(&disks, Some(&wwid), Some("MPB")).expect("read").as_deref(), Some("/dev/nvme1n1"));
        assert_eq!(find(&disks, None, Some("MPC")).expect("read").as_deref(), Some("/dev/vdb"));
        assert_eq!(find(&disks, None, Some("MP")).expect("read"), None);
        assert_eq!(find(&disks, None, None).expect("read"), None);
    }
}
