//! Before anything starts: are the commands there that a sandbox needs, and if not, can they be had?
//!
//! As root on a Debian system they are fetched by apt-get: a package is *installed* when that removes and downgrades
//! nothing, and *unpacked* into the cache when installing it would start a service. No package source is ever added.
//! In every other case the error says which commands are missing and which packages have them.

pub mod ovn;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use tokio::process::Command;
use tokio::sync::Mutex;

use crate::{args, guest, outside, server};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Install,
    /// The package has a service that installing it may start: only its files are wanted.
    Unpack,
}

/// Command or file, the Debian package that has it, and how to get that.
pub(crate) type Row<'a> = (&'a str, &'a str, How);

/// What every sandbox needs.
const NEEDED: &[Row<'_>] = &[
    ("ip", "iproute2", How::Install),
    ("mount", "mount", How::Install),
    ("losetup", "mount", How::Install),
    ("nsenter", "util-linux", How::Install),
    ("ping", "iputils-ping", How::Install),
    ("mkfs.xfs", "xfsprogs", How::Install),
    ("runc", "runc", How::Install),
    ("nft", "nftables", How::Unpack),
    ("ovsdb-server", "openvswitch-switch", How::Unpack),
    ("ovsdb-tool", "openvswitch-switch", How::Unpack),
    ("ovs-vswitchd", "openvswitch-switch", How::Unpack),
    ("ovs-vsctl", "openvswitch-switch", How::Unpack),
    ("ovn-northd", "ovn-central", How::Unpack),
    ("ovn-controller", "ovn-host", How::Unpack),
    ("ovn-appctl", "ovn-common", How::Unpack),
    ("ovn-nbctl", "ovn-common", How::Unpack),
    ("ovn-sbctl", "ovn-common", How::Unpack),
];

/// The same for virtual servers and the images that they boot.
const NEEDED_BY_SERVERS: [&[(&str, &str)]; 5] =
    [server::COMMANDS, server::FILES, guest::COMMANDS, guest::DEBIAN_COMMANDS, guest::FILES];

/// An iPXE program for UEFI that uses the firmware's own network driver. Its package would add itself to the boot menu.
const IPXE: Row<'_> = ("/usr/lib/ipxe/snponly.efi", "ipxe", How::Unpack);

/// SYSLINUX, by which BIOS boots an image, and what it puts into the first sector. Its package would ask where to install it.
const SYSLINUX: [Row<'_>; 2] =
    [("syslinux", "syslinux", How::Unpack), ("/usr/lib/syslinux/mbr/gptmbr.bin", "syslinux-common", How::Unpack)];

/// How the folder of unpacked packages is named in the cache, before its key.
const UNPACKED: &[u8] = b"debs-";

const DOWNLOAD_LIMIT: Duration = Duration::from_secs(600);

/// Where commands are looked for.
#[derive(Clone, Debug, Default)]
pub struct Preflight {
    path: Vec<PathBuf>,
    /// Root of the unpacked packages.
    unpacked: Option<PathBuf>,
}

/// Checks the tables above and gets what is missing.
pub async fn run(with_servers: bool) -> Result<Preflight> {
    if !nix::unistd::geteuid().is_root() {
        bail!("a sandbox needs root: it makes network namespaces, mounts and control groups");
    }
    let mut needed = NEEDED.to_vec();
    if with_servers {
        needed.push(IPXE);
        needed
            .extend(NEEDED_BY_SERVERS.iter().copied().flatten().map(|(what, package)| (*what, *package, How::Install)));
    }
    get(&needed).await
}

/// The path of an iPXE program for UEFI: this machine's own, else of the package, unpacked.
pub async fn ipxe() -> Result<PathBuf> {
    get(&[IPXE]).await?.find(IPXE.0).with_context(|| explain(&[IPXE]))
}

/// The paths of SYSLINUX's program and of its code for the first sector. For who builds images, on a thread of its own.
pub(crate) fn syslinux() -> Result<(PathBuf, PathBuf)> {
    let fetched = || -> Result<(PathBuf, PathBuf)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("a runtime")?;
        let found = runtime.block_on(get(&SYSLINUX))?;
        let path = |row: &Row<'_>| found.find(row.0).with_context(|| explain(&SYSLINUX));
        Ok((path(&SYSLINUX[0])?, path(&SYSLINUX[1])?))
    };
    std::thread::scope(|scope| scope.spawn(fetched).join()).unwrap_or_else(|_| bail!("getting SYSLINUX panicked"))
}

