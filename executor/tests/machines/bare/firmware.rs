//! What the server's BMC takes of what it is asked, and what its firmware does with it.

use super::{MAC, World};
use jiff::{SignedDuration, Timestamp};
use planner::host::{
    BootChange, BootConfiguration, BootMode, BootOption, BootOverride, BootSource, InstallerIso, MediaUrl, Medium,
    MediumChange, Post, PowerState,
};

pub const DISK: &str = "Boot0001";
pub const NIC: &str = "Boot0002";
/// Of the disk.
pub const PLACE: &str = "PciRoot(0x0)/Sata(0x0,0xFFFF,0x0)";
/// Where BMCs read it.
const ISO: &str = "http://10.88.0.1:7080/iso/{mac}/installer.iso";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Once,
    Always,
    Order,
    Medium,
}

#[derive(Clone, Default)]
pub struct Firmware {
    /// Besides an override for once, the BMC offers one for every boot, and a boot order.
    pub offers_all: bool,
    /// Taken and shown, and not followed.
    pub ignores: Vec<Way>,
    /// The BMC has a virtual CD drive, and boot an ISO of the installer.
    pub has_drive: bool,
    /// What the BMC shows of it, once it was asked for a change.
    pub medium: Medium,
    /// So often it takes a medium, and shows none.
    pub drops: u32,
    /// Of an override for once, the BMC keeps the mode that it had.
    pub stays_legacy: bool,
    /// An order is accepted, and stays as it was.
    pub keeps_order: bool,
    /// A boot order is refused while the host is on.
    pub refuses_order: bool,
    /// What was refused last, and not taken since.
    pub refused: Option<String>,
    /// How long POST takes, as the BMC tells it; `None`: it does not.
    pub post: Option<SignedDuration>,
    pub always: Option<BootOverride>,
    pub order: Vec<String>,
    pub post_over: Option<Timestamp>,
    pub sent_at: Option<Timestamp>,
    /// So often it was told what it does not show.
    pub not_taken: u32,
    /// By which it asked the network, each time that it was started.
    pub asked: Vec<Option<Way>>,
}

impl World {
    pub(super) fn boot(&self) -> BootConfiguration {
        let mut boot = BootConfiguration { next: self.next, always: self.firmware.always, ..Default::default() };
        boot.order = self.order();
        if self.firmware.offers_all {
            let nic = format!("PciRoot(0x0)/Pci(0x3,0x0)/MAC({},0x1)/IPv4(0.0.0.0)", MAC.replace(':', ""));
            let option = |reference: &str, path: &str| BootOption {
                reference: reference.to_owned(),
                display_name: reference.to_owned(),
                uefi_device_path: Some(path.to_owned()),
                enabled: true,
                present: true,
            };
            boot.options = vec![option(DISK, PLACE), option(NIC, &nic)];
            (boot.allowed_next, boot.allowed_always) = (vec![BootSource::Pxe, BootSource::Cd], vec![BootSource::Pxe]);
        }
        boot
    }

    fn order(&self) -> Vec<String> {
        match self.firmware.order.as_slice() {
            [] if self.firmware.offers_all => vec![DISK.to_owned(), NIC.to_owned()],
            [] => vec![DISK.to_owned()],
            order => order.to_vec(),
        }
    }

    pub(super) fn post(&self) -> Post {
        match (self.power, self.firmware.post_over) {
            (PowerState::On, Some(over)) if over > self.now => Post::Running,
            (PowerState::On, Some(_)) => Post::Done,
            _ => Post::Unknown,
        }
    }

    pub(super) fn configure(&mut self, change: &BootChange) {
        (self.firmware.not_taken, self.firmware.sent_at) = (0, Some(self.now));
        let runs = self.power == PowerState::On && self.post() != Post::Running;
        let refused = self.firmware.refuses_order && runs && matches!(change, BootChange::First { .. });
        self.firmware.refused = refused.then(|| "the host is powered on".to_owned());
        if refused {
            return;
        }
        match change {
            BootChange::Next { source, .. } if self.firmware.stays_legacy => {
                self.next = Some(BootOverride { source: *source, mode: Some(BootMode::Legacy) });
                self.firmware.not_taken += 3;
            }
            BootChange::Next { source, mode } => {
                self.next = Some(BootOverride { source: *source, mode: Some(*mode) });
            }
            BootChange::Always { source, mode } => {
                self.firmware.always = Some(BootOverride { source: *source, mode: Some(*mode) });
            }
            BootChange::First { .. } if self.firmware.keeps_order => self.firmware.not_taken += 3,
            BootChange::First { reference } => {
                (self.next, self.firmware.always) = (None, None);
                let mut order = self.order();
                order.retain(|known| known != reference);
                order.insert(0, reference.clone());
                self.firmware.order = order;
            }
            BootChange::Restore { order } => {
                (self.next, self.firmware.always) = (None, None);
                self.firmware.order = order.clone();
            }
        }
    }

    pub(super) fn installer_iso(&self) -> Option<InstallerIso> {
        self.firmware.has_drive.then(|| ISO.parse().expect("an ISO of boot"))
    }

    pub(super) fn insert(&mut self, change: &MediumChange) {
        let there = match change {
            MediumChange::Insert(url) => Medium::Inserted(Some(url.clone())),
            MediumChange::Eject => Medium::Ejected,
        };
        let is_new = self.firmware.medium != there && self.firmware.drops == 0;
        self.firmware.sent_at = Some(self.now);
        self.firmware.drops = self.firmware.drops.saturating_sub(1);
        match is_new {
            true => (self.firmware.medium, self.firmware.not_taken) = (there, 0),
            false => self.firmware.not_taken += 1,
        }
    }

    /// What the firmware does when it starts: whether it boots what `boot` serves.
    pub(super) fn asks_network(&mut self) -> bool {
        self.firmware.post_over = self.firmware.post.map(|takes| self.now + takes);
        let is_pxe = |asked: &BootOverride| asked.source == BootSource::Pxe;
        let next = self.next.take();
        let own = MediaUrl::shown(ISO.replace("{mac}", &MAC.replace(':', "-")));
        let reads_own = self.firmware.medium == Medium::Inserted(Some(own));
        let asked = [
            (Way::Once, next.is_some_and(|next| is_pxe(&next) && next.mode != Some(BootMode::Legacy))),
            (Way::Medium, next.is_some_and(|next| next.source == BootSource::Cd) && reads_own),
            (Way::Always, self.firmware.always.as_ref().is_some_and(is_pxe)),
            (Way::Order, self.order()[0] == NIC),
        ];
        let follows = |(way, asked): &(Way, bool)| *asked && !self.firmware.ignores.contains(way);
        let way = asked.iter().find(|asked| follows(asked)).map(|(way, _)| *way);
        self.firmware.asked.push(way);
        way.is_some()
    }
}
