//! What every [`StorageFence`] promises, on a [`Bench`] with two DPUs and one storage system.

use crate::emulation::Backend;
use crate::volume::Volume;
use crate::{ErrorClass, StorageFence, VolumeConnector};
use async_trait::async_trait;
use planner::exposure::ExposureId;

/// A storage system with volumes that nobody else uses.
#[async_trait]
pub trait Bench: Send + Sync {
    type Connector: VolumeConnector;
    type Fence: StorageFence;
    /// What an emulator has open: it stays so whatever happens to paths and records.
    type Session: Session;

    /// The connector of a DPU, by number.
    async fn connector(&self, dpu: u8) -> Self::Connector;

    async fn fence(&self) -> Self::Fence;

    /// A read-write volume of 1 MiB that exists; another one for each number.
    async fn volume(&self, number: u8) -> Volume;

    /// What an emulator does with a connection; `None`: the storage refuses.
    async fn open(&self, id: &ExposureId, backend: &Backend) -> Option<Self::Session>;

    /// The volume's first byte as whoever has the volume next will find it.
    async fn first_byte(&self, volume: &Volume) -> u8;
}

#[async_trait]
pub trait Session: Send + Sync {
    /// Writes the first byte; what the storage says of it does not matter, what arrives does.
    async fn write(&self, byte: u8);

    /// Closed, as before every disconnect.
    async fn close(self)
    where
        Self: Sized,
    {
    }
}

fn id(uid: &str, epoch: u64) -> ExposureId {
    ExposureId { uid: uid.to_owned(), epoch }
}

/// What comes before each grant.
async fn admit(fence: &impl StorageFence, volume: &Volume, id: &ExposureId) {
    for when in ["admit", "again: success"] {
        fence.admit(volume, &fence.fence_identity(id)).await.expect(when);
    }
}

pub async fn suite(bench: &impl Bench) {
    identities_are_the_connectors(bench).await;
    late_writes_do_not_arrive(bench).await;
    what_is_not_open_yet_cannot_be_opened(bench).await;
    a_late_fence_hits_nobody(bench).await;
    who_never_connected_is_fenced_too(bench).await;
}

async fn identities_are_the_connectors(bench: &impl Bench) {
    let (connector, fence) = (bench.connector(1).await, bench.fence().await);
    assert_eq!(fence.driver(), connector.driver());
    assert_eq!(fence.kind(), connector.fence());
    for id in [id("a", 1), id("a", 2), id("b-c", 30)] {
        assert_eq!(fence.fence_identity(&id), connector.identity(&id));
    }
}

async fn late_writes_do_not_arrive(bench: &impl Bench) {
    let (old, new, fence) = (bench.connector(1).await, bench.connector(2).await, bench.fence().await);
    let (volume, first, second) = (bench.volume(0).await, id("a", 3), id("b", 4));
    let identity = fence.fence_identity(&first);
    admit(&fence, &volume, &first).await;
    let connection = old.connect(&first, &volume).await.expect("connect");
    let session = bench.open(&first, &connection.backend).await.expect("what was granted can be opened");
    session.write(b'1').await;
    assert_eq!(bench.first_byte(&volume).await, b'1');
    assert!(!fence.verify_fenced(&volume, &identity).await.expect("verify"), "nothing was fenced");

    fence.fence(&volume, &identity).await.expect("fence");
    assert!(fence.verify_fenced(&volume, &identity).await.expect("verify"));
    fence.fence(&volume, &identity).await.expect("again: success");
    assert!(fence.verify_fenced(&volume, &identity).await.expect("verify"));
    assert_eq!(bench.first_byte(&volume).await, b'1', "what was written before is there");
    session.write(b'2').await;
    assert_eq!(bench.first_byte(&volume).await, b'1', "a late write does not arrive");
    let again = old.connect(&first, &volume).await.expect_err("never again under that identity");
    assert_eq!(again.class, ErrorClass::Unauthorized, "{again}");

    admit(&fence, &volume, &second).await;
    let connection = new.connect(&second, &volume).await.expect("the next epoch connects");
    let next = bench.open(&second, &connection.backend).await.expect("and is opened");
    next.write(b'3').await;
    // Of a leader that slept. Refused or not: it lets nobody in.
    let _ = fence.admit(&volume, &identity).await;
    session.write(b'4').await;
    assert_eq!(bench.first_byte(&volume).await, b'3', "only the new holder's writes arrive");
    session.close().await;
    old.disconnect(&first).await.expect("the silent one wakes up and lets go");
    next.write(b'5').await;
    assert_eq!(bench.first_byte(&volume).await, b'5');
    next.close().await;
    new.disconnect(&second).await.expect("disconnect");
}

/// The agent had connected and was about to tell the emulator when it fell silent.
async fn what_is_not_open_yet_cannot_be_opened(bench: &impl Bench) {
    let (old, fence) = (bench.connector(1).await, bench.fence().await);
    let (volume, first) = (bench.volume(1).await, id("a", 1));
    admit(&fence, &volume, &first).await;
    let connection = old.connect(&first, &volume).await.expect("connect");
    fence.fence(&volume, &fence.fence_identity(&first)).await.expect("fence");
    if let Some(session) = bench.open(&first, &connection.backend).await {
        session.write(b'1').await;
        session.close().await;
    }
    assert_eq!(bench.first_byte(&volume).await, 0, "a late open does not reach the volume");
    let listed = old.list().await.expect("list");
    assert!(listed.iter().all(|c| c.size_bytes == 0), "nothing is behind it any more: {listed:?}");
    old.disconnect(&first).await.expect("disconnect");
}

async fn a_late_fence_hits_nobody(bench: &impl Bench) {
    let (old, new, fence) = (bench.connector(1).await, bench.connector(2).await, bench.fence().await);
    let (volume, first, second) = (bench.volume(2).await, id("a", 1), id("b", 2));
    admit(&fence, &volume, &first).await;
    old.connect(&first, &volume).await.expect("connect");
    old.disconnect(&first).await.expect("disconnect");
    admit(&fence, &volume, &second).await;
    let connection = new.connect(&second, &volume).await.expect("the next epoch");
    let session = bench.open(&second, &connection.backend).await.expect("opened");
    fence.fence(&volume, &fence.fence_identity(&first)).await.expect("a request that was under way");
    session.write(b'1').await;
    assert_eq!(bench.first_byte(&volume).await, b'1', "the holder's writes arrive");
    assert_eq!(new.connect(&second, &volume).await.expect("still connected"), connection);
    assert!(fence.verify_fenced(&volume, &fence.fence_identity(&first)).await.expect("verify"));
    assert!(!fence.verify_fenced(&volume, &fence.fence_identity(&second)).await.expect("verify"));
    session.close().await;
    new.disconnect(&second).await.expect("disconnect");
}

/// Granted, and silent before it connected.
async fn who_never_connected_is_fenced_too(bench: &impl Bench) {
    let (old, fence) = (bench.connector(1).await, bench.fence().await);
    let (volume, first) = (bench.volume(3).await, id("a", 7));
    let identity = fence.fence_identity(&first);
    fence.fence(&volume, &identity).await.expect("fence");
    assert!(fence.verify_fenced(&volume, &identity).await.expect("verify"));
    assert_eq!(old.connect(&first, &volume).await.expect_err("refused").class, ErrorClass::Unauthorized);
    let earlier = old.connect(&id("z", 6), &volume).await.expect_err("an older one is refused too");
    assert!(matches!(earlier.class, ErrorClass::Unauthorized | ErrorClass::Conflict), "{earlier}");
    assert_eq!(old.list().await.expect("list"), []);
}
