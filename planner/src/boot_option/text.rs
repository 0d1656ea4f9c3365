//! What the name of a boot option tells.

/// Fewer characters are in some other word sooner or later.
const SHORTEST_SERIAL: usize = 8;

/// Whether the name has the serial number as a whole word, and no other namespace behind it: firmware after EDK2 writes
/// model, serial number and NSID.
pub fn names_serial(name: &str, serial: &str, nsid: u32) -> bool {
    let serial = serial.trim();
    if serial.len() < SHORTEST_SERIAL {
        return false;
    }
    let words: Vec<&str> = name.split([' ', '-', '_']).filter(|word| !word.is_empty()).collect();
    let Some(at) = words.iter().position(|word| word.eq_ignore_ascii_case(serial)) else { return false };
    match words[at + 1..] {
        // A longer number is a part of an EUI-64, as HPE has it.
        [last] if last.len() < 4 => last.parse::<u32>().map_or(true, |seen| seen == nsid),
        _ => true,
    }
}

/// The PCIe address at the beginning of a name as Supermicro has them, in decimal: `(B26/D0/F2) UEFI …`.
pub fn pci_address(name: &str) -> Option<(u8, u8, u8)> {
    let (inside, _) = name.strip_prefix('(')?.split_once(')')?;
    let mut parts = inside.split('/');
    let mut part = |letter: char| parts.next()?.strip_prefix(letter)?.parse().ok();
    Some((part('B')?, part('D')?, part('F')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_number_is_a_whole_word() {
        let serial = "MP0123456789ABCDEF00";
        for name in [
            format!("UEFI Metalplane disk {serial} 1"),
            format!("NVMe Drive : NVM Express Controller - {serial}-MODEL-000H3-9A382500"),
            format!("[Slot16] Metalplane disk {serial}"),
        ] {
            assert!(names_serial(&name, serial, 1), "{name}");
        }
        for name in [format!("UEFI Metalplane disk {serial} 2"), format!("UEFI X{serial} 1"), "UEFI".to_owned()] {
            assert!(!names_serial(&name, serial, 1), "{name}");
        }
        assert!(!names_serial("MNC12 1", "MNC12", 1), "too short to be nobody else's word");
    }

    #[test]
    fn an_address_in_decimal() {
        assert_eq!(pci_address("(B26/D0/F2) UEFI Hard Disk"), Some((26, 0, 2)));
        assert_eq!(pci_address("(B26/D0) UEFI"), None);
        assert_eq!(pci_address("(B300/D0/F0)"), None);
        assert_eq!(pci_address("SLOT15 (65/0/0)"), None);
    }
}
