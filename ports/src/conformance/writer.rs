//! What a [`VolumeWriter`] promises, run on a [`Bench`] that the driver's test provides.

use super::volume;
use crate::volume::{Volume, VolumeWriter};
use crate::{ErrorClass, PortError, VolumeConnector};
use async_trait::async_trait;
use planner::exposure::ExposureId;

#[async_trait]
pub trait Bench: volume::Bench {
    /// Makes every byte of a volume that nobody has connected this one.
    async fn fill(&self, volume: &Volume, byte: u8);

    /// All of a volume that nobody has connected.
    async fn read(&self, volume: &Volume) -> Vec<u8>;
}

const MIB: u64 = 1 << 20;
const SIZE: u64 = 8 * MIB;

type Writer = Box<dyn VolumeWriter>;

pub async fn suite(bench: &impl Bench) {
    what_is_written_is_there(bench).await;
    one_writer_at_a_time(bench).await;
    a_writer_ends_with_the_connection(bench).await;
}

fn id(uid: &str) -> ExposureId {
    ExposureId { uid: uid.to_owned(), epoch: 1 }
}

fn pattern(length: u64) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8 + 1).collect()
}

/// Writers block.
async fn on_a_thread<T: Send + 'static>(
    mut writer: Writer,
    work: impl FnOnce(&mut Writer) -> T + Send + 'static,
) -> (Writer, T) {
    let done = tokio::task::spawn_blocking(move || {
        let result = work(&mut writer);
        (writer, result)
    });
    done.await.expect("the writer's thread")
}

fn class<T>(result: Result<T, PortError>) -> Option<ErrorClass> {
    result.err().map(|error| error.class)
}

async fn what_is_written_is_there(bench: &impl Bench) {
    let (connector, a) = (bench.open().await, id("a"));
    let volume = bench.volume(10, SIZE).await;
    bench.fill(&volume, 0xee).await;
    assert_eq!(class(connector.open_writer(&a).await), Some(ErrorClass::NotFound), "nothing is connected");
    connector.connect(&a, &volume).await.expect("connect");
    let data = pattern(3 * MIB + 4096);
    // A block, a piece that does not begin on a mebibyte, nothing up to the last block.
    let (middle, last) = (MIB + 8192, SIZE - 4096);
    let mut expected = vec![0; usize::try_from(SIZE).expect("a size")];
    for (offset, bytes) in [(0, &data[..4096]), (middle, &data[..]), (last, &data[..4096])] {
        let offset = usize::try_from(offset).expect("an offset");
        expected[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    for again in [false, true] {
        let data = data.clone();
        let writer = connector.open_writer(&a).await.expect("open");
        let write = move |writer: &mut Writer| {
            writer.discard()?;
            writer.write(0, &data[..4096])?;
            writer.zero(4096, middle - 4096)?;
            writer.write(middle, &data)?;
            writer.zero(middle + data.len() as u64, last - middle - data.len() as u64)?;
            writer.write(last, &data[..4096])?;
            writer.sync()
        };
        let (writer, written) = on_a_thread(writer, write).await;
        written.unwrap_or_else(|error| panic!("written, again: {again}: {error}"));
        drop(writer);
        connector.close_writer(&a).await.expect("close");
        connector.close_writer(&a).await.expect("again: success");
    }
    connector.disconnect(&a).await.expect("disconnect");
    assert!(bench.read(&volume).await == expected, "the volume holds what was written, and zeros");
}

async fn one_writer_at_a_time(bench: &impl Bench) {
    let (connector, a) = (bench.open().await, id("b"));
    let volume = bench.volume(11, SIZE).await;
    connector.connect(&a, &volume).await.expect("connect");
    let writer = connector.open_writer(&a).await.expect("open");
    assert_eq!(class(bench.open().await.open_writer(&a).await), Some(ErrorClass::Busy), "it is being written");
    let (writer, written) = on_a_thread(writer, |writer| writer.write(0, &[1; 4096])).await;
    written.expect("the first one still writes");
    drop(writer);
    // As an agent that ended left it, another one finds it.
    let again = bench.open().await;
    assert_eq!(again.list().await.expect("list").len(), 1, "what is written counts as connected");
    let writer = again.open_writer(&a).await.expect("what is left behind is ended");
    let (writer, synced) = on_a_thread(writer, |writer| writer.sync()).await;
    synced.expect("sync");
    drop(writer);
    again.disconnect(&a).await.expect("disconnect");
}

async fn a_writer_ends_with_the_connection(bench: &impl Bench) {
    let (connector, a) = (bench.open().await, id("c"));
    let volume = bench.volume(12, SIZE).await;
    bench.fill(&volume, 0).await;
    connector.connect(&a, &volume).await.expect("connect");
    drop(connector.open_writer(&a).await.expect("open"));
    connector.disconnect(&a).await.expect("disconnect, with what a writer left behind");
    assert_eq!(connector.list().await.expect("list"), []);
    assert!(bench.read(&volume).await.iter().all(|byte| *byte == 0), "nothing was written");
    connector.connect(&a, &volume).await.expect("it can be connected again");
    connector.disconnect(&a).await.expect("disconnect");
}
