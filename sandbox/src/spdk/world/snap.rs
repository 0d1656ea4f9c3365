//! NVIDIA SNAP 4: functions of the DPU, their controllers and namespaces. Answers are as its users read them, and it misbehaves as its
//! release notes and users tell: functions outlive the process and controllers do not; the list of functions is behind; a second resume is an
//! error; a function is nowhere before the host has looked; a host that starts finds a static function without a controller and hangs.

use super::dpu::{Dpu, Host, SerialName};
use super::{Outcome, World, errno, invalid, text};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Ends with the service; the functions stay ([`Dpu`]).
#[derive(Debug, Default)]
pub struct Snap {
    pub subsystems: BTreeMap<String, Subsystem>,
    /// Controllers that the list of functions does not show yet.
    hidden: Vec<String>,
}

#[derive(Debug, Default)]
pub struct Subsystem {
    pub serial: String,
    pub model: String,
    pub namespaces: BTreeMap<u64, Namespace>,
    /// By `ctrl_id`.
    pub controllers: BTreeMap<String, Controller>,
}

#[derive(Debug)]
pub struct Namespace {
    pub bdev: String,
    pub uuid: String,
    /// To which controller it is attached. One alone: SNAP shares no namespace.
    pub shown_by: Option<String>,
}

#[derive(Debug)]
pub struct Controller {
    pub vuid: String,
    pub started: bool,
}

impl Snap {
    /// A bdev has gone. Which namespace was on it.
    pub(super) fn lose(&mut self, bdev: &str) -> Option<String> {
        self.subsystems.iter_mut().find_map(|(nqn, subsystem)| {
            let nsid =
                subsystem.namespaces.iter().find(|(_, namespace)| namespace.bdev == bdev).map(|(nsid, _)| *nsid)?;
            subsystem.namespaces.remove(&nsid);
            Some(nqn.clone())
        })
    }

    fn of_controller(&mut self, ctrl_id: &str) -> Option<&mut Subsystem> {
        self.subsystems.values_mut().find(|subsystem| subsystem.controllers.contains_key(ctrl_id))
    }

    fn controller(&self, ctrl_id: &str) -> Option<&Controller> {
        self.subsystems.values().find_map(|subsystem| subsystem.controllers.get(ctrl_id))
    }

    /// What a host would find on the function.
    pub(super) fn shown_on(&self, vuid: &str) -> Option<BTreeMap<u64, String>> {
        let (ctrl_id, subsystem) = self.subsystems.values().find_map(|subsystem| {
            let (ctrl_id, _) = subsystem.controllers.iter().find(|(_, there)| there.vuid == vuid && there.started)?;
            Some((ctrl_id, subsystem))
        })?;
        let shown = subsystem.namespaces.iter().filter(|(_, ns)| ns.shown_by.as_ref() == Some(ctrl_id));
        Some(shown.map(|(nsid, namespace)| (*nsid, namespace.uuid.clone())).collect())
    }
}

impl Subsystem {
    fn dump(&self, nqn: &str, dpu: &Dpu) -> Value {
        let controller = |(ctrl_id, controller): (&String, &Controller)| {
            let state = if controller.started { "STARTED" } else { "SUSPENDED" };
            let plugged = dpu.plugged.get(&controller.vuid).copied().unwrap_or(true);
            json!({"ctrl_id": ctrl_id, "nqn": nqn, "state": state, "plugged": plugged, "mdts": 7})
        };
        let namespace = |(nsid, namespace): (&u64, &Namespace)| {
            let shown: Vec<_> = namespace.shown_by.iter().map(|ctrl_id| json!({"ctrl_id": ctrl_id})).collect();
            json!({"nsid": nsid, "bdev": namespace.bdev, "uuid": namespace.uuid, "nqn": nqn, "ready": "Yes", "controllers": shown})
        };
        json!({
            "nqn": nqn, "sn": self.serial, "mn": self.model, "mnan": 1024, "nn": 1024,
            "controllers": self.controllers.iter().map(controller).collect::<Vec<_>>(),
            "namespaces": self.namespaces.iter().map(namespace).collect::<Vec<_>>(),
        })
    }
}

