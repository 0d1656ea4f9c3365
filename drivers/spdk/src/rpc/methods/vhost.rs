//! vhost-user-blk controllers: one socket for each disk, in the folder that the target was started with (`-S`).

use super::{Done, methods};
use serde::Deserialize;
use serde_json::Value;

methods! {
    "vhost_get_controllers" => Vec<Controller>, GetControllers {}
    "vhost_create_blk_controller" => Done, CreateBlkController<'a> { ctrlr: &'a str, dev_name: &'a str, readonly: bool }
    /// While a virtual machine is connected the target waits for it to leave, for ever.
    "vhost_delete_controller" => Done, DeleteController<'a> { ctrlr: &'a str }
}

#[derive(Debug, Clone, Deserialize)]
pub struct Controller {
    pub ctrlr: String,
    /// As the target sees it: the folder that it was started with, and the name.
    #[serde(default)]
    pub socket: String,
    /// Virtual machines that are connected.
    #[serde(default)]
    pub sessions: Vec<Value>,
    #[serde(default)]
    backend_specific: Value,
}

impl Controller {
    /// `None`: it has lost it, or is no disk.
    pub fn bdev(&self) -> Option<&str> {
        self.backend_specific["block"]["bdev"].as_str()
    }
}
