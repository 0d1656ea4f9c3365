//! Programs of this system for an image: each with the libraries that the loader names, at the same paths.
//!
//! A node plug-in makes filesystems and mounts them with the programs that do so on any Linux. For the images of tests and demo no
//! registry and no package manager is needed: what is on the machine that writes them is taken as it is. What ships is taken from
//! packages ([`super::locked`]).

use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where a container looks for programs.
pub(super) const PROGRAMS: &str = "/usr/bin";

/// A file of this machine and where it is in the image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Member {
    pub(super) source: PathBuf,
    pub(super) inside: String,
    pub(super) mode: u32,
}

/// Of a program.
pub(super) const EXECUTABLE: u32 = 0o755;
/// Of a file that is read.
pub(super) const DATA: u32 = 0o644;

/// The programs and all that they load. What is missing is fetched first, where that can be done.
pub(super) fn members(programs: &[&str]) -> Result<Vec<Member>> {
    if programs.iter().any(|program| find(program).is_none()) {
        crate::test::packages()?;
    }
    let mut members = BTreeSet::new();
    for program in programs {
        let Some(source) = find(program) else {
            bail!("{program} is missing: on Debian apt-get install util-linux mount e2fsprogs xfsprogs")
        };
        members.extend(libraries_of(&source)?);
        members.insert(Member { source, inside: format!("{PROGRAMS}/{program}"), mode: EXECUTABLE });
    }
    Ok(members.into_iter().collect())
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from));
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// What a program loads, where the loader of an image looks for it.
pub(super) fn libraries_of(program: &Path) -> Result<Vec<Member>> {
    let member = |library: PathBuf| -> Result<Member> {
        let inside = library.to_str().with_context(|| format!("{} is no UTF-8", library.display()))?.to_owned();
        Ok(Member { source: library, inside, mode: EXECUTABLE })
    };
    libraries(program)?.into_iter().map(member).collect()
}

fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let done = Command::new("ldd").arg(program).env("LC_ALL", "C").output().context("start ldd")?;
    let (said, error) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    if said.contains("statically linked") || error.contains("not a dynamic executable") {
        return Ok(Vec::new());
    }
    ensure!(done.status.success(), "ldd {}: {}: {}", program.display(), done.status, error.trim());
    named(&said).with_context(|| format!("ldd {}", program.display()))
}

/// `name => /path (address)`, `/path (address)` for the loader itself, `name (address)` for what the kernel maps.
fn named(said: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for line in said.lines().map(str::trim) {
        let place = line.split_once(" => ").map_or(line, |(_, place)| place);
        ensure!(place != "not found", "{line}");
        if let Some((path, _)) = place.split_once(" (")
            && path.starts_with('/')
        {
            found.push(PathBuf::from(path));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_loader_names_is_taken() {
        let said = "\tlinux-vdso.so.1 (0x7ffc)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x7f01)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x7f02)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(named(said).expect("understood"), expected);
        assert!(named("\tlibx.so.1 => not found\n").is_err());
    }

    #[test]
    fn a_program_of_this_machine_comes_with_its_loader() {
        let members = members(&["mount"]).expect("mount is everywhere");
        assert!(members.iter().any(|member| member.inside == "/usr/bin/mount"));
        assert!(members.iter().all(|member| member.source.is_file() && member.inside.len() <= 100), "{members:?}");
    }
}
