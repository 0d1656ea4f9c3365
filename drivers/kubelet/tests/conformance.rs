//! The suite of the port on a folder as kubelet leaves it, with real block devices.

use async_trait::async_trait;
use kubelet::KubeletConnector;
use planner::connector::HolderPod;
use planner::exposure::ExposureId;
use ports::conformance::volume::{Bench, suite};
use ports::volume::{Fence, Volume};
use ports::{ErrorClass, VolumeConnector};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use tempfile::TempDir;
use tokio::sync::MutexGuard;

/// One test at a time: a loop device that one test detached is at once free for the other, which would find itself
/// holding a device of the first.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A node with holder pods: each volume is a loop device that kubelet has mapped for a pod.
struct Node {
    root: TempDir,
    devices: Mutex<Vec<String>>,
    _alone: MutexGuard<'static, ()>,
}

fn losetup(arguments: &[&str]) -> String {
    let done = Command::new("losetup").args(arguments).output().expect("losetup runs");
    assert!(done.status.success(), "losetup {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

impl Drop for Node {
    fn drop(&mut self) {
        for device in self.devices.lock().expect("no panic before").iter() {
            losetup(&["--detach", device]);
        }
    }
}

impl Node {
    /// `None`: this machine cannot make block devices.
    async fn new(test: &str) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            eprintln!("SKIP {test}: block devices need root and loop devices");
            return None;
        }
        let alone = ALONE.lock().await;
        Some(Self { root: tempfile::tempdir().expect("a folder"), devices: Mutex::default(), _alone: alone })
    }

    fn connector(&self) -> KubeletConnector {
        KubeletConnector::new(self.root.path().join("kubelet"), self.root.path().join("run"))
    }

    fn map(&self, name: &str) -> PathBuf {
        let folder = format!("kubelet/pods/pod-of-{name}/volumeDevices/kubernetes.io~csi");
        self.root.path().join(folder).join(name)
    }

    fn image(&self, name: &str) -> PathBuf {
        self.root.path().join(format!("{name}.img"))
    }

    fn make(&self, name: &str, size_bytes: u64) -> Volume {
        let image = self.image(name);
        File::create(&image).and_then(|file| file.set_len(size_bytes)).expect("an image");
        let device = losetup(&["--find", "--show", &image.display().to_string()]);
        fs::create_dir_all(self.map(name).parent().expect("a folder")).expect("kubelet's folder");
        std::os::unix::fs::symlink(&device, self.map(name)).expect("kubelet's link");
        self.devices.lock().expect("no panic before").push(device);
        volume(name)
    }
}

fn volume(name: &str) -> Volume {
    let holder = HolderPod { uid: format!("pod-of-{name}"), persistent_volume_name: name.to_owned() };
    let driver = "any.example.com".to_owned();
    let attributes = [("cipher".to_owned(), "aes".to_owned())].into();
    Volume { driver, handle: format!("handle of {name}"), attributes, read_only: false, holder: Some(holder) }
}

fn id(uid: &str, epoch: u64) -> ExposureId {
    ExposureId { uid: uid.to_owned(), epoch }
}

#[async_trait]
impl Bench for Node {
    type Connector = KubeletConnector;

    fn understands_any_volume(&self) -> bool {
        true
    }

    /// It goes with the pod, by whose UID it is named.
    fn hands_out_anew(&self) -> bool {
        false
    }

    async fn open(&self) -> KubeletConnector {
        self.connector()
    }

    async fn volume(&self, number: u8, size_bytes: u64) -> Volume {
        self.make(&format!("pvc-{number}"), size_bytes)
    }

    async fn missing_volume(&self) -> Volume {
        volume("pvc-missing")
    }

    async fn grow(&self, volume: &Volume, size_bytes: u64) {
        let name = &volume.holder.as_ref().expect("a holder pod").persistent_volume_name;
        File::options().write(true).open(self.image(name)).and_then(|file| file.set_len(size_bytes)).expect("grow");
        let device = fs::read_link(self.map(name)).expect("kubelet's link");
        losetup(&["--set-capacity", &device.display().to_string()]);
    }
}

#[tokio::test]
async fn conforms() {
    let Some(node) = Node::new("conforms").await else { return };
    suite(&node).await;
    assert_eq!(node.connector().fence(), Fence::None);
}

#[tokio::test]
async fn a_device_that_kubelet_took_away_is_listed_with_no_size_and_not_connected_again() {
    let Some(node) = Node::new("a_device_that_kubelet_took_away").await else { return };
    let (connector, volume) = (node.connector(), node.make("pvc-1", 1 << 20));
    connector.connect(&id("a", 1), &volume).await.expect("connect");
    let device = node.devices.lock().expect("no panic").pop().expect("a device");
    losetup(&["--detach", &device]);
    let listed = connector.list().await.expect("list");
    assert_eq!((&listed[0].id, listed[0].size_bytes), (&id("a", 1), 0));
    let error = connector.connect(&id("a", 1), &volume).await.expect_err("nothing is there");
    assert_eq!(error.class, ErrorClass::NotFound);
    assert!(error.message.contains("pod-of-pvc-1"), "{error}");
    // Another pod of the same attachment is another connection: it takes another grant.
    let replaced = HolderPod { uid: "pod-2".to_owned(), persistent_volume_name: "pvc-1".to_owned() };
    let replaced = Volume { holder: Some(replaced), ..volume };
    let error = connector.connect(&id("a", 1), &replaced).await.expect_err("another pod");
    assert_eq!(error.class, ErrorClass::Conflict);
    connector.disconnect(&id("a", 1)).await.expect("disconnect");
    assert_eq!(connector.list().await.expect("list"), []);
}

#[tokio::test]
async fn only_block_devices_of_the_named_pod_are_taken() {
    let Some(node) = Node::new("only_block_devices").await else { return };
    let connector = node.connector();
    let file = volume("pvc-file");
    fs::create_dir_all(node.map("pvc-file").parent().expect("a folder")).expect("kubelet's folder");
    fs::write(node.map("pvc-file"), "a place without a device").expect("written");
    assert_eq!(connector.connect(&id("a", 1), &file).await.expect_err("a file").class, ErrorClass::NotFound);
    for (uid, name) in [("../pods/x", "pvc-1"), ("", "pvc-1"), ("x", "../../etc"), ("x", "")] {
        let holder = HolderPod { uid: uid.to_owned(), persistent_volume_name: name.to_owned() };
        let strange = Volume { holder: Some(holder), ..volume("x") };
        assert_eq!(connector.connect(&id("a", 1), &strange).await.expect_err(uid).class, ErrorClass::Invalid, "{uid}");
    }
    let native = Volume { holder: None, ..volume("x") };
    assert_eq!(connector.connect(&id("a", 1), &native).await.expect_err("no pod").class, ErrorClass::Invalid);
    assert_eq!(connector.list().await.expect("list"), []);
}
