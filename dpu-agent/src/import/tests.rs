//! Imports from a real HTTP server on the loopback.

mod qcow2;

use super::*;
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use sha2::{Digest, Sha256};
use std::convert::Infallible;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;
use tokio::net::TcpListener;

const MIB: usize = 1 << 20;

/// Serves `/image`, or a part of it, a redirect to it at `/moved`, and 404.
async fn server(image: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let address = listener.local_addr().expect("an address");
    let image = Bytes::from(image);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let image = image.clone();
            let answer = service_fn(move |request: Request<Incoming>| {
                let mut response = Response::new(Full::new(Bytes::new()));
                match request.uri().path() {
                    "/image" => match part(request.headers()) {
                        None => *response.body_mut() = Full::new(image.clone()),
                        Some((first, last)) => {
                            let last = last.min(image.len() - 1);
                            let range = format!("bytes {first}-{last}/{}", image.len()).try_into().expect("a header");
                            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                            response.headers_mut().insert(header::CONTENT_RANGE, range);
                            *response.body_mut() = Full::new(image.slice(first..=last));
                        }
                    },
                    "/moved" => {
                        *response.status_mut() = StatusCode::FOUND;
                        response.headers_mut().insert(header::LOCATION, http::HeaderValue::from_static("/image"));
                    }
                    _ => *response.status_mut() = StatusCode::NOT_FOUND,
                }
                async move { Ok::<_, Infallible>(response) }
            });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
        }
    });
    format!("http://{address}")
}

/// The first and the last byte that are asked for.
fn part(headers: &http::HeaderMap) -> Option<(usize, usize)> {
    let range = headers.get(header::RANGE)?.to_str().ok()?;
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?))
}

fn sha256(data: &[u8]) -> String {
    Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Data, a hole, data that ends within a block.
fn image() -> Vec<u8> {
    let mut image = vec![0; 6 * MIB + 777];
    for (i, byte) in image.iter_mut().enumerate() {
        if !(MIB..=5 * MIB).contains(&i) {
            *byte = (i % 251) as u8;
        }
    }
    image
}

struct Volume {
    dir: tempfile::TempDir,
    size_bytes: usize,
}

impl Volume {
    /// Full of another volume's data.
    fn new(size_bytes: usize) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("disk.img"), vec![0xff; size_bytes]).expect("write");
        Self { dir, size_bytes }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("disk.img")
    }

    fn job(&self, url: &str, sha256: &str) -> Job {
        Job {
            url: url.to_owned(),
            sha256: sha256.to_owned(),
            ca_bundle: None,
            format: ImageFormat::Raw,
            volume: "vol-1".to_owned(),
            place: Place::Path(self.path()),
            size_bytes: self.size_bytes as u64,
        }
    }
}

async fn import(job: Job) -> Result<ImportDone, PortError> {
    let wake = Arc::new(Notify::new());
    let imports = Imports::new(wake.clone());
    imports.start("uid", job);
    let ended = async {
        loop {
            wake.notified().await;
            // The task wakes us just before it ends.
            tokio::task::yield_now().await;
            if let Some((uid, result)) = imports.ended().await.pop() {
                assert_eq!(uid, "uid");
                assert!(imports.running().is_empty());
                return result;
            }
            wake.notify_one();
        }
    };
    tokio::time::timeout(Duration::from_secs(120), ended).await.expect("the import ends")
}

#[tokio::test]
async fn writes_all_of_it_and_leaves_holes() {
    let (image, volume) = (image(), Volume::new(8 * MIB));
    let server = server(image.clone()).await;
    let done = import(volume.job(&format!("{server}/moved"), &sha256(&image))).await.expect("imported");
    assert_eq!((done.bytes, done.checksum), (image.len() as u64, format!("sha256:{}", sha256(&image))));

    let written = std::fs::read(volume.path()).expect("read");
    assert_eq!(written.len(), 8 * MIB, "the volume keeps its size");
    assert!(written[..image.len()] == image[..], "the image is there");
    assert!(written[image.len()..].iter().all(|byte| *byte == 0), "nothing of another volume is left behind it");
    let allocated = std::fs::metadata(volume.path()).expect("metadata").blocks() * 512;
    assert!(allocated < 4 * MIB as u64, "{allocated} bytes are allocated for 2 MiB of data");
}

