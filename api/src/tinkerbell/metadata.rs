//! `Hardware.spec.metadata`: what Tinkerbell's metadata service tells a server about itself. Kept whole for Tinkerbell;
//! `boot` tells the server parts of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the metadata service tells a server about itself.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct HardwareMetadata {
    /// State of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Mode of the Linux bond over the interfaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bonding_mode: Option<i64>,
    /// Who made the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manufacturer: Option<Manufacturer>,
    /// The system on the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<Instance>,
    /// Further facts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom: Option<Custom>,
    /// Where the server is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub facility: Option<Facility>,
}

/// Who made a server.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Manufacturer {
    /// Identifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Short name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slug: Option<String>,
}

/// The system on a server.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Instance {
    /// Identifier of the instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// State of the instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Name of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// True: it may boot from the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_pxe: Option<bool>,
    /// True: it boots a rescue system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rescue: Option<bool>,
    /// What is installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operating_system: Option<OperatingSystem>,
    /// True: it always boots from the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub always_pxe: Option<bool>,
    /// An iPXE script of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipxe_script_url: Option<String>,
    /// Its addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<InstanceIp>,
    /// cloud-init user data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub userdata: Option<String>,
    /// Hash of root's password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crypted_root_password: Option<String>,
    /// Free labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// How the disks are laid out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
    /// Public keys that may log in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ssh_keys: Vec<String>,
    /// True: the network is set up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_ready: Option<bool>,
}

/// An operating system.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct OperatingSystem {
    /// Short name with version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slug: Option<String>,
    /// Distribution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distro: Option<String>,
    /// Version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Tag of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_tag: Option<String>,
    /// Short name of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os_slug: Option<String>,
}

/// An address of an instance.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct InstanceIp {
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
    /// True: reachable from outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public: Option<bool>,
    /// True: for management.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub management: Option<bool>,
}

/// How the disks are laid out.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Storage {
    /// Partitioned disks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<StorageDisk>,
    /// Software RAID arrays.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub raid: Vec<StorageRaid>,
    /// File systems.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filesystems: Vec<StorageFilesystem>,
}

/// A partitioned disk.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct StorageDisk {
    /// Device file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// True: an old partition table is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wipe_table: Option<bool>,
    /// Its partitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<StoragePartition>,
}

/// A partition.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct StoragePartition {
    /// Label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Number on the disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<i64>,
    /// Size in sectors of 512 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// First sector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<i64>,
    /// GPT type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub type_guid: Option<String>,
}

/// A software RAID array.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct StorageRaid {
    /// Name of the array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// Member devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// Number of spares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spare: Option<i64>,
}

/// A file system.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct StorageFilesystem {
    /// Where and how it is mounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount: Option<StorageMount>,
}

/// Where and how a file system is mounted.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct StorageMount {
    /// Device file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Type of the file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Files written into it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<StorageFile>,
    /// How it is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create: Option<StorageCreate>,
    /// Mount point.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub point: Option<String>,
}

/// A file written at installation.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct StorageFile {
    /// Path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Contents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<String>,
    /// Mode bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<i64>,
    /// Owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<i64>,
    /// Group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gid: Option<i64>,
}

/// How a file system is made.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct StorageCreate {
    /// True: even over an existing one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
    /// Arguments of mkfs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// Further facts.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Custom {
    /// What came installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preinstalled_operating_system_version: Option<OperatingSystem>,
    /// Private networks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub private_subnets: Vec<String>,
}

/// Where a server is, in the words of an equipment provider.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Facility {
    /// Short name of the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_slug: Option<String>,
    /// The plan's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_version_slug: Option<String>,
    /// Code of the place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub facility_code: Option<String>,
}
