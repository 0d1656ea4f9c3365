//! The action grub2disk, with Debian's GRUB: what it wrote is what a BIOS starts from that disk.

use crate::machine::{MIB, Machine, disk, message};
use crate::server::{Server, action};
use proto::tink::action_status_request::StateType;
use sandbox::preflight::{self, Preflight};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::time::{sleep, timeout};

const PROGRAMS: [(&str, &str); 6] = [
    ("grub-install", "grub2-common"),
    ("grub-mkconfig", "grub-common"),
    ("grub-probe", "grub-common"),
    ("grub-mkrelpath", "grub-common"),
    ("grub-script-check", "grub-common"),
    ("grub-editenv", "grub-common"),
];
/// Of packages, as they are on a system that has them.
const FILES: [(&str, &str); 5] = [
    ("/usr/lib/grub/i386-pc/boot.img", "grub-pc-bin"),
    ("/usr/share/grub/grub-mkconfig_lib", "grub-common"),
    ("/etc/grub.d/00_header", "grub-common"),
    ("/etc/grub.d/10_linux", "grub-common"),
    ("/etc/grub.d/40_custom", "grub-common"),
];
/// Where its partition begins.
const START: usize = MIB;
/// For the BIOS, and for GRUB to read its menu.
const LIMIT: Duration = Duration::from_secs(60);
const TITLE: &str = "Acme GNU/Linux";

