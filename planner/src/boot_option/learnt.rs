//! The device path by which the boot disk was found once, with what it rests on. It stands in the annotation
//! `metalplane.io/boot-path` of the Hardware.

use crate::host::HostObserved;
use serde::{Deserialize, Serialize};

/// Another firmware may write paths in another way, and cards that were moved have other ones: then it counts no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Learnt {
    pub path: String,
    /// The serial number of the DPU's boot controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// Of the list of PCIe devices.
    pub devices: String,
}

impl Learnt {
    pub fn new(path: String, controller: Option<&str>, host: &HostObserved) -> Self {
        Self {
            path,
            controller: controller.map(str::to_owned),
            firmware: host.firmware_version.clone(),
            devices: api::names::short(&host.pcie_devices.join("\n"), 12),
        }
    }

    /// `None`: it is not what this writes.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    pub fn holds(&self, controller: Option<&str>, host: &HostObserved) -> bool {
        *self == Self::new(self.path.clone(), controller, host)
    }
}

/// As the annotation has it.
impl std::fmt::Display for Learnt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = serde_json::to_string(self).map_err(|_| std::fmt::Error)?;
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::PowerState;

    #[test]
    fn it_holds_until_firmware_cards_or_dpu_are_others() {
        let mut host = HostObserved::with_power(PowerState::Off);
        host.firmware_version = Some("1.8.2".to_owned());
        host.pcie_devices = vec!["/redfish/v1/Systems/1/PCIeDevices/1".to_owned()];
        let learnt = Learnt::new("PciRoot(0x0)/NVMe(0x1)".to_owned(), Some("MP1"), &host);
        assert_eq!(Learnt::parse(&learnt.to_string()), Some(learnt.clone()));
        assert!(learnt.holds(Some("MP1"), &host));
        assert!(!learnt.holds(Some("MP2"), &host) && !learnt.holds(None, &host));
        let other = HostObserved { firmware_version: Some("1.9.0".to_owned()), ..host.clone() };
        assert!(!learnt.holds(Some("MP1"), &other));
        host.pcie_devices.push("/redfish/v1/Systems/1/PCIeDevices/2".to_owned());
        assert!(!learnt.holds(Some("MP1"), &host));
        assert_eq!(Learnt::parse("PciRoot(0x0)/NVMe(0x1)"), None);
    }
}
