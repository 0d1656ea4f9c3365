//! The installer as process 1 of a virtual server (QEMU, emulated) with a NIC and disks of several makers, whose drivers it has to find: it
//! starts from its own kernel and initramfs, gets its address from QEMU's DHCP server, and does eight actions on five disks; nothing names a
//! sixth one. QEMU ends when the guest restarts. Then it starts once more, and erases all of them.

use crate::machine::{HOST, MIB, Machine, disk, message};
use crate::server::{Server, action};
use proto::tink::ActionResponse;
use proto::tink::action_status_request::StateType;
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// The disks, and what each is of.
const DISKS: [(&str, &str); 6] = [
    ("disk-1", "virtio-blk-pci"),
    ("disk-2", "nvme"),
    ("disk-3", "scsi-hd,bus=raid.0,wwn=0x5000c500a1b2c3d4"),
    ("disk-4", "ide-hd,bus=sata.0"),
    ("disk-5", "nvme,logical_block_size=4096,physical_block_size=4096"),
    (UNNAMED, "virtio-blk-pci"),
];

/// The disk that no action names, as one with somebody's data may be beside the one that is installed.
const UNNAMED: &str = "disk-6";

/// Where QEMU plugs them in, behind its NIC, its RAID adapter and its SATA adapter, as udev 252 names that. By the names that udev gives to
/// what they are.
const PLACES: [(&str, &str); 5] = [
    ("virtio-disk-1", "pci-0000:00:04.0"),
    ("nvme-QEMU_NVMe_Ctrl_disk-2", "pci-0000:00:05.0-nvme-1"),
    ("scsi-35000c500a1b2c3d4", "pci-0000:00:02.0-scsi-0:2:0:0"),
    ("ata-QEMU_HARDDISK_disk-4", "pci-0000:00:03.0-ata-1.0"),
    ("nvme-QEMU_NVMe_Ctrl_disk-5", "pci-0000:00:06.0-nvme-1"),
];

/// The partition's: it begins at the second MiB.
const FILESYSTEM: usize = 4 * MIB;

/// A disk with a GPT, one partition with an empty ext4 in it, and something behind that. `id`: tells its partition from those of others.
fn image(size: usize, folder: &Path, id: u8) -> Vec<u8> {
    let mut image = vec![0; size];
    let filesystem = disk(folder, "filesystem", FILESYSTEM);
    let made = std::process::Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&filesystem).status();
    assert!(made.expect("mkfs.ext4 starts").success());
    image[MIB..MIB + FILESYSTEM].copy_from_slice(&std::fs::read(&filesystem).expect("read"));
    for (i, byte) in image.iter_mut().enumerate().skip(MIB + FILESYSTEM).take(2 * MIB) {
        *byte = (i % 251) as u8 + 1;
    }
    let put = |image: &mut [u8], at: usize, value: u64| image[at..at + 8].copy_from_slice(&value.to_le_bytes());
    image[446 + 4] = 0xee;
    image[446 + 8] = 1;
    image[510..512].copy_from_slice(&[0x55, 0xaa]);
    let sectors = (size / 512) as u64;
    // Its kind (a Linux file system), its id, first and last sector.
    image[1024..1040].copy_from_slice(&[
        0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4,
    ]);
    image[1040..1056].fill(id);
    put(&mut image, 1056, 2048);
    put(&mut image, 1064, 2047 + (FILESYSTEM / 512) as u64);
    let mut header = vec![0; 92];
    header[..8].copy_from_slice(b"EFI PART");
    header[8..16].copy_from_slice(&[0, 0, 1, 0, 92, 0, 0, 0]);
    for (at, value) in [(24, 1), (32, sectors - 1), (40, 34), (48, sectors - 34), (72, 2)] {
        put(&mut header, at, value);
    }
    header[56..72].fill(id + 1);
    header[80..88].copy_from_slice(&[128, 0, 0, 0, 128, 0, 0, 0]);
    let crc = |bytes: &[u8]| {
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        crc.sum().to_le_bytes()
    };
    header[88..92].copy_from_slice(&crc(&image[1024..1024 + 128 * 128]));
    let sum = crc(&header);
    header[16..20].copy_from_slice(&sum);
    image[512..604].copy_from_slice(&header);
    image
}

/// Serves `/disk.raw`, `/disk.gz`, and `/short`, which ends in the middle.
async fn files(raw: Vec<u8>, packed: Vec<u8>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (raw, packed) = (raw.clone(), packed.clone());
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let length = stream.read(&mut request).await.unwrap_or(0);
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                let (length, body) = match request.split_whitespace().nth(1).and_then(|path| path.split('?').next()) {
                    Some("/disk.raw") => (raw.len(), &raw[..]),
                    Some("/disk.gz") => (packed.len(), &packed[..]),
                    _ => (raw.len(), &raw[..raw.len() / 2]),
                };
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
                for part in [head.as_bytes(), body] {
                    // A guest that has seen enough goes away.
                    let _ = stream.write_all(part).await;
                }
                let _ = stream.shutdown().await;
            });
        }
    });
    port
}

