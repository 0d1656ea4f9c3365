//! Kernel modules: the image has those of many servers, of which each one's devices ask for some. A device says by its `modalias` what it
//! is; `modules.alias` says which module is for that, `modules.dep` what that needs first, and `modules.load` what is loaded anyway and
//! with which options (the forms of kmod). What a module brings up is looked at again, until nothing new is there.

use crate::console;
use anyhow::{Context, Result};
use glob::Pattern;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

const FOLDER: &str = "/lib/modules";
const BUSES: &str = "/sys/bus";
/// What is found behind one device is found behind that: a bridge, a controller, its disks.
const ROUNDS: usize = 8;

/// What the image says of its modules.
#[derive(Debug, Default)]
pub struct Index {
    /// What stands before the first wildcard, the whole, and the module.
    aliases: Vec<(String, Pattern, String)>,
    needs: BTreeMap<String, Vec<String>>,
    /// In their order, with their options.
    always: Vec<(String, String)>,
}

impl Index {
    pub fn parse(alias: &str, dep: &str, load: &str) -> Result<Self> {
        let mut index = Self::default();
        for line in alias.lines() {
            let mut words = line.split_whitespace().skip(1);
            let (Some(pattern), Some(module)) = (words.next(), words.next()) else { continue };
            let plain = pattern.split(['*', '?', '[']).next().unwrap_or_default().to_owned();
            let whole = Pattern::new(pattern).with_context(|| format!("modules.alias: {pattern}"))?;
            index.aliases.push((plain, whole, module.to_owned()));
        }
        for line in dep.lines() {
            let Some((module, needed)) = line.split_once(':') else { continue };
            index.needs.insert(name_of(module), needed.split_whitespace().map(name_of).collect());
        }
        let always = load.lines().map(|line| line.split_once(' ').unwrap_or((line, "")));
        index.always = always.map(|(module, options)| (module.to_owned(), options.to_owned())).collect();
        Ok(index)
    }

    /// Which modules are for a device.
    pub fn of_device(&self, modalias: &str) -> impl Iterator<Item = &str> {
        let found =
            self.aliases.iter().filter(move |(plain, whole, _)| modalias.starts_with(plain) && whole.matches(modalias));
        found.map(|(.., module)| module.as_str())
    }

    /// A module after what it needs.
    pub fn in_order(&self, module: &str) -> Vec<String> {
        let mut order = Vec::new();
        self.visit(module, &mut BTreeSet::new(), &mut order);
        order
    }

    fn visit(&self, module: &str, seen: &mut BTreeSet<String>, order: &mut Vec<String>) {
        // One that is not in the image is a part of the kernel.
        let Some(needs) = self.needs.get(module) else { return };
        if seen.insert(module.to_owned()) {
            needs.iter().for_each(|needed| self.visit(needed, seen, order));
            order.push(module.to_owned());
        }
    }
}

fn name_of(file: &str) -> String {
    file.strip_suffix(".ko").unwrap_or(file).to_owned()
}

/// The modules of an image on the machine that runs it.
pub struct Modules {
    folder: PathBuf,
    index: Index,
    loaded: BTreeSet<String>,
    seen: BTreeSet<String>,
}

impl Modules {
    pub fn of_this_image() -> Result<Self> {
        let folder = PathBuf::from(FOLDER);
        let read = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
        };
        let index = Index::parse(&read("modules.alias")?, &read("modules.dep")?, &read("modules.load")?)?;
        Ok(Self { folder, index, loaded: BTreeSet::new(), seen: BTreeSet::new() })
    }

    /// One that this machine has no use for may refuse (`NoDevice`); it is told and passed over.
    pub fn load(&mut self) -> Result<()> {
        for (module, options) in std::mem::take(&mut self.index.always) {
            self.with_needs(&module, &options)?;
        }
        for _ in 0..ROUNDS {
            let new: Vec<_> =
                devices(Path::new(BUSES)).into_iter().filter(|device| !self.seen.contains(device)).collect();
            if new.is_empty() {
                return Ok(());
            }
            for device in new {
                let modules: Vec<_> = self.index.of_device(&device).map(str::to_owned).collect();
                self.seen.insert(device);
                modules.iter().try_for_each(|module| self.with_needs(module, ""))?;
            }
        }
        Ok(())
    }

    /// One that no device asks for.
    pub fn named(&mut self, module: &str) -> Result<()> {
        self.with_needs(module, "")
    }

    fn with_needs(&mut self, wanted: &str, options: &str) -> Result<()> {
        for module in self.index.in_order(wanted) {
            if !self.loaded.insert(module.clone()) {
                continue;
            }
            let path = self.folder.join(format!("{module}.ko"));
            let file = File::open(&path).with_context(|| format!("open {}", path.display()))?;
            let options = if module == wanted { options } else { "" };
            match rustix::system::finit_module(&file, &CString::new(options)?, 0) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => console::say(format_args!("the kernel did not take {}: {error}", path.display())),
            }
        }
        Ok(())
    }
}