fn run(command: &mut Command) -> String {
    let output = command.stderr(Stdio::piped()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The loader and the libraries of a program.
fn libraries(program: &Path, found: &Preflight) -> BTreeSet<PathBuf> {
    let said = run(Command::new("ldd").arg(program).envs(found.environment(&[])));
    let paths = said.split_whitespace().filter(|word| word.starts_with('/'));
    paths.map(PathBuf::from).collect()
}

/// A system with GRUB's packages, whose programs and shell are busybox.
fn system(root: &Path, found: &Preflight) {
    for name in
        ["bin", "boot", "dev", "etc/default", "etc/grub.d", "lib64", "proc", "sys", "tmp", "usr/lib", "usr/sbin"]
    {
        fs::create_dir_all(root.join(name)).expect("made");
    }
    fs::copy("/bin/busybox", root.join("bin/busybox")).expect("busybox");
    for applet in run(Command::new("/bin/busybox").arg("--list")).lines().filter(|applet| *applet != "busybox") {
        symlink("busybox", root.join("bin").join(applet)).expect("linked");
    }
    let mut needed = BTreeSet::new();
    for (program, _) in PROGRAMS {
        let path = found.find(program).expect("just found");
        fs::copy(&path, root.join("usr/sbin").join(program)).expect("a program");
        if fs::read(&path).expect("a program").starts_with(b"\x7fELF") {
            needed.extend(libraries(&path, found));
        }
    }
    for library in needed {
        let name = library.file_name().expect("its name");
        // The loader is asked for by its whole path.
        let folder = if library.starts_with("/lib64") { "lib64" } else { "usr/lib" };
        fs::copy(&library, root.join(folder).join(name)).expect("a library");
    }
    symlink("usr/lib", root.join("lib")).expect("linked");
    symlink("sbin", root.join("usr/bin")).expect("linked");
    for (file, _) in FILES {
        let from = found.find(file).expect("just found");
        let (from, to) = match file.ends_with("boot.img") {
            // All modules are beside it.
            true => (from.parent().expect("a folder").to_owned(), root.join("usr/lib/grub/i386-pc")),
            false => (from, root.join(&file[1..])),
        };
        fs::create_dir_all(to.parent().expect("a folder")).expect("made");
        run(Command::new("cp").arg("-r").arg(from).arg(to));
    }
    fs::write(root.join("boot/vmlinuz-1"), "a kernel by its name").expect("written");
    let defaults = "GRUB_DISTRIBUTOR=Acme\nGRUB_TIMEOUT=-1\nGRUB_TERMINAL=serial\nGRUB_SERIAL_COMMAND=serial\nGRUB_DISABLE_OS_PROBER=true\n";
    fs::write(root.join("etc/default/grub"), defaults).expect("written");
}

/// `/dev/vda`, whose only partition is that system; the first sector has no code.
fn disks(folder: &Path, found: &Preflight) {
    let root = folder.join("root");
    system(&root, found);
    let partition = folder.join("partition");
    fs::File::create(&partition).and_then(|file| file.set_len(64 * MIB as u64)).expect("a partition");
    run(Command::new("mkfs.ext4").args(["-q", "-F", "-d"]).arg(root).arg(&partition));
    let mut bytes = vec![0; START];
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    let sectors = |bytes: usize| u32::try_from(bytes / 512).expect("a small disk").to_le_bytes();
    bytes[446 + 4] = 0x83;
    bytes[446 + 8..446 + 12].copy_from_slice(&sectors(START));
    bytes[446 + 12..446 + 16].copy_from_slice(&sectors(64 * MIB));
    bytes.extend(fs::read(&partition).expect("read"));
    fs::write(folder.join("disk"), bytes).expect("written");
    disk(folder, "empty", 8 * MIB);
}

/// What a BIOS and what it starts from that disk say on the console until GRUB shows its menu.
async fn started(disk: &Path) -> String {
    let console = disk.with_file_name("bios");
    let mut command = tokio::process::Command::new("qemu-system-x86_64");
    command.args("-machine q35 -nodefaults -no-user-config -display none -accel tcg -m 128".split_whitespace());
    command.arg("-serial").arg(format!("file:{}", console.display()));
    command.arg("-drive").arg(format!("if=none,format=raw,id=disk,snapshot=on,file={}", disk.display()));
    command.args(["-device", "virtio-blk-pci,drive=disk,bootindex=0"]).stdin(Stdio::null()).kill_on_drop(true);
    let mut guest = command.spawn().expect("QEMU starts");
    let said = || String::from_utf8_lossy(&fs::read(&console).unwrap_or_default()).into_owned();
    let shown = async {
        while !said().contains(TITLE) {
            sleep(Duration::from_millis(100)).await;
        }
    };
    let in_time = timeout(LIMIT, shown).await;
    guest.kill().await.expect("ended");
    in_time.unwrap_or_else(|_| panic!("no menu within {} s: {}", LIMIT.as_secs(), said()));
    said()
}

#[tokio::test]
async fn grub_of_the_system_on_a_disk_is_what_its_bios_starts() {
    let name = "grub_of_the_system_on_a_disk_is_what_its_bios_starts";
    let mut machine = Machine::here();
    // GRUB's tools run emulated.
    machine.limit *= 2;
    let programs =
        [("busybox", "busybox-static"), ("mkfs.ext4", "e2fsprogs"), ("qemu-system-x86_64", "qemu-system-x86")];
    let needed: Vec<_> = PROGRAMS.into_iter().chain(FILES).collect();
    let found = match machine.has(&programs).await {
        Ok(()) => preflight::unpack(&needed).await.map_err(|error| format!("{error:#}")),
        Err(missing) => Err(missing),
    };
    let found = match found {
        Ok(found) => found,
        Err(missing) => return eprintln!("SKIP {name}: {missing}"),
    };
    let folder = tempfile::tempdir().expect("a folder");
    disks(folder.path(), &found);
    let grub = |name, of: &str| {
        let environment = [("GRUB_DISK", of), ("GRUB_INSTALL_PATH", "/dev/vda"), ("FS_TYPE", "ext4")];
        action(name, "quay.io/tinkerbell/actions/grub2disk:latest", &environment)
    };
    let work = vec![grub("nowhere", "/dev/vdb"), grub("grub", "/dev/vda1"), action("restart", "reboot", &[])];
    let (server, address) = Server::start(work).await;
    let attached = [("disk", "virtio-blk-pci"), ("empty", "virtio-blk-pci")];
    let console = machine.run(folder.path(), &machine.arguments(address), &server, &attached).await;
    server.done(Duration::from_secs(1)).await;
    let told = |name| server.result(name).map(|report| report.action_state());
    assert_eq!(told("nowhere"), Some(StateType::Failed), "{console}");
    let installed = message(&server, "grub");
    assert_eq!(told("grub"), Some(StateType::Success), "{installed}\n{console}");
    for line in
        ["command 1 of 2: grub-install", "command 2 of 2: grub-mkconfig", "No error reported", "/boot/vmlinuz-1"]
    {
        assert!(installed.contains(line), "{line}: {installed}");
    }
    let said = started(&folder.path().join("disk")).await;
    assert!(said.contains("GNU GRUB"), "{said}");
}
