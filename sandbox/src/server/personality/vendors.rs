//! BMCs of vendors, in front of the same virtual server. What each lists is in the form of its published dumps.

use super::drive::{CD, Changed, Owner, VirtualDrive};
use super::{BootDisk, Order, PLEASANT, Personality, PostTold, Words};
use crate::server::boot::{BootOption, OverrideEnabled, OverrideTarget};

const LISTED: &[BootOption] = &BootOption::ALL;
const FACTORY: &[BootOption] =
    &[BootOption::Installed, BootOption::LocalDisk, BootOption::SecondDisk, BootOption::Network, BootOption::Slot];

/// What some drives take beside CDs.
const EVERY: &[&str] = &["CD", "DVD", "Floppy", "USBStick"];
/// HPE's: the first is one for floppies.
const ILO: VirtualDrive = VirtualDrive { owner: Owner::Manager, id: "2", ..CD };

const VENDORS: Personality = Personality { factory_boot_order: FACTORY, options: LISTED, ..PLEASANT };

/// A job for each order, done in the next POST; entries whose device is gone stay in the list.
pub const DELL: Personality = Personality {
    name: "dell",
    manufacturer: "Dell Inc.",
    model: "PowerEdge R750",
    words: dell,
    order: Order::Job,
    post: PostTold::BootProgress,
    drive: Some(VirtualDrive { id: "1", types: &["CD", "DVD", "USBStick"], ..CD }),
    ..VENDORS
};

fn dell(option: BootOption, disk: &BootDisk) -> Words {
    let partition = "HD(1,GPT,8E1F4C2A-91C5-4E51-B5A5-3C9C0D8F2C01,0x800,0x100000)";
    match option {
        BootOption::Slot => Words::new(
            "PCIe SSD in Slot 5: EFI Fixed Disk Boot Device 3",
            format!("PciRoot(0xC)/Pci(0x1,0x0)/Pci(0x0,0x2)/NVMe(0x1,{})/{partition}", disk.eui64),
        ),
        BootOption::LocalDisk => Words::new(
            "PCIe SSD in Slot 2 in Bay 1: EFI Fixed Disk Boot Device 1",
            format!("PciRoot(0xB)/Pci(0x3,0x0)/Pci(0x0,0x0)/NVMe(0x1,01-CA-C7-06-E2-8E-E3-8C)/{partition}"),
        ),
        BootOption::SecondDisk => Words::new(
            "PCIe SSD in Slot 3 in Bay 1: EFI Fixed Disk Boot Device 2",
            format!("PciRoot(0xB)/Pci(0x5,0x0)/Pci(0x0,0x0)/NVMe(0x1,01-9D-11-07-E2-8E-E3-8C)/{partition}"),
        ),
        BootOption::Network => {
            Words::new("HTTP Device 1: NIC in Slot 5 Port 1", "VenHw(986D1755-B9D0-4F8D-A0DA-D1DB18672045)")
        }
        BootOption::Installed => Words::new("Unavailable: ubuntu", format!("{partition}/\\EFI\\ubuntu\\shimx64.efi")),
    }
}

/// No change while the firmware is in its POST, of which a property of HPE's own tells.
pub const HPE: Personality = Personality {
    name: "hpe",
    manufacturer: "HPE",
    model: "ProLiant DL385 Gen10 Plus v2",
    words: hpe,
    has_own_ids: true,
    refuses_in_post: true,
    post: PostTold::PostState,
    drive: Some(ILO),
    ..VENDORS
};

fn hpe(option: BootOption, disk: &BootDisk) -> Words {
    match option {
        BootOption::Slot => Words::new(
            format!("Slot 5 : NVM Express Controller - {}-Metalplane disk-00000000", disk.serial),
            format!("PciRoot(0x60)/Pci(0x3,0x1)/Pci(0x0,0x2)/NVMe(0x1,{})", disk.eui64),
        ),
        BootOption::LocalDisk => Words::new(
            "NVMe Drive Port 7A Box 2 Bay 5 : NVM Express Controller - S6C1NA0TA04209-MZXLR6T4HALA-000H3-9A382500",
            "PciRoot(0x0)/Pci(0x3,0x2)/Pci(0x0,0x0)/NVMe(0x1,60-33-01-21-9A-38-25-00)",
        ),
        BootOption::SecondDisk => Words::new(
            "NVMe Drive Port 7A Box 2 Bay 6 : NVM Express Controller - S6C1NA0TA04210-MZXLR6T4HALA-000H3-9A382500",
            "PciRoot(0x0)/Pci(0x3,0x3)/Pci(0x0,0x0)/NVMe(0x1,61-33-01-21-9A-38-25-00)",
        ),
        BootOption::Network => Words::new(
            "Slot 5 Port 1 : Mellanox Network Adapter - B8:3F:D2:D7:F7:4A (PXE IPv4)",
            "PciRoot(0x60)/Pci(0x3,0x1)/Pci(0x0,0x0)/MAC(B83FD2D7F74A,0x1)/IPv4(0.0.0.0)",
        ),
        BootOption::Installed => Words::new(
            "ubuntu",
            "HD(1,GPT,8E1F4C2A-91C5-4E51-B5A5-3C9C0D8F2C01,0x800,0x219800)/\\EFI\\ubuntu\\shimx64.efi",
        ),
    }
}

