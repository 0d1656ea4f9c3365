//! Whole copies: from a server that is told what to send, to a file that was full of something else.

mod proxy;
mod stalls;
mod stopped;

use imaging::{
    Algorithm, Checksum, Copied, Disk, Error, FileDisk, Kind, Packing, Progress, Proxies, Rest, Source, Target,
};
use sha2::{Digest, Sha512};
use std::io::{self, Write};
use std::sync::atomic::AtomicU64;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;

const MIB: usize = 1 << 20;
const DISK: usize = 8 * MIB;

/// Answers every request with these bytes, and closes.
async fn server(answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            // Who has read enough goes away.
            let _ = stream.write_all(&answer).await;
        }
    });
    format!("http://{address}/disk?signature=secret")
}

fn answer(headers: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 200 OK\r\n{headers}\r\n").as_bytes(), body].concat()
}

fn measured(body: &[u8]) -> Vec<u8> {
    answer(&format!("Content-Length: {}\r\n", body.len()), body)
}

/// Does not begin or end with zeros.
fn image() -> Vec<u8> {
    (0..3 * MIB + 777).map(|i| if (MIB..2 * MIB).contains(&i) { 0 } else { (i % 251) as u8 + 1 }).collect()
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).expect("packed");
    encoder.finish().expect("packed")
}

struct Case {
    disk: tempfile::NamedTempFile,
    source: Source,
    target: Target,
}

impl Case {
    async fn new(answer: Vec<u8>) -> Self {
        let disk = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(disk.path(), vec![0xff; DISK]).expect("written");
        let source = Source {
            url: server(answer).await,
            checksum: None,
            checksum_field: "CHECKSUM",
            packing: Packing::ByMagic,
            user_agent: "test".to_owned(),
            authorities: imaging::Authorities::Public,
            authorities_field: "CA_BUNDLE",
            access: None,
            proxies: Proxies::default(),
        };
        let target = Target {
            name: "disk /dev/test".to_owned(),
            size_bytes: DISK as u64,
            too_small: "choose a larger disk",
            rest: Rest::Kept,
            wipe: true,
        };
        Self { disk, source, target }
    }

    async fn copy_to(&self, disk: Box<dyn Disk>) -> Result<Copied, Error> {
        let (bytes, of, wake) = (AtomicU64::new(0), AtomicU64::new(0), Notify::new());
        let progress = Progress { bytes: &bytes, of: &of, wake: &wake };
        imaging::copy(&self.source, self.target.clone(), disk, &progress, std::future::pending()).await
    }

    async fn copy(&self) -> Result<Copied, Error> {
        let disk = FileDisk::exclusive(self.disk.path(), DISK as u64, false).expect("opened");
        self.copy_to(Box::new(disk)).await
    }

    fn holds(&self) -> Vec<u8> {
        std::fs::read(self.disk.path()).expect("read")
    }

    fn ends_are_zero(&self) -> bool {
        let holds = self.holds();
        holds.len() == DISK && holds[..MIB].iter().chain(&holds[DISK - MIB..]).all(|byte| *byte == 0)
    }
}

#[tokio::test]
async fn an_image_arrives_raw_packed_and_in_chunks() {
    let image = image();
    let packed = gzip(&image);
    let chunked = |body: &[u8]| {
        let mut sent = Vec::new();
        for part in body.chunks(100_000) {
            sent.extend(format!("{:x}\r\n", part.len()).into_bytes());
            sent.extend([part, b"\r\n"].concat());
        }
        answer("Transfer-Encoding: chunked\r\n", &[sent, b"0\r\n\r\n".to_vec()].concat())
    };
    for sent in [measured(&image), measured(&packed), chunked(&image), chunked(&packed), answer("", &packed)] {
        let case = Case::new(sent).await;
        let copied = case.copy().await.expect("copied");
        assert_eq!(copied.unpacked, image.len() as u64);
        let holds = case.holds();
        assert!(holds[..image.len()] == image[..], "the image is there");
        assert!(
            holds[image.len().next_multiple_of(4096)..DISK - MIB].iter().all(|byte| *byte == 0xff),
            "the rest is kept"
        );
        assert!(holds[DISK - MIB..].iter().all(|byte| *byte == 0), "but for the last MiB");
    }
}

/// For who tells how far a copy is, by percent.
#[tokio::test]
async fn how_much_there_is_is_told_where_the_server_says_it() {
    let packed = gzip(&image());
    for (sent, expected) in [(measured(&packed), packed.len() as u64), (answer("", &packed), 0)] {
        let case = Case::new(sent).await;
        let (bytes, of, wake) = (AtomicU64::new(0), AtomicU64::new(7), Notify::new());
        let progress = Progress { bytes: &bytes, of: &of, wake: &wake };
        let disk = FileDisk::open(case.disk.path(), DISK as u64).expect("opened");
        let copying =
            imaging::copy(&case.source, case.target.clone(), Box::new(disk), &progress, std::future::pending());
        copying.await.expect("copied");
        assert_eq!(of.into_inner(), expected);
    }
}

