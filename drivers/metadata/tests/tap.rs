//! The service on a real tap device, asked by curl from network namespaces of guests: one bridge is the switch between them.

use async_trait::async_trait;
use metadata::Taps;
use nix::sched::{CloneFlags, unshare};
use planner::metadata::{Instance, Interface};
use ports::Metadata;
use ports::conformance::metadata::{Asked, BLUE, Bench, RED, nic, suite as conformance};
use ports::metadata::{MetadataGuest, MetadataPort};
use std::io::Read;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::process::Command;

const DEVICE: &str = "mmsuite";
const MAC: &str = "02:00:00:00:00:fe";

async fn run(program: &str, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(args).kill_on_drop(true).output().await.expect(program);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(out.into_owned()) } else { Err(format!("{program} {args:?}: {out}{err}")) }
}

async fn ip(args: &str) {
    let words: Vec<&str> = args.split(' ').collect();
    run("ip", &words).await.expect("ip(8)");
}

/// A network namespace with one NIC at the bridge.
struct Guest {
    process: Child,
    nic: Interface,
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.process.kill().and_then(|()| self.process.wait());
    }
}

impl Guest {
    async fn start(number: u8, bridge: &str, address: &str) -> Self {
        let mut command = std::process::Command::new("unshare");
        // The line says that the namespace is made.
        command.args(["--net", "sh", "-c", "echo; exec sleep 1000"]).stdout(Stdio::piped());
        let mut process = command.spawn().expect("unshare(1)");
        process.stdout.as_mut().expect("piped").read_exact(&mut [0]).expect("the line");
        let (mac, outer, inner) = (format!("02:00:00:00:00:{number:02x}"), format!("g{number}"), format!("n{number}"));
        ip(&format!("link add {outer} type veth peer name {inner} address {mac} netns {}", process.id())).await;
        ip(&format!("link set {outer} master {bridge} up")).await;
        let guest = Self { process, nic: Interface { mac, addresses: vec![address.parse().expect("an address")] } };
        for args in [
            format!("addr add {address}/24 dev {inner}"),
            format!("link set {inner} up"),
            format!("route add 169.254.169.254/32 dev {inner}"),
        ] {
            let words: Vec<&str> = ["ip"].into_iter().chain(args.split(' ')).collect();
            guest.inside(&words).await.expect("configured");
        }
        guest
    }

    async fn inside(&self, words: &[&str]) -> Result<String, String> {
        let (pid, mut args) = (self.process.id().to_string(), vec!["-t"]);
        args.extend([pid.as_str(), "-n"]);
        args.extend(words);
        run("nsenter", &args).await
    }

    async fn curl(&self, args: &[&str]) -> Result<String, String> {
        self.inside(&[&["curl", "--silent", "--show-error", "--fail", "--max-time", "10"], args].concat()).await
    }

    async fn get(&self, path: &str) -> Result<String, String> {
        self.curl(&[&format!("http://169.254.169.254{path}")]).await
    }

    fn told(&self, hostname: &str, user_data: Vec<u8>) -> MetadataGuest {
        let data = [("user-data".to_owned(), user_data), ("meta-data".to_owned(), b"instance-id: i\n".to_vec())].into();
        let interfaces = vec![self.nic.clone()];
        let instance = Instance {
            id: format!("uid-{hostname}"),
            hostname: hostname.to_owned(),
            interfaces,
            data,
            further: [].into(),
        };
        MetadataGuest { nic: self.nic.clone(), instance: Arc::new(instance) }
    }
}

async fn answer(taps: &Taps, guests: Vec<MetadataGuest>) {
    let port = MetadataPort { device: DEVICE.to_owned(), mac: MAC.to_owned(), mtu: 1442, guests };
    assert!(taps.answer(vec![port]).await.is_empty());
    ip(&format!("link set {DEVICE} master br0")).await;
}

/// The bridge that stands for the switch of a port.
fn bridge(device: &str) -> &'static str {
    if device == RED { "br1" } else { "br0" }
}

struct Real {
    guests: Vec<Guest>,
}

impl Real {
    async fn start() -> Self {
        for bridge in ["br0", "br1"] {
            ip(&format!("link add {bridge} type bridge forward_delay 0")).await;
            ip(&format!("link set {bridge} up")).await;
        }
        let mut guests = Vec::new();
        for (number, device) in [(1, BLUE), (2, BLUE), (3, RED)] {
            guests.push(Guest::start(number, bridge(device), &nic(number).addresses[0].to_string()).await);
        }
        Self { guests }
    }
}

#[async_trait]
impl Bench for Real {
    async fn open(&self) -> Box<dyn Metadata> {
        Box::new(Taps::default())
    }

    async fn device(&self, name: &str) -> Option<u64> {
        let shown = run("ip", &["-oneline", "link", "show", name]).await.ok()?;
        let (index, _) = shown.split_once(':')?;
        Some(index.parse().expect("a number"))
    }

