//! The driver is killed in the middle of its work, again and again: afterwards everything is there whole or not at all,
//! and calling again finishes it.

mod driver;
mod fixture;

use csi::pool::{ContentSource, Handle, Limits, Pool, Range, Snapshot};
use driver::Driver;
use fixture::Mounted;
use hyper_util::rt::TokioIo;
use proto::csi::v1::{
    CapacityRange, ControllerModifyVolumeRequest, CreateSnapshotRequest, CreateVolumeGroupSnapshotRequest,
    CreateVolumeRequest, DeleteVolumeGroupSnapshotRequest, VolumeCapability, VolumeContentSource,
    controller_client::ControllerClient,
    group_controller_client::GroupControllerClient,
    volume_capability::{AccessMode, AccessType, BlockVolume, access_mode::Mode},
    volume_content_source::{SnapshotSource, Type},
};
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};

const ROUNDS: u64 = 12;

/// What the judge of the crash calls.
struct Client {
    controller: ControllerClient<Channel>,
    groups: GroupControllerClient<Channel>,
}

async fn connect(socket: PathBuf) -> Client {
    let connector = tower::service_fn(move |_: http::Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://localhost");
    let channel = endpoint.connect_with_connector(connector).await.expect("the driver answers");
    Client { controller: ControllerClient::new(channel.clone()), groups: GroupControllerClient::new(channel) }
}

/// Volume, snapshot, clone, limits, group of both, under the names of one round; ends at the first failure, which is the
/// driver's death.
async fn work(client: Client, round: u64) -> Result<std::convert::Infallible, tonic::Status> {
    let Client { mut controller, mut groups } = client;
    let mut item = 0;
    loop {
        let capability = VolumeCapability {
            access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
            access_type: Some(AccessType::Block(BlockVolume {})),
        };
        let blank = CreateVolumeRequest {
            name: format!("volume-{round}-{item}"),
            capacity_range: Some(CapacityRange { required_bytes: 64 << 20, limit_bytes: 0 }),
            volume_capabilities: vec![capability],
            ..Default::default()
        };
        let volume = controller.create_volume(blank.clone()).await?.into_inner().volume.expect("a volume");
        let name = format!("snapshot-{round}-{item}");
        let source_volume_id = volume.volume_id.clone();
        let take = CreateSnapshotRequest { name, source_volume_id, ..Default::default() };
        let snapshot_id =
            controller.create_snapshot(take).await?.into_inner().snapshot.expect("a snapshot").snapshot_id;
        let source = VolumeContentSource { r#type: Some(Type::Snapshot(SnapshotSource { snapshot_id })) };
        let name = format!("clone-{round}-{item}");
        let clone = CreateVolumeRequest { name, volume_content_source: Some(source), ..blank };
        let clone = controller.create_volume(clone).await?.into_inner().volume.expect("a volume");
        let mutable_parameters = [("iops".to_owned(), (1000 * (item + 1)).to_string())].into();
        let volume_id = clone.volume_id.clone();
        controller.controller_modify_volume(ControllerModifyVolumeRequest { volume_id, mutable_parameters }).await?;
        let name = format!("group-{round}-{item}");
        let source_volume_ids = vec![volume.volume_id, clone.volume_id];
        let take = CreateVolumeGroupSnapshotRequest { name, source_volume_ids, ..Default::default() };
        let group = groups.create_volume_group_snapshot(take).await?.into_inner().group_snapshot.expect("a group");
        if item % 2 == 1 {
            let snapshot_ids = group.snapshots.into_iter().map(|snapshot| snapshot.snapshot_id).collect();
            let group_snapshot_id = group.group_snapshot_id;
            let delete = DeleteVolumeGroupSnapshotRequest { group_snapshot_id, snapshot_ids };
            groups.delete_volume_group_snapshot(delete).await?;
        }
        item += 1;
    }
}

/// Whether something is there that is not half made.
fn has_whole_entry(folder: &Path) -> bool {
    let whole = |entry: fs::DirEntry| !entry.file_name().to_string_lossy().starts_with('.');
    fs::read_dir(folder).is_ok_and(|entries| entries.flatten().any(whole))
}

#[tokio::test]
async fn a_killed_driver_leaves_whole_things_only() {
    let test = "a_killed_driver_leaves_whole_things_only";
    let Some(mounted) = Mounted::xfs(test, "2G") else { return };
    let mut made = 0;
    for round in 0..ROUNDS {
        let driver = Driver::start(&mounted, &[]);
        let client = connect(driver.socket.clone()).await;
        let working = tokio::spawn(work(client, round));
        // Another moment of the work in every round, but none before its first volume is there.
        let deadline = Instant::now() + Duration::from_secs(60);
        while !has_whole_entry(&mounted.path().join("volumes")) && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_micros(1_700 * round)).await;
        driver.kill();
        working.await.expect("the work ends").expect_err("it ends with the driver's death");

        let pool = Pool::open("fast", &mounted.path()).expect("the next start");
        for folder in ["volumes", "snapshots"] {
            for entry in fs::read_dir(mounted.path().join(folder)).expect("a folder") {
                let entry = entry.expect("an entry").path();
                assert!(entry.join("disk.img").is_file(), "{} is not whole", entry.display());
            }
        }
        let groups = pool.groups().expect("listed");
        for group in &groups {
            let folder = mounted.path().join("groups").join(group.id.as_str());
            let whole = |it: &Snapshot| folder.join(it.id.as_str()).join("disk.img").is_file();
            assert!(group.snapshots.len() == 2 && group.snapshots.iter().all(whole), "{group:?} is not whole");
        }
        let (volumes, snapshots) = (pool.volumes().expect("listed"), pool.snapshots().expect("listed"));
        assert!(volumes.iter().all(|volume| volume.record.size_bytes == 64 << 20));
        made += volumes.len() + snapshots.len();
        // Whatever of a round was not made can be made now.
        let source = snapshots.first().map(|snapshot| ContentSource::Snapshot(snapshot.id.to_string()));
        let name = format!("volume-{round}-0");
        let volume =
            pool.create_volume(&name, Range::default(), None, &Limits::default()).expect("finished by calling again");
        assert_eq!(volume.handle, Handle::of_volume(&name));
        if source.is_some() {
            let clone = format!("late-{round}");
            pool.create_volume(&clone, Range::default(), source.as_ref(), &Limits::default())
                .expect("cloned from what was left");
            pool.delete_volume(&Handle::of_volume(&clone)).expect("deleted");
        }
        for volume in pool.volumes().expect("listed") {
            pool.delete_volume(&volume.handle).expect("deleted");
        }
        for group in groups {
            pool.delete_group(&group.id, &[]).expect("deleted");
        }
        for snapshot in pool.snapshots().expect("listed") {
            pool.delete_snapshot(&snapshot.id).expect("deleted");
        }
    }
    assert!(made > 0, "the driver was always killed before it did anything");
}
