//! What a server without a DPU does start by start: its firmware asks the network where it was told to, as iPXE does; the installer, the
//! real one but for its actions, does what it is told; the system on its disk takes its address. It ends with its network.

use super::boot::Network;
use super::host::Host;
use super::scene::Scene;
use super::secrets;
use super::simulation::INVENTORY;
use boot::Reply;
use dhcproto::v4::{Architecture, DhcpOption, Message, MessageType};
use dhcproto::{Decodable, Decoder, Encodable};
use installer::agent::{Action, Actions, Agent, Then};
use installer::arguments::Arguments;
use installer::lines::Lines;
use installer::session::Session;
use planner::erase;
use planner::host::BootSource;
use planner::install::{Phase, Record};
use proto::tink::AgentAttributes;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub const HARDWARE: &str = "tinkerbell.org/hardware";
/// Upstream's actions by the names that other people's Templates have for them.
pub const OCI2DISK: &str = "quay.io/tinkerbell/actions/oci2disk";
pub const WRITEFILE: &str = "quay.io/tinkerbell/actions/writefile";
pub const WAITDAEMON: &str = "ghcr.io/jacobweinstock/waitdaemon:latest";
const WORKFLOWS: &str = "tinkerbell.org/workflows";
const LOOK: Duration = Duration::from_millis(500);
/// Until firmware gives the network up, and between two of its questions.
const FIRMWARE: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_secs(4);
/// Of the address of a system that runs.
const RENEWED: Duration = Duration::from_mins(11);
/// Of the kernel, and of an action.
const KERNEL: Duration = Duration::from_secs(2);
const ACTION: Duration = Duration::from_secs(3);
/// As the installer reports its only disk.
const ERASED: &str = r#"disk {"name":"vda","serial":"V1","bytes":1073741824,"result":"Erased","method":"Overwrite","read":"all of it is zero"}"#;

/// What is true of the server over all its starts.
#[derive(Default)]
pub struct Disk {
    /// It has what was written.
    pub is_dirty: AtomicBool,
    /// UIDs of the Workflows whose image was written.
    written: Mutex<BTreeSet<String>>,
    /// How many more installations somebody has asked for.
    asked: AtomicUsize,
    /// What cloud-init of the system on it reads.
    seed: Mutex<BTreeMap<String, Vec<u8>>>,
    /// The longest that its installer was without work, before its first action or between two.
    longest_wait: Mutex<Duration>,
}

impl Disk {
    pub fn longest_wait(&self) -> Duration {
        *lock(&self.longest_wait)
    }

