//! What is done with the system on a disk, in a virtual server: it is unpacked from an archive, a program of its own is run there, on each
//! kind of file system; its kernel is started in the place of the installer's.

use crate::machine::{HOST, MIB, Machine, disk, message};
use crate::server::{Server, action};
use proto::tink::ActionResponse;
use proto::tink::action_status_request::StateType;
use sha2::{Digest, Sha256};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A file system each; the first alone has a system in it.
const DISKS: [(&str, &str); 4] =
    [("ext4", "virtio-blk-pci"), ("xfs", "virtio-blk-pci"), ("vfat", "virtio-blk-pci"), ("ext3", "virtio-blk-pci")];

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A system of one program, whose `/etc/resolv.conf` is a link to what is not there, as systemd-resolved leaves it.
fn system(folder: &Path) {
    for name in ["bin", "dev", "etc", "proc", "sys"] {
        fs::create_dir_all(folder.join(name)).expect("made");
    }
    fs::copy("/bin/busybox", folder.join("bin/busybox")).expect("busybox");
    std::os::unix::fs::symlink("busybox", folder.join("bin/sh")).expect("linked");
    std::os::unix::fs::symlink("../run/stub-resolv.conf", folder.join("etc/resolv.conf")).expect("linked");
}

/// The disks `/dev/vda` to `/dev/vdd`.
fn disks(folder: &Path) {
    let root = folder.join("root");
    system(&root);
    let at = |name: &str| folder.join(name).display().to_string();
    disk(folder, "ext4", 32 * MIB);
    run("mkfs.ext4", &["-q", "-F", "-d", &root.display().to_string(), &at("ext4")]);
    // The least that mkfs.xfs makes; most of it is a hole.
    let xfs = fs::File::create(at("xfs")).expect("made");
    xfs.set_len(320 * MIB as u64).expect("its size");
    // A protofile: one folder below the root.
    let proto = at("proto");
    fs::write(&proto, "/\n0 0\nd--755 0 0\nfound d--755 0 0\n$\n$\n").expect("written");
    run("mkfs.xfs", &["-q", "-p", &proto, &at("xfs")]);
    disk(folder, "vfat", 16 * MIB);
    run("mkfs.vfat", &[&at("vfat")]);
    disk(folder, "ext3", 16 * MIB);
    run("mkfs.ext3", &["-q", "-F", &at("ext3")]);
}

/// Each action has ended so, and said that; of what is secret nothing.
fn ended(server: &Server, console: &str, expected: &[(&str, StateType, &str)]) {
    for (name, state, said) in expected {
        let message = message(server, name);
        let told = server.result(name).map(|report| report.action_state());
        assert_eq!(told, Some(*state), "{name}: {message}\n{console}");
        assert!(message.contains(said) && !message.contains("secret"), "{name}: {message}");
    }
}

fn cexec(name: &str, line: &str, more: &[(&str, &str)]) -> ActionResponse {
    let mut environment = vec![("BLOCK_DEVICE", "/dev/vda"), ("FS_TYPE", "ext4"), ("CHROOT", "y"), ("CMD_LINE", line)];
    environment.extend(more);
    action(name, "quay.io/tinkerbell/actions/cexec:latest", &environment)
}

fn writefile(name: &str, device: &str, kind: &str, path: &str) -> ActionResponse {
    let environment = [
        ("CONTENTS", "text"),
        ("DEST_DISK", device),
        ("DEST_PATH", path),
        ("DIRMODE", "0755"),
        ("FS_TYPE", kind),
        ("GID", "0"),
        ("MODE", "0644"),
        ("UID", "0"),
    ];
    action(name, "writefile", &environment)
}

const SHELL: (&str, &str) = ("DEFAULT_INTERPRETER", "/bin/sh -c");

