//! The machine: QEMU in the clients' namespace, at one of its cables by a bridge.

use super::site::Folder;
use super::{Running, US};
use crate::site::{self, client};
use std::process::Command;

/// What is asked first after power-on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Firmware {
    /// OVMF, PXE.
    UefiPxe,
    /// OVMF, HTTP boot.
    UefiHttp,
    /// OVMF, a virtual CD of that name whose content comes by HTTP in parts, as a BMC's does.
    UefiCd(&'static str),
    /// SeaBIOS, and the iPXE in the NIC's ROM.
    Bios,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cable {
    /// To the provisioning network.
    Direct,
    /// To a network behind a relay.
    Relayed,
}

pub const OVMF: [&str; 2] = ["/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"];
/// Of the package qemu-block-extra: disks by HTTP.
pub const CURL_MODULE: &str = "/usr/lib/x86_64-linux-gnu/qemu/block-curl.so";

pub struct Server {
    pub firmware: Firmware,
    pub cable: Cable,
    pub mac: &'static str,
}

impl Server {
    pub async fn is_cabled(&self) {
        let interface = match self.cable {
            Cable::Direct => "eth0",
            Cable::Relayed => "eth1",
        };
        for words in [
            "ip link add br0 type bridge forward_delay 0",
            &format!("ip link set {interface} master br0"),
            "ip tuntap add tap0 mode tap",
            "ip link set tap0 master br0",
            "ip link set br0 up",
            "ip link set tap0 up",
        ] {
            let done = client(&words.split(' ').collect::<Vec<_>>()).await;
            assert!(done.status.success(), "{words}: {done:?}");
        }
        if matches!(self.firmware, Firmware::UefiCd(_)) {
            // The BMC's, whose virtual CD is read over HTTP.
            let done = client(&["ip", "addr", "add", "10.88.0.250/24", "dev", "br0"]).await;
            assert!(done.status.success(), "the BMC's address: {done:?}");
        }
    }

    /// Switched on; off when the value ends. Its disk and the variables of its firmware stay.
    pub fn start(&self, folder: &Folder) -> Running {
        let namespace = site::clients().expect("inside");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &namespace, "qemu-system-x86_64"]).args(self.arguments(folder));
        if let Some(modules) = folder.modules() {
            command.env("QEMU_MODULE_DIR", modules.0).env("LD_LIBRARY_PATH", modules.1);
        }
        Running::start(&mut command, &folder.file("qemu.log"))
    }

    fn arguments(&self, folder: &Folder) -> Vec<String> {
        // Two processors that there might be: QEMU 7 leaves barriers out of what it translates for one.
        let machine = "-nodefaults -no-user-config -display none -machine q35 -accel tcg,thread=multi -cpu max -m 512 \
                       -smp 1,maxcpus=2 -device virtio-rng-pci -netdev tap,id=net,ifname=tap0,script=no,downscript=no \
                       -device nvme,drive=disk,serial=disk-1,bootindex=2";
        let mut all: Vec<String> = machine.split_whitespace().map(str::to_owned).collect();
        let mut add = |words: &[String]| all.extend_from_slice(words);
        let file = |name: &str| folder.file(name).display().to_string();
        add(&["-drive".to_owned(), format!("if=none,id=disk,format=raw,discard=unmap,file={}", file("disk.raw"))]);
        // Of every start.
        add(&["-chardev".to_owned(), format!("file,id=console,append=on,path={}", file("console"))]);
        add(&["-serial".to_owned(), "chardev:console".to_owned()]);
        let rom = if self.firmware == Firmware::Bios { "" } else { ",romfile=" };
        let boots = if matches!(self.firmware, Firmware::UefiCd(_)) { "" } else { ",bootindex=1" };
        add(&["-device".to_owned(), format!("virtio-net-pci,netdev=net,mac={}{rom}{boots}", self.mac)]);
        if self.firmware != Firmware::Bios {
            add(&["-drive".to_owned(), format!("if=pflash,format=raw,readonly=on,file={}", OVMF[0])]);
            add(&["-drive".to_owned(), format!("if=pflash,format=raw,file={}", file("variables.fd"))]);
        }
        let off: &[&str] = match self.firmware {
            Firmware::Bios => &[],
            Firmware::UefiPxe => &["IPv6PXESupport", "IPv6Support"],
            Firmware::UefiHttp | Firmware::UefiCd(_) => &["IPv4PXESupport", "IPv6PXESupport", "IPv6Support"],
        };
        for name in off {
            add(&["-fw_cfg".to_owned(), format!("name=opt/org.tianocore/{name},string=n")]);
        }
        if let Firmware::UefiCd(name) = self.firmware {
            let iso = format!("http://{US}:7080/iso/{}/{name}", self.mac.replace(':', "-"));
            add(&["-drive".to_owned(), format!("if=none,id=cd,media=cdrom,readonly=on,format=raw,file={iso}")]);
            add(&["-device".to_owned(), "ide-cd,drive=cd,bootindex=1".to_owned()]);
        }
        all
    }
}