    async fn ask(&self, device: &str, asked: Asked<'_>) -> Option<Vec<u8>> {
        ip(&format!("link set {device} master {}", bridge(device))).await;
        let guest = self.guests.iter().find(|guest| guest.nic.mac == asked.mac).expect("a guest");
        let from = asked.from.to_string();
        if !guest.nic.addresses.contains(&asked.from) {
            let (inner, address) = (format!("n{}", &asked.mac[16..]), format!("{from}/24"));
            let words = ["ip", "addr", "replace", &address, "dev", &inner];
            guest.inside(&words).await.expect("a second address");
        }
        let url = format!("http://169.254.169.254{}", asked.path);
        guest.curl(&["--connect-timeout", "2", "--interface", &from, &url]).await.ok().map(String::into_bytes)
    }

    /// As on a node without the kernel's module: this thread has its own view of the files.
    async fn set_refusing(&self, refusing: bool) {
        let done = match refusing {
            true => run("mount", &["--bind", "/dev/null", "/dev/net/tun"]).await,
            false => run("umount", &["/dev/net/tun"]).await,
        };
        done.expect("mount(8)");
    }
}

async fn suite() {
    ip("link set lo up").await;
    run("mount", &["--make-rprivate", "/"]).await.expect("mount(8)");
    let real = Real::start().await;
    conformance(&real).await;
    let (one, two) = (&real.guests[0], &real.guests[1]);
    let (taps, large) = (Taps::default(), "x".repeat(900_000));
    let told = vec![one.told("one", b"#cloud-config\n".to_vec()), two.told("two", large.clone().into_bytes())];
    answer(&taps, told).await;
    nothing_of_the_node(two).await;
    each_is_told_about_itself(one, two, &large).await;
    session_tokens(one, two).await;
    a_busy_guest_disturbs_no_other(one, two).await;
    taps.answer(Vec::new()).await;
}

async fn nothing_of_the_node(guest: &Guest) {
    assert_eq!(guest.get("/latest/meta-data/hostname").await.expect("answered"), "two");
    let shown = run("ip", &["address", "show", "dev", DEVICE]).await.expect("ip(8)");
    assert!(!shown.contains("inet"), "no address on the node: {shown}");
    let routes = run("ip", &["route", "show", "table", "all"]).await.expect("ip(8)");
    assert!(!routes.contains("169.254"), "no route on the node: {routes}");
}

async fn each_is_told_about_itself(one: &Guest, two: &Guest, large: &str) {
    assert_eq!(one.get("/latest/meta-data/instance-id").await.expect("answered"), "uid-one");
    assert_eq!(one.get("/latest/meta-data/local-ipv4").await.expect("answered"), "10.20.0.7");
    assert_eq!(one.get("/latest/user-data").await.expect("answered"), "#cloud-config\n");
    assert_eq!(one.get("/nocloud/meta-data").await.expect("answered"), "instance-id: i\n");
    one.get("/latest/meta-data/nothing").await.expect_err("404");
    assert_eq!(two.get("/latest/user-data").await.expect("as long as a Secret can be").len(), large.len());
}

/// As programs for EC2 ask for them.
async fn session_tokens(one: &Guest, two: &Guest) {
    let (url, seconds) = ("http://169.254.169.254/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds: 60");
    let token = one.curl(&["-X", "PUT", "-H", seconds, url]).await.expect("a token");
    let header = format!("X-aws-ec2-metadata-token: {token}");
    let url = "http://169.254.169.254/latest/meta-data/hostname";
    assert_eq!(one.curl(&["-H", &header, url]).await.expect("with a token"), "one");
    let refused = two.curl(&["-H", &header, url]).await.expect_err("another's token");
    assert!(refused.contains("401"), "{refused}");
    let refused = one.curl(&["-H", "X-Forwarded-For: 10.0.0.1", url]).await.expect_err("by a proxy");
    assert!(refused.contains("403"), "{refused}");
}

/// One asks as fast as it can and holds more connections than it may; the other asks a hundred times.
async fn a_busy_guest_disturbs_no_other(busy: &Guest, other: &Guest) {
    let idle = "exec 3<>/dev/tcp/169.254.169.254/80; sleep 8";
    let script = format!(
        "for i in 1 2 3 4 5 6; do bash -c '{idle}' & done; for i in $(seq 300); do curl -s -o /dev/null --max-time 5 http://169.254.169.254/latest/meta-data/; done"
    );
    let words = ["timeout", "8", "bash", "-c", &script];
    let flood = busy.inside(&words);
    let asks = async {
        let mut slowest = Duration::ZERO;
        for _ in 0..50 {
            let began = Instant::now();
            assert_eq!(other.get("/latest/meta-data/hostname").await.expect("answered"), "two");
            slowest = slowest.max(began.elapsed());
        }
        slowest
    };
    let (_, slowest) = tokio::join!(flood, asks);
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
}

#[test]
fn guests_are_answered_on_a_tap() {
    let missing = ["curl", "unshare", "nsenter", "mount"]
        .into_iter()
        .find(|program| std::process::Command::new(program).arg("--version").output().is_err());
    if !nix::unistd::geteuid().is_root() || missing.is_some() {
        eprintln!("SKIP guests_are_answered_on_a_tap: needs root for network namespaces, and curl");
        return;
    }
    if !std::path::Path::new("/dev/net/tun").exists() {
        eprintln!("SKIP guests_are_answered_on_a_tap: there is no /dev/net/tun");
        return;
    }
    let thread = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).expect("namespaces of its own");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(suite());
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}