fn work() -> Vec<ActionResponse> {
    // Without a shell, and of the disk's own root: what it writes is looked at afterwards.
    let plain = "busybox mkdir /made; busybox mkdir /made/deep";
    let script = "busybox test -e /dev/vda && busybox test -d /proc/1 && busybox test -d /sys/kernel && \
                  busybox cat /etc/resolv.conf && echo $WORD > /word && echo said >&2; echo x >> /etc/resolv.conf; true";
    let mut lasts = cexec("lasts", "busybox sleep 1000 & busybox sleep 1000", &[SHELL]);
    lasts.timeout = Some(3);
    vec![
        cexec("plain", plain, &[]),
        cexec("script", script, &[SHELL, ("UPDATE_RESOLV_CONF", "true"), ("WORD", "heard")]),
        cexec("fails", "echo why it fails; exit 3", &[SHELL]),
        cexec("killed", "kill -KILL $$", &[SHELL]),
        cexec("missing", "/bin/grub-install", &[]),
        lasts,
        // Another kind of file system is looked for only on a disk that is nobody's.
        writefile("free after its time", "/dev/vda", "vfat", "/x"),
        cexec("leaves", "busybox sleep 1000 &", &[SHELL]),
        writefile("free after its end", "/dev/vda", "vfat", "/x"),
        cexec("rootless", "/bin/sh", &[("BLOCK_DEVICE", "/dev/vdb"), ("FS_TYPE", "xfs")]),
        cexec("other", "/bin/sh", &[("FS_TYPE", "btrfs")]),
        writefile("after", "/dev/vda", "ext4", "/after"),
        writefile("xfs", "/dev/vdb", "xfs", "/found/file"),
        writefile("vfat", "/dev/vdc", "vfat", "/EFI/Long name.conf"),
        writefile("ext3", "/dev/vdd", "ext3", "/as-ext3"),
        writefile("ext2", "/dev/vdd", "ext2", "/as-ext2"),
        action("restart", "reboot", &[]),
    ]
}