/// A program of a package whose service must not start, and the environment that it needs.
pub async fn unpacked(program: &str, package: &str) -> Result<(PathBuf, BTreeMap<String, String>)> {
    let preflight = unpack(&[(program, package)]).await?;
    let path = preflight.find(program).with_context(|| explain(&[(program, package, How::Unpack)]))?;
    Ok((path, preflight.environment(&[])))
}

/// Commands or files, each with the package that has it; those that this machine lacks are unpacked.
pub async fn unpack(needed: &[(&str, &str)]) -> Result<Preflight> {
    let rows: Vec<Row<'_>> = needed.iter().map(|(what, package)| (*what, *package, How::Unpack)).collect();
    get(&rows).await
}

/// Gets what is missing of a table.
pub(crate) async fn get(needed: &[Row<'_>]) -> Result<Preflight> {
    let cache = args::cache_folder();
    let path = ovn::given(&cache)?.into_iter().chain(search_path()).collect();
    let mut preflight = Preflight::on(path, &cache);
    let missing = preflight.missing(needed);
    if missing.is_empty() {
        return Ok(preflight);
    }
    if preflight.find("apt-get").is_none() {
        bail!("{}", explain(&missing));
    }
    let packages = |how| {
        let mut names: Vec<&str> = missing.iter().filter(|row| row.2 == how).map(|row| row.1).collect();
        names.dedup();
        names
    };
    let unpack = packages(How::Unpack);
    if !unpack.is_empty() {
        preflight.use_unpacked(unpack_packages(&unpack).await.with_context(|| explain(&missing))?);
    }
    let install = packages(How::Install);
    if !install.is_empty() {
        install_packages(&install).await.with_context(|| explain(&missing))?;
    }
    let still = preflight.missing(needed);
    if !still.is_empty() {
        bail!("{}", explain(&still));
    }
    Ok(preflight)
}

impl Preflight {
    /// A caller that has unpacked packages itself gives their folders in PATH: nothing is missing then, but their
    /// libraries and shared files are still there and nowhere else.
    fn on(path: Vec<PathBuf>, cache: &Path) -> Self {
        let unpacked = |folder: &PathBuf| {
            let mut roots = folder.ancestors().filter(|root| root.parent() == Some(cache));
            roots
                .find(|root| root.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(UNPACKED)))
                .map(Path::to_owned)
        };
        let unpacked = path.iter().find_map(unpacked);
        Self { path, unpacked }
    }

    pub fn find(&self, command: &str) -> Option<PathBuf> {
        if let Some(below) = command.strip_prefix('/') {
            let unpacked = self.unpacked.as_ref().map(|root| root.join(below));
            return [Some(PathBuf::from(command)), unpacked].into_iter().flatten().find(|file| file.exists());
        }
        self.path.iter().map(|folder| folder.join(command)).find(|file| file.is_file())
    }

    pub fn folder_with_all(&self, commands: &[&str]) -> Option<PathBuf> {
        self.path.iter().find(|folder| commands.iter().all(|command| folder.join(command).is_file())).cloned()
    }

    pub fn environment(&self, first: &[&Path]) -> BTreeMap<String, String> {
        let path: Vec<String> = first
            .iter()
            .copied()
            .chain(self.path.iter().map(PathBuf::as_path))
            .map(|folder| folder.to_string_lossy().into_owned())
            .collect();
        let mut environment = BTreeMap::from([("PATH".to_owned(), path.join(":"))]);
        if let Some(root) = &self.unpacked {
            environment.insert("LD_LIBRARY_PATH".to_owned(), library_folders(root).join(":"));
        }
        environment
    }

    pub fn shared_file(&self, name: &str) -> Result<PathBuf> {
        // Beside the programs that use it.
        let folders = self.path.iter().filter_map(|folder| Some(folder.parent()?.join("share")));
        let unpacked = self.unpacked.as_ref().map(|root| root.join("usr/share"));
        let mut files = folders.chain(unpacked).map(|folder| folder.join(name));
        files.find(|file| file.exists()).with_context(|| format!("no file {name} below /usr/share"))
    }

    /// The root of unpacked packages, if any were.
    pub fn unpacked(&self) -> Option<&Path> {
        self.unpacked.as_deref()
    }

    fn missing<'a>(&self, needed: &[Row<'a>]) -> Vec<Row<'a>> {
        needed.iter().filter(|(command, ..)| self.find(command).is_none()).copied().collect()
    }

    fn use_unpacked(&mut self, root: PathBuf) {
        // The last: Debian makes /usr/sbin/ovs-vswitchd a link to one of two builds when it configures the package.
        let folders = ["usr/sbin", "usr/bin", "sbin", "bin", "usr/lib/openvswitch-switch"];
        self.path.extend(folders.map(|folder| root.join(folder)));
        self.unpacked = Some(root);
    }
}

