//! A server in a few words, for a column of `kubectl get hwr`: which it is, and what it has.

use super::local_disks;
use api::tinkerbell::attributes::AgentAttributes;

/// Serial number and disks. The MAC address by which it boots is not among them: those of servers that were discovered are in their
/// names, and beside such a name a line of 80 columns has no room for it.
pub fn summary(attributes: &AgentAttributes) -> String {
    let serial = attributes.serial_number().filter(|serial| !serial.is_empty());
    serial.into_iter().map(str::to_owned).chain([disks(attributes)]).collect::<Vec<_>>().join(", ")
}

/// How many, and what they have together if each one says that.
fn disks(attributes: &AgentAttributes) -> String {
    let disks: Vec<_> = local_disks(attributes).collect();
    let size = disks.iter().try_fold(0u64, |all, disk| all.checked_add(bytes(disk.size())?));
    match (disks.len(), size) {
        (0, _) => "no disk".to_owned(),
        (1, None) => "1 disk".to_owned(),
        (1, Some(size)) => format!("1 disk, {}", rounded(size)),
        (count, None) => format!("{count} disks"),
        (count, Some(size)) => format!("{count} disks, {}", rounded(size)),
    }
}

/// The number of bytes, as our agent tells it, or with a unit, as upstream's does.
fn bytes(size: &str) -> Option<u64> {
    let at = size.find(|c: char| !c.is_ascii_digit()).unwrap_or(size.len());
    let (number, unit) = size.split_at(at);
    let unit: u64 = match unit.trim() {
        "" | "B" => 1,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// As sellers of disks count.
fn rounded(bytes: u64) -> String {
    let (megabyte, gigabyte) = (1_000_000, 1_000_000_000);
    match bytes {
        _ if bytes >= 10_000 * gigabyte => format!("{} TB", bytes / (1000 * gigabyte)),
        _ if bytes >= 1000 * gigabyte => format!("{}.{} TB", bytes / (1000 * gigabyte), bytes / (100 * gigabyte) % 10),
        _ if bytes >= 10 * gigabyte => format!("{} GB", bytes / gigabyte),
        _ if bytes >= gigabyte => format!("{}.{} GB", bytes / gigabyte, bytes / (100 * megabyte) % 10),
        _ => format!("{} MB", bytes / megabyte),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn of(attributes: Value) -> String {
        summary(&serde_json::from_value(attributes).expect("attributes"))
    }

    #[test]
    fn a_server_is_told_by_serial_number_and_disks_beside_the_name_that_discovery_gives_it() {
        let disks = json!([{"name": "nvme0n1", "size": "480103981056"}, {"name": "nvme1n1", "size": "480103981056"},
            {"name": "sr0", "size": "1073741312"}]);
        let told = of(json!({"product": {"serialNumber": "J1234567"}, "blockDevices": disks}));
        assert_eq!(told, "J1234567, 2 disks, 960 GB");
        // NETBOOT and APPROVED stand between them.
        let line = ["discovery-52-54-00-88-00-07", "LocalDisk", "APPROVED", &told].join("   ");
        assert!(line.len() <= 80, "{}", line.len());
    }

    #[test]
    fn what_is_not_known_is_not_said() {
        assert_eq!(of(json!({})), "no disk");
        for (size, told) in [
            ("2147483648", "1 disk, 2.1 GB"),
            ("239GB", "1 disk, 239 GB"),
            ("3840755982336", "1 disk, 3.8 TB"),
            ("18000207937536", "1 disk, 18 TB"),
            ("512MB", "1 disk, 512 MB"),
            ("a lot", "1 disk"),
            ("99999999999999999999GB", "1 disk"),
        ] {
            assert_eq!(of(json!({"blockDevices": [{"name": "sda", "size": size}]})), told, "{size}");
        }
    }
}
