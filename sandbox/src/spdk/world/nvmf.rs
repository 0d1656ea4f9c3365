//! NVMe subsystems: namespaces, listeners, hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::Path;

use serde_json::{Value, json};

use super::initiator::Shown;
use super::{Outcome, Way, World, invalid, text};
use crate::spdk::{INTERNAL_ERROR, UNANSWERED};

/// `NVMF_SUBSYSTEM_DEFAULT_NAMESPACES`.
const NAMESPACES: u64 = 32;

#[derive(Debug, Default)]
pub struct Target {
    pub transports: BTreeSet<String>,
    pub subsystems: BTreeMap<String, Subsystem>,
    /// Addresses on which a host is connected.
    pub connected: BTreeSet<String>,
    /// Hosts that are connected over a fabric: subsystem, host, and the target that they are in.
    pub sessions: BTreeSet<(String, String, String)>,
    /// Bdevs of which a host has asked something that nobody answers: it waits.
    pub(super) waited_for: BTreeSet<String>,
    /// Subsystems that are to lose a namespace of such a bdev: they answer nothing before that is over.
    pausing: BTreeSet<String>,
    /// What accepts connections, and says no more.
    sockets: Vec<(String, TcpListener)>,
}

#[derive(Debug, Clone, Default)]
pub struct Subsystem {
    pub serial: String,
    pub model: String,
    pub allow_any_host: bool,
    pub hosts: BTreeSet<String>,
    pub most: u64,
    pub namespaces: BTreeMap<u64, Namespace>,
    pub listeners: Vec<Value>,
}

#[derive(Debug, Clone)]
pub struct Namespace {
    pub bdev: String,
    pub uuid: String,
    pub eui64: String,
    /// Only these hosts see it; `None`: every one.
    pub hosts: Option<BTreeSet<String>>,
}

impl Target {
    /// The host in that target is no longer connected.
    pub(super) fn leave(&mut self, nqn: &str, host: &str, of: &str) {
        self.sessions.remove(&(nqn.to_owned(), host.to_owned(), of.to_owned()));
    }

    /// A bdev has gone: its namespaces go too. Where it was shown.
    pub(super) fn lose(&mut self, bdev: &str) -> Vec<String> {
        let mut lost = Vec::new();
        if self.waited_for.remove(bdev) {
            self.pausing.clear();
        }
        for (nqn, subsystem) in &mut self.subsystems {
            let before = subsystem.namespaces.len();
            subsystem.namespaces.retain(|_, ns| ns.bdev != bdev);
            if subsystem.namespaces.len() < before {
                lost.push(nqn.clone());
            }
        }
        lost
    }
}

impl Subsystem {
    fn dump(&self, nqn: &str) -> Value {
        let namespace = |(nsid, ns): (&u64, &Namespace)| json!({"nsid": nsid, "bdev_name": ns.bdev, "name": ns.bdev, "uuid": ns.uuid, "eui64": ns.eui64});
        json!({
            "nqn": nqn, "subtype": "NVMe", "listen_addresses": self.listeners, "allow_any_host": self.allow_any_host,
            "hosts": self.hosts.iter().map(|nqn| json!({"nqn": nqn})).collect::<Vec<_>>(), "serial_number": self.serial, "model_number": self.model, "max_namespaces": self.most,
            "namespaces": self.namespaces.iter().map(namespace).collect::<Vec<_>>(),
        })
    }

    fn listens(&self, traddr: &str) -> bool {
        self.listeners.iter().any(|listener| listener["traddr"] == traddr)
    }

    fn allows(&self, host: &str) -> bool {
        self.allow_any_host || self.hosts.contains(host)
    }
}

impl World {
    /// What the host of a way sees; it is connected from then on. `None`: refused, or nothing listens there.
    pub(super) fn show(&mut self, way: &Way, of: &str) -> Option<Vec<Shown>> {
        let subsystem = self.nvmf.subsystems.get(&way.subsystem)?;
        let is_there =
            |listener: &Value| listener["traddr"] == way.address.as_str() && listener["trsvcid"] == way.port.as_str();
        if !subsystem.listeners.iter().any(is_there) || !subsystem.allows(&way.host) {
            return None;
        }
        let sees = |ns: &&Namespace| ns.hosts.as_ref().is_none_or(|hosts| hosts.contains(&way.host));
        let shown = subsystem.namespaces.iter().filter(|(_, ns)| sees(ns)).filter_map(|(nsid, ns)| {
            let bdev = self.bdev(&ns.bdev)?;
            let (uuid, size_bytes) = (ns.uuid.clone(), bdev.block_size * bdev.num_blocks);
            Some(Shown { nsid: *nsid, uuid, size_bytes, bdev: ns.bdev.clone() })
        });
        let shown: Vec<_> = shown.collect();
        self.nvmf.sessions.insert((way.subsystem.clone(), way.host.clone(), of.to_owned()));
        Some(shown)
    }
}

