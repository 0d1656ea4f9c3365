//! A real Ceph and images in it.

use ceph::{Clusters, DRIVER};
use ports::volume::Volume;
use sandbox::ceph::{Ceph, POOL, Programs};
use spdk::volumes::rbd;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use tempfile::TempDir;

pub const MIB: u64 = 1 << 20;
const USER: &str = "metalplane";
const CLUSTER: &str = "c";

pub struct Lab {
    pub ceph: Ceph,
    pub folder: TempDir,
}

/// A port that nobody listens on just now.
pub fn free_port() -> u16 {
    let socket = TcpListener::bind(("127.0.0.1", 0)).expect("a socket");
    socket.local_addr().expect("its address").port()
}

impl Lab {
    /// `None`, with the reason on stderr, where Ceph cannot be had.
    pub async fn start(test: &str) -> Option<Lab> {
        let programs = Programs::find().await.inspect_err(|error| eprintln!("SKIP {test}: no Ceph: {error:#}")).ok()?;
        let folder = tempfile::tempdir().expect("a folder");
        let ceph = Ceph::start(&programs, folder.path()).await.expect("Ceph starts");
        ceph.user(USER).await.expect("a user");
        Some(Lab { ceph, folder })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// As the target has it.
    pub fn known(ceph: &Ceph) -> BTreeMap<String, rbd::Cluster> {
        let cluster = rbd::Cluster { user: USER.to_owned(), config_file: ceph.config_file() };
        BTreeMap::from([(CLUSTER.to_owned(), cluster)])
    }

    pub fn clusters(&self) -> Clusters {
        let cluster = ceph::Cluster { user: USER.to_owned(), config_file: self.ceph.config_file() };
        let environment = self.ceph.programs().environment().clone();
        Clusters::new(BTreeMap::from([(CLUSTER.to_owned(), cluster)])).with_environment(environment)
    }

    pub fn image(name: &str) -> Volume {
        let attributes = [("clusterID", CLUSTER), ("pool", POOL), ("imageName", name)];
        Volume {
            driver: DRIVER.to_owned(),
            handle: format!("0001-{name}"),
            attributes: attributes.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            ..Volume::default()
        }
    }

    pub async fn volume(&self, name: &str, size_bytes: u64) -> Volume {
        let size = format!("{size_bytes}B");
        self.ceph.run("rbd", ["create", "--size", &size, name]).await.expect("an image");
        Self::image(name)
    }

    pub async fn grow(&self, volume: &Volume, size_bytes: u64) {
        let size = format!("{size_bytes}B");
        let image = &volume.attributes["imageName"];
        self.ceph.run("rbd", ["resize", "--no-progress", "--size", &size, image]).await.expect("grown");
    }

    /// With that in it, instead of what it held.
    pub async fn fill(&self, volume: &Volume, content: &[u8]) {
        let file = self.path("import");
        let (image, from) = (&volume.attributes["imageName"], file.display().to_string());
        std::fs::write(&file, content).expect("written");
        self.ceph.run("rbd", ["rm", "--no-progress", image]).await.expect("removed");
        self.ceph.run("rbd", ["import", "--no-progress", &from, image]).await.expect("imported");
        std::fs::remove_file(file).expect("removed");
    }

    /// As whoever reads it next.
    pub async fn first_byte(&self, volume: &Volume) -> u8 {
        self.read(volume).await[0]
    }

    pub async fn read(&self, volume: &Volume) -> Vec<u8> {
        let file = self.path("export");
        let (image, to) = (&volume.attributes["imageName"], file.display().to_string());
        self.ceph.run("rbd", ["export", "--no-progress", image, &to]).await.expect("exported");
        let content = std::fs::read(&file).expect("read");
        std::fs::remove_file(file).expect("removed");
        content
    }
}
