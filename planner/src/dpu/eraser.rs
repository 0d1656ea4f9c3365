//! Whether a DPU's agent can have the server's own disks erased: it has a program for the server's processors.

use crate::observed::DpuSeen;
use api::tinkerbell::Hardware;

/// What processors are called that a Hardware tells nothing of.
const USUAL: &str = "x86_64";

/// Why it cannot.
pub(crate) fn missing(dpu: &DpuSeen, hardware: &Hardware) -> Option<String> {
    let (machine, status) = (machine(hardware), dpu.dpu.status.as_ref());
    let erasers = status.map(|status| status.erasers.as_slice()).unwrap_or_default();
    if erasers.iter().any(|known| known == machine) {
        return None;
    }
    let known = if erasers.is_empty() { "none".to_owned() } else { erasers.join(", ") };
    Some(format!("the agent of Dpu '{}' has no eraser for {machine} (it has: {known})", dpu.name()))
}

/// As `uname -m` calls the server's processors.
pub(crate) fn machine(hardware: &Hardware) -> &str {
    let mut told = hardware.spec.interfaces.iter().filter_map(|interface| interface.dhcp.as_ref()?.arch.as_deref());
    told.find(|arch| !arch.is_empty()).unwrap_or(USUAL)
}
