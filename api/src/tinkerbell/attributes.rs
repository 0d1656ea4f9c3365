//! What an agent reports of its server: Tinkerbell's document, in which WorkflowRuleSets' patterns name fields. Quantities are the
//! agent's text: upstream's agent writes `239GB`, ours the number of bytes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! attributes {
    ($($(#[$doc:meta])* $name:ident { $($(#[$said:meta])* $field:ident: $kind:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            $($(#[$said])* #[serde(default, skip_serializing_if = "is_default")] pub $field: $kind,)*
        }
    )*};
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

attributes! {
    /// What the agent reports of its server.
    AgentAttributes {
        /// The processors.
        cpu: Option<Cpu>,
        /// The memory.
        memory: Option<Memory>,
        /// Disks and other block devices.
        block_devices: Vec<BlockDevice>,
        /// Network interfaces.
        network_interfaces: Vec<NetworkInterface>,
        /// PCI devices.
        pci_devices: Vec<Device>,
        /// Graphics processors.
        gpu_devices: Vec<Device>,
        /// The chassis, by SMBIOS.
        chassis: Option<Chassis>,
        /// The firmware, by SMBIOS.
        bios: Option<Bios>,
        /// The mainboard, by SMBIOS.
        baseboard: Option<Baseboard>,
        /// The system, by SMBIOS.
        product: Option<Product>,
    }

    /// The processors.
    Cpu {
        /// Cores of all.
        total_cores: Option<u32>,
        /// Threads of all.
        total_threads: Option<u32>,
        /// Each.
        processors: Vec<Processor>,
    }

    /// One processor.
    Processor {
        /// Its number.
        id: Option<u32>,
        /// Its cores.
        cores: Option<u32>,
        /// Its threads.
        threads: Option<u32>,
        /// Who made it.
        vendor: Option<String>,
        /// Its name.
        model: Option<String>,
        /// What it can do, as /proc/cpuinfo has it.
        capabilities: Vec<String>,
    }

    /// The memory.
    Memory {
        /// All of it.
        total: Option<String>,
        /// What the kernel has of it.
        usable: Option<String>,
    }

    /// A disk, or another block device.
    BlockDevice {
        /// Its name below /dev.
        name: Option<String>,
        /// What it is attached to.
        controller_type: Option<String>,
        /// HDD, SSD and others.
        drive_type: Option<String>,
        /// Its size.
        size: Option<String>,
        /// Size of its physical blocks.
        physical_block_size: Option<String>,
        /// Who made it.
        vendor: Option<String>,
        /// Its model.
        model: Option<String>,
        /// Its World Wide Name.
        wwn: Option<String>,
        /// Its serial number.
        serial_number: Option<String>,
    }

    /// A network interface.
    NetworkInterface {
        /// Its name in the agent's system.
        name: Option<String>,
        /// Its MAC address.
        mac: Option<String>,
        /// The speed of its link.
        speed: Option<String>,
        /// What it does by itself, as ethtool has it.
        enabled_capabilities: Vec<String>,
    }

    /// A PCI device.
    Device {
        /// Who made it.
        vendor: Option<String>,
        /// What it is.
        product: Option<String>,
        /// Its class.
        class: Option<String>,
        /// The driver in the agent's system.
        driver: Option<String>,
    }

    /// The chassis, by SMBIOS.
    Chassis {
        /// Its serial number.
        serial: Option<String>,
        /// Who made it.
        vendor: Option<String>,
    }

    /// The firmware, by SMBIOS.
    Bios {
        /// Who made it.
        vendor: Option<String>,
        /// Its version.
        version: Option<String>,
        /// Its date.
        release_date: Option<String>,
    }

    /// The mainboard, by SMBIOS.
    Baseboard {
        /// Who made it.
        vendor: Option<String>,
        /// What it is.
        product: Option<String>,
        /// Its version.
        version: Option<String>,
        /// Its serial number.
        serial_number: Option<String>,
    }

    /// The system, by SMBIOS.
    Product {
        /// Its name.
        name: Option<String>,
        /// Who made it.
        vendor: Option<String>,
        /// Its serial number.
        serial_number: Option<String>,
    }
}

impl AgentAttributes {
    /// MAC addresses of its network interfaces, in lower case; what is none is left out.
    pub fn macs(&self) -> impl Iterator<Item = String> {
        self.network_interfaces.iter().filter_map(|nic| {
            let mac = nic.mac.as_ref()?.to_ascii_lowercase();
            let octets: Vec<&str> = mac.split(':').collect();
            let is_octet = |part: &&str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
            let is_set = octets.iter().any(|octet| *octet != "00");
            (octets.len() == 6 && octets.iter().all(is_octet) && is_set).then_some(mac)
        })
    }

    /// The server's serial number: of the system, else of the chassis.
    pub fn serial_number(&self) -> Option<&str> {
        let of_system = self.product.as_ref().and_then(|product| product.serial_number.as_deref());
        of_system.or_else(|| self.chassis.as_ref()?.serial.as_deref())
    }
}
