//! `grub2disk`: GRUB of the system on a disk, written to a disk, so that its firmware starts that system. Upstream's `GRUB_DISK` (the
//! partition of the system), `GRUB_INSTALL_PATH` (the disk that gets GRUB) and `FS_TYPE`.
//!
//! Upstream runs the GRUB of its own image in the system's file system. Here it is the system's own: the one whose modules and
//! configuration its packages will go on to update.

use super::programs::{self, PATH, Programs};
use super::required;
use crate::agent::Action;
use crate::chroot;
use crate::disks::Disks;
use crate::lines::Lines;
use std::fs::File;

/// As distributions name GRUB's programs and its folder in `/boot`.
const NAMES: [&str; 2] = ["grub", "grub2"];

pub(super) async fn run(disks: &Disks, action: &Action, lines: &Lines) -> Result<(), String> {
    let kind = required(action, "FS_TYPE", "the type of the file system of GRUB_DISK, as ext4")?.to_owned();
    let system = disks.find_of("GRUB_DISK", required(action, "GRUB_DISK", "the system's partition, as /dev/sda1")?)?;
    let target = required(action, "GRUB_INSTALL_PATH", "the disk that gets GRUB, as /dev/sda")?;
    let target = disks.find_of("GRUB_INSTALL_PATH", target)?.node.display().to_string();
    let programs = Programs {
        kind,
        commands: Box::new(move |root| commands(root, &target)),
        name_servers: false,
        environment: action.environment.clone(),
        deadline: action.deadline.into_std(),
    };
    programs::run("grub2disk", system, programs, lines).await
}

fn commands(root: &File, target: &str) -> Result<Vec<Vec<String>>, String> {
    let has = |program: &str| PATH.split(':').any(|folder| chroot::has_file(root, &format!("{folder}/{program}")));
    let name = NAMES.into_iter().find(|name| has(&format!("{name}-install"))).ok_or(
        "it has no grub-install and no grub2-install: write into GRUB_DISK the partition of a system that has GRUB \
         installed (Debian and Ubuntu: the package grub-pc or grub-efi-amd64; Fedora: grub2-tools)",
    )?;
    let configuration = format!("/boot/{name}/grub.cfg");
    Ok(vec![
        vec![format!("{name}-install"), target.to_owned()],
        vec![format!("{name}-mkconfig"), "-o".to_owned(), configuration],
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn its_programs_are_named_as_the_distribution_names_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = File::open(folder.path()).expect("opened");
        let error = commands(&root, "/dev/sda").expect_err("nothing there");
        assert!(error.contains("no grub-install") && error.contains("GRUB_DISK"), "{error}");
        fs::create_dir_all(folder.path().join("usr/sbin")).expect("made");
        // A link of the system, which leads into this machine's root for who does not look from its own.
        std::os::unix::fs::symlink("/usr/sbin", folder.path().join("sbin")).expect("linked");
        fs::write(folder.path().join("usr/sbin/grub2-install"), "").expect("written");
        let of_fedora = commands(&root, "/dev/sda").expect("found");
        assert_eq!(
            of_fedora,
            [vec!["grub2-install", "/dev/sda"], vec!["grub2-mkconfig", "-o", "/boot/grub2/grub.cfg"]]
        );
        fs::write(folder.path().join("usr/sbin/grub-install"), "").expect("written");
        let of_debian = commands(&root, "/dev/sda").expect("found");
        assert_eq!(of_debian, [vec!["grub-install", "/dev/sda"], vec!["grub-mkconfig", "-o", "/boot/grub/grub.cfg"]]);
    }
}
