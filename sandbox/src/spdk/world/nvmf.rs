//! NVMe subsystems: namespaces, listeners, hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use super::{Outcome, World, invalid, text};
use crate::spdk::INTERNAL_ERROR;

/// `NVMF_SUBSYSTEM_DEFAULT_NAMESPACES`.
const NAMESPACES: u64 = 32;

#[derive(Debug, Default)]
pub struct Target {
    pub transports: BTreeSet<String>,
    pub subsystems: BTreeMap<String, Subsystem>,
    /// Addresses on which a host is connected.
    pub connected: BTreeSet<String>,
}

#[derive(Debug, Clone, Default)]
pub struct Subsystem {
    pub serial: String,
    pub model: String,
    pub allow_any_host: bool,
    pub most: u64,
    pub namespaces: BTreeMap<u64, Namespace>,
    pub listeners: Vec<Value>,
}

#[derive(Debug, Clone)]
pub struct Namespace {
    pub bdev: String,
    pub uuid: String,
    pub eui64: String,
}

impl Target {
    /// A bdev has gone: its namespaces go too. Where it was shown.
    pub(super) fn lose(&mut self, bdev: &str) -> Vec<String> {
        let mut lost = Vec::new();
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
            "hosts": [], "serial_number": self.serial, "model_number": self.model, "max_namespaces": self.most,
            "namespaces": self.namespaces.iter().map(namespace).collect::<Vec<_>>(),
        })
    }

    fn listens(&self, traddr: &str) -> bool {
        self.listeners.iter().any(|listener| listener["traddr"] == traddr)
    }
}

pub(super) fn call(world: &mut World, method: &str, params: &Value) -> Option<Outcome> {
    let nqn = text(params, "nqn");
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
                let here = world.nvmf.connected.iter().filter(|address| subsystem.listens(address));
                Ok(here.enumerate().map(|(n, _)| json!({"cntlid": n + 1, "hostnqn": ""})).collect())
            }
            None => invalid(),
        },
        _ => return None,
    })
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
    let (bdev, claimed) = (bdev.name.clone(), bdev.claimed.is_some());
    let Some(subsystem) = world.nvmf.subsystems.get_mut(nqn) else { return invalid() };
    let free = (1..=subsystem.most).find(|nsid| !subsystem.namespaces.contains_key(nsid));
    let Some(nsid) = asked["nsid"].as_u64().or(free) else { return invalid() };
    if claimed || nsid == 0 || nsid > subsystem.most || subsystem.namespaces.contains_key(&nsid) {
        return invalid();
    }
    let uuid = text(asked, "uuid").to_owned();
    let is_double = subsystem.namespaces.values().any(|ns| ns.uuid == uuid);
    let namespace = Namespace { bdev: bdev.clone(), uuid: uuid.clone(), eui64: text(asked, "eui64").to_owned() };
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
    let Some(namespace) = subsystem.namespaces.remove(&nsid) else { return invalid() };
    if let Some(bdev) = world.bdevs.get_mut(&namespace.bdev) {
        bdev.claimed = None;
    }
    Ok(json!(true))
}

fn listen(world: &mut World, nqn: &str, address: &Value) -> Outcome {
    let (trtype, traddr) = (text(address, "trtype"), text(address, "traddr").to_owned());
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

/// vfio-user's socket: refused without the folder, and while an old one is in the way.
fn open_socket(folder: &Path) -> bool {
    // Its end leaves the file behind, as a killed target does.
    std::os::unix::net::UnixListener::bind(folder.join("cntrl")).is_ok()
}
