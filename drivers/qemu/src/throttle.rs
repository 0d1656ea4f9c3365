//! Limits as `block_set_io_throttle` takes them and `query-block` tells them: per second, bytes in bytes, 0 for none. No I/O.

use crate::arguments;
use planner::exposure::{Bus, Limits};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

/// The arguments that hold a device to these limits and no other; `None`: QEMU throttles both directions together, or each,
/// and not all three.
pub fn arguments(device: &str, model: &str, limits: &Limits) -> Option<Value> {
    if limits.bandwidth_mib.is_some() && limits.read_mib.or(limits.write_mib).is_some() {
        return None;
    }
    let bytes = |mib: Option<u64>| mib.unwrap_or_default() * MIB;
    // Of a virtio device its inner half has the drive.
    let half = if model == arguments::disk_model(Bus::VirtioBlk) { "/virtio-backend" } else { "" };
    Some(json!({
        "id": format!("/machine/peripheral/{device}{half}"),
        "iops": limits.iops.unwrap_or_default(),
        "iops_rd": 0,
        "iops_wr": 0,
        "bps": bytes(limits.bandwidth_mib),
        "bps_rd": bytes(limits.read_mib),
        "bps_wr": bytes(limits.write_mib),
    }))
}

/// What is inserted into a device, as `query-block` describes it.
pub fn read(inserted: &Value) -> Limits {
    let number = |name: &str| inserted[name].as_u64().filter(|number| *number > 0);
    let mib = |name: &str| number(name).map(|bytes| bytes / MIB);
    Limits { iops: number("iops"), bandwidth_mib: mib("bps"), read_mib: mib("bps_rd"), write_mib: mib("bps_wr") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let each = Limits { iops: Some(5000), read_mib: Some(100), write_mib: Some(50), bandwidth_mib: None };
        for limits in [each, Limits { bandwidth_mib: Some(7), ..Limits::default() }, Limits::default()] {
            assert_eq!(read(&arguments("disk-u-1", "nvme", &limits).expect("possible")), limits);
        }
        assert_eq!(arguments("disk-u-1", "nvme", &Limits { bandwidth_mib: Some(7), ..each }), None);
        let of = |model: &str| arguments("disk-u-1", model, &each).expect("possible")["id"].clone();
        assert_eq!(of("nvme"), "/machine/peripheral/disk-u-1");
        assert_eq!(of("virtio-blk-pci"), "/machine/peripheral/disk-u-1/virtio-backend");
    }
}
