//! `HardwareReport`: what network boot has seen of a server. It stands beside the Hardware, which a user's own tools may own, and is
//! named like it; that of a server that no Hardware names, like the Hardware that discovery makes. It has no spec: nobody asks for
//! anything by it.

use crate::tinkerbell::attributes::AgentAttributes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Empty: nobody asks for anything by a report. Made by the boot service when it first sees a server of the inventory, or when the agent
/// of a server reports that no Hardware names; it goes with its Hardware.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[kube(
    group = "metalplane.io",
    version = "v1alpha1",
    kind = "HardwareReport",
    namespaced,
    status = "HardwareReportStatus",
    shortname = "hwr",
    category = "metal",
    derive = "PartialEq",
    derive = "Default",
    doc = "What network boot has seen of a server.",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Netboot", type_ = "string", json_path = ".status.netboot.stage"),
    printcolumn(
        name = "Approved",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Approved")].status"#
    ),
    printcolumn(name = "Summary", type_ = "string", json_path = ".status.summary"),
    printcolumn(name = "Since", type_ = "date", json_path = ".status.netboot.at", priority = "1"),
    printcolumn(name = "Guest", type_ = "string", json_path = ".status.guest.address", priority = "1"),
    printcolumn(name = "Heard", type_ = "date", json_path = ".status.guest.at", priority = "1"),
    printcolumn(name = "MAC", type_ = "string", json_path = ".status.netboot.macAddress", priority = "1"),
    printcolumn(
        name = "Serial",
        type_ = "string",
        json_path = ".status.attributes.product.serialNumber",
        priority = "1"
    ),
    printcolumn(name = "Firmware", type_ = "string", json_path = ".status.netboot.firmware", priority = "1"),
    printcolumn(name = "UUID", type_ = "string", json_path = ".status.identity.uuid", priority = "1")
)]
#[x_kube(crates(kube_core = "::kube_core"))]
pub struct HardwareReportSpec {}

/// What was seen of the server, and when.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HardwareReportStatus {
    /// How far the server came when it last asked to boot from the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netboot: Option<NetbootSeen>,
    /// The system on the server's own disk, when it was last heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestSeen>,
    /// What the server's firmware says of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<IdentitySeen>,
    /// The identifier of the agent that reported last.
    #[serde(rename = "agentID", default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// What that agent reported of the server: disks, network interfaces, serial numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes: Option<AgentAttributes>,
    /// The server in a few words: its serial number and its disks, once an agent has reported them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The last agent that asked for this server and was not served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<AgentRefused>,
    /// Why DHCP did not serve the server when it last asked to boot; it goes once the boot comes further.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unserved: Option<DhcpUnserved>,
    /// The start of the installer that is served, where agents are known by sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<AgentSession>,
    /// By the controller. Of a server that was discovered: Approved; and Enrolled, where WorkflowRuleSets are tried on the attributes.
    /// FieldsServed, which is false, where the Hardware has fields that nothing serves. DhcpServed, which is false, where DHCP does not serve
    /// the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// It had the token of this server, and is not the agent that is served.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentRefused {
    /// When it was first refused for this; the same is told again after 5 min.
    pub at: MicroTime,
    /// The address that it asked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// TokenUsedTwice: another start of the installer has the session. TLSRequired: it asked in the clear, or showed no key.
    pub reason: AgentRefusedReason,
    /// What it was told.
    pub message: String,
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Hash, JsonSchema)]
pub enum AgentRefusedReason {
    TokenUsedTwice,
    #[serde(rename = "TLSRequired")]
    TlsRequired,
}

/// The server asked for an address to boot with, and boots by none of `boot`'s.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DhcpUnserved {
    /// When it was seen; the same is told again after 5 min.
    pub at: MicroTime,
    /// The MAC address that the server asked by.
    pub mac_address: String,
    pub reason: DhcpUnservedReason,
    /// What was found.
    pub message: String,
    /// ForeignDhcp: the DHCP server whose address was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// ForeignDhcp: the address that was taken. DhcpAddressInUse: the one that was declined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// The reasons of these names are what a machine, a Workflow and the condition DhcpServed say.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Hash, JsonSchema)]