pub(super) fn call(world: &mut World, method: &str, params: &Value) -> Option<Outcome> {
    let nqn = text(params, "nqn");
    if world.nvmf.pausing.contains(nqn) {
        return Some(Err((UNANSWERED, String::new())));
    }
    Some(match method {
        "nvmf_get_transports" => Ok(world.nvmf.transports.iter().map(|name| json!({"trtype": name})).collect()),
        "nvmf_create_transport" => {
            let name = text(params, "trtype").to_owned();
            match world.nvmf.transports.insert(name.clone()) {
                true => Ok(json!(true)),
                false => Err((INTERNAL_ERROR, format!("Transport type '{name}' already exists"))),
            }
        }
        "nvmf_get_subsystems" => Ok(world.nvmf.subsystems.iter().map(|(nqn, s)| s.dump(nqn)).collect()),
        "nvmf_create_subsystem" => create(&mut world.nvmf, nqn, params),
        "nvmf_delete_subsystem" => match world.nvmf.subsystems.remove(nqn) {
            Some(_) => Ok(json!(true)),
            None => invalid(),
        },
        "nvmf_subsystem_add_ns" => add_namespace(world, nqn, &params["namespace"]),
        "nvmf_subsystem_remove_ns" => remove_namespace(world, nqn, params["nsid"].as_u64().unwrap_or_default()),
        "nvmf_subsystem_add_listener" => listen(world, nqn, &params["listen_address"]),
        "nvmf_subsystem_get_controllers" => match world.nvmf.subsystems.get(nqn) {
            Some(subsystem) => {
                let here = world.nvmf.connected.iter().filter(|address| subsystem.listens(address)).map(|_| "");
                let sessions = world.nvmf.sessions.iter().filter(|(subsystem, ..)| subsystem == nqn);
                let hosts = here.chain(sessions.map(|(_, host, _)| host.as_str()));
                Ok(hosts.enumerate().map(|(n, host)| json!({"cntlid": n + 1, "hostnqn": host})).collect())
            }
            None => invalid(),
        },
        "nvmf_subsystem_allow_any_host" => match world.nvmf.subsystems.get_mut(nqn) {
            Some(subsystem) => {
                subsystem.allow_any_host = params["allow_any_host"] == true;
                Ok(json!(true))
            }
            None => invalid(),
        },
        "nvmf_subsystem_add_host" => match world.nvmf.subsystems.get_mut(nqn) {
            Some(subsystem) => match subsystem.hosts.insert(text(params, "host").to_owned()) {
                true => Ok(json!(true)),
                false => Err((INTERNAL_ERROR, "Internal error".to_owned())),
            },
            None => invalid(),
        },
        "nvmf_subsystem_remove_host" => remove_host(&mut world.nvmf, nqn, text(params, "host")),
        "nvmf_ns_add_host" => {
            let subsystem = world.nvmf.subsystems.get_mut(nqn);
            let namespace = subsystem.and_then(|s| s.namespaces.get_mut(&params["nsid"].as_u64()?));
            match namespace.and_then(|ns| ns.hosts.as_mut()) {
                Some(hosts) => {
                    hosts.insert(text(params, "host").to_owned());
                    Ok(json!(true))
                }
                None => invalid(),
            }
        }
        _ => return None,
    })
}

/// Its connections end with it.
fn remove_host(target: &mut Target, nqn: &str, host: &str) -> Outcome {
    let Some(subsystem) = target.subsystems.get_mut(nqn) else { return invalid() };
    if !subsystem.hosts.remove(host) {
        return Err((INTERNAL_ERROR, "Internal error".to_owned()));
    }
    target.sessions.retain(|(subsystem, there, _)| subsystem != nqn || there != host);
    Ok(json!(true))
}

fn create(target: &mut Target, nqn: &str, params: &Value) -> Outcome {
    if !nqn.starts_with("nqn.") || target.subsystems.contains_key(nqn) {
        return Err((INTERNAL_ERROR, format!("Unable to create subsystem {nqn}")));
    }
    let subsystem = Subsystem {
        serial: text(params, "serial_number").to_owned(),
        model: text(params, "model_number").to_owned(),
        allow_any_host: params["allow_any_host"] == true,
        most: params["max_namespaces"].as_u64().unwrap_or(NAMESPACES),
        ..Subsystem::default()
    };
    target.subsystems.insert(nqn.to_owned(), subsystem);
    Ok(json!(true))
}

