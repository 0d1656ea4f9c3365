//! How an import writes what the target connects: what is refused and what is cleared away against the fake, the writing itself
//! against a real target where SPDK is installed.

#[expect(dead_code, reason = "each test program uses a part of it")]
mod storage;

use async_trait::async_trait;
use ports::conformance::{volume, writer};
use ports::volume::{Volume, VolumeWriter};
use ports::{ErrorClass, VolumeConnector};
use sandbox::spdk::world::Controller;
use serde_json::json;
use spdk::volumes::{SpdkConnector, Storage, iscsi::Iscsi, local::Local, nvmeof::NvmeOf};
use std::io;
use storage::{Lab, MIB, id};

/// NVMe/TCP to a file at the storage node.
struct OverTcp(Lab);

fn connector<S: Storage>(lab: &Lab, storage: S) -> SpdkConnector<S> {
    SpdkConnector::new(lab.dpu().socket(), storage)
}

#[async_trait]
impl volume::Bench for OverTcp {
    type Connector = SpdkConnector<NvmeOf>;

    async fn open(&self) -> SpdkConnector<NvmeOf> {
        connector(&self.0, NvmeOf)
    }

    async fn volume(&self, number: u8, size_bytes: u64) -> Volume {
        self.0.nvme_volume(&format!("volume-{number}"), size_bytes).await
    }

    async fn missing_volume(&self) -> Volume {
        panic!("the suite of connectors has it")
    }

    async fn grow(&self, _: &Volume, _: u64) {
        panic!("the suite of connectors has it")
    }
}

#[async_trait]
impl writer::Bench for OverTcp {
    async fn fill(&self, volume: &Volume, byte: u8) {
        let file = self.0.nvme_file(volume);
        let length = std::fs::metadata(&file).expect("the volume's file").len();
        std::fs::write(&file, vec![byte; usize::try_from(length).expect("a size")]).expect("filled");
    }

    async fn read(&self, volume: &Volume) -> Vec<u8> {
        std::fs::read(self.0.nvme_file(volume)).expect("the volume's file")
    }
}

const PROGRAMS: (&str, &str) = ("nvmf_tgt", "spdk_tgt");

#[tokio::test]
async fn a_real_target_conforms() {
    let Some(lab) = Lab::real_with("a_real_target_conforms", 1, PROGRAMS).await else { return };
    writer::suite(&OverTcp(lab)).await;
}

async fn write(
    mut writer: Box<dyn VolumeWriter>,
    work: impl FnOnce(&mut dyn VolumeWriter) -> io::Result<()> + Send + 'static,
) {
    let written = tokio::task::spawn_blocking(move || work(&mut *writer)).await.expect("the writer's thread");
    written.expect("written");
}

/// Clusters of its own, of a mebibyte each.
async fn clusters(lab: &Lab, volume: &Volume) -> u64 {
    let found = lab.dpu().call("bdev_get_bdevs", json!({"name": volume.handle})).await;
    found[0]["driver_specific"]["lvol"]["num_allocated_clusters"].as_u64().expect("a number of clusters")
}

#[tokio::test]
async fn a_thin_volume_of_a_real_target_stays_thin() {
    let Some(lab) = Lab::real_with("a_thin_volume_of_a_real_target_stays_thin", 1, PROGRAMS).await else { return };
    let (connector, a) = (connector(&lab, Local), id("a", 1));
    let volume = lab.lvol_volume("golden", 64 * MIB).await;
    connector.connect(&a, &volume).await.expect("connect");
    write(connector.open_writer(&a).await.expect("open"), |writer| {
        writer.discard()?;
        writer.write(0, &[1; 8192])?;
        writer.zero(8192, 40 * MIB - 8192)?;
        writer.write(40 * MIB, &[2; 4096])?;
        writer.zero(40 * MIB + 4096, 24 * MIB - 4096)
    })
    .await;
    connector.close_writer(&a).await.expect("close");
    assert_eq!(clusters(&lab, &volume).await, 2, "no space is taken for zeros");
    // What an interrupted import left elsewhere is given back.
    write(connector.open_writer(&a).await.expect("open"), |writer| {
        writer.discard()?;
        writer.write(8 * MIB, &[3; 4096])?;
        writer.sync()
    })
    .await;
    assert_eq!(clusters(&lab, &volume).await, 1, "what was discarded takes no space");
    connector.disconnect(&a).await.expect("disconnect");
}

#[tokio::test]
async fn a_real_iscsi_volume_is_written() {
    let Some(lab) = Lab::real_iscsi("a_real_iscsi_volume_is_written", "spdk_tgt").await else { return };
    let (connector, a) = (connector(&lab, Iscsi), id("a", 1));
    let volume = lab.iscsi_volume(1, 8 * MIB).await;
    connector.connect(&a, &volume).await.expect("connect");
    write(connector.open_writer(&a).await.expect("open"), |writer| {
        writer.discard()?;
        writer.write(MIB, &[7; 8192])?;
        writer.zero(0, MIB)?;
        writer.sync()
    })
    .await;
    connector.disconnect(&a).await.expect("disconnect");
}

