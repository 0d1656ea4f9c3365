//! A DPU's target and a storage node's, fake or real, and volumes of each kind.

use planner::exposure::ExposureId;
use ports::volume::Volume;
use sandbox::spdk::{Fake, real, world};
use serde_json::{Value, json};
use spdk::volumes::{iscsi, local, nvmeof, rbd};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tempfile::TempDir;

pub const MIB: u64 = 1 << 20;
/// A condition that is met in milliseconds on an idle machine.
pub const LIMIT: Duration = Duration::from_secs(60);
const PORTS: u32 = 20_000;
/// Room for the epochs of any test.
const NAMESPACES: u32 = 2048;

pub fn id(uid: &str, epoch: u64) -> ExposureId {
    ExposureId { uid: uid.to_owned(), epoch }
}

fn volume(driver: &str, handle: &str, attributes: &[(&str, &str)]) -> Volume {
    let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Volume { driver: driver.to_owned(), handle: handle.to_owned(), attributes, ..Volume::default() }
}

pub fn size_file(path: &Path, size_bytes: u64) {
    let file = std::fs::File::options().write(true).create(true).truncate(false).open(path).expect("a file");
    file.set_len(size_bytes).expect("sized");
}

/// A target of any sort, by its socket.
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

    pub fn fake(&self) -> &Fake {
        match self {
            Self::Fake(fake) => fake,
            Self::Real(_) => panic!("of the fake only"),
        }
    }

    pub async fn kill(&mut self) {
        match self {
            Self::Fake(fake) => fake.kill(),
            Self::Real(target) => target.kill().await.expect("killed"),
        }
    }

    /// Killed, and a new one on the same socket.
    pub async fn restart(&mut self) {
        self.kill().await;
        match self {
            Self::Fake(fake) => fake.revive().expect("a new target"),
            Self::Real(target) => target.revive().await.expect("a new target"),
        }
    }

    /// As an administrator does it.
    pub async fn call(&self, method: &str, params: Value) -> Value {
        real::ask(self.socket(), method, params).await.unwrap_or_else(|error| panic!("{method}: {error:#}"))
    }

    fn violations(&self) -> Vec<String> {
        match self {
            Self::Fake(fake) => fake.violations(),
            Self::Real(_) => Vec::new(),
        }
    }
}

/// One DPU or two, and a storage node.
pub struct Lab {
    pub folder: TempDir,
    pub dpus: Vec<Target>,
    pub storage: Target,
    port: u16,
    /// Where an iSCSI target would be.
    portal: TcpListener,
}

fn portal() -> TcpListener {
    TcpListener::bind(("127.0.0.1", 0)).expect("a socket")
}

/// A port that nobody listens on just now.
/// Below those that the kernel gives to whoever connects somewhere: none of them takes it before it is listened on.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut tries = (0..PORTS).map(|_| std::process::id() * 97 + NEXT.fetch_add(1, Ordering::Relaxed));
    let free = |number: u32| {
        let port = u16::try_from(10_240 + number % PORTS).ok()?;
        TcpListener::bind(("127.0.0.1", port)).ok().map(|_| port)
    };
    tries.find_map(free).expect("a free port")
}

impl Lab {
    pub fn fake(dpus: usize) -> Lab {
        let folder = tempfile::tempdir().expect("a folder");
        let start = |name: String| {
            let folder = folder.path().join(name);
            std::fs::create_dir(&folder).expect("a folder");
            Fake::start(&folder).expect("a fake target")
        };
        let storage = start("storage".to_owned());
        let dpu = |number| {
            let dpu = start(format!("dpu-{number}"));
            dpu.reaches(&storage);
            Target::Fake(dpu)
        };
        let dpus = (0..dpus).map(dpu).collect();
        Lab { dpus, storage: Target::Fake(storage), folder, port: free_port(), portal: portal() }
    }

    /// `None`, with the reason on stderr, where no SPDK is installed.
    pub async fn real(test: &str, dpus: usize) -> Option<Lab> {
        Self::real_with(test, dpus, ("nvmf_tgt", "nvmf_tgt")).await
    }

