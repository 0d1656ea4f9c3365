//! The arguments of QEMU's commands, one function per thing that is added. No I/O.

use crate::names;
use planner::exposure::{Bus, FunctionKind};
use ports::emulation::{DiskFunction, NbdExport, NicFunction, RbdSource};
use serde_json::{Value, json};
use std::path::Path;

/// Device 0 of its port, named: QEMU accepts a second device behind a root port and the host then never sees it.
const ADDRESS: &str = "0";

/// Offloads of the virtio NIC. All are off because Open vSwitch's userspace datapath drops packets whose checksum the
/// guest left to the hardware.
const OFFLOADS: [&str; 11] = [
    "csum",
    "gso",
    "guest_csum",
    "guest_tso4",
    "guest_tso6",
    "guest_ecn",
    "guest_ufo",
    "host_tso4",
    "host_tso6",
    "host_ecn",
    "host_ufo",
];

pub fn block_node(disk: &DiskFunction, layer: Value) -> Value {
    json!({
        "driver": "raw",
        "node-name": names::node(&disk.id.uid),
        "read-only": disk.read_only,
        "discard": "unmap",
        "file": layer,
    })
}

pub fn file(path: &Path, is_block_device: bool) -> Value {
    json!({
        "driver": if is_block_device { "host_device" } else { "file" },
        "filename": path,
        "locking": "on",
        "discard": "unmap",
    })
}

/// A lost server is looked for with the host's next request, and none waits for it: QEMU's own server drops its client when a
/// read fails, as each of a disk that was fenced does, and a request that waits for a connection is then sent again for ever.
const RECONNECT_SECONDS: u32 = 0;

pub fn nbd(export: &NbdExport) -> Value {
    json!({
        "driver": "nbd",
        "server": {"type": "unix", "path": export.socket},
        "export": export.name,
        "reconnect-delay": RECONNECT_SECONDS,
        "discard": "unmap",
    })
}

/// QEMU's own client of Ceph: a module of Debian's `qemu-block-extra`.
pub fn rbd(source: &RbdSource) -> Value {
    let mut layer = json!({
        "driver": "rbd",
        "pool": source.pool,
        "image": source.image,
        "user": source.user,
        "conf": source.config_file,
        "discard": "unmap",
    });
    if let Some(namespace) = &source.namespace {
        layer["namespace"] = namespace.as_str().into();
    }
    layer
}

pub fn disk_model(bus: Bus) -> &'static str {
    match bus {
        Bus::NVMe => "nvme",
        Bus::VirtioBlk => "virtio-blk-pci",
    }
}

pub fn disk(disk: &DiskFunction, port: &str) -> Value {
    json!({
        "driver": disk_model(disk.bus),
        "id": names::device(FunctionKind::Disk, &disk.id),
        "drive": names::node(&disk.id.uid),
        "serial": disk.serial,
        "bus": port,
        "addr": ADDRESS,
    })
}

pub fn tap(nic: &NicFunction) -> Value {
    json!({
        "type": "tap",
        "id": names::netdev(&nic.id, &nic.device),
        "ifname": nic.device,
        "script": "no",
        "downscript": "no",
    })
}

pub fn nic(nic: &NicFunction, port: &str) -> Value {
    let mut arguments = json!({
        "driver": "virtio-net-pci",
        "id": names::device(FunctionKind::Nic, &nic.id),
        "netdev": names::netdev(&nic.id, &nic.device),
        "mac": nic.mac,
        "host_mtu": nic.mtu,
        // The option ROM would offer a network boot.
        "romfile": "",
        "bus": port,
        "addr": ADDRESS,
    });
    for offload in OFFLOADS {
        arguments[offload] = false.into();
    }
    arguments
}
