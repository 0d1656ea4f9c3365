//! What a Hardware asks for that is Tinkerbell's, and that nothing here serves: told at its report, with what to write instead.

use api::tinkerbell::Hardware;
use api::tinkerbell::hardware::{Ip, Netboot};

const PXELINUX: &str = "write the kernel, its initial RAM disk and its parameters into netboot.osie, or a script into netboot.ipxe.contents";
const RPI: &str =
    "a Raspberry Pi is not booted from the network here: install it by other means, and leave the field out";
const WORKFLOW: &str = "set disabled: true in the Workflows of the server, or leave the field out";
const FAMILY: &str =
    "DHCP is served for IPv4 alone: write an IPv4 address, and let the installed system take its IPv6 one";

/// Each with its place and what to do.
pub(super) fn fields(hardware: &Hardware) -> Vec<String> {
    let mut all = Vec::new();
    for (at, interface) in hardware.spec.interfaces.iter().enumerate() {
        let mut tell = |is: bool, field: &str, instead: &str| {
            all.extend(is.then(|| format!("spec.interfaces[{at}].{field} is not served: {instead}")));
        };
        let netboot = interface.netboot.as_ref();
        let has = |is: fn(&Netboot) -> bool| netboot.is_some_and(is);
        tell(has(|netboot| netboot.pxelinux.is_some()), "netboot.pxelinux", PXELINUX);
        tell(has(|netboot| netboot.rpi.is_some()), "netboot.rpi", RPI);
        tell(has(|netboot| netboot.allow_workflow == Some(false)), "netboot.allowWorkflow: false", WORKFLOW);
        let ip = interface.dhcp.as_ref().and_then(|dhcp| dhcp.ip.as_ref());
        tell(ip.is_some_and(|ip: &Ip| ip.family == Some(6)), "dhcp.ip.family: 6", FAMILY);
    }
    all
}
