//! A target, fake or real, and the files that its disks are made of.

use async_trait::async_trait;
use planner::exposure::{Bus, ExposureId, Limits, Slot};
use ports::{
    Emulation,
    conformance::{Sleep, emulation::Bench},
    emulation::{Backend, DiskFunction},
};
use sandbox::spdk::{Fake, real, world};
use spdk::{SpdkEmulation, door::Door, host::Host, rpc::Rpc};
use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};
use tempfile::TempDir;

pub const HOT_PLUG: u32 = 4;

/// What a disk stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    File,
    /// A bdev that somebody else made.
    Bdev,
}

pub struct Lab<T> {
    pub target: T,
    pub folder: TempDir,
    pub over: Over,
    pub door: Door,
    pub made: AtomicU32,
}

fn vfio_user(folder: &TempDir) -> Door {
    Door::VfioUser { folder: folder.path().join("vfio-user") }
}

/// What a bench needs of a target.
#[async_trait]
pub trait Target: Send + Sync {
    fn socket(&self) -> &Path;
    /// Makes a bdev of memory.
    async fn memory(&self, name: &str, size_bytes: u64);
    async fn grow_memory(&self, name: &str, size_bytes: u64);
}

#[async_trait]
impl Target for Fake {
    fn socket(&self) -> &Path {
        Fake::socket(self)
    }

    async fn memory(&self, name: &str, size_bytes: u64) {
        self.with(|world| world.add_bdev(world::Bdev::new(name, 512, size_bytes, world::Kind::Malloc)));
    }

    async fn grow_memory(&self, name: &str, size_bytes: u64) {
        self.with(|world| world.resize_bdev(name, size_bytes / 512));
    }
}

/// `None`, with the reason on stderr, where no SPDK is installed.
pub async fn real(test: &str, program: &str) -> Option<Lab<real::Target>> {
    let program = match real::program(program) {
        Ok(program) => program,
        Err(missing) => {
            eprintln!("SKIP {test}: {missing}");
            return None;
        }
    };
    let folder = tempfile::tempdir().expect("a folder");
    let target = real::Target::start(&program, folder.path()).await.expect("the target starts");
    Some(Lab { target, door: vfio_user(&folder), folder, over: Over::File, made: AtomicU32::new(0) })
}

pub fn fake(over: Over) -> Lab<Fake> {
    let folder = tempfile::tempdir().expect("a folder");
    let target = Fake::start(folder.path()).expect("a fake target");
    Lab { target, door: vfio_user(&folder), folder, over, made: AtomicU32::new(0) }
}

/// Says once that the fake's requests are not held against SPDK's schema.
pub fn mention_schema(test: &str) {
    if let Err(missing) = sandbox::spdk::schema::find() {
        eprintln!("{test}: requests are not checked against SPDK's schema: {missing}");
    }
}

impl<T: Target> Lab<T> {
    pub fn host(&self) -> Host {
        Host {
            nqn: "nqn.2026-01.io.metalplane:host".to_owned(),
            serial: "MPHOST1".to_owned(),
            door: self.door.clone(),
            hot_plug: HOT_PLUG,
        }
    }

    pub fn emulation(&self) -> SpdkEmulation {
        let state = self.folder.path().join("state");
        SpdkEmulation::new(self.target.socket(), self.host(), state).expect("a driver")
    }

    pub fn rpc(&self) -> Rpc {
        Rpc::new(self.target.socket(), spdk::rpc::LIMIT)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn size_file(&self, path: &Path, size_bytes: u64) {
        let file = std::fs::File::options().write(true).create(true).truncate(false).open(path).expect("a file");
        file.set_len(size_bytes).expect("sized");
    }

    pub async fn new_backend(&self, size_bytes: u64) -> Backend {
        let name = format!("disk{}", self.made.fetch_add(1, Ordering::Relaxed));
        match self.over {
            Over::File => {
                let path = self.file(&name);
                self.size_file(&path, size_bytes);
                Backend::Path(path)
            }
            Over::Bdev => {
                self.target.memory(&name, size_bytes).await;
                Backend::Bdev(name)
            }
        }
    }
}

pub fn disk(number: u32, epoch: u64, slot: Slot, backend: Backend) -> DiskFunction {
    let uid = format!("5f0c1c9e-58a4-4b1c-9a63-{number:012x}");
    DiskFunction {
        uuid: uid.clone(),
        id: ExposureId { uid, epoch },
        bus: Bus::NVMe,
        slot,
        serial: format!("MP{number}"),
        backend,
        read_only: false,
        limits: Limits::default(),
    }
}

#[async_trait]
impl<T: Target> Sleep for Lab<T> {
    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

#[async_trait]
impl<T: Target> Bench for Lab<T> {
    async fn connect(&self) -> Box<dyn Emulation> {
        Box::new(self.emulation())
    }

    async fn backend(&self, size_bytes: u64) -> Backend {
        self.new_backend(size_bytes).await
    }

    async fn grow(&self, backend: &Backend, size_bytes: u64) {
        match backend {
            Backend::Path(path) => self.size_file(path, size_bytes),
            Backend::Bdev(name) => self.target.grow_memory(name, size_bytes).await,
            Backend::Rbd(_) | Backend::Nbd(_) => panic!("{backend:?} is not of this bench"),
        }
    }

    /// A namespace needs nobody's consent to leave.
    async fn let_host_release(&self) {}

    async fn has_device(&self, _: &str) -> Option<bool> {
        None
    }
}

#[async_trait]
impl Target for real::Target {
    fn socket(&self) -> &Path {
        real::Target::socket(self)
    }

    async fn memory(&self, _: &str, _: u64) {
        panic!("bdevs of memory are made in the fake only");
    }

    async fn grow_memory(&self, _: &str, _: u64) {
        panic!("bdevs of memory are made in the fake only");
    }
}
