//! Proxy mode: the controller's half against an API server of a few lines ([`machines`]), the node's half on a real kernel
//! with a disk that is found by what /sys says of it.

mod fixture;
mod machines;

use csi::proxy::{Disks, Machines, ProxyControllerService, ProxyNodeService};
use fixture::{Mounted, run};
use machines::Fake;
use proto::csi::v1::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest,
    CreateVolumeRequest, DeleteVolumeRequest, NodeExpandVolumeRequest, NodeGetVolumeStatsRequest,
    NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest, Volume,
    VolumeCapability,
    controller_server::Controller,
    node_server::Node,
    volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode},
};
use serde_json::json;
use std::{
    collections::HashMap,
    fs,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
};
use tonic::{Code, Request, Status};

const MIB: u64 = 1 << 20;

fn capability(access_type: AccessType) -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        access_type: Some(access_type),
    }
}

fn block() -> VolumeCapability {
    capability(AccessType::Block(BlockVolume {}))
}

fn xfs() -> VolumeCapability {
    capability(AccessType::Mount(MountVolume { fs_type: "xfs".into(), ..Default::default() }))
}

/// The controller's half, in front of two machines.
struct Proxy {
    fake: Fake,
    service: ProxyControllerService,
}

impl Proxy {
    fn new() -> Proxy {
        let fake = Fake::with_machines(&["bm-01", "bm-02"]);
        let service = ProxyControllerService::new(Machines::new(fake.client(), "workers"));
        Proxy { fake, service }
    }

    async fn create(&self, name: &str, mib: u64) -> Result<Volume, Status> {
        let request = CreateVolumeRequest {
            name: name.into(),
            capacity_range: Some(CapacityRange { required_bytes: (mib * MIB) as i64, limit_bytes: 0 }),
            volume_capabilities: vec![xfs()],
            parameters: HashMap::from([("storageClassName".to_owned(), "fast".to_owned())]),
            ..Default::default()
        };
        let answer = self.service.create_volume(Request::new(request)).await?;
        Ok(answer.into_inner().volume.expect("a volume"))
    }

    async fn publish(&self, volume: &str, machine: &str, readonly: bool) -> Result<HashMap<String, String>, Status> {
        let request = ControllerPublishVolumeRequest {
            volume_id: volume.into(),
            node_id: machine.into(),
            volume_capability: Some(xfs()),
            readonly,
            ..Default::default()
        };
        Ok(self.service.controller_publish_volume(Request::new(request)).await?.into_inner().publish_context)
    }

    async fn unpublish(&self, volume: &str, machine: &str) -> Result<(), Status> {
        let request = ControllerUnpublishVolumeRequest { volume_id: volume.into(), node_id: machine.into() };
        self.service.controller_unpublish_volume(Request::new(request)).await.map(drop)
    }

    async fn delete(&self, volume: &str) -> Result<(), Status> {
        let request = DeleteVolumeRequest { volume_id: volume.into() };
        self.service.delete_volume(Request::new(request)).await.map(drop)
    }
}

#[tokio::test]
async fn a_volume_is_a_claim_in_the_machines_cluster() {
    let proxy = Proxy::new();
    let volume = proxy.create("pvc-1", 100).await.expect("made");
    assert_eq!(volume.capacity_bytes as u64, 100 * MIB);
    assert_eq!(proxy.create("pvc-1", 100).await.expect("found"), volume);
    assert_eq!(proxy.create("pvc-1", 200).await.expect_err("it differs").code(), Code::AlreadyExists);
    let claim = proxy.fake.lock().get("persistentvolumeclaims", &volume.volume_id);
    let spec = &claim["spec"];
    assert_eq!((&spec["volumeMode"], &spec["storageClassName"]), (&json!("Block"), &json!("fast")));
    assert_eq!(spec["resources"]["requests"]["storage"], "100Mi");

    // A claim that somebody else made is none of ours, whatever it is called.
    proxy.fake.lock().put("persistentvolumeclaims", "database", json!({"metadata": {"name": "database", "uid": "u"}}));
    proxy.delete("database").await.expect("there is no such volume");
    assert_eq!(proxy.publish("database", "bm-01", false).await.expect_err("refused").code(), Code::NotFound);
    assert_eq!(proxy.publish("../x", "bm-01", false).await.expect_err("refused").code(), Code::NotFound);
    proxy.fake.lock().finalizers = vec!["metalplane.io/in-use".into()];
    let kept = proxy.delete(&volume.volume_id).await.expect_err("not yet");
    assert!(kept.code() == Code::Aborted && kept.message().contains("metalplane.io/in-use"), "{kept}");
    proxy.fake.lock().objects.remove(&("persistentvolumeclaims".into(), volume.volume_id.clone()));
    proxy.delete(&volume.volume_id).await.expect("gone");
    assert_eq!(proxy.fake.claims(), ["database"]);
}

