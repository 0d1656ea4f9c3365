//! The suite of the fence on a file system that shares blocks between files, and what is special to files.

use async_trait::async_trait;
use file::{FileConnector, FileFence};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use planner::exposure::ExposureId;
use ports::conformance::fence::{Bench, Session, suite};
use ports::emulation::Backend;
use ports::volume::Volume;
use ports::{StorageFence, VolumeConnector};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// An XFS on a file, mounted in this test's thread and what that starts, nowhere else.
struct Pool {
    root: TempDir,
}

fn run(program: &str, arguments: &[&str]) {
    let done = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(done.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}

impl Pool {
    fn new(test: &str) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() || Command::new("mkfs.xfs").arg("-V").output().is_err() {
            eprintln!("SKIP {test}: a file system with reflinks needs root and mkfs.xfs");
            return None;
        }
        unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace");
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>).expect("private mounts");
        let pool = Self { root: tempfile::tempdir().expect("a folder") };
        let image = pool.root.path().join("filesystem.img").display().to_string();
        run("truncate", &["-s", "320M", &image]);
        run("mkfs.xfs", &["-q", "-m", "reflink=1", &image]);
        fs::create_dir(pool.path()).expect("a mount point");
        run("mount", &["-o", "loop", &image, &pool.path().display().to_string()]);
        fs::create_dir(pool.path().join("volumes")).expect("the pool's folder");
        Some(pool)
    }

    fn path(&self) -> PathBuf {
        self.root.path().join("pool")
    }

    fn pools(&self) -> BTreeMap<String, PathBuf> {
        BTreeMap::from([("fast".to_owned(), self.path())])
    }

    fn folder(&self, handle: &str) -> PathBuf {
        self.path().join("volumes").join(handle)
    }

    fn connector(&self, dpu: u8) -> FileConnector {
        FileConnector::new(self.pools(), self.root.path().join(format!("run-{dpu}")))
    }

    fn make(&self, handle: &str) -> Volume {
        fs::create_dir(self.folder(handle)).expect("a fresh volume");
        let disk = File::create(self.folder(handle).join("disk.img")).expect("a disk");
        disk.set_len(1 << 20).expect("a sparse disk");
        let attributes = [("pool".to_owned(), "fast".to_owned())].into();
        Volume { driver: file::DRIVER.to_owned(), handle: handle.to_owned(), attributes, ..Volume::default() }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // What a failed test has open keeps it a moment longer.
        let _ = umount2(&self.path(), MntFlags::MNT_DETACH);
    }
}

struct Open(File);

#[async_trait]
impl Session for Open {
    async fn write(&self, byte: u8) {
        // Through the page cache and out, as an emulator's flush does.
        self.0.write_all_at(&[byte], 0).and_then(|()| self.0.sync_data()).expect("an open file takes writes");
    }
}

#[async_trait]
impl Bench for Pool {
    type Connector = FileConnector;
    type Fence = FileFence;
    type Session = Open;

    async fn connector(&self, dpu: u8) -> FileConnector {
        Pool::connector(self, dpu)
    }

    async fn fence(&self) -> FileFence {
        FileFence::new(self.pools())
    }

    async fn volume(&self, number: u8) -> Volume {
        self.make(&format!("pvc-{number}"))
    }

    async fn open(&self, _: &ExposureId, backend: &Backend) -> Option<Open> {
        let path = backend.path().expect("the file pool hands out paths");
        File::options().read(true).write(true).open(path).ok().map(Open)
    }

    async fn first_byte(&self, volume: &Volume) -> u8 {
        fs::read(self.folder(&volume.handle).join("disk.img")).expect("the image")[0]
    }
}

fn id(uid: &str, epoch: u64) -> ExposureId {
    ExposureId { uid: uid.to_owned(), epoch }
}

fn inode(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).expect("it is there").ino()
}

#[tokio::test]
async fn conforms() {
    let Some(pool) = Pool::new("conforms") else { return };
    suite(&pool).await;
}

#[tokio::test]
async fn a_fence_that_was_interrupted_anywhere_is_done_by_the_next() {
    let Some(pool) = Pool::new("a_fence_that_was_interrupted_anywhere") else { return };
    for (number, undo) in (0u8..).zip(["writer.json", "disk.img.new", "link", "fence.json"]) {
        let volume = pool.make(&format!("pvc-{number}"));
        let (folder, first) = (pool.folder(&volume.handle), id("a", 1));
        let connection = pool.connector(number).connect(&first, &volume).await.expect("connect");
        let path = connection.backend.path().expect("the file pool hands out paths");
        let record = fs::read(folder.join("writer.json")).expect("a writer's record");
        let fence = FileFence::new(pool.pools());
        let identity = fence.fence_identity(&first);
        fence.fence(&volume, &identity).await.expect("fence");
        match undo {
            // As if it had stopped before its last step, or halfway through an earlier one.
            "writer.json" => fs::write(folder.join("writer.json"), record),
            "disk.img.new" => fs::write(folder.join("disk.img.new"), "half"),
            "link" => fs::hard_link(folder.join("disk.img"), path),
            _ => fs::remove_file(folder.join("fence.json")),
        }
        .expect(undo);
        fence.fence(&volume, &identity).await.expect("again");
        assert!(fence.verify_fenced(&volume, &identity).await.expect("verify"), "{undo}");
        assert_eq!(fs::metadata(folder.join("disk.img")).expect("the image").len(), 1 << 20);
    }
}

#[tokio::test]
async fn a_volume_that_grows_grows_for_its_writer_and_keeps_its_size_when_fenced() {
    let Some(pool) = Pool::new("a_volume_that_grows") else { return };
    let volume = pool.make("pvc-1");
    let (image, first) = (pool.folder("pvc-1").join("disk.img"), id("a", 1));
    let connector = pool.connector(1);
    let connection = connector.connect(&first, &volume).await.expect("connect");
    let path = connection.backend.path().expect("the file pool hands out paths");
    assert_eq!(inode(path), inode(&image), "one image, two names");
    File::options().write(true).open(&image).and_then(|file| file.set_len(2 << 20)).expect("grow");
    assert_eq!(connector.list().await.expect("list")[0].size_bytes, 2 << 20);
    let before = inode(&image);
    let fence = FileFence::new(pool.pools());
    fence.fence(&volume, &fence.fence_identity(&first)).await.expect("fence");
    assert_ne!(inode(&image), before, "another image under the old name");
    assert_eq!(fs::metadata(&image).expect("the image").len(), 2 << 20);
    assert!(!path.exists());
}

#[tokio::test]
async fn readers_have_no_name_of_their_own_and_are_not_fenced() {
    let Some(pool) = Pool::new("readers_have_no_name") else { return };
    let volume = pool.make("pvc-1");
    let reader = Volume { read_only: true, ..volume.clone() };
    let fence = FileFence::new(pool.pools());
    fence.fence(&volume, &fence.fence_identity(&id("w", 5))).await.expect("fence");
    pool.connector(1).connect(&id("r", 1), &reader).await.expect("a reader has epoch 1 and no fence");
}
