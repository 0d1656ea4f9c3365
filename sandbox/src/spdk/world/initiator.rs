//! NVMe controllers that the target connects to, over the fabric to other fakes.

use super::{Bdev, Kind, Outcome, World, errno, text};
use crate::spdk::Peer;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;

#[derive(Debug, Default)]
pub struct Initiator {
    /// The ways of each controller, by its name.
    pub controllers: BTreeMap<String, Vec<Way>>,
}

/// One connection, or what becomes one again when the storage lets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    pub address: String,
    pub port: String,
    pub subsystem: String,
    pub host: String,
}

/// A namespace as the storage shows it.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    pub nsid: u64,
    pub uuid: String,
    pub size_bytes: u64,
    /// The storage's own name of it.
    pub bdev: String,
}

/// What this host sees; `None`: nobody is there, or it is refused. Being seen is being connected.
fn reach(peers: &[Peer], way: &Way) -> Option<Vec<Shown>> {
    peers.iter().find_map(|peer| peer.with(|storage| storage.show(way, peer.of())).flatten())
}

/// By the first way that leads there now.
pub(super) fn write(world: &World, controller: &str, bdev: &str, byte: u8) -> io::Result<bool> {
    let number = bdev.strip_prefix(controller).and_then(|rest| rest.strip_prefix('n'));
    let Some(nsid) = number.and_then(|number| number.parse::<u64>().ok()) else { return Ok(false) };
    for way in world.initiator.controllers.get(controller).into_iter().flatten() {
        for peer in &world.outside.peers {
            let written = peer.with(|storage| {
                let shown = storage.show(way, peer.of())?.into_iter().find(|ns| ns.nsid == nsid)?;
                Some(storage.write(&shown.bdev, byte))
            });
            if let Some(written) = written.flatten() {
                return written;
            }
        }
    }
    Ok(false)
}

/// Takes over what the storage shows: namespaces that came, grew and went. A way that is lost leaves all as it was.
pub(super) fn look(world: &mut World) {
    let controllers = world.initiator.controllers.clone();
    for (name, ways) in controllers {
        // Each way that leads there is connected; all show the same.
        let views: Vec<_> = ways.iter().filter_map(|way| reach(&world.outside.peers, way)).collect();
        let Some(shown) = views.into_iter().next() else { continue };
        let bdev = |nsid: u64| format!("{name}n{nsid}");
        let of_this = |bdev: &&Bdev| matches!(&bdev.kind, Kind::Nvme { controller } if *controller == name);
        let there: Vec<_> = world.bdevs.values().filter(of_this).map(|bdev| bdev.name.clone()).collect();
        for gone in there.iter().filter(|there| !shown.iter().any(|ns| bdev(ns.nsid) == **there)) {
            world.vanish(gone);
        }
        for ns in shown {
            let own = bdev(ns.nsid);
            if there.contains(&own) {
                world.resize_bdev(&own, ns.size_bytes / super::bdevs::BLOCK_SIZE);
            } else {
                let kind = Kind::Nvme { controller: name.clone() };
                let made = Bdev::new(&own, super::bdevs::BLOCK_SIZE, ns.size_bytes, kind);
                // Refused where another bdev has the UUID: the namespace stays without one, as in SPDK.
                let _ = world.register(Bdev { uuid: ns.uuid, ..made });
            }
        }
    }
}

/// The storage sees the host go.
fn leave(world: &World, ways: &[Way]) {
    for (way, peer) in ways.iter().flat_map(|way| world.outside.peers.iter().map(move |peer| (way, peer))) {
        peer.with(|storage| storage.nvmf.leave(&way.subsystem, &way.host, peer.of()));
    }
}

pub(super) fn leave_all(world: &World) {
    for ways in world.initiator.controllers.values() {
        leave(world, ways);
    }
}

pub(super) fn call(world: &mut World, method: &str, params: &Value) -> Option<Outcome> {
    let name = text(params, "name").to_owned();
    Some(match method {
        "bdev_nvme_get_controllers" => {
            Ok(world.initiator.controllers.iter().map(|(name, ways)| dump(world, name, ways)).collect())
        }
        "bdev_nvme_attach_controller" => attach(world, name, params),
        "bdev_nvme_detach_controller" => detach(world, &name),
        _ => return None,
    })
}

fn dump(world: &World, name: &str, ways: &[Way]) -> Value {
    let way = |way: &Way| {
        let state = if reach(&world.outside.peers, way).is_some() { "enabled" } else { "reconnect_is_delayed" };
        json!({
            "state": state, "cntlid": 1, "host": {"nqn": way.host, "addr": "", "svcid": ""},
            "trid": {"trtype": "TCP", "adrfam": "IPv4", "traddr": way.address, "trsvcid": way.port, "subnqn": way.subsystem},
        })
    };
    json!({"name": name, "ctrlrs": ways.iter().map(way).collect::<Vec<_>>()})
}

fn attach(world: &mut World, name: String, params: &Value) -> Outcome {
    let way = Way {
        address: text(params, "traddr").to_owned(),
        port: text(params, "trsvcid").to_owned(),
        subsystem: text(params, "subnqn").to_owned(),
        host: text(params, "hostnqn").to_owned(),
    };
    let there = world.initiator.controllers.get(&name);
    if there.is_some_and(|ways| ways.contains(&way)) {
        return Err((-114, "A controller with the same path exists".to_owned()));
    }
    if reach(&world.outside.peers, &way).is_none() {
        return errno(-5);
    }
    world.initiator.controllers.entry(name.clone()).or_default().push(way);
    look(world);
    let came =
        world.bdevs.values().filter(|bdev| matches!(&bdev.kind, Kind::Nvme { controller } if *controller == name));
    Ok(came.map(|bdev| json!(bdev.name)).collect())
}

fn detach(world: &mut World, name: &str) -> Outcome {
    let Some(ways) = world.initiator.controllers.remove(name) else { return errno(-19) };
    let is_lost = ways.iter().all(|way| reach(&world.outside.peers, way).is_none());
    leave(world, &ways);
    let of_this = |bdev: &&Bdev| matches!(&bdev.kind, Kind::Nvme { controller } if controller == name);
    let there: Vec<_> = world.bdevs.values().filter(of_this).map(|bdev| bdev.name.clone()).collect();
    for bdev in there {
        // One that nobody can reach is of no use to who has it: what was asked of it fails.
        match is_lost {
            true => drop(world.vanish(&bdev)),
            false => drop(world.unregister(&bdev)?),
        }
    }
    Ok(json!(true))
}
