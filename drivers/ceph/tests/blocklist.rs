//! The fence and the connector on a real Ceph, with sessions that are processes.

mod real;

use async_trait::async_trait;
use ceph::{CephFence, Noted};
use planner::exposure::ExposureId;
use ports::conformance::fence::{self, Session};
use ports::conformance::volume;
use ports::emulation::Backend;
use ports::volume::Volume;
use ports::{ErrorClass, StorageFence, VolumeConnector};
use real::{Processes, Sessions, clusters};
use sandbox::ceph::{Lab, MIB};
use std::sync::Arc;
use std::time::Duration;

/// Two DPUs.
struct Site {
    lab: Arc<Lab>,
    dpus: [Processes; 2],
}

impl Site {
    async fn start(test: &str) -> Option<Site> {
        let lab = Arc::new(Lab::start(test).await?);
        let dpus = [Processes::of(&lab), Processes::of(&lab)];
        Some(Site { lab, dpus })
    }

    fn noted(&self, dpu: usize) -> Noted<Processes> {
        let folder = self.lab.path(&format!("dpu-{dpu}"));
        let noted = Noted::new(self.dpus[dpu - 1].clone(), clusters(&self.lab), folder);
        noted.looking_again_after(Duration::ZERO)
    }

    fn ceph_fence(&self) -> CephFence {
        CephFence::new(clusters(&self.lab))
    }
}

fn id(uid: &str, epoch: u64) -> ExposureId {
    ExposureId { uid: uid.to_owned(), epoch }
}

/// A session that is there, whoever asks.
struct Open {
    id: ExposureId,
    sessions: Sessions,
}

#[async_trait]
impl Session for Open {
    async fn write(&self, byte: u8) {
        if let Some(session) = self.sessions.lock().await.get_mut(&self.id) {
            session.write(byte).await;
        }
    }
}

#[async_trait]
impl fence::Bench for Site {
    type Connector = Noted<Processes>;
    type Fence = CephFence;
    type Session = Open;

    async fn connector(&self, dpu: u8) -> Noted<Processes> {
        self.noted(dpu.into())
    }

    async fn fence(&self) -> CephFence {
        self.ceph_fence()
    }

    async fn volume(&self, number: u8) -> Volume {
        self.lab.volume(&format!("volume-{number}"), MIB).await
    }

    async fn open(&self, id: &ExposureId, _: &Backend) -> Option<Open> {
        for dpu in &self.dpus {
            if dpu.all.lock().await.contains_key(id) {
                return Some(Open { id: id.clone(), sessions: dpu.all.clone() });
            }
        }
        None
    }

    async fn first_byte(&self, volume: &Volume) -> u8 {
        self.lab.first_byte(volume).await
    }
}

#[async_trait]
impl volume::Bench for Site {
    type Connector = Noted<Processes>;

    async fn open(&self) -> Noted<Processes> {
        self.noted(1)
    }

    async fn volume(&self, number: u8, size_bytes: u64) -> Volume {
        self.lab.volume(&format!("volume-{number}"), size_bytes).await
    }

    async fn missing_volume(&self) -> Volume {
        Lab::image("missing")
    }

    fn connects_readers(&self) -> bool {
        false
    }

    fn grows_while_connected(&self) -> bool {
        false
    }

    /// A process is named by its id, and ends at once.
    fn hands_out_anew(&self) -> bool {
        false
    }

    async fn grow(&self, _: &Volume, _: u64) {
        panic!("it does not grow while it is connected");
    }
}

#[tokio::test]
async fn the_fence_conforms() {
    let Some(site) = Site::start("the_fence_conforms").await else { return };
    fence::suite(&site).await;
}

#[tokio::test]
async fn the_connector_conforms() {
    let Some(site) = Site::start("the_connector_conforms").await else { return };
    volume::suite(&site).await;
}

