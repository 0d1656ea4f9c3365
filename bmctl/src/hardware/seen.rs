//! What network boot has seen of a server, in words.

use crate::cluster::Cluster;
use crate::failure::Failure;
use api::HardwareReport;
use api::report::{HardwareReportStatus, HeardBy};
use api::tinkerbell::Hardware;
use api::tinkerbell::attributes::AgentAttributes;
use kube::{Api, ResourceExt};
use planner::netboot::report::{is_of, told, told_refused, told_unserved};

/// `Hardware` may be read where reports may not: then nothing is said.
pub(super) async fn seen(cluster: &Cluster, hardware: &Hardware) -> Result<Vec<String>, Failure> {
    let reports: Api<HardwareReport> =
        Api::namespaced(cluster.client.clone(), &hardware.namespace().unwrap_or_default());
    let found = match reports.get_opt(&hardware.name_any()).await {
        Err(kube::Error::Api(status)) if status.code == 403 => None,
        found => found.map_err(|error| Failure::from_kube(error, "its HardwareReport", cluster.program))?,
    };
    let status = found.filter(|report| is_of(report, hardware)).and_then(|report| report.status).unwrap_or_default();
    Ok(lines(&status))
}

fn lines(status: &HardwareReportStatus) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(seen) = &status.netboot {
        lines.push(format!("{}: {}", seen.at.0, told(Some(seen))));
    }
    lines.extend(status.unserved.as_ref().map(told_unserved));
    if let Some(session) = status.session.as_ref().filter(|session| session.ended_at.is_none()) {
        let doing = session.doing.as_ref().map(|doing| format!(": {doing}")).unwrap_or_default();
        lines.push(format!("{}: the installer is at work{doing}", session.heard_at.0));
    }
    lines.extend(status.refused.as_ref().map(told_refused));
    if let Some(guest) = &status.guest {
        let by = match guest.by {
            HeardBy::Dhcp => "took its address",
            HeardBy::Metadata => "asked for its metadata",
            HeardBy::Syslog => "sent a line of its log",
        };
        let (address, mac) = (&guest.address, &guest.mac_address);
        lines.push(format!("{}: the system on its disk {by}: {address} ({mac})", guest.at.0));
    }
    if let Some(uuid) = status.identity.as_ref().and_then(|identity| identity.uuid.as_ref()) {
        lines.push(format!("the firmware says that the UUID of the server is {uuid}"));
    }
    lines.extend(status.attributes.iter().flat_map(inventory));
    for condition in status.conditions.iter().filter(|condition| !condition.message.is_empty()) {
        lines.push(format!("{} is {}: {}", condition.type_, condition.status, condition.message));
    }
    lines
}

fn inventory(attributes: &AgentAttributes) -> Vec<String> {
    let words = |all: &[Option<&String>]| {
        all.iter().flatten().map(|word| word.as_str()).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    };
    let mut lines = Vec::new();
    if let Some(product) = &attributes.product {
        let model = words(&[product.vendor.as_ref(), product.name.as_ref()]);
        let serial = attributes.serial_number().map(|serial| format!("serial number {serial}"));
        let told: Vec<String> = [Some(model).filter(|model| !model.is_empty()), serial].into_iter().flatten().collect();
        lines.extend(Some(told.join(", ")).filter(|told| !told.is_empty()));
    }
    for disk in &attributes.block_devices {
        let what = words(&[disk.vendor.as_ref(), disk.model.as_ref()]);
        let more = [
            disk.size
                .as_ref()
                .map(|size| size.parse::<u64>().map_or_else(|_| size.clone(), |size| format!("{size} bytes"))),
            Some(what).filter(|what| !what.is_empty()),
            disk.serial_number.as_ref().map(|serial| format!("serial number {serial}")),
        ];
        let more: Vec<String> = more.into_iter().flatten().collect();
        lines.push(format!("disk {}: {}", disk.name.as_deref().unwrap_or_default(), more.join(", ")));
    }
    for nic in attributes.network_interfaces.iter().filter(|nic| nic.mac.is_some()) {
        lines.push(format!("network interface {}", words(&[nic.name.as_ref(), nic.mac.as_ref(), nic.speed.as_ref()])));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_an_agent_reported_is_told_line_by_line() {
        let status = json!({
            "attributes": {
                "product": {"name": "R650", "vendor": "Dell", "serialNumber": "S1"},
                "blockDevices": [{"name": "nvme0n1", "size": "1024", "model": "P5510", "serialNumber": "D1"}, {"name": "sda", "size": "239GB"}],
                "networkInterfaces": [{"name": "eno1", "mac": "52:54:00:00:00:01"}, {"name": "lo"}],
            },
            "session": {"key": "sha256:0", "run": "u/1/w", "beganAt": "2026-01-01T00:00:00Z", "heardAt": "2026-01-01T00:01:00Z",
                "doing": "1024 bytes of http://images/a"},
            "refused": {"at": "2026-01-01T00:02:03Z", "address": "10.0.0.9", "reason": "TokenUsedTwice", "message": "why"},
            "conditions": [{"type": "Approved", "status": "False", "reason": "r", "message": "wait", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        });
        let status: HardwareReportStatus = serde_json::from_value(status).expect("a status");
        assert_eq!(
            lines(&status),
            [
                "2026-01-01T00:01:00Z: the installer is at work: 1024 bytes of http://images/a",
                "an agent at 10.0.0.9 was refused at 00:02:03Z (TokenUsedTwice: why)",
                "Dell R650, serial number S1",
                "disk nvme0n1: 1024 bytes, P5510, serial number D1",
                "disk sda: 239GB",
                "network interface eno1 52:54:00:00:00:01",
                "Approved is False: wait",
            ]
        );
    }
}