#[tokio::test]
async fn a_checksum_is_of_what_was_sent_and_ends_what_has_no_length() {
    let packed = gzip(&image());
    let hex: String = Sha512::digest(&packed).iter().map(|byte| format!("{byte:02x}")).collect();
    let mut case = Case::new(measured(&packed)).await;
    case.source.checksum = Some(Checksum { algorithm: Algorithm::Sha512, hex: hex.clone() });
    assert_eq!(case.copy().await.expect("copied").digest, Some(hex.clone()));
    case.source.checksum = Some(format!("sha512:{}", "00".repeat(64)).parse().expect("a checksum"));
    let error = case.copy().await.expect_err("another image");
    assert!(error.message.contains(&hex) && error.message.contains("CHECKSUM") && case.ends_are_zero(), "{error}");

    let image = image();
    let mut case = Case::new(answer("", &image)).await;
    let error = case.copy().await.expect_err("nobody knows that this is all");
    assert!(error.message.contains("Content-Length") && case.ends_are_zero(), "{error}");
    let hex: String = Sha512::digest(&image).iter().map(|byte| format!("{byte:02x}")).collect();
    case.source.checksum = Some(format!("sha512:{hex}").parse().expect("a checksum"));
    case.copy().await.expect("its checksum is its end");
}

#[tokio::test]
async fn half_an_image_is_a_failure_that_names_disk_and_cause_and_cannot_boot() {
    let image = image();
    let packed = gzip(&image);
    let length = |length: usize, body: &[u8]| answer(&format!("Content-Length: {length}\r\n"), body);
    let chunk = answer("Transfer-Encoding: chunked\r\n", &[b"100000\r\n", &image[..MIB], b"\r\n"].concat());
    let garbage = [packed.as_slice(), b"garbage"].concat();
    let mut large = image.clone();
    large.resize(DISK + 1, 7);
    for (name, sent, said, kind) in [
        ("ends before its length", length(image.len(), &image[..2 * MIB]), "it ended after", Kind::Unreachable),
        ("ends before its last chunk", chunk, "it ended after", Kind::Unreachable),
        ("ends before its own end", measured(&packed[..packed.len() / 2]), "gzip stream is damaged", Kind::Invalid),
        (
            "ends where nobody measures",
            answer("", &packed[..packed.len() - 1]),
            "gzip stream is damaged",
            Kind::Invalid,
        ),
        ("has garbage at its end", measured(&garbage), "disk /dev/test", Kind::Invalid),
        ("is qcow2 inside", measured(&gzip(b"QFI\xfb and more")), "compressed qcow2", Kind::Invalid),
        ("is larger than the disk, packed", measured(&gzip(&large)), "choose a larger disk", Kind::Invalid),
    ] {
        let case = Case::new(sent).await;
        let error = case.copy().await.expect_err(name);
        assert_eq!(error.kind, kind, "{name}: {error}");
        assert!(error.message.contains(said) && !error.message.contains("secret"), "{name}: {error}");
        assert!(case.ends_are_zero(), "{name}");
    }
}

#[tokio::test]
async fn what_fails_before_the_first_write_leaves_the_disk_as_it_was() {
    let mut large = image();
    large.resize(DISK + 1, 7);
    let qcow2 = [&b"QFI\xfb"[..], &[0; 100]].concat();
    for (name, sent) in [
        ("is not there", b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec()),
        ("is larger than the disk", measured(&large)),
        ("is read by parts, which the server does not serve", measured(&qcow2)),
        ("ends at once", answer("Content-Length: 100\r\n", b"abc")),
    ] {
        let case = Case::new(sent).await;
        let error = case.copy().await.expect_err(name);
        assert!(case.holds().iter().all(|byte| *byte == 0xff), "{name}: {error}");
    }
}

/// A disk that fails at one of its calls.
struct Failing {
    file: FileDisk,
    at: &'static str,
}

impl Failing {
    fn fails(&self, call: &str) -> io::Result<()> {
        if self.at == call { Err(io::Error::other("the medium failed")) } else { Ok(()) }
    }
}

impl Disk for Failing {
    fn discard(&mut self) -> io::Result<()> {
        self.fails("discard")
    }

    /// At the second MiB: what is there before is half an image.
    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        if offset == 2 * MIB as u64 {
            self.fails("write")?;
        }
        self.file.write(offset, data)
    }

    fn zero(&mut self, offset: u64, length: u64) -> io::Result<()> {
        self.fails("zero")?;
        self.file.zero(offset, length)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.fails("sync")?;
        self.file.sync()
    }
}

#[tokio::test]
async fn a_disk_that_fails_is_named_and_its_ends_are_zeroed() {
    for (at, said) in [("discard", "emptying"), ("write", "writing"), ("zero", "writing"), ("sync", "syncing")] {
        let case = Case::new(measured(&image())).await;
        let file = FileDisk::open(case.disk.path(), DISK as u64).expect("opened");
        let error = case.copy_to(Box::new(Failing { file, at })).await.expect_err(at);
        assert!(error.message.contains(&format!("{said} disk /dev/test: the medium failed")), "{at}: {error}");
        assert_eq!(error.message.contains("zeroing the ends of disk /dev/test failed, too"), at == "sync", "{error}");
        assert!(case.ends_are_zero(), "{at}");
    }
}
