//! A golden image in an lvol pool, by the parts themselves: the CSI driver's pool on a storage node, the fence that lets a DPU in, the
//! agent's import by the DPU's target, and the clone of the snapshot. Runs where SPDK is installed.

use api::image::ImageFormat;
use bytes::Bytes;
use csi::DRIVER;
use csi::pool::{ContentSource, Limits, LvolPlace, Pool, Range, Volume};
use dpu_agent::import::{Imports, Job, Place};
use planner::exposure::ExposureId;
use ports::volume::Volume as PersistentVolume;
use ports::{StorageFence, VolumeConnector};
use sandbox::spdk::real;
use serde_json::json;
use sha2::{Digest, Sha256};
use spdk::fence::NvmeFence;
use spdk::lvols::SpdkLvols;
use spdk::volumes::{SpdkConnector, nvmeof::NvmeOf};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 64 * MIB;
const LVSTORE: &str = "lvs0";
const LIMIT: Duration = Duration::from_secs(120);

/// Data, a hole, data that ends within a block.
fn image() -> Vec<u8> {
    let hole = 3 * MIB..40 * MIB;
    (0..48 * MIB + 777).map(|at| if hole.contains(&at) { 0 } else { (at % 251) as u8 + 1 }).collect()
}

/// Gives `first` bytes to whoever asks, and the rest once it is let go.
async fn serve(image: &[u8], first: usize) -> (String, oneshot::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let url = format!("http://{}/image", listener.local_addr().expect("an address"));
    let (go, gone) = oneshot::channel();
    let image = Bytes::copy_from_slice(image);
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("it connects");
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).await;
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", image.len());
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.write_all(&image[..first]).await;
        // Held, or dropped by a test that has what it wants.
        if gone.await.is_ok() {
            let _ = stream.write_all(&image[first..]).await;
        }
    });
    (url, go)
}

struct Lab {
    folder: TempDir,
    storage: real::Target,
    dpu: real::Target,
    address: SocketAddr,
    dd: PathBuf,
}

impl Lab {
    async fn start(test: &str) -> Option<Lab> {
        let find = |name| real::program(name).inspect_err(|missing| eprintln!("SKIP {test}: {missing}")).ok();
        let (storage, dpu, dd) = (find("nvmf_tgt")?, find("spdk_tgt")?, find("spdk_dd")?);
        let folder = tempfile::Builder::new().prefix("lvol-image-").tempdir_in("/var/tmp").expect("a folder");
        let start = async |program: &Path, name: &str| {
            let folder = folder.path().join(name);
            std::fs::create_dir(&folder).expect("a folder");
            real::Target::start(program, &folder).await.expect("the target starts")
        };
        let (storage, dpu) = (start(&storage, "storage").await, start(&dpu, "dpu").await);
        let disk = folder.path().join("disk.img");
        std::fs::File::create(&disk).and_then(|file| file.set_len(8 << 30)).expect("a disk");
        for (method, params) in [
            ("bdev_aio_create", json!({"name": "disk", "filename": disk, "block_size": 512})),
            ("bdev_lvol_create_lvstore", json!({"bdev_name": "disk", "lvs_name": LVSTORE, "clear_method": "none"})),
        ] {
            real::ask(storage.socket(), method, params).await.expect(method);
        }
        let socket = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a socket");
        let address = socket.local_addr().expect("its address");
        Some(Lab { folder, storage, dpu, address, dd })
    }

    fn pool(&self) -> Pool {
        let node = Arc::new(SpdkLvols::new(self.storage.socket(), LVSTORE, self.address));
        let place = LvolPlace { node, lvstore: LVSTORE.into(), address: self.address, largest: 1 << 40 };
        Pool::open_lvols("fast", &self.folder.path().join("records"), place).expect("a pool opens")
    }

    fn connector(&self) -> Arc<dyn VolumeConnector> {
        Arc::new(SpdkConnector::new(self.dpu.socket(), NvmeOf))
    }

    fn fence(&self) -> NvmeFence {
        NvmeFence::new(BTreeMap::from([(self.address.to_string(), self.storage.socket().to_owned())]))
    }

    /// As `spdk_dd` reads it: a host of its own, under the name that the grant let in.
    async fn read(&self, volume: &PersistentVolume, host: &str) -> Vec<u8> {
        let (config, copy) = (self.folder.path().join("read.json"), self.folder.path().join("copy"));
        let attach = json!({"method": "bdev_nvme_attach_controller", "params": {
            "name": "Read", "trtype": "TCP", "adrfam": "IPv4", "traddr": self.address.ip(),
            "trsvcid": self.address.port().to_string(), "subnqn": volume.attributes["nqn"], "hostnqn": host,
        }});
        std::fs::write(&config, json!({"subsystems": [{"subsystem": "bdev", "config": [attach]}]}).to_string())
            .expect("written");
        let bdev = self.bdev(volume, host).await;
        let mut command = tokio::process::Command::new(&self.dd);
        command.arg(format!("--json={}", config.display())).arg(format!("--of={}", copy.display()));
        command.args([&format!("--ib={bdev}"), "--bs=1048576", "-m", "0x1", "--no-huge", "-s", "512", "--no-pci"]);
        command.args(["--disable-cpumask-locks", "--no-rpc-server"]).stdin(Stdio::null()).kill_on_drop(true);
        let done = tokio::time::timeout(LIMIT, command.output()).await.expect("it ends").expect("it starts");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        std::fs::read(copy).expect("the copy")
    }

    /// That a volume has taken.
    async fn clusters(&self, volume: &Volume) -> u64 {
        let name = json!({"name": format!("{LVSTORE}/{}", volume.handle)});
        let found = real::ask(self.storage.socket(), "bdev_get_bdevs", name).await.expect("asked");
        found[0]["driver_specific"]["lvol"]["num_allocated_clusters"].as_u64().expect("a number of clusters")
    }

