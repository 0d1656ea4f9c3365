//! A qcow2 image whose file is a server's, onto a disk: the writing thread asks for parts, and they are fetched for it.

use crate::fetch::Parts;
use crate::{CHUNKS, Copied, Disk, Error, Kind, Progress, Source, Target, both, broken, qcow2, sink, until};
use std::io;
use std::sync::atomic::Ordering;
use tokio::sync::{mpsc, oneshot};

/// What the writer asks for.
struct Ask {
    first: u64,
    length: usize,
    answer: oneshot::Sender<Result<Vec<u8>, Error>>,
}

/// The writer's side.
struct Remote(mpsc::Sender<Ask>);

impl qcow2::Parts for Remote {
    fn read(&mut self, first: u64, length: usize) -> io::Result<Vec<u8>> {
        let gone = || io::Error::other(Error::new(Kind::Busy, "nobody fetches the image any more"));
        let (answer, answered) = oneshot::channel();
        self.0.blocking_send(Ask { first, length, answer }).map_err(|_| gone())?;
        answered.blocking_recv().map_err(|_| gone())?.map_err(io::Error::other)
    }
}

pub(crate) async fn copy(
    source: &Source,
    target: Target,
    mut disk: Box<dyn Disk>,
    progress: &Progress<'_>,
    mut stopped: std::pin::Pin<&mut impl Future<Output = String>>,
) -> Result<Copied, Error> {
    let file = until(stopped.as_mut(), Parts::open(source.clone())).await?;
    let digest = match source.checksum {
        Some(_) => Some(check(source, &target, &file, progress, stopped.as_mut()).await?),
        None => None,
    };
    let (asks, mut asked) = mpsc::channel::<Ask>(1);
    let (image, place, bytes) = (source.clone(), target.clone(), file.length());
    let writer =
        tokio::task::spawn_blocking(move || sink::write_qcow2(&image, &place, disk.as_mut(), Remote(asks), bytes));
    let served = async {
        let mut read = 0;
        while let Some(Ask { first, length, answer }) = asked.recv().await {
            let part = file.read(first, length).await;
            read += length as u64;
            progress.bytes.store(read, Ordering::Relaxed);
            progress.wake.notify_one();
            // A writer that ended early says why itself.
            let _ = answer.send(part);
        }
        Ok(())
    };
    let served = until(stopped, served).await;
    drop(asked);
    let written = writer.await.map_err(|panic| broken(source, &panic))?;
    let unpacked = both(served, written)?;
    Ok(Copied { bytes, unpacked, digest })
}

/// Reads all of the file and compares its checksum.
async fn check(
    source: &Source,
    target: &Target,
    file: &Parts,
    progress: &Progress<'_>,
    stopped: std::pin::Pin<&mut impl Future<Output = String>>,
) -> Result<String, Error> {
    let (sender, chunks) = mpsc::channel(CHUNKS);
    let (image, place) = (source.clone(), target.clone());
    let checker = tokio::task::spawn_blocking(move || sink::check(&image, &place, chunks));
    let fetched = until(stopped, file.whole(&sender, progress)).await;
    drop(sender);
    both(fetched, checker.await.map_err(|panic| broken(source, &panic))?)
}
