//! UEFI device paths as text (UEFI 2.10, section 10.6), as far as they tell where a disk is.

/// What a path leads to.
#[derive(Debug, PartialEq, Eq)]
pub enum Place<'a> {
    Namespace(Path<'a>),
    /// It says no more than a vendor's GUID.
    Opaque,
    /// A NIC, a partition without a disk, a USB stick: not a namespace.
    Other,
}

/// The path of an NVMe namespace.
#[derive(Debug, PartialEq, Eq)]
pub struct Path<'a> {
    text: &'a str,
    /// Where the node of the namespace begins and ends.
    node: (usize, usize),
    pub nsid: u32,
    /// As it is written.
    pub eui64: Option<[u8; 8]>,
}

impl<'a> Path<'a> {
    pub fn parse(text: &'a str) -> Place<'a> {
        let text = text.trim();
        let opaque = text.is_empty() || (text.starts_with("VenHw") && !text.contains('/'));
        if opaque {
            return Place::Opaque;
        }
        // Other nodes may hold anything, `NVMe(` too: nodes are looked at, not the text.
        let mut at = 0;
        for node in text.split('/') {
            if let Some(inside) = node.strip_prefix("NVMe(").and_then(|rest| rest.strip_suffix(')')) {
                // A path that begins with the namespace does not say where it is.
                let Some((nsid, eui64)) = namespace(inside).filter(|_| at > 0) else { return Place::Other };
                return Place::Namespace(Path { text, node: (at, at + node.len()), nsid, eui64 });
            }
            at += node.len() + 1;
        }
        Place::Other
    }

    /// Up to the namespace: what is behind it is on the disk.
    pub fn disk(&self) -> &'a str {
        &self.text[..self.node.1]
    }

    pub fn rest_length(&self) -> usize {
        self.text.len() - self.node.1
    }

    /// Whether its controller is another function of the PCIe device that `device` is the path of.
    pub fn is_function_beside(&self, device: &str) -> bool {
        let own = self.text[..self.node.0].trim_end_matches('/');
        match (function(own), function(device)) {
            (Some((one, f)), Some((other, g))) => one == other && f != g,
            _ => false,
        }
    }
}

/// `0x1,8C-0A-90-47-01-75-A0-00`; the second part may be missing or of another length.
fn namespace(inside: &str) -> Option<(u32, Option<[u8; 8]>)> {
    let (nsid, eui64) = inside.split_once(',').unwrap_or((inside, ""));
    let nsid = number(nsid)?;
    let bytes: Vec<u8> =
        eui64.split('-').map(|byte| u8::from_str_radix(byte, 16).ok()).collect::<Option<_>>().unwrap_or_default();
    Some((nsid, bytes.try_into().ok()))
}

fn number(text: &str) -> Option<u32> {
    let text = text.trim();
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The path of a function without the function, and that; of a path that ends in `Pci(device,function)`.
fn function(path: &str) -> Option<(String, u32)> {
    let (before, last) = path.rsplit_once('/')?;
    let inside = last.strip_prefix("Pci(")?.strip_suffix(')')?;
    let (device, function) = inside.split_once(',')?;
    Some((format!("{before}/{}", number(device)?), number(function)?))
}

/// What is behind that place, which is a whole device path, where the path begins with it: nothing, or a partition and what is on it.
pub fn rest_of<'a>(path: &'a str, place: &str) -> Option<&'a str> {
    let mut rest = path;
    for node in place.split('/') {
        let (first, behind) = rest.split_once('/').unwrap_or((rest, ""));
        if !is_same_node(first, node) {
            return None;
        }
        rest = behind;
    }
    (rest.is_empty() || rest.starts_with("HD(") || rest.starts_with('\\')).then_some(rest)
}

/// Numbers in whatever base; of a namespace its number alone, of a SATA port not what stands for "no port multiplier".
fn is_same_node(one: &str, other: &str) -> bool {
    let parts = |node: &str| {
        let (kind, inside) = node.strip_suffix(')')?.split_once('(')?;
        let kind = kind.to_ascii_lowercase();
        let kept: &[usize] = match kind.as_str() {
            "nvme" => &[0],
            "sata" => &[0, 2],
            _ => &[0, 1],
        };
        let words: Vec<&str> = inside.split(',').collect();
        let numbers =
            kept.iter().filter_map(|at| words.get(*at)).map(|word| number(word)).collect::<Option<Vec<_>>>()?;
        Some((if kind == "pcieroot" { "pciroot".to_owned() } else { kind }, numbers))
    };
    parts(one).is_some_and(|one| Some(one) == parts(other))
}

