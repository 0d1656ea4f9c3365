//! The agent of a worker that is a machine: what `cni` asks on this node ([`crate::interfaces`] answers it on an ordinary one).
//!
//! The DPU's own agent presents the NICs of the node's pods to this host, and gives each its carrier once it is in force. What they are
//! configured with the controller writes at the pod (annotation `metalplane.io/network-status`), which this node may read with the
//! credential of its kubelet. So there is nothing of Metalplane's on a tenant's machine that could read, or write, anything else.

use crate::args::Args;
use crate::interfaces::{Nics, Service};
use anyhow::Context;
use api::attachment::PodNic;
use api::labels;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use planner::network::pods::Request as Asked;
use planner::network::pods::worker::nics;
use proto::interfaces::v1alpha1 as wire;
use proto::interfaces::v1alpha1::interfaces_server::InterfacesServer;
use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tonic::Status;

/// Less than what the plugin waits for an answer.
const LIMIT: Duration = Duration::from_secs(55);
/// How often it is looked whether the kernel has found a function that was hot-plugged.
const LOOK: Duration = Duration::from_millis(200);
/// A kubelet's certificate is renewed under its name, and read when a client is made.
const CREDENTIAL: Duration = Duration::from_secs(3600);
/// Before the API server is asked again, by a client that could not be made.
const AGAIN: Duration = Duration::from_secs(5);
/// The devices of the network namespace in which the agent was started.
const DEVICES: &str = "/sys/class/net";
/// netdevice(7).
const IFF_UP: u32 = 1;

/// By the UIDs of this node's pods: their annotations. `None`: the API server has not told of them yet.
type Told = Option<BTreeMap<String, Option<String>>>;

/// Runs until `shutdown`.
pub async fn run(args: &Args, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
    std::fs::create_dir_all(&args.run_dir).with_context(|| format!("cannot make {}", args.run_dir.display()))?;
    let told = watch::Sender::default();
    let worker = Worker { node: args.node_name.clone(), told: told.subscribe(), devices: DEVICES.into() };
    let service = InterfacesServer::new(Service(Arc::new(worker)));
    let server = crate::serve::interfaces(args.run_dir.join("agent.sock"), service);
    tracing::info!(node = args.node_name, "starting");
    tokio::select! {
        biased;
        result = server => result.context("serving agent.sock"),
        () = follow(args, &told) => Ok(()),
        () = shutdown => Ok(()),
    }
}

/// For ever.
async fn follow(args: &Args, told: &watch::Sender<Told>) {
    loop {
        let config = runtime::cluster::config(args.kubeconfig.as_deref(), "--kubeconfig").await;
        let client = config.and_then(|config| Client::try_from(config).context("make a client of the API server"));
        match client {
            Ok(client) => drop(timeout(CREDENTIAL, pods(client, &args.node_name, told)).await),
            Err(error) => {
                tracing::warn!("{error:#}");
                sleep(AGAIN).await;
            }
        }
    }
}

/// A node may list and watch its own pods, if it asks for no others.
async fn pods(client: Client, node: &str, told: &watch::Sender<Told>) {
    let own = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
    let mut events = watcher(Api::<Pod>::all(client), own).default_backoff().boxed();
    let mut all = BTreeMap::new();
    let annotation = |pod: &Pod| pod.metadata.annotations.as_ref()?.get(labels::NETWORK_STATUS).cloned();
    let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
    loop {
        match events.try_next().await {
            Ok(Some(watcher::Event::Init)) => all.clear(),
            Ok(Some(watcher::Event::InitApply(pod))) => drop(all.insert(uid(&pod), annotation(&pod))),
            Ok(Some(watcher::Event::InitDone)) => drop(told.send_replace(Some(all.clone()))),
            Ok(Some(watcher::Event::Apply(pod))) => change(told, |all| drop(all.insert(uid(&pod), annotation(&pod)))),
            Ok(Some(watcher::Event::Delete(pod))) => change(told, |all| drop(all.remove(&uid(&pod)))),
            Ok(None) => return,
            Err(error) => tracing::warn!("watching the pods of this node: {error}"),
        }
    }
}

fn change(told: &watch::Sender<Told>, how: impl FnOnce(&mut BTreeMap<String, Option<String>>)) {
    told.send_modify(|told| how(told.get_or_insert_default()));
}

struct Worker {
    node: String,
    told: watch::Receiver<Told>,
    devices: PathBuf,
}

#[tonic::async_trait]
impl Nics for Worker {
    fn node(&self) -> &str {
        &self.node
    }

    async fn ready(&self, pod_uid: &str, asked: &[Asked]) -> Result<Vec<wire::Interface>, Status> {
        let (deadline, mut told) = (Instant::now() + LIMIT, self.told.clone());
        loop {
            let found = find(&told.borrow_and_update(), pod_uid, asked);
            let found = found.and_then(|nics| nics.into_iter().map(|(nic, of)| self.interface(nic, of)).collect());
            let waits = match found {
                Ok(interfaces) => return Ok(interfaces),
                Err(waits) => waits,
            };
            if Instant::now() >= deadline {
                return Err(Status::unavailable(format!("not within {} s: {waits}", LIMIT.as_secs())));
            }
            // Of a device no event tells here.
            if let Ok(Err(_)) = timeout(LOOK, told.changed()).await {
                return Err(Status::unavailable("the agent is ending"));
            }
        }
    }

    /// The function is the node's again; the controller has it unplugged once the pod has ended.
    fn ended(&self) {}
}

