//! How long a clone of a golden image takes, by the image's size: `Pool::create_volume` from a snapshot, syncs included.
//!
//! The images have some content at their start, and most of them was never written, as a system's image is.

use crate::Figures;
use crate::figure::{Figure, Unit};
use anyhow::{Context, Result, ensure};
use csi::pool::{ContentSource, Limits, Pool, Range};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use tempfile::TempDir;

const GIB: u64 = 1 << 30;
const CONTENT_MIB: u64 = 64;
const CLONES: usize = 50;

/// In a thread of its own: the file system is mounted there and nowhere else, and goes with it.
pub fn measure() -> Result<Figures> {
    let thread = std::thread::Builder::new().name("clones".to_owned()).spawn(run)?;
    thread.join().map_err(|_| anyhow::anyhow!("measuring clones panicked; see above"))?
}

fn run() -> Result<Figures> {
    let filesystem = FileSystem::xfs("400G")?;
    let pool = Pool::open("bench", &filesystem.at)?;
    let mut figures = Figures::new();
    for gib in [1, 10, 100] {
        let times = clones(&pool, gib)?;
        figures.insert(format!("clone{gib}GiB"), Figure::of(Unit::Milliseconds, &times).context("clones were made")?);
    }
    Ok(figures)
}

fn clones(pool: &Pool, gib: u64) -> Result<Vec<f64>> {
    let range = Range { required: Some(gib * GIB), limit: None };
    let golden = pool.create_volume(&format!("golden-{gib}"), range, None, &Limits::default())?;
    let image = File::options().write(true).open(pool.image(&golden.handle))?;
    let block = vec![1; 1 << 20];
    (0..CONTENT_MIB).try_for_each(|at| image.write_all_at(&block, at << 20))?;
    image.sync_all()?;
    let snapshot = pool.create_snapshot(&format!("snapshot-{gib}"), &golden.handle)?;
    let source = ContentSource::Snapshot(snapshot.id.to_string());
    let mut times = Vec::with_capacity(CLONES);
    for turn in 0..CLONES {
        let began = Instant::now();
        pool.create_volume(&format!("clone-{gib}-{turn}"), range, Some(&source), &Limits::default())?;
        times.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(times)
}

/// XFS with reflink in a sparse file.
struct FileSystem {
    at: PathBuf,
    _folder: TempDir,
}

impl FileSystem {
    fn xfs(size: &str) -> Result<Self> {
        ensure!(nix::unistd::geteuid().is_root(), "mounting needs root");
        // Mounts of this thread's own.
        unshare(CloneFlags::CLONE_NEWNS).context("a mount namespace")?;
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
            .context("private mounts")?;
        let folder = tempfile::Builder::new().prefix("metalplane-bench-").tempdir_in("/var/tmp")?;
        let (image, at) = (folder.path().join("filesystem.img"), folder.path().join("pool"));
        std::fs::create_dir(&at)?;
        run_to_end("truncate", &["-s".as_ref(), size.as_ref(), image.as_os_str()])?;
        run_to_end("mkfs.xfs", &["-q".as_ref(), "-m".as_ref(), "reflink=1".as_ref(), image.as_os_str()])?;
        run_to_end("mount", &["-o".as_ref(), "loop".as_ref(), image.as_os_str(), at.as_os_str()])?;
        Ok(Self { at, _folder: folder })
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        // What stays mounted goes with the thread; its file goes when nobody has it open.
        if let Err(error) = unmount(&self.at) {
            eprintln!("bench: {error:#}");
        }
    }
}

fn unmount(at: &Path) -> Result<()> {
    run_to_end("umount", &["-d".as_ref(), at.as_os_str()])
}

fn run_to_end(program: &str, arguments: &[&OsStr]) -> Result<()> {
    let done = Command::new(program).args(arguments).output().with_context(|| format!("start {program}"))?;
    ensure!(done.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&done.stderr).trim());
    Ok(())
}
