//! What an agent reports of its server, from the wire into the document that a HardwareReport has. Fields are called alike.

use api::tinkerbell::attributes::{
    AgentAttributes, Baseboard, Bios, BlockDevice, Chassis, Cpu, Device, Memory, NetworkInterface, Processor, Product,
};
use proto::tink;

macro_rules! alike {
    ($($function:ident: $from:ident -> $into:ident { $($field:ident),* })*) => {$(
        fn $function(from: tink::$from) -> $into {
            $into { $($field: from.$field),* }
        }
    )*};
}

alike! {
    processor: Processor -> Processor { id, cores, threads, vendor, model, capabilities }
    memory: Memory -> Memory { total, usable }
    block: Block -> BlockDevice {
        name, controller_type, drive_type, size, physical_block_size, vendor, model, wwn, serial_number
    }
    network: Network -> NetworkInterface { name, mac, speed, enabled_capabilities }
    pci: Pci -> Device { vendor, product, class, driver }
    gpu: Gpu -> Device { vendor, product, class, driver }
    chassis: Chassis -> Chassis { serial, vendor }
    bios: Bios -> Bios { vendor, version, release_date }
    baseboard: Baseboard -> Baseboard { vendor, product, version, serial_number }
    product: Product -> Product { name, vendor, serial_number }
}

pub(super) fn read(from: tink::AgentAttributes) -> AgentAttributes {
    let cpu = |cpu: tink::Cpu| Cpu {
        total_cores: cpu.total_cores,
        total_threads: cpu.total_threads,
        processors: cpu.processors.into_iter().map(processor).collect(),
    };
    AgentAttributes {
        cpu: from.cpu.map(cpu),
        memory: from.memory.map(memory),
        block_devices: from.block.into_iter().map(block).collect(),
        network_interfaces: from.network.into_iter().map(network).collect(),
        pci_devices: from.pci.into_iter().map(pci).collect(),
        gpu_devices: from.gpu.into_iter().map(gpu).collect(),
        chassis: from.chassis.map(chassis),
        bios: from.bios.map(bios),
        baseboard: from.baseboard.map(baseboard),
        product: from.product.map(product),
    }
}
