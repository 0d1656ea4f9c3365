//! A cluster with a user that has the rights which the operator guide names, and images as ceph-csi describes them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use ports::volume::Volume;
use tempfile::TempDir;

use super::{Ceph, POOL, Place, Programs};

pub const MIB: u64 = 1 << 20;
/// Without `client.`.
pub const USER: &str = "metalplane";
/// What ceph-csi calls `clusterID`.
pub const CLUSTER: &str = "c";
/// The CSI driver whose volumes the images are.
const DRIVER: &str = "rbd.csi.ceph.com";

pub struct Lab {
    pub ceph: Ceph,
    folder: TempDir,
}

impl Lab {
    /// `None`, with the reason on stderr, where Ceph cannot be had.
    pub async fn start(test: &str) -> Option<Lab> {
        let programs = Programs::find().await.inspect_err(|error| eprintln!("SKIP {test}: no Ceph: {error:#}")).ok()?;
        Some(Lab::of(&programs).await.expect("Ceph starts"))
    }

    pub async fn of(programs: &Programs) -> Result<Lab> {
        Lab::at(programs, &Place::loopback()?).await
    }

    pub async fn at(programs: &Programs, place: &Place) -> Result<Lab> {
        let folder = tempfile::tempdir().context("make a folder for Ceph")?;
        let ceph = Ceph::start(programs, folder.path(), place).await?;
        ceph.user(USER).await?;
        Ok(Lab { ceph, folder })
    }

    /// In the folder that ends with it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn config_file(&self) -> PathBuf {
        self.ceph.config_file()
    }

    /// With which Ceph's programs and libraries are found.
    pub fn environment(&self) -> BTreeMap<String, String> {
        self.ceph.programs().environment().clone()
    }

    /// What the PersistentVolume of an image says of it.
    pub fn attributes(image: &str) -> BTreeMap<String, String> {
        let all = [("clusterID", CLUSTER), ("pool", POOL), ("imageName", image)];
        all.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    /// An image as a driver gets it, whether it is there or not.
    pub fn image(name: &str) -> Volume {
        let (driver, handle) = (DRIVER.to_owned(), format!("0001-{name}"));
        Volume { driver, handle, attributes: Lab::attributes(name), ..Volume::default() }
    }

    pub async fn volume(&self, name: &str, size_bytes: u64) -> Volume {
        let size = format!("{size_bytes}B");
        self.ceph.run("rbd", ["create", "--size", &size, name]).await.expect("an image");
        Lab::image(name)
    }

    pub async fn grow(&self, volume: &Volume, size_bytes: u64) {
        let size = format!("{size_bytes}B");
        self.ceph.run("rbd", ["resize", "--no-progress", "--size", &size, name_of(volume)]).await.expect("grown");
    }

    /// As whoever reads it next.
    pub async fn first_byte(&self, volume: &Volume) -> u8 {
        self.read(volume).await[0]
    }

    pub async fn read(&self, volume: &Volume) -> Vec<u8> {
        let file = self.path(&format!("export-{}", name_of(volume)));
        let to = file.display().to_string();
        self.ceph.run("rbd", ["export", "--no-progress", name_of(volume), &to]).await.expect("exported");
        let content = std::fs::read(&file).expect("read");
        std::fs::remove_file(file).expect("removed");
        content
    }

    /// With that in it, instead of what it held.
    pub async fn fill(&self, volume: &Volume, content: &[u8]) {
        let (image, file) = (name_of(volume), self.path(&format!("import-{}", name_of(volume))));
        let from = file.display().to_string();
        std::fs::write(&file, content).expect("written");
        self.ceph.run("rbd", ["rm", "--no-progress", image]).await.expect("removed");
        self.ceph.run("rbd", ["import", "--no-progress", &from, image]).await.expect("imported");
        std::fs::remove_file(file).expect("removed");
    }
}

fn name_of(volume: &Volume) -> &str {
    &volume.attributes["imageName"]
}
