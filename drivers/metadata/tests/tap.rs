//! The service on a real tap device, asked by curl from network namespaces of guests: one bridge is the switch between them.

use async_trait::async_trait;
use metadata::Taps;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, socket};
use planner::metadata::{ADDRESS_V4, ADDRESS_V6, Instance, Interface, PORT};
use ports::Metadata;
use ports::conformance::metadata::{Asked, BLUE, Bench, RED, nic, suite as conformance};
use ports::metadata::{MetadataGuest, MetadataPort};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::process::Command;
use tokio::sync::oneshot;

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
            // As the kernel makes it of the MAC address, and with no second to detect duplicates in.
            format!("link set {inner} addrgenmode none"),
            format!("addr add fe80::ff:fe00:{number:x}/64 dev {inner} nodad"),
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

    /// By IPv6, on the link that the guest is on.
    async fn get6(&self, path: &str) -> Result<String, String> {
        self.get6_with(&[], path).await
    }

    async fn get6_with(&self, options: &[&str], path: &str) -> Result<String, String> {
        let url = format!("http://[{ADDRESS_V6}%25{}]{path}", self.device());
        self.curl(&[options, &["--globoff", url.as_str()]].concat()).await
    }

    fn device(&self) -> String {
        format!("n{}", &self.nic.mac[16..])
    }

    /// Asks so often, a hundred times a second, each time by a connection of its own; what each was answered, when all are.
    fn ask_paced(&self, requests: u32) -> oneshot::Receiver<io::Result<Vec<String>>> {
        let netns = File::open(format!("/proc/{}/ns/net", self.process.id())).expect("the guest's namespace");
        let (tell, told) = oneshot::channel();
        std::thread::spawn(move || {
            setns(&netns, CloneFlags::CLONE_NEWNET).expect("the guest's namespace");
            let (began, limit) = (Instant::now(), Duration::from_secs(10));
            let ask = |number: u32| -> io::Result<String> {
                let turn = began + Duration::from_millis(10) * number;
                std::thread::sleep(turn.saturating_duration_since(Instant::now()));
                let mut stream = TcpStream::connect_timeout(&(ADDRESS_V4, PORT).into(), limit)?;
                stream.set_read_timeout(Some(limit))?;
                stream.write_all(b"GET /latest/meta-data/hostname HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n")?;
                let mut answer = String::new();
                stream.read_to_string(&mut answer).map(|_| answer)
            };
            // Nobody listens any more where the test has failed.
            let _ = tell.send((0..requests).map(ask).collect());
        });
        told
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
    by_ipv6_too(one, two).await;
    an_answer_goes_no_further_than_the_guest(one).await;
    a_hundred_requests_a_second_disturb_no_other(one, two).await;
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

async fn by_ipv6_too(one: &Guest, two: &Guest) {
    for (guest, hostname) in [(one, "one"), (two, "two")] {
        assert_eq!(guest.get6("/latest/meta-data/hostname").await.expect("answered"), hostname);
        assert_eq!(guest.get6("/latest/meta-data/local-ipv4").await, guest.get("/latest/meta-data/local-ipv4").await);
    }
    assert_eq!(one.get6("/latest/user-data").await.expect("answered"), "#cloud-config\n");
    let large = two.get6("/latest/user-data").await.expect("as long as a Secret can be");
    assert_eq!(Ok(large), two.get("/latest/user-data").await);
    let device = one.device();
    let words = ["ip", "addr", "add", "fd00:20::99/64", "dev", &device, "nodad"];
    one.inside(&words).await.expect("a second address");
    let foreign = ["--connect-timeout", "2", "--interface", "fd00:20::99"];
    let told = one.get6_with(&foreign, "/latest/meta-data/hostname").await;
    let silence = told.expect_err("an address that is not its own");
    assert!(silence.contains("curl: (28)"), "nobody answers: {silence}");
}

/// All frames of this node's devices from here on.
struct Frames(OwnedFd);

impl Frames {
    fn listen() -> Self {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        Self(socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll).expect("a packet socket"))
    }

    /// From whom and with which limit of hops, and the TCP segment.
    fn tcp(&self) -> Vec<(IpAddr, u8, Vec<u8>)> {
        let (mut frame, mut all) = ([0; 65_536], Vec::new());
        while let Ok(length) = recv(self.0.as_raw_fd(), &mut frame, MsgFlags::empty()) {
            let (Some(kind), Some(packet)) = (frame[..length].get(12..14), frame[..length].get(14..)) else { continue };
            match (kind, packet.len()) {
                ([0x08, 0x00], 20..) if packet[9] == 6 => {
                    let from: [u8; 4] = packet[12..16].try_into().expect("four bytes");
                    all.push((from.into(), packet[8], packet[usize::from(packet[0] & 15) * 4..].to_vec()));
                }
                ([0x86, 0xdd], 40..) if packet[6] == 6 => {
                    let from: [u8; 16] = packet[8..24].try_into().expect("sixteen bytes");
                    all.push((from.into(), packet[7], packet[40..].to_vec()));
                }
                _ => {}
            }
        }
        all
    }
}

/// In either family, by the limit of hops: a guest that forwards (a proxy, a container's host) passes no answer on.
async fn an_answer_goes_no_further_than_the_guest(guest: &Guest) {
    const RST: u8 = 4;
    let frames = Frames::listen();
    let path = "/latest/meta-data/hostname";
    assert_eq!((guest.get(path).await, guest.get6(path).await), (Ok("one".to_owned()), Ok("one".to_owned())));
    let heard = frames.tcp();
    for address in [IpAddr::from(ADDRESS_V4), ADDRESS_V6.into()] {
        // A reset says nothing but that there is no such connection.
        let segments = heard.iter().filter(|(from, _, segment)| *from == address && segment[13] & RST == 0);
        let hops: Vec<u8> = segments.clone().map(|(_, hops, _)| *hops).collect();
        assert!(hops.iter().all(|hops| *hops == 1), "{address}: {hops:?}");
        let told = |segment: &[u8]| segment.windows(15).any(|part| part == b"HTTP/1.1 200 OK");
        assert!(
            segments.clone().any(|(_, _, segment)| told(segment)),
            "{address}: the answer was not among {}",
            hops.len()
        );
    }
}

/// Each is answered, of the one that asks so often as of the other.
async fn a_hundred_requests_a_second_disturb_no_other(busy: &Guest, other: &Guest) {
    let paced = busy.ask_paced(500);
    let asks = async {
        for _ in 0..50 {
            assert_eq!(other.get("/latest/meta-data/hostname").await.expect("answered"), "two");
            assert_eq!(other.get6("/latest/meta-data/hostname").await.expect("answered"), "two");
        }
    };
    let (told, ()) = tokio::join!(paced, asks);
    let told = told.expect("the thread ends").expect("neither refused nor lost");
    let right =
        told.iter().filter(|answer| answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\none"));
    assert_eq!(right.count(), 500, "{:?}", told.iter().find(|answer| !answer.starts_with("HTTP/1.1 200")));
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
