//! The node's half on a real kernel, through the real binary: what csi-sanity does not look at.

mod driver;
mod fixture;

use driver::Driver;
use fixture::{Mounted, run};
use hyper_util::rt::TokioIo;
use proto::{
    csi::v1::{
        CapacityRange, ControllerExpandVolumeRequest, ControllerModifyVolumeRequest, ControllerPublishVolumeRequest,
        CreateSnapshotRequest, CreateVolumeRequest, DeleteVolumeRequest, GetCapacityRequest, NodeExpandVolumeRequest,
        NodeGetInfoRequest, NodeGetVolumeHealthRequest, NodeGetVolumeStatsRequest, NodePublishVolumeRequest,
        NodeStageVolumeRequest, NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest, Topology, TopologyRequirement,
        Volume, VolumeCapability, VolumeContentSource, VolumeHealthErrorType,
        controller_client::ControllerClient,
        node_client::NodeClient,
        volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode},
        volume_content_source::{SnapshotSource, Type},
    },
    pluginregistration::{InfoRequest, RegistrationStatus, registration_client::RegistrationClient},
};
use std::{
    collections::HashMap,
    fs,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};
use tokio::net::UnixStream;
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};

const MIB: i64 = 1 << 20;

async fn connect(socket: &Path) -> Channel {
    let socket = socket.to_owned();
    let connector = tower::service_fn(move |_: http::Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://localhost").connect_with_connector(connector).await.expect("the driver answers")
}

fn capability(access_type: AccessType, mode: Mode) -> VolumeCapability {
    VolumeCapability { access_mode: Some(AccessMode { mode: mode.into() }), access_type: Some(access_type) }
}

fn mount(fs_type: &str, mode: Mode) -> VolumeCapability {
    capability(AccessType::Mount(MountVolume { fs_type: fs_type.into(), ..Default::default() }), mode)
}

fn block(mode: Mode) -> VolumeCapability {
    capability(AccessType::Block(BlockVolume {}), mode)
}

/// A driver with both halves, and the paths that kubelet would choose.
struct Cluster {
    controller: ControllerClient<Channel>,
    node: NodeClient<Channel>,
    driver: Driver,
    mounted: Mounted,
}

impl Cluster {
    async fn start(test: &str) -> Option<Cluster> {
        let mounted = Mounted::xfs(test, "4G")?;
        let driver = Driver::start(&mounted, &[]);
        let channel = connect(&driver.socket).await;
        Some(Cluster {
            controller: ControllerClient::new(channel.clone()),
            node: NodeClient::new(channel),
            driver,
            mounted,
        })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.mounted.beside().join(name)
    }

    async fn create(&mut self, name: &str, mib: i64, source: Option<Type>, capability: &VolumeCapability) -> Volume {
        let request = CreateVolumeRequest {
            name: name.into(),
            capacity_range: Some(CapacityRange { required_bytes: mib * MIB, limit_bytes: 0 }),
            volume_capabilities: vec![capability.clone()],
            volume_content_source: source.map(|it| VolumeContentSource { r#type: Some(it) }),
            ..Default::default()
        };
        self.controller.create_volume(request).await.expect("created").into_inner().volume.expect("a volume")
    }

    /// Publishes to the node, stages at `<name>.staging` and publishes at `<name>.target`.
    async fn show(&mut self, volume: &Volume, name: &str, capability: &VolumeCapability, readonly: bool) {
        let publish = ControllerPublishVolumeRequest {
            volume_id: volume.volume_id.clone(),
            node_id: "node-1".into(),
            volume_capability: Some(capability.clone()),
            readonly,
            volume_context: volume.volume_context.clone(),
        };
        let publish_context = self.controller.controller_publish_volume(publish).await.expect("published").into_inner();
        let staging = self.at(&format!("{name}.staging"));
        fs::create_dir(&staging).expect("kubelet makes the staging path");
        let stage = NodeStageVolumeRequest {
            volume_id: volume.volume_id.clone(),
            publish_context: publish_context.publish_context,
            staging_target_path: staging.display().to_string(),
            volume_capability: Some(capability.clone()),
            volume_context: volume.volume_context.clone(),
        };
        self.node.node_stage_volume(stage).await.expect("staged");
        self.publish(volume, name, "target", capability, readonly).await.expect("published on the node");
    }

    async fn publish(
        &mut self,
        volume: &Volume,
        name: &str,
        target: &str,
        capability: &VolumeCapability,
        readonly: bool,
    ) -> Result<(), Status> {
        let request = NodePublishVolumeRequest {
            volume_id: volume.volume_id.clone(),
            staging_target_path: self.at(&format!("{name}.staging")).display().to_string(),
            target_path: self.at(&format!("{name}.{target}")).display().to_string(),
            volume_capability: Some(capability.clone()),
            readonly,
            volume_context: volume.volume_context.clone(),
            publish_context: HashMap::new(),
        };
        self.node.node_publish_volume(request).await.map(drop)
    }

    async fn hide(&mut self, volume: &Volume, name: &str) {
        let target_path = self.at(&format!("{name}.target")).display().to_string();
        let staging_target_path = self.at(&format!("{name}.staging")).display().to_string();
        let volume_id = volume.volume_id.clone();
        let unpublish = NodeUnpublishVolumeRequest { volume_id: volume_id.clone(), target_path };
        // Again while busy, as kubelet does: another test's fork holds what this one has open until its exec.
        let deadline = Instant::now() + Duration::from_secs(90);
        while let Err(status) = self.node.node_unpublish_volume(unpublish.clone()).await {
            assert!(Instant::now() < deadline && status.message().contains("busy"), "not unpublished: {status}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let unstage = NodeUnstageVolumeRequest { volume_id, staging_target_path };
        self.node.node_unstage_volume(unstage).await.expect("unstaged");
        assert!(!self.at(&format!("{name}.target")).exists());
        assert_eq!(self.loop_devices(volume), 0);
    }

    /// How many loop devices there are on a volume's image.
    fn loop_devices(&self, volume: &Volume) -> usize {
        let listed = run("losetup", &["--list".as_ref(), "--output".as_ref(), "BACK-FILE".as_ref()]);
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let folder = self.mounted.path().display().to_string();
        listed.lines().filter(|line| line.contains(&volume.volume_id) && line.contains(&folder)).count()
    }

    async fn grow(&mut self, volume: &Volume, mib: i64, capability: &VolumeCapability, path: &Path) {
        let capacity_range = Some(CapacityRange { required_bytes: mib * MIB, limit_bytes: 0 });
        let expand = ControllerExpandVolumeRequest {
            volume_id: volume.volume_id.clone(),
            capacity_range,
            volume_capability: Some(capability.clone()),
        };
        let answer = self.controller.controller_expand_volume(expand).await.expect("grown").into_inner();
        assert_eq!((answer.capacity_bytes, answer.node_expansion_required), (mib * MIB, true));
        let expand = NodeExpandVolumeRequest {
            volume_id: volume.volume_id.clone(),
            volume_path: path.display().to_string(),
            capacity_range,
            ..Default::default()
        };
        self.node.node_expand_volume(expand).await.expect("the node takes the size");
    }
}

/// The kernel lets nobody else grow a mounted ext4.
fn may_grow_ext4() -> bool {
    const CAP_SYS_RESOURCE: u32 = 24;
    let status = fs::read_to_string("/proc/self/status").expect("this process's status");
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("its capabilities");
    u64::from_str_radix(effective.trim(), 16).expect("a mask") >> CAP_SYS_RESOURCE & 1 == 1
}

fn total_mib(path: &Path) -> u64 {
    let stat = rustix::fs::statvfs(path).expect("a mounted filesystem");
    stat.f_blocks * stat.f_frsize / (1 << 20)
}

#[tokio::test]
async fn xfs_is_made_kept_copied_and_grown() {
    filesystem("xfs_is_made_kept_copied_and_grown", "xfs", true).await;
}

#[tokio::test]
async fn ext4_is_made_kept_and_copied() {
    filesystem("ext4_is_made_kept_and_copied", "ext4", false).await;
}

#[tokio::test]
async fn ext4_is_made_kept_copied_and_grown() {
    let test = "ext4_is_made_kept_copied_and_grown";
    if !may_grow_ext4() {
        eprintln!("SKIP {test}: growing a mounted ext4 needs CAP_SYS_RESOURCE");
        return;
    }
    filesystem(test, "ext4", true).await;
}

async fn filesystem(test: &str, kind: &str, grows: bool) {
    let Some(mut cluster) = Cluster::start(test).await else { return };
    let rw = mount(kind, Mode::SingleNodeMultiWriter);
    let volume = cluster.create("a", 400, None, &rw).await;
    cluster.show(&volume, "a", &rw, false).await;
    let target = cluster.at("a.target");
    fs::write(target.join("note"), "kept").expect("written");
    if grows {
        cluster.grow(&volume, 800, &rw, &target).await;
        assert!(total_mib(&target) > 650, "{} MiB", total_mib(&target));
    }
    rustix::fs::syncfs(fs::File::open(&target).expect("the target")).expect("synced");
    let source_volume_id = volume.volume_id.clone();
    let snapshot = CreateSnapshotRequest { name: "s".into(), source_volume_id, ..Default::default() };
    let snapshot = cluster.controller.create_snapshot(snapshot).await.expect("taken").into_inner();
    let snapshot_id = snapshot.snapshot.expect("a snapshot").snapshot_id;
    // A copy on the same node at the same time, of one UUID; a larger one's filesystem grows when it is staged.
    let source = Type::Snapshot(SnapshotSource { snapshot_id });
    let copy = cluster.create("b", if grows { 1200 } else { 400 }, Some(source), &rw).await;
    cluster.show(&copy, "b", &rw, false).await;
    let copied = cluster.at("b.target");
    assert_eq!(fs::read_to_string(copied.join("note")).expect("copied"), "kept");
    assert!(!grows || total_mib(&copied) > 1000, "{} MiB", total_mib(&copied));
    cluster.hide(&copy, "b").await;
    cluster.hide(&volume, "a").await;
    assert!(cluster.driver.stop());
}

#[tokio::test]
async fn a_block_volume_is_a_device_that_grows() {
    let Some(mut cluster) = Cluster::start("a_block_volume_is_a_device_that_grows").await else { return };
    let rw = block(Mode::SingleNodeWriter);
    let volume = cluster.create("a", 10, None, &rw).await;
    cluster.show(&volume, "a", &rw, false).await;
    let target = cluster.at("a.target");
    assert!(target.metadata().expect("the target").file_type().is_block_device());
    let size = |path: &Path| {
        let answer = run("blockdev", &["--getsize64".as_ref(), path.as_ref()]);
        String::from_utf8_lossy(&answer.stdout).trim().parse::<i64>().expect("a number")
    };
    assert_eq!(size(&target), 10 * MIB);
    cluster.grow(&volume, 25, &rw, &target).await;
    assert_eq!(size(&target), 25 * MIB);
    let delete = DeleteVolumeRequest { volume_id: volume.volume_id.clone() };
    let deleted = cluster.controller.delete_volume(delete).await.expect_err("it is published");
    assert_eq!(deleted.code(), Code::FailedPrecondition);
    cluster.hide(&volume, "a").await;
}

#[tokio::test]
async fn read_only_holds_for_the_device_too() {
    let Some(mut cluster) = Cluster::start("read_only_holds_for_the_device_too").await else { return };
    let rw = block(Mode::SingleNodeWriter);
    let volume = cluster.create("a", 10, None, &rw).await;
    cluster.show(&volume, "a", &rw, true).await;
    let target = cluster.at("a.target");
    fs::read(&target).expect("readable");
    let written = fs::File::options()
        .write(true)
        .open(&target)
        .and_then(|file| std::os::unix::fs::FileExt::write_all_at(&file, b"x", 0));
    assert!(written.is_err(), "a read-only device was written");
    cluster.hide(&volume, "a").await;

    // A writable device cannot be shown read-only to one pod.
    let volume = cluster.create("b", 10, None, &rw).await;
    cluster.show(&volume, "b", &rw, false).await;
    let second = cluster.publish(&volume, "b", "second", &rw, true).await.expect_err("refused");
    assert_eq!(second.code(), Code::FailedPrecondition);
    cluster.hide(&volume, "b").await;
}

#[tokio::test]
async fn what_is_not_blank_is_never_formatted() {
    let Some(mut cluster) = Cluster::start("what_is_not_blank_is_never_formatted").await else { return };
    let ext4 = mount("ext4", Mode::SingleNodeWriter);
    let volume = cluster.create("a", 400, None, &ext4).await;
    let image = cluster.mounted.path().join("volumes").join(&volume.volume_id).join("disk.img");
    // A boot disk's first sector, as far as a prober looks: one partition.
    let mut sector = vec![0; 512];
    sector[446..462].copy_from_slice(&[0x80, 0, 2, 0, 0x83, 0, 0, 0, 1, 0, 0, 0, 0, 8, 0, 0]);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    let file = fs::File::options().write(true).open(&image).expect("the image");
    std::os::unix::fs::FileExt::write_all_at(&file, &sector, 0).expect("a partition table");
    let staging = cluster.at("a.staging");
    let stage = NodeStageVolumeRequest {
        volume_id: volume.volume_id.clone(),
        staging_target_path: staging.display().to_string(),
        volume_capability: Some(ext4),
        ..Default::default()
    };
    let staged = cluster.node.node_stage_volume(stage).await.expect_err("refused");
    assert!(staged.code() == Code::FailedPrecondition && staged.message().contains("partition table"), "{staged}");
    assert_eq!(fs::read(&image).expect("the image")[..512], sector);
    cluster.hide(&volume, "a").await;
}

#[tokio::test]
async fn the_driver_registers_itself_with_kubelet() {
    let test = "the_driver_registers_itself_with_kubelet";
    let Some(mounted) = Mounted::xfs(test, "400M") else { return };
    let kubelet_path = "/var/lib/kubelet/plugins/csi.metalplane.io/csi.sock";
    let registry = format!("--plugin-registration-dir={}", mounted.beside().display());
    let flags = [registry.as_str(), "--mode=node", "--kubelet-registration-path", kubelet_path];
    let driver = Driver::start(&mounted, &flags);
    let socket = mounted.beside().join("csi.metalplane.io-reg.sock");
    let mut kubelet = RegistrationClient::new(connect(&socket).await);
    let info = kubelet.get_info(InfoRequest {}).await.expect("an answer").into_inner();
    assert_eq!((info.r#type.as_str(), info.name.as_str()), ("CSIPlugin", "csi.metalplane.io"));
    assert_eq!((info.endpoint.as_str(), info.supported_versions), (kubelet_path, vec!["1.0.0".to_owned()]));
    let accepted = RegistrationStatus { plugin_registered: true, error: String::new() };
    kubelet.notify_registration_status(accepted).await.expect("an answer");
    assert!(driver.stop(), "it ends well");
    assert!(!socket.exists(), "kubelet would find a dead socket");

    // Refused: the process ends, so that its next start asks again.
    let driver = Driver::start(&mounted, &flags);
    let mut kubelet = RegistrationClient::new(connect(&socket).await);
    let refused = RegistrationStatus { plugin_registered: false, error: "not you".into() };
    // The answer may be cut off by the end.
    let _ = kubelet.notify_registration_status(refused).await;
    assert!(!driver.wait(), "it ends with an error");
}

/// A driver's answer to where a volume may be, in the words of external-provisioner.
fn at_pool(pool: &str) -> Topology {
    Topology { segments: HashMap::from([(format!("pool.csi.metalplane.io/{pool}"), "true".to_owned())]) }
}

#[tokio::test]
async fn a_volume_is_where_its_pool_is() {
    let Some(mut cluster) = Cluster::start("a_volume_is_where_its_pool_is").await else { return };
    let node = cluster.node.node_get_info(NodeGetInfoRequest {}).await.expect("an answer").into_inner();
    assert_eq!(node.accessible_topology, Some(at_pool("fast")));
    let request = |name: &str, requisite: Vec<Topology>| CreateVolumeRequest {
        name: name.into(),
        volume_capabilities: vec![block(Mode::SingleNodeWriter)],
        accessibility_requirements: Some(TopologyRequirement { requisite, preferred: Vec::new() }),
        ..Default::default()
    };
    let here = request("a", vec![at_pool("slow"), at_pool("fast")]);
    let volume = cluster.controller.create_volume(here).await.expect("made").into_inner().volume.expect("a volume");
    assert_eq!(volume.accessible_topology, [at_pool("fast")]);
    let elsewhere = cluster.controller.create_volume(request("b", vec![at_pool("slow")])).await.expect_err("refused");
    assert!(elsewhere.code() == Code::ResourceExhausted && elsewhere.message().contains("pool fast"), "{elsewhere}");
    let mut capacity = async |accessible_topology: Option<Topology>| {
        let request = GetCapacityRequest { accessible_topology, ..Default::default() };
        cluster.controller.get_capacity(request).await.expect("an answer").into_inner()
    };
    let (all, fast, slow) =
        (capacity(None).await, capacity(Some(at_pool("fast"))).await, capacity(Some(at_pool("slow"))).await);
    assert!(all.available_capacity > 0 && fast.maximum_volume_size >= Some(fast.available_capacity));
    assert_eq!((fast.maximum_volume_size, slow.available_capacity), (all.maximum_volume_size, 0));
    assert_eq!(slow.maximum_volume_size, Some(0));
}

#[tokio::test]
async fn a_failed_filesystem_is_reported() {
    let test = "a_failed_filesystem_is_reported";
    let Some(mut cluster) = Cluster::start(test).await else { return };
    if Command::new("xfs_io").arg("-V").output().is_err() {
        eprintln!("SKIP {test}: xfs_io is missing");
        return;
    }
    let rw = mount("xfs", Mode::SingleNodeMultiWriter);
    let volume = cluster.create("a", 400, None, &rw).await;
    cluster.show(&volume, "a", &rw, false).await;
    let target = cluster.at("a.target").display().to_string();
    let stats = NodeGetVolumeStatsRequest {
        volume_id: volume.volume_id.clone(),
        volume_path: target.clone(),
        ..Default::default()
    };
    let answer = cluster.node.node_get_volume_stats(stats).await.expect("an answer").into_inner();
    assert!(!answer.volume_condition.expect("a condition").abnormal && answer.usage.len() == 2);
    let health = NodeGetVolumeHealthRequest {
        volume_id: volume.volume_id.clone(),
        volume_publish_path: target.clone(),
        ..Default::default()
    };
    let answer = cluster.node.node_get_volume_health(health.clone()).await.expect("an answer").into_inner();
    assert_eq!(answer.volume_health.expect("health").health_statuses, []);
    // As after an error of the device below: the kernel ends the filesystem.
    run("xfs_io", &["-x", "-c", "shutdown", target.as_str()].map(std::ffi::OsStr::new));
    let answer = cluster.node.node_get_volume_health(health.clone()).await.expect("an answer").into_inner();
    let entries = answer.volume_health.expect("health").health_statuses;
    assert_eq!(entries.iter().map(|it| it.reason.as_str()).collect::<Vec<_>>(), ["FilesystemFailed"], "{entries:?}");
    assert_eq!(entries[0].status(), VolumeHealthErrorType::Inaccessible);
    cluster.hide(&volume, "a").await;
    let answer = cluster.node.node_get_volume_health(health).await.expect("an answer").into_inner();
    assert_eq!(answer.volume_health.expect("health").health_statuses, [], "what is not staged here lacks nothing here");
}

#[tokio::test]
async fn limits_are_told_to_the_node_and_others_refused() {
    let Some(mut cluster) = Cluster::start("limits_are_told_to_the_node_and_others_refused").await else { return };
    let rw = block(Mode::SingleNodeWriter);
    let volume = cluster.create("a", 10, None, &rw).await;
    let modify = |parameters: &[(&str, &str)]| ControllerModifyVolumeRequest {
        volume_id: volume.volume_id.clone(),
        mutable_parameters: parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
    };
    cluster.controller.controller_modify_volume(modify(&[("bandwidthMiBps", "7")])).await.expect("changed");
    let both = modify(&[("iops", "5000"), ("readMiBps", "100")]);
    cluster.controller.controller_modify_volume(both).await.expect("changed");
    let refused = cluster.controller.controller_modify_volume(modify(&[("cache", "on")])).await.expect_err("refused");
    assert!(refused.code() == Code::InvalidArgument && refused.message().contains("cache"), "{refused}");
    let publish = ControllerPublishVolumeRequest {
        volume_id: volume.volume_id.clone(),
        node_id: "node-1".into(),
        volume_capability: Some(rw),
        readonly: false,
        volume_context: volume.volume_context.clone(),
    };
    let told = cluster.controller.controller_publish_volume(publish).await.expect("published").into_inner();
    let expected = [("iops", "5000"), ("readMiBps", "100"), ("readonly", "false")];
    assert_eq!(told.publish_context, expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
}
