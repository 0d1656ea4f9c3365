//! NVMe controllers that the target connects to: the initiator's side.

use super::{Done, methods};
use serde::{Deserialize, Serialize};

methods! {
    "bdev_nvme_get_controllers" => Vec<Controller>, GetControllers {}
    /// The answer names the bdevs that came with it.
    "bdev_nvme_attach_controller" => Vec<String>, AttachController<'a> {
        name: &'a str,
        trtype: &'a str,
        adrfam: Family,
        traddr: &'a str,
        trsvcid: String,
        subnqn: &'a str,
        hostnqn: &'a str,
        multipath: Multipath,
        /// -1: never given up.
        ctrlr_loss_timeout_sec: i32,
        reconnect_delay_sec: u32,
        /// 0: I/O waits for as long as the path is lost.
        fast_io_fail_timeout_sec: u32,
    }
    "bdev_nvme_detach_controller" => Done, DetachController<'a> { name: &'a str }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    Ipv4,
    Ipv6,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Multipath {
    Multipath,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Controller {
    pub name: String,
    #[serde(default)]
    pub ctrlrs: Vec<Path>,
}

/// One way to the subsystem.
#[derive(Debug, Clone, Deserialize)]
pub struct Path {
    pub state: String,
    pub trid: Way,
}

impl Path {
    pub fn is_up(&self) -> bool {
        self.state == "enabled"
    }
}

#[derive(Debug, Clone, Deserialize)]
pub struct Way {
    #[serde(default)]
    pub traddr: String,
    #[serde(default)]
    pub trsvcid: String,
    #[serde(default)]
    pub subnqn: String,
}
