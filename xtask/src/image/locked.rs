//! Programs of Debian for an image that ships: of whatever architecture, each with the libraries that it names, from packages that are
//! pinned by version and digest.
//!
//! The lock names the packages that something is taken from and no others. A mirror drops old versions in time: the build then names
//! the package, and `cargo xtask lock-packages` writes the lock anew, from what this machine's package sources have that day.
//!
//! With the files of a package go its licence, its fields and where its source is ([`packages::about`]), and with those of an image which
//! Debian they are of: by fields and release scanners of images find what is known to be wrong with them.

use super::system::{DATA, EXECUTABLE, Member, PROGRAMS};
use anyhow::{Context, Result, bail, ensure};
use goblin::elf::Elf;
use sandbox::architecture::Architecture;
use sandbox::guest::Formatters;
use sandbox::packages::{self, Package, Packages};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const LOCK: &str = include_str!("packages.lock");
const HEAD: &str = "# Debian packages with programs that are in an image, and their SHA-256. Written by `cargo xtask lock-packages`.\n";
/// What has the programs that [`super::IMAGES`] ask for, and the installer's initramfs ([`Formatters`]), and [`RELEASE`].
const PACKAGES: &[&str] = &["base-files", "dosfstools", "e2fsprogs", "mount", "util-linux", "xfsprogs"];
/// Of a server's processors, whatever the DPU's are: what a hold disk has.
const OF_SERVERS: [&str; 2] = sandbox::guest::hold_disk::PACKAGES;
/// Which Debian it is.
const RELEASE: &str = "/etc/os-release";
/// Where packages have programs.
const FOLDERS: [&str; 4] = ["usr/bin", "usr/sbin", "bin", "sbin"];
/// A link that leads to a link, and so on.
const LINKS: usize = 16;

/// The programs and all that they load, for an image.
pub(super) fn members(programs: &[&str], architecture: Architecture) -> Result<Vec<Member>> {
    if programs.is_empty() {
        return Ok(Vec::new());
    }
    let root = unpacked(architecture)?;
    let mut members = of_root(&root, programs, architecture)?;
    members.push(release(&root)?);
    described(&root, members)
}

/// The programs of a hold disk, for an image.
pub(super) fn hold_disk() -> Result<Vec<Member>> {
    let root = unpacked(sandbox::guest::hold_disk::ARCHITECTURE)?;
    let mut members = of_hold_disk(&root)?;
    members.push(release(&root)?);
    described(&root, members)
}

fn of_hold_disk(root: &Path) -> Result<Vec<Member>> {
    let member = |(path, name): (&str, &'static str)| {
        let source = resolve(root, path).with_context(|| format!("no package of the lock has {path}"))?;
        Ok(super::hold_disk_member(source, name))
    };
    sandbox::guest::hold_disk::PROGRAMS.into_iter().map(member).collect()
}

/// The programs and all that they load, for an initramfs.
pub(super) fn files(programs: &[&str], architecture: Architecture) -> Result<Vec<Member>> {
    let root = unpacked(architecture)?;
    described(&root, of_root(&root, programs, architecture)?)
}

fn unpacked(architecture: Architecture) -> Result<PathBuf> {
    let packages = Packages::of(architecture.name(), &sandbox::args::cache_folder())?;
    let root = packages.unpacked(&locked(LOCK, architecture)?);
    let root = root.context("renew xtask/src/image/packages.lock with `cargo xtask lock-packages`, and commit it")?;
    fs::canonicalize(&root).with_context(|| format!("find {}", root.display()))
}

fn release(root: &Path) -> Result<Member> {
    let source = resolve(root, RELEASE).with_context(|| format!("no package of the lock has {RELEASE}"))?;
    Ok(Member { source, inside: RELEASE.to_owned(), mode: DATA })
}

/// With what goes with the files of their packages.
fn described(root: &Path, mut members: Vec<Member>) -> Result<Vec<Member>> {
    let files: Vec<&Path> = members.iter().map(|member| member.source.as_path()).collect();
    for package in packages::owners(root, &files)? {
        for (source, inside) in packages::about(root, &package) {
            ensure!(source.is_file(), "the package {package} of the lock has no {inside}");
            members.push(Member { source, inside, mode: DATA });
        }
    }
    Ok(members)
}