fn add_namespace(world: &mut World, nqn: &str, asked: &Value) -> Outcome {
    let Some(bdev) = world.bdev(text(asked, "bdev_name")) else { return invalid() };
    let (bdev, claimed, own_uuid) = (bdev.name.clone(), bdev.claimed.is_some(), bdev.uuid.clone());
    let Some(subsystem) = world.nvmf.subsystems.get_mut(nqn) else { return invalid() };
    let free = (1..=subsystem.most).find(|nsid| !subsystem.namespaces.contains_key(nsid));
    let Some(nsid) = asked["nsid"].as_u64().or(free) else { return invalid() };
    if claimed || nsid == 0 || nsid > subsystem.most || subsystem.namespaces.contains_key(&nsid) {
        return invalid();
    }
    // Without one it has the bdev's.
    let uuid = asked["uuid"].as_str().unwrap_or(&own_uuid).to_owned();
    let is_double = subsystem.namespaces.values().any(|ns| ns.uuid == uuid);
    let hosts = (asked["no_auto_visible"] == true).then(BTreeSet::new);
    let namespace = Namespace { bdev: bdev.clone(), uuid: uuid.clone(), eui64: text(asked, "eui64").to_owned(), hosts };
    subsystem.namespaces.insert(nsid, namespace);
    if let Some(bdev) = world.bdevs.get_mut(&bdev) {
        bdev.claimed = Some(nqn.to_owned());
    }
    if is_double {
        world.harmful(format!("{nqn} has two namespaces with UUID {uuid}: Linux refuses the second"));
    }
    Ok(json!(nsid))
}

fn remove_namespace(world: &mut World, nqn: &str, nsid: u64) -> Outcome {
    let Some(subsystem) = world.nvmf.subsystems.get_mut(nqn) else { return invalid() };
    if subsystem.namespaces.get(&nsid).is_some_and(|namespace| world.nvmf.waited_for.contains(&namespace.bdev)) {
        world.nvmf.pausing.insert(nqn.to_owned());
        return Err((UNANSWERED, String::new()));
    }
    let Some(namespace) = subsystem.namespaces.remove(&nsid) else { return invalid() };
    if let Some(bdev) = world.bdevs.get_mut(&namespace.bdev) {
        bdev.claimed = None;
    }
    Ok(json!(true))
}

fn listen(world: &mut World, nqn: &str, address: &Value) -> Outcome {
    let (trtype, traddr) = (text(address, "trtype"), text(address, "traddr").to_owned());
    if trtype == "TCP" {
        return listen_tcp(world, nqn, address);
    }
    if !world.nvmf.transports.contains(trtype) || !world.nvmf.subsystems.contains_key(nqn) {
        return invalid();
    }
    let others: Vec<_> =
        world.nvmf.subsystems.iter().filter(|(_, s)| s.listens(&traddr)).map(|(n, _)| n.clone()).collect();
    if others.iter().any(|other| other == nqn) {
        return invalid();
    }
    if others.is_empty() && trtype == "VFIOUSER" && !open_socket(Path::new(&traddr)) {
        return invalid();
    }
    if let Some(subsystem) = world.nvmf.subsystems.get_mut(nqn) {
        subsystem.listeners.push(address.clone());
    }
    if !others.is_empty() {
        world.harmful(format!("{nqn} listens on {traddr}, as {} does", others.join(", ")));
    }
    Ok(json!(true))
}

/// Several subsystems share an address.
fn listen_tcp(world: &mut World, nqn: &str, address: &Value) -> Outcome {
    let place = format!("{}:{}", text(address, "traddr"), text(address, "trsvcid"));
    let target = &mut world.nvmf;
    let Some(subsystem) = target.subsystems.get_mut(nqn).filter(|s| !s.listeners.contains(address)) else {
        return invalid();
    };
    if !target.transports.contains("TCP") {
        return invalid();
    }
    if !target.sockets.iter().any(|(there, _)| *there == place) {
        let Ok(socket) = TcpListener::bind(&place) else { return invalid() };
        target.sockets.push((place, socket));
    }
    subsystem.listeners.push(address.clone());
    Ok(json!(true))
}

/// vfio-user's socket: refused without the folder, and while an old one is in the way.
fn open_socket(folder: &Path) -> bool {
    // Its end leaves the file behind, as a killed target does.
    std::os::unix::net::UnixListener::bind(folder.join("cntrl")).is_ok()
}
