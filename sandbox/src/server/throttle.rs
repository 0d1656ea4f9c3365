//! I/O limits of presented disks, kept while the host is off and on, as QEMU keeps them.

use serde_json::{Value, json};

use super::qmp::{Arguments, Refusal};
use super::record::text;

const NUMBERS: [&str; 6] = ["bps", "bps_rd", "bps_wr", "iops", "iops_rd", "iops_wr"];

/// The device that `block_set_io_throttle` is for: its id or its QOM path.
pub fn device(arguments: &Arguments) -> Result<&str, Refusal> {
    let id = text(arguments, "id")?;
    let path = id.strip_prefix("/machine/peripheral/").unwrap_or(id);
    Ok(path.strip_suffix("/virtio-backend").unwrap_or(path))
}

/// What QEMU refuses whatever the device.
pub fn check(arguments: &Arguments) -> Result<(), Refusal> {
    let numbers = NUMBERS.map(|name| (name, arguments.get(name).and_then(Value::as_u64)));
    if let Some((name, _)) = numbers.iter().find(|(_, number)| number.is_none()) {
        return Err(Refusal::generic(format!("Parameter '{name}' is missing")));
    }
    let is_set = |name: &str| numbers.iter().any(|(known, number)| *known == name && number.is_some_and(|n| n > 0));
    for total in ["bps", "iops"] {
        if is_set(total) && (is_set(&format!("{total}_rd")) || is_set(&format!("{total}_wr"))) {
            let what = "bps/iops/max total values and read/write values cannot be used at the same time";
            return Err(Refusal::generic(what));
        }
    }
    Ok(())
}

/// One device of `query-block`. `set`: the arguments that it was limited by last.
pub fn describe(device: &str, driver: &str, drive: &str, set: Option<&Arguments>) -> Value {
    let path =
        if driver == "nvme" { device.to_owned() } else { format!("/machine/peripheral/{device}/virtio-backend") };
    let mut inserted = json!({ "node-name": drive });
    for name in NUMBERS {
        inserted[name] = set.and_then(|set| set.get(name)).cloned().unwrap_or(json!(0));
    }
    json!({ "device": "", "qdev": path, "inserted": inserted })
}
