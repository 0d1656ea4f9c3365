//! What an action of Tinkerbell's asks of a BMC.

use crate::host::{
    BootChange, BootConfiguration, BootMode, BootOverride, BootSource, HostObserved, MediaUrl, MediumChange,
    PowerAction,
};
use api::tinkerbell::action::{BmcAction, PowerAction as Asked, VirtualMediaAction};

/// One request of the port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    Power(PowerAction),
    Boot(BootChange),
    Medium(MediumChange),
}

/// What an action wants to be so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wish {
    On,
    Off,
    /// As the guest's operating system is asked.
    SoftOff,
    /// Off, then on: each is read.
    Cycle,
    Reset,
    /// A reading, and nothing else.
    Status,
    Boot {
        source: BootSource,
        persistent: bool,
        mode: Option<BootMode>,
    },
    Medium(MediumChange),
}

/// `Err`: what is not served, and what to write.
pub(super) fn wish(action: &BmcAction) -> Result<Wish, String> {
    if let Some(power) = action.power_action {
        return Ok(match power {
            Asked::On => Wish::On,
            Asked::Off => Wish::Off,
            Asked::Soft => Wish::SoftOff,
            Asked::Cycle => Wish::Cycle,
            Asked::Reset => Wish::Reset,
            Asked::Status => Wish::Status,
        });
    }
    if let Some(once) = &action.one_time_boot_device_action {
        let device =
            once.device.first().ok_or("oneTimeBootDeviceAction.device is empty: write pxe, disk, cdrom or bios")?;
        return boot("oneTimeBootDeviceAction.device", device, false, once.efi_boot);
    }
    if let Some(boot_device) = &action.boot_device {
        let device = boot_device.device.as_deref().unwrap_or_default();
        return boot("bootDevice.device", device, boot_device.persistent == Some(true), boot_device.efi_boot);
    }
    if let Some(media) = &action.virtual_media_action {
        return medium(media).map(Wish::Medium);
    }
    Err("the action is empty: write powerAction, bootDevice, oneTimeBootDeviceAction or virtualMediaAction".to_owned())
}

fn medium(media: &VirtualMediaAction) -> Result<MediumChange, String> {
    if media.kind != "CD" {
        return Err(format!("virtualMediaAction.kind: '{}' is not served. Next: write CD", media.kind));
    }
    match media.media_url.as_deref().filter(|url| !url.is_empty()) {
        None => Ok(MediumChange::Eject),
        // It is not repeated: it may hold a password.
        Some(url) => MediaUrl::parse(url).map(MediumChange::Insert).ok_or_else(|| {
            "virtualMediaAction.mediaURL is no URL of an image. Next: write scheme://host/path, as in http://images.example/debian.iso; \
             or leave it empty, and the medium is ejected"
                .to_owned()
        }),
    }
}

fn boot(field: &str, device: &str, persistent: bool, efi: Option<bool>) -> Result<Wish, String> {
    let source = match device {
        "pxe" => BootSource::Pxe,
        "disk" => BootSource::Hdd,
        "cdrom" => BootSource::Cd,
        "bios" => BootSource::Setup,
        "safe" => {
            return Err(format!("{field}: safe is no boot source of Redfish. Next: write pxe, disk, cdrom or bios"));
        }
        other => return Err(format!("{field}: '{other}' is no boot device. Next: write pxe, disk, cdrom or bios")),
    };
    let mode = efi.map(|efi| if efi { BootMode::Uefi } else { BootMode::Legacy });
    Ok(Wish::Boot { source, persistent, mode })
}

/// Where no `efiBoot` is written the mode stays as the BMC shows it.
pub(super) fn change(wish: &Wish, boot: &BootConfiguration) -> Option<BootChange> {
    let Wish::Boot { source, persistent, mode } = wish else { return None };
    let told = boot.next.or(boot.always).and_then(|overriding| overriding.mode);
    let (source, mode) = (*source, mode.or(told).unwrap_or(BootMode::Uefi));
    Some(if *persistent { BootChange::Always { source, mode } } else { BootChange::Next { source, mode } })
}

/// The BMC shows what was wished for.
pub(super) fn shows(host: &HostObserved, change: &BootChange) -> bool {
    let (overriding, source, mode) = match change {
        BootChange::Next { source, mode } => (host.boot.next, *source, *mode),
        BootChange::Always { source, mode } => (host.boot.always, *source, *mode),
        BootChange::First { .. } | BootChange::Restore { .. } => return false,
    };
    overriding.is_some_and(|there| fits(there, source, mode))
}

/// What was wished for once stands there for good. Some BMCs have one setting, and tell it as continuous whatever they were asked:
/// sushy-tools does, in front of libvirt as with its fake systems.
pub(super) fn shows_for_good(host: &HostObserved, change: &BootChange) -> bool {
    let BootChange::Next { source, mode } = change else { return false };
    host.boot.next.is_none() && host.boot.always.is_some_and(|there| fits(there, *source, *mode))
}

fn fits(there: BootOverride, source: BootSource, mode: BootMode) -> bool {
    there.source == source && there.mode.is_none_or(|told| told == mode)
}