#[tokio::test]
async fn publishing_makes_it_a_disk_of_the_machine_and_waits_for_the_dpu() {
    let proxy = Proxy::new();
    let volume = proxy.create("pvc-1", 100).await.expect("made").volume_id;
    for name in ["worker-9", "bm-01/status", "..", "bm-01?x"] {
        let stranger = proxy.publish(&volume, name, false).await.expect_err("refused");
        assert!(stranger.code() == Code::NotFound && stranger.message().contains(name), "{stranger}");
    }
    // Others edit the machine meanwhile, and lose nothing by it.
    proxy.fake.lock().conflicts = 2;
    let waits = proxy.publish(&volume, "bm-01", false).await.expect_err("not yet");
    assert!(waits.code() == Code::Aborted && waits.message().contains("bmctl explain bm-01"), "{waits}");
    let disks = proxy.fake.disks("bm-01");
    assert_eq!(disks.len(), 2, "{disks:?}");
    assert_eq!(disks[1]["source"]["persistentVolumeClaim"]["claimName"], volume.as_str());
    assert_eq!(proxy.fake.lock().get("baremetalmachines", "bm-01")["metadata"]["annotations"]["other"], "0");

    proxy.fake.attach_and_detach("bm-01");
    for _ in 0..2 {
        let context = proxy.publish(&volume, "bm-01", false).await.expect("published");
        let serial = format!("MP-{}", disks[1]["name"].as_str().expect("a name"));
        let expected = [("serial", serial.as_str()), ("wwid", "uuid.5866"), ("readonly", "false")];
        assert_eq!(context, expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    }
    assert_eq!(proxy.publish(&volume, "bm-01", true).await.expect_err("it differs").code(), Code::AlreadyExists);
    let second = proxy.publish(&volume, "bm-02", false).await.expect_err("refused");
    assert!(second.code() == Code::FailedPrecondition && second.message().contains("bm-01"), "{second}");
    assert_eq!(proxy.fake.disks("bm-02").len(), 1);
    assert_eq!(proxy.delete(&volume).await.expect_err("in use").code(), Code::FailedPrecondition);

    let waits = proxy.unpublish(&volume, "bm-01").await.expect_err("not yet");
    assert_eq!((waits.code(), proxy.fake.disks("bm-01").len()), (Code::Aborted, 1));
    proxy.fake.attach_and_detach("bm-01");
    for machine in ["bm-01", "", "gone"] {
        proxy.unpublish(&volume, machine).await.expect("unpublished");
    }
    proxy.delete(&volume).await.expect("deleted");
}

#[tokio::test]
async fn the_class_says_what_the_machine_sees_a_volume_as() {
    let proxy = Proxy::new();
    let create = |bus: &str| CreateVolumeRequest {
        name: format!("pvc-{bus}"),
        volume_capabilities: vec![xfs()],
        parameters: HashMap::from([("bus".to_owned(), bus.to_owned())]),
        ..Default::default()
    };
    let refused = proxy.service.create_volume(Request::new(create("SCSI"))).await.expect_err("refused");
    assert!(refused.code() == Code::InvalidArgument && refused.message().contains("VirtioBlk"), "{refused}");
    assert!(proxy.fake.claims().is_empty());
    let made = proxy.service.create_volume(Request::new(create("VirtioBlk"))).await.expect("made").into_inner();
    let volume = made.volume.expect("a volume");
    // Whoever attaches it gets the context back, and nothing else of the class.
    let publish = ControllerPublishVolumeRequest {
        volume_id: volume.volume_id,
        node_id: "bm-01".into(),
        volume_capability: Some(xfs()),
        volume_context: volume.volume_context,
        ..Default::default()
    };
    let waits = proxy.service.controller_publish_volume(Request::new(publish)).await.expect_err("not yet");
    assert_eq!((waits.code(), &proxy.fake.disks("bm-01")[1]["bus"]), (Code::Aborted, &json!("VirtioBlk")));
}

#[tokio::test]
async fn a_volume_grows_when_its_claim_has() {
    let proxy = Proxy::new();
    let volume = proxy.create("pvc-1", 100).await.expect("made").volume_id;
    let expand = || ControllerExpandVolumeRequest {
        volume_id: volume.clone(),
        capacity_range: Some(CapacityRange { required_bytes: (300 * MIB) as i64, limit_bytes: 0 }),
        volume_capability: Some(xfs()),
    };
    let waits = proxy.service.controller_expand_volume(Request::new(expand())).await.expect_err("not yet");
    assert_eq!(waits.code(), Code::Aborted);
    let mut claim = proxy.fake.lock().get("persistentvolumeclaims", &volume);
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "300Mi");
    claim["status"] = json!({"capacity": {"storage": "300Mi"}});
    proxy.fake.lock().put("persistentvolumeclaims", &volume, claim);
    let grown = proxy.service.controller_expand_volume(Request::new(expand())).await.expect("grown").into_inner();
    assert_eq!((grown.capacity_bytes as u64, grown.node_expansion_required), (300 * MIB, true));
}

