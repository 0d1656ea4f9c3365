use super::*;

const GI: u64 = 1 << 30;

/// What a kernel tells of one, in a folder.
pub(crate) struct Machine(tempfile::TempDir);

impl Machine {
    pub(crate) fn empty() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn new() -> Self {
        let machine = Self::empty();
        machine.disk("pci0/nvme/nvme0/nvme0n1", 100 * GI, &[("device/serial", "N1"), ("device/model", "Fast")]);
        machine.disk(
            "pci0/ata1/sda",
            100 * GI,
            &[("device/model", "Slow"), ("queue/rotational", "1"), ("wwid", "naa.5")],
        );
        machine.disk("pci0/usb1/sdb", 100 * GI, &[("device/model", "Virtual CD")]);
        machine.disk("pci0/ata2/sdc", GI, &[("removable", "1")]);
        machine.disk("pci0/virtio1/vda", 200 * GI, &[("serial", "V1"), ("queue/discard_max_bytes", "4096")]);
        let partition = machine.0.path().join("devices/pci0/virtio1/vda/vda1");
        fs::create_dir(&partition).expect("made");
        fs::write(partition.join("partition"), "1").expect("written");
        fs::write(partition.join("size"), "2048").expect("written");
        machine.node("vda1", &partition);
        machine
    }

    pub(crate) fn disks(&self) -> Disks {
        Disks { sys: self.0.path().to_owned(), dev: self.0.path().join("dev"), own: None }
    }

    /// The node of a disk.
    pub(crate) fn dev(&self, name: &str) -> PathBuf {
        self.0.path().join("dev").join(name)
    }

    pub(crate) fn controller(&self, address: &str, class: &str, has_driver: bool) {
        let folder = self.0.path().join("bus/pci/devices").join(address);
        fs::create_dir_all(&folder).expect("made");
        fs::write(folder.join("class"), format!("{class}\n")).expect("written");
        if has_driver {
            fs::create_dir(folder.join("driver")).expect("made");
        }
    }

    pub(crate) fn disk(&self, place: &str, bytes: u64, files: &[(&str, &str)]) {
        let folder = self.0.path().join("devices").join(place);
        for sub in ["device", "queue"] {
            fs::create_dir_all(folder.join(sub)).expect("made");
        }
        fs::write(folder.join("size"), format!("{}\n", bytes / 512)).expect("written");
        for (file, content) in files {
            fs::write(folder.join(file), format!("{content}\n")).expect("written");
        }
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        fs::create_dir_all(self.0.path().join("block")).expect("made");
        std::os::unix::fs::symlink(&folder, self.0.path().join("block").join(&name)).expect("linked");
        self.node(&name, &folder);
    }

    /// Of the disk at that place.
    pub(crate) fn partition(&self, disk: &str, name: &str, place: Range<u64>) {
        let folder = self.0.path().join("devices").join(disk).join(name);
        fs::create_dir(&folder).expect("made");
        let sectors = (place.end - place.start) / 512;
        for (file, content) in [("partition", 1), ("start", place.start / 512), ("size", sectors)] {
            fs::write(folder.join(file), format!("{content}\n")).expect("written");
        }
        self.node(name, &folder);
    }

    pub(crate) fn remove_partition(&self, disk: &str, name: &str) {
        fs::remove_dir_all(self.0.path().join("devices").join(disk).join(name)).expect("removed");
    }

    fn node(&self, name: &str, folder: &Path) {
        for sub in ["class/block", "dev"] {
            fs::create_dir_all(self.0.path().join(sub)).expect("made");
        }
        std::os::unix::fs::symlink(folder, self.0.path().join("class/block").join(name)).expect("linked");
        fs::write(self.0.path().join("dev").join(name), "").expect("written");
    }

    fn find(&self, wanted: &str) -> Result<Disk, String> {
        self.disks().find(&wanted.replace("/dev", &self.0.path().join("dev").to_string_lossy()))
    }
}