#[tokio::test]
async fn a_program_of_the_disk_runs_in_its_system() {
    let name = "a_program_of_the_disk_runs_in_its_system";
    let machine = Machine::here();
    let programs = [
        ("busybox", "busybox-static"),
        ("mkfs.ext4", "e2fsprogs"),
        ("mkfs.xfs", "xfsprogs"),
        ("mkfs.vfat", "dosfstools"),
        ("mdir", "mtools"),
    ];
    if let Err(missing) = machine.has(&programs).await {
        eprintln!("SKIP {name}: {missing}");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    disks(folder.path());
    let (server, address) = Server::start(work()).await;
    let console = machine.run(folder.path(), &machine.arguments(address), &server, &DISKS).await;
    server.done(Duration::from_secs(1)).await;
    ended(
        &server,
        &console,
        &[
            ("plain", StateType::Success, "command 2 of 2: busybox"),
            ("script", StateType::Success, "nameserver 10.0.2.3"),
            ("fails", StateType::Failed, "command 1 of 1: /bin/sh ended with exit status: 3"),
            ("killed", StateType::Failed, "/bin/sh ended with signal: 9"),
            ("missing", StateType::Failed, "/bin/grub-install does not start: No such file"),
            ("lasts", StateType::Timeout, "the action's time is over: /bin/sh was killed"),
            ("free after its time", StateType::Failed, "disk /dev/vda: mounting its vfat: Invalid argument"),
            ("free after its end", StateType::Failed, "disk /dev/vda: mounting its vfat: Invalid argument"),
            ("leaves", StateType::Success, "command 1 of 1"),
            ("rootless", StateType::Failed, "disk /dev/vdb: its folder /dev: No such file"),
            (
                "other",
                StateType::Failed,
                "FS_TYPE is \"btrfs\", of which the installer's kernel has no driver: write ext4",
            ),
            ("after", StateType::Success, "disk /dev/vda: /after"),
            ("xfs", StateType::Success, "disk /dev/vdb: /found/file"),
            ("vfat", StateType::Success, "disk /dev/vdc: /EFI/Long name.conf"),
            ("ext3", StateType::Success, "disk /dev/vdd: /as-ext3"),
            ("ext2", StateType::Success, "disk /dev/vdd: /as-ext2"),
            ("restart", StateType::Success, ""),
        ],
    );
    assert!(message(&server, "fails").contains("why it fails"), "{}", message(&server, "fails"));
    let of_script = message(&server, "script");
    assert!(of_script.contains("\nsaid\n") && of_script.contains("Read-only file system"), "{of_script}");
    assert!(!console.contains("$WORD") && !console.contains("exit 3"), "a command may have a password in it");

    let at = |name: &str| folder.path().join(name).display().to_string();
    let inspect = |request: &str| run("debugfs", &["-R", request, &at("ext4")]);
    assert_eq!(inspect("cat /word"), "heard\n");
    assert!(inspect("stat /made/deep").contains("Type: directory"));
    assert!(inspect("stat /etc/resolv.conf").contains("../run/stub-resolv.conf"), "the disk's own link stays");
    run("e2fsck", &["-f", "-n", &at("ext4")]);
    run("xfs_repair", &["-n", &at("xfs")]);
    assert_eq!(run("mtype", &["-i", &at("vfat"), "::/EFI/Long name.conf"]), "text");
}

/// A system whose kernel and initramfs are the installer's, and whose GRUB starts it as another agent.
fn bootable(machine: &Machine, folder: &Path, arguments: &str) {
    let root = folder.join("root");
    fs::create_dir_all(root.join("boot/grub")).expect("made");
    let files = machine.files(folder);
    fs::copy(files.kernel, root.join("boot/vmlinuz-1")).expect("a kernel");
    std::os::unix::fs::symlink("/boot/vmlinuz-1", root.join("vmlinuz")).expect("linked");
    fs::copy(files.initramfs, root.join("boot/initramfs")).expect("an initramfs");
    // As microcode is in front of it.
    fs::write(root.join("boot/zeros"), [0; 5]).expect("written");
    let menu = format!(
        "set default=\"0\"\nmenuentry 'System' {{\n\tlinux /vmlinuz {arguments} $vt_handoff\n\tinitrd /boot/zeros /boot/initramfs\n}}\n"
    );
    fs::write(root.join("boot/grub/grub.cfg"), menu).expect("written");
    disk(folder, "disk", 64 * MIB);
    let at = |name: &str| folder.join(name).display().to_string();
    run("mkfs.ext4", &["-q", "-F", "-d", &at("root"), &at("disk")]);
}

/// On a tagged network: the address of the first comes by DHCP, that of the second by its arguments.
#[tokio::test]
async fn the_kernel_of_the_disk_starts_in_the_place_of_the_installers() {
    let name = "the_kernel_of_the_disk_starts_in_the_place_of_the_installers";
    let mut machine = Machine::here();
    // For both kernels and what they unpack.
    (machine.limit, machine.memory_mib, machine.vlan) = (2 * machine.limit, 512, Some(7));
    if let Err(missing) = machine.has(&[("mkfs.ext4", "e2fsprogs")]).await {
        eprintln!("SKIP {name}: {missing}");
        return;
    }
    let kexec = |name, image, more: &[(&str, &str)]| {
        action(name, image, &[&[("BLOCK_DEVICE", "/dev/vda"), ("FS_TYPE", "ext4")], more].concat())
    };
    let work = vec![
        kexec("nowhere", "kexec", &[("GRUBCFG_PATH", "grub/grub.cfg")]),
        kexec("text", "kexec", &[("KERNEL_PATH", "/boot/grub/grub.cfg"), ("CMD_LINE", "password=secret")]),
        kexec("start", "ghcr.io/x/waitdaemon:latest", &[("IMAGE", "quay.io/tinkerbell/actions/kexec:latest")]),
        action("restart", "reboot", &[]),
    ];
    let (server, address) = Server::start(work).await;
    let arguments = format!("{} vlan_id=7", machine.arguments(address));
    let folder = tempfile::tempdir().expect("a folder");
    let first = "worker_id=52:54:00:00:00:01";
    assert!(arguments.contains(first));
    let second = "worker_id=second ipam=52-54-00-00-00-01:7:10.0.2.15:255.255.255.0:10.0.2.2::10.0.2.3::";
    bootable(&machine, folder.path(), &arguments.replace(first, second).replace(" vlan_id=7", ""));
    let console = machine.run(folder.path(), &arguments, &server, &[("disk", "virtio-blk-pci")]).await;
    server.done(Duration::from_secs(1)).await;
    ended(
        &server,
        &console,
        &[
            (
                "nowhere",
                StateType::Failed,
                "grub/grub.cfg: No such file or directory (os error 2): write KERNEL_PATH, or",
            ),
            ("text", StateType::Failed, "it is no kernel for this machine"),
            ("start", StateType::Success, "disk /dev/vda: /vmlinuz with /boot/zeros, /boot/initramfs: loaded"),
            ("restart", StateType::Success, ""),
        ],
    );
    let by = |name| server.result(name).and_then(|report| report.agent_id).unwrap_or_default();
    assert_eq!((by("start").as_str(), by("restart").as_str()), ("52:54:00:00:00:01", "second"), "{console}");
    for found in ["eth0.7 has 10.0.2.15/24 by DHCP", "eth0.7 has 10.0.2.15/24 by the boot script"] {
        assert!(console.contains(found), "{console}");
    }
    let nics: Vec<_> = server.lock().asked.iter().flat_map(|asked| asked.agent_attributes.clone()).collect();
    assert!(nics.iter().all(|told| told.network.len() == 1), "a VLAN is no NIC: {nics:?}");
    assert!(!console.contains("secret"), "arguments may have a password in them");
    run("e2fsck", &["-f", "-n", &folder.path().join("disk").display().to_string()]);
}

/// Serves these bytes, whatever is asked for.
async fn serve(body: Vec<u8>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            // A guest that has seen enough goes away.
            let _ = stream.write_all(&[head.as_bytes(), &body].concat()).await;
        }
    });
    port
}

