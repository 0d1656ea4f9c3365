//! NVIDIA SNAP 4, which adds these methods to its SPDK's. Names, parameters and answers are those that the node driver of
//! NVIDIA's DOCA Platform Framework uses; SNAP describes them nowhere in a form that a program reads.

use super::{Done, methods};
use serde::Deserialize;

methods! {
    "emulation_function_list" => Vec<Function>, ListFunctions { all: bool }
    "nvme_subsystem_list" => Vec<Subsystem>, ListSubsystems {}
    /// The names of serial number and model number differ by version: `sn` and `mn`, or the longer ones.
    "nvme_subsystem_create" => Done, CreateSubsystem<'a> {
        nqn: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        sn: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        mn: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        serial_number: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        model_number: Option<&'a str>,
    }
    "nvme_subsystem_destroy" => Done, DestroySubsystem<'a> { nqn: &'a str }
    "nvme_namespace_create" => Done, CreateNamespace<'a> {
        bdev_type: &'a str,
        bdev_name: &'a str,
        nqn: &'a str,
        nsid: u32,
        uuid: &'a str,
    }
    "nvme_namespace_destroy" => Done, DestroyNamespace<'a> { nqn: &'a str, nsid: u32 }
    /// Suspended, the host does not see it until it is resumed.
    "nvme_controller_create" => Created, CreateController<'a> { nqn: &'a str, suspended: bool, vuid: &'a str }
    "nvme_controller_attach_ns" => Done, AttachNamespace<'a> { ctrl_id: &'a str, nsid: u32 }
    "nvme_controller_detach_ns" => Done, DetachNamespace<'a> { ctrl_id: &'a str, nsid: u32 }
    "nvme_controller_resume" => Done, ResumeController<'a> { ctrl_id: &'a str }
    "nvme_controller_destroy" => Done, DestroyController<'a> { ctrl_id: &'a str, force: bool }
    /// Without a controller and a plug the host does not see it.
    "nvme_function_create" => MadeFunction, CreateFunction {}
    "nvme_function_destroy" => Done, DestroyFunction<'a> { vuid: &'a str }
    "nvme_controller_hotplug" => Done, HotPlug<'a> { ctrl_id: &'a str, wait_for_done: bool }
    "nvme_controller_hotunplug" => Done, HotUnplug<'a> { ctrl_id: &'a str, wait_for_done: bool }
}

/// What the host's first function needs.
pub const NEEDED: [&str; 8] = [
    "emulation_function_list",
    "nvme_subsystem_list",
    "nvme_subsystem_create",
    "nvme_namespace_create",
    "nvme_namespace_destroy",
    "nvme_controller_create",
    "nvme_controller_attach_ns",
    "nvme_controller_resume",
];
/// Since SNAP 4.5: a function is made, and then plugged.
pub const FOR_HOT_PLUG: [&str; 4] =
    ["nvme_function_create", "nvme_function_destroy", "nvme_controller_hotplug", "nvme_controller_hotunplug"];

/// A PCIe function that the DPU emulates.
#[derive(Debug, Clone, Deserialize)]
pub struct Function {
    #[serde(default)]
    pub hotplugged: bool,
    #[serde(default)]
    pub emulation_type: String,
    #[serde(default)]
    pub pf_index: u32,
    pub vuid: String,
    /// Where the host has it; zeros before the host has looked.
    #[serde(default)]
    pub pci_bdf: String,
    /// Its controller's; empty: none.
    #[serde(default)]
    pub ctrl_id: String,
    #[serde(default)]
    pub vhca_id: Option<u32>,
}

impl Function {
    pub fn is_nvme(&self) -> bool {
        self.emulation_type.eq_ignore_ascii_case("NVME")
    }
}

#[derive(Debug, Clone, Deserialize)]
pub struct Subsystem {
    pub nqn: String,
    /// The serial number of its controllers, and their model.
    #[serde(default)]
    pub sn: String,
    #[serde(default)]
    pub mn: String,
    #[serde(default)]
    pub controllers: Vec<Controller>,
    #[serde(default)]
    pub namespaces: Vec<Namespace>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Controller {
    pub ctrl_id: String,
    #[serde(default)]
    pub state: String,
    #[serde(default)]
    pub plugged: bool,
    #[serde(default)]
    pub vhca_id: Option<u32>,
}

impl Controller {
    pub fn is_started(&self) -> bool {
        self.state == "STARTED"
    }
}

#[derive(Debug, Clone, Deserialize)]
pub struct Namespace {
    pub nsid: u32,
    pub bdev: String,
    #[serde(default)]
    pub uuid: String,
    /// Those that show it to a host.
    #[serde(default)]
    pub controllers: Vec<Showing>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Showing {
    pub ctrl_id: String,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Created {
    pub ctrl_id: String,
}

#[derive(Debug, Clone, Deserialize)]
pub struct MadeFunction {
    pub vuid: String,
}