const METHODS: [&str; 12] = [
    "emulation_function_list",
    "nvme_subsystem_list",
    "nvme_subsystem_create",
    "nvme_subsystem_destroy",
    "nvme_namespace_create",
    "nvme_namespace_destroy",
    "nvme_controller_create",
    "nvme_controller_attach_ns",
    "nvme_controller_detach_ns",
    "nvme_controller_resume",
    "nvme_controller_suspend",
    "nvme_controller_destroy",
];
const HOT_PLUG: [&str; 4] =
    ["nvme_function_create", "nvme_function_destroy", "nvme_controller_hotplug", "nvme_controller_hotunplug"];

/// What `rpc_get_methods` names besides; without a function the target is plain SPDK.
pub(super) fn methods(world: &World) -> Vec<&'static str> {
    match (world.outside.functions.is_empty(), world.outside.dpu.lacks_hot_plug) {
        (true, _) => Vec::new(),
        (false, true) => METHODS.to_vec(),
        (false, false) => METHODS.iter().chain(&HOT_PLUG).copied().collect(),
    }
}

pub(super) fn call(world: &mut World, method: &str, params: &Value) -> Option<Outcome> {
    if !methods(world).contains(&method) {
        return None;
    }
    let (nqn, ctrl_id) = (text(params, "nqn"), text(params, "ctrl_id"));
    let nsid = params["nsid"].as_u64().unwrap_or_default();
    Some(match method {
        "emulation_function_list" => Ok(functions(world)),
        "nvme_subsystem_list" => {
            Ok(world.snap.subsystems.iter().map(|(nqn, subsystem)| subsystem.dump(nqn, &world.outside.dpu)).collect())
        }
        "nvme_subsystem_create" => create_subsystem(world, nqn, params),
        "nvme_subsystem_destroy" => match world.snap.subsystems.get(nqn) {
            Some(subsystem) if subsystem.namespaces.is_empty() && subsystem.controllers.is_empty() => {
                world.snap.subsystems.remove(nqn);
                done()
            }
            _ => invalid(),
        },
        "nvme_controller_create" => create_controller(world, nqn, text(params, "vuid")),
        "nvme_controller_resume" => resume(world, ctrl_id),
        "nvme_controller_destroy" => destroy_controller(world, ctrl_id),
        "nvme_namespace_create" => create_namespace(world, nqn, nsid, params),
        "nvme_namespace_destroy" => {
            match world.snap.subsystems.get_mut(nqn).and_then(|subsystem| subsystem.namespaces.remove(&nsid)) {
                Some(Namespace { shown_by: Some(_), .. }) => {
                    world.harmful(format!("namespace {nsid} was destroyed while a host had it"));
                    done()
                }
                Some(_) => done(),
                None => invalid(),
            }
        }
        "nvme_controller_attach_ns" => attach(world, ctrl_id, nsid),
        "nvme_controller_detach_ns" => detach(world, ctrl_id, nsid),
        "nvme_function_create" => create_function(world),
        "nvme_function_destroy" => destroy_function(world, text(params, "vuid")),
        "nvme_controller_hotplug" => hot_plug(world, ctrl_id),
        "nvme_controller_hotunplug" => hot_unplug(world, ctrl_id),
        _ => return None,
    })
}

fn done() -> Outcome {
    Ok(json!({"status": "success"}))
}

