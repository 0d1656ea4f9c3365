//! The driver against the emulator of sushy-tools with its fake systems: power takes seconds to change, there is no boot
//! order, no session service, and basic authentication over HTTP or HTTPS.

use async_trait::async_trait;
use planner::host::Lack;
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
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio::{
    net::{TcpListener, TcpStream},
    process::{Child, Command},
};
use trust::Bundle;

const USER: &str = "admin";
const PASSWORD: &str = "correct-horse";

struct Emulator {
    port: u16,
    scheme: Scheme,
    _process: Child,
    folder: TempDir,
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
    Some(Emulator { port, scheme, _process: process, folder })
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
}

#[tokio::test]
async fn sushy_tools_conforms() {
    let Some(emulator) = start("sushy_tools_conforms", Scheme::Http).await else { return };
    bmc::run(&emulator).await;
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
