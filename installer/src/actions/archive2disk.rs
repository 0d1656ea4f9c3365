//! `archive2disk`: a tar archive from an URL into a file system of the disk. Upstream's `ARCHIVE_URL`, `ARCHIVE_TYPE`, `TARFILE_CHECKSUM` or
//! `INSECURE_NO_TARFILE_CHECKSUM_VERIFICATION`, `DEST_DISK` (the partition), `FS_TYPE`, `DEST_PATH` and `HTTP_CLIENT_TIMEOUT_MINUTES`. The
//! checksum is of the tar archive, as upstream means it, or of the file as the server sends it; `CA_BUNDLE` is ours, as in `image2disk`.
//! Without a limit in minutes the action's timeout is the one; upstream's five minutes end a large archive.

use super::image2disk::{CA_BUNDLE, authorities};
use super::{number, optional, proxies, required, so_far, truth};
use crate::agent::Action;
use crate::disks::Disks;
use crate::filesystem::Mounted;
use crate::lines::Lines;
use crate::untar;
use imaging::{Checksum, Packing, Progress, Source};
use rustix::mount::MountFlags;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use version::VERSION;

const CHECKSUM: &str = "TARFILE_CHECKSUM";
const UNCHECKED: &str = "INSECURE_NO_TARFILE_CHECKSUM_VERIFICATION";
const MINUTES: &str = "HTTP_CLIENT_TIMEOUT_MINUTES";
/// Between lines of progress.
const TELL_EVERY: Duration = Duration::from_secs(3);

struct Job {
    source: Source,
    kind: String,
    /// Below the file system's root.
    path: PathBuf,
    minutes: u64,
}

impl Job {
    fn read(action: &Action) -> Result<Self, String> {
        let url = required(action, "ARCHIVE_URL", "the archive's URL")?.to_owned();
        let what = "tar or targz";
        let packing = match required(action, "ARCHIVE_TYPE", what)?.to_ascii_lowercase().as_str() {
            "tar" => Packing::Uncompressed,
            "targz" => Packing::Compressed,
            other => return Err(format!("ARCHIVE_TYPE is {other:?}: write {what}")),
        };
        let checksum = match truth(action, UNCHECKED)?.unwrap_or(false) {
            true => None,
            false => {
                let what = format!("sha256:<64 hex digits>, or {UNCHECKED}=true");
                let checksum = required(action, CHECKSUM, &what)?.parse::<Checksum>();
                Some(checksum.map_err(|error| format!("{CHECKSUM}: {error}"))?)
            }
        };
        let path = Path::new(optional(action, "DEST_PATH").unwrap_or("/"));
        let parts = path.components().filter(|part| !matches!(part, Component::RootDir | Component::CurDir));
        let below = parts.map(|part| match part {
            Component::Normal(name) => Ok(name),
            _ => Err(format!("DEST_PATH is {}: write a folder's path from the file system's root", path.display())),
        });
        let source = Source {
            url,
            checksum,
            checksum_field: CHECKSUM,
            packing,
            user_agent: format!("metalplane-installer/{VERSION}"),
            authorities: optional(action, CA_BUNDLE).map(authorities).transpose()?.into(),
            authorities_field: CA_BUNDLE,
            access: None,
            proxies: proxies(action)?,
        };
        Ok(Self {
            source,
            kind: required(action, "FS_TYPE", "the file system's type, as ext4")?.to_owned(),
            path: below.collect::<Result<_, _>>()?,
            minutes: number(action, MINUTES, 0)?,
        })
    }
}

