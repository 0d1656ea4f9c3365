//! Hold disks: those that the host's firmware is to list, and from which nothing starts (`imaging::hold_disk`). The agent makes them of the programs that
//! are in its image.

use crate::seed::Seeds;
use imaging::hold_disk::{Loader, make};
use std::fs;
use std::io;
use std::path::PathBuf;

/// A folder is called so, with what its machine's processors are behind it.
const NAME: &str = "hold-disk-";
const PROGRAMS: [&str; 2] = ["shim.efi", "grub.efi"];

#[derive(Debug, Clone, Default)]
pub struct HoldDisks {
    folder: PathBuf,
}

impl HoldDisks {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// For which machines there are programs.
    pub(crate) fn machines(&self) -> Vec<String> {
        let folders = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let is_whole = |machine: &String| {
            let folder = self.folder.join(format!("{NAME}{machine}"));
            !machine.is_empty() && PROGRAMS.iter().all(|program| folder.join(program).is_file())
        };
        let machine = |name: &str| Some(name.strip_prefix(NAME)?.to_owned());
        let machines = folders.filter_map(|entry| machine(entry.file_name().to_str()?));
        let mut machines: Vec<String> = machines.filter(is_whole).collect();
        machines.sort();
        machines
    }

    /// Makes the disk for the attachment with this UID. Whole or not at all.
    pub(crate) fn write(&self, seeds: &Seeds, uid: &str, machine: &str) -> io::Result<()> {
        if !self.machines().iter().any(|known| known == machine) {
            let known = self.machines().join(", ");
            let why = format!("there is no hold disk for {machine} in {}, but for: {known}", self.folder.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        let folder = self.folder.join(format!("{NAME}{machine}"));
        let [first, second] = PROGRAMS.map(|program| fs::read(folder.join(program)));
        let (first, second) = (first?, second?);
        seeds.make(uid, |image| make(image, uid, &Loader { first: &first, second: &second }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_made_of_the_programs_for_its_machine() {
        let folder = tempfile::tempdir().expect("a folder");
        for (machine, programs) in [("x86_64", &PROGRAMS[..]), ("aarch64", &PROGRAMS[..1]), ("", &PROGRAMS[..])] {
            let of_it = folder.path().join(format!("{NAME}{machine}"));
            fs::create_dir(&of_it).expect("made");
            programs.iter().for_each(|program| fs::write(of_it.join(program), program).expect("written"));
        }
        let (seeds, disks) = (Seeds::open(folder.path().join("seeds")), HoldDisks::new(folder.path().to_owned()));
        let seeds = seeds.expect("open");
        assert_eq!(disks.machines(), ["x86_64"]);
        disks.write(&seeds, "uid", "x86_64").expect("made");
        assert!(seeds.list().expect("list").contains("uid"));
        let error = disks.write(&seeds, "other", "aarch64").expect_err("half of it");
        assert!(error.to_string().contains("aarch64") && error.to_string().contains("x86_64"), "{error}");
    }
}
