//! What firmware of real servers lists, in the forms that published dumps and logs of these servers show. The disk of the DPU
//! is put in as that firmware would list it, if it lists such a disk at all. NICs and serial numbers are examples.

use planner::boot_option::Rule;
use planner::host::BootOption;

pub const SERIAL: &str = "MP0V3CXK1T9H2Q5R7W8Y";
pub const EUI64: [u8; 8] = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77];
pub const OWN_REFERENCE: &str = "Boot0042";

/// Reference, name and path; an empty path is none.
type Row = (&'static str, &'static str, &'static str);

pub struct Listing {
    pub server: &'static str,
    others: &'static [Row],
    /// Name and path; `None`: it is not listed.
    own: Option<(&'static str, &'static str)>,
    /// By which rule it is found; `None`: it is refused.
    pub expected: Option<Rule>,
}

pub fn option(reference: &str, name: &str, path: &str) -> BootOption {
    BootOption {
        reference: reference.to_owned(),
        display_name: name.to_owned(),
        uefi_device_path: Some(path).filter(|path| !path.is_empty()).map(str::to_owned),
        enabled: true,
        present: !name.starts_with("Unavailable:"),
    }
}

impl Listing {
    pub fn others(&self) -> Vec<BootOption> {
        self.others.iter().map(|(reference, name, path)| option(reference, name, path)).collect()
    }

    pub fn with_own(&self) -> Vec<BootOption> {
        let own = self.own.map(|(name, path)| option(OWN_REFERENCE, name, path));
        self.others().into_iter().chain(own).collect()
    }
}

pub const LISTINGS: &[Listing] = &[
    Listing {
        server: "Dell R750, iDRAC9: the EUI-64 in the path, a partition behind it",
        others: &[
            (
                "Boot0000",
                "PCIe SSD in Slot 2 in Bay 1: EFI Fixed Disk Boot Device 1",
                "PciRoot(0xB)/Pci(0x3,0x0)/Pci(0x0,0x0)/NVMe(0x1,01-CA-C7-06-E2-8E-E3-8C)/HD(1,GPT,8E1F4C2A-91C5-4E51-B5A5-3C9C0D8F2C01,0x800,0x100000)",
            ),
            (
                "Boot0001",
                "PCIe SSD in Slot 3 in Bay 1: EFI Fixed Disk Boot Device 2",
                "PciRoot(0xB)/Pci(0x5,0x0)/Pci(0x0,0x0)/NVMe(0x1,01-9D-11-07-E2-8E-E3-8C)/HD(1,GPT,8E1F4C2A-91C5-4E51-B5A5-3C9C0D8F2C02,0x800,0x100000)",
            ),
            ("Boot0004", "HTTP Device 1: NIC in Slot 5 Port 1", "VenHw(986D1755-B9D0-4F8D-A0DA-D1DB18672045)"),
            (
                "Boot0005",
                "Unavailable: ubuntu",
                "HD(1,GPT,8E1F4C2A-91C5-4E51-B5A5-3C9C0D8F2C03,0x800,0x219800)/\\EFI\\ubuntu\\shimx64.efi",
            ),
        ],
        own: Some((
            "PCIe SSD in Slot 5: EFI Fixed Disk Boot Device 3",
            "PciRoot(0xC)/Pci(0x1,0x0)/Pci(0x0,0x2)/NVMe(0x1,77-66-55-44-33-22-11-02)/HD(1,GPT,8E1F4C2A-91C5-4E51-B5A5-3C9C0D8F2C04,0x800,0x100000)",
        )),
        expected: Some(Rule::Eui64),
    },
    Listing {
        server: "Dell R750, iDRAC9: no EUI-64, and nothing else that tells",
        others: &[
            (
                "Boot0000",
                "PCIe SSD in Slot 2 in Bay 1: EFI Fixed Disk Boot Device 1",
                "PciRoot(0xB)/Pci(0x3,0x0)/Pci(0x0,0x0)/NVMe(0x1,01-CA-C7-06-E2-8E-E3-8C)/HD(1,GPT,8E1F4C2A-91C5-4E51-B5A5-3C9C0D8F2C01,0x800,0x100000)",
            ),
            ("Boot0004", "HTTP Device 1: NIC in Slot 5 Port 1", "VenHw(986D1755-B9D0-4F8D-A0DA-D1DB18672045)"),
        ],
        own: Some((
            "PCIe SSD in Slot 5: EFI Fixed Disk Boot Device 2",
            "PciRoot(0xC)/Pci(0x1,0x0)/Pci(0x0,0x2)/NVMe(0x1,00-00-00-00-00-00-00-00)/HD(1,GPT,8E1F4C2A-91C5-4E51-B5A5-3C9C0D8F2C04,0x800,0x100000)",
        )),
        expected: None,
    },
    Listing {
        server: "HPE DL385 Gen10 Plus v2, iLO 5: sixteen local disks with NSID 1, here four",
        others: &[
            (
                "Boot002C",
                "NVMe Drive Port 7A Box 2 Bay 5 : NVM Express Controller - S6C1NA0TA04209-MZXLR6T4HALA-000H3-9A382500",
                "PciRoot(0x0)/Pci(0x3,0x2)/Pci(0x0,0x0)/NVMe(0x1,60-33-01-21-9A-38-25-00)",
            ),
            (
                "Boot002D",
                "NVMe Drive Port 7A Box 2 Bay 6 : NVM Express Controller - S6C1NA0TA04210-MZXLR6T4HALA-000H3-9A382500",
                "PciRoot(0x0)/Pci(0x3,0x3)/Pci(0x0,0x0)/NVMe(0x1,61-33-01-21-9A-38-25-00)",
            ),
            (
                "Boot002E",
                "NVMe Drive Port 8A Box 2 Bay 7 : NVM Express Controller - S6C1NA0TA04211-MZXLR6T4HALA-000H3-9A382500",
                "PciRoot(0x0)/Pci(0x3,0x4)/Pci(0x0,0x0)/NVMe(0x1,62-33-01-21-9A-38-25-00)",
            ),
            (
                "Boot002F",
                "NVMe Drive Port 8A Box 2 Bay 8 : NVM Express Controller - S6C1NA0TA04212-MZXLR6T4HALA-000H3-9A382500",
                "PciRoot(0x40)/Pci(0x3,0x1)/Pci(0x0,0x0)/NVMe(0x1,63-33-01-21-9A-38-25-00)",
            ),
            (
                "Boot0011",
                "Slot 5 Port 1 : Mellanox Network Adapter - B8:3F:D2:D7:F7:4A (PXE IPv4)",
                "PciRoot(0x60)/Pci(0x3,0x1)/Pci(0x0,0x0)/MAC(B83FD2D7F74A,0x1)/IPv4(0.0.0.0)",
            ),
            (
                "Boot0012",
                "Slot 5 Port 1 : Mellanox Network Adapter - B8:3F:D2:D7:F7:4A (HTTP(S) IPv4)",
                "PciRoot(0x60)/Pci(0x3,0x1)/Pci(0x0,0x0)/MAC(B83FD2D7F74A,0x1)/IPv4(0.0.0.0)/Uri()",
            ),
        ],
        own: Some((
            "Slot 5 : NVM Express Controller - MP0V3CXK1T9H2Q5R7W8Y-Metalplane disk-00000000",
            "PciRoot(0x60)/Pci(0x3,0x1)/Pci(0x0,0x2)/NVMe(0x1,00-00-00-00-00-00-00-00)",
        )),
        expected: Some(Rule::Serial),
    },
    Listing {
        server: "HPE Edgeline e930t: two local disks without an EUI-64, listed before the DPU's",
        others: &[
            (
                "Boot000A",
                "Embedded : NVM Express Controller - CJ98N7161I0608A2Q-Generic-00000000",
                "PciRoot(0x0)/Pci(0x1D,0x0)/Pci(0x0,0x0)/NVMe(0x1,00-00-00-00-00-00-00-00)",
            ),
            (
                "Boot000B",
                "Embedded : NVM Express Controller - CJ98N7161I0608A3R-Generic-00000000",
                "PciRoot(0x0)/Pci(0x1D,0x4)/Pci(0x0,0x0)/NVMe(0x1,00-00-00-00-00-00-00-00)",
            ),
        ],
        own: None,
        expected: None,
    },
    Listing {
        server: "Lenovo SR670 V2, XCC: classes of devices",
        others: &[
            ("HardDisk", "HardDisk", "VenHw_B2AD3248-4F72-4950-A966-CFE5062DB83A_01000000"),
            ("Network", "Network", "VenHw_B2AD3248-4F72-4950-A966-CFE5062DB83A_05000000"),
            ("CD/DVD", "CD/DVD Rom", "VenHw_B2AD3248-4F72-4950-A966-CFE5062DB83A_02000000"),
        ],
        own: None,
        expected: None,
    },
    Listing {
        server: "Lenovo, as the list of hard disks of XCC names them: model and serial number",
        others: &[
            ("1", "M.2 Bay 1: MTFDKBA480TFR 23114032A9B1", ""),
            ("2", "UEFI:   SLOT15 (65/0/0) HTTP IPv4  Nvidia Network Adapter - A0:88:C2:11:22:33", ""),
        ],
        own: Some(("SLOT15: Metalplane disk MP0V3CXK1T9H2Q5R7W8Y", "")),
        expected: Some(Rule::Serial),
    },
    Listing {
        server: "Supermicro SYS-821GE (X13): no paths, the bus in decimal",
        others: &[
            ("Boot0003", "(B26/D0/F0) UEFI PXE IPv4 Nvidia Network Adapter - 94:6D:AE:91:FB:22 - 946DAE91FB22", ""),
            ("Boot0004", "(B38/D0/F0) UEFI PXE IPv4 Nvidia Network Adapter - 94:6D:AE:91:FB:23 - 946DAE91FB23", ""),
            ("Boot0005", "ubuntu (HDD,Port:900)", ""),
            ("Boot0006", "UEFI: Built-in EFI Shell", ""),
        ],
        own: Some(("(B38/D0/F2) UEFI Hard Disk", "")),
        expected: Some(Rule::PciAddress),
    },
    Listing {
        server: "NVIDIA DGX H100 (AMI): names lie, the NIC's path tells",
        others: &[
            (
                "Boot0026",
                "UEFI: PXE IPv4 Nvidia Network Adapter - 94:6D:AE:91:FB:22",
                "PciRoot(0x20)/Pci(0x1,0x1)/Pci(0x0,0x0)/Pci(0x0,0x0)/Pci(0x0,0x0)/Pci(0x0,0x0)/MAC(946DAE91FB22,0x1)/IPv4(0.0.0.0)",
            ),
            (
                "Boot0027",
                "UEFI: PXE IPv4 Nvidia Network Adapter - 94:6D:AE:91:FB:22",
                "PciRoot(0x20)/Pci(0x1,0x1)/Pci(0x0,0x0)/Pci(0x0,0x0)/Pci(0x0,0x0)/Pci(0x0,0x0)/MAC(946DAE91FB22,0x1)/IPv6(0000:0000:0000:0000:0000:0000:0000:0000)/Uri()",
            ),
            (
                "Boot0028",
                "UEFI: PXE IPv4 Nvidia Network Adapter - 94:6D:AE:00:00:01",
                "PciRoot(0x40)/Pci(0x1,0x1)/Pci(0x0,0x0)/Pci(0x0,0x0)/MAC(946DAE000001,0x1)/IPv4(0.0.0.0)",
            ),
            ("Boot0029", "UEFI OS", "PciRoot(0x40)/Pci(0x3,0x1)/Pci(0x0,0x0)/NVMe(0x1,00-00-00-00-00-00-00-00)"),
            ("Boot0030", "DGX OS", "VenHw(99E275E7-75A0-4B37-A2E6-C5385E6C00CB)"),
        ],
        own: Some((
            "UEFI OS",
            "PciRoot(0x20)/Pci(0x1,0x1)/Pci(0x0,0x0)/Pci(0x0,0x0)/Pci(0x0,0x0)/Pci(0x0,0x2)/NVMe(0x1,00-00-00-00-00-00-00-00)",
        )),
        expected: Some(Rule::SiblingOfNic),
    },
    Listing {
        server: "NVIDIA GB200: zeros on a branded disk, the serial number in the name",
        others: &[
            (
                "Boot0000",
                "Ubuntu",
                "HD(1,GPT,5A2A3B0C-0E10-4C44-9D77-5A5D0B3C7C10,0x800,0x219800)/\\EFI\\ubuntu\\shimaa64.efi",
            ),
            (
                "Boot0001",
                "UEFI SAMSUNG MZ1L21T9HCLS-00A07 S666NN0W314049 1",
                "VenHw(1E5A432C-0466-4D31-B009-D4D9239271D3)/MemoryMapped(0xB,0x24200000,0x2423FFFF)/PciRoot(0x15)/Pci(0x0,0x0)/Pci(0x0,0x0)/NVMe(0x1,00-00-00-00-00-00-00-00)",
            ),
            (
                "Boot0002",
                "UEFI PXEv4 (MAC:946DAE91FB99)",
                "VenHw(1E5A432C-0466-4D31-B009-D4D9239271D3)/MemoryMapped(0xB,0x24200000,0x2423FFFF)/PciRoot(0x16)/Pci(0x0,0x0)/Pci(0x0,0x0)/MAC(946DAE91FB99,0x1)/IPv4(0.0.0.0)",
            ),
        ],
        own: Some((
            "UEFI Metalplane disk MP0V3CXK1T9H2Q5R7W8Y 1",
            "VenHw(1E5A432C-0466-4D31-B009-D4D9239271D3)/MemoryMapped(0xB,0x24200000,0x2423FFFF)/PciRoot(0x16)/Pci(0x0,0x0)/Pci(0x0,0x2)/NVMe(0x1,00-00-00-00-00-00-00-00)",
        )),
        expected: Some(Rule::Serial),
    },
    Listing {
        server: "NVIDIA GH200: EUI-64 from the last byte to the first",
        others: &[
            (
                "Boot0001",
                "ubuntu",
                "HD(1,GPT,0BE90F58-7E0B-4B0A-8D50-0DB5E4B6B8B1,0x800,0x219800)/\\EFI\\ubuntu\\shimaa64.efi",
            ),
            (
                "Boot0002",
                "UEFI Micron_7450_MTFDKCE7T6TFR 241147900A8C 1",
                "PciRoot(0x6)/Pci(0x0,0x0)/Pci(0x0,0x0)/NVMe(0x1,8C-0A-90-47-01-75-A0-00)",
            ),
            (
                "Boot0003",
                "UEFI Micron_7450_MTFDKCE7T6TFR 241147900A8D 1",
                "PciRoot(0x7)/Pci(0x0,0x0)/Pci(0x0,0x0)/NVMe(0x1,8D-0A-90-47-01-75-A0-00)",
            ),
        ],
        own: Some((
            "UEFI Metalplane disk MP0V3CXK1T9H2Q5R7W8Y 1",
            "PciRoot(0x8)/Pci(0x0,0x0)/Pci(0x0,0x2)/NVMe(0x1,77-66-55-44-33-22-11-02)",
        )),
        expected: Some(Rule::Eui64),
    },
    Listing {
        server: "Lenovo GB300 (AMI): before a POST with the disk",
        others: &[
            (
                "Boot0001",
                "[Slot16]UEFI: PXE IPv4 Nvidia Network Adapter - 94:6D:AE:91:FB:22",
                "PciRoot(0x16)/Pci(0x0,0x0)/Pci(0x0,0x0)/MAC(946DAE91FB22,0x1)/IPv4(0.0.0.0)",
            ),
            (
                "Boot0002",
                "ubuntu",
                "HD(1,GPT,0BE90F58-7E0B-4B0A-8D50-0DB5E4B6B8B2,0x800,0x219800)/\\EFI\\ubuntu\\shimaa64.efi",
            ),
        ],
        own: None,
        expected: None,
    },
    Listing { server: "GB switch tray (OpenBMC): no boot options", others: &[], own: None, expected: None },
    Listing {
        server: "BlueField-3's own BMC: the DPU's disk, not one that it presents",
        others: &[
            ("Boot0000", "NET-NIC_P0-IPV4", "MAC(946DAE91FB30,0x1)/IPv4(0.0.0.0)"),
            (
                "Boot0001",
                "UEFI KBG40ZPZ128G TOSHIBA MEMORY 83220381NSJ4 1",
                "PciRoot(0x0)/Pci(0x0,0x0)/NVMe(0x1,01-00-00-00-B7-8E-E3-8C)",
            ),
        ],
        own: None,
        expected: None,
    },
    Listing {
        server: "an AMI BMC with virtual media",
        others: &[
            (
                "Boot0001",
                "UEFI: AMI Virtual CDROM0 1.00, Partition 1",
                "PciRoot(0x0)/Pci(0x14,0x0)/USB(0xB,0x0)/USB(0x1,0x0)/CDROM(0x1,0x1F,0x2000)/HD(1,MBR,0x0)",
            ),
            (
                "Boot0002",
                "UEFI OS (SAMSUNG MZ1L2960HCJR-00A07)",
                "PciRoot(0x0)/Pci(0x1,0x0)/Pci(0x0,0x0)/NVMe(0x1,11-22-33-44-55-38-25-00)",
            ),
        ],
        own: Some((
            "UEFI OS (Metalplane disk)",
            "PciRoot(0x0)/Pci(0x2,0x0)/Pci(0x0,0x2)/NVMe(0x1,77-66-55-44-33-22-11-02)",
        )),
        expected: Some(Rule::Eui64),
    },
    Listing {
        server: "OVMF",
        others: &[
            (
                "Boot0000",
                "UiApp",
                "Fv(7CB8BDC9-F8EB-4F34-AAEA-3EE4AF6516A1)/FvFile(462CAA21-7614-4503-836E-8AB6F4662331)",
            ),
            (
                "Boot0001",
                "UEFI QEMU NVMe Ctrl local-SRV 1",
                "PciRoot(0x0)/Pci(0x8,0x0)/NVMe(0x1,00-00-00-00-00-00-00-00)",
            ),
            ("Boot0002", "UEFI Misc Device", "PciRoot(0x0)/Pci(0x5,0x0)"),
            (
                "Boot0003",
                "UEFI PXEv4 (MAC:525400AA0001)",
                "PciRoot(0x0)/Pci(0x4,0x0)/Pci(0x0,0x0)/MAC(525400AA0001,0x1)/IPv4(0.0.0.0)",
            ),
        ],
        own: Some((
            "UEFI QEMU NVMe Ctrl MP0V3CXK1T9H2Q5R7W8Y 1",
            "PciRoot(0x0)/Pci(0x2,0x0)/Pci(0x0,0x0)/NVMe(0x1,00-00-00-00-00-00-00-00)",
        )),
        expected: Some(Rule::Serial),
    },
];
