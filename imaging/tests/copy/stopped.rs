//! Copies that end early: by a disk that fails, by who asked for them, by being dropped. Nothing writes the disk afterwards, and nobody
//! waits for a network that says nothing.

use super::{Case, DISK, Failing, MIB, image, measured};
use imaging::{Disk, FileDisk, Kind, Progress};
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

/// Less than a server may be silent (60 s), and far more than this takes.
const SOON: Duration = Duration::from_secs(30);

/// Sends this much of an answer and then nothing, as long as the test lasts.
async fn silent(answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).await;
        let _ = stream.write_all(&answer).await;
        std::future::pending::<()>().await;
    });
    format!("http://{address}/disk")
}

/// All but the last byte: three pieces, and some of a fourth one.
async fn almost() -> Case {
    let mut case = Case::new(Vec::new()).await;
    let mut answer = measured(&image());
    answer.pop();
    case.source.url = silent(answer).await;
    case
}

#[tokio::test]
async fn a_disk_that_fails_ends_a_copy_whose_server_is_silent() {
    let case = almost().await;
    let file = FileDisk::open(case.disk.path(), DISK as u64).expect("opened");
    let copied = timeout(SOON, case.copy_to(Box::new(Failing { file, at: "write" }))).await;
    let error = copied.expect("the disk's error ends it").expect_err("the disk failed");
    assert!(error.message.contains("writing disk /dev/test: the medium failed"), "{error}");
    assert!(case.ends_are_zero());
}

#[tokio::test]
async fn who_stops_a_copy_is_told_as_its_reason() {
    let case = almost().await;
    let (disk, mut watched) = Watched::new(&case);
    let stopped = async {
        watched.writes.recv().await;
        "its time is over".to_owned()
    };
    let (bytes, of, wake) = (AtomicU64::new(0), AtomicU64::new(0), Notify::new());
    let progress = Progress { bytes: &bytes, of: &of, wake: &wake };
    drop(std::mem::replace(&mut watched.go, mpsc::channel().0));
    let copied =
        timeout(SOON, imaging::copy(&case.source, case.target.clone(), Box::new(disk), &progress, stopped)).await;
    let error = copied.expect("it ends").expect_err("it was stopped");
    assert_eq!((error.kind, error.message.as_str()), (Kind::Busy, "its time is over"));
    assert!(case.ends_are_zero());
}

/// A disk that waits in each write until it may go on, and says what was done.
pub(super) struct Watched {
    file: FileDisk,
    calls: Arc<Mutex<Vec<&'static str>>>,
    began: UnboundedSender<()>,
    go: mpsc::Receiver<()>,
}

/// The test's side.
pub(super) struct Watch {
    calls: Arc<Mutex<Vec<&'static str>>>,
    pub(super) writes: UnboundedReceiver<()>,
    /// Dropped: all may go on.
    pub(super) go: mpsc::Sender<()>,
}

impl Watched {
    pub(super) fn new(case: &Case) -> (Self, Watch) {
        let file = FileDisk::open(case.disk.path(), DISK as u64).expect("opened");
        let calls = Arc::new(Mutex::new(Vec::new()));
        let ((began, writes), (go, may)) = (unbounded_channel(), mpsc::channel());
        (Self { file, calls: calls.clone(), began, go: may }, Watch { calls, writes, go })
    }

    fn say(&self, call: &'static str) {
        self.calls.lock().expect("no panic").push(call);
    }
}

impl Disk for Watched {
    fn discard(&mut self) -> io::Result<()> {
        self.say("discard");
        Ok(())
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.say("write");
        let _ = self.began.send(());
        let _ = self.go.recv();
        let written = self.file.write(offset, data);
        self.say("written");
        written
    }

    fn zero(&mut self, offset: u64, length: u64) -> io::Result<()> {
        self.say("zero");
        self.file.zero(offset, length)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.say("sync");
        self.file.sync()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.say("closed");
    }
}

/// Its drop waits for the write under way, and takes the disk away from the threads: what is closed is written by nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_is_dropped_has_closed_its_disk() {
    for case in [almost().await, Case::new(measured(&image())).await] {
        let case = Arc::new(case);
        let (disk, mut watch) = Watched::new(&case);
        let copying = {
            let case = case.clone();
            tokio::spawn(async move { case.copy_to(Box::new(disk)).await })
        };
        timeout(SOON, watch.writes.recv()).await.expect("soon").expect("it writes");
        copying.abort();
        drop(watch.go);
        let dropped = timeout(SOON, copying).await.expect("soon").expect_err("dropped");
        assert!(dropped.is_cancelled(), "{dropped}");
        let calls = watch.calls.lock().expect("no panic").clone();
        let zeroed = ["write", "written", "write", "written", "sync", "closed"];
        assert_eq!(calls[..3], ["discard", "write", "written"], "{calls:?}");
        assert!(calls.ends_with(&zeroed), "{calls:?}");
        assert!(case.ends_are_zero());
    }
}

/// As the installer has it: its one thread drops the copy, and begins the next one on the same disk.
#[tokio::test]
async fn a_disk_whose_copy_was_dropped_is_written_by_the_next_one() {
    let first = almost().await;
    let (disk, mut watch) = Watched::new(&first);
    drop(std::mem::replace(&mut watch.go, mpsc::channel().0));
    tokio::select! {
        biased;
        copied = first.copy_to(Box::new(disk)) => panic!("the server is silent: {copied:?}"),
        began = watch.writes.recv() => began.expect("it writes"),
    }
    assert_eq!(watch.calls.lock().expect("no panic").last(), Some(&"closed"));
    let mut second = Case::new(measured(&image())).await;
    second.disk = first.disk;
    second.copy().await.expect("copied");
    assert!(second.holds()[..3 * MIB] == image()[..3 * MIB], "the second image, whole");
}

/// A thread that panics is a failure like others.
struct Panics(FileDisk);

impl Disk for Panics {
    fn discard(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        assert_ne!(offset, 2 * MIB as u64, "the driver has a bug");
        self.0.write(offset, data)
    }

    fn zero(&mut self, offset: u64, length: u64) -> io::Result<()> {
        self.0.zero(offset, length)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync()
    }
}

#[tokio::test]
async fn a_disk_that_panics_ends_its_copy_and_its_ends_are_zeroed() {
    let case = almost().await;
    let disk = Panics(FileDisk::open(case.disk.path(), DISK as u64).expect("opened"));
    let error = timeout(SOON, case.copy_to(Box::new(disk))).await.expect("soon").expect_err("a panic");
    assert!(error.message.contains("panic"), "{error}");
    assert!(case.ends_are_zero());
}
