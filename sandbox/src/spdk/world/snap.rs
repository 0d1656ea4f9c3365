//! NVIDIA SNAP 4: functions of the DPU, their controllers and namespaces. Answers are as its users read them.

use super::{Outcome, World, invalid, text};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Ends with the service; the functions stay.
#[derive(Debug, Default)]
pub struct Snap {
    pub subsystems: BTreeMap<String, Subsystem>,
}

#[derive(Debug, Default)]
pub struct Subsystem {
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
}

impl Subsystem {
    fn dump(&self, nqn: &str) -> Value {
        let controller = |(ctrl_id, controller): (&String, &Controller)| {
            let state = if controller.started { "STARTED" } else { "SUSPENDED" };
            json!({"ctrl_id": ctrl_id, "nqn": nqn, "state": state, "plugged": true, "mdts": 7})
        };
        let namespace = |(nsid, namespace): (&u64, &Namespace)| {
            let shown: Vec<_> = namespace.shown_by.iter().map(|ctrl_id| json!({"ctrl_id": ctrl_id})).collect();
            json!({"nsid": nsid, "bdev": namespace.bdev, "uuid": namespace.uuid, "nqn": nqn, "ready": "Yes", "controllers": shown})
        };
        json!({
            "nqn": nqn, "mn": "BlueField NVMe SNAP Controller", "mnan": 1024, "nn": 1024,
            "controllers": self.controllers.iter().map(controller).collect::<Vec<_>>(),
            "namespaces": self.namespaces.iter().map(namespace).collect::<Vec<_>>(),
        })
    }
}

pub(super) fn call(world: &mut World, method: &str, params: &Value) -> Option<Outcome> {
    if world.outside.functions.is_empty() {
        return None;
    }
    let (nqn, ctrl_id) = (text(params, "nqn"), text(params, "ctrl_id"));
    let nsid = params["nsid"].as_u64().unwrap_or_default();
    let done = || Ok(json!({"status": "success"}));
    let snap = &mut world.snap;
    Some(match method {
        "emulation_function_list" => Ok(functions(world)),
        "nvme_subsystem_list" => Ok(snap.subsystems.iter().map(|(nqn, subsystem)| subsystem.dump(nqn)).collect()),
        "nvme_subsystem_create" if snap.subsystems.contains_key(nqn) => invalid(),
        "nvme_subsystem_create" => {
            snap.subsystems.insert(nqn.to_owned(), Subsystem::default());
            done()
        }
        "nvme_controller_create" => create_controller(world, nqn, text(params, "vuid")),
        "nvme_controller_resume" => match snap.of_controller(ctrl_id).and_then(|s| s.controllers.get_mut(ctrl_id)) {
            Some(controller) if !controller.started => {
                controller.started = true;
                done()
            }
            _ => invalid(),
        },
        "nvme_namespace_create" => create_namespace(world, nqn, nsid, params),
        "nvme_namespace_destroy" => {
            match snap.subsystems.get_mut(nqn).and_then(|subsystem| subsystem.namespaces.remove(&nsid)) {
                Some(Namespace { shown_by: Some(_), .. }) => {
                    world.harmful(format!("namespace {nsid} was destroyed while a host had it"));
                    done()
                }
                Some(_) => done(),
                None => invalid(),
            }
        }
        "nvme_controller_attach_ns" => {
            match snap.of_controller(ctrl_id).and_then(|subsystem| subsystem.namespaces.get_mut(&nsid)) {
                Some(namespace) if namespace.shown_by.is_none() => {
                    namespace.shown_by = Some(ctrl_id.to_owned());
                    done()
                }
                _ => invalid(),
            }
        }
        "nvme_controller_detach_ns" => {
            match snap.of_controller(ctrl_id).and_then(|subsystem| subsystem.namespaces.get_mut(&nsid)) {
                Some(namespace) if namespace.shown_by.is_some() => {
                    namespace.shown_by = None;
                    done()
                }
                _ => invalid(),
            }
        }
        _ => return None,
    })
}

fn functions(world: &World) -> Value {
    let controller = |vuid: &str| {
        let mut all = world.snap.subsystems.values().flat_map(|subsystem| &subsystem.controllers);
        all.find(|(_, controller)| controller.vuid == vuid).map(|(ctrl_id, _)| ctrl_id.clone()).unwrap_or_default()
    };
    let function = |(index, vuid): (usize, &String)| {
        json!({
            "hotplugged": false, "emulation_type": "NVME", "pf_index": index, "pci_bdf": format!("26:00.{index}"),
            "vhca_id": index + 2, "vuid": vuid, "ctrl_id": controller(vuid), "vfs": [],
        })
    };
    world.outside.functions.iter().enumerate().map(function).collect()
}

fn create_controller(world: &mut World, nqn: &str, vuid: &str) -> Outcome {
    let taken = world.snap.subsystems.values().flat_map(|s| s.controllers.values()).any(|c| c.vuid == vuid);
    let known = world.outside.functions.iter().any(|function| function == vuid);
    let Some(subsystem) = world.snap.subsystems.get_mut(nqn).filter(|_| known && !taken) else { return invalid() };
    let ctrl_id = format!("NVMeCtrl_{vuid}");
    subsystem.controllers.insert(ctrl_id.clone(), Controller { vuid: vuid.to_owned(), started: false });
    Ok(json!({"ctrl_id": ctrl_id}))
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