pub(super) async fn run(disks: &Disks, action: &Action, lines: &Lines) -> Result<(), String> {
    let job = Job::read(action)?;
    let disk = disks.find(required(action, "DEST_DISK", "the partition, as /dev/nvme0n1p1")?)?;
    let (node, name) = (disk.node.clone(), format!("disk {}", disk.node.display()));
    let url = imaging::fetch::plain(&job.source.url);
    lines.say(&format!("unpacking {url} to /{} of {name}", job.path.display()));
    let limit = Instant::now() + Duration::from_secs(job.minutes.saturating_mul(60).min(u64::from(u32::MAX)));
    let (until, whose) = match job.minutes {
        0 => (action.deadline, "the action's time"),
        _ if limit >= action.deadline => (action.deadline, "the action's time"),
        _ => (limit, MINUTES),
    };
    let (bytes, of, wake) = (AtomicU64::new(0), AtomicU64::new(0), Notify::new());
    let progress = Progress { bytes: &bytes, of: &of, wake: &wake };
    let stopped = async {
        sleep_until(until).await;
        format!("{name}: {whose} is over after {} bytes of {url}", bytes.load(Ordering::Relaxed))
    };
    let Job { source, kind, path, .. } = job;
    let reading = imaging::read(&source, &progress, stopped, move |archive| on(&node, &kind, &path, archive));
    tokio::pin!(reading);
    let read = loop {
        tokio::select! {
            biased;
            read = &mut reading => break read.map_err(|error| error.message)?,
            () = sleep(TELL_EVERY) => lines.say(&so_far(&progress, &url)),
        }
    };
    lines
        .say(&format!("{name}: {} bytes of the archive, {} entries of {} bytes", read.bytes, read.made, read.unpacked));
    Ok(())
}

/// With the file system mounted for so long.
fn on(node: &Path, kind: &str, path: &Path, archive: &mut dyn Read) -> Result<u64, String> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let mounted = Mounted::new(node, kind, flags)?;
    let unpacked = destination(mounted.root(), path)
        .map_err(|error| mounted.failed(&format!("DEST_PATH /{}", path.display()), &error))
        .and_then(|folder| {
            untar::unpack(&folder, archive).map_err(|error| format!("disk {}: {error}", node.display()))
        });
    let closed = mounted.close();
    unpacked.and_then(|count| closed.map(|()| count))
}

fn destination(root: &File, path: &Path) -> io::Result<File> {
    let folder = untar::make_folders(root, path)?;
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    Ok(rustix::fs::openat(&folder, ".", flags, rustix::fs::Mode::empty())?.into())
}

#[cfg(test)]
mod tests {
    use super::super::tests::action;
    use super::*;

    fn job(more: &[(&str, &str)]) -> Result<Job, String> {
        let whole =
            [("ARCHIVE_URL", "http://x/y"), ("ARCHIVE_TYPE", "TARGZ"), ("FS_TYPE", "ext4"), (UNCHECKED, "true")];
        Job::read(&action("archive2disk", &[&whole, more].concat()))
    }

    #[test]
    fn a_value_that_cannot_be_meant_is_named() {
        for (key, value, said) in [
            ("ARCHIVE_URL", "", "ARCHIVE_URL is missing"),
            ("ARCHIVE_TYPE", "", "ARCHIVE_TYPE is missing from the environment: write tar or targz"),
            ("ARCHIVE_TYPE", "zip", "ARCHIVE_TYPE is \"zip\": write tar or targz"),
            ("FS_TYPE", "", "FS_TYPE is missing"),
            ("DEST_PATH", "/a/../..", "DEST_PATH is /a/../..: write a folder's path"),
            (MINUTES, "soon", "HTTP_CLIENT_TIMEOUT_MINUTES is \"soon\": write a whole number"),
            (UNCHECKED, "maybe", "INSECURE_NO_TARFILE_CHECKSUM_VERIFICATION is \"maybe\": write true or false"),
            (CA_BUNDLE, "!", "CA_BUNDLE is neither PEM nor base64"),
            (UNCHECKED, "false", "TARFILE_CHECKSUM is missing from the environment: write sha256:"),
        ] {
            let error = job(&[(key, value)]).err().expect("refused");
            assert!(error.contains(said), "{key}={value}: {error}");
        }
        let error = job(&[(UNCHECKED, ""), (CHECKSUM, "md5:1")]).err().expect("refused");
        assert!(error.starts_with("TARFILE_CHECKSUM: ") && error.contains("write sha256:"), "{error}");
    }

    #[test]
    fn a_checksum_counts_unless_it_is_said_not_to() {
        let checksum = format!("sha256:{}", "0f".repeat(32));
        assert!(job(&[(CHECKSUM, &checksum)]).expect("understood").source.checksum.is_none());
        let checked = job(&[(UNCHECKED, "false"), (CHECKSUM, &checksum), ("DEST_PATH", "/srv/./root")]);
        let checked = checked.expect("understood");
        assert_eq!(checked.source.checksum, checksum.parse().ok());
        assert_eq!((checked.source.packing, checked.path.as_path()), (Packing::Compressed, Path::new("srv/root")));
    }
}
