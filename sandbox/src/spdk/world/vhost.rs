//! vhost-user-blk controllers.

use super::{Outcome, World, text};
use crate::spdk::{INTERNAL_ERROR, INVALID_PARAMS};
use serde_json::{Value, json};

#[derive(Debug, Clone)]
pub struct Controller {
    pub bdev: Option<String>,
    pub readonly: bool,
    /// A virtual machine is connected.
    pub connected: bool,
}

const METHODS: [&str; 3] = ["vhost_get_controllers", "vhost_create_blk_controller", "vhost_delete_controller"];

pub(super) fn call(world: &mut World, method: &str, params: &Value) -> Option<Outcome> {
    // Where the program has the rest of SPDK is not told.
    let has = if world.lacks_vhost { &[][..] } else { &METHODS[..] };
    if method == "rpc_get_methods" {
        let of_snap = super::snap::methods(world);
        let all: Vec<_> = ["spdk_get_version", "rpc_get_methods"].iter().chain(has).chain(&of_snap).copied().collect();
        return Some(Ok(json!(all)));
    }
    if world.lacks_vhost {
        return None;
    }
    let name = text(params, "ctrlr").to_owned();
    Some(match method {
        "vhost_get_controllers" => Ok(world.vhost.iter().map(|(name, controller)| dump(name, controller)).collect()),
        "vhost_create_blk_controller" => create(world, name, params),
        "vhost_delete_controller" => delete(world, &name),
        _ => return None,
    })
}

fn dump(name: &str, controller: &Controller) -> Value {
    let sessions = if controller.connected { json!([{"vid": 0, "name": name, "started": true}]) } else { json!([]) };
    let block = json!({"readonly": controller.readonly, "bdev": controller.bdev, "transport": "vhost_user_blk"});
    json!({"ctrlr": name, "socket": name, "sessions": sessions, "backend_specific": {"block": block}})
}

fn create(world: &mut World, name: String, params: &Value) -> Outcome {
    let taken = world.vhost.contains_key(&name);
    let bdev = world.bdevs.get_mut(text(params, "dev_name")).filter(|bdev| bdev.claimed.is_none() && !taken);
    // Whatever the reason, its words are those of an errno behind "invalid parameters".
    let Some(bdev) = bdev else { return Err((INVALID_PARAMS, "Invalid argument".to_owned())) };
    bdev.claimed = Some(name.clone());
    let controller =
        Controller { bdev: Some(bdev.name.clone()), readonly: params["readonly"] == true, connected: false };
    world.vhost.insert(name, controller);
    Ok(json!(true))
}

fn delete(world: &mut World, name: &str) -> Outcome {
    let Some(controller) = world.vhost.get(name) else {
        return Err((INVALID_PARAMS, "No such device".to_owned()));
    };
    if controller.connected {
        // SPDK would answer when it has gone, whenever that is.
        world.harmful(format!("{name} was deleted under a virtual machine"));
        return Err((INTERNAL_ERROR, "Device or resource busy".to_owned()));
    }
    let bdev = world.vhost.remove(name).and_then(|controller| controller.bdev);
    if let Some(bdev) = bdev.and_then(|bdev| world.bdevs.get_mut(&bdev)) {
        bdev.claimed = None;
    }
    Ok(json!(true))
}

impl World {
    /// A bdev has gone: its controller stays, and fails all I/O. Which.
    pub(super) fn lose_behind_vhost(&mut self, bdev: &str) -> Option<String> {
        let mut all = self.vhost.iter_mut();
        let (name, controller) = all.find(|(_, controller)| controller.bdev.as_deref() == Some(bdev))?;
        controller.bdev = None;
        Some(name.clone())
    }
}