#[tokio::test]
async fn a_wrong_checksum_is_named() {
    let (image, volume) = (image(), Volume::new(8 * MIB));
    let server = server(image.clone()).await;
    let error = import(volume.job(&format!("{server}/image"), &"00".repeat(32))).await.expect_err("another image");
    assert_eq!(error.class, ErrorClass::Invalid);
    assert!(error.message.contains(&sha256(&image)) && error.message.contains(&"00".repeat(32)), "{error}");
}

#[tokio::test]
async fn an_image_that_is_too_large_is_refused_before_it_is_read() {
    let (image, volume) = (image(), Volume::new(MIB));
    let server = server(image.clone()).await;
    let error = import(volume.job(&format!("{server}/image"), &sha256(&image))).await.expect_err("too large");
    assert_eq!(error.class, ErrorClass::Invalid);
    let sizes = [image.len().to_string(), MIB.to_string()];
    assert!(sizes.iter().all(|size| error.message.contains(size)), "{error}");
}

#[tokio::test]
async fn what_is_not_there_or_not_served_is_said() {
    let volume = Volume::new(MIB);
    let server = server(image()).await;
    let class = async |url: String| import(volume.job(&url, &"00".repeat(32))).await.expect_err("refused");
    assert_eq!(class(format!("{server}/other")).await.class, ErrorClass::NotFound);
    assert_eq!(class("ftp://127.0.0.1/image".to_owned()).await.class, ErrorClass::Invalid);
}

#[tokio::test]
async fn an_import_can_be_stopped() {
    let volume = Volume::new(MIB);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let address = listener.local_addr().expect("an address");
    let imports = Imports::new(Arc::new(Notify::new()));
    imports.start("uid", volume.job(&format!("http://{address}/image"), &"00".repeat(32)));
    let (_silent, _) = listener.accept().await.expect("it connects");
    assert_eq!(imports.running().len(), 1);
    tokio::time::timeout(Duration::from_secs(60), imports.stop("uid")).await.expect("stops");
    assert!(imports.running().is_empty() && imports.ended().await.is_empty());
}

/// A volume that the agent reaches through a connector alone.
#[derive(Default)]
struct Far {
    holds: Arc<Mutex<Vec<u8>>>,
    calls: Arc<Mutex<Vec<&'static str>>>,
}

struct FarWriter {
    holds: Arc<Mutex<Vec<u8>>>,
    calls: Arc<Mutex<Vec<&'static str>>>,
}

impl FarWriter {
    fn at(&self, offset: u64, length: u64, act: impl FnOnce(&mut [u8])) {
        let mut holds = self.holds.lock().expect("held");
        let in_blocks = |at: u64| at.is_multiple_of(ports::volume::WRITE_UNIT) || at == holds.len() as u64;
        assert!(in_blocks(offset) && in_blocks(offset + length), "{length} bytes at {offset}");
        let (start, end) = (usize::try_from(offset).expect("fits"), usize::try_from(offset + length).expect("fits"));
        act(&mut holds[start..end]);
    }
}

impl VolumeWriter for FarWriter {
    /// As bad as it may be.
    fn discard(&mut self) -> io::Result<()> {
        self.holds.lock().expect("held").fill(0xdd);
        Ok(())
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.at(offset, data.len() as u64, |there| there.copy_from_slice(data));
        Ok(())
    }

    fn zero(&mut self, offset: u64, length: u64) -> io::Result<()> {
        self.at(offset, length, |there| there.fill(0));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.calls.lock().expect("held").push("sync");
        Ok(())
    }
}

impl Drop for FarWriter {
    fn drop(&mut self) {
        self.calls.lock().expect("held").push("drop");
    }
}

#[async_trait::async_trait]
impl VolumeConnector for Far {
    fn driver(&self) -> &str {
        "far.example.com"
    }

    fn fence(&self) -> ports::volume::Fence {
        ports::volume::Fence::None
    }

    fn identity(&self, id: &ExposureId) -> String {
        id.uid.clone()
    }

    async fn connect(&self, _: &ExposureId, _: &ports::volume::Volume) -> Result<ports::volume::Connection, PortError> {
        panic!("it is connected")
    }

    async fn list(&self) -> Result<Vec<ports::volume::Connection>, PortError> {
        panic!("nobody asks")
    }

    async fn open_writer(&self, _: &ExposureId) -> Result<Box<dyn VolumeWriter>, PortError> {
        self.calls.lock().expect("held").push("open");
        Ok(Box::new(FarWriter { holds: self.holds.clone(), calls: self.calls.clone() }))
    }

    async fn close_writer(&self, _: &ExposureId) -> Result<(), PortError> {
        self.calls.lock().expect("held").push("close");
        Ok(())
    }