/// The node's half, and a disk of this machine: a loop device of which /sys is made to say what it says of a plugged one.
struct Worker {
    service: ProxyNodeService,
    mounted: Mounted,
    file: PathBuf,
    device: PathBuf,
}

impl Worker {
    fn start(test: &str) -> Option<Worker> {
        let mounted = Mounted::xfs(test, "2G")?;
        let file = mounted.path().join("plugged.img");
        fs::File::create(&file).and_then(|file| file.set_len(400 * MIB)).expect("a disk");
        let device = run("losetup", &["--find".as_ref(), "--show".as_ref(), file.as_ref()]);
        let device = PathBuf::from(String::from_utf8_lossy(&device.stdout).trim());
        let block = mounted.beside().join("block");
        fs::create_dir(&block).expect("a folder");
        let service = ProxyNodeService::new("bm-01", Disks::at(&block, Path::new("/dev")));
        Some(Worker { service, mounted, file, device })
    }

    /// The kernel sees it from now on.
    fn plug(&self, serial: &str) {
        let folder = self.mounted.beside().join("block").join(self.device.file_name().expect("a name"));
        let unfinished = self.mounted.beside().join("unfinished");
        fs::create_dir(&unfinished).expect("a folder");
        for (file, text) in [("dev", "7:0"), ("ro", "0"), ("serial", serial)] {
            fs::write(unfinished.join(file), text).expect("written");
        }
        fs::rename(unfinished, folder).expect("seen");
    }

    fn path(&self, name: &str) -> String {
        self.mounted.beside().join(name).display().to_string()
    }

    async fn stage(&self, capability: &VolumeCapability) -> Result<(), Status> {
        let request = NodeStageVolumeRequest {
            volume_id: "proxy-1".into(),
            publish_context: context(),
            staging_target_path: self.path("staging"),
            volume_capability: Some(capability.clone()),
            ..Default::default()
        };
        self.service.node_stage_volume(Request::new(request)).await.map(drop)
    }

    async fn publish(&self, capability: &VolumeCapability) -> Result<(), Status> {
        let request = NodePublishVolumeRequest {
            volume_id: "proxy-1".into(),
            publish_context: context(),
            staging_target_path: self.path("staging"),
            target_path: self.path("target"),
            volume_capability: Some(capability.clone()),
            ..Default::default()
        };
        self.service.node_publish_volume(Request::new(request)).await.map(drop)
    }

    async fn hide(&self) {
        for _ in 0..2 {
            let (volume_id, target_path) = ("proxy-1".to_owned(), self.path("target"));
            let unpublish = NodeUnpublishVolumeRequest { volume_id: volume_id.clone(), target_path };
            self.service.node_unpublish_volume(Request::new(unpublish)).await.expect("unpublished");
            let unstage = NodeUnstageVolumeRequest { volume_id, staging_target_path: self.path("staging") };
            self.service.node_unstage_volume(Request::new(unstage)).await.expect("unstaged");
        }
        run("losetup", &["--detach".as_ref(), self.device.as_ref()]);
    }
}