/// The agent was killed after its target opened the image, and before anybody knew as whom.
#[tokio::test]
async fn a_session_that_nobody_noted_is_not_kept() {
    const NAME: &str = "a_session_that_nobody_noted_is_not_kept";
    let Some(site) = Site::start(NAME).await else { return };
    let (volume, a) = (site.lab.volume("v", MIB).await, id("a", 1));
    let unnoted = site.dpus[0].connect(&a, &volume).await.expect("connect");
    let process = || async { site.dpus[0].all.lock().await.get(&a).and_then(real::Session::number) };
    let before = process().await;
    let listed = site.noted(1).list().await.expect("list");
    assert_eq!(listed[0].size_bytes, 0, "nothing of it is shown");
    site.noted(1).connect(&a, &volume).await.expect("connect");
    assert_ne!(process().await, before, "another session");
    assert_eq!(site.noted(1).list().await.expect("list")[0].size_bytes, unnoted.size_bytes);

    let fence = site.ceph_fence();
    fence.fence(&volume, &fence.fence_identity(&a)).await.expect("fence");
    let said = site.dpus[0].all.lock().await.get_mut(&a).expect("its session").write(b'1').await;
    assert_eq!(said.as_deref(), Some("ConnectionShutdown"), "the session of the second attempt is the one refused");
}

/// A target that crashed is a new session under the same grant, and both are refused with it.
#[tokio::test]
async fn every_session_of_a_grant_is_fenced() {
    const NAME: &str = "every_session_of_a_grant_is_fenced";
    let Some(site) = Site::start(NAME).await else { return };
    let (volume, a, noted) = (site.lab.volume("v", MIB).await, id("a", 1), site.noted(1));
    noted.connect(&a, &volume).await.expect("connect");
    // Its process does not hear of it that the agent lost it.
    let lost = site.dpus[0].all.lock().await.remove(&a).expect("its session");
    noted.connect(&a, &volume).await.expect("connect");
    let fence = site.ceph_fence();
    let whom = fence.fence_identity(&a);
    fence.fence(&volume, &whom).await.expect("fence");
    assert!(fence.verify_fenced(&volume, &whom).await.expect("verify"));
    let mut both = [lost, site.dpus[0].all.lock().await.remove(&a).expect("its session")];
    for session in &mut both {
        assert_eq!(session.write(b'1').await.as_deref(), Some("ConnectionShutdown"));
    }
    assert_eq!(site.lab.first_byte(&volume).await, 0);
}

/// Notes are the image's own: neither a clone has them, nor who gets the name later.
#[tokio::test]
async fn a_fence_is_of_one_image() {
    let Some(site) = Site::start("a_fence_is_of_one_image").await else { return };
    let (volume, a, fence) = (site.lab.volume("v", MIB).await, id("a", 5), site.ceph_fence());
    fence.fence(&volume, &fence.fence_identity(&a)).await.expect("fence");
    let refused = site.noted(1).connect(&a, &volume).await.expect_err("refused");
    assert_eq!(refused.class, ErrorClass::Unauthorized, "{refused}");
    for words in [["snap", "create", "v@s"], ["snap", "protect", "v@s"]] {
        site.lab.ceph.run("rbd", words).await.expect("a snapshot");
    }
    site.lab.ceph.run("rbd", ["clone", "v@s", "clone"]).await.expect("a clone");
    let b = id("b", 1);
    site.noted(1).connect(&b, &Lab::image("clone")).await.expect("a clone is another volume");
    site.noted(1).disconnect(&b).await.expect("disconnect");
    let foreign = fence.fence(&volume, "nqn.2014-08.org.nvmexpress:host").await.expect_err("no identity of ours");
    assert_eq!(foreign.class, ErrorClass::Invalid, "{foreign}");
    let mut elsewhere = volume.clone();
    elsewhere.attributes.insert("clusterID".to_owned(), "d".to_owned());
    let unknown = fence.fence(&elsewhere, &fence.fence_identity(&a)).await.expect_err("an unknown cluster");
    assert!(unknown.message.contains("known: c"), "{unknown}");
}
