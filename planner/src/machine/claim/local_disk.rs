//! Whether a server has a local disk of the size that a machine asks for, by what the agent in its installer reported last.
//!
//! Of a server that no agent has told of the size is not known, and that is no refusal: what would tell it is the installation. It is said
//! beside the claim. Where the Hardware names disks those count, for they are what a Template reads.

use crate::enrol;
use crate::machine::situation::Situation;
use crate::meta::name;
use crate::netboot::report::is_of;
use crate::reason::{Blocked, Reason};
use api::HardwareReport;
use api::machine::{BareMetalMachineSpec, BootStrategy};
use api::quantity;
use api::tinkerbell::Hardware;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// One that counts, and what is known of its size.
struct LocalDisk {
    device: String,
    bytes: Option<u64>,
}

/// What the machine asks a server's own disk to have. With `Workflow` it asks for none: the Template says what is written.
pub fn asked(spec: &BareMetalMachineSpec) -> Option<&Quantity> {
    let installs_disk = spec.boot.strategy == BootStrategy::Auto;
    spec.disks.first().filter(|_| installs_disk)?.size.as_ref()
}

/// An error: no local disk has that size. `Some`: why nobody knows.
pub(super) fn check(
    spec: &BareMetalMachineSpec,
    hardware: &Hardware,
    report: Option<&HardwareReport>,
) -> Result<Option<String>, Reason> {
    let Some((size, wanted)) = asked(spec).and_then(|size| Some((size, quantity::bytes(size)?))) else {
        return Ok(None);
    };
    let hardware_name = name(&hardware.metadata);
    let all = disks(hardware, report.filter(|report| is_of(report, hardware)));
    if all.iter().any(|disk| disk.bytes.is_some_and(|bytes| bytes >= wanted)) {
        return Ok(None);
    }
    let unknown: Vec<&str> = all.iter().filter(|disk| disk.bytes.is_none()).map(|disk| disk.device.as_str()).collect();
    let which = match (all.is_empty(), unknown.is_empty()) {
        (true, _) => "no agent has told the local disks of the server".to_owned(),
        (false, false) => format!("no agent has told the size of {}", unknown.join(", ")),
        (false, true) => {
            let told = |disk: &LocalDisk| format!("{} has {}", disk.device, disk.bytes.unwrap_or_default());
            let disks = all.iter().map(told).collect::<Vec<_>>().join(", ");
            let (hardware, size) = (hardware_name.to_owned(), size.0.clone());
            return Err(Blocked::LocalDiskTooSmall { hardware, size, bytes: wanted, disks }.into());
        }
    };
    Ok(Some(format!(
        "whether Hardware '{hardware_name}' has a local disk of the {} that spec.disks[0].size asks for is not known: {which}",
        size.0
    )))
}

/// What is told of the local disks of the server that the machine is installed on; nothing, where one has the size.
pub(in crate::machine) fn told(o: &Situation<'_>) -> String {
    let Some(hardware) = o.owned.bare() else { return String::new() };
    match check(&o.machine.spec, hardware, o.report.as_deref()) {
        Ok(unknown) => unknown.unwrap_or_default(),
        // The machine has the server: it asks for more since, or the agent has told now.
        Err(reason) => reason.message(),
    }
}

