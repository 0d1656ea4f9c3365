//! The PCIe root ports of a virtual server: where the DPU's functions appear, and where on the root bus they sit.

use std::fmt::Write;

/// Ports that take devices while the host runs.
pub const HOT_PLUG: usize = 14;
pub const BOOT: &str = "boot";
pub const SEED: &str = "seed";
/// Slot of the local disk on the root bus.
pub const LOCAL_DISK_SLOT: u8 = 8;
/// Slot of the provisioning network's NIC on the root bus.
pub const PROVISIONING_SLOT: u8 = 9;
/// Slot of the USB controller on the root bus.
pub const USB_SLOT: u8 = 10;

/// The ids of all ports.
pub fn all() -> impl Iterator<Item = String> {
    let fixed = [BOOT.to_owned(), SEED.to_owned()].into_iter();
    fixed.chain((0..HOT_PLUG).map(|number| format!("hp{number}")))
}

/// The position of a port among all of them.
pub fn position(port: &str) -> Option<usize> {
    all().position(|name| name == port)
}

/// QEMU's arguments for the ports. `boot` and `seed` have slots 2 and 3 for themselves, so that the boot option's
/// path never changes; the others are functions of slots 4 and 5. None reserves I/O space: sixteen would need all
/// there is, and no device of ours wants any.
pub fn arguments() -> Vec<String> {
    let mut arguments = Vec::new();
    for (number, port) in all().enumerate() {
        let mut device = format!("pcie-root-port,id={port},bus=pcie.0,chassis={0},slot={0},io-reserve=0", number + 1);
        let place = match number {
            0 | 1 => format!(",addr=0x{:x}.0", number + 2),
            _ => format!(",addr=0x{:x}.{},multifunction=on", 4 + (number - 2) / 8, (number - 2) % 8),
        };
        // Writing to a String cannot fail.
        let _ = write!(device, "{place}");
        arguments.extend(["-device".to_owned(), device]);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_ports_share_an_address() {
        let arguments = arguments();
        let mut places: Vec<&str> = arguments
            .iter()
            .filter_map(|text| Some(text.split_once("addr=")?.1.split(',').next().unwrap_or_default()))
            .collect();
        assert_eq!(places.len(), HOT_PLUG + 2);
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), HOT_PLUG + 2);
    }
}
