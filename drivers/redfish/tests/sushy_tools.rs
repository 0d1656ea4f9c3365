//! The driver against the emulator of sushy-tools with its fake systems: power takes seconds to change, there is no boot
//! order, no session service, and basic authentication over HTTP or HTTPS. It downloads the images that are inserted.

use async_trait::async_trait;
use axum::{
    Router,
    http::{HeaderMap, StatusCode, Uri},
};
use planner::host::{Lack, MediaUrl, MediumChange};
use ports::{
    Bmc, ErrorClass,
    conformance::{
        Sleep,
        bmc::{self, Abilities, Bench},
    },
};
use redfish::{RedfishBmc, RedfishConfig, Scheme, Secret, Verify};
use std::{
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio::{
    net::{TcpListener, TcpStream},
    process::{Child, Command},
    task::AbortHandle,
};
use trust::Bundle;

const USER: &str = "admin";
const PASSWORD: &str = "correct-horse";

struct Emulator {
    port: u16,
    scheme: Scheme,
    _process: Child,
    folder: TempDir,
    images: Images,
}

/// What was asked for, and with whose authorization.
type Asked = (String, Option<String>);

/// Serves any `.iso`, and nothing else.
struct Images {
    port: u16,
    requests: Arc<Mutex<Vec<Asked>>>,
    serving: AbortHandle,
}

impl Images {
    async fn serve() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let port = listener.local_addr().expect("an address").port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        let router = Router::new().fallback(async move |uri: Uri, headers: HeaderMap| {
            let authorization = headers.get("authorization").and_then(|value| value.to_str().ok()).map(str::to_owned);
            seen.lock().expect("the requests").push((uri.to_string(), authorization));
            if uri.path().ends_with(".iso") { (StatusCode::OK, "CD001") } else { (StatusCode::NOT_FOUND, "") }
        });
        let serving = tokio::spawn(async move { axum::serve(listener, router).await }).abort_handle();
        Self { port, requests, serving }
    }

    fn url(&self, user: &str, path: &str) -> MediaUrl {
        MediaUrl::parse(&format!("http://{user}127.0.0.1:{}/{path}", self.port)).expect("a URL")
    }

    fn requests(&self) -> Vec<Asked> {
        self.requests.lock().expect("the requests").clone()
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The folder of the programs; `None`, with the reason on stderr, where they cannot be had.
async fn programs(test: &str) -> Option<String> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools");
    let made = Command::new(tools.join("python.sh")).arg(tools.join("python/sushy-tools.txt")).output().await;
    match made {
        Ok(made) if made.status.success() => {
            Some(String::from_utf8(made.stdout).expect("the folder's name is UTF-8").trim().to_owned() + "/bin")
        }
        Ok(made) => {
            let said = String::from_utf8_lossy(&made.stderr).into_owned();
            eprintln!("SKIP {test}: no sushy-tools: {}", said.lines().last().unwrap_or_default());
            None
        }
        Err(e) => {
            eprintln!("SKIP {test}: tools/python.sh: {e}");
            None
        }
    }
}

async fn start(test: &str, scheme: Scheme) -> Option<Emulator> {
    let programs = programs(test).await?;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let hash = format!("import bcrypt; print(bcrypt.hashpw(b'{PASSWORD}', bcrypt.gensalt(4)).decode())");
    let hash = Command::new(format!("{programs}/python")).args(["-c", &hash]).output().await.expect("run Python");
    assert!(hash.status.success(), "{hash:?}");
    let write = |name: &str, content: String| std::fs::write(file(name), content).expect("write a file");
    write("users", format!("{USER}:{}", String::from_utf8(hash.stdout).expect("a hash")));
    let mut config = format!("SUSHY_EMULATOR_AUTH_FILE = {:?}\n", file("users"));
    config += &format!("SUSHY_EMULATOR_STATE_DIR = {:?}\n", folder.path().display().to_string());
    if scheme == Scheme::Https {
        let (issuer, key) = (authority(), rcgen::KeyPair::generate().expect("a key"));
        let made = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).expect("parameters");
        let made = made.signed_by(&key, &issuer).expect("signed");
        write("cert.pem", made.pem());
        write("key.pem", key.serialize_pem());
        write("ca.pem", issuer.pem());
        config += &format!("SUSHY_EMULATOR_SSL_CERT = {:?}\n", file("cert.pem"));
        config += &format!("SUSHY_EMULATOR_SSL_KEY = {:?}\n", file("key.pem"));
    }
    write("config.py", config);

    let port = free_port().await;
    let process = Command::new(format!("{programs}/sushy-emulator"))
        .args(["--fake", "--interface", "127.0.0.1", "--port", &port.to_string(), "--config", &file("config.py")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("start sushy-emulator");
    let started = Instant::now();
    while let Err(e) = TcpStream::connect(("127.0.0.1", port)).await {
        assert!(started.elapsed() < Duration::from_secs(180), "sushy-emulator does not listen: {e}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Some(Emulator { port, scheme, _process: process, folder, images: Images::serve().await })
}

fn authority() -> rcgen::CertifiedIssuer<'static, rcgen::KeyPair> {
    let mut params = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().expect("a key")).expect("an authority")
}

async fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    listener.local_addr().expect("an address").port()
}

impl Emulator {
    fn config(&self) -> RedfishConfig {
        let mut config = RedfishConfig::new("127.0.0.1", USER, Secret::new(PASSWORD));
        config.port = self.port;
        config.scheme = self.scheme;
        config
    }
}

#[async_trait]
impl Sleep for Emulator {
    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

#[async_trait]
impl Bench for Emulator {
    fn abilities(&self) -> Abilities {
        // The emulator changes the power at a random second up to the eleventh, and it reports every override as
        // continuous.
        let settles_within = Duration::from_secs(120);
        let lacks = [Lack::BootOptions, Lack::BootOrder].into();
        Abilities { lacks, override_ends: false, order_is_pending: false, guest_obeys: true, settles_within }
    }

    async fn connect(&self) -> Box<dyn Bmc> {
        Box::new(RedfishBmc::new(self.config()).expect("a client"))
    }

    async fn with_wrong_password(&self) -> Option<(Box<dyn Bmc>, String)> {
        let wrong = "battery-staple".to_owned();
        let config = RedfishConfig { password: Secret::new(&wrong), ..self.config() };
        Some((Box::new(RedfishBmc::new(config).expect("a client")), wrong))
    }

    async fn absent(&self) -> Option<Box<dyn Bmc>> {
        let config = RedfishConfig { port: free_port().await, ..self.config() };
        Some(Box::new(RedfishBmc::new(config).expect("a client")))
    }

    fn images(&self) -> [MediaUrl; 2] {
        ["first.iso", "second.iso"].map(|path| self.images.url("", path))
    }
}

#[tokio::test]
async fn sushy_tools_conforms() {
    let Some(emulator) = start("sushy_tools_conforms", Scheme::Http).await else { return };
    bmc::run(&emulator).await;
}

#[tokio::test]
async fn an_image_is_read_by_the_bmc_and_its_secrets_by_nobody_else() {
    let test = "an_image_is_read_by_the_bmc_and_its_secrets_by_nobody_else";
    let Some(emulator) = start(test, Scheme::Http).await else { return };
    let (client, images) = (emulator.connect().await, &emulator.images);
    let medium = async || client.observe().await.expect("observe").medium;
    let image = MediumChange::Insert(images.url("ann:hunter2@", "debian.iso?sig=c2VjcmV0"));
    for _ in 0..2 {
        client.change_medium(&image).await.expect("inserted");
        assert!(image.is_shown(&medium().await), "{:?}", medium().await);
    }
    // The emulator downloads it once: it was inserted once. ("ann:hunter2" in Base64.)
    let asked = ("/debian.iso?sig=c2VjcmV0".to_owned(), Some("Basic YW5uOmh1bnRlcjI=".to_owned()));
    assert_eq!(images.requests(), [asked]);

    let missing = MediumChange::Insert(images.url("ann:hunter2@", "debian.img?sig=c2VjcmV0"));
    let e = client.change_medium(&missing).await.expect_err("there is no such image");
    assert_eq!(e.class, ErrorClass::Invalid, "{e}");
    assert!(e.message.contains("debian.img") && e.message.contains("Cannot download virtual media"), "{e}");
    assert!(!e.message.contains("hunter2") && !e.message.contains("c2VjcmV0"), "{e}");
    assert!(MediumChange::Eject.is_shown(&medium().await), "the image of before was ejected first");

    client.change_medium(&image).await.expect("inserted again");
    for _ in 0..2 {
        client.change_medium(&MediumChange::Eject).await.expect("ejected");
        assert!(MediumChange::Eject.is_shown(&medium().await), "{:?}", medium().await);
    }
}

#[tokio::test]
async fn a_private_authority_is_trusted_when_it_is_named() {
    let test = "a_private_authority_is_trusted_when_it_is_named";
    let Some(emulator) = start(test, Scheme::Https).await else { return };
    let own = std::fs::read_to_string(emulator.folder.path().join("ca.pem")).expect("the authority");
    let observe = async |verify: Verify| {
        let config = RedfishConfig { verify, ..emulator.config() };
        RedfishBmc::new(config).expect("a client").observe().await
    };
    let bundle = |pem: &str| Verify::Authorities(Bundle::parse(pem.as_bytes()).expect("a bundle"));
    for verify in [bundle(&own), Verify::InsecureTls] {
        let host = observe(verify).await.expect("observe over HTTPS");
        assert_eq!(host.manufacturer.as_deref(), Some("Sushy Emulator"));
    }
    for verify in [bundle(&authority().pem()), Verify::System] {
        let e = observe(verify).await.expect_err("nobody vouches for it");
        assert_eq!(e.class, ErrorClass::Unreachable, "{e}");
        assert!(e.message.contains("write its authority's certificate to ca.crt in the Secret"), "{e}");
    }
}
