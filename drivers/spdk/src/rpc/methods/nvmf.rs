//! NVMe subsystems and how they are reached.

use super::nvme::Family;
use super::{Done, methods};
use serde::{Deserialize, Serialize};

methods! {
    "nvmf_get_transports" => Vec<Transport>, GetTransports {}
    "nvmf_create_transport" => Done, CreateTransport { trtype: TransportType }
    "nvmf_get_subsystems" => Vec<Subsystem>, GetSubsystems {}
    "nvmf_create_subsystem" => Done, CreateSubsystem<'a> {
        nqn: &'a str,
        serial_number: &'a str,
        model_number: &'a str,
        allow_any_host: bool,
        max_namespaces: u32,
    }
    "nvmf_delete_subsystem" => Done, DeleteSubsystem<'a> { nqn: &'a str }
    "nvmf_subsystem_add_listener" => Done, AddListener<'a> { nqn: &'a str, listen_address: Address }
    "nvmf_subsystem_add_ns" => u32, AddNamespace<'a> { nqn: &'a str, namespace: NewNamespace<'a> }
    "nvmf_subsystem_remove_ns" => Done, RemoveNamespace<'a> { nqn: &'a str, nsid: u32 }
    "nvmf_subsystem_allow_any_host" => Done, AllowAnyHost<'a> { nqn: &'a str, allow_any_host: bool }
    /// Refused for one that is in the list.
    "nvmf_subsystem_add_host" => Done, AddHost<'a> { nqn: &'a str, host: &'a str }
    /// Answers when its connections are gone.
    "nvmf_subsystem_remove_host" => Done, RemoveHost<'a> { nqn: &'a str, host: &'a str, timeout_ms: u64 }
    "nvmf_ns_add_host" => Done, ShowNamespace<'a> { nqn: &'a str, nsid: u32, host: &'a str }
    "nvmf_subsystem_get_controllers" => Vec<Controller>, GetControllers<'a> { nqn: &'a str }
}

/// For the connections of a host that is taken off a list. Less than the limit of a call.
pub const DISCONNECT_MS: u64 = 5000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum TransportType {
    VfioUser,
    Tcp,
    Rdma,
}

impl TransportType {
    /// Answers are not always in the letters of the requests.
    pub fn is(self, said: &str) -> bool {
        let name = match self {
            Self::VfioUser => "VFIOUSER",
            Self::Tcp => "TCP",
            Self::Rdma => "RDMA",
        };
        said.eq_ignore_ascii_case(name)
    }
}

#[derive(Debug, Clone, Deserialize)]
pub struct Transport {
    pub trtype: String,
}

/// Where a subsystem listens. VFIOUSER: `traddr` is a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Address {
    pub trtype: TransportType,
    pub traddr: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adrfam: Option<Family>,
    /// The port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trsvcid: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct NewNamespace<'a> {
    pub nsid: u32,
    pub bdev_name: &'a str,
    pub uuid: &'a str,
    /// 16 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eui64: Option<String>,
    /// Seen only by hosts that it is shown to, by [`ShowNamespace`].
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_auto_visible: bool,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Subsystem {
    pub nqn: String,
    #[serde(default)]
    pub listen_addresses: Vec<Listening>,
    #[serde(default)]
    pub namespaces: Vec<Namespace>,
    #[serde(default)]
    pub serial_number: String,
    #[serde(default)]
    pub allow_any_host: bool,
    #[serde(default)]
    pub hosts: Vec<Host>,
    #[serde(default)]
    pub max_namespaces: u32,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Host {
    pub nqn: String,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Listening {
    pub trtype: String,
    pub traddr: String,
    #[serde(default)]
    pub trsvcid: String,
}

impl Listening {
    pub fn is(&self, address: &Address) -> bool {
        let port = address.trsvcid.as_deref().is_none_or(|port| port == self.trsvcid);
        address.trtype.is(&self.trtype) && self.traddr == address.traddr && port
    }
}

#[derive(Debug, Clone, Deserialize)]
pub struct Namespace {
    pub nsid: u32,
    pub bdev_name: String,
    #[serde(default)]
    pub uuid: String,
}

/// A host that is connected.
#[derive(Debug, Clone, Deserialize)]
pub struct Controller {
    pub cntlid: u32,
    #[serde(default)]
    pub hostnqn: String,
}