pub enum DhcpUnservedReason {
    /// Interfaces of several Hardware, or several of one, have the MAC address: nobody who asks by it is answered.
    SameMacAddress,
    /// What the Hardware says of the interface cannot be answered with: no address, one that is none, disableDhcp.
    DhcpRefused,
    /// The Hardware gives no address, and all of the pool are taken.
    DhcpPoolFull,
    /// The server declined the address: somebody else has it.
    DhcpAddressInUse,
    /// The server took another DHCP server's address.
    ForeignDhcp,
    /// No boot program is known for the server's firmware.
    NoBootProgram,
}

/// One start of the installer, known by a key that it made then.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentSession {
    /// SHA-256 of that key (of its SubjectPublicKeyInfo, RFC 7469, 2.4): sha256: and 64 hexadecimal digits.
    pub key: String,
    /// What it was started for: the UID of its Hardware, and the installation or the erasing that was on record, if any.
    pub run: String,
    /// The address that it asks from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// When it began.
    pub began_at: MicroTime,
    /// When its last heartbeat was that is on record: they come every 10 s, and one of 30 s is written.
    pub heard_at: MicroTime,
    /// When the installer said that its server starts again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<MicroTime>,
    /// What its action said last, at that heartbeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doing: Option<String>,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetbootSeen {
    /// How far the boot came: stages in their order, of which LocalDisk and Refused end a boot.
    pub stage: NetbootStage,
    /// When that stage was first seen in this boot.
    pub at: MicroTime,
    /// When this boot was first seen.
    pub began_at: MicroTime,
    /// The MAC address that it asks by.
    pub mac_address: String,
    /// What asks: firmware or iPXE, and for which processor (DHCP options 60, 77 and 93).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// For which processor and firmware (DHCP option 93, RFC 4578, 2.1): 0 is BIOS, 7 UEFI on x86-64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<u16>,
    /// Why it is not booted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The address that its agent asks from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// In the order in which a boot comes to them; LocalDisk and Refused end one.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
pub enum NetbootStage {
    /// It asked for an address, to boot from the network.
    Dhcp,
    /// It reads its boot program.
    Program,
    /// It has the script.
    Script,
    /// It reads kernel, initial RAM disk or image.
    Kernel,
    /// Its agent asks what to do.
    Agent,
    /// It was told to boot from its own disk.
    LocalDisk,
    /// It was told nothing to boot from.
    Refused,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuestSeen {
    /// Its address.
    pub address: String,
    /// The MAC address of that NIC.
    pub mac_address: String,
    /// When it was heard.
    pub at: MicroTime,
    /// What was heard.
    pub by: HeardBy,
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Hash, JsonSchema)]
pub enum HeardBy {
    /// It took its address.
    Dhcp,
    /// It asked for its metadata.
    Metadata,
    /// It sent a line of its log.
    Syslog,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IdentitySeen {
    /// The SMBIOS UUID of DHCP's option 97, as SMBIOS 2.6 and newer write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tinkerbell::Hardware;
    use kube_core::CustomResourceExt;

    /// Of a terminal, and between two columns as kubectl prints them.
    const WIDTH: usize = 80;
    const GAP: usize = 3;
    /// The longest that is in each column: of one server that was discovered, of another one that runs.
    const LONGEST: [(&str, &str); 5] = [
        ("Name", "discovery-52-54-00-88-00-07"),
        ("Netboot", "LocalDisk"),
        ("Approved", "Unknown"),
        ("Summary", "CZ1234567X, 2 disks, 960 GB"),
        ("State", "provisioning"),
    ];

    fn width<K: CustomResourceExt>() -> usize {
        let version = K::crd().spec.versions.into_iter().next().expect("a version");
        let columns = version.additional_printer_columns.into_iter().flatten();
        let shown = columns.filter(|column| column.priority.unwrap_or_default() == 0).map(|column| column.name);
        let all: Vec<String> = ["Name".to_owned()].into_iter().chain(shown).collect();
        let widest = |name: &String| {
            let (_, value) = LONGEST.iter().find(|(known, _)| known == name).expect("its longest value is listed");
            name.len().max(value.len())
        };
        all.iter().map(widest).sum::<usize>() + GAP * (all.len() - 1)
    }

    /// Of a Workflow the columns are Tinkerbell's, and its names as long as they are.
    #[test]
    fn what_kubectl_shows_of_servers_fits_a_terminal() {
        for (kind, width) in [("hardwarereports", width::<HardwareReport>()), ("hardware", width::<Hardware>())] {
            assert!(width <= WIDTH, "kubectl get {kind}: {width}");
        }
    }
}