    /// With these programs, on the storage node and on the DPUs.
    pub async fn real_with(test: &str, dpus: usize, (storage, dpu): (&str, &str)) -> Option<Lab> {
        let find = |name| real::program(name).inspect_err(|missing| eprintln!("SKIP {test}: {missing}")).ok();
        let (own, others) = (find(storage)?, find(dpu)?);
        let folder = tempfile::tempdir().expect("a folder");
        let mut all = Vec::new();
        for name in ["storage".to_owned()].into_iter().chain((0..dpus).map(|number| format!("dpu-{number}"))) {
            let folder = folder.path().join(name);
            std::fs::create_dir(&folder).expect("a folder");
            let program = if all.is_empty() { &own } else { &others };
            all.push(Target::Real(Box::new(real::Target::start(program, &folder).await.expect("the target starts"))));
        }
        let dpus = all.split_off(1);
        let storage = all.pop().expect("the storage node's");
        Some(Lab { folder, dpus, storage, port: free_port(), portal: portal() })
    }

    /// The storage node serves iSCSI. `None` where the DPU's SPDK has no initiator, too.
    pub async fn real_iscsi(test: &str, dpu: &str) -> Option<Lab> {
        const METHOD: &str = "bdev_iscsi_create";
        let lab = Self::real_with(test, 1, ("iscsi_tgt", dpu)).await?;
        let methods = lab.dpu().call("rpc_get_methods", Value::Null).await;
        if methods.as_array().is_some_and(|all| all.iter().any(|method| method == METHOD)) {
            return Some(lab);
        }
        eprintln!("SKIP {test}: this SPDK was built without --with-iscsi-initiator: {dpu} has no {METHOD}");
        None
    }

    pub fn dpu(&self) -> &Target {
        &self.dpus[0]
    }

