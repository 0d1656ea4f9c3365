//! `.Hardware.Metadata` of a template: the Hardware's metadata by the names of Go's fields, with Go's zero values where a field is not
//! set and nothing where a part is missing, as upstream's types have them.

use super::values::{fields, string, value};
use Kind::{Bool, Int, List, Part, Text, Texts};
use gotmpl::Value;
use serde_json::Value as Json;

enum Kind {
    Text,
    Int,
    Bool,
    Texts,
    /// A pointer: absent where nothing is written.
    Part(Fields),
    List(Fields),
}

/// Go's name, JSON's, and what it is.
type Fields = &'static [(&'static str, &'static str, Kind)];

const METADATA: Fields = &[
    ("State", "state", Text),
    ("BondingMode", "bonding_mode", Int),
    ("Manufacturer", "manufacturer", Part(&[("ID", "id", Text), ("Slug", "slug", Text)])),
    ("Instance", "instance", Part(INSTANCE)),
    ("Custom", "custom", Part(CUSTOM)),
    ("Facility", "facility", Part(FACILITY)),
];
const INSTANCE: Fields = &[
    ("ID", "id", Text),
    ("State", "state", Text),
    ("Hostname", "hostname", Text),
    ("AllowPxe", "allow_pxe", Bool),
    ("Rescue", "rescue", Bool),
    ("OperatingSystem", "operating_system", Part(SYSTEM)),
    ("AlwaysPxe", "always_pxe", Bool),
    ("IpxeScriptURL", "ipxe_script_url", Text),
    ("Ips", "ips", List(ADDRESS)),
    ("Userdata", "userdata", Text),
    ("CryptedRootPassword", "crypted_root_password", Text),
    ("Tags", "tags", Texts),
    ("Storage", "storage", Part(STORAGE)),
    ("SSHKeys", "ssh_keys", Texts),
    ("NetworkReady", "network_ready", Bool),
];
const SYSTEM: Fields = &[
    ("Slug", "slug", Text),
    ("Distro", "distro", Text),
    ("Version", "version", Text),
    ("ImageTag", "image_tag", Text),
    ("OsSlug", "os_slug", Text),
];
const ADDRESS: Fields = &[
    ("Address", "address", Text),
    ("Netmask", "netmask", Text),
    ("Gateway", "gateway", Text),
    ("Family", "family", Int),
    ("Public", "public", Bool),
    ("Management", "management", Bool),
];
const STORAGE: Fields = &[
    ("Disks", "disks", List(DISK)),
    ("Raid", "raid", List(RAID)),
    ("Filesystems", "filesystems", List(&[("Mount", "mount", Part(MOUNT))])),
];
const DISK: Fields =
    &[("Device", "device", Text), ("WipeTable", "wipe_table", Bool), ("Partitions", "partitions", List(PARTITION))];
const PARTITION: Fields = &[
    ("Label", "label", Text),
    ("Number", "number", Int),
    ("Size", "size", Int),
    ("Start", "start", Int),
    ("TypeGUID", "type_guid", Text),
];
const RAID: Fields =
    &[("Name", "name", Text), ("Level", "level", Text), ("Devices", "devices", Texts), ("Spare", "spare", Int)];
const MOUNT: Fields = &[
    ("Device", "device", Text),
    ("Format", "format", Text),
    ("Files", "files", List(FILE)),
    ("Create", "create", Part(&[("Force", "force", Bool), ("Options", "options", Texts)])),
    ("Point", "point", Text),
];
const FILE: Fields = &[
    ("Path", "path", Text),
    ("Contents", "contents", Text),
    ("Mode", "mode", Int),
    ("UID", "uid", Int),
    ("GID", "gid", Int),
];
const CUSTOM: Fields = &[
    ("PreinstalledOperatingSystemVersion", "preinstalled_operating_system_version", Part(SYSTEM)),
    ("PrivateSubnets", "private_subnets", Texts),
];
const FACILITY: Fields = &[
    ("PlanSlug", "plan_slug", Text),
    ("PlanVersionSlug", "plan_version_slug", Text),
    ("FacilityCode", "facility_code", Text),
];

/// `json`: null where the Hardware has none.
pub(super) fn by_go_names(json: &Json) -> Value {
    part(json, METADATA)
}

fn part(json: &Json, of: Fields) -> Value {
    fields(of.iter().map(|(name, key, kind)| (*name, field(&json[*key], kind))))
}

fn field(json: &Json, kind: &Kind) -> Value {
    match (kind, json) {
        (Part(_), Json::Null) => Value::Nil,
        (Part(of), _) => part(json, of),
        (List(of), _) => Value::List(json.as_array().into_iter().flatten().map(|one| part(one, of)).collect()),
        (Text, Json::Null) => string(""),
        (Int, Json::Null) => Value::Int(0),
        (Bool, Json::Null) => Value::Bool(false),
        (Texts, Json::Null) => Value::List(Default::default()),
        (Text | Int | Bool | Texts, _) => value(json),
    }
}
