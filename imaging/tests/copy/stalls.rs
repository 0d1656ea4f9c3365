//! Servers that stall in the middle of an image. The clock stands still but for what a test lets pass, so the limits are those that count.

use super::stopped::Watched;
use super::{Case, MIB};
use imaging::{Algorithm, Checksum, Copied, Error, Kind};
use sha2::{Digest, Sha256};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, error::TryRecvError, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time;

/// How long a server may say nothing.
const LIMIT: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);
/// By a clock that does not stand still, and far more than a test takes.
const SOON: Duration = Duration::from_secs(60);
/// What comes before the server stalls: two pieces of the disk, so it is known when all of it has arrived.
const BEFORE: usize = 2 * MIB;

/// No zeros in it: each piece of a MiB is written at once.
fn image() -> Vec<u8> {
    (0..3 * MIB + 777).map(|i| (i % 251) as u8 + 1).collect()
}

fn checksum() -> Checksum {
    let hex = Sha256::digest(image()).iter().map(|byte| format!("{byte:02x}")).collect();
    Checksum { algorithm: Algorithm::Sha256, hex }
}

/// One request, which the test answers.
struct Asked {
    range: Option<String>,
    stream: TcpStream,
}

impl Asked {
    async fn answer(&mut self, status: &str, headers: &str, body: &[u8]) {
        let head = format!("HTTP/1.1 {status}\r\n{headers}\r\n");
        self.stream.write_all(&[head.as_bytes(), body].concat()).await.expect("sent");
    }
}

async fn listening() -> (String, UnboundedReceiver<Asked>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let address = listener.local_addr().expect("an address");
    let (asking, asked) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.expect("a request"));
            }
            let request = String::from_utf8(request).expect("text").to_lowercase();
            let range = request.lines().find_map(|line| line.strip_prefix("range: ")).map(str::to_owned);
            let _ = asking.send(Asked { range, stream });
        }
    });
    (format!("http://{address}/disk"), asked)
}

/// Whatever can go on without more time has gone on. Two threads are about, whose end nobody waits for here.
async fn settled() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

async fn passes(duration: Duration) {
    // tokio's timers ring in the millisecond after their time.
    const RINGS: Duration = Duration::from_millis(2);
    settled().await;
    time::advance(duration + RINGS).await;
    settled().await;
}

/// A limit for what would wait for ever while the clock stands still.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    let ((late, is_late), (done, is_done)) = (oneshot::channel(), mpsc::channel::<()>());
    std::thread::spawn(move || {
        if is_done.recv_timeout(SOON) == Err(RecvTimeoutError::Timeout) {
            let _ = late.send(());
        }
    });
    let result = tokio::select! {
        biased;
        result = work => result,
        Ok(()) = is_late => panic!("not within {SOON:?}"),
    };
    drop(done);
    result
}

/// A copy whose server has sent [`BEFORE`] bytes, all of which are on the disk, and nothing since.
struct Stalled {
    case: Arc<Case>,
    copying: JoinHandle<Result<Copied, Error>>,
    first: Asked,
    asked: UnboundedReceiver<Asked>,
}

impl Stalled {
    async fn new(checksum: Option<Checksum>) -> Self {
        let mut case = Case::new(Vec::new()).await;
        let (url, mut asked) = listening().await;
        (case.source.url, case.source.checksum) = (url, checksum);
        let (disk, mut watch) = Watched::new(&case);
        let case = Arc::new(case);
        let copying = {
            let case = case.clone();
            tokio::spawn(async move { case.copy_to(Box::new(disk)).await })
        };
        let mut first = asked.recv().await.expect("it is asked");
        // The thread that writes keeps it from going on by itself.
        time::pause();
        drop(watch.go);
        let headers = format!("ETag: \"1\"\r\nContent-Length: {}\r\n", image().len());
        first.answer("200 OK", &headers, &image()[..BEFORE]).await;
        for _ in 0..BEFORE / MIB {
            watch.writes.recv().await.expect("it writes");
        }
        Self { case, copying, first, asked }
    }

    /// It is over, and how.
    async fn ended(self) -> (Arc<Case>, Result<Copied, Error>, bool) {
        let mut asked = self.asked;
        let copied = self.copying.await.expect("no panic");
        let again = !matches!(asked.try_recv(), Err(TryRecvError::Empty | TryRecvError::Disconnected));
        (self.case, copied, again)
    }
}