    /// Somebody asks for one more installation.
    pub fn is_asked_for(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    pub fn seed(&self) -> BTreeMap<String, Vec<u8>> {
        lock(&self.seed).clone()
    }

    /// The installer waits since then, and has work now.
    fn waited(&self, since: Instant) {
        let mut longest = lock(&self.longest_wait);
        *longest = longest.max(since.elapsed());
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Servers on one network, which ends with them.
pub struct Servers {
    pub disks: Vec<Arc<Disk>>,
    network: Arc<Network>,
    _tasks: Vec<Running>,
}

impl Servers {
    /// The first hosts of the scene.
    pub fn start(scene: &Arc<Scene>, count: usize) -> Self {
        secrets::listen();
        let network = Network::start(scene);
        let disks: Vec<_> = (0..count).map(|_| Arc::<Disk>::default()).collect();
        let one = |(number, disk): (usize, &Arc<Disk>)| {
            let of = Start { scene: scene.clone(), network: network.clone(), disk: disk.clone(), number };
            Running(tokio::spawn(starts(of)))
        };
        let _tasks = disks.iter().enumerate().map(one).collect();
        Self { disks, network, _tasks }
    }

    /// Every replica of the boot service dies at once, and is started again.
    pub fn lose_boot(&self) {
        self.network.dies();
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        secrets::ignore();
    }
}

/// One after the other, for as long as it is polled.
async fn starts(of: Start) {
    let mut current: Option<((u64, Option<BootSource>), Running)> = None;
    loop {
        tokio::time::sleep(LOOK).await;
        let started = of.host().started();
        if started != current.as_ref().map(|(started, _)| *started) {
            // What ran before is dropped first.
            drop(current.take());
            current = started.map(|started| (started, Running(tokio::spawn(of.clone().run(started.1)))));
        }
    }
}

/// One start of a server.
#[derive(Clone)]
struct Start {
    scene: Arc<Scene>,
    network: Arc<Network>,
    disk: Arc<Disk>,
    /// Of its host, from 0.
    number: usize,
}

impl Start {
    async fn run(self, source: Option<BootSource>) {
        let arguments = match source {
            Some(BootSource::Pxe) => self.arguments_by_network().await,
            Some(BootSource::Cd) => self.arguments_of_medium().await,
            _ => None,
        };
        match arguments {
            Some(arguments) => self.installer(&arguments).await,
            None => self.own_system().await,
        }
    }

    fn host(&self) -> &Arc<Host> {
        &self.scene.hosts[self.number]
    }

    /// As iPXE: an address, then the script, then the kernel that it names. `None`: the disk is booted.
    async fn arguments_by_network(&self) -> Option<String> {
        let given_up = Instant::now() + FIRMWARE;
        while Instant::now() < given_up {
            match self.script().await {
                Some(script) if script.contains("\nkernel ") => {
                    let line = script.lines().find(|line| line.starts_with("kernel "))?;
                    let arguments = line.split(" && ").next()?.split_whitespace().skip(2).collect::<Vec<_>>();
                    return Some(arguments.join(" "));
                }
                Some(_) => return None,
                None => tokio::time::sleep(AGAIN).await,
            }
        }
        None
    }

    /// `None`: nobody has one for it now.
    async fn script(&self) -> Option<String> {
        let answers = self.network.dhcp(&discover(self.number));
        let url = answers.iter().find_map(|answer| {
            let answer = Message::decode(&mut Decoder::new(answer)).expect("the answer is DHCP");
            answer.fname_str().and_then(Result::ok).map(|file| file.trim_end_matches('\0').to_owned())
        })?;
        let (server, path) = url.strip_prefix("http://")?.split_once('/')?;
        match self.network.get(server.split(':').next()?.parse().ok()?, &format!("/{path}")).await? {
            Reply::Text(script) => Some(script),
            _ => None,
        }
    }

    /// Filled in by the boot service as the BMC reads it.
    async fn arguments_of_medium(&self) -> Option<String> {
        let path = format!("/iso/{}/installer.iso", mac(self.number));
        match self.network.get(self.network.one()?, &path).await? {
            Reply::Remote { arguments, .. } => Some(arguments),
            _ => None,
        }
    }

    async fn own_system(&self) {
        if !self.disk.is_dirty.load(Ordering::Relaxed) {
            return;
        }
        tokio::time::sleep(KERNEL).await;
        // Until somebody hears it, and again while it runs.
        loop {
            let is_heard = !self.network.dhcp(&request(self.number)).is_empty();
            tokio::time::sleep(if is_heard { RENEWED } else { AGAIN }).await;
        }
    }

    async fn installer(&self, arguments: &str) {
        tokio::time::sleep(KERNEL).await;
        let known = Arguments::parse(arguments).expect("the installer's own arguments");
        // The agent's name, until when it is known by the token, and that.
        self.scene.has_token(known.worker.rsplit('.').next().unwrap_or_default());
        let from = SocketAddr::from((address(self.number), 40000));
        let (dial, about) = (self.network.dial(from), (attributes(self.number), None));
        let agent = Agent::by(dial, &known.servers, known.pin, known.worker, about).expect("an address");
        let works = Works { start: self, session: agent.session(), since: Mutex::new(Instant::now()) };
        if agent.serve(&works).await == Then::Restart {
            self.host().resets_itself();
        }
    }

    /// The Workflow of this server that runs an action of this image: of several the one of which that was reported last, for one that was given up
    /// says so until it is deleted.
    fn workflow_of(&self, image: &str) -> Option<Arc<Value>> {
        let runs = |workflow: &Arc<Value>| {
            let tasks = workflow["status"]["tasks"].as_array().into_iter().flatten();
            let mut actions = tasks.flat_map(|task| task["actions"].as_array().into_iter().flatten());
            actions.any(|action| action["image"] == *image && action["state"] == "RUNNING")
        };
        let of_server = |workflow: &Arc<Value>| workflow["spec"]["hardwareRef"] == *self.host().name;
        let version = |workflow: &Arc<Value>| workflow["metadata"]["resourceVersion"].as_str()?.parse::<u64>().ok();
        let all = self.scene.server.list(WORKFLOWS).into_iter();
        all.filter(|workflow| of_server(workflow) && runs(workflow)).max_by_key(version)
    }

    /// A disk is written or erased only while that is on record, for the claim that stands.
    fn is_on_record(&self, image: &str, record: impl Fn(&Value, &str) -> bool) -> Option<String> {
        let server = self.scene.server.get(HARDWARE, INVENTORY, &self.host().name).unwrap_or_default();
        let uid = self.workflow_of(image).map(|w| w["metadata"]["uid"].as_str().unwrap_or_default().to_owned());
        if !uid.as_ref().is_some_and(|uid| record(&server["metadata"]["annotations"], uid)) {
            self.scene.violated(format!("{image} of Workflow {uid:?} is not on record: {}", server["metadata"]));
        }
        uid
    }
}

struct Works<'a> {
    start: &'a Start,
    session: Option<Session>,
    /// It has had no work since then.
    since: Mutex<Instant>,
}

impl Actions for Works<'_> {
    async fn run(&self, action: &Action, lines: &Lines) -> Result<Then, String> {
        self.start.disk.waited(*lock(&self.since));
        let done = match action.image.as_str() {
            "seed" => self.seed().await,
            _ => self.start.act(action, lines).await,
        };
        *lock(&self.since) = Instant::now();
        done
    }
}

impl Works<'_> {
    async fn seed(&self) -> Result<Then, String> {
        let session = self.session.as_ref().ok_or("no session")?;
        *lock(&self.start.disk.seed) = session.seed().await?;
        Ok(Then::Next)
    }
}

