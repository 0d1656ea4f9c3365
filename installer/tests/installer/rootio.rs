//! `rootio` in a virtual server: a disk is partitioned and its file systems are made as the metadata describes them, and what is written
//! into one is there; another disk gets an MBR. The tools of the host judge them.

use crate::machine::{HOST, MIB, Machine, disk, message};
use crate::server::{Server, action};
use proto::tink::ActionResponse;
use proto::tink::action_status_request::StateType;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// As upstream's test has it, on other devices, with an EFI system partition.
const METADATA: &str = r#"{"metadata": {"instance": {"hostname": "server001", "storage": {
  "disks": [{"device": "/dev/vda", "wipe_table": true, "partitions": [
    {"label": "BIOS", "number": 1, "size": 2048}, {"label": "EFI", "number": 2, "size": 16384},
    {"label": "SWAP", "number": 3, "size": 4096}, {"label": "ROOT", "number": 4, "size": 0}]}],
  "filesystems": [
    {"mount": {"create": {"options": ["-n", "ESP"]}, "device": "/dev/vda2", "format": "vfat", "point": "/boot/efi"}},
    {"mount": {"create": {"options": ["-L", "SWAP"]}, "device": "/dev/vda3", "format": "swap", "point": "none"}},
    {"mount": {"create": {"options": ["-L", "ROOT"]}, "device": "/dev/vda4", "format": "ext4", "point": "/"}}]}}}}"#;

/// Of another disk, as upstream's guide has it for installers that start by a BIOS.
const OF_BIOS: &str = r#"{"metadata": {"instance": {"storage": {
  "disks": [{"device": "/dev/vdb", "partitions": [
    {"label": "FAT32_ACTIVE", "number": 1, "size": 69632}, {"label": "LINUX", "number": 2, "size": 0}]}],
  "filesystems": [{"mount": {"device": "/dev/vdb1", "format": "vfat", "point": "/"}}]}}}}"#;

async fn metadata() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let length = stream.read(&mut request).await.unwrap_or(0);
            assert!(request[..length].starts_with(b"GET /metadata HTTP/1.1\r\n"));
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", METADATA.len());
            stream.write_all((head + METADATA).as_bytes()).await.expect("sent");
        }
    });
    port
}

fn work(port: u16) -> Vec<ActionResponse> {
    let port = port.to_string();
    let of = |name: &str, command: &str| {
        let environment = [("MIRROR_HOST", HOST), ("METADATA_SERVICE_PORT", &*port)];
        let mut response = action(name, "quay.io/tinkerbell/actions/rootio:latest", &environment);
        response.command = vec![command.to_owned()];
        response
    };
    let of_bios = |name: &str, command: &str| {
        let mut response = action(name, "rootio", &[("MBR", "true"), ("METADATA", OF_BIOS)]);
        response.command = vec![command.to_owned()];
        response
    };
    let file = [
        ("CONTENTS", "server001\n"),
        ("DEST_DISK", "/dev/vda4"),
        ("DEST_PATH", "/etc/hostname"),
        ("DIRMODE", "0755"),
        ("FS_TYPE", "ext4"),
        ("GID", "0"),
        ("MODE", "0644"),
        ("UID", "0"),
    ];
    vec![
        of("partition", "partition"),
        of("format", "format"),
        of("mount", "mount"),
        action("file", "writefile", &file),
        of_bios("mbr", "partition"),
        of_bios("mbr-format", "format"),
        action("restart", "reboot", &[]),
    ]
}

fn said(program: &str, arguments: &[&str], file: &Path) -> String {
    let ran = Command::new(program).args(arguments).arg(file).output().expect("it was looked for");
    let text = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
    assert!(ran.status.success(), "{program}: {text}");
    text
}

#[tokio::test]
async fn a_disk_is_partitioned_and_formatted_as_the_metadata_says() {
    let test = "a_disk_is_partitioned_and_formatted_as_the_metadata_says";
    let machine = Machine::here();
    if let Err(missing) = machine.has(&[("sgdisk", "gdisk"), ("e2fsck", "e2fsprogs"), ("fsck.fat", "dosfstools")]).await
    {
        eprintln!("SKIP {test}: {missing}");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let whole = disk(folder.path(), "disk-1", 64 * MIB);
    let of_bios = disk(folder.path(), "disk-2", 48 * MIB);
    let (server, address) = Server::start(work(metadata().await)).await;
    let disks = [("disk-1", "virtio-blk-pci"), ("disk-2", "virtio-blk-pci")];
    machine.run(folder.path(), &machine.arguments(address), &server, &disks).await;
    server.done(Duration::from_secs(1)).await;
    for name in ["partition", "format", "mount", "file", "mbr", "mbr-format", "restart"] {
        let state = server.result(name).map(|report| report.action_state());
        assert_eq!(state, Some(StateType::Success), "{name}: {}", message(&server, name));
    }
    assert!(message(&server, "mount").contains("its ext4 can be mounted (for \"/\""), "{}", message(&server, "mount"));

    let told = message(&server, "mbr");
    assert!(told.contains("vdb: partitions: vdb1 vdb2"), "the kernel reads the table, too: {told}");
    assert!(said("blkid", &["-p"], &of_bios).contains("PTTYPE=\"dos\""));
    let fat = folder.path().join("fat");
    std::fs::write(&fat, &std::fs::read(&of_bios).expect("read")[MIB..35 * MIB]).expect("written");
    said("fsck.fat", &["-n"], &fat);

    let table = said("sgdisk", &["--verify", "--print"], &whole);
    assert!(table.contains("No problems found"), "{table}");
    for line in ["EF02  BIOS", "EF00  EFI", "8200  SWAP", "8300  ROOT"] {
        assert!(table.contains(line), "{line}: {table}");
    }
    let bytes = std::fs::read(&whole).expect("read");
    let part = |name: &str, from: usize, to: usize| {
        let path = folder.path().join(name);
        std::fs::write(&path, &bytes[from * MIB..to]).expect("written");
        path
    };
    // Where the layout puts them: each on the next MiB.
    let (efi, swap) = (part("efi", 2, 10 * MIB), part("swap", 10, 12 * MIB));
    let root = part("root", 12, bytes.len() - 33 * 512);
    said("fsck.fat", &["-n"], &efi);
    assert!(said("blkid", &["-p"], &efi).contains("LABEL=\"ESP\""));
    assert!(said("blkid", &["-p"], &swap).contains("TYPE=\"swap\""));
    said("e2fsck", &["-f", "-n"], &root);
    assert!(said("blkid", &["-p"], &root).contains("LABEL=\"ROOT\""));
    assert!(said("debugfs", &["-R", "cat /etc/hostname"], &root).starts_with("server001\n"));
}