#[test]
fn a_disk_is_found_by_its_node_or_by_what_is_known_of_it() {
    let machine = Machine::new();
    let name = |wanted: &str| machine.find(wanted).map(|disk| disk.name);
    assert_eq!(name("/dev/vda"), Ok("vda".to_owned()));
    for (terms, found) in [
        ("serial=N1", "nvme0n1"),
        ("model=Slow", "sda"),
        ("wwn=naa.5", "sda"),
        ("transport=nvme", "nvme0n1"),
        ("rotational=true", "sda"),
        ("min-size=150Gi", "vda"),
        ("max-size=100Gi,rotational=false", "nvme0n1"),
    ] {
        assert_eq!(name(&format!("select:{terms}")), Ok(found.to_owned()), "{terms}");
    }
    let disk = machine.find("/dev/vda").expect("found");
    assert!(disk.discards && disk.is_whole);
    assert_eq!((disk.size_bytes, disk.sector), (200 * GI, 512));
    let partition = machine.find("/dev/vda1").expect("found");
    assert!(partition.discards && !partition.is_whole);
    assert_eq!(partition.size_bytes, 1 << 20);
}

#[test]
fn a_disk_is_found_by_the_name_that_udev_gives_it() {
    let machine = Machine::new();
    let nvme =
        [("wwid", "eui.0025385b01234567"), ("device/serial", "N 2"), ("device/model", "Fast  SSD"), ("nsid", "1")];
    machine.disk("pci0/nvme/nvme1/nvme1n1", GI, &nvme);
    machine.disk("pci0/host0/sdd", GI, &[("device/wwid", "naa.5000c500a1b2c3d4")]);
    let name = |id: &str| machine.disks().find(&format!("/dev/disk/by-id/{id}")).map(|disk| disk.name);
    for (id, found) in [
        ("nvme-Fast_N1", "nvme0n1"),
        ("nvme-eui.0025385b01234567", "nvme1n1"),
        ("nvme-Fast_SSD_N_2", "nvme1n1"),
        ("nvme-Fast_SSD_N_2_1", "nvme1n1"),
        ("virtio-V1", "vda"),
        ("virtio-V1-part1", "vda1"),
        ("wwn-0x5000c500a1b2c3d4", "sdd"),
        ("scsi-35000c500a1b2c3d4", "sdd"),
    ] {
        assert_eq!(name(id), Ok(found.to_owned()), "{id}");
    }
    let error = name("nvme-other").expect_err("there is none");
    assert!(error.contains("it is 0 disks") && error.contains("/dev/disk/by-id/nvme-Fast_N1"), "{error}");
    machine.disk("pci0/nvme/nvme2/nvme2n1", GI, &nvme);
    assert!(name("nvme-eui.0025385b01234567").is_err_and(|error| error.contains("it is 2 disks")));
}

#[test]
fn a_scsi_disk_has_its_serial_number_in_a_page() {
    let machine = Machine::empty();
    machine.disk("pci0/host0/sda", GI, &[]);
    machine.disk("pci0/host0/sdb", GI, &[("device/vpd_pg80", "short")]);
    let page = machine.0.path().join("devices/pci0/host0/sda/device/vpd_pg80");
    fs::write(page, [&[0, 0x80, 0, 6][..], b" WD-1 trailing"].concat()).expect("written");
    let serials: Vec<_> = machine.disks().all().into_iter().map(|disk| disk.serial).collect();
    assert_eq!(serials, ["WD-1", ""]);
}

#[test]
fn what_must_not_be_written_or_is_not_one_disk_is_refused_with_the_list() {
    let machine = Machine::new();
    for (wanted, said) in [
        ("/dev/sdb", "USB"),
        ("/dev/sdc", "removable"),
        ("/dev/vdb", "the disks are:\nnvme0n1: 107374182400 bytes"),
        ("select:min-size=1Gi", "3 disks match"),
        ("select:model=Virtual CD", "0 disks match"),
        ("select:size=1", "no key \"size\""),
        ("select:min-size=much", "100Gi"),
        ("select:", "no term"),
    ] {
        let error = machine.find(wanted).expect_err("refused");
        assert!(error.contains(said), "{wanted}: {error}");
    }
}