/// Two disks of its own without an EUI-64; the DPU's is listed once it was seen.
pub const EDGELINE: Personality = Personality {
    name: "edgeline",
    manufacturer: "HPE",
    model: "Edgeline e930t",
    words: edgeline,
    options: &[BootOption::Slot, BootOption::LocalDisk, BootOption::SecondDisk, BootOption::Network],
    lists_what_it_saw: true,
    factory_boot_order: &[BootOption::LocalDisk, BootOption::SecondDisk, BootOption::Network],
    post: PostTold::PostState,
    drive: Some(ILO),
    ..VENDORS
};

fn edgeline(option: BootOption, seen: &BootDisk) -> Words {
    let disk = |serial: &str, function: &str| {
        Words::new(
            format!("Embedded : NVM Express Controller - {serial}-Generic-00000000"),
            format!("PciRoot(0x0)/Pci(0x1D,{function})/Pci(0x0,0x0)/NVMe(0x1,00-00-00-00-00-00-00-00)"),
        )
    };
    match option {
        // In the words of HPE's other servers: nobody has published such a one.
        BootOption::Slot => hpe(option, seen),
        BootOption::SecondDisk => disk("CJ98N7161I0608A3R", "0x4"),
        BootOption::Network => Words::new(
            "Embedded LOM 1 Port 1 : HPE Ethernet - 94:18:82:00:00:01 (PXE IPv4)",
            "PciRoot(0x0)/Pci(0x1C,0x0)/Pci(0x0,0x0)/MAC(941882000001,0x1)/IPv4(0.0.0.0)",
        ),
        _ => disk("CJ98N7161I0608A2Q", "0x0"),
    }
}

/// Classes of devices instead of devices, a settings resource, and no override that lasts.
pub const LENOVO: Personality = Personality {
    name: "lenovo",
    manufacturer: "Lenovo",
    model: "ThinkSystem SR670 V2",
    words: lenovo,
    options: &[BootOption::LocalDisk, BootOption::Network],
    factory_boot_order: &[BootOption::LocalDisk, BootOption::Network],
    order: Order::Settings("Pending"),
    overrides: &[OverrideEnabled::Disabled, OverrideEnabled::Once],
    drive: Some(VirtualDrive { id: "EXT1", types: EVERY, changed: Changed::ByPatch, ..CD }),
    ..VENDORS
};

fn lenovo(option: BootOption, _: &BootDisk) -> Words {
    let class = |name: &str, number: u8| {
        Words::new(name, format!("VenHw_B2AD3248-4F72-4950-A966-CFE5062DB83A_{number:02}000000"))
    };
    match option {
        BootOption::Network => class("Network", 5),
        _ => class("HardDisk", 1),
    }
}

/// No device paths, buses in decimal, and no boot order in the standard's place.
pub const SUPERMICRO: Personality = Personality {
    name: "supermicro",
    manufacturer: "Supermicro",
    model: "SYS-821GE-TNHR",
    words: supermicro,
    order: Order::Missing,
    post: PostTold::BootProgress,
    drive: Some(VirtualDrive {
        owner: Owner::Manager,
        id: "VirtualMedia1",
        types: EVERY,
        changed: Changed::ByActionsInTurn,
        target: OverrideTarget::UsbCd,
    }),
    ..VENDORS
};

fn supermicro(option: BootOption, _: &BootDisk) -> Words {
    Words::without_path(match option {
        BootOption::Slot => "(B38/D0/F2) UEFI Hard Disk",
        BootOption::LocalDisk => "UEFI Hard Disk:ubuntu (HDD,Port:900)",
        BootOption::SecondDisk => "UEFI Hard Disk: SAMSUNG MZ1L2960HCJR-00A07 (HDD,Port:901)",
        BootOption::Network => "(B38/D0/F0) UEFI PXE IPv4 Nvidia Network Adapter - 94:6D:AE:91:FB:22 - 946DAE91FB22",
        BootOption::Installed => "ubuntu",
    })
}

