//! A qcow2 image whose file is a server's, onto a disk: the thread that unpacks asks for parts, and they are fetched for it.

use crate::fetch::{AGAIN, PAUSE, Parts};
use crate::held::Held;
use crate::{CHUNKS, Copied, Error, Kind, Progress, Source, Target, beside, both, broken, qcow2, sink, unpack, until};
use std::io;
use std::sync::atomic::Ordering;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

/// What the thread asks for.
struct Ask {
    first: u64,
    length: usize,
    answer: oneshot::Sender<Result<Vec<u8>, Error>>,
}

/// What was asked for and is not read yet.
struct Asked {
    first: u64,
    length: usize,
    answered: oneshot::Receiver<Result<Vec<u8>, Error>>,
}

/// The side of the thread that unpacks.
struct Remote {
    asks: mpsc::Sender<Ask>,
    expected: Option<Asked>,
}

impl Remote {
    fn ask(&self, first: u64, length: usize) -> io::Result<Asked> {
        let (answer, answered) = oneshot::channel();
        self.asks.blocking_send(Ask { first, length, answer }).map_err(|_| gone())?;
        Ok(Asked { first, length, answered })
    }
}

fn gone() -> io::Error {
    io::Error::other(Error::new(Kind::Busy, "nobody fetches the image any more"))
}

impl qcow2::Parts for Remote {
    fn read(&mut self, first: u64, length: usize) -> io::Result<Vec<u8>> {
        let expected = self.expected.take().filter(|asked| (asked.first, asked.length) == (first, length));
        let asked = match expected {
            Some(asked) => asked,
            None => self.ask(first, length)?,
        };
        asked.answered.blocking_recv().map_err(|_| gone())?.map_err(io::Error::other)
    }

    fn expect(&mut self, first: u64, length: usize) -> io::Result<()> {
        self.expected = Some(self.ask(first, length)?);
        Ok(())
    }
}

pub(crate) async fn copy(
    source: &Source,
    target: Target,
    held: &Held,
    progress: &Progress<'_>,
    mut stopped: std::pin::Pin<&mut impl Future<Output = String>>,
) -> Result<Copied, Error> {
    let begun = async {
        let file = Parts::open(source.clone()).await?;
        let length = qcow2::HEAD.min(usize::try_from(file.length()).unwrap_or(usize::MAX));
        let head = part(&file, 0, length).await?;
        Ok((file, head))
    };
    let (file, head) = until(stopped.as_mut(), begun).await?;
    unpack::begins(source, &target, &head)?;
    let digest = match source.checksum {
        Some(_) => Some(check(source, &target, &file, progress, stopped.as_mut()).await?),
        None => None,
    };
    let (asks, mut asked) = mpsc::channel::<Ask>(1);
    let (image, place, disk, bytes) = (source.clone(), target, held.lend(), file.length());
    let (ending, ended) = oneshot::channel();
    progress.of.store(file.length(), Ordering::Relaxed);
    let writer = tokio::task::spawn_blocking(move || {
        let remote = Remote { asks, expected: None };
        sink::copy(&place, disk, ending, |pieces| unpack::qcow2(&image, &place, remote, bytes, pieces))
    });
    let served = async {
        let mut read = 0;
        while let Some(Ask { first, length, answer }) = asked.recv().await {
            let part = part(&file, first, length).await;
            read += length as u64;
            progress.bytes.store(read, Ordering::Relaxed);
            progress.wake.notify_one();
            // A thread that ended early says why itself.
            let _ = answer.send(part);
        }
        Ok(())
    };
    let served = until(stopped, beside(ended, served)).await;
    drop(asked);
    let written = writer.await.map_err(|panic| broken(source, &panic))?;
    let unpacked = both(served, written)?;
    Ok(Copied { bytes, unpacked, digest })
}

/// Asked for again where the connection broke: [`Parts`] tells whether it is the same file still.
async fn part(file: &Parts, first: u64, length: usize) -> Result<Vec<u8>, Error> {
    let mut tries = 0;
    loop {
        match file.read(first, length).await {
            Err(error) if error.kind == Kind::Unreachable && tries < AGAIN => {
                tries += 1;
                sleep(PAUSE * tries).await;
            }
            read => return read,
        }
    }
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
    let checker = tokio::task::spawn_blocking(move || unpack::check(&image, &place, chunks));
    let fetched = until(stopped, file.whole(&sender, progress)).await;
    drop(sender);
    both(fetched, checker.await.map_err(|panic| broken(source, &panic))?)
}
