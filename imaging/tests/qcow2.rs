//! qcow2 images that qemu-img makes, from a server that serves parts: the disk is what qemu-img reads of them.

use imaging::{Copied, Error, FileDisk, Packing, Progress, Proxies, Rest, Source, Target};
use sandbox::preflight;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;

const MIB: usize = 1 << 20;
/// Not a multiple of the larger clusters.
const SIZE: usize = 5 * MIB + 512;

struct QemuImg(PathBuf, BTreeMap<String, String>);

impl QemuImg {
    fn run(&self, words: &[&str]) -> Result<(), String> {
        let done = Command::new(&self.0).args(words).envs(&self.1).output().map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        if done.status.success() { Ok(()) } else { Err(said) }
    }
}

/// Serves a file by parts. Its version changes after `changes` answers.
async fn server(file: Vec<u8>, changes: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let address = listener.local_addr().expect("an address");
    let (file, count) = (Arc::new(file), Arc::new(AtomicUsize::new(0)));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (file, count) = (file.clone(), count.clone());
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let read = stream.read(&mut request).await.unwrap_or(0);
                let request = String::from_utf8_lossy(&request[..read]).to_lowercase();
                let version = usize::from(count.fetch_add(1, Ordering::Relaxed) >= changes);
                let range = request.lines().find_map(|line| {
                    let (first, last) = line.strip_prefix("range: bytes=")?.split_once('-')?;
                    Some((first.parse::<usize>().ok()?, last.trim().parse::<usize>().ok()?))
                });
                let (status, range_header, body) = match range {
                    None => ("200 OK", String::new(), &file[..]),
                    Some((first, last)) => {
                        let last = last.min(file.len() - 1);
                        let header = format!("Content-Range: bytes {first}-{last}/{}\r\n", file.len());
                        ("206 Partial Content", header, &file[first..=last])
                    }
                };
                let head = format!(
                    "HTTP/1.1 {status}\r\nETag: \"{version}\"\r\n{range_header}Content-Length: {}\r\n\r\n",
                    body.len()
                );
                // Who has read enough goes away.
                let _ = stream.write_all(&[head.as_bytes(), body].concat()).await;
            });
        }
    });
    format!("http://{address}/disk.qcow2?signature=secret")
}

async fn copy(url: String, checksum: Option<&str>, disk: &Path, size: usize) -> Result<Copied, Error> {
    std::fs::write(disk, vec![0xff; size]).expect("written");
    let source = Source {
        url,
        checksum: checksum.map(|text| text.parse().expect("a checksum")),
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
        size_bytes: size as u64,
        too_small: "choose a larger disk",
        rest: Rest::Zeroed,
        wipe: true,
    };
    let (bytes, of, wake) = (AtomicU64::new(0), AtomicU64::new(0), Notify::new());
    let progress = Progress { bytes: &bytes, of: &of, wake: &wake };
    let file = FileDisk::open(disk, size as u64).expect("opened");
    imaging::copy(&source, target, Box::new(file), &progress, std::future::pending()).await
}

/// Data that compresses, data that does not, zeros between.
fn content() -> Vec<u8> {
    let mut state = 1_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..SIZE)
        .map(|at| match at / (MIB / 2) % 4 {
            0 => (at / 1000 % 251) as u8,
            1 => random(),
            _ => 0,
        })
        .collect()
}

