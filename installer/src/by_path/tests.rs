//! Ways of disks through `/sys`, as kernels show them: from the root bridge, each device with its subsystem and kind.

use super::*;

/// Attributes are files below `/sys`.
fn named(way: &[&str], attributes: &[(&str, &str)]) -> Vec<String> {
    let sys = tempfile::tempdir().expect("a folder");
    let mut disk = sys.path().join("devices");
    for device in way {
        let mut words = device.split(' ');
        disk = disk.join(words.next().unwrap_or_default());
        fs::create_dir_all(&disk).expect("made");
        if let Some(subsystem) = words.next() {
            std::os::unix::fs::symlink(Path::new("/sys/bus").join(subsystem), disk.join("subsystem")).expect("linked");
        }
        let kind = words.next().map(|kind| format!("DEVTYPE={kind}\n")).unwrap_or_default();
        fs::write(disk.join("uevent"), format!("DRIVER=x\n{kind}")).expect("written");
    }
    for (file, text) in attributes {
        let path = if file.starts_with("class/") { sys.path().join(file) } else { disk.join(file) };
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, format!("{text}\n")).expect("written");
    }
    names(&disk, sys.path())
}

/// Behind a port of the root bridge.
fn adapter<'a>(rest: &[&'a str]) -> Vec<&'a str> {
    [&["pci0000:00", "0000:00:01.0 pci", "0000:01:00.0 pci"], rest].concat()
}

#[test]
fn nvme_by_its_controller_and_namespace() {
    let nsid = ("nsid", "1");
    let disk = ["nvme/nvme0 nvme", "nvme0n1 block disk"];
    assert_eq!(named(&adapter(&disk), &[nsid]), ["pci-0000:01:00.0-nvme-1"]);
    // Behind Intel's VMD, which is a bus of its own.
    let vmd = ["pci0000:00", "0000:00:0e.0 pci", "pci10000:e0", "10000:e0:06.0 pci", "10000:e1:00.0 pci"];
    assert_eq!(named(&[&vmd[..], &disk].concat(), &[nsid]), ["pci-0000:00:0e.0-pci-10000:e1:00.0-nvme-1"]);
    // Of another server.
    let fabric = ["virtual/nvme-fabrics/ctl nvme-fabrics", "nvme0 nvme", "nvme0n1 block disk"];
    assert!(named(&fabric, &[nsid]).is_empty());
}

#[test]
fn nvme_with_several_controllers_by_the_one_of_its_number() {
    let sys = tempfile::tempdir().expect("a folder");
    let real = sys.path().join("devices/pci0000:00/0000:00:01.0");
    let all = sys.path().join("devices/virtual/nvme-subsystem/nvme-subsys0");
    for (device, subsystem) in [
        (real.clone(), "pci"),
        (real.join("nvme/nvme0"), "nvme"),
        (all.clone(), "nvme-subsystem"),
        (all.join("nvme0n1"), "block"),
    ] {
        fs::create_dir_all(&device).expect("made");
        fs::write(device.join("uevent"), "").expect("written");
        std::os::unix::fs::symlink(Path::new("/sys/bus").join(subsystem), device.join("subsystem")).expect("linked");
    }
    let disk = all.join("nvme0n1");
    fs::write(disk.join("nsid"), "2\n").expect("written");
    fs::create_dir_all(sys.path().join("class/nvme")).expect("made");
    std::os::unix::fs::symlink(real.join("nvme/nvme0"), sys.path().join("class/nvme/nvme0")).expect("linked");
    // A controller of that number which is another disk's says nothing of this one.
    assert!(names(&disk, sys.path()).is_empty());
    std::os::unix::fs::symlink(real.join("nvme/nvme0"), all.join("nvme0")).expect("linked");
    assert_eq!(names(&disk, sys.path()), ["pci-0000:00:01.0-nvme-2"]);
}

#[test]
fn sata_by_its_port_with_and_without_the_place_there() {
    let way = |address: [&'static str; 3]| {
        [&["pci0000:00", "0000:00:1f.2 pci", "ata3", "host4 scsi scsi_host"], &address[..]].concat()
    };
    let port = [("class/ata_port/ata3/port_no", "1")];
    let single = way(["target4:0:0 scsi scsi_target", "4:0:0:0 scsi scsi_device", "block/sda block disk"]);
    assert_eq!(named(&single, &port), ["pci-0000:00:1f.2-ata-1.0", "pci-0000:00:1f.2-ata-1"]);
    let slave = way(["target4:0:1 scsi scsi_target", "4:0:1:0 scsi scsi_device", "block/sda block disk"]);
    assert_eq!(named(&slave, &port)[0], "pci-0000:00:1f.2-ata-1.1");
    let multiplied = way(["target4:2:0 scsi scsi_target", "4:2:0:0 scsi scsi_device", "block/sda block disk"]);
    assert_eq!(named(&multiplied, &port)[0], "pci-0000:00:1f.2-ata-1.2.0");
    assert!(named(&single, &[]).is_empty(), "a port without a number");
}

