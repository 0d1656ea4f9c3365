//! `image2disk`: an image from an URL onto a disk. Upstream's `IMG_URL`, `DEST_DISK`, `COMPRESSED`, `RETRY_ENABLED`,
//! `RETRY_DURATION_MINUTES` and `PROGRESS_INTERVAL_SECONDS`, and `CHECKSUM` (`sha256:…` or `sha512:…`, of the bytes as the server
//! sends them), and `CA_BUNDLE` (the authorities that vouch for an https server, in PEM or in base64 of that, which is one line; empty: the
//! public ones). What an image is packed with, and whether it is qcow2, is told by its first bytes, not by its name. `TEXT_LOGGING` chooses between two
//! forms of upstream's log; the lines here have one.
//!
//! `qemuimg2disk` is the same for raw and qcow2 images: upstream's `IMG_URL` and `DEST_DISK`, and `FORMAT` where it is what upstream has
//! when it is left out. `EXTRA_ARGS` are qemu-img's, which is not here.
//!
//! A disk that discards is empty behind the image. Of one that does not, the last MiB alone is zeroed there, and the labels of what the
//! disk was a part of (`labels.rs`): what was on it elsewhere stays, as with upstream.

use super::{labels, number, optional, proxies, required, so_far, truth, written};
use crate::agent::Action;
use crate::disks::{Disk, Disks};
use crate::lines::Lines;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use imaging::gpt::Backup;
use imaging::{Checksum, Error, FileDisk, Kind, Packing, Progress, Rest, Source, Target};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use trust::Bundle;
use version::VERSION;

/// The key.
pub(super) const CA_BUNDLE: &str = "CA_BUNDLE";
/// What to write as `DEST_DISK`.
pub(super) const DISK: &str = "a disk as /dev/nvme0n1, or select:<key>=<value>";
/// Between two tries of a download.
const AGAIN: Duration = Duration::from_secs(5);
/// For the kernel to let go of old partitions, and for the nodes of new ones.
const PARTITIONS: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(100);

pub(super) struct Job {
    pub(super) source: Source,
    /// Whether and how long a download that failed for the network's sake begins anew.
    pub(super) retry: Option<Duration>,
    pub(super) tell_every: Duration,
}

impl Job {
    fn read(action: &Action) -> Result<Self, String> {
        let url = required(action, "IMG_URL", "the image's URL")?.to_owned();
        let packing = packing(action)?;
        let checksum = optional(action, "CHECKSUM").map(str::parse::<Checksum>).transpose();
        let checksum = checksum.map_err(|error| format!("CHECKSUM: {error}"))?;
        let minutes = number(action, "RETRY_DURATION_MINUTES", 10)?;
        let retry = truth(action, "RETRY_ENABLED")?.unwrap_or(false).then(|| Duration::from_secs(minutes * 60));
        let tell_every = Duration::from_secs(number(action, "PROGRESS_INTERVAL_SECONDS", 3)?.max(1));
        let authorities = optional(action, CA_BUNDLE).map(authorities).transpose()?;
        let source = Source {
            url,
            checksum,
            checksum_field: "CHECKSUM",
            packing,
            user_agent: format!("metalplane-installer/{VERSION}"),
            authorities: authorities.into(),
            authorities_field: CA_BUNDLE,
            access: None,
            proxies: proxies(action)?,
        };
        Ok(Self { source, retry, tell_every })
    }
}

/// `COMPRESSED` is held against what the first bytes say.
pub(super) fn packing(action: &Action) -> Result<Packing, String> {
    Ok(match truth(action, "COMPRESSED")? {
        None => Packing::ByMagic,
        Some(true) => Packing::Compressed,
        Some(false) => Packing::Uncompressed,
    })
}

/// PEM or its base64.
pub(super) fn authorities(text: &str) -> Result<Bundle, String> {
    let pem = match text.contains("-----BEGIN") {
        true => text.as_bytes().to_vec(),
        false => STANDARD.decode(text.trim()).map_err(|error| {
            format!("{CA_BUNDLE} is neither PEM nor base64 ({error}): write the certificates of authorities, or their file in base64")
        })?,
    };
    Bundle::parse(&pem).map_err(|error| format!("{CA_BUNDLE} {error}"))
}