/// By GNU tar, with owners and an attribute; the archive, and that packed.
fn archive(folder: &Path) -> (Vec<u8>, Vec<u8>) {
    let root = folder.join("system");
    system(&root);
    fs::write(root.join("etc/owned"), "of 1000").expect("written");
    std::os::unix::fs::symlink("/bin", root.join("sbin")).expect("linked");
    fs::hard_link(root.join("etc/owned"), root.join("etc/second")).expect("linked");
    fs::set_permissions(root.join("etc/owned"), fs::Permissions::from_mode(0o4750)).expect("its mode");
    let (from, to) = (root.display().to_string(), folder.join("system.tar").display().to_string());
    let all = ["-C", &from, "--format=posix", "--owner=1000", "--group=1001", "--numeric-owner", "-cf", &to, "."];
    run("tar", &all);
    let plain = fs::read(&to).expect("read");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&plain).expect("packed");
    (plain, packed.finish().expect("packed"))
}

#[tokio::test]
async fn a_system_is_unpacked_from_an_archive() {
    let name = "a_system_is_unpacked_from_an_archive";
    let machine = Machine::here();
    let programs = [("busybox", "busybox-static"), ("mkfs.ext4", "e2fsprogs"), ("tar", "tar")];
    if let Err(missing) = machine.has(&programs).await {
        eprintln!("SKIP {name}: {missing}");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    disk(folder.path(), "disk", 32 * MIB);
    let at = |name: &str| folder.path().join(name).display().to_string();
    run("mkfs.ext4", &["-q", "-F", &at("disk")]);
    let (plain, packed) = archive(folder.path());
    let checksum =
        format!("sha256:{}", Sha256::digest(&plain).iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let half = packed[..packed.len() / 2].to_vec();
    let url = |port: u16| format!("http://{HOST}:{port}/system.tar.gz?token=secret");
    let (whole, half) = (url(serve(packed).await), url(serve(half).await));
    let unpack = |name, url: &str, more: &[(&str, &str)]| {
        let own = [("ARCHIVE_URL", url), ("ARCHIVE_TYPE", "targz"), ("DEST_DISK", "/dev/vda"), ("FS_TYPE", "ext4")];
        action(name, "quay.io/tinkerbell/actions/archive2disk:latest", &[&own, more].concat())
    };
    let other = format!("sha256:{}", "00".repeat(32));
    let unchecked = ("INSECURE_NO_TARFILE_CHECKSUM_VERIFICATION", "true");
    let work = vec![
        unpack("half", &half, &[unchecked, ("DEST_PATH", "/half")]),
        unpack("other", &whole, &[("TARFILE_CHECKSUM", &other), ("DEST_PATH", "/other")]),
        unpack(
            "whole",
            &whole,
            &[("TARFILE_CHECKSUM", &checksum), ("DEST_PATH", "/"), ("HTTP_CLIENT_TIMEOUT_MINUTES", "1")],
        ),
        cexec("runs", "/sbin/sh -c exit", &[]),
        action("restart", "reboot", &[]),
    ];
    let (server, address) = Server::start(work).await;
    let console = machine.run(folder.path(), &machine.arguments(address), &server, &[("disk", "virtio-blk-pci")]).await;
    server.done(Duration::from_secs(1)).await;
    ended(
        &server,
        &console,
        &[
            ("half", StateType::Failed, "its gzip stream is damaged"),
            ("other", StateType::Failed, "TARFILE_CHECKSUM says sha256:0000"),
            ("whole", StateType::Success, "disk /dev/vda: "),
            ("runs", StateType::Success, ""),
            ("restart", StateType::Success, ""),
        ],
    );
    run("e2fsck", &["-f", "-n", &at("disk")]);
    let inspect = |request: &str| run("debugfs", &["-R", request, &at("disk")]);
    let owned = inspect("stat /etc/owned");
    assert!(owned.contains("Mode:  04750") && owned.contains("Links: 2"), "{owned}");
    assert!(owned.contains("User:  1000   Group:  1001"), "{owned}");
    assert_eq!(inspect("cat /etc/second"), "of 1000");
    assert!(inspect("stat /sbin").contains("Fast link dest: \"/bin\""), "{}", inspect("stat /sbin"));
}
