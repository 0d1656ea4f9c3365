//! The modules of Debian's full kernel by which the installer finds NICs and disks of servers: those that are listed here, and what they
//! need. Left out are drivers that want firmware of Debian's non-free part (bnx2, bnx2x, qed, nfp) or a file on the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use goblin::elf::Elf;

use super::kernel::Kernel;
use crate::architecture::Architecture;

pub const RECIPE: &str = include_str!("hardware.rs");

/// Below `kernel/`, without the extension: those of every architecture.
const COMMON: &[&str] = &[
    // Virtual servers.
    "drivers/virtio/virtio_pci",
    "drivers/net/virtio_net",
    "drivers/block/virtio_blk",
    "drivers/scsi/virtio_scsi",
    "drivers/char/hw_random/virtio-rng",
    // Disks.
    "drivers/nvme/host/nvme",
    "drivers/ata/ahci",
    "drivers/scsi/sd_mod",
    "drivers/scsi/megaraid/megaraid_sas",
    "drivers/scsi/mpt3sas/mpt3sas",
    "drivers/scsi/mpi3mr/mpi3mr",
    "drivers/scsi/smartpqi/smartpqi",
    "drivers/scsi/hpsa",
    "drivers/scsi/aacraid/aacraid",
    // NICs.
    "drivers/net/ethernet/intel/e1000e/e1000e",
    "drivers/net/ethernet/intel/igb/igb",
    "drivers/net/ethernet/intel/igc/igc",
    "drivers/net/ethernet/intel/ixgbe/ixgbe",
    "drivers/net/ethernet/intel/i40e/i40e",
    "drivers/net/ethernet/intel/iavf/iavf",
    "drivers/net/ethernet/intel/ice/ice",
    "drivers/net/ethernet/broadcom/tg3",
    "drivers/net/ethernet/broadcom/bnxt/bnxt_en",
    "drivers/net/ethernet/mellanox/mlx4/mlx4_en",
    "drivers/net/ethernet/mellanox/mlx5/core/mlx5_core",
    "drivers/net/ethernet/chelsio/cxgb4/cxgb4",
    "drivers/net/ethernet/amazon/ena/ena",
    "drivers/net/ethernet/aquantia/atlantic/atlantic",
    "drivers/net/ethernet/realtek/r8169",
    "drivers/net/ethernet/sfc/sfc",
    // Tagged networks.
    "net/8021q/8021q",
    // What actions mount; the tables are those in which Debian's vfat has its names.
    "fs/ext4/ext4",
    "fs/xfs/xfs",
    "fs/fat/vfat",
    "fs/nls/nls_cp437",
    // What a UEFI firmware would boot.
    "fs/efivarfs/efivarfs",
    "fs/nls/nls_ascii",
    "crypto/crc32c_generic",
];

const AMD64: &[&str] = &[
    "arch/x86/crypto/crc32c-intel",
    "drivers/acpi/button",
    "drivers/ata/ata_piix",
    "drivers/hv/hv_vmbus",
    "drivers/net/hyperv/hv_netvsc",
    "drivers/scsi/hv_storvsc",
    "drivers/net/vmxnet3/vmxnet3",
    "drivers/scsi/vmw_pvscsi",
    "drivers/pci/controller/vmd",
    "drivers/scsi/arcmsr/arcmsr",
    "drivers/scsi/isci/isci",
    "drivers/net/ethernet/amd/xgbe/amd-xgbe",
    "drivers/net/ethernet/cisco/enic/enic",
    "drivers/net/ethernet/emulex/benet/be2net",
    "drivers/net/ethernet/google/gve/gve",
    "drivers/net/ethernet/huawei/hinic/hinic",
    "drivers/net/ethernet/intel/e1000/e1000",
    "drivers/net/ethernet/intel/ixgbevf/ixgbevf",
];

const ARM64: &[&str] = &[
    "drivers/ata/ahci_platform",
    "drivers/net/ethernet/amd/xgbe/amd-xgbe",
    "drivers/net/ethernet/cavium/thunder/nicvf",
    "drivers/net/ethernet/cavium/thunder/nicpf",
    "drivers/net/ethernet/hisilicon/hns3/hns3",
    "drivers/net/ethernet/hisilicon/hns3/hclge",
    "drivers/scsi/hisi_sas/hisi_sas_v3_hw",
];