impl Worker {
    fn interface(&self, nic: PodNic, asked: &Asked) -> Result<wire::Interface, String> {
        let device = device(&self.devices, &nic.mac_address)?;
        let route =
            |route: api::attachment::PodRoute| wire::Route { destination: route.destination, gateway: route.gateway };
        Ok(wire::Interface {
            name: nic.name,
            device,
            mac_address: nic.mac_address,
            mtu: u32::from(nic.mtu),
            addresses: nic.interface.addresses,
            routes: nic.interface.routes.into_iter().map(route).collect(),
            configured_by_pod: !asked.configure,
            function: true,
        })
    }
}

/// Everything that is asked for, as the controller told of it; or what is waited for.
fn find<'a>(told: &Told, pod_uid: &str, asked: &'a [Asked]) -> Result<Vec<(PodNic, &'a Asked)>, String> {
    let all = told.as_ref().ok_or("the agent has not heard of the API server yet")?;
    let pod = all.get(pod_uid).ok_or("the API server has not told of this pod yet")?;
    let nics = nics(pod.as_deref().unwrap_or("[]"))?;
    let one = |asked: &'a Asked| {
        let nic = nics.iter().find(|nic| nic.name == asked.name).cloned();
        nic.map(|nic| (nic, asked)).ok_or_else(|| {
            format!(
                "interface '{}' is not in force at the DPU of this machine yet: the controller says in the pod's Events what it \
                 waits for",
                asked.name
            )
        })
    };
    asked.iter().map(one).collect()
}

/// The one network device of the machine's hardware with this MAC address. One that is up is in use on the node, whatever a pod is told.
fn device(devices: &Path, mac: &str) -> Result<String, String> {
    let entries = std::fs::read_dir(devices).map_err(|error| format!("{}: {error}", devices.display()))?;
    let read = |path: &Path, file: &str| std::fs::read_to_string(path.join(file)).unwrap_or_default();
    let is_it = |path: &PathBuf| read(path, "address").trim() == mac && path.join("device").exists();
    let all: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_it).collect();
    let [one] = all.as_slice() else {
        return Err(match all.is_empty() {
            true => format!("no network device on the node has the MAC address {mac}: its driver may be missing"),
            false => format!("several network devices on the node have the MAC address {mac}"),
        });
    };
    let name = one.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let flags = read(one, "flags");
    let flags = flags.trim().strip_prefix("0x").and_then(|digits| u32::from_str_radix(digits, 16).ok());
    match flags {
        Some(flags) if flags & IFF_UP == 0 => Ok(name),
        Some(_) => Err(format!(
            "network device {name} has the MAC address {mac} and is up: something on the node configures it (NetworkManager, for instance)"
        )),
        None => Err(format!("network device {name}: the kernel does not tell whether it is up")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planner::network::pods::requests;

    const MAC: &str = "02:00:00:00:00:07";
    const NICS: &str =
        r#"[{"name": "net1", "macAddress": "02:00:00:00:00:07", "mtu": 1442, "addresses": ["10.20.0.7/24"]}]"#;

    /// `is_hardware`: as the kernel shows a device behind a bus.
    fn plug(devices: &Path, name: &str, mac: &str, is_hardware: bool) {
        let folder = devices.join(name);
        std::fs::create_dir_all(&folder).expect("make a folder");
        std::fs::write(folder.join("address"), format!("{mac}\n")).expect("write");
        std::fs::write(folder.join("flags"), "0x1002\n").expect("write");
        if is_hardware {
            std::fs::create_dir(folder.join("device")).expect("make a folder");
        }
    }

    fn asked() -> Vec<Asked> {
        requests(&[(labels::SUBNET.to_owned(), "blue".to_owned())].into()).expect("well formed")
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_is_answered_once_it_is_told_of_and_its_function_is_there() {
        let (told, folder) = (watch::Sender::default(), tempfile::tempdir().expect("a folder"));
        let worker = Worker { node: "w".to_owned(), told: told.subscribe(), devices: folder.path().to_owned() };
        plug(folder.path(), "veth1", MAC, false);
        let waits = async |worker: &Worker| {
            worker.ready("pod-1", &asked()).await.expect_err("nothing is there").message().to_owned()
        };
        assert!(waits(&worker).await.contains("has not heard of the API server"));
        told.send_replace(Some([("pod-2".to_owned(), Some(NICS.to_owned()))].into()));
        assert!(waits(&worker).await.contains("not told of this pod"));
        change(&told, |all| drop(all.insert("pod-1".to_owned(), None)));
        assert!(waits(&worker).await.contains("interface 'net1' is not in force"));
        change(&told, |all| drop(all.insert("pod-1".to_owned(), Some(NICS.to_owned()))));
        assert!(waits(&worker).await.contains("no network device"), "a device of the kernel's own is none");
        plug(folder.path(), "eth1", MAC, true);
        let all = worker.ready("pod-1", &asked()).await.expect("it is there");
        assert_eq!((all[0].device.as_str(), all[0].function), ("eth1", true));
        assert_eq!(all[0].addresses, ["10.20.0.7/24"]);
        std::fs::write(folder.path().join("eth1/flags"), "0x1003\n").expect("write");
        assert!(waits(&worker).await.contains("eth1 has the MAC address 02:00:00:00:00:07 and is up"));
        plug(folder.path(), "eth2", MAC, true);
        assert!(waits(&worker).await.contains("several network devices"));
    }
}