/// By what each kind of disk has: QEMU's NVMe has Format NVM, and no sanitize.
async fn erases(machine: &Machine, folder: &Path) {
    let (server, address) =
        Server::start(vec![action("erase", "metalplane.io/erase", &[]), action("restart", "reboot", &[])]).await;
    machine.run(folder, &machine.arguments(address), &server, &DISKS).await;
    server.done(Duration::from_secs(1)).await;
    let told = message(&server, "erase");
    assert_eq!(server.result("erase").map(|report| report.action_state()), Some(StateType::Success), "{told}");
    let disks: Vec<serde_json::Value> =
        told.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("disk ")?).ok()).collect();
    let text = |disk: &serde_json::Value, key: &str| disk[key].as_str().unwrap_or_default().to_owned();
    let mut all: Vec<_> =
        disks.iter().map(|disk| (text(disk, "serial"), text(disk, "method"), text(disk, "result"))).collect();
    all.sort();
    let erased = |serial: &str, method: &str| (serial.to_owned(), method.to_owned(), "Erased".to_owned());
    let expected = [
        erased("disk-1", "Overwrite"),
        erased("disk-2", "NvmeFormatUserData"),
        erased("disk-3", "Overwrite"),
        erased("disk-4", "Overwrite"),
        erased("disk-5", "NvmeFormatUserData"),
        erased(UNNAMED, "Overwrite"),
    ];
    assert_eq!(all, expected, "{told}");
    for (name, _) in DISKS {
        let left = std::fs::read(folder.join(name)).expect("read").iter().filter(|byte| **byte != 0).count();
        assert_eq!(left, 0, "{name}: {told}");
    }
}

#[tokio::test]
async fn a_server_is_installed_from_the_network_and_restarts() {
    is_installed("a_server_is_installed_from_the_network_and_restarts", Machine::here()).await;
}

#[tokio::test]
async fn a_server_of_arm64_is_installed_from_the_network_and_restarts() {
    let name = "a_server_of_arm64_is_installed_from_the_network_and_restarts";
    match Machine::arm64() {
        Ok(machine) => is_installed(name, machine).await,
        Err(missing) => eprintln!("SKIP {name}: {missing}"),
    }
}

/// From that port of the host; `checksum`: of the packed image.
fn work(port: u16, checksum: &str) -> Vec<ActionResponse> {
    let url = |path: &str| format!("http://{HOST}:{port}/{path}?token=secret");
    let (raw, gz, short) = (url("disk.raw"), url("disk.gz"), url("short"));
    vec![
        action(
            "short",
            "image2disk",
            &[("IMG_URL", &short), ("DEST_DISK", "/dev/disk/by-id/ata-QEMU_HARDDISK_disk-4")],
        ),
        action("sectors", "image2disk", &[("IMG_URL", &raw), ("DEST_DISK", "select:serial=disk-5")]),
        action(
            "nowhere",
            "image2disk",
            &[("IMG_URL", &raw), ("DEST_DISK", "/dev/disk/by-path/pci-0000:00:1e.0-ata-1")],
        ),
        action("foreign", "quay.io/somebody/paint:v1", &[]),
        action(
            "raw",
            "quay.io/tinkerbell/actions/image2disk:latest",
            &[("IMG_URL", &raw), ("DEST_DISK", "/dev/disk/by-path/virtio-pci-0000:00:04.0")],
        ),
        action("scsi", "image2disk", &[("IMG_URL", &raw), ("DEST_DISK", "/dev/disk/by-id/wwn-0x5000c500a1b2c3d4")]),
        action(
            "packed",
            "image2disk:v1.0.0",
            &[("IMG_URL", &gz), ("DEST_DISK", "select:serial=disk-2"), ("COMPRESSED", "true"), ("CHECKSUM", checksum)],
        ),
        action(
            "file",
            "quay.io/tinkerbell/actions/writefile",
            &[
                ("CONTENTS", "datasource_list: [NoCloud]\n"),
                ("DEST_DISK", "/dev/disk/by-path/pci-0000:00:05.0-nvme-1-part1"),
                ("DEST_PATH", "/etc/cloud/a.cfg"),
                ("DIRMODE", "0755"),
                ("FS_TYPE", "ext4"),
                ("GID", "0"),
                ("MODE", "0600"),
                ("UID", "0"),
            ],
        ),
        action("restart", "reboot", &[]),
    ]
}