/// What no device asks for, or should be there before it does; with options. SCSI hosts are searched before the module's load returns, so
/// no disk comes late.
const LOAD: &str = "scsi_mod scan=sync\nsd_mod\ncrc32c_generic\next4\nxfs\nnls_cp437\nnls_ascii\nvfat\n";

/// Writes to `folder` what the installer reads: each module as `NAME.ko`, and `modules.dep`, `modules.alias` and `modules.load` in the
/// forms of kmod (modules.dep(5), modules-load.d(5)).
pub(super) fn write_modules(kernel: &Kernel, architecture: Architecture, folder: &Path) -> Result<()> {
    let all = paths(kernel.modules())?;
    let own = match architecture {
        Architecture::Amd64 => AMD64,
        Architecture::Arm64 => ARM64,
    };
    let mut wanted = Vec::new();
    for module in COMMON.iter().chain(own) {
        let path = kernel.modules().join(format!("{module}.ko"));
        ensure!(path.exists(), "the kernel has no module {module} for {architecture}: look for it in another folder");
        wanted.push(name_of(&path));
    }
    let (mut needs, mut aliases) = (BTreeMap::new(), BTreeSet::new());
    while let Some(name) = wanted.pop() {
        if needs.contains_key(&name) {
            continue;
        }
        let path = all.get(&name).with_context(|| format!("the kernel has no module {name}"))?;
        let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        let about = about(&bytes).with_context(|| format!("read {}", path.display()))?;
        let of = |key| about.iter().filter_map(move |line| line.strip_prefix(key));
        let depends = of("depends=").flat_map(|names| names.split(',')).filter(|name| !name.is_empty());
        // What would be loaded before it, where the kernel has that, is needed by it here.
        let before = of("softdep=").filter_map(|line| line.split_once("pre:")?.1.split("post:").next());
        let before = before.flat_map(str::split_whitespace).filter(|name| all.contains_key(&underscored(name)));
        let needed: Vec<String> = depends.chain(before).map(underscored).collect();
        aliases.extend(of("alias=").map(|alias| format!("alias {alias} {name}")));
        let copy = folder.join(format!("{name}.ko"));
        fs::write(&copy, &bytes).with_context(|| format!("write {}", copy.display()))?;
        wanted.extend(needed.iter().cloned());
        needs.insert(name, needed);
    }
    let needs = needs.iter().map(|(name, needed)| {
        let needed: String = needed.iter().map(|name| format!(" {name}.ko")).collect();
        format!("{name}.ko:{needed}\n")
    });
    let aliases = aliases.iter().map(|line| format!("{line}\n"));
    for (name, text) in
        [("modules.dep", needs.collect()), ("modules.alias", aliases.collect()), ("modules.load", LOAD.to_owned())]
    {
        fs::write(folder.join(name), text).with_context(|| format!("write {name}"))?;
    }
    Ok(())
}

/// All modules of a kernel, by their names.
fn paths(folder: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))? {
            let path = entry.with_context(|| format!("list {}", folder.display()))?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "ko") {
                found.insert(name_of(&path), path);
            }
        }
    }
    Ok(found)
}

fn name_of(path: &Path) -> String {
    underscored(&path.file_stem().unwrap_or_default().to_string_lossy())
}

/// A dash of a file's name is an underscore of the module's.
fn underscored(name: &str) -> String {
    name.replace('-', "_")
}

/// `key=value` of a module's section `.modinfo`.
fn about(module: &[u8]) -> Result<Vec<String>> {
    let elf = Elf::parse(module).context("it is no ELF file")?;
    let section =
        elf.section_headers.iter().find(|section| elf.shdr_strtab.get_at(section.sh_name) == Some(".modinfo"));
    let section = section.context("it has no .modinfo")?;
    let range = section.file_range().context(".modinfo is empty")?;
    let text = module.get(range).context(".modinfo ends behind the file")?;
    Ok(text.split(|byte| *byte == 0).map(|line| String::from_utf8_lossy(line).into_owned()).collect())
}
