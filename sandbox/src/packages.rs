//! Debian packages of any architecture, unpacked: what this machine's own package manager knows and has installed counts for nothing.
//!
//! apt-get does it, from the package sources that this machine has, with lists and a state of its own in the cache: no architecture is
//! added to the machine and nothing is installed. A package is taken by version and digest, so that the same names give the same bytes
//! as long as the sources have them.
//!
//! Beside its files an unpacked package leaves its fields, as in images of one package manager's files alone (`var/lib/dpkg/status.d`), the
//! list of its files ([`owners`]) and where its source is: what an image says of what it has of the package ([`about`]).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use crate::guest::command::{run, run_command};
use crate::source_offer::{self, source_offer};

/// What is in the cache is of this.
const RECIPE: &[&str] = &[include_str!("packages.rs"), source_offer::RECIPE];
/// The fields of each package: scanners of images look for them there.
const FIELDS: &str = "var/lib/dpkg/status.d";
const LISTS: &str = "var/lib/dpkg/info";
const DOCUMENTS: &str = "usr/share/doc";

/// One package as the sources have it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Package {
    pub name: String,
    pub version: String,
}

/// The packages of one architecture.
pub struct Packages {
    /// Debian's word: amd64, arm64.
    architecture: &'static str,
    cache: PathBuf,
    /// Lists and state of apt-get.
    state: PathBuf,
    /// One process at a time: apt-get does not wait for another one.
    _lock: File,
}

impl Packages {
    /// `cache`: the user's cache folder.
    pub fn of(architecture: &'static str, cache: &Path) -> Result<Self> {
        let state = cache.join(format!("apt-{architecture}"));
        for folder in ["lists/partial", "cache/archives/partial"] {
            let folder = state.join(folder);
            fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        }
        // Nothing is installed: what a package depends on is told whole.
        fs::write(state.join("status"), "").with_context(|| format!("write {}/status", state.display()))?;
        let path = state.join("lock");
        let lock = File::create(&path).with_context(|| format!("create {}", path.display()))?;
        lock.lock().with_context(|| format!("lock {}", path.display()))?;
        Ok(Self { architecture, cache: cache.to_owned(), state, _lock: lock })
    }

    /// Reads anew what the sources have. One of them may fail and lack nothing that is asked for: what is missing is told by its name.
    pub fn update(&self) {
        eprintln!("reading the package lists of {}", self.architecture);
        if let Err(error) = run_command(self.apt("apt-get").args(["-q", "update"])) {
            eprintln!("the package lists of {}: {error:#}", self.architecture);
        }
    }

    /// These and all that they depend on, as the sources have them today.
    pub fn with_dependencies(&self, names: &[&str]) -> Result<Vec<Package>> {
        let mut simulate = self.apt("apt-get");
        simulate.args(["-q", "-s", "install", "--no-install-recommends"]).args(names);
        let said = run_command(&mut simulate)?;
        Ok(said.lines().filter_map(planned).collect())
    }

    /// What a package that only names others names today.
    pub fn behind(&self, name: &str, prefix: &str) -> Result<String> {
        let depends = run_command(self.apt("apt-cache").args(["depends", name]))?;
        let mut named = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
        let found = named.find(|name| name.starts_with(prefix)).map(str::to_owned);
        found.with_context(|| format!("the package '{name}' of {} names no '{prefix}…'", self.architecture))
    }

    /// Downloads one into `folder`: its file, and the SHA-256 of that in hex.
    pub fn download(&self, package: &Package, folder: &Path) -> Result<(PathBuf, String)> {
        let Package { name, version } = package;
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        let wanted = format!("{name}={version}");
        let got = run_command(self.apt("apt-get").args(["-q", "download", &wanted]).current_dir(folder));
        got.with_context(|| {
            format!("{name} {version} of {} is not to be had from the package sources", self.architecture)
        })?;
        let begin = format!("{name}_");
        let files = fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?.flatten();
        let is_it = |path: &PathBuf| {
            path.file_name().is_some_and(|name| {
                let name = name.to_string_lossy();
                name.starts_with(&begin) && name.ends_with(".deb")
            })
        };
        let file = files.map(|entry| entry.path()).find(is_it);
        let file = file.with_context(|| format!("apt-get has downloaded no {wanted}"))?;
        let digest = digest_of(&file)?;
        Ok((file, digest))
    }

    /// All of these, each with the digest that it has to have, unpacked into one folder of the cache.
    pub fn unpacked(&self, packages: &[(Package, String)]) -> Result<PathBuf> {
        let mut key = Sha256::new();
        RECIPE.iter().for_each(|text| key.update(text));
        packages.iter().for_each(|(_, digest)| key.update(digest));
        let key: String = key.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let root = self.cache.join(format!("packages-{}-{key}", self.architecture));
        if root.is_dir() {
            return Ok(root);
        }
        self.update();
        let part = tempfile::tempdir_in(&self.cache).context("create a work folder")?;
        for (package, wanted) in packages {
            let (file, digest) = self.download(package, &part.path().join("files"))?;
            let Package { name, version } = package;
            ensure!(digest == *wanted, "{name} {version} of {}: SHA-256 {digest}, not {wanted}", self.architecture);
            let root = part.path().join("root");
            unpack(&file, &root)?;
            describe(package, &file, &root, self.architecture)?;
        }
        match fs::rename(part.path().join("root"), &root) {
            Err(error) if !root.is_dir() => bail!("create {}: {error}", root.display()),
            _ => Ok(root),
        }
    }

    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let path = |name: &str| self.state.join(name).display().to_string();
        let options = [
            ("APT::Architecture", self.architecture.to_owned()),
            ("APT::Architectures", self.architecture.to_owned()),
            ("Dir::State", path("")),
            ("Dir::State::lists", path("lists")),
            ("Dir::State::status", path("status")),
            ("Dir::Cache", path("cache")),
            ("Acquire::Languages", "none".to_owned()),
            // As root, apt-get would hand downloads to a user who may not write here.
            ("APT::Sandbox::User", "root".to_owned()),
        ];
        for (name, value) in options {
            command.args(["-o", &format!("{name}={value}")]);
        }
        command
    }
}

