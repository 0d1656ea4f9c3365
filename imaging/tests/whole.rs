//! An image is whole or it is a failure: where its file is another one when the rest of it is asked for, where the disk fails, at whatever
//! megabyte, and where one bit of its checksum, or of itself, is another one.

use imaging::{Disk, Error, FileDisk, Packing, Progress, Proxies, Rest, Source, Target};
use sha2::{Digest, Sha256};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tempfile::NamedTempFile;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;

const MIB: usize = 1 << 20;
const DISK: usize = 8 * MIB;

/// Answers each request with what is made of its head and its number, and closes.
async fn server(answer: impl Fn(usize, &str) -> Vec<u8> + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let mut number = 0;
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).await.unwrap_or_default();
            let head = String::from_utf8_lossy(&request[..length]).to_lowercase();
            // Who has read enough goes away.
            let _ = stream.write_all(&answer(number, &head)).await;
            number += 1;
        }
    });
    format!("http://{address}/disk")
}

fn measured(body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
}

fn sha256(body: &[u8]) -> String {
    Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn image(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i % 251) as u8 + 1).collect()
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    encoder.write_all(data).expect("packed");
    encoder.finish().expect("packed")
}

struct Case {
    disk: NamedTempFile,
    size: usize,
    source: Source,
}

impl Case {
    fn new(url: String, checksum: &str, size: usize) -> Self {
        let disk = NamedTempFile::new().expect("a file");
        std::fs::write(disk.path(), vec![0xff; size]).expect("written");
        let source = Source {
            url,
            checksum: Some(format!("sha256:{checksum}").parse().expect("a checksum")),
            checksum_field: "CHECKSUM",
            packing: Packing::ByMagic,
            user_agent: "test".to_owned(),
            authorities: imaging::Authorities::Public,
            authorities_field: "CA_BUNDLE",
            access: None,
            proxies: Proxies::default(),
        };
        Self { disk, size, source }
    }

    async fn copy_to(&self, disk: Box<dyn Disk>) -> Result<u64, Error> {
        let target = Target {
            name: "disk /dev/test".to_owned(),
            size_bytes: self.size as u64,
            too_small: "choose a larger disk",
            rest: Rest::Kept,
            wipe: true,
        };
        let (bytes, of, wake) = (AtomicU64::new(0), AtomicU64::new(0), Notify::new());
        let progress = Progress { bytes: &bytes, of: &of, wake: &wake };
        let copied = imaging::copy(&self.source, target, disk, &progress, std::future::pending()).await;
        copied.map(|copied| copied.unpacked)
    }

    async fn copy(&self) -> Result<u64, Error> {
        self.copy_to(Box::new(opened(self.disk.path(), self.size))).await
    }

    fn holds(&self) -> Vec<u8> {
        std::fs::read(self.disk.path()).expect("read")
    }

    fn ends_are_zero(&self) -> bool {
        let holds = self.holds();
        holds.len() == self.size && holds[..MIB].iter().chain(&holds[self.size - MIB..]).all(|byte| *byte == 0)
    }
}

fn opened(path: &Path, size: usize) -> FileDisk {
    FileDisk::exclusive(path, size as u64, false).expect("opened")
}

/// Breaks off in the middle, and serves the rest with what stands in `again`: the headers of both answers say which file it is.
async fn broken_off(body: &Arc<Vec<u8>>, first: &'static str, again: &'static str, serves_parts: bool) -> String {
    let (body, half) = (body.clone(), body.len() / 2);
    server(move |number, head| {
        let all = body.len();
        if number == 0 {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {all}\r\n{first}\r\n");
            return [head.as_bytes(), &body[..half]].concat();
        }
        let from = head.split("range: bytes=").nth(1).and_then(|rest| rest.split('-').next()?.parse::<usize>().ok());
        match from.filter(|_| serves_parts) {
            Some(from) => {
                let (length, last) = (all - from, all - 1);
                let head = format!(
                    "HTTP/1.1 206 Partial Content\r\nContent-Length: {length}\r\nContent-Range: bytes {from}-{last}/{all}\r\n{again}\r\n"
                );
                [head.as_bytes(), &body[from..]].concat()
            }
            None => [format!("HTTP/1.1 200 OK\r\nContent-Length: {all}\r\n{again}\r\n").as_bytes(), &body].concat(),
        }
    })
    .await
}

