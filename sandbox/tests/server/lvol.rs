//! A virtual server on a logical volume of a storage node: the golden image is written through the DPU's target as an import does it,
//! and the server boots from a clone of its snapshot, which the same target presents.

use std::path::PathBuf;
use std::time::Duration;

use planner::exposure::{Bus, ExposureId, Limits, Slot};
use ports::emulation::{Backend, DiskFunction};
use ports::volume::{Volume, VolumeWriter};
use ports::{Emulation, VolumeConnector};
use sandbox::args::cache_folder;
use sandbox::guest::{self, Kind};
use sandbox::server::vfio_user;
use sandbox::spdk::real;
use serde_json::{Value, json};
use spdk::SpdkEmulation;
use spdk::door::Door;
use spdk::host::Host;
use spdk::volumes::{SpdkConnector, nvmeof};
use tempfile::TempDir;

use crate::support::{BOOT, Server, missing_for_boot, one_at_a_time, skip, wait_for};

const SOON: Duration = Duration::from_secs(90);
const MIB: usize = 1 << 20;

fn id(uid: &str) -> ExposureId {
    ExposureId { uid: uid.to_owned(), epoch: 1 }
}

/// A storage node with an lvstore.
struct Storage {
    target: real::Target,
    port: String,
    _folder: TempDir,
}

impl Storage {
    async fn start(program: PathBuf) -> Storage {
        let folder = tempfile::Builder::new().prefix("lvol-").tempdir_in("/var/tmp").expect("a folder");
        let target = real::Target::start(&program, folder.path()).await.expect("the target starts");
        let disk = folder.path().join("disk.img");
        std::fs::File::create(&disk).and_then(|file| file.set_len(4 << 30)).expect("a disk");
        let socket = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a socket");
        let port = socket.local_addr().expect("its address").port().to_string();
        let storage = Storage { target, port, _folder: folder };
        storage.ask("bdev_aio_create", json!({"name": "disk", "filename": disk, "block_size": 512})).await;
        storage.ask("bdev_lvol_create_lvstore", json!({"bdev_name": "disk", "lvs_name": "lvs0"})).await;
        storage.ask("nvmf_create_transport", json!({"trtype": "TCP"})).await;
        storage
    }

    async fn ask(&self, method: &str, params: Value) -> Value {
        real::ask(self.target.socket(), method, params).await.unwrap_or_else(|error| panic!("{method}: {error:#}"))
    }

    /// Exported to any host.
    async fn volume(&self, name: &str) -> Volume {
        let found = self.ask("bdev_get_bdevs", json!({"name": format!("lvs0/{name}")})).await;
        let uuid = found[0]["uuid"].as_str().expect("a UUID").to_owned();
        let nqn = format!("nqn.2026-01.test:{name}");
        let address = json!({"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": self.port});
        self.ask("nvmf_create_subsystem", json!({"nqn": nqn, "serial_number": "S1", "allow_any_host": true})).await;
        self.ask("nvmf_subsystem_add_ns", json!({"nqn": nqn, "namespace": {"bdev_name": uuid}})).await;
        self.ask("nvmf_subsystem_add_listener", json!({"nqn": nqn, "listen_address": address})).await;
        let attributes = [
            ("targetTrType", "tcp"),
            ("targetTrAddr", "127.0.0.1"),
            ("targetTrPort", &self.port),
            ("deviceUUID", &uuid),
        ];
        let attributes = attributes.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        Volume { driver: nvmeof::DRIVER.to_owned(), handle: nqn, attributes, ..Volume::default() }
    }
}