    async fn disconnect(&self, _: &ExposureId) -> Result<(), PortError> {
        panic!("nobody asks")
    }
}

#[tokio::test]
async fn a_volume_behind_a_connector_is_written_in_blocks_and_closed() {
    let image = image();
    let server = server(image.clone()).await;
    let ending = async |sha256: &str, size_bytes: usize| {
        let far = Far::default();
        far.holds.lock().expect("held").resize(size_bytes, 0xff);
        let (holds, calls) = (far.holds.clone(), far.calls.clone());
        let id = ExposureId { uid: "uid".to_owned(), epoch: 1 };
        let job = Job {
            url: format!("{server}/image"),
            sha256: sha256.to_owned(),
            ca_bundle: None,
            format: ImageFormat::Raw,
            volume: "vol-1".to_owned(),
            place: Place::Connected(Arc::new(far), id),
            size_bytes: size_bytes as u64,
        };
        let result = import(job).await;
        let (holds, calls) = (holds.lock().expect("held").clone(), calls.lock().expect("held").clone());
        (result, holds, calls)
    };
    // The second ends within a block.
    for size_bytes in [8 * MIB, 6 * MIB + 1024] {
        let (result, holds, calls) = ending(&sha256(&image), size_bytes).await;
        result.expect("imported");
        assert_eq!(calls, ["open", "sync", "drop", "close"]);
        assert!(holds[..image.len()] == image[..], "the image is there");
        assert!(holds[image.len()..].iter().all(|byte| *byte == 0), "nothing else is");
    }
    let (result, _, calls) = ending(&"00".repeat(32), 8 * MIB).await;
    result.expect_err("another image");
    assert_eq!(calls, ["open", "drop", "close"], "what is not used is not flushed");
    let (result, _, calls) = ending(&sha256(&image), MIB).await;
    result.expect_err("it is too large");
    assert_eq!(calls, ["open", "drop", "close"], "it is not kept open");
}

/// Serves `image` by https with the certificate that `params` describe, signed by `issuer`.
async fn tls_server(image: Vec<u8>, params: rcgen::CertificateParams, issuer: &Authority) -> String {
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, issuer).expect("signed").der().clone();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let config = rustls::ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![certificate], key).expect("a server");
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let address = listener.local_addr().expect("an address");
    let image = Bytes::from(image);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A client that does not trust us goes away.
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let image = image.clone();
            let answer = service_fn(move |_: Request<Incoming>| {
                let response = Response::new(Full::new(image.clone()));
                async move { Ok::<_, Infallible>(response) }
            });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
        }
    });
    format!("https://{address}/image")
}

type Authority = rcgen::CertifiedIssuer<'static, rcgen::KeyPair>;

fn authority(name: &str) -> Authority {
    let mut params = named(&[]);
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().expect("a key")).expect("an authority")
}

fn named(names: &[&str]) -> rcgen::CertificateParams {
    rcgen::CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).expect("parameters")
}

#[tokio::test]
async fn an_https_server_is_known_by_the_images_own_authorities() {
    let (image, own, other) = (image(), authority("own"), authority("other"));
    let run = async |params: rcgen::CertificateParams, ca_bundle: &str| {
        let volume = Volume::new(8 * MIB);
        let url = tls_server(image.clone(), params, &own).await;
        import(Job { ca_bundle: Some(ca_bundle.to_owned()), ..volume.job(&url, &sha256(&image)) }).await
    };
    run(named(&["127.0.0.1"]), &own.pem()).await.expect("imported");

    let mut old = named(&["127.0.0.1"]);
    old.not_after = rcgen::date_time_ymd(2001, 1, 1);
    let cases = [
        (named(&["127.0.0.1"]), other.pem(), ErrorClass::Unreachable, "certificate to spec.source.http.caBundle"),
        (old, own.pem(), ErrorClass::Unreachable, "has expired: renew it"),
        (named(&["images.example"]), own.pem(), ErrorClass::Unreachable, "is for images.example, not for 127.0.0.1"),
        (
            named(&["127.0.0.1"]),
            "none".to_owned(),
            ErrorClass::Invalid,
            "spec.source.http.caBundle of the image has no",
        ),
    ];
    for (params, ca_bundle, class, said) in cases {
        let error = run(params, &ca_bundle).await.expect_err(said);
        assert_eq!(error.class, class, "{error}");
        assert!(error.message.contains(said), "{error}");
    }
}