/// The rest of an image is taken of the same file only, though it would be the same bytes: a checksum is not to be what finds that out
/// after an hour, and without the file's own word nobody knows which half was wrong.
#[tokio::test]
async fn what_was_broken_off_goes_on_with_the_same_file_alone() {
    const ETAG: &str = "ETag: \"a\"\r\n";
    const DATE: &str = "Last-Modified: Sat, 28 Nov 2026 10:00:00 GMT\r\n";
    let image = image(3 * MIB + 777);
    let zstd = zstd::encode_all(&image[..], 0).expect("packed");
    let mut running = tokio::task::JoinSet::new();
    for (format, body) in [("raw", image.clone()), ("gzip", gzip(&image)), ("zstd", zstd)] {
        let (body, digest) = (Arc::new(body.clone()), sha256(&body));
        for (first, again, serves_parts, goes_on) in [
            (ETAG, ETAG, true, true),
            (DATE, DATE, true, true),
            ("", "", true, true),
            (ETAG, "ETag: \"b\"\r\n", true, false),
            (ETAG, "ETag: W/\"a\"\r\n", true, false),
            (ETAG, "", true, false),
            ("", ETAG, true, false),
            (DATE, "Last-Modified: Sat, 28 Nov 2026 10:00:01 GMT\r\n", true, false),
            (ETAG, ETAG, false, false),
        ] {
            let (body, digest, image) = (body.clone(), digest.clone(), image.clone());
            running.spawn(async move {
                let what = format!("{format}: {first:?}, then {again:?}, parts {serves_parts}");
                let case = Case::new(broken_off(&body, first, again, serves_parts).await, &digest, DISK);
                match case.copy().await {
                    Ok(unpacked) => {
                        assert!(goes_on, "{what}");
                        assert!(unpacked == image.len() as u64 && case.holds()[..image.len()] == image[..], "{what}");
                    }
                    Err(error) => {
                        assert!(!goes_on, "{what}: {error}");
                        let half = format!("it ended after {} of {} bytes", body.len() / 2, body.len());
                        assert!(error.message.contains(&half) && error.message.contains("/disk"), "{what}: {error}");
                        assert!(case.ends_are_zero(), "{what}");
                    }
                }
            });
        }
    }
    while let Some(done) = running.join_next().await {
        done.expect("as it should be");
    }
}

/// A disk of which one place cannot be written, whatever is written there.
struct BadPlace {
    file: FileDisk,
    at: u64,
}

impl BadPlace {
    fn holds(&self, offset: u64, length: u64) -> io::Result<()> {
        match (offset..offset + length).contains(&self.at) {
            true => Err(io::Error::other("the medium failed")),
            false => Ok(()),
        }
    }
}

impl Disk for BadPlace {
    fn discard(&mut self) -> io::Result<()> {
        self.file.discard()
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.holds(offset, data.len() as u64)?;
        self.file.write(offset, data)
    }

    fn zero(&mut self, offset: u64, length: u64) -> io::Result<()> {
        self.holds(offset, length)?;
        self.file.zero(offset, length)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }
}

#[tokio::test]
async fn a_write_that_fails_at_any_megabyte_is_told_with_disk_and_cause() {
    // The third MiB is nothing but zeros, which are not written as data.
    let mut image = image(6 * MIB + 777);
    image[2 * MIB..3 * MIB].fill(0);
    for (format, body) in [("raw", image.clone()), ("gzip", gzip(&image))] {
        let (answer, digest) = (measured(&body), sha256(&body));
        for megabyte in 0..=image.len() / MIB {
            let answer = answer.clone();
            let case = Case::new(server(move |_, _| answer.clone()).await, &digest, DISK);
            let at = (megabyte * MIB + 500) as u64;
            let disk = BadPlace { file: opened(case.disk.path(), DISK), at };
            let error = case.copy_to(Box::new(disk)).await.expect_err("it cannot be written");
            let what = format!("{format}, MiB {megabyte}: {error}");
            assert!(error.message.contains("writing disk /dev/test: the medium failed"), "{what}");
            // What cannot be written cannot be emptied either: then the message says that the disk may boot half an image.
            let is_end = megabyte == 0;
            assert_eq!(error.message.contains("zeroing the ends of disk /dev/test failed, too"), is_end, "{what}");
            assert!(is_end || case.ends_are_zero(), "{what}");
        }
    }
}

#[tokio::test]
async fn one_bit_of_the_checksum_or_of_the_image_is_a_failure() {
    let (image, size) = (image(4096), 2 * MIB);
    let digest: Vec<u8> = Sha256::digest(&image).to_vec();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let serves = async |body: &[u8]| {
        let answer = measured(body);
        server(move |_, _| answer.clone()).await
    };
    let url = serves(&image).await;
    assert_eq!(Case::new(url.clone(), &hex(&digest), size).copy().await.expect("whole"), 4096);
    for bit in 0..digest.len() * 8 {
        let mut other = digest.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        let case = Case::new(url.clone(), &hex(&other), size);
        let error = case.copy().await.expect_err("another checksum");
        assert!(error.message.contains("CHECKSUM") && error.message.contains(&hex(&digest)), "bit {bit}: {error}");
        assert!(case.ends_are_zero(), "bit {bit}");
    }
    for bit in (0..image.len() * 8).step_by(509) {
        let mut other = image.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        let case = Case::new(serves(&other).await, &hex(&digest), size);
        let error = case.copy().await.expect_err("another image");
        assert!(error.message.contains("CHECKSUM") && case.ends_are_zero(), "bit {bit}: {error}");
    }
}
