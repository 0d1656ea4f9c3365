//! The Hardware of a server that nobody has written down.

use super::{text, valid_name};
use crate::erase;
use crate::meta::label;
use api::HardwareReport;
use api::labels;
use api::report::NetbootSeen;
use api::tinkerbell::Hardware;
use api::tinkerbell::attributes::{AgentAttributes, BlockDevice};
use api::tinkerbell::hardware::{AutoCapabilities, Dhcp, Disk, HardwareSpec, Interface, Netboot};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Kernel names of what is no disk of the server, or not one to install on: CD drives, floppy drives, and devices made of memory or
/// files.
const NO_DISKS: [&str; 5] = ["sr", "fd", "loop", "ram", "zram"];

/// The name of a report of a server that no Hardware names, and of the Hardware that is made of it.
pub fn report_name(agent: &str) -> String {
    valid_name("discovery-", agent)
}

/// Nobody has said yet that the server is one of the inventory's.
pub fn is_unapproved(hardware: &Hardware) -> bool {
    label(&hardware.metadata, labels::UNAPPROVED).is_some()
}

pub(super) fn hardware(
    report: &HardwareReport,
    agent: &str,
    attributes: &AgentAttributes,
    namespace: &str,
) -> Hardware {
    let netboot = report.status.as_ref().and_then(|status| status.netboot.as_ref());
    let annotations = text(attributes).map(|text| [(labels::AGENT_ATTRIBUTES.to_owned(), text)].into());
    let marks = [labels::AUTO_DISCOVERED, labels::UNAPPROVED];
    let metadata = ObjectMeta {
        name: Some(report_name(agent)),
        namespace: Some(namespace.to_owned()),
        labels: Some(marks.map(|mark| (mark.to_owned(), "true".to_owned())).into()),
        annotations,
        ..ObjectMeta::default()
    };
    let mut macs: Vec<String> = attributes.macs().collect();
    macs.sort_by_key(|mac| netboot.is_none_or(|seen| seen.mac_address != *mac));
    macs.dedup();
    let spec = HardwareSpec {
        agent_id: Some(agent.to_owned()),
        auto: Some(AutoCapabilities { enrollment_enabled: Some(false) }),
        disks: local_disks(attributes).map(|disk| Disk { device: Some(disk.device) }).collect(),
        interfaces: macs.into_iter().map(|mac| interface(mac, netboot)).collect(),
        ..HardwareSpec::default()
    };
    Hardware { metadata, spec, status: None }
}

/// The one that the server has booted by may boot again: it is not lost from sight by a restart.
fn interface(mac: String, netboot: Option<&NetbootSeen>) -> Interface {
    let booted = netboot.filter(|seen| seen.mac_address == mac);
    let uefi = booted.and_then(|seen| seen.architecture).map(|architecture| architecture != 0);
    let arm = booted.and_then(|seen| seen.architecture).is_some_and(|architecture| matches!(architecture, 11 | 19));
    let arch = arm.then(|| "aarch64".to_owned());
    let netboot = booted.map(|_| Netboot { allow_pxe: Some(true), ..Netboot::default() });
    Interface { dhcp: Some(Dhcp { mac: Some(mac), uefi, arch, ..Dhcp::default() }), netboot, ..Interface::default() }
}

/// A local disk of a server, as its agent reports it.
#[derive(Debug)]
pub struct LocalDisk<'a> {
    /// As the Hardware names it that discovery makes.
    pub device: String,
    seen: &'a BlockDevice,
}

impl LocalDisk<'_> {
    /// As the agent tells it.
    pub fn size(&self) -> &str {
        self.seen.size.as_deref().unwrap_or_default()
    }

    /// `None`: the agent has rounded it, as upstream's does.
    pub fn bytes(&self) -> Option<u64> {
        self.size().parse().ok()
    }

    /// `device` of an inventory, whoever wrote it.
    pub fn is_device(&self, device: &str) -> bool {
        let said = |text: &Option<String>| text.clone().unwrap_or_default();
        let (name, serial, wwn) = (said(&self.seen.name), said(&self.seen.serial_number), said(&self.seen.wwn));
        self.device == device || erase::names(device, &name, &serial, &wwn)
    }
}

/// Each block device with a size that is no CD or floppy drive.
pub fn local_disks(attributes: &AgentAttributes) -> impl Iterator<Item = LocalDisk<'_>> {
    attributes.block_devices.iter().filter_map(|seen| Some(LocalDisk { device: device(seen)?, seen }))
}

fn device(device: &BlockDevice) -> Option<String> {
    let name = device.name.as_deref()?;
    let is_sized = device.size.as_deref().is_some_and(|size| !size.is_empty() && size != "0");
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'!'));
    let is_disk = !NO_DISKS.iter().any(|kind| {
        name.strip_prefix(kind).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    });
    let path = || by_id(name, device).unwrap_or_else(|| name.replace('!', "/"));
    (is_sized && is_plain && is_disk).then(|| format!("/dev/{}", path()))
}

/// The name that udev gives a disk, which is its own at the next start too; `None`: the agent told nothing that makes one.
fn by_id(name: &str, device: &BlockDevice) -> Option<String> {
    let plain = |text: &&String| {
        let stays = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:_".contains(&byte);
        text.len() >= 4 && text.bytes().all(stays) && text.as_str() != "unknown"
    };
    let wwn = device.wwn.as_ref().filter(plain);
    let hex = wwn.and_then(|wwn| wwn.strip_prefix("naa.").or_else(|| wwn.strip_prefix("0x")));
    let hex = hex.filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let link = if name.starts_with("nvme") {
        let of_namespace = wwn.filter(|wwn| wwn.starts_with("eui.") || wwn.starts_with("uuid."));
        format!("nvme-{}", of_namespace?)
    } else if name.starts_with("vd") {
        format!("virtio-{}", device.serial_number.as_ref().filter(plain)?)
    } else {
        format!("wwn-0x{}", hex?)
    };
    Some(format!("disk/by-id/{link}"))
}