fn part(version: &str, first: usize) -> String {
    let length = image().len();
    let range = format!("bytes {first}-{}/{length}", length - 1);
    format!("ETag: \"{version}\"\r\nContent-Range: {range}\r\nContent-Length: {}\r\n", length - first)
}

#[tokio::test]
async fn a_server_that_stalls_for_less_than_the_limit_goes_on_and_the_image_is_whole() {
    soon(async {
        let mut stalled = Stalled::new(None).await;
        passes(LIMIT - SECOND).await;
        stalled.first.stream.write_all(&image()[BEFORE..]).await.expect("sent");
        let (case, copied, again) = stalled.ended().await;
        assert_eq!(copied.map(|copied| copied.unpacked), Ok(image().len() as u64));
        assert!(case.holds()[..image().len()] == image()[..], "the image is there");
        assert!(!again, "it was asked once");
    })
    .await;
}

#[tokio::test]
async fn after_a_longer_stall_the_rest_of_the_same_file_is_asked_for_and_the_image_is_whole() {
    soon(async {
        let mut stalled = Stalled::new(Some(checksum())).await;
        passes(LIMIT + SECOND).await;
        passes(SECOND).await;
        let mut second = stalled.asked.recv().await.expect("it is asked again");
        assert_eq!(second.range, Some(format!("bytes={BEFORE}-{}", image().len() - 1)));
        second.answer("206 Partial Content", &part("1", BEFORE), &image()[BEFORE..]).await;
        let (case, copied, again) = stalled.ended().await;
        assert_eq!(copied.map(|copied| copied.digest), Ok(Some(checksum().hex)));
        assert!(case.holds()[..image().len()] == image()[..], "the image is there");
        assert!(!again, "it was asked twice");
    })
    .await;
}

#[tokio::test]
async fn what_is_not_the_rest_of_the_same_file_does_not_go_on_there() {
    let length = format!("ETag: \"1\"\r\nContent-Length: {}\r\n", image().len());
    for (name, status, headers, from) in [
        ("another version of it", "206 Partial Content", part("2", BEFORE), BEFORE),
        ("another part of it", "206 Partial Content", part("1", MIB), MIB),
        ("all of it", "200 OK", length, 0),
        ("nothing", "404 Not Found", "Content-Length: 0\r\n".to_owned(), image().len()),
    ] {
        soon(async {
            let mut stalled = Stalled::new(Some(checksum())).await;
            passes(LIMIT + SECOND).await;
            passes(SECOND).await;
            let mut second = stalled.asked.recv().await.expect("it is asked again");
            // Who wants none of it goes away.
            let answer = format!("HTTP/1.1 {status}\r\n{headers}\r\n");
            let _ = second.stream.write_all(&[answer.as_bytes(), &image()[from..]].concat()).await;
            failed(stalled, name).await;
        })
        .await;
        time::resume();
    }
}

#[tokio::test]
async fn a_longer_stall_of_what_has_no_checksum_is_a_failure_that_says_so() {
    soon(async {
        let stalled = Stalled::new(None).await;
        passes(LIMIT + SECOND).await;
        failed(stalled, "nothing tells whether both halves are of one file").await;
    })
    .await;
}

#[tokio::test]
async fn a_server_that_stalls_each_time_is_given_up_and_its_silence_is_the_cause() {
    soon(async {
        let mut stalled = Stalled::new(Some(checksum())).await;
        passes(LIMIT + SECOND).await;
        let mut silent = Vec::new();
        for pause in 1..=3 {
            passes(SECOND * pause).await;
            silent.push(stalled.asked.recv().await.expect("it is asked again"));
            passes(LIMIT + SECOND).await;
        }
        failed(stalled, "three times nothing").await;
    })
    .await;
}

/// Half an image never boots, and a person reads why.
async fn failed(stalled: Stalled, name: &str) {
    let (case, copied, again) = stalled.ended().await;
    let error = copied.expect_err(name);
    assert_eq!(error.kind, Kind::Unreachable, "{name}: {error}");
    assert!(error.message.contains("nothing came for 60 s"), "{name}: {error}");
    assert!(case.ends_are_zero() && !again, "{name}");
}
