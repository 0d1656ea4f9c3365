//! `tinkerbell.org/v1alpha1 Hardware`: one server of the inventory.

use super::metadata::HardwareMetadata;
use super::schema;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

kind!(
    /// A server of the inventory, as Tinkerbell describes it.
    Hardware,
    group: "tinkerbell.org",
    plural: "hardware",
    short: ["hw"],
    columns: [{"name": "State", "type": "string", "jsonPath": ".status.state"}],
    spec: HardwareSpec,
    status: HardwareStatus,
    moved: true,
);

/// What the server is and how it boots from the network.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HardwareSpec {
    /// The identifier by which a Tinkerbell agent on this server reports; usually its first MAC address.
    #[serde(rename = "agentID", skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// What Tinkerbell does with this server by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto: Option<AutoCapabilities>,
    /// The object that describes the BMC, in this namespace; for Metalplane a bmc.tinkerbell.org Machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bmc_ref: Option<TypedLocalObjectReference>,
    /// The server's network interfaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Interface>,
    /// Objects of any kind that templates may read, by the name used there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub references: BTreeMap<String, Reference>,
    /// What the metadata service tells the server about itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<HardwareMetadata>,
    /// Version of the agent's protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tink_version: Option<i64>,
    /// The server's own disks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<Disk>,
    /// Resources of the server, for schedulers: cpu, memory, …
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub resources: BTreeMap<String, Quantity>,
    /// cloud-init user data served by the metadata service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
    /// cloud-init vendor data served by the metadata service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor_data: Option<String>,
}

/// What Tinkerbell does with a server by itself.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AutoCapabilities {
    /// True: an agent that reports for the first time gets a Workflow made for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub enrollment_enabled: Option<bool>,
}

/// An object of this namespace, by kind and name.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
#[serde(rename_all = "camelCase")]
pub struct TypedLocalObjectReference {
    /// API group of the kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// The kind.
    pub kind: String,
    /// Name of the object.
    pub name: String,
}

/// An object of any kind and namespace.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reference {
    /// Namespace of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// API group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Version within the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Plural name of the kind in lower case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
}

/// One network interface and how it boots.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    /// Booting from the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netboot: Option<Netboot>,
    /// Booting from an ISO image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isoboot: Option<Isoboot>,
    /// What DHCP answers on this interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhcp: Option<Dhcp>,
    /// True: DHCP does not answer on this interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub disable_dhcp: Option<bool>,
}

/// Booting from the network.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Netboot {
    /// True: this interface may boot from the network.
    #[serde(rename = "allowPXE", skip_serializing_if = "Option::is_none")]
    pub allow_pxe: Option<bool>,
    /// True: this interface may run Workflows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_workflow: Option<bool>,
    /// A script or program of its own for iPXE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipxe: Option<Ipxe>,
    /// A boot environment of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub osie: Option<Osie>,
    /// PXELINUX.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pxelinux: Option<Pxelinux>,
    /// The network boot of a Raspberry Pi.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpi: Option<RaspberryPi>,
}

/// A script or program of its own for iPXE.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ipxe {
    /// Where the script is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The script itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<String>,
    /// Name of the iPXE program, instead of the one chosen by architecture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binary: Option<String>,
}

/// The environment that runs Workflows.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Osie {
    /// Where its files are.
    #[serde(rename = "baseURL", skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// File name of the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// File name of the initial RAM disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initrd: Option<String>,
    /// Further kernel parameters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel_params: Vec<String>,
}

/// PXELINUX.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pxelinux {
    /// The configuration file's contents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
}

/// The network boot of a Raspberry Pi.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RaspberryPi {
    /// Contents of config.txt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_txt: Option<String>,
    /// Folder of the firmware's files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware_path: Option<String>,
    /// Serial number of the board; it asks for its files below a folder of this name.
    pub serial_num: String,
}

/// Booting from an ISO image.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Isoboot {
    /// Where the image is: an http or https URL.
    #[serde(rename = "sourceISO", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "uri"))]
    pub source_iso: Option<String>,
}

const BOTH_OR_NEITHER: &str = "(has(self.tftp_server_name) && self.tftp_server_name != \"\") == \
                               (has(self.boot_file_name) && self.boot_file_name != \"\")";

/// What DHCP answers on one interface.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": BOTH_OR_NEITHER,
    "message": "TFTPServerName and BootFileName must both be specified or both be empty",
}]))]
pub struct Dhcp {
    /// The interface's MAC address in lower case with colons.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "([0-9a-f]{2}[:]){5}([0-9a-f]{2})"))]
    pub mac: Option<String>,
    /// Option 12, the host's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Option 15, the domain's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_name: Option<String>,
    /// Option 51, length of the lease in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_time: Option<i64>,
    /// Option 6, addresses of name servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub name_servers: Vec<String>,
    /// Option 42, addresses of time servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub time_servers: Vec<String>,
    /// Architecture of the server: x86_64, arm64, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    /// True: the server boots by UEFI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uefi: Option<bool>,
    /// Name of the interface in the installed system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iface_name: Option<String>,
    /// The address that is leased.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<Ip>,
    /// VLAN of the interface, 0 to 4096.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(
        pattern = "^(([0-9][0-9]{0,2}|[1-3][0-9][0-9][0-9]|40([0-8][0-9]|9[0-6]))(,[1-9][0-9]{0,2}|[1-3][0-9][0-9][0-9]|40([0-8][0-9]|9[0-6]))*)$"
    ))]
    pub vlan_id: Option<String>,
    /// Option 121, static routes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classless_static_routes: Vec<ClasslessStaticRoute>,
    /// Option 66, a TFTP server other than Tinkerbell's; `boot_file_name` goes with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tftp_server_name: Option<String>,
    /// Option 67, the file to fetch from `tftp_server_name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_file_name: Option<String>,
}

/// An address of the server.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Ip {
    /// The address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Its network mask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netmask: Option<String>,
    /// The gateway of its network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// 4 or 6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<i64>,
}

/// A static route (RFC 3442).
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ClasslessStaticRoute {
    /// The destination as network/prefix length.
    #[schemars(regex(
        pattern = r"^((25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)\.){3}(25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)/(3[0-2]|[12]?[0-9])$"
    ))]
    pub destination_descriptor: String,
    /// Address of the router.
    #[schemars(regex(
        pattern = r"^((25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)\.){3}(25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)$"
    ))]
    pub router: String,
}

/// One of the server's own disks.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Disk {
    /// Its device file, such as /dev/nvme0n1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

/// State of the server.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct HardwareStatus {
    /// Error or Ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}