/// `qemuimg2disk` as `image2disk`.
pub(super) fn of_qemu(action: &Action) -> Result<Action, String> {
    if let Some(format) = optional(action, "FORMAT").filter(|format| !matches!(*format, "host_device" | "raw")) {
        return Err(format!("FORMAT is {format:?}: the disk is written as it is: leave FORMAT out"));
    }
    for (key, why) in [
        ("EXTRA_ARGS", "they are arguments of qemu-img, which is not here"),
        ("COMPRESSED", "qemuimg2disk has no such key; image2disk has"),
    ] {
        if let Some(value) = optional(action, key) {
            return Err(format!("{key} is {value:?}: {why}: leave it out"));
        }
    }
    Ok(action.clone())
}

pub(super) async fn run(disks: &Disks, action: &Action, lines: &Lines) -> Result<(), String> {
    let job = Job::read(action)?;
    let disk = disks.find(required(action, "DEST_DISK", DISK)?)?;
    write(&job, (disks, &disk), action.deadline, lines).await
}

pub(super) async fn write(
    job: &Job,
    (disks, disk): (&Disks, &Disk),
    deadline: Instant,
    lines: &Lines,
) -> Result<(), String> {
    let give_up = job.retry.map(|retry| Instant::now() + retry);
    // As long as the kernel knows them: their table is at the disk's beginning.
    let before = disks.partition_places(disk);
    let end = loop {
        let failed = match copy(job, disk, deadline, lines).await {
            Ok(end) => break end,
            Err(error) => error,
        };
        let passes = matches!(failed.kind, Kind::Unreachable | Kind::Busy);
        let next = Instant::now() + AGAIN;
        if !passes || next >= deadline || give_up.is_none_or(|until| next >= until) {
            return Err(failed.message);
        }
        lines.say(&format!("{failed}; beginning anew"));
        sleep(AGAIN).await;
    };
    finish(disk, lines).await?;
    labels::clear((disks, disk), before, end, lines).await?;
    written::tell(disks, disk, lines);
    Ok(())
}

/// Where the image ends on the disk.
async fn copy(job: &Job, disk: &Disk, deadline: Instant, lines: &Lines) -> Result<u64, Error> {
    let url = imaging::fetch::plain(&job.source.url);
    let name = format!("disk {}", disk.node.display());
    lines.say(&format!("writing {url} to {name} ({} bytes)", disk.size_bytes));
    let writer = FileDisk::exclusive(&disk.node, disk.size_bytes, disk.discards);
    let writer = writer.map_err(|error| Error::file("opening", &name, &error))?;
    let target = Target {
        name: name.clone(),
        size_bytes: disk.size_bytes,
        too_small: "choose a larger disk",
        rest: if disk.discards { Rest::Zeroed } else { Rest::Kept },
        wipe: true,
    };
    let (bytes, of, wake) = (AtomicU64::new(0), AtomicU64::new(0), Notify::new());
    let stopped = async {
        sleep_until(deadline).await;
        format!("{name}: the action's time is over after {} bytes of {url}", bytes.load(Ordering::Relaxed))
    };
    let progress = Progress { bytes: &bytes, of: &of, wake: &wake };
    let copying = imaging::copy(&job.source, target, Box::new(writer), &progress, stopped);
    tokio::pin!(copying);
    let copied = loop {
        tokio::select! {
            biased;
            copied = &mut copying => break copied?,
            () = sleep(job.tell_every) => lines.say(&so_far(&progress, &url)),
        }
    };
    let digest = copied.digest.unwrap_or_else(|| "without a checksum".to_owned());
    lines.say(&format!("{name}: {} bytes of the image, {} written, {digest}", copied.bytes, copied.unpacked));
    Ok(copied.unpacked)
}