async fn is_installed(name: &str, machine: Machine) {
    if let Err(missing) = machine.has(&[("mkfs.ext4", "e2fsprogs")]).await {
        eprintln!("SKIP {name}: {missing}");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (image, other) = (image(8 * MIB, folder.path(), 1), image(8 * MIB, folder.path(), 7));
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&image).expect("packed");
    let packed = packed.finish().expect("packed");
    let checksum: String = Sha256::digest(&packed).iter().map(|byte| format!("{byte:02x}")).collect();
    let checksum = format!("sha256:{checksum}");
    // The first is as large as the image: all of it is compared. The second is larger: the backup GPT moves.
    let same = disk(folder.path(), "disk-1", image.len());
    let larger = disk(folder.path(), "disk-2", 24 * MIB);
    let scsi = disk(folder.path(), "disk-3", 10 * MIB);
    let broken = disk(folder.path(), "disk-4", 16 * MIB);
    let of_4096 = disk(folder.path(), "disk-5", 12 * MIB);
    // It has a partition table and a file system of its own, and no backup of that table at its end.
    let unnamed = [other.as_slice(), &[0xff; MIB]].concat();
    std::fs::write(folder.path().join(UNNAMED), &unnamed).expect("a disk");
    let port = files(image.clone(), packed).await;
    let (server, address) = Server::start(work(port, &checksum)).await;
    let console = machine.run(folder.path(), &machine.arguments(address), &server, &DISKS).await;
    server.done(Duration::from_secs(1)).await;

    let state = |name| server.result(name).map(|report| report.action_state());
    for (name, expected) in [
        ("short", StateType::Failed),
        ("sectors", StateType::Failed),
        ("nowhere", StateType::Failed),
        ("foreign", StateType::Failed),
        ("raw", StateType::Success),
        ("scsi", StateType::Success),
        ("packed", StateType::Success),
        ("file", StateType::Success),
        ("restart", StateType::Success),
    ] {
        assert_eq!(state(name), Some(expected), "{name}: {}", message(&server, name));
    }
    let cause = message(&server, "short");
    assert!(cause.contains("it ended after"), "{cause}");
    assert!(message(&server, "foreign").contains("not built in"));
    let disks = message(&server, "nowhere");
    for (disk, place) in PLACES {
        assert!(disks.contains(&format!(", /dev/disk/by-path/{place}, /dev/disk/by-id/{disk}")), "{disks}");
    }
    let packed = message(&server, "packed");
    assert!(packed.contains("n1: partitions: nvme"), "{packed}");
    let written = |action| {
        let message = message(&server, action);
        message.lines().find(|line| line.starts_with("written {")).unwrap_or_default().to_owned()
    };
    let (first, nvme, raid) = (written("raw"), written("packed"), written("scsi"));
    assert!(nvme.contains("\"path\":\"PciRoot(0x0)/Pci(0x") && nvme.contains("/NVMe(0x1,00-00-"), "{nvme}");
    assert!(
        first.contains("\"partitions\":[\"") && !nvme.contains("partitions"),
        "a copy has the same: {first} {nvme}"
    );
    // Firmware has its own word for what is behind a RAID adapter.
    assert!(raid.contains("\"wwid\":\"naa.5000c500a1b2c3d4\"") && !raid.contains("path"), "{raid}");
    assert!(!console.contains("secret") && !cause.contains("secret"), "a URL's query is nobody's to read");

    let read = |path: &Path| std::fs::read(path).expect("read");
    // But for the last sectors: what the image had no backup in has one.
    let table = 33 * 512;
    let (written, expected) = (read(&same), image.len() - table);
    assert!(written[MIB..expected] == image[MIB..expected] && written[1024..MIB] == image[1024..MIB], "the first disk");
    assert!(read(&scsi)[MIB..expected] == image[MIB..expected], "the third disk");
    let written = read(&larger);
    let end = MIB + FILESYSTEM;
    assert!(written[end..image.len()] == image[end..] && written[1024..MIB] == image[1024..MIB], "the second disk");
    assert!(written[image.len()..24 * MIB - table].iter().all(|byte| *byte == 0), "nothing is left behind the image");
    assert!(written[24 * MIB - 512..].starts_with(b"EFI PART"), "the backup is at the disk's end");
    let filesystem = folder.path().join("filesystem");
    std::fs::write(&filesystem, &written[MIB..end]).expect("written");
    let read_file =
        std::process::Command::new("debugfs").args(["-R", "cat /etc/cloud/a.cfg"]).arg(&filesystem).output();
    assert_eq!(read_file.expect("debugfs starts").stdout, b"datasource_list: [NoCloud]\n");
    let written = read(&broken);
    assert!(written[..MIB].iter().chain(&written[15 * MIB..]).all(|byte| *byte == 0), "half an image cannot boot");
    let cause = message(&server, "sectors");
    assert!(cause.contains("made for sectors of 512 bytes, the disk has sectors of 4096"), "{cause}");
    let written = read(&of_4096);
    assert!(written[..MIB].iter().chain(&written[11 * MIB..]).all(|byte| *byte == 0), "it cannot boot");
    assert!(read(&folder.path().join(UNNAMED)) == unnamed, "nothing is written to the disk that no action names");
    let asked = server.lock().asked[0].agent_attributes.clone().expect("attributes");
    assert_eq!(asked.block.len(), DISKS.len(), "{:?}", asked.block);
    assert_eq!(
        message(&server, "raw").matches("\"result\":\"Seen\"").count(),
        DISKS.len(),
        "an installation tells of all disks"
    );
    erases(&machine, folder.path()).await;
}
