//! One request to a BMC, as Tinkerbell's Jobs, Tasks and Workflows hold it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One request to a BMC. Exactly one of the fields is set.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[schemars(extend("maxProperties" = 1))]
#[serde(rename_all = "camelCase")]
pub struct BmcAction {
    /// Power of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_action: Option<PowerAction>,
    /// What the host boots next, once. Upstream: deprecated, use `bootDevice`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_time_boot_device_action: Option<OneTimeBootDeviceAction>,
    /// What the host boots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_device: Option<BootDeviceConfig>,
    /// The virtual CD-ROM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_media_action: Option<VirtualMediaAction>,
}

/// Power of the host: what to do with it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PowerAction {
    On,
    Off,
    Soft,
    Status,
    Cycle,
    Reset,
}

/// What the host boots next, once.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OneTimeBootDeviceAction {
    /// pxe, disk, bios, cdrom or safe; the first one counts.
    pub device: Vec<String>,
    /// True: by UEFI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub efi_boot: Option<bool>,
}

/// What the host boots.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BootDeviceConfig {
    /// pxe, disk, bios, cdrom or safe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// True: at every boot, not only the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent: Option<bool>,
    /// True: by UEFI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub efi_boot: Option<bool>,
}

/// The virtual CD-ROM.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VirtualMediaAction {
    /// The image to insert; empty: the medium is ejected.
    #[serde(rename = "mediaURL", skip_serializing_if = "Option::is_none")]
    pub media_url: Option<String>,
    /// CD.
    pub kind: String,
}