    /// Named after the namespace that this host was given.
    async fn bdev(&self, volume: &PersistentVolume, host: &str) -> String {
        let all =
            real::ask(self.storage.socket(), "nvmf_get_subsystems", serde_json::Value::Null).await.expect("asked");
        let own = all.as_array().into_iter().flatten().find(|one| one["nqn"] == volume.attributes["nqn"].as_str());
        let namespaces = own.expect("its subsystem")["namespaces"].as_array().cloned().unwrap_or_default();
        let shown =
            namespaces.iter().find(|one| one["hosts"].as_array().is_none_or(|all| all.iter().any(|h| h == host)));
        format!("Readn{}", shown.expect("a namespace")["nsid"])
    }
}

fn range(size: u64) -> Range {
    Range { required: Some(size), limit: None }
}

/// As the provisioner writes it.
fn persistent(pool: &Pool, volume: &Volume) -> PersistentVolume {
    let own = pool.context(volume).into_iter().map(|(key, value)| (key.to_owned(), value));
    PersistentVolume {
        driver: DRIVER.to_owned(),
        handle: volume.handle.to_string(),
        attributes: own.chain([("pool".to_owned(), pool.name().to_owned())]).collect(),
        ..PersistentVolume::default()
    }
}

struct Import<'a> {
    lab: &'a Lab,
    id: ExposureId,
    volume: String,
}

impl Import<'_> {
    fn start(&self, imports: &Imports, connector: &Arc<dyn VolumeConnector>, url: &str, sha256: &str) {
        let place = Place::Connected(connector.clone(), self.id.clone());
        let (url, sha256, volume) = (url.to_owned(), sha256.to_owned(), self.volume.clone());
        let (ca_bundle, format) = (None, ImageFormat::Raw);
        imports.start(&self.id.uid, Job { url, sha256, ca_bundle, format, volume, place, size_bytes: SIZE });
    }

    async fn controllers(&self) -> usize {
        let all = real::ask(self.lab.dpu.socket(), "vhost_get_controllers", serde_json::Value::Null).await;
        all.expect("asked").as_array().map_or(0, Vec::len)
    }
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let all = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT, all).await.unwrap_or_else(|_| panic!("{what}: not within {LIMIT:?}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_is_imported_into_an_lvol_pool_and_cloned() {
    let Some(lab) = Lab::start("an_image_is_imported_into_an_lvol_pool_and_cloned").await else { return };
    let pool = Arc::new(tokio::task::block_in_place(|| lab.pool()));
    let make = |name: &str, size: u64, source: Option<&ContentSource>| {
        tokio::task::block_in_place(|| pool.create_volume(name, range(size), source, &Limits::default())).expect("made")
    };
    let golden = make("golden", SIZE, None);
    let (volume, fence) = (persistent(&pool, &golden), lab.fence());
    let id = ExposureId { uid: "import".to_owned(), epoch: 1 };
    fence.admit(&volume, &fence.fence_identity(&id)).await.expect("admitted");
    let image = image();
    let sha256: String = Sha256::digest(&image).iter().map(|byte| format!("{byte:02x}")).collect();
    let import = Import { lab: &lab, id: id.clone(), volume: volume.handle.clone() };

    // Other bytes first: what an interrupted import leaves has to be gone afterwards.
    let (imports, connector) = (Imports::new(Arc::new(Notify::new())), lab.connector());
    connector.connect(&id, &volume).await.expect("connected");
    assert_eq!(connector.import_refusal().await, None);
    let (url, _held) = serve(&vec![0xaa; usize::try_from(SIZE).expect("a size")], 32 << 20).await;
    import.start(&imports, &connector, &url, &sha256);
    until("some of it is written", async || lab.clusters(&golden).await > 0).await;
    assert_eq!(import.controllers().await, 1);
    imports.stop("import").await;
    assert_eq!(import.controllers().await, 0, "nothing of a stopped import is left");

    // Then a new agent, which finds the connection, and does it.
    let (imports, connector) = (Imports::new(Arc::new(Notify::new())), lab.connector());
    assert_eq!(connector.list().await.expect("listed").len(), 1);
    let (url, go) = serve(&image, 1000).await;
    go.send(()).expect("it is served");
    import.start(&imports, &connector, &url, &sha256);
    let mut ended = Vec::new();
    until("the import ends", async || {
        ended = imports.ended().await;
        !ended.is_empty()
    })
    .await;
    let done = ended.remove(0).1.expect("imported");
    assert_eq!((done.bytes, import.controllers().await), (image.len() as u64, 0));
    assert_eq!(lab.clusters(&golden).await, 4, "no space is taken for zeros");
    connector.disconnect(&id).await.expect("disconnected");
    fence.dismiss(&volume, &fence.fence_identity(&id)).await.expect("dismissed");

    let snapshot = tokio::task::block_in_place(|| pool.create_snapshot("snap", &golden.handle)).expect("taken");
    let source = ContentSource::Snapshot(snapshot.id.to_string());
    let clone = persistent(&pool, &make("clone", 2 * SIZE, Some(&source)));
    let host = fence.fence_identity(&ExposureId { uid: "machine".to_owned(), epoch: 1 });
    fence.admit(&clone, &host).await.expect("admitted");
    let read = lab.read(&clone, &host).await;
    assert_eq!(read.len() as u64, 2 * SIZE);
    assert!(read[..image.len()] == image[..], "the clone holds the image");
    assert!(read[image.len()..].iter().all(|byte| *byte == 0), "and zeros behind it");
}
