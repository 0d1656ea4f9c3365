//! A storage node with an lvstore, fake or real, and pools on it.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use csi::pool::{LvolPlace, Pool, Volume};
use ports::{LogicalVolumes, lvol::Lvol};
use sandbox::spdk::{Fake, real};
use serde_json::{Value, json};
use spdk::lvols::SpdkLvols;
use std::{
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::Arc,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;
/// SPDK's default.
pub const CLUSTER: u64 = 4 * MIB;
/// What clones may become without a copy.
pub const LARGEST: u64 = 1 << 40;
const LVSTORE: &str = "lvs0";
const SIZE: u64 = 40 * GIB;

pub enum Target {
    Fake(Fake),
    Real(Box<real::Target>),
}

impl Target {
    pub fn socket(&self) -> &Path {
        match self {
            Self::Fake(fake) => fake.socket(),
            Self::Real(target) => target.socket(),
        }
    }
}

pub struct Lab {
    pub runtime: Runtime,
    pub storage: Target,
    /// A DPU's, that reaches the storage node.
    pub dpu: Target,
    pub address: SocketAddr,
    dir: TempDir,
}

impl Lab {
    fn new(start: impl FnOnce(&Runtime, &Path) -> Option<(Target, Target)>) -> Option<Lab> {
        let runtime = Runtime::new().expect("a runtime");
        let dir = tempfile::Builder::new().prefix("csi-lvols-").tempdir_in("/var/tmp").expect("a folder");
        for folder in ["storage", "dpu"] {
            std::fs::create_dir(dir.path().join(folder)).expect("a folder");
        }
        let socket = TcpListener::bind(("127.0.0.1", 0)).expect("a socket");
        let address = socket.local_addr().expect("its address");
        drop(socket);
        let (storage, dpu) = start(&runtime, dir.path())?;
        Some(Lab { runtime, storage, dpu, address, dir })
    }

    pub fn fake() -> Lab {
        let start = |runtime: &Runtime, dir: &Path| {
            let _inside = runtime.enter();
            let storage = Fake::start(&dir.join("storage")).expect("a fake target");
            storage.with(|world| world.add_lvstore(LVSTORE, CLUSTER, SIZE / CLUSTER));
            let dpu = Fake::start(&dir.join("dpu")).expect("a fake target");
            dpu.reaches(&storage);
            Some((Target::Fake(storage), Target::Fake(dpu)))
        };
        Lab::new(start).expect("fakes start")
    }

    /// `None`, after saying so by the test's name, where no SPDK is installed.
    pub fn real(test: &str) -> Option<Lab> {
        let program = real::program("nvmf_tgt").inspect_err(|missing| eprintln!("SKIP {test}: {missing}")).ok()?;
        let lab = Lab::new(|runtime, dir| {
            let start = |name: &str| {
                let target = runtime.block_on(real::Target::start(&program, &dir.join(name)));
                Target::Real(Box::new(target.expect("the target starts")))
            };
            Some((start("storage"), start("dpu")))
        })?;
        let disk = lab.disk();
        std::fs::File::create(&disk).and_then(|file| file.set_len(SIZE)).expect("a disk");
        lab.add_disk();
        let create = json!({"bdev_name": "disk", "lvs_name": LVSTORE, "clear_method": "none"});
        lab.call("bdev_lvol_create_lvstore", create);
        Some(lab)
    }

    fn disk(&self) -> PathBuf {
        self.dir.path().join("disk.img")
    }

    fn add_disk(&self) {
        let create = json!({"name": "disk", "filename": self.disk(), "block_size": 512});
        self.call("bdev_aio_create", create);
    }

    /// As an administrator does it.
    pub fn call(&self, method: &str, params: Value) -> Value {
        let asked = real::ask(self.storage.socket(), method, params);
        self.runtime.block_on(asked).unwrap_or_else(|error| panic!("{method}: {error:#}"))
    }

    pub fn fake_storage(&self) -> &Fake {
        match &self.storage {
            Target::Fake(fake) => fake,
            Target::Real(_) => panic!("of the fake only"),
        }
    }

    /// `kill -9`, and a new target on the same disk.
    pub fn restart_storage(&mut self) {
        match &mut self.storage {
            Target::Fake(fake) => {
                let _inside = self.runtime.enter();
                fake.kill();
                fake.revive().expect("a new target");
            }
            Target::Real(target) => {
                let again = async {
                    target.kill().await?;
                    target.revive().await
                };
                self.runtime.block_on(again).expect("a new target");
                self.add_disk();
                let whole =
                    |lab: &Lab| !lab.call("bdev_lvol_get_lvstores", Value::Null).as_array().is_none_or(Vec::is_empty);
                assert!(whole(self), "the lvstore is there again");
            }
        }
    }

    pub fn node(&self) -> SpdkLvols {
        SpdkLvols::new(self.storage.socket(), LVSTORE, self.address)
    }

    /// A new handle on the same pool, as after a restart of the driver.
    pub fn pool(&self) -> Pool {
        let _inside = self.runtime.enter();
        let place =
            LvolPlace { node: Arc::new(self.node()), lvstore: LVSTORE.into(), address: self.address, largest: LARGEST };
        Pool::open_lvols("fast", &self.records(), place).expect("a pool opens")
    }

    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    pub fn records(&self) -> PathBuf {
        self.dir.path().join("records")
    }

    pub fn lvols(&self) -> Vec<Lvol> {
        self.runtime.block_on(self.node().list()).expect("listed")
    }

    pub fn lvol(&self, name: &str) -> Lvol {
        let all = self.lvols();
        all.iter().find(|lvol| lvol.name == name).unwrap_or_else(|| panic!("{name} is none of {all:?}")).clone()
    }

    /// Nothing harmful was asked, and no volume is larger than what is behind it.
    pub fn assert_sound(&self, when: &str) {
        let all = self.lvols();
        for lvol in &all {
            if let Some(parent) = &lvol.parent {
                let behind = all.iter().find(|it| it.name == *parent).expect("its parent is there");
                assert!(behind.size_bytes >= lvol.size_bytes, "{when}: {lvol:?} is larger than {behind:?}");
            }
        }
        for target in [&self.storage, &self.dpu] {
            if let Target::Fake(fake) = target {
                assert_eq!(fake.violations(), Vec::<String>::new(), "{when}");
            }
        }
    }

    /// As a PersistentVolume has it.
    pub fn persistent(&self, pool: &Pool, volume: &Volume) -> ports::volume::Volume {
        let own = pool.context(volume).into_iter().map(|(key, value)| (key.to_owned(), value));
        ports::volume::Volume {
            driver: csi::DRIVER.to_owned(),
            handle: volume.handle.to_string(),
            attributes: own.chain([("pool".to_owned(), pool.name().to_owned())]).collect(),
            ..ports::volume::Volume::default()
        }
    }
}