#[test]
fn scsi_by_its_address_behind_the_adapter() {
    let raid = adapter(&[
        "host7 scsi scsi_host",
        "target7:2:1 scsi scsi_target",
        "7:2:1:0 scsi scsi_device",
        "block/sda block disk",
    ]);
    assert_eq!(named(&raid, &[]), ["pci-0000:01:00.0-scsi-0:2:1:0"]);
    // The second host of its adapter.
    assert_eq!(named(&raid, &[("../../../../../host6/x", "")]), ["pci-0000:01:00.0-scsi-1:2:1:0"]);
    let virtio = [
        "pci0000:00",
        "0000:00:05.0 pci",
        "virtio2 virtio",
        "host2 scsi scsi_host",
        "target2:0:0 scsi scsi_target",
        "2:0:0:3 scsi scsi_device",
        "block/sda block disk",
    ];
    assert_eq!(named(&virtio, &[]), ["pci-0000:00:05.0-scsi-0:0:0:3"]);
}

#[test]
fn sas_by_its_phy_or_its_own_address() {
    let direct = adapter(&[
        "host0 scsi scsi_host",
        "port-0:3",
        "end_device-0:3",
        "target0:0:3 scsi scsi_target",
        "0:0:3:0 scsi scsi_device",
        "block/sda block disk",
    ]);
    let attributes = [
        ("class/sas_device/end_device-0:3/sas_address", "0x5000c500a1b2c3d5"),
        ("class/sas_device/end_device-0:3/phy_identifier", "3"),
        ("class/sas_port/port-0:3/num_phys", "1"),
    ];
    assert_eq!(named(&direct, &attributes), ["pci-0000:01:00.0-sas-phy3-lun-0"]);
    let wide = [&attributes[..2], &[("class/sas_port/port-0:3/num_phys", "2")]].concat();
    assert_eq!(named(&direct, &wide), ["pci-0000:01:00.0-sas-0x5000c500a1b2c3d5-lun-0"]);
    assert!(named(&direct, &attributes[..2]).is_empty(), "a port that says nothing");
    let expander = adapter(&[
        "host0 scsi scsi_host",
        "port-0:0",
        "expander-0:0",
        "port-0:0:3",
        "end_device-0:0:3",
        "target0:0:3 scsi scsi_target",
        "0:0:3:300 scsi scsi_device",
        "block/sda block disk",
    ]);
    let attributes = [
        ("class/sas_device/end_device-0:0:3/phy_identifier", "3"),
        ("class/sas_port/port-0:0:3/num_phys", "1"),
        ("class/sas_device/expander-0:0/sas_address", "0x500056b300000000"),
    ];
    let name = "pci-0000:01:00.0-sas-exp0x500056b300000000-phy3-lun-0x012c000000000000";
    assert_eq!(named(&expander, &attributes), [name]);
}

#[test]
fn virtio_by_its_place_and_as_it_was_named_before() {
    let way = ["pci0000:00", "0000:00:04.0 pci", "virtio1 virtio", "block/vda block disk"];
    assert_eq!(named(&way, &[]), ["pci-0000:00:04.0", "virtio-pci-0000:00:04.0"]);
    let arm = ["platform/a003e00.virtio_mmio platform", "virtio0 virtio", "block/vda block disk"];
    assert_eq!(named(&arm, &[]), ["platform-a003e00.virtio_mmio"]);
}

#[test]
fn what_is_told_apart_by_nothing_has_no_name() {
    let scsi = ["target6:0:0 scsi scsi_target", "6:0:0:0 scsi scsi_device", "block/sda block disk"];
    let usb = ["usb1 usb usb_device", "1-1 usb usb_device", "1-1:1.0 usb usb_interface", "host6 scsi scsi_host"];
    assert!(named(&adapter(&[&usb[..], &scsi].concat()), &[]).is_empty());
    for between in ["rport-6:0-1", "session1", "vmbus_0_1"] {
        assert!(
            named(&adapter(&[&["host6 scsi scsi_host", between][..], &scsi].concat()), &[]).is_empty(),
            "{between}"
        );
    }
    assert!(named(&["virtual/block/loop0 block disk"], &[]).is_empty());
    // No transport that is known.
    assert!(named(&adapter(&["block/rssda block disk"]), &[]).is_empty());
}