fn search_path() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    for folder in ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

fn explain(missing: &[Row<'_>]) -> String {
    let commands: Vec<&str> = missing.iter().map(|row| row.0).collect();
    let mut packages: Vec<&str> = missing.iter().map(|row| row.1).collect();
    packages.dedup();
    format!("missing: {}. On Debian: apt-get install {}", commands.join(", "), packages.join(" "))
}

/// What apt-get would do, without doing it: the names of the packages that it would add or change.
async fn plan(packages: &[&str]) -> Result<Vec<String>> {
    let simulate = || outside::run("apt-get", ["-s", "install", "--no-install-recommends"].iter().chain(packages));
    let simulated = match simulate().await {
        Ok(simulated) => simulated,
        // A fresh machine has sources, but no lists of what they have.
        Err(error) if format!("{error:#}").contains("Unable to locate package") => {
            let mut update = Command::new("apt-get");
            update.args(["-q", "update"]);
            outside::finish_within(update, None, DOWNLOAD_LIMIT).await?;
            simulate().await?
        }
        Err(error) => return Err(error),
    };
    check_plan(&simulated)
}

fn check_plan(simulated: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for line in simulated.lines() {
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next()) {
            (Some("Remv"), Some(name)) => bail!("apt-get would remove {name}: left alone"),
            (Some("Inst"), Some(name)) => names.push(with_version(name, words)),
            _ if line.contains("DOWNGRADED") => bail!("apt-get would downgrade packages: left alone"),
            _ => {}
        }
    }
    Ok(names)
}

/// `name=version`, from `name [old version] (version source …)`.
fn with_version<'a>(name: &str, mut words: impl Iterator<Item = &'a str>) -> String {
    match words.find_map(|word| word.strip_prefix('(')) {
        Some(version) => format!("{name}={}", version.trim_end_matches(')')),
        None => name.to_owned(),
    }
}

async fn install_packages(packages: &[&str]) -> Result<()> {
    let planned = plan(packages).await?;
    eprintln!("installing {}", planned.join(" "));
    let mut command = Command::new("apt-get");
    command.args(["install", "-y", "-q", "--no-install-recommends"]).args(packages);
    // RUNLEVEL: a package that has a service after all believes that the system is shutting down.
    command.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
    let status = command.stdout(std::io::stderr()).status().await.context("cannot run apt-get")?;
    if !status.success() {
        bail!("apt-get install {} failed ({status}); its messages are above", packages.join(" "));
    }
    Ok(())
}

