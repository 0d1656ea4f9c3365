//! A virtual server (QEMU, emulated) that starts from the installer's kernel and initramfs. QEMU ends when the guest restarts.

use crate::server::Server;
use crate::vlan;
use sandbox::architecture::Architecture;
use sandbox::guest::{BootFiles, Formatters, Target};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::timeout;

pub const MIB: usize = 1 << 20;
/// The host, as QEMU's network shows it to the guest.
pub const HOST: &str = "10.0.2.2";
const LIMIT: Duration = Duration::from_secs(120);

pub fn disk(folder: &Path, name: &str, size: usize) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, vec![0xff; size]).expect("a disk");
    path
}

/// Of the report of an action's result.
pub fn message(server: &Server, name: &str) -> String {
    server.result(name).and_then(|report| report.message).and_then(|message| message.message).unwrap_or_default()
}

/// The virtual server, and the installer for it.
pub struct Machine {
    pub architecture: Architecture,
    installer: PathBuf,
    objcopy: PathBuf,
    qemu: PathBuf,
    pub limit: Duration,
    pub memory_mib: usize,
    /// Its network is this VLAN on its NIC; else that without a tag.
    pub vlan: Option<u16>,
}

impl Machine {
    /// Like this one.
    pub fn here() -> Self {
        Self {
            architecture: Architecture::here(),
            installer: env!("CARGO_BIN_EXE_installer").into(),
            objcopy: "objcopy".into(),
            qemu: format!("qemu-system-{}", Architecture::here().machine()).into(),
            limit: LIMIT,
            memory_mib: 256,
            vlan: None,
        }
    }

    /// Of another architecture: its installer, and the programs for it, are named by variables. Their names, if they are not.
    pub fn arm64() -> Result<Self, String> {
        let names = ["ARM64_INSTALLER", "ARM64_OBJCOPY", "ARM64_QEMU"];
        let [installer, objcopy, qemu] = names.map(|name| std::env::var_os(name).map(PathBuf::from));
        match (installer, objcopy, qemu) {
            (Some(installer), Some(objcopy), Some(qemu)) => Ok(Self {
                architecture: Architecture::Arm64,
                installer,
                objcopy,
                qemu,
                limit: 4 * LIMIT,
                memory_mib: 256,
                vlan: None,
            }),
            _ => Err(format!("{} are not set: `make judges JUDGE=arm64` sets them", names.join(", "))),
        }
    }

    /// What QEMU emulates, and the kernel's name of its console.
    fn board(&self) -> (&'static str, &'static str) {
        match self.architecture {
            Architecture::Amd64 => ("-machine q35 -cpu max", "ttyS0"),
            Architecture::Arm64 => ("-machine virt -cpu cortex-a72", "ttyAMA0"),
        }
    }

    pub fn arguments(&self, server: SocketAddr) -> String {
        format!(
            "console={} loglevel=4 panic=1 edd=off grpc_authority={HOST}:{} tinkerbell_tls=false \
             worker_id=52:54:00:00:00:01 hw_addr=52:54:00:00:00:01",
            self.board().1,
            server.port()
        )
    }

    /// What a test cannot be without; else what is missing.
    pub async fn has(&self, programs: &[(&str, &str)]) -> Result<(), String> {
        let qemu = self.qemu.to_string_lossy();
        let emulator = match self.architecture {
            Architecture::Amd64 => "qemu-system-x86",
            Architecture::Arm64 => "qemu-system-arm",
        };
        for (program, package) in [(&*qemu, emulator), ("objcopy", "binutils")].iter().chain(programs) {
            let version = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            if version.await.is_err() {
                return Err(format!("{program} is not installed (package {package})"));
            }
        }
        Ok(())
    }

    /// What the network serves: written to the folder.
    pub fn files(&self, folder: &Path) -> BootFiles {
        let cache = sandbox::args::cache_folder();
        let target =
            Target { architecture: self.architecture, objcopy: &self.objcopy, formatters: Formatters::OfToday };
        let files = sandbox::guest::installer(&self.installer, target, None, &cache, folder);
        files.expect("the installer's image")
    }

    /// The guest's end, with what its console said. Each disk is a file in the folder, and a device of QEMU's.
    pub async fn run(&self, folder: &Path, arguments: &str, server: &Server, disks: &[(&str, &str)]) -> String {
        let files = self.files(folder);
        let console = folder.join("console");
        let machine = "-nodefaults -no-user-config -display none -no-reboot -accel tcg \
                       -device e1000e,netdev=net,mac=52:54:00:00:00:01,romfile= \
                       -device megasas,id=raid -device ahci,id=sata";
        let mut command = Command::new(&self.qemu);
        command.args(self.board().0.split_whitespace()).args(machine.split_whitespace());
        match self.vlan {
            Some(id) => command.args(vlan::switch(folder, id)),
            None => command.args(["-netdev", "user,id=net"]),
        };
        command.args(["-m", &self.memory_mib.to_string()]);
        command.arg("-kernel").arg(files.kernel).arg("-initrd").arg(files.initramfs);
        command.args(["-append", arguments]).arg("-serial").arg(format!("file:{}", console.display()));
        for (name, device) in disks {
            let path = folder.join(name);
            command.arg("-drive").arg(format!("if=none,format=raw,discard=unmap,id={name},file={}", path.display()));
            command.arg("-device").arg(format!("{device},drive={name},serial={name}"));
        }
        command.stdin(Stdio::null()).kill_on_drop(true);
        let mut guest = command.spawn().expect("QEMU starts");
        let said = || std::fs::read_to_string(&console).unwrap_or_default();
        let Ok(ended) = timeout(self.limit, guest.wait()).await else {
            let limit = self.limit.as_secs();
            panic!("the guest did not restart within {limit} s; reports: {:?}\n{}", server.told(), said())
        };
        assert!(ended.expect("QEMU's end").success(), "{}", said());
        said()
    }
}
