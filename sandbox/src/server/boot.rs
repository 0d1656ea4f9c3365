//! What the BMC knows about booting: the order, the override, and what each start does to them.
//!
//! The firmware never sees these settings. They decide the `bootindex` of each device, which QEMU hands to the
//! firmware at every reset.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::personality::{BootDisk, Personality, VirtualDrive};

/// What the firmware has boot options of. The numbers are those of the options' references.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BootOption {
    #[serde(rename = "Boot0001")]
    Slot,
    #[serde(rename = "Boot0002")]
    LocalDisk,
    #[serde(rename = "Boot0003")]
    Network,
    /// Another disk of the server, which is in the list alone.
    #[serde(rename = "Boot0004")]
    SecondDisk,
    /// What an installed system has added, of a partition on some disk.
    #[serde(rename = "Boot0005")]
    Installed,
}

impl BootOption {
    pub const ALL: [BootOption; 5] =
        [BootOption::Slot, BootOption::LocalDisk, BootOption::Network, BootOption::SecondDisk, BootOption::Installed];

    pub fn reference(self) -> &'static str {
        match self {
            BootOption::Slot => "Boot0001",
            BootOption::LocalDisk => "Boot0002",
            BootOption::Network => "Boot0003",
            BootOption::SecondDisk => "Boot0004",
            BootOption::Installed => "Boot0005",
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OverrideEnabled {
    #[default]
    Disabled,
    Once,
    Continuous,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OverrideTarget {
    #[default]
    None,
    Pxe,
    Hdd,
    Cd,
    /// Supermicro's word for a virtual CD drive.
    UsbCd,
    BiosSetup,
    UefiTarget,
    UefiBootNext,
}

impl OverrideTarget {
    /// What every BMC takes.
    pub const USUAL: [OverrideTarget; 7] = [
        OverrideTarget::None,
        OverrideTarget::Pxe,
        OverrideTarget::Hdd,
        OverrideTarget::Cd,
        OverrideTarget::BiosSetup,
        OverrideTarget::UefiTarget,
        OverrideTarget::UefiBootNext,
    ];
}

/// The settings, as the BMC keeps them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    pub order: Vec<BootOption>,
    /// What was written and is the firmware's from its next POST on.
    #[serde(default)]
    pub pending: Option<Vec<BootOption>>,
    #[serde(default)]
    pub enabled: OverrideEnabled,
    #[serde(default)]
    pub target: OverrideTarget,
    /// For target `UefiTarget`: the device path.
    #[serde(default)]
    pub uefi_target: Option<String>,
    /// For target `UefiBootNext`.
    #[serde(default)]
    pub boot_next: Option<BootOption>,
    /// There was a disk in the boot slot in the last POST.
    #[serde(default)]
    pub slot_seen: bool,
    /// The firmware does not follow the override for one boot.
    #[serde(default)]
    pub ignores_once: bool,
}

impl Settings {
    /// What the firmware has boot options of.
    pub fn options(&self, personality: &Personality) -> Vec<BootOption> {
        let lists =
            |option: &BootOption| *option != BootOption::Slot || !personality.lists_what_it_saw || self.slot_seen;
        personality.options.iter().copied().filter(lists).collect()
    }

    pub fn factory(personality: &Personality) -> Settings {
        Settings {
            order: personality.factory_boot_order.to_vec(),
            pending: None,
            enabled: OverrideEnabled::Disabled,
            target: OverrideTarget::None,
            uefi_target: None,
            boot_next: None,
            slot_seen: false,
            ignores_once: false,
        }
    }

    /// The order of the next start.
    pub fn effective(&self, personality: &Personality, disk: &BootDisk) -> Vec<BootOption> {
        let mut order = self.pending.as_ref().unwrap_or(&self.order).clone();
        if self.enters_setup() {
            return Vec::new();
        }
        if let Some(first) = self.overridden(personality, disk) {
            order.retain(|option| *option != first);
            order.insert(0, first);
        }
        order
    }

    /// Nothing is booted in the next start.
    pub fn enters_setup(&self) -> bool {
        self.enabled != OverrideEnabled::Disabled && self.target == OverrideTarget::BiosSetup
    }

    /// The next start is from the virtual CD drive, if there is a medium in it.
    pub fn takes_drive(&self, personality: &Personality) -> bool {
        let is_asked = |drive: &VirtualDrive| drive.target == self.target;
        self.enabled != OverrideEnabled::Disabled && personality.drive.as_ref().is_some_and(is_asked)
    }

    fn overridden(&self, personality: &Personality, disk: &BootDisk) -> Option<BootOption> {
        let ignored = self.ignores_once && self.enabled == OverrideEnabled::Once;
        if self.enabled == OverrideEnabled::Disabled || ignored {
            return None;
        }
        match self.target {
            // A CD drive is in no boot order.
            OverrideTarget::None | OverrideTarget::BiosSetup | OverrideTarget::Cd | OverrideTarget::UsbCd => None,
            OverrideTarget::Pxe => Some(BootOption::Network),
            OverrideTarget::Hdd => self.order.iter().copied().find(|option| *option != BootOption::Network),
            OverrideTarget::UefiTarget => {
                let path = self.uefi_target.as_deref()?;
                let has_path = |option: &BootOption| (personality.words)(*option, disk).path.as_deref() == Some(path);
                self.options(personality).into_iter().find(has_path)
            }
            OverrideTarget::UefiBootNext => self.boot_next,
        }
    }

    /// What a start of the host leaves of the settings; `has_slot`: there is a disk in the boot slot.
    pub fn started(&mut self, personality: &Personality, has_slot: bool) {
        if personality.forgets_boot_settings {
            *self = Settings::factory(personality);
            return;
        }
        if let Some(order) = self.pending.take() {
            self.order = order;
        }
        if personality.lists_what_it_saw {
            self.slot_seen = has_slot;
            self.order.retain(|option| has_slot || *option != BootOption::Slot);
            if has_slot && !self.order.contains(&BootOption::Slot) {
                self.order.push(BootOption::Slot);
            }
        }
        if self.enabled == OverrideEnabled::Once {
            self.enabled = OverrideEnabled::Disabled;
            self.target = OverrideTarget::None;
            self.uefi_target = None;
            self.boot_next = None;
        }
    }
}

/// The settings with the file that keeps them over a restart of the BMC.
pub struct Store {
    path: PathBuf,
    pub settings: Settings,
}

impl Store {
    pub fn open(path: &Path, personality: &Personality) -> Result<Store> {
        let settings = match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .with_context(|| format!("understand the boot settings {}", path.display()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Settings::factory(personality),
            Err(error) => return Err(error).with_context(|| format!("read the boot settings {}", path.display())),
        };
        Ok(Store { path: path.to_owned(), settings })
    }

    /// Changes the settings and keeps them; they stay as they were if that fails.
    pub fn change(&mut self, change: impl FnOnce(&mut Settings)) -> Result<()> {
        let mut settings = self.settings.clone();
        change(&mut settings);
        if settings == self.settings {
            return Ok(());
        }
        let fresh = self.path.with_extension("fresh");
        let bytes = serde_json::to_vec_pretty(&settings).context("write the boot settings as JSON")?;
        std::fs::write(&fresh, bytes).with_context(|| format!("write {}", fresh.display()))?;
        std::fs::rename(&fresh, &self.path).with_context(|| format!("replace {}", self.path.display()))?;
        self.settings = settings;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::personality;
    use super::*;

    fn settings(name: &str) -> (&'static Personality, Settings) {
        let personality = personality::by_name(name).expect("known personality");
        (personality, Settings::factory(personality))
    }

    fn disk() -> BootDisk {
        BootDisk { serial: "MP1".to_owned(), eui64: "00-00-00-00-00-00-00-00".to_owned() }
    }

    #[test]
    fn an_override_for_once_is_gone_after_one_start_and_leaves_the_order() {
        let (personality, mut settings) = settings("local-disk");
        settings.enabled = OverrideEnabled::Once;
        settings.target = OverrideTarget::UefiTarget;
        settings.uefi_target = (personality.words)(BootOption::Slot, &disk()).path;
        let effective = |settings: &Settings| settings.effective(personality, &disk());
        assert_eq!(effective(&settings), [BootOption::Slot, BootOption::LocalDisk, BootOption::Network]);
        settings.started(personality, true);
        assert_eq!(effective(&settings), personality.factory_boot_order);
        assert_eq!(settings.enabled, OverrideEnabled::Disabled);
    }

    #[test]
    fn an_override_for_once_may_be_ignored() {
        let (personality, mut settings) = settings("local-disk");
        (settings.enabled, settings.target) = (OverrideEnabled::Once, OverrideTarget::Pxe);
        assert_eq!(settings.effective(personality, &disk())[0], BootOption::Network);
        settings.ignores_once = true;
        assert_eq!(settings.effective(personality, &disk()), personality.factory_boot_order);
        settings.enabled = OverrideEnabled::Continuous;
        assert_eq!(settings.effective(personality, &disk())[0], BootOption::Network);
    }

    #[test]
    fn a_continuous_override_stays() {
        let (personality, mut settings) = settings("standby");
        settings.enabled = OverrideEnabled::Continuous;
        settings.target = OverrideTarget::Hdd;
        settings.started(personality, true);
        assert_eq!(settings.effective(personality, &disk())[0], BootOption::Slot);
    }

    #[test]
    fn the_virtual_drive_is_taken_by_the_target_that_it_has() {
        for (name, targets) in [
            ("bare", [(OverrideTarget::Cd, true), (OverrideTarget::Pxe, false)]),
            ("supermicro", [(OverrideTarget::UsbCd, true), (OverrideTarget::Cd, false)]),
            ("dgx", [(OverrideTarget::Cd, false), (OverrideTarget::UsbCd, false)]),
        ] {
            let (personality, mut settings) = settings(name);
            for (target, taken) in targets {
                settings.target = target;
                settings.enabled = OverrideEnabled::Once;
                assert_eq!(settings.takes_drive(personality), taken, "{name}: {target:?}");
                assert_eq!(settings.effective(personality, &disk()).len(), personality.factory_boot_order.len());
                settings.enabled = OverrideEnabled::Disabled;
                assert!(!settings.takes_drive(personality), "{name}: {target:?}");
            }
        }
    }

    #[test]
    fn a_start_takes_what_is_pending() {
        let (personality, mut settings) = settings("gb200");
        settings.pending = Some(vec![BootOption::Slot, BootOption::Network]);
        assert_eq!(settings.effective(personality, &disk())[0], BootOption::Slot);
        settings.started(personality, true);
        assert_eq!((settings.order[0], settings.pending), (BootOption::Slot, None));
    }

    #[test]
    fn a_forgetful_bmc_forgets_the_order_too() {
        let (personality, mut settings) = settings("forgets-overrides");
        settings.order = vec![BootOption::Slot, BootOption::Network];
        settings.started(personality, true);
        assert_eq!(settings, Settings::factory(personality));
    }

    #[test]
    fn a_disk_is_listed_from_the_post_on_in_which_it_was_there() {
        let (personality, mut settings) = settings("edgeline");
        let lists = |settings: &Settings| settings.options(personality).contains(&BootOption::Slot);
        settings.started(personality, false);
        assert!(!lists(&settings));
        settings.started(personality, true);
        assert!(lists(&settings));
        assert_eq!(settings.order.last(), Some(&BootOption::Slot), "after those that were there before");
        settings.order.rotate_right(1);
        settings.started(personality, true);
        assert_eq!(settings.order.first(), Some(&BootOption::Slot));
        settings.started(personality, false);
        assert!(!lists(&settings) && !settings.order.contains(&BootOption::Slot));
    }

    #[test]
    fn settings_outlive_the_bmc() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("boot.json");
        let (personality, _) = settings("standby");
        let mut store = Store::open(&path, personality).expect("new store");
        store.change(|settings| settings.order = vec![BootOption::Slot]).expect("kept");
        assert_eq!(Store::open(&path, personality).expect("old store").settings.order, [BootOption::Slot]);
    }
}
