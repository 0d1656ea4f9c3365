//! qcow2 images that qemu-img makes. That every variant is read as qemu-img reads it is a test of `imaging`.

use super::*;
use sandbox::preflight;
use std::process::Command;
use std::sync::atomic::AtomicUsize;

struct QemuImg {
    program: PathBuf,
    environment: BTreeMap<String, String>,
    folder: tempfile::TempDir,
}

impl QemuImg {
    async fn find(test: &str) -> Option<Self> {
        let (program, environment) = preflight::unpacked("qemu-img", "qemu-utils")
            .await
            .inspect_err(|error| eprintln!("SKIP {test}: {error:#}"))
            .ok()?;
        Some(Self { program, environment, folder: tempfile::tempdir().expect("a folder") })
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn run(&self, words: &[&str]) {
        let done = Command::new(&self.program).args(words).envs(&self.environment).output().expect("it starts");
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// A raw image as a qcow2 one.
    fn convert(&self, raw: &[u8], words: &[&str]) -> Vec<u8> {
        let (from, to) = (self.path("raw"), self.path("qcow2"));
        std::fs::write(&from, raw).expect("written");
        self.run(&[&["convert", "-f", "raw", "-O", "qcow2"], words, &[&from, &to]].concat());
        std::fs::read(to).expect("read")
    }
}

/// [`image`], in whole sectors: qemu-img makes no other disks.
fn disk() -> Vec<u8> {
    let mut disk = image();
    disk.resize(disk.len().next_multiple_of(512), 0);
    disk
}

fn job(volume: &Volume, url: &str, file: &[u8]) -> Job {
    Job { format: ImageFormat::Qcow2, ..volume.job(url, &sha256(file)) }
}

fn untouched(volume: &Volume) -> bool {
    std::fs::read(volume.path()).expect("read").iter().all(|byte| *byte == 0xff)
}

#[tokio::test]
async fn the_volume_has_the_disk_and_zeros_behind_it() {
    let Some(qemu_img) = QemuImg::find("the_volume_has_the_disk_and_zeros_behind_it").await else { return };
    let disk = disk();
    for words in [&["-o", "compat=1.1"][..], &["-c"], &["-c", "-o", "compression_type=zstd"]] {
        let (file, volume) = (qemu_img.convert(&disk, words), Volume::new(8 * MIB));
        let server = server(file.clone()).await;
        let done = import(job(&volume, &format!("{server}/moved"), &file)).await.expect("imported");
        assert_eq!((done.bytes, done.checksum), (file.len() as u64, format!("sha256:{}", sha256(&file))));
        let written = std::fs::read(volume.path()).expect("read");
        assert!(written[..disk.len()] == disk[..], "{words:?}");
        assert!(written[disk.len()..].iter().all(|byte| *byte == 0), "nothing of another volume is left behind it");
        let allocated = std::fs::metadata(volume.path()).expect("metadata").blocks() * 512;
        assert!(allocated < 4 * MIB as u64, "{allocated} bytes are allocated for 2 MiB of data");
    }
}

#[tokio::test]
async fn what_cannot_be_the_image_is_refused_with_the_volume_untouched() {
    let Some(qemu_img) = QemuImg::find("what_cannot_be_the_image_is_refused_with_the_volume_untouched").await else {
        return;
    };
    let disk = disk();
    let file = qemu_img.convert(&disk, &[]);
    let (raw, layer) = (qemu_img.path("raw"), qemu_img.path("layer"));
    qemu_img.run(&["create", "-f", "qcow2", "-F", "raw", "-b", &raw, &layer]);
    let layer = std::fs::read(layer).expect("read");
    // For LUKS qemu-img times a key derivation, and gives up on a machine whose clock of a thread is too coarse for that.
    let aes = ["--object", "secret,id=s,data=secret", "-o", "encrypt.format=aes,encrypt.key-secret=s"];
    let locked = qemu_img.convert(&disk[..MIB], &aes);
    let data = format!("data_file={}", qemu_img.path("data"));
    let split = qemu_img.convert(&disk, &["-o", &data]);
    let size = disk.len().to_string();
    for (file, checksum, format, size_bytes, said) in [
        (&layer, &layer, ImageFormat::Qcow2, 8 * MIB, "has a backing file"),
        (&locked, &locked, ImageFormat::Qcow2, 8 * MIB, "is encrypted"),
        (&split, &split, ImageFormat::Qcow2, 8 * MIB, "has its data in another file"),
        (&file, &file, ImageFormat::Qcow2, MIB, size.as_str()),
        (&file, &file, ImageFormat::Qcow2, MIB, "ask for a larger size"),
        (&file, &disk, ImageFormat::Qcow2, 8 * MIB, "spec.import.checksum says"),
        (&disk, &disk, ImageFormat::Qcow2, 8 * MIB, "write format: Raw"),
        (&file, &file, ImageFormat::Raw, 8 * MIB, "write format: Qcow2"),
    ] {
        let volume = Volume::new(size_bytes);
        let url = format!("{}/image?signature=secret", server(file.clone()).await);
        let error = import(Job { format, ..job(&volume, &url, checksum) }).await.expect_err(said);
        assert_eq!(error.class, ErrorClass::Invalid, "{error}");
        assert!(error.message.contains(said) && !error.message.contains("signature"), "{error}");
        assert!(untouched(&volume), "{error}");
    }
}

/// The answers that break off in their middle: that with all of the file, and one of those with a part of it.
const BROKEN: [usize; 2] = [3, 6];

/// Serves a file by parts.
async fn breaking(file: Vec<u8>) -> (String, Arc<AtomicUsize>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let address = listener.local_addr().expect("an address");
    let (file, broken) = (Arc::new(file), Arc::new(AtomicUsize::new(0)));
    let count = broken.clone();
    tokio::spawn(async move {
        for number in 1.. {
            let Ok((mut stream, _)) = listener.accept().await else { return };
            let mut request = [0; 4096];
            let read = stream.read(&mut request).await.unwrap_or(0);
            let request = String::from_utf8_lossy(&request[..read]).to_lowercase();
            let range = request.lines().find_map(|line| {
                let (first, last) = line.strip_prefix("range: bytes=")?.split_once('-')?;
                Some((first.parse::<usize>().ok()?, last.trim().parse::<usize>().ok()?))
            });
            let (status, body) = match range {
                None => ("200 OK".to_owned(), &file[..]),
                Some((first, last)) => {
                    let last = last.min(file.len() - 1);
                    let range = format!("Content-Range: bytes {first}-{last}/{}", file.len());
                    (format!("206 Partial Content\r\n{range}"), &file[first..=last])
                }
            };
            let sent = match BROKEN.contains(&number) {
                true => {
                    count.fetch_add(1, Ordering::Relaxed);
                    &body[..body.len() / 2]
                }
                false => body,
            };
            let length = body.len();
            let head =
                format!("HTTP/1.1 {status}\r\nETag: \"1\"\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all(&[head.as_bytes(), sent].concat()).await;
        }
    });
    (format!("http://{address}/image"), broken)
}

#[tokio::test]
async fn what_breaks_off_goes_on() {
    let Some(qemu_img) = QemuImg::find("what_breaks_off_goes_on").await else { return };
    let disk = disk();
    let (file, volume) = (qemu_img.convert(&disk, &[]), Volume::new(8 * MIB));
    let (url, broken) = breaking(file.clone()).await;
    import(job(&volume, &url, &file)).await.expect("imported");
    assert!(std::fs::read(volume.path()).expect("read")[..disk.len()] == disk[..]);
    assert_eq!(broken.load(Ordering::Relaxed), BROKEN.len());
}