/// The partition table fits its disk, the kernel has read it, and what it names can be opened.
async fn finish(disk: &Disk, lines: &Lines) -> Result<(), String> {
    if !disk.is_whole {
        return Ok(());
    }
    let name = format!("disk {}", disk.node.display());
    let place = disk.clone();
    let fitted = tokio::task::spawn_blocking(move || fit(&place)).await;
    let fitted = fitted.unwrap_or_else(|panic| Err(io::Error::other(panic)));
    if fitted.map_err(|error| format!("{name}: {error}"))? == Backup::Moved {
        lines.say(&format!("{name}: the backup of its partition table is at its end"));
    }
    read_partitions(disk, lines).await
}

/// The kernel has read the disk's partition table, and what that names can be opened.
pub(super) async fn read_partitions(disk: &Disk, lines: &Lines) -> Result<(), String> {
    let name = format!("disk {}", disk.node.display());
    let until = Instant::now() + PARTITIONS;
    loop {
        match File::open(&disk.node).and_then(|file| linux_sys::reread_partitions(&file)) {
            Ok(()) => break,
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < until => sleep(LOOK).await,
            Err(error) => return Err(format!("{name}: reading its partitions again: {error}")),
        }
    }
    loop {
        let (there, missing) = partitions(Path::new("/sys/class/block"), Path::new("/dev"), &disk.name);
        match missing.first() {
            None => {
                lines.say(&format!(
                    "{name}: partitions: {}",
                    if there.is_empty() { "none".into() } else { there.join(" ") }
                ));
                return Ok(());
            }
            Some(_) if Instant::now() < until => sleep(LOOK).await,
            Some(missing) => return Err(format!("{name}: /dev/{missing} did not appear")),
        }
    }
}

/// With both ends zeroed after a failure, as after one of the image's: a table that does not fit must not boot.
fn fit(disk: &Disk) -> io::Result<Backup> {
    let file = File::options().read(true).write(true).open(&disk.node)?;
    imaging::gpt::to_the_end(&file, disk.size_bytes, disk.sector).map_err(|error| {
        let wiped = FileDisk::open(&disk.node, disk.size_bytes)
            .and_then(|mut whole| imaging::wipe(&mut whole, disk.size_bytes));
        match wiped {
            Ok(()) => error,
            Err(wiping) => io::Error::new(error.kind(), format!("{error}; zeroing its ends failed, too: {wiping}")),
        }
    })
}

/// Of a disk: those with a node, and those without.
fn partitions(class: &Path, dev: &Path, disk: &str) -> (Vec<String>, Vec<String>) {
    let entries = fs::read_dir(class.join(disk)).into_iter().flatten().flatten();
    let partitions = entries.filter(|entry| entry.path().join("partition").exists());
    let mut names: Vec<String> = partitions.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names.into_iter().partition(|name| dev.join(name).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_without_a_node_is_told_from_one_with() {
        let folder = tempfile::tempdir().expect("a folder");
        let (class, dev) = (folder.path().join("class"), folder.path().join("dev"));
        for path in ["class/vda/vda1", "class/vda/vda2", "class/vda/queue", "dev"] {
            fs::create_dir_all(folder.path().join(path)).expect("made");
        }
        for name in ["vda1", "vda2"] {
            fs::write(class.join("vda").join(name).join("partition"), "1").expect("written");
        }
        fs::write(dev.join("vda2"), "").expect("written");
        assert_eq!(partitions(&class, &dev, "vda"), (vec!["vda2".to_owned()], vec!["vda1".to_owned()]));
    }

    #[test]
    fn authorities_are_pem_or_one_line_of_it() {
        let pem = rcgen::generate_simple_self_signed(["images".to_owned()]).expect("a certificate").cert.pem();
        let encoded = STANDARD.encode(&pem);
        assert_eq!(authorities(&pem).expect("PEM"), authorities(&format!("{encoded}\n")).expect("base64"));
        for (text, said) in [("!", "neither PEM nor base64"), ("aGVsbG8=", "has no certificate")] {
            let error = authorities(text).expect_err("refused");
            assert!(error.starts_with(CA_BUNDLE) && error.contains(said), "{error}");
        }
    }
}