#[tokio::test]
async fn what_qemu_img_makes_is_the_disk_that_it_reads() {
    const NAME: &str = "what_qemu_img_makes_is_the_disk_that_it_reads";
    let qemu_img = match preflight::unpacked("qemu-img", "qemu-utils").await {
        Ok((path, environment)) => QemuImg(path, environment),
        Err(error) => return eprintln!("SKIP {NAME}: {error:#}"),
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    let text = |path: &Path| path.display().to_string();
    let (raw, image, back, disk) = (file("raw"), file("image"), file("back"), file("disk"));
    std::fs::write(&raw, content()).expect("written");
    let (raw_text, image_text) = (text(&raw), text(&image));
    let variants: &[&[&str]] = &[
        &["-o", "compat=0.10"],
        &["-o", "compat=1.1"],
        &["-o", "cluster_size=512"],
        &["-o", "cluster_size=4k"],
        &["-o", "cluster_size=2M"],
        &["-c"],
        &["-c", "-o", "compat=0.10"],
        &["-c", "-o", "compression_type=zstd"],
        &["-c", "-o", "compression_type=zstd,cluster_size=2M"],
        &["-c", "-o", "cluster_size=512"],
        &["-c", "-m", "16", "-W"],
        &["-o", "preallocation=metadata"],
        &["-o", "preallocation=full"],
        &["-o", "lazy_refcounts=on"],
        &["-o", "refcount_bits=1"],
        &["-S", "0"],
    ];
    for variant in variants {
        let words = [&["convert", "-O", "qcow2"], *variant, &[&raw_text, &image_text]].concat();
        if let Err(error) = qemu_img.run(&words) {
            eprintln!("SKIP {NAME}: qemu-img {variant:?}: {error}");
            continue;
        }
        // A snapshot inside changes nothing of the disk. One bit counts no two references, so that variant has none.
        if let Err(error) = qemu_img.run(&["snapshot", "-c", "s", &image_text]) {
            assert!(variant.contains(&"refcount_bits=1"), "{variant:?}: {error}");
        }
        qemu_img.run(&["convert", "-O", "raw", &image_text, &text(&back)]).expect("read by qemu-img");
        let bytes = std::fs::read(&image).expect("read");
        let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let url = server(bytes.clone(), usize::MAX).await;
        // Read once more before, in one variant of each kind.
        let also = matches!(variant, ["-o", "compat=1.1"] | ["-c"]).then(|| Some(format!("sha256:{digest}")));
        for checksum in [None].into_iter().chain(also) {
            let copied = copy(url.clone(), checksum.as_deref(), &disk, SIZE.next_multiple_of(4096)).await;
            let copied = copied.unwrap_or_else(|error| panic!("{variant:?}: {error}"));
            assert_eq!((copied.bytes, copied.unpacked), (bytes.len() as u64, SIZE as u64), "{variant:?}");
            assert_eq!(copied.digest, checksum.map(|_| digest.clone()));
            let (written, wanted) = (std::fs::read(&disk).expect("read"), std::fs::read(&back).expect("read"));
            assert!(written[..SIZE] == wanted[..], "{variant:?}");
            assert!(written[SIZE..].iter().all(|byte| *byte == 0));
        }
    }
    refused(&qemu_img, &raw_text, &image_text, &disk).await;
    failures(&qemu_img, &raw_text, &image, &disk).await;
}

/// By its name, with the disk as it was.
async fn refused(qemu_img: &QemuImg, raw: &str, image: &str, disk: &Path) {
    let data = format!("data_file={image}.data");
    for (words, said) in [
        (&["-o", "extended_l2=on"][..], "extended_l2"),
        (&["-o", &data], "data in another file"),
        (&["--object", "secret,id=s,data=secret", "-o", "encrypt.format=aes,encrypt.key-secret=s"], "encrypted"),
    ] {
        let words = [&["convert", "-O", "qcow2"], words, &[raw, image]].concat();
        if let Err(error) = qemu_img.run(&words) {
            eprintln!("SKIP what_qemu_img_makes_is_the_disk_that_it_reads: qemu-img {words:?}: {error}");
            continue;
        }
        is_refused(image, disk, said).await;
    }
    qemu_img.run(&["create", "-f", "qcow2", "-F", "raw", "-b", raw, image]).expect("made");
    is_refused(image, disk, "has a backing file").await;
}

async fn is_refused(image: &str, disk: &Path, said: &str) {
    let url = server(std::fs::read(image).expect("read"), usize::MAX).await;
    let error = copy(url, None, disk, SIZE).await.expect_err(said);
    assert!(error.message.contains(said) && !error.message.contains("signature"), "{error}");
    assert!(std::fs::read(disk).expect("read").iter().all(|byte| *byte == 0xff), "{said}");
}

async fn failures(qemu_img: &QemuImg, raw: &str, image: &Path, disk: &Path) {
    qemu_img.run(&["convert", "-O", "qcow2", raw, &image.display().to_string()]).expect("made");
    let bytes = std::fs::read(image).expect("read");
    let wrong = format!("sha256:{}", "00".repeat(32));
    for (name, file, changes, checksum, size, said) in [
        ("another file", bytes.clone(), usize::MAX, Some(wrong.as_str()), SIZE, "CHECKSUM says"),
        ("a disk that is too small", bytes.clone(), usize::MAX, None, SIZE - 512, "choose a larger disk"),
        ("a file that changes", bytes.clone(), 5, None, SIZE, "changed while it was read"),
        ("a file that is cut off", bytes[..bytes.len() / 2].to_vec(), usize::MAX, None, SIZE, "behind the file's end"),
    ] {
        let error = copy(server(file, changes).await, checksum, disk, size).await.expect_err(name);
        assert!(error.message.contains(said) && !error.message.contains("secret"), "{name}: {error}");
        let holds = std::fs::read(disk).expect("read");
        let begun = matches!(said, "changed while it was read" | "behind the file's end");
        let ends = holds[..MIB].iter().chain(&holds[size - MIB..]);
        assert!(ends.copied().all(|byte| byte == if begun { 0 } else { 0xff }), "{name}");
    }
}