impl Start {
    async fn act(&self, action: &Action, lines: &Lines) -> Result<Then, String> {
        match action.image.as_str() {
            "image2disk" => {
                let uid = self.is_on_record("image2disk", |annotations, uid| {
                    let record = annotations["metalplane.io/install"].as_str().and_then(Record::parse);
                    record.is_some_and(|record| record.phase == Phase::Begun && record.workflow == uid)
                });
                self.disk.is_dirty.store(true, Ordering::Relaxed);
                let mut written = lock(&self.disk.written);
                written.extend(uid);
                if written.len() > 1 + self.disk.asked.load(Ordering::Relaxed) {
                    self.scene.violated(format!("installed by {written:?}"));
                }
            }
            "metalplane.io/erase" => {
                self.is_on_record("metalplane.io/erase", |annotations, uid| {
                    let record = annotations["metalplane.io/erase"].as_str().and_then(erase::Record::parse);
                    record.is_some_and(|record| !record.is_over() && record.workflow == uid)
                });
            }
            // Of a Workflow that no machine's claim is behind.
            OCI2DISK => self.disk.is_dirty.store(true, Ordering::Relaxed),
            "inspect" | WRITEFILE => {}
            "reboot" | WAITDAEMON => return Ok(Then::Restart),
            other => return Err(format!("there is no {other} here")),
        }
        tokio::time::sleep(ACTION).await;
        if action.image == "metalplane.io/erase" {
            self.disk.is_dirty.store(false, Ordering::Relaxed);
            lines.report(ERASED.to_owned());
        }
        Ok(Then::Next)
    }
}

/// Of a host's only NIC.
fn bytes(number: usize) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 0, u8::try_from(number + 1).expect("less than 255 servers")]
}

pub fn mac(number: usize) -> String {
    bytes(number).map(|byte| format!("{byte:02x}")).join(":")
}

fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 88, 1, u8::try_from(number + 1).expect("less than 255 servers"))
}

/// As an administrator writes a server down.
pub fn interfaces(number: usize) -> Value {
    json!([{"dhcp": {"mac": mac(number), "uefi": true, "ip": {"address": address(number), "netmask": "255.255.0.0"}}}])
}

fn attributes(number: usize) -> AgentAttributes {
    let nic = proto::tink::Network { mac: Some(mac(number)), ..Default::default() };
    AgentAttributes { network: vec![nic], ..Default::default() }
}

fn message(number: usize, kind: MessageType, more: impl IntoIterator<Item = DhcpOption>) -> Vec<u8> {
    let none = Ipv4Addr::UNSPECIFIED;
    let mut message = Message::new(none, none, none, none, &bytes(number));
    message.opts_mut().insert(DhcpOption::MessageType(kind));
    for option in more {
        message.opts_mut().insert(option);
    }
    message.to_vec().expect("a message")
}

/// As Tinkerbell's iPXE asks on UEFI.
fn discover(number: usize) -> Vec<u8> {
    let options = [
        DhcpOption::ClassIdentifier(b"PXEClient:Arch:00007:UNDI:003000".to_vec()),
        DhcpOption::ClientSystemArchitecture(Architecture::from(7)),
        DhcpOption::ClientNetworkInterface(1, 3, 0),
        DhcpOption::UserClass(b"Tinkerbell".to_vec()),
    ];
    message(number, MessageType::Discover, options)
}

/// As a system that starts, and had this address.
fn request(number: usize) -> Vec<u8> {
    message(number, MessageType::Request, [DhcpOption::RequestedIpAddress(address(number))])
}