/// In pieces; what is zero is left out.
fn write(mut volume: Box<dyn VolumeWriter>, image: &[u8]) -> std::io::Result<()> {
    volume.discard()?;
    let mut offset = 0;
    for piece in image.chunks(MIB) {
        match piece.iter().all(|byte| *byte == 0) {
            true => volume.zero(offset, piece.len() as u64)?,
            false => volume.write(offset, piece)?,
        }
        offset += piece.len() as u64;
    }
    volume.sync()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_boots_from_a_clone_of_an_image_that_was_written_through_spdk() {
    const NAME: &str = "a_server_boots_from_a_clone_of_an_image_that_was_written_through_spdk";
    if let Some(reason) = missing_for_boot() {
        return skip(NAME, &reason);
    }
    let (storage, dpu) = match (real::program("nvmf_tgt"), real::program("spdk_tgt")) {
        (Ok(storage), Ok(dpu)) => (storage, dpu),
        (Err(missing), _) | (_, Err(missing)) => return skip(NAME, &missing),
    };
    let own = match vfio_user::qemu(&cache_folder()).await {
        Ok(own) => own,
        Err(error) => return skip(NAME, &format!("{error:#}")),
    };
    let _turn = one_at_a_time();
    let golden = tokio::task::spawn_blocking(|| guest::image(Kind::Tiny, &cache_folder()));
    let golden = std::fs::read(golden.await.expect("no panic").expect("the guest image")).expect("read");
    let folder = tempfile::tempdir().expect("a folder");
    let (storage, dpu) = (Storage::start(storage).await, real::Target::start(&dpu, folder.path()).await);
    let dpu = dpu.expect("the target starts");
    let connector = SpdkConnector::new(dpu.socket(), nvmeof::NvmeOf);

    let size = json!({"lvs_name": "lvs0", "lvol_name": "golden", "size_in_mib": golden.len().div_ceil(MIB)});
    storage.ask("bdev_lvol_create", size).await;
    connector.connect(&id("import"), &storage.volume("golden").await).await.expect("connect");
    let writer = connector.open_writer(&id("import")).await.expect("open");
    let written = tokio::task::spawn_blocking(move || write(writer, &golden)).await;
    written.expect("no panic").expect("written");
    connector.close_writer(&id("import")).await.expect("close");
    connector.disconnect(&id("import")).await.expect("disconnect");
    storage.ask("bdev_lvol_snapshot", json!({"lvol_name": "lvs0/golden", "snapshot_name": "snap"})).await;
    storage.ask("bdev_lvol_clone", json!({"snapshot_name": "lvs0/snap", "clone_name": "root"})).await;

    let mut server = Server::start("standby", |folder| json!({ "vfioUser": folder.join("vfio-user"), "qemu": own }));
    crate::support::seed(&server.path("seed.img"), "i-1", "52:54:00:aa:00:01", "10.99.0.2/24");
    let host = Host {
        nqn: "nqn.2026-01.io.metalplane:dpu:test".to_owned(),
        serial: "MP-TEST-1".to_owned(),
        door: Door::VfioUser { folder: server.path("vfio-user") },
        hot_plug: 4,
    };
    let slots = SpdkEmulation::new(dpu.socket(), host, folder.path().join("spdk")).expect("the driver");
    let root = connector.connect(&id("root"), &storage.volume("root").await).await.expect("connect");
    let seed = Backend::Path(server.path("seed.img"));
    for (uid, slot, backend) in [("seed", Slot::Seed, seed), ("root", Slot::Boot, root.backend)] {
        let disk = DiskFunction {
            id: id(uid),
            bus: Bus::NVMe,
            slot,
            serial: uid.to_owned(),
            uuid: uuid::Uuid::new_v4().to_string(),
            backend,
            read_only: slot == Slot::Seed,
            limits: Limits::default(),
        };
        slots.expose_disk(&disk).await.expect("present");
    }
    assert_eq!(server.redfish.patch_boot(&json!({ "BootOrder": ["Boot0001", "Boot0003"] })), 200);
    assert_eq!(server.redfish.reset("On"), 204);
    server.console("MP-BOOT i-1 guest-i-1", BOOT);
    assert_eq!(server.redfish.reset("ForceOff"), 204);
    wait_for("power Off", SOON, || (server.redfish.power() == "Off").then_some(()));
}