fn disks(hardware: &Hardware, report: Option<&HardwareReport>) -> Vec<LocalDisk> {
    let attributes = report.and_then(|report| report.status.as_ref()?.attributes.as_ref());
    let reported = || attributes.into_iter().flat_map(enrol::local_disks);
    let named: Vec<&str> = hardware.spec.disks.iter().filter_map(|disk| disk.device.as_deref()).collect();
    if named.is_empty() {
        return reported().map(|disk| LocalDisk { bytes: disk.bytes(), device: disk.device }).collect();
    }
    let known = |device: &str| reported().find(|disk| disk.is_device(device)).and_then(|disk| disk.bytes());
    named.into_iter().map(|device| LocalDisk { device: device.to_owned(), bytes: known(device) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn spec(strategy: &str, size: Option<&str>) -> BareMetalMachineSpec {
        let mut disk = json!({"name": "root", "source": {"image": {"name": "debian"}}});
        disk["size"] = size.map_or(Value::Null, |size| json!(size));
        serde_json::from_value(json!({"boot": {"strategy": strategy}, "disks": [disk]})).expect("a spec")
    }

    fn hardware(devices: &[&str]) -> Hardware {
        let disks: Vec<_> = devices.iter().map(|device| json!({"device": device})).collect();
        serde_json::from_value(json!({"metadata": {"name": "hw", "uid": "u"}, "spec": {"disks": disks}})).expect("one")
    }

    /// By an agent of the server whose Hardware has this UID.
    fn report(owner: &str, disks: &Value) -> HardwareReport {
        let owner = json!({"apiVersion": "tinkerbell.org/v1alpha1", "kind": "Hardware", "name": "hw", "uid": owner});
        serde_json::from_value(json!({"apiVersion": "metalplane.io/v1alpha1", "kind": "HardwareReport",
            "metadata": {"name": "hw", "ownerReferences": [owner]}, "spec": {},
            "status": {"attributes": {"blockDevices": disks}}}))
        .expect("a report")
    }

    const SMALL: &str = r#"{"name": "nvme0n1", "size": "1073741824", "wwn": "eui.0025385b01234567"}"#;
    const LARGE: &str = r#"{"name": "sda", "size": "1099511627776", "serialNumber": "S3X1"}"#;

    fn checked(devices: &[&str], disks: &[&str]) -> Result<Option<String>, String> {
        let disks: Value = disks.iter().map(|disk| serde_json::from_str::<Value>(disk).expect("JSON")).collect();
        let found = check(&spec("Auto", Some("1Ti")), &hardware(devices), Some(&report("u", &disks)));
        found.map_err(|reason| format!("{}: {}", reason.name(), reason.message()))
    }

    #[test]
    fn a_server_whose_local_disks_are_all_smaller_is_no_candidate() {
        assert_eq!(checked(&[], &[SMALL, LARGE]), Ok(None), "a disk of just that size");
        let refused = "LocalDiskTooSmall: spec.disks[0].size asks for 1Ti (1099511627776 bytes), and no local disk of Hardware 'hw' has that size: \
                       in bytes, /dev/nvme0n1 has 1073741824";
        let medium = r#"{"name": "sr0", "size": "4398046511104"}"#;
        let by_name = checked(&["/dev/nvme0n1"], &[SMALL, LARGE, medium]);
        assert_eq!(by_name, Err(refused.to_owned()), "another disk of it is not what a Template reads");
        // The name that discovery gives the disk, and one with its serial number.
        let by_id = ["/dev/disk/by-id/nvme-eui.0025385b01234567"];
        assert_eq!(checked(&by_id, &[LARGE, SMALL]), Err(refused.replace("/dev/nvme0n1", by_id[0])));
        assert_eq!(checked(&["/dev/disk/by-id/ata-Fast_S3X1"], &[SMALL, LARGE]), Ok(None));
        let inside = refused.replace("/dev/nvme0n1", "/dev/disk/by-id/nvme-eui.0025385b01234567");
        assert_eq!(checked(&[], &[SMALL, medium]), Err(inside), "a CD is no disk");
    }

    #[test]
    fn what_nobody_has_told_is_said_and_refuses_nothing() {
        let unknown = |why: &str| {
            Ok(Some(format!(
                "whether Hardware 'hw' has a local disk of the 1Ti that spec.disks[0].size asks for is not known: {why}"
            )))
        };
        assert_eq!(checked(&[], &[]), unknown("no agent has told the local disks of the server"));
        // Upstream's agent rounds.
        let rounded = r#"{"name": "sda", "size": "239GB"}"#;
        assert_eq!(checked(&[], &[SMALL, rounded]), unknown("no agent has told the size of /dev/sda"));
        assert_eq!(checked(&["/dev/sdb"], &[SMALL, LARGE]), unknown("no agent has told the size of /dev/sdb"));
        let small = json!([serde_json::from_str::<Value>(SMALL).expect("JSON")]);
        let without = unknown("no agent has told the local disks of the server").map_err(drop);
        for report in [None, Some(report("another", &small))] {
            let found = check(&spec("Auto", Some("1Ti")), &hardware(&[]), report.as_ref());
            assert_eq!(found.map_err(drop), without, "of no server, or of an earlier Hardware of that name");
        }
    }

    #[test]
    fn nothing_is_compared_where_no_size_is_asked_of_a_local_disk() {
        let report = report("u", &json!([serde_json::from_str::<Value>(SMALL).expect("JSON")]));
        for (strategy, size) in [("Auto", None), ("Workflow", Some("1Ti")), ("CloudDisk", Some("1Ti"))] {
            assert_eq!(check(&spec(strategy, size), &hardware(&[]), Some(&report)), Ok(None), "{strategy}");
        }
    }
}
