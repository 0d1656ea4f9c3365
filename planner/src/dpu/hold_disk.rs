//! Whether a DPU's agent can present a hold disk to its server: it has a loader for the server's processors.

use super::eraser::machine;
use api::Dpu;
use api::tinkerbell::Hardware;

/// Why it cannot.
pub(super) fn missing(dpu: &Dpu, hardware: &Hardware) -> Option<String> {
    let machine = machine(hardware);
    let known = dpu.status.as_ref().map(|status| status.hold_disks.as_slice()).unwrap_or_default();
    if known.iter().any(|known| known == machine) {
        return None;
    }
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Some(format!("its agent has no hold disk for {machine} (it has: {known})"))
}
