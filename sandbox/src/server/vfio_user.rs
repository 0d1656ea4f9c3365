//! A QEMU whose guests can use a vfio-user device, which came with version 10.1.
//!
//! Where the machine's own is older, one is unpacked from Debian's next release into the cache, with all libraries that
//! it needs down to its own loader. It comes from where this machine has its own packages. Nothing is installed, and no
//! package source is added to the machine: apt-get gets lists and state of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use crate::outside;

const DEVICE: &str = "vfio-user-pci";
const PROGRAM: &str = "qemu-system-x86_64";
const RELEASE: &str = "trixie";
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(900);

/// The program; the first time on a machine it may be downloaded (40 MB).
pub async fn qemu(cache: &Path) -> Result<PathBuf> {
    if can(Path::new(PROGRAM)).await {
        return Ok(PROGRAM.into());
    }
    let root = cache.join(format!("qemu-{RELEASE}-backports"));
    let program = root.join(PROGRAM);
    if !program.exists() {
        let part = cache.join(format!(".qemu-{RELEASE}.{}", std::process::id()));
        let unpacked = unpack(&part, &root).await;
        // What is left of it is of no use to the next try.
        let _ = std::fs::remove_dir_all(&part);
        unpacked.with_context(|| format!("a QEMU with {DEVICE} (10.1 or newer), from Debian {RELEASE}-backports"))?;
    }
    if !can(&program).await {
        bail!("{} does not know {DEVICE}: delete {} and try again", program.display(), root.display());
    }
    Ok(program)
}

/// By what it prints: asked for help with a device that it does not have, QEMU 7.2 complains and ends with status 0.
async fn can(program: &Path) -> bool {
    let mut command = Command::new(program);
    command.args(["-device", &format!("{DEVICE},help")]).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    command.output().await.is_ok_and(|output| output.status.success() && !output.stdout.is_empty())
}

async fn unpack(part: &Path, root: &Path) -> Result<()> {
    let apt = part.join("apt");
    for folder in ["state/lists/partial", "cache/archives/partial"] {
        std::fs::create_dir_all(apt.join(folder))?;
    }
    // Nothing is installed in it: every library comes along.
    std::fs::write(apt.join("status"), "")?;
    let mirror = mirror().await?;
    let source = |suite: &str| format!("deb [signed-by={KEYS}] {mirror} {suite} main\n");
    std::fs::write(apt.join("sources.list"), source(RELEASE) + &source(&format!("{RELEASE}-backports")))?;
    apt_get(&apt, &["update"]).await?;
    let backports = format!("{RELEASE}-backports");
    apt_get(
        &apt,
        &["-y", "--no-install-recommends", "--download-only", "-t", &backports, "install", "qemu-system-x86"],
    )
    .await?;
    for entry in std::fs::read_dir(apt.join("cache/archives"))?.flatten() {
        let file = entry.path();
        if file.extension().is_some_and(|extension| extension == "deb") {
            outside::run("dpkg", ["-x".as_ref(), file.as_os_str(), part.as_os_str()]).await?;
        }
    }
    std::fs::remove_dir_all(&apt)?;
    wrapper(part, root)?;
    match std::fs::rename(part, root) {
        Err(error) if !root.is_dir() => Err(error).with_context(|| format!("cannot create {}", root.display())),
        _ => Ok(()),
    }
}

/// Where this machine has its Debian from, as apt-get understands its package sources.
async fn mirror() -> Result<String> {
    let format = "$(REPO_URI) $(RELEASE) $(COMPONENT)";
    let targets =
        outside::run("apt-get", ["indextargets", "--format", format, "Created-By: Packages", "Origin: Debian"]).await?;
    archive(&targets).map(str::to_owned).context(
        "the package sources of this machine name no archive of Debian: add one to /etc/apt/sources.list.d and run apt-get update",
    )
}

/// Of lines `URI RELEASE COMPONENT` the first URI of the archive itself: updates and security have releases with a dash.
fn archive(targets: &str) -> Option<&str> {
    targets.lines().find_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [uri, release, "main"] if !release.contains(['-', '/']) => Some(uri),
        _ => None,
    })
}

/// Starts QEMU by its own loader with its own libraries; this machine's are older.
fn wrapper(part: &Path, root: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let libraries = format!("$root/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let script = format!(
        "#!/bin/sh\nroot='{}'\nexport QEMU_MODULE_DIR=\"{libraries}/qemu\"\nexec \"$root/usr/lib64/ld-linux-x86-64.so.2\" --library-path \"{libraries}\" \
         --argv0 {PROGRAM} \"$root/usr/bin/{PROGRAM}\" -L \"$root/usr/share/qemu\" \"$@\"\n",
        root.display()
    );
    let file = part.join(PROGRAM);
    std::fs::write(&file, script)?;
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755))?;
    Ok(())
}

async fn apt_get(apt: &Path, arguments: &[&str]) -> Result<()> {
    let folder = apt.display();
    let options = [
        format!("Dir::Etc::SourceList={folder}/sources.list"),
        "Dir::Etc::SourceParts=/dev/null".to_owned(),
        "Dir::Etc::Preferences=/dev/null".to_owned(),
        "Dir::Etc::PreferencesParts=/dev/null".to_owned(),
        format!("Dir::State={folder}/state"),
        format!("Dir::State::status={folder}/status"),
        format!("Dir::Cache={folder}/cache"),
        // As root, apt-get would hand the download to a user who may not write to our cache.
        "APT::Sandbox::User=root".to_owned(),
    ];
    let mut command = Command::new("apt-get");
    command.arg("-q").args(options.iter().flat_map(|option| ["-o", option])).args(arguments);
    outside::finish_within(command, None, DOWNLOAD_LIMIT).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::archive;

    #[test]
    fn the_archive_is_that_of_the_machines_own_packages() {
        let targets = "http://mirror.test/debian-security/ bookworm-security main\n\
                       http://mirror.test/debian/ bookworm-updates main\n\
                       http://mirror.test/debian/ bookworm contrib\n\
                       http://mirror.test/debian/ bookworm main\n";
        assert_eq!(archive(targets), Some("http://mirror.test/debian/"));
        assert_eq!(archive("http://mirror.test/debian-security/ bookworm-security main\n"), None);
        assert_eq!(archive(""), None);
    }
}