/// The GUID of the partition that a path begins with.
pub fn partition(path: &str) -> Option<&str> {
    let mut words = path.strip_prefix("HD(")?.split_once(')')?.0.split(',');
    let (_, kind, guid) = (words.next()?, words.next()?, words.next()?);
    (kind == "GPT").then_some(guid)
}

/// The MAC address of a network option, and the path of its NIC.
pub fn nic(path: &str) -> Option<([u8; 6], &str)> {
    let (device, rest) = path.split_once("/MAC(")?;
    let digits = rest.get(..12)?;
    let bytes = (0..6).map(|i| u8::from_str_radix(digits.get(2 * i..2 * i + 2)?, 16).ok());
    let bytes: Vec<u8> = bytes.collect::<Option<_>>()?;
    Some((bytes.try_into().ok()?, device))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Option<(u32, Option<[u8; 8]>, &str)> {
        match Path::parse(text) {
            Place::Namespace(path) => Some((path.nsid, path.eui64, path.disk())),
            Place::Opaque | Place::Other => None,
        }
    }

    #[test]
    fn nodes_are_read_not_the_text() {
        let disk = "PciRoot(0x0)/Pci(0x3,0x2)/NVMe(0x1,60-33-01-21-9A-38-25-00)";
        let eui64 = Some([0x60, 0x33, 0x01, 0x21, 0x9a, 0x38, 0x25, 0]);
        assert_eq!(place(disk), Some((1, eui64, disk)));
        assert_eq!(place(&format!("{disk}/HD(1,GPT,x)/\\EFI\\a.efi")), Some((1, eui64, disk)));
        assert_eq!(place("PciRoot(0x0)/NVMe(0x1F,00-00)"), Some((31, None, "PciRoot(0x0)/NVMe(0x1F,00-00)")));
        for other in ["HD(1,GPT,x)/\\NVMe(0x1,00-00-00-00-00-00-00-00)", "NVMe(0x1)", "PciRoot(0x0)/Sata(0x0)", "/"] {
            assert_eq!(place(other), None, "{other}");
        }
        assert_eq!(Path::parse("VenHw(986D1755-B9D0)"), Place::Opaque);
        assert_eq!(Path::parse("VenHw(1E5A432C)/MemoryMapped(0xB)/Uri()"), Place::Other);
    }

    #[test]
    fn a_disk_is_beside_a_nic_of_its_own_device_only() {
        let beside = |disk: &str, nic: &str| match Path::parse(disk) {
            Place::Namespace(path) => path.is_function_beside(nic),
            _ => panic!("{disk}"),
        };
        let nic = "PciRoot(0x20)/Pci(0x1,0x1)/Pci(0x0,0x0)";
        assert!(beside("PciRoot(0x20)/Pci(0x1,0x1)/Pci(0x0,0x2)/NVMe(0x1)", nic));
        assert!(!beside("PciRoot(0x20)/Pci(0x1,0x1)/Pci(0x0,0x0)/NVMe(0x1)", nic), "the NIC itself");
        assert!(!beside("PciRoot(0x20)/Pci(0x1,0x2)/Pci(0x0,0x2)/NVMe(0x1)", nic), "behind another port");
        assert!(!beside("PciRoot(0x20)/Pci(0x1,0x1)/Pci(0x1,0x2)/NVMe(0x1)", nic), "another device");
    }

    #[test]
    fn the_mac_of_a_nic() {
        let path = "PciRoot(0x0)/Pci(0x3,0x2)/MAC(B83FD2D7F74A,0x1)/IPv4(0.0.0.0)";
        assert_eq!(nic(path), Some(([0xb8, 0x3f, 0xd2, 0xd7, 0xf7, 0x4a], "PciRoot(0x0)/Pci(0x3,0x2)")));
        assert_eq!(nic("PciRoot(0x0)/MAC(B83F"), None);
        assert_eq!(nic("PciRoot(0x0)/MAC(é23456789012"), None);
    }
}
