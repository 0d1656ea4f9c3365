//! What every [`VolumeConnector`] promises, run on a [`Bench`] that the driver's test provides.

use crate::volume::{Connection, Volume};
use crate::{ErrorClass, VolumeConnector};
use async_trait::async_trait;
use planner::exposure::ExposureId;

/// A storage system with volumes that nobody else uses.
#[async_trait]
pub trait Bench: Send + Sync {
    type Connector: VolumeConnector;

    /// A new handle on the same connector, as after a restart of the agent.
    async fn open(&self) -> Self::Connector;

    /// A read-write volume of this size that exists; another one for each number.
    async fn volume(&self, number: u8, size_bytes: u64) -> Volume;

    /// A volume that the storage does not have.
    async fn missing_volume(&self) -> Volume;

    /// Another part does the connecting, and understands whatever there is.
    fn understands_any_volume(&self) -> bool {
        false
    }

    /// A reader connects. `false`: it is refused as `Unsupported`.
    fn connects_readers(&self) -> bool {
        true
    }

    /// What is connected takes over a new size. `false`: only what connects anew does.
    fn grows_while_connected(&self) -> bool {
        true
    }

    /// What a connection hands out is its own: what was asked of it finds no later one of the same id. `false`: nothing is asked
    /// of it late, or what is handed out goes with something else, which is not there any more when the volume is given back.
    fn hands_out_anew(&self) -> bool {
        true
    }

    /// Makes the volume larger at the storage. Returns when whoever has it connected knows.
    async fn grow(&self, volume: &Volume, size_bytes: u64);
}

const MIB: u64 = 1 << 20;

pub async fn suite(bench: &impl Bench) {
    connects_and_disconnects(bench).await;
    one_writer_at_a_time(bench).await;
    readers_share(bench).await;
    refuses_what_it_does_not_understand(bench).await;
    identities_are_of_the_grant(bench).await;
}

fn id(uid: &str, epoch: u64) -> ExposureId {
    ExposureId { uid: uid.to_owned(), epoch }
}

async fn listed(connector: &impl VolumeConnector) -> Vec<Connection> {
    let mut connections = connector.list().await.expect("list");
    connections.sort_by(|a, b| a.id.cmp(&b.id));
    connections
}

async fn class_of_connect(connector: &impl VolumeConnector, id: &ExposureId, volume: &Volume) -> Option<ErrorClass> {
    connector.connect(id, volume).await.err().map(|error| error.class)
}

async fn connects_and_disconnects(bench: &impl Bench) {
    let connector = bench.open().await;
    assert_eq!(listed(&connector).await, []);
    let volume = bench.volume(0, 4 * MIB).await;
    assert!(bench.understands_any_volume() || volume.driver == connector.driver());
    let (a, b) = (id("a", 1), id("b", 1));

    let first = connector.connect(&a, &volume).await.expect("connect");
    assert_eq!((&first.id, first.size_bytes), (&a, 4 * MIB));
    assert_eq!(connector.connect(&a, &volume).await.expect("again"), first, "the same answer again");
    assert_eq!(listed(&connector).await, std::slice::from_ref(&first));

    if bench.grows_while_connected() {
        bench.grow(&volume, 8 * MIB).await;
        assert_eq!(listed(&connector).await[0].size_bytes, 8 * MIB, "the present size is listed");
        assert_eq!(connector.connect(&a, &volume).await.expect("again").size_bytes, 8 * MIB);
    }

    let second = connector.connect(&b, &bench.volume(1, MIB).await).await.expect("connect another");
    assert_ne!(first.backend, second.backend);
    let after_restart = bench.open().await;
    assert_eq!(listed(&after_restart).await.len(), 2, "connections survive a restart of the agent");

    after_restart.disconnect(&a).await.expect("disconnect");
    assert_eq!(listed(&connector).await, std::slice::from_ref(&second));
    connector.disconnect(&a).await.expect("again: success");
    connector.disconnect(&id("never", 1)).await.expect("never connected: success");
    connector.disconnect(&b).await.expect("disconnect");
    assert_eq!(listed(&connector).await, []);
    if bench.hands_out_anew() {
        let anew = connector.connect(&a, &volume).await.expect("connect anew");
        assert_ne!(anew.backend, first.backend, "a late request for the first connection must not find this one");
        connector.disconnect(&a).await.expect("disconnect");
    }
}