/// Names that lie, entity tags that are asked for, and lists of values in the settings resource alone.
pub const DGX: Personality = Personality {
    name: "dgx",
    manufacturer: "NVIDIA",
    model: "DGXH100",
    words: dgx,
    has_own_ids: true,
    order: Order::Settings("SD"),
    is_strict: true,
    post: PostTold::BootProgress,
    drive: None,
    ..VENDORS
};

fn dgx(option: BootOption, disk: &BootDisk) -> Words {
    let device = "PciRoot(0x20)/Pci(0x1,0x1)/Pci(0x0,0x0)/Pci(0x0,0x0)";
    match option {
        BootOption::Slot => Words::new("UEFI OS", format!("{device}/Pci(0x0,0x2)/NVMe(0x1,{})", disk.eui64)),
        BootOption::LocalDisk => {
            Words::new("UEFI OS", "PciRoot(0x40)/Pci(0x3,0x1)/Pci(0x0,0x0)/NVMe(0x1,00-00-00-00-00-00-00-00)")
        }
        BootOption::SecondDisk => Words::new("DGX OS", "VenHw(99E275E7-75A0-4B37-A2E6-C5385E6C00CB)"),
        // By its path it is HTTP over IPv6.
        BootOption::Network => Words::new(
            "UEFI: PXE IPv4 Nvidia Network Adapter - 94:6D:AE:91:FB:22",
            format!("{device}/Pci(0x0,0x0)/MAC(946DAE91FB22,0x1)/IPv6(0000:0000:0000:0000)/Uri()"),
        ),
        BootOption::Installed => Words::new(
            "ubuntu",
            "HD(1,GPT,0BE90F58-7E0B-4B0A-8D50-0DB5E4B6B8B1,0x800,0x219800)/\\EFI\\ubuntu\\shimx64.efi",
        ),
    }
}

/// A settings resource, and no EUI-64 on a branded disk.
pub const GB200: Personality = Personality {
    name: "gb200",
    manufacturer: "NVIDIA",
    model: "GB200 NVL",
    words: gb200,
    order: Order::Settings("Settings"),
    post: PostTold::BootProgress,
    drive: Some(VirtualDrive { owner: Owner::Manager, id: "USB1", types: &["CD", "USBStick"], ..CD }),
    ..VENDORS
};

fn gb200(option: BootOption, disk: &BootDisk) -> Words {
    let root = "VenHw(1E5A432C-0466-4D31-B009-D4D9239271D3)/MemoryMapped(0xB,0x24200000,0x2423FFFF)";
    let nvme = |bridge: u8, function: u8, eui64: &str| {
        format!("{root}/PciRoot(0x{bridge:X})/Pci(0x0,0x0)/Pci(0x0,0x{function:X})/NVMe(0x1,{eui64})")
    };
    let none = "00-00-00-00-00-00-00-00";
    match option {
        BootOption::Slot => Words::new(format!("UEFI Metalplane disk {} 1", disk.serial), nvme(0x16, 2, &disk.eui64)),
        BootOption::LocalDisk => Words::new("UEFI SAMSUNG MZ1L21T9HCLS-00A07 S666NN0W314049 1", nvme(0x15, 0, none)),
        BootOption::SecondDisk => Words::new("UEFI SAMSUNG MZ1L21T9HCLS-00A07 S666NN0W314050 1", nvme(0x17, 0, none)),
        BootOption::Network => Words::new(
            "UEFI PXEv4 (MAC:946DAE91FB99)",
            format!("{root}/PciRoot(0x18)/Pci(0x0,0x0)/Pci(0x0,0x0)/MAC(946DAE91FB99,0x1)/IPv4(0.0.0.0)"),
        ),
        BootOption::Installed => Words::new(
            "Ubuntu",
            "HD(1,GPT,5A2A3B0C-0E10-4C44-9D77-5A5D0B3C7C10,0x800,0x219800)/\\EFI\\ubuntu\\shimaa64.efi",
        ),
    }
}

/// Neither options nor an order.
pub const OPENBMC: Personality = Personality {
    name: "openbmc",
    manufacturer: "NVIDIA",
    model: "GB200 Switch Tray",
    options: &[],
    factory_boot_order: &[],
    order: Order::Missing,
    drive: None,
    ..PLEASANT
};