/// Downloads packages with what they depend on and lacks here, and unpacks all into one folder of the cache.
async fn unpack_packages(packages: &[&str]) -> Result<PathBuf> {
    // Two tests of one process want the same: they would unpack into one folder.
    static ONE: Mutex<()> = Mutex::const_new(());
    let _one_at_a_time = ONE.lock().await;
    let planned = plan(packages).await?;
    let key: String = Sha256::digest(planned.join(" ")).iter().take(8).map(|b| format!("{b:02x}")).collect();
    let cache = args::cache_folder();
    let root = cache.join(format!("debs-{key}"));
    if root.is_dir() {
        return Ok(root);
    }
    eprintln!("unpacking {} into {}", planned.join(" "), root.display());
    let part = cache.join(format!(".debs-{key}.{}", std::process::id()));
    std::fs::create_dir_all(&part).with_context(|| format!("cannot create {}", part.display()))?;
    let mut download = Command::new("apt-get");
    // As root, apt-get would hand the download to a user who may not write to our cache.
    download.args(["-o", "APT::Sandbox::User=root", "download"]).args(&planned).current_dir(&part);
    outside::finish_within(download, None, DOWNLOAD_LIMIT).await?;
    for entry in std::fs::read_dir(&part)?.flatten() {
        let file = entry.path();
        if file.extension().is_some_and(|extension| extension == "deb") {
            outside::run("dpkg", ["-x".as_ref(), file.as_os_str(), part.as_os_str()]).await?;
            std::fs::remove_file(&file)?;
        }
    }
    match std::fs::rename(&part, &root) {
        Err(error) if !root.is_dir() => Err(error).with_context(|| format!("cannot create {}", root.display())),
        _ => Ok(root),
    }
}

fn library_folders(root: &Path) -> Vec<String> {
    let architecture = format!("{}-linux-gnu", std::env::consts::ARCH);
    let folders = ["usr/lib", "lib"].map(|folder| root.join(folder));
    let both = folders.into_iter().flat_map(|folder| [folder.join(&architecture), folder]);
    both.filter(|folder| folder.is_dir()).map(|folder| folder.to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_that_takes_something_away_is_refused() {
        let good = "Inst libxdp1 (1.3 Debian)\nInst openvswitch-common (3.1 Debian)\nConf libxdp1 (1.3 Debian)\n";
        assert_eq!(check_plan(good).expect("accepted"), ["libxdp1=1.3", "openvswitch-common=3.1"]);
        assert!(check_plan("Remv qemu-utils [1:10.0]\nInst qemu-system-x86 (1:7.2)\n").is_err());
        assert!(check_plan("The following packages will be DOWNGRADED:\n  x\nInst x [2] (1)\n").is_err());
    }

    #[test]
    fn a_caller_hands_on_what_it_unpacked() {
        let cache = tempfile::tempdir().expect("a folder");
        let root = cache.path().join("debs-0123456789abcdef");
        std::fs::create_dir_all(root.join("usr/lib")).expect("a folder");
        let mut first = Preflight::on(vec!["/usr/bin".into()], cache.path());
        assert!(first.unpacked.is_none());
        first.use_unpacked(root.clone());
        let environment = first.environment(&[]);
        let handed = std::env::split_paths(&environment["PATH"]).collect();
        let second = Preflight::on(handed, cache.path());
        assert_eq!(second.unpacked, Some(root));
        assert_eq!(second.environment(&[]), environment);
    }

    #[test]
    fn what_is_missing_is_said_with_its_package() {
        let said = explain(&[("ip", "iproute2", How::Install), ("mount", "mount", How::Install)]);
        assert_eq!(said, "missing: ip, mount. On Debian: apt-get install iproute2 mount");
    }
}