/// Lays out the programs and all that they load below `root`, as in an image; gives the programs.
pub(crate) fn lay_out(architecture: Architecture, root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for Member { source, inside, .. } in members(super::NODE_PROGRAMS, architecture)? {
        let path = root.join(inside.trim_start_matches('/'));
        let folder = path.parent().context("a file is in a folder")?;
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        fs::copy(&source, &path).with_context(|| format!("copy {} to {}", source.display(), path.display()))?;
        if inside.starts_with(PROGRAMS) {
            found.push(path);
        }
    }
    Ok(found)
}

/// `cargo xtask lock-packages`.
pub(crate) fn renew(root: &Path) -> Result<()> {
    let of_images = super::IMAGES.iter().flat_map(|image| image.system.iter().copied());
    let programs: BTreeSet<&str> = of_images.chain(Formatters::WANTED).collect();
    let programs: Vec<&str> = programs.into_iter().collect();
    let cache = sandbox::args::cache_folder();
    let mut text = HEAD.to_owned();
    for architecture in Architecture::ALL {
        let packages = Packages::of(architecture.name(), &cache)?;
        packages.update();
        let work = tempfile::tempdir().context("create a work folder")?;
        let unpacked = work.path().join("root");
        let mut found = Vec::new();
        let of_servers = if architecture == sandbox::guest::hold_disk::ARCHITECTURE { &OF_SERVERS[..] } else { &[] };
        for package in packages.with_dependencies(&[PACKAGES, of_servers].concat())? {
            let (file, digest) = packages.download(&package, &work.path().join("files"))?;
            packages::unpack(&file, &unpacked)?;
            found.push((package, digest, packages::files(&file)?));
        }
        let used: BTreeSet<String> = of_root(&unpacked, &programs, architecture)?
            .into_iter()
            .chain([release(&unpacked)?])
            .chain(if of_servers.is_empty() { Vec::new() } else { of_hold_disk(&unpacked)? })
            .filter_map(|member| Some(format!("/{}", member.source.strip_prefix(&unpacked).ok()?.display())))
            .collect();
        found.retain(|(_, _, files)| files.iter().any(|file| used.contains(file)));
        found.sort();
        for (Package { name, version }, digest, _) in found {
            text.push_str(&format!("{architecture} {name} {version} {digest}\n"));
        }
    }
    let path = root.join("xtask/src/image/packages.lock");
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

/// Those of the lock for this architecture.
fn locked(lock: &str, architecture: Architecture) -> Result<Vec<(Package, String)>> {
    let mut found = Vec::new();
    for line in lock.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let [of, name, version, digest] = words[..] else {
            bail!("packages.lock: {line:?}: it has to have four words")
        };
        if of == architecture.name() {
            found.push((Package { name: name.to_owned(), version: version.to_owned() }, digest.to_owned()));
        }
    }
    ensure!(!found.is_empty(), "packages.lock has no package for {architecture}");
    Ok(found)
}

/// From unpacked packages.
fn of_root(root: &Path, programs: &[&str], architecture: Architecture) -> Result<Vec<Member>> {
    let mut members = BTreeSet::new();
    let mut wanted = Vec::new();
    for program in programs {
        let paths = FOLDERS.map(|folder| format!("/{folder}/{program}"));
        let source = paths.iter().find_map(|path| resolve(root, path));
        let source = source.with_context(|| format!("no package of the lock has {program}"))?;
        wanted.push(Member { source, inside: format!("{PROGRAMS}/{program}"), mode: EXECUTABLE });
    }
    let triplet = architecture.triplet();
    while let Some(member) = wanted.pop() {
        let bytes = fs::read(&member.source).with_context(|| format!("read {}", member.source.display()))?;
        let elf = Elf::parse(&bytes).with_context(|| format!("read {} as ELF", member.source.display()))?;
        let libraries = elf.libraries.iter().map(|name| ["lib", "usr/lib"].map(|f| format!("/{f}/{triplet}/{name}")));
        let interpreter = elf.interpreter.map(|path| [path.to_owned(), path.to_owned()]);
        if members.insert(member) {
            for places in libraries.chain(interpreter) {
                let found = places.iter().find_map(|inside| Some((resolve(root, inside)?, inside.clone())));
                let (source, inside) = found.with_context(|| format!("no package of the lock has {}", places[0]))?;
                wanted.push(Member { source, inside, mode: EXECUTABLE });
            }
        }
    }
    Ok(members.into_iter().collect())
}