/// What the devices of all buses are.
fn devices(buses: &Path) -> BTreeSet<String> {
    let list =
        |path: &Path| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect::<Vec<_>>();
    let devices = list(buses).into_iter().flat_map(|bus| list(&bus.join("devices")));
    let said = devices.filter_map(|device| fs::read_to_string(device.join("modalias")).ok());
    said.map(|said| said.trim().to_owned()).filter(|said| !said.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALIAS: &str = "alias pci:v00008086d000010D3sv*sd*bc*sc*i* e1000e\n\
        alias pci:v*d*sv*sd*bc01sc08i02* nvme\n\
        alias scsi:t-0x00* sd_mod\n\
        alias cpu:type:x86,ven*fam*mod*:feature:*0094* crc32c_intel\n\
        alias usb:v0BDAp8152d*dc*dsc*dp*ic[Ff][Ff]isc*ip*in* r8152\n";
    const DEP: &str = "e1000e.ko: ptp.ko\nptp.ko: pps_core.ko\npps_core.ko:\nnvme.ko: nvme_core.ko\nnvme_core.ko: nvme_common.ko\n\
        nvme_common.ko:\nsd_mod.ko: scsi_mod.ko\nscsi_mod.ko:\ncrc32c_intel.ko:\n";

    fn index() -> Index {
        Index::parse(ALIAS, DEP, "scsi_mod scan=sync\nsd_mod\n").expect("an index")
    }

    #[test]
    fn a_device_asks_for_its_module() {
        let index = index();
        let of = |device| index.of_device(device).collect::<Vec<_>>();
        assert_eq!(of("pci:v00008086d000010D3sv00008086sd00000000bc02sc00i00"), ["e1000e"]);
        assert_eq!(of("pci:v00001B36d00000010sv00001AF4sd00001100bc01sc08i02"), ["nvme"], "by its class");
        assert_eq!(of("pci:v00008086d000010D4sv00008086sd00000000bc02sc00i00"), [""; 0]);
        assert_eq!(of("cpu:type:x86,ven0000fam0006mod0006:feature:,0000,0094,0096"), ["crc32c_intel"]);
        assert_eq!(of("usb:v0BDAp8152d0100dc00dsc00dp00icFFisc00ip00in00"), ["r8152"]);
    }

    #[test]
    fn a_module_comes_after_what_it_needs() {
        let index = index();
        assert_eq!(index.in_order("e1000e"), ["pps_core", "ptp", "e1000e"]);
        assert_eq!(index.in_order("nvme"), ["nvme_common", "nvme_core", "nvme"]);
        assert_eq!(index.in_order("builtin"), [""; 0]);
        assert_eq!(index.always[0], ("scsi_mod".to_owned(), "scan=sync".to_owned()));
        let circle = Index::parse("", "a.ko: b.ko\nb.ko: a.ko\n", "").expect("an index");
        assert_eq!(circle.in_order("a"), ["b", "a"]);
    }

    #[test]
    fn devices_are_found_on_every_bus() {
        let buses = tempfile::tempdir().expect("a folder");
        for (device, modalias) in [
            ("pci/devices/0000:00:01.0", "pci:x\n"),
            ("scsi/devices/0:0:0:0", "scsi:t-0x00\n"),
            ("scsi/devices/host0", ""),
        ] {
            let folder = buses.path().join(device);
            fs::create_dir_all(&folder).expect("made");
            fs::write(folder.join("modalias"), modalias).expect("written");
        }
        fs::create_dir_all(buses.path().join("empty")).expect("made");
        assert_eq!(devices(buses.path()), ["pci:x".to_owned(), "scsi:t-0x00".to_owned()].into());
    }
}