/// A controller shows in it with the second list after it was made.
fn functions(world: &mut World) -> Value {
    let hidden = std::mem::take(&mut world.snap.hidden);
    let controller = |vuid: &str| {
        let mut all = world.snap.subsystems.values().flat_map(|subsystem| &subsystem.controllers);
        let found = all.find(|(_, controller)| controller.vuid == vuid).map(|(ctrl_id, _)| ctrl_id.clone());
        found.filter(|ctrl_id| !hidden.contains(ctrl_id)).unwrap_or_default()
    };
    let looked = world.outside.dpu.host == Host::Running;
    let function = |(index, vuid): (usize, &String)| {
        let place = if looked { format!("26:00.{}", index + 2) } else { "00:00.0".to_owned() };
        json!({
            "hotplugged": false, "emulation_type": "NVME", "pf_index": index, "pci_bdf": place,
            "vhca_id": index + 2, "vuid": vuid, "ctrl_id": controller(vuid), "vfs": [],
        })
    };
    let plugged = |(index, (vuid, plugged)): (usize, (&String, &bool))| {
        let place = if looked && *plugged { format!("{:02x}:00.0", 40 + index) } else { "00:00.0".to_owned() };
        json!({
            "hotplugged": true, "emulation_type": "NVME", "pf_index": index + 1, "pci_bdf": place,
            "vhca_id": index + 64, "vuid": vuid, "ctrl_id": controller(vuid), "vfs": [],
        })
    };
    let all = world.outside.functions.iter().enumerate().map(function);
    all.chain(world.outside.dpu.plugged.iter().enumerate().map(plugged)).collect()
}

fn create_subsystem(world: &mut World, nqn: &str, params: &Value) -> Outcome {
    let (short, long) = (params["sn"].is_string(), params["serial_number"].is_string());
    let understood = match world.outside.dpu.serial_name {
        SerialName::Short => !long,
        SerialName::Long => !short,
        SerialName::Absent => !short && !long,
    };
    if !understood || world.snap.subsystems.contains_key(nqn) {
        return invalid();
    }
    let given = |short: &str, long: &str, default: &str| {
        let given = params[short].as_str().or_else(|| params[long].as_str());
        given.unwrap_or(default).to_owned()
    };
    let subsystem = Subsystem {
        serial: given("sn", "serial_number", "MNC12"),
        model: given("mn", "model_number", "BlueField NVMe SNAP Controller"),
        ..Subsystem::default()
    };
    world.snap.subsystems.insert(nqn.to_owned(), subsystem);
    done()
}

fn create_controller(world: &mut World, nqn: &str, vuid: &str) -> Outcome {
    let taken = world.snap.subsystems.values().flat_map(|s| s.controllers.values()).any(|c| c.vuid == vuid);
    let known = world.outside.functions.iter().chain(world.outside.dpu.plugged.keys()).any(|function| function == vuid);
    let Some(subsystem) = world.snap.subsystems.get_mut(nqn).filter(|_| known && !taken) else { return invalid() };
    let ctrl_id = format!("NVMeCtrl_{vuid}");
    subsystem.controllers.insert(ctrl_id.clone(), Controller { vuid: vuid.to_owned(), started: false });
    world.snap.hidden.push(ctrl_id.clone());
    Ok(json!({"ctrl_id": ctrl_id}))
}

fn resume(world: &mut World, ctrl_id: &str) -> Outcome {
    let controller = world.snap.of_controller(ctrl_id).and_then(|s| s.controllers.get_mut(ctrl_id));
    let Some(controller) = controller.filter(|controller| !controller.started) else { return invalid() };
    controller.started = true;
    let vuid = controller.vuid.clone();
    let now = world.snap.shown_on(&vuid).unwrap_or_default();
    let lost = world.outside.dpu.found.get(&vuid).filter(|found| **found != now);
    let harm = lost.map(|found| format!("the host had {found:?} on {vuid} and is resumed with {now:?}"));
    if let (Host::Running, Some(harm)) = (world.outside.dpu.host, harm) {
        world.harmful(harm);
    }
    done()
}

fn destroy_controller(world: &mut World, ctrl_id: &str) -> Outcome {
    let Some(vuid) = world.snap.controller(ctrl_id).map(|controller| controller.vuid.clone()) else { return invalid() };
    let is_static = world.outside.functions.contains(&vuid);
    if is_static || world.outside.dpu.plugged.get(&vuid) == Some(&true) {
        world.harmful(format!("controller {ctrl_id} was destroyed under a function that the host has"));
    }
    if let Some(subsystem) = world.snap.of_controller(ctrl_id) {
        subsystem.controllers.remove(ctrl_id);
        for namespace in subsystem.namespaces.values_mut() {
            namespace.shown_by = namespace.shown_by.take().filter(|shown| shown != ctrl_id);
        }
    }
    done()
}