/// Unpacks the files of a package, as they are in it.
pub fn unpack(file: &Path, root: &Path) -> Result<()> {
    run("dpkg-deb", [Path::new("-x"), file, root]).map(drop)
}

/// The names of the packages below `root` that these files are of; the files are paths below `root`.
pub fn owners(root: &Path, files: &[&Path]) -> Result<Vec<String>> {
    let inside = |file: &&Path| Some(format!("/{}", file.strip_prefix(root).ok()?.display()));
    let files: BTreeSet<String> = files.iter().filter_map(inside).collect();
    let folder = root.join(LISTS);
    let mut owners = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))? {
        let path = entry.with_context(|| format!("list {}", folder.display()))?.path();
        if path.extension().is_none_or(|extension| extension != "list") {
            continue;
        }
        let list = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        if list.lines().any(|file| files.contains(file)) {
            owners.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    owners.sort();
    Ok(owners)
}

/// What goes with the files of a package below `root`: licence, source and fields, each with its path in an image.
pub fn about(root: &Path, name: &str) -> [(PathBuf, String); 3] {
    let fields = format!("{FIELDS}/{name}");
    let [licence, source] = ["copyright", "source"].map(|file| format!("{DOCUMENTS}/{name}/{file}"));
    [
        (root.join(&licence), format!("/{licence}")),
        (root.join(LISTS).join(format!("{name}.source")), format!("/{source}")),
        (root.join(&fields), format!("/{fields}")),
    ]
}

fn describe(package: &Package, file: &Path, root: &Path, architecture: &str) -> Result<()> {
    let Package { name, version } = package;
    let fields = run("dpkg-deb", [Path::new("--field"), file])?;
    let head = format!(
        "What is here of Debian's package {name}, version {version} ({architecture}), is unchanged. Its licence stands, with the names of \
         those whose work it is, in {DOCUMENTS}/{name}/copyright."
    );
    let source = source_offer(&head, &source_of(package, &fields));
    let list: String = files(file)?.iter().map(|path| format!("{path}\n")).collect();
    let name_of = |kind: &str| format!("{LISTS}/{name}.{kind}");
    for (path, text) in [(format!("{FIELDS}/{name}"), fields), (name_of("list"), list), (name_of("source"), source)] {
        let path = root.join(path);
        let folder = path.parent().context("a file is in a folder")?;
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// The field `Source` (Debian Policy 5.6.1) is there where it is not what the package itself is named, with the version in brackets where that differs.
fn source_of(package: &Package, fields: &str) -> Package {
    let Some(source) = fields.lines().find_map(|line| line.strip_prefix("Source:")) else { return package.clone() };
    let (name, version) = match source.split_once('(') {
        Some((name, version)) => (name, version.trim_end().trim_end_matches(')')),
        None => (source, package.version.as_str()),
    };
    Package { name: name.trim().to_owned(), version: version.to_owned() }
}

/// The paths of a package's files, from its root.
pub fn files(file: &Path) -> Result<Vec<String>> {
    let listed = run("sh", ["-c", "dpkg-deb --fsys-tarfile \"$1\" | tar -t", "sh", &file.display().to_string()])?;
    Ok(listed.lines().map(|line| line.trim_start_matches('.').to_owned()).collect())
}

/// `Inst name (version source [architecture])` of what apt-get would do.
fn planned(line: &str) -> Option<Package> {
    let (name, rest) = line.strip_prefix("Inst ")?.split_once(' ')?;
    let version = rest.split_once('(')?.1.split(' ').next()?;
    Some(Package { name: name.to_owned(), version: version.to_owned() })
}

fn digest_of(file: &Path) -> Result<String> {
    let mut digest = Sha256::new();
    let mut content = File::open(file).with_context(|| format!("read {}", file.display()))?;
    std::io::copy(&mut content, &mut digest).with_context(|| format!("read {}", file.display()))?;
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_installed_is_read_with_its_version() {
        let of = |line| planned(line).map(|package| (package.name, package.version));
        let expected = Some(("libc6".to_owned(), "2.36-9+deb12u13".to_owned()));
        assert_eq!(of("Inst libc6 (2.36-9+deb12u13 Debian:12.12/oldstable [arm64]) []"), expected);
        assert_eq!(of("Inst libc6 [2.36-8] (2.36-9+deb12u13 Debian:12 [arm64])"), expected);
        assert_eq!(of("Conf libc6 (2.36-9+deb12u13 Debian:12.12/oldstable [arm64])"), None);
    }

    #[test]
    fn the_source_package_is_named_where_it_is_another() {
        let package = Package { name: "libc6".to_owned(), version: "2.36-9+deb12u13".to_owned() };
        let of = |fields| source_of(&package, fields);
        let expected = |name: &str, version: &str| Package { name: name.to_owned(), version: version.to_owned() };
        assert_eq!(of("Package: libc6\nVersion: 2.36-9+deb12u13\n"), package);
        assert_eq!(of("Package: libc6\nSource: glibc\n"), expected("glibc", "2.36-9+deb12u13"));
        assert_eq!(of("Source: glibc (2.36-9)\nPackage: libc6\n"), expected("glibc", "2.36-9"));
    }
}