    pub fn assert_harmless(&self) {
        for target in self.dpus.iter().chain([&self.storage]) {
            assert_eq!(target.violations(), Vec::<String>::new());
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `address:port` on which the storage node listens.
    pub fn place(&self) -> (String, PathBuf) {
        (format!("127.0.0.1:{}", self.port), self.storage.socket().to_owned())
    }

    /// A volume over NVMe/TCP, of a file at the storage node, in a subsystem of its own that any host reaches.
    pub async fn nvme_volume(&self, name: &str, size_bytes: u64) -> Volume {
        let file = self.path(&format!("{name}.img"));
        size_file(&file, size_bytes);
        let transports = self.storage.call("nvmf_get_transports", Value::Null).await;
        if transports.as_array().is_some_and(|all| all.iter().all(|one| one["trtype"] != "TCP")) {
            self.storage.call("nvmf_create_transport", json!({"trtype": "TCP"})).await;
        }
        let create = json!({"name": name, "filename": file, "block_size": 512});
        self.storage.call("bdev_aio_create", create).await;
        let bdevs = self.storage.call("bdev_get_bdevs", json!({"name": name})).await;
        let uuid = bdevs[0]["uuid"].as_str().expect("a UUID").to_owned();
        let nqn = format!("nqn.2026-01.test:{name}");
        let create = json!({"nqn": nqn, "serial_number": "S1", "allow_any_host": true, "max_namespaces": NAMESPACES});
        self.storage.call("nvmf_create_subsystem", create).await;
        self.storage.call("nvmf_subsystem_add_ns", json!({"nqn": nqn, "namespace": {"bdev_name": name}})).await;
        let address =
            json!({"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": self.port.to_string()});
        self.storage.call("nvmf_subsystem_add_listener", json!({"nqn": nqn, "listen_address": address})).await;
        self.nvme(&nqn, &uuid)
    }

    pub fn nvme(&self, nqn: &str, uuid: &str) -> Volume {
        let (port, tcp) = (self.port.to_string(), ("targetTrType", "tcp"));
        let place = [("targetTrAddr", "127.0.0.1"), ("targetTrPort", port.as_str()), tcp, ("deviceUUID", uuid)];
        volume(nvmeof::DRIVER, nqn, &place)
    }

    /// The storage node's target is killed and started anew. As its configuration or a driver makes it: the volume is exported, and
    /// nobody is let in.
    pub async fn restart_storage(&self, volume: &Volume) {
        let fake = self.storage.fake();
        fake.kill();
        fake.revive().expect("a new target");
        let (nqn, kind) = (&volume.handle, world::Kind::Aio { file: self.nvme_file(volume), readonly: false });
        let mut bdev = world::Bdev::new(name_of(volume), 512, MIB, kind);
        bdev.uuid.clone_from(&volume.attributes["deviceUUID"]);
        fake.with(|world| world.add_bdev(bdev));
        self.storage.call("nvmf_create_transport", json!({"trtype": "TCP"})).await;
        let create = json!({"nqn": nqn, "serial_number": "S1", "max_namespaces": NAMESPACES});
        self.storage.call("nvmf_create_subsystem", create).await;
        let address =
            json!({"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": self.port.to_string()});
        self.storage.call("nvmf_subsystem_add_listener", json!({"nqn": nqn, "listen_address": address})).await;
    }

    /// `kill -9` of the storage node's target.
    pub async fn kill_storage(&mut self) {
        self.storage.kill().await;
    }

    /// The storage node lets no host in to the volume any more: connections end, and none comes back.
    pub fn refuse_all(&self, volume: &Volume) {
        self.storage.fake().with(|world| {
            let subsystem = world.nvmf.subsystems.get_mut(&volume.handle).expect("its subsystem");
            subsystem.allow_any_host = false;
            subsystem.hosts.clear();
        });
    }

    /// The file behind a volume of [`Lab::nvme_volume`].
    pub fn nvme_file(&self, volume: &Volume) -> PathBuf {
        self.path(&format!("{}.img", name_of(volume)))
    }

    pub async fn grow_nvme(&self, volume: &Volume, size_bytes: u64) {
        size_file(&self.nvme_file(volume), size_bytes);
        self.storage.call("bdev_aio_rescan", json!({"name": name_of(volume)})).await;
    }

    /// A file on the DPU.
    pub fn file_volume(&self, module: &str, name: &str, size_bytes: u64) -> Volume {
        let file = self.path(name);
        size_file(&file, size_bytes);
        volume(local::DRIVER, &file.display().to_string(), &[("module", module)])
    }

    pub fn bdev_volume(name: &str) -> Volume {
        volume(local::DRIVER, name, &[("module", "bdev")])
    }

    /// Memory in the DPU's target.
    pub async fn malloc_volume(&self, name: &str, size_bytes: u64) -> Volume {
        match self.dpu() {
            Target::Fake(fake) => fake.with(|world| {
                world.add_bdev(world::Bdev::new(name, 512, size_bytes, world::Kind::Malloc));
            }),
            Target::Real(_) => {
                let create = json!({"name": name, "block_size": 512, "num_blocks": size_bytes / 512});
                self.dpu().call("bdev_malloc_create", create).await;
            }
        }
        Self::bdev_volume(name)
    }

    /// A thin logical volume in the DPU's target.
    pub async fn lvol_volume(&self, name: &str, size_bytes: u64) -> Volume {
        match self.dpu() {
            Target::Fake(fake) => fake.with(|world| {
                let own = format!("{name}-own-name");
                let mut bdev = world::Bdev::new(&own, 512, size_bytes, world::Kind::Lvol);
                bdev.aliases.push(format!("lvs0/{name}"));
                world.add_bdev(bdev);
            }),
            Target::Real(_) => {
                let stores = self.dpu().call("bdev_lvol_get_lvstores", Value::Null).await;
                if stores == json!([]) {
                    size_file(&self.path("lvs0.img"), 256 * MIB);
                    let create = json!({"name": "lvs0-disk", "filename": self.path("lvs0.img"), "block_size": 512});
                    self.dpu().call("bdev_aio_create", create).await;
                    let create = json!({"bdev_name": "lvs0-disk", "lvs_name": "lvs0", "cluster_sz": MIB});
                    self.dpu().call("bdev_lvol_create_lvstore", create).await;
                }
                let create = json!({
                    "lvs_name": "lvs0", "lvol_name": name, "size_in_mib": size_bytes / MIB, "thin_provision": true,
                });
                self.dpu().call("bdev_lvol_create", create).await;
            }
        }
        Self::bdev_volume(&format!("lvs0/{name}"))
    }

    pub async fn grow_lvol(&self, volume: &Volume, size_bytes: u64) {
        match self.dpu() {
            Target::Fake(fake) => fake.with(|world| {
                let name = volume.handle.trim_start_matches("lvs0/");
                world.resize_bdev(&format!("{name}-own-name"), size_bytes / 512);
            }),
            Target::Real(_) => {
                let resize = json!({"name": volume.handle, "size_in_mib": size_bytes / MIB});
                self.dpu().call("bdev_lvol_resize", resize).await;
            }
        }
    }

    /// Memory at the storage node, as a logical unit of a target of its own.
    pub async fn iscsi_volume(&self, lun: u32, size_bytes: u64) -> Volume {
        let target = format!("iqn.2026-01.test:x{lun}");
        if let Target::Fake(fake) = self.dpu() {
            let url = format!("iscsi://{}/{target}/0", self.portal());
            fake.with(|world| world.outside.luns.insert(url, size_bytes));
            return self.lun(lun);
        }
        if self.storage.call("iscsi_get_portal_groups", Value::Null).await == json!([]) {
            let portal = json!({"host": "127.0.0.1", "port": self.port.to_string()});
            self.storage.call("iscsi_create_portal_group", json!({"tag": 1, "portals": [portal]})).await;
            let any = json!({"tag": 1, "initiators": ["ANY"], "netmasks": ["ANY"]});
            self.storage.call("iscsi_create_initiator_group", any).await;
        }
        let bdev = format!("lun-{lun}");
        let create = json!({"name": bdev, "block_size": 512, "num_blocks": size_bytes / 512});
        self.storage.call("bdev_malloc_create", create).await;
        let node = json!({
            "name": target, "alias_name": bdev, "luns": [{"bdev_name": bdev, "lun_id": 0}],
            "pg_ig_maps": [{"pg_tag": 1, "ig_tag": 1}], "queue_depth": 64, "disable_chap": true,
        });
        self.storage.call("iscsi_create_target_node", node).await;
        self.lun(lun)
    }

    fn portal(&self) -> String {
        match &self.storage {
            Target::Fake(_) => self.portal.local_addr().expect("its address").to_string(),
            Target::Real(_) => format!("127.0.0.1:{}", self.port),
        }
    }

    pub fn lun(&self, lun: u32) -> Volume {
        let (target, portal) = (format!("iqn.2026-01.test:x{lun}"), self.portal());
        // A target of SPDK's has to have it.
        let place = [("targetPortal", portal.as_str()), ("iqn", target.as_str()), ("lun", "0")];
        volume(iscsi::DRIVER, "a-handle", &place)
    }

    pub fn rbd_volume(&self, image: &str, size_bytes: u64) -> Volume {
        self.dpu().fake().with(|world| world.outside.images.insert(format!("pool/{image}"), size_bytes));
        Self::image(image)
    }

    pub fn image(image: &str) -> Volume {
        volume(rbd::DRIVER, "0001-c", &[("clusterID", "c"), ("pool", "pool"), ("imageName", image)])
    }

    pub fn clusters() -> BTreeMap<String, rbd::Cluster> {
        let cluster = rbd::Cluster { user: "metalplane".to_owned(), config_file: "/etc/ceph/ceph.conf".into() };
        BTreeMap::from([("c".to_owned(), cluster)])
    }
}

fn name_of(volume: &Volume) -> &str {
    volume.handle.trim_start_matches("nqn.2026-01.test:")
}