/// The target dies under a writer: the import fails at once, and is begun anew when there is another target.
#[tokio::test]
async fn a_real_target_that_dies_ends_the_writer() {
    let Some(mut lab) = Lab::real_with("a_real_target_that_dies_ends_the_writer", 1, PROGRAMS).await else { return };
    let (volume, a) = (lab.nvme_volume("volume-0", 8 * MIB).await, id("a", 1));
    let before = connector(&lab, NvmeOf);
    before.connect(&a, &volume).await.expect("connect");
    let mut writer = before.open_writer(&a).await.expect("open");
    lab.dpus[0].restart().await;
    let failed = tokio::task::spawn_blocking(move || writer.write(0, &[1; 4096]));
    failed.await.expect("the writer's thread").expect_err("nobody answers any more");
    let after = connector(&lab, NvmeOf);
    after.connect(&a, &volume).await.expect("connect");
    write(after.open_writer(&a).await.expect("open"), |writer| {
        writer.write(0, &[1; 4096])?;
        writer.sync()
    })
    .await;
    after.disconnect(&a).await.expect("disconnect");
    let written = std::fs::read(lab.nvme_file(&volume)).expect("the volume's file");
    assert_eq!(written[..4096], [1; 4096]);
}

/// What waits for a storage node that is away is dropped with the connection, and the target survives that.
#[tokio::test]
async fn a_real_storage_node_that_is_away_does_not_keep_the_volume() {
    const NAME: &str = "a_real_storage_node_that_is_away_does_not_keep_the_volume";
    let Some(mut lab) = Lab::real_with(NAME, 1, PROGRAMS).await else { return };
    let (volume, a) = (lab.nvme_volume("volume-0", 8 * MIB).await, id("a", 1));
    let connector = connector(&lab, NvmeOf);
    connector.connect(&a, &volume).await.expect("connect");
    let mut writer = connector.open_writer(&a).await.expect("open");
    lab.storage.kill().await;
    let waits = tokio::task::spawn_blocking(move || writer.write(0, &[1; 4096]));
    let target = async || lab.dpu().call("bdev_nvme_get_controllers", json!({})).await;
    let begun = std::time::Instant::now();
    while target().await.to_string().contains("\"state\":\"enabled\"") {
        assert!(begun.elapsed() < storage::LIMIT, "the target sees that the storage node is away");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(!waits.is_finished(), "it waits for the storage node");
    connector.disconnect(&a).await.expect("disconnect");
    waits.await.expect("the writer's thread").expect_err("it was dropped");
    assert_eq!(connector.list().await.expect("list"), []);
    assert_eq!(lab.dpu().call("vhost_get_controllers", json!({})).await, json!([]));
}

#[tokio::test]
async fn a_target_without_vhost_is_named() {
    let lab = Lab::fake(1);
    let (connector, a) = (connector(&lab, NvmeOf), id("a", 1));
    let volume = lab.nvme_volume("volume-0", MIB).await;
    lab.dpu().fake().with(|world| world.lacks_vhost = true);
    connector.connect(&a, &volume).await.expect("connect");
    let why = connector.import_refusal().await.expect("it cannot");
    assert!(why.contains("spdk_tgt"), "{why}");
    let refused = connector.open_writer(&a).await.err().expect("it cannot");
    assert_eq!(refused.class, ErrorClass::Unsupported, "{refused}");
    connector.close_writer(&a).await.expect("nothing there");
    connector.disconnect(&a).await.expect("disconnect");
    // Another program in its place.
    lab.dpu().fake().kill();
    connector.list().await.expect_err("nobody is there");
    lab.dpu().fake().revive().expect("a new target");
    assert_eq!(connector.import_refusal().await, None);
    lab.assert_harmless();
}

#[tokio::test]
async fn a_target_that_makes_sockets_anywhere_is_refused() {
    let lab = Lab::fake(1);
    let (connector, a) = (connector(&lab, NvmeOf), id("a", 1));
    connector.connect(&a, &lab.nvme_volume("volume-0", MIB).await).await.expect("connect");
    let refused = connector.open_writer(&a).await.err().expect("where is it?");
    assert_eq!(refused.class, ErrorClass::Unsupported, "{refused}");
    assert!(refused.message.contains("-S"), "{refused}");
    assert!(lab.dpu().fake().with(|world| world.vhost.is_empty()), "what failed leaves nothing behind");
    connector.disconnect(&a).await.expect("disconnect");
    lab.assert_harmless();
}

#[tokio::test]
async fn what_an_agent_left_behind_is_deleted() {
    let lab = Lab::fake(1);
    let left = |name: &str, connected| {
        let controller = Controller { bdev: None, readonly: false, connected };
        lab.dpu().fake().with(|world| world.vhost.insert(name.to_owned(), controller));
    };
    left("mpw-a-1", false);
    left("mpw-b-1", true);
    left("mp-boot", false);
    let connector = connector(&lab, NvmeOf);
    connector.list().await.expect("list");
    let there = || lab.dpu().fake().with(|world| world.vhost.keys().cloned().collect::<Vec<_>>());
    assert_eq!(there(), ["mp-boot", "mpw-b-1"], "what somebody has open, and what is not ours, stays");
    connector.disconnect(&id("b", 1)).await.expect_err("it is being written");
    lab.dpu().fake().with(|world| world.vhost.get_mut("mpw-b-1").expect("it stays").connected = false);
    connector.disconnect(&id("b", 1)).await.expect("disconnect");
    assert_eq!(there(), ["mp-boot"]);
    lab.assert_harmless();
}