fn context() -> HashMap<String, String> {
    // QEMU's NVMe device shows no UUID: the serial number has to do.
    let all = [("serial", "MP0123456789ABCDEFGH"), ("wwid", "uuid.58668891-c3e4-45d0-b90e-824525c16080")];
    all.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

#[tokio::test]
async fn the_disk_is_waited_for_formatted_mounted_and_grown() {
    let Some(worker) = Worker::start("the_disk_is_waited_for_formatted_mounted_and_grown") else { return };
    let capability = xfs();
    let (staged, ()) = tokio::join!(worker.stage(&capability), async {
        tokio::task::yield_now().await;
        worker.plug("MP0123456789ABCDEFGH");
    });
    staged.expect("staged once the kernel sees the disk");
    worker.stage(&capability).await.expect("again");
    for _ in 0..2 {
        worker.publish(&capability).await.expect("published");
    }
    let target = PathBuf::from(worker.path("target"));
    fs::write(target.join("note"), "kept").expect("written");
    let stats = NodeGetVolumeStatsRequest {
        volume_id: "proxy-1".into(),
        volume_path: worker.path("target"),
        ..Default::default()
    };
    let total = async || {
        let answer = worker.service.node_get_volume_stats(Request::new(stats.clone())).await.expect("an answer");
        answer.into_inner().usage.first().expect("bytes").total as u64 / MIB
    };
    let before = total().await;
    let expand = || {
        let request = NodeExpandVolumeRequest {
            volume_id: "proxy-1".into(),
            volume_path: worker.path("target"),
            capacity_range: Some(CapacityRange { required_bytes: (800 * MIB) as i64, limit_bytes: 0 }),
            ..Default::default()
        };
        worker.service.node_expand_volume(Request::new(request))
    };
    let early = expand().await.expect_err("the disk is not larger yet");
    assert_eq!(early.code(), Code::Aborted, "{early}");
    // The DPU shows more, and the kernel has taken note.
    fs::File::options().write(true).open(&worker.file).and_then(|file| file.set_len(800 * MIB)).expect("grown");
    run("losetup", &["--set-capacity".as_ref(), worker.device.as_ref()]);
    let expanded = expand().await.expect("grown").into_inner();
    assert_eq!(expanded.capacity_bytes as u64, 800 * MIB);
    let after = total().await;
    assert!(before < 400 && after > 650, "{before} MiB, then {after} MiB");
    assert_eq!(fs::read_to_string(target.join("note")).expect("read"), "kept");
    worker.hide().await;
    assert!(!target.exists());
}

#[tokio::test]
async fn a_block_volume_is_the_disk_itself_and_no_content_is_ever_lost() {
    let Some(worker) = Worker::start("a_block_volume_is_the_disk_itself_and_no_content_is_ever_lost") else { return };
    worker.plug("MP0123456789ABCDEFGH");
    run("mkfs.ext4", &["-q".as_ref(), worker.device.as_ref()]);
    let refused = worker.stage(&xfs()).await.expect_err("refused");
    assert!(refused.code() == Code::FailedPrecondition && refused.message().contains("ext4"), "{refused}");
    worker.stage(&block()).await.expect("staged");
    worker.publish(&block()).await.expect("published");
    let target = PathBuf::from(worker.path("target"));
    assert!(target.metadata().expect("the target").file_type().is_block_device());
    worker.hide().await;
}

#[tokio::test]
async fn what_names_no_disk_is_refused() {
    let service = ProxyNodeService::new("bm-01", Disks::default());
    let request = NodeStageVolumeRequest {
        volume_id: "proxy-1".into(),
        staging_target_path: "/nonexistent/staging".into(),
        volume_capability: Some(block()),
        ..Default::default()
    };
    let refused = service.node_stage_volume(Request::new(request)).await.expect_err("refused");
    assert!(refused.code() == Code::InvalidArgument && refused.message().contains("serial"), "{refused}");
}