fn attach(world: &mut World, ctrl_id: &str, nsid: u64) -> Outcome {
    match world.snap.of_controller(ctrl_id).and_then(|subsystem| subsystem.namespaces.get_mut(&nsid)) {
        Some(namespace) if namespace.shown_by.is_none() => {
            namespace.shown_by = Some(ctrl_id.to_owned());
            done()
        }
        _ => invalid(),
    }
}

fn detach(world: &mut World, ctrl_id: &str, nsid: u64) -> Outcome {
    match world.snap.of_controller(ctrl_id).and_then(|subsystem| subsystem.namespaces.get_mut(&nsid)) {
        Some(namespace) if namespace.shown_by.is_some() => {
            namespace.shown_by = None;
            if let Some(vuid) = world.snap.controller(ctrl_id).map(|controller| controller.vuid.clone())
                && let Some(found) = world.outside.dpu.found.get_mut(&vuid)
            {
                found.remove(&nsid);
            }
            done()
        }
        _ => invalid(),
    }
}

fn create_namespace(world: &mut World, nqn: &str, nsid: u64, params: &Value) -> Outcome {
    let bdev = text(params, "bdev_name").to_owned();
    if params["bdev_type"] != "spdk" || nsid == 0 || world.bdev(&bdev).is_none() {
        return invalid();
    }
    let in_use = world.snap.subsystems.values().flat_map(|s| s.namespaces.values()).any(|ns| ns.bdev == bdev);
    let Some(subsystem) = world.snap.subsystems.get_mut(nqn).filter(|_| !in_use) else { return invalid() };
    if subsystem.namespaces.contains_key(&nsid) {
        return invalid();
    }
    let namespace = Namespace { bdev, uuid: text(params, "uuid").to_owned(), shown_by: None };
    subsystem.namespaces.insert(nsid, namespace);
    Ok(json!({"nsid": nsid}))
}

fn create_function(world: &mut World) -> Outcome {
    let dpu = &mut world.outside.dpu;
    if dpu.plugged.len() + dpu.ports_taken >= dpu.ports {
        return errno(-28);
    }
    dpu.made += 1;
    let vuid = format!("MT2328XZ17DFNVMES{}D0F0", dpu.made);
    dpu.plugged.insert(vuid.clone(), false);
    Ok(json!({"vhca_id": 63 + dpu.made, "vuid": vuid}))
}

fn destroy_function(world: &mut World, vuid: &str) -> Outcome {
    let backed = world.snap.subsystems.values().flat_map(|s| s.controllers.values()).any(|c| c.vuid == vuid);
    match world.outside.dpu.plugged.get(vuid) {
        Some(false) if !backed => {
            world.outside.dpu.plugged.remove(vuid);
            done()
        }
        Some(_) => errno(-16),
        None => errno(-19),
    }
}

fn hot_plug(world: &mut World, ctrl_id: &str) -> Outcome {
    let Some(controller) = world.snap.controller(ctrl_id).filter(|controller| controller.started) else {
        return invalid();
    };
    let vuid = controller.vuid.clone();
    match world.outside.dpu.plugged.get_mut(&vuid) {
        Some(plugged) if !*plugged => {
            *plugged = true;
            let shown = world.snap.shown_on(&vuid).unwrap_or_default();
            if world.outside.dpu.host == Host::Running {
                world.outside.dpu.found.insert(vuid, shown);
            }
            done()
        }
        _ => invalid(),
    }
}

/// Returns at once while the host is off; a running host lets go later.
fn hot_unplug(world: &mut World, ctrl_id: &str) -> Outcome {
    let Some(vuid) = world.snap.controller(ctrl_id).map(|controller| controller.vuid.clone()) else { return invalid() };
    match world.outside.dpu.plugged.get_mut(&vuid) {
        Some(plugged) if *plugged => {
            if world.outside.dpu.host == Host::Off {
                *plugged = false;
            }
            done()
        }
        _ => invalid(),
    }
}