/// The file that a path of the packages leads to: their links are meant from their own root.
fn resolve(root: &Path, path: &str) -> Option<PathBuf> {
    let mut file = root.join(path.trim_start_matches('/'));
    for _ in 0..LINKS {
        let Ok(to) = fs::read_link(&file) else { return fs::canonicalize(&file).ok().filter(|file| file.is_file()) };
        file = match to.strip_prefix("/") {
            Ok(absolute) => root.join(absolute),
            Err(_) => file.parent()?.join(to),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_has_what_each_architecture_needs() {
        for architecture in Architecture::ALL {
            let packages = locked(LOCK, architecture).expect("understood");
            let names: Vec<&str> = packages.iter().map(|(package, _)| package.name.as_str()).collect();
            assert!(PACKAGES.iter().all(|package| names.contains(package)), "{names:?}");
            assert!(names.contains(&"libc6"), "{names:?}");
            assert!(packages.iter().all(|(_, digest)| digest.len() == 64), "{packages:?}");
        }
        assert!(locked("arm64 mount 2.38", Architecture::Arm64).is_err());
        assert!(locked("arm64 mount 2.38 0", Architecture::Amd64).is_err());
    }

    #[test]
    fn links_of_packages_lead_to_their_own_files() {
        let root = tempfile::tempdir().expect("a folder");
        let file = root.path().join("lib/loader-1");
        fs::create_dir_all(root.path().join("lib64")).expect("made");
        fs::create_dir_all(root.path().join("lib")).expect("made");
        fs::write(&file, "loader").expect("written");
        std::os::unix::fs::symlink("/lib/loader", root.path().join("lib64/loader")).expect("linked");
        std::os::unix::fs::symlink("loader-1", root.path().join("lib/loader")).expect("linked");
        assert_eq!(resolve(root.path(), "/lib64/loader"), fs::canonicalize(&file).ok());
        assert_eq!(resolve(root.path(), "/lib64/other"), None);
    }

    #[test]
    fn with_a_file_go_the_licence_and_the_fields_of_its_package_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = fs::canonicalize(folder.path()).expect("there");
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("in a folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        for (name, list) in [("mount", "/bin/mount\n/bin/umount\n"), ("dosfstools", "/sbin/mkfs.fat\n")] {
            write(&format!("var/lib/dpkg/info/{name}.list"), list);
            write(&format!("var/lib/dpkg/info/{name}.source"), "apt-get source");
            write(&format!("var/lib/dpkg/status.d/{name}"), "Package");
            write(&format!("usr/share/doc/{name}/copyright"), "GPL-2");
        }
        write("bin/mount", "program");
        let mount = Member { source: root.join("bin/mount"), inside: "/usr/bin/mount".to_owned(), mode: EXECUTABLE };
        let all = described(&root, vec![mount.clone()]).expect("described");
        let inside: Vec<&str> = all.iter().map(|member| member.inside.as_str()).collect();
        let of = "/usr/share/doc/mount";
        let expected =
            ["/usr/bin/mount", &format!("{of}/copyright"), &format!("{of}/source"), "/var/lib/dpkg/status.d/mount"];
        assert_eq!(inside, expected);
        fs::remove_file(root.join("usr/share/doc/mount/copyright")).expect("removed");
        let error = described(&root, vec![mount]).expect_err("no licence");
        assert!(error.to_string().contains("the package mount of the lock has no /usr/share/doc/mount/copyright"));
    }
}