async fn one_writer_at_a_time(bench: &impl Bench) {
    let connector = bench.open().await;
    let (volume, other) = (bench.volume(2, MIB).await, bench.volume(3, MIB).await);
    let (old, new) = (id("a", 1), id("a", 2));
    connector.connect(&old, &volume).await.expect("connect");
    assert_eq!(class_of_connect(&connector, &id("b", 2), &volume).await, Some(ErrorClass::Conflict));
    assert_eq!(
        class_of_connect(&connector, &new, &volume).await,
        Some(ErrorClass::Conflict),
        "another epoch is another"
    );
    assert_eq!(class_of_connect(&connector, &old, &other).await, Some(ErrorClass::Conflict), "one volume per id");
    connector.disconnect(&new).await.expect("another epoch is not connected: success");
    assert_eq!(listed(&connector).await.len(), 1, "refusals change nothing");
    connector.disconnect(&old).await.expect("disconnect");
    connector.connect(&new, &volume).await.expect("the next epoch connects");
    connector.disconnect(&new).await.expect("disconnect");
}

async fn readers_share(bench: &impl Bench) {
    let connector = bench.open().await;
    let volume = Volume { read_only: true, ..bench.volume(4, MIB).await };
    let (a, b) = (id("a", 1), id("b", 1));
    if !bench.connects_readers() {
        assert_eq!(class_of_connect(&connector, &a, &volume).await, Some(ErrorClass::Unsupported));
        assert_eq!(listed(&connector).await, [], "what is refused leaves nothing behind");
        return;
    }
    connector.connect(&a, &volume).await.expect("connect");
    connector.connect(&b, &volume).await.expect("a second reader connects");
    assert_eq!(listed(&connector).await.len(), 2);
    connector.disconnect(&a).await.expect("disconnect");
    connector.disconnect(&b).await.expect("disconnect");
}

async fn refuses_what_it_does_not_understand(bench: &impl Bench) {
    let connector = bench.open().await;
    let volume = bench.volume(5, MIB).await;
    let a = id("a", 1);

    let missing = bench.missing_volume().await;
    assert_eq!(class_of_connect(&connector, &a, &missing).await, Some(ErrorClass::NotFound));
    assert_eq!(listed(&connector).await, [], "what is refused leaves nothing behind");
    if bench.understands_any_volume() {
        return;
    }
    let mut strange = volume.clone();
    strange.attributes.insert("encryptionKMSID".to_owned(), "vault".to_owned());
    let error = connector.connect(&a, &strange).await.expect_err("an attribute that changes what the blocks mean");
    assert_eq!(error.class, ErrorClass::Invalid);
    assert!(error.message.contains("encryptionKMSID"), "the attribute is named: {error}");

    let foreign = Volume { driver: "other.example.com".to_owned(), ..volume };
    assert_eq!(class_of_connect(&connector, &a, &foreign).await, Some(ErrorClass::Invalid), "another driver's volume");
    assert_eq!(listed(&connector).await, [], "what is refused leaves nothing behind");
}

async fn identities_are_of_the_grant(bench: &impl Bench) {
    let connector = bench.open().await;
    let identity = connector.identity(&id("a", 1));
    assert_eq!(bench.open().await.identity(&id("a", 1)), identity, "stable");
    assert_ne!(connector.identity(&id("a", 2)), identity, "another epoch is another identity");
    assert_ne!(connector.identity(&id("b", 1)), identity, "another attachment is another identity");
}
