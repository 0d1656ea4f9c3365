//! The boot order: the option of the DPU's boot disk first, persistently, read back, and again before every start.
//!
//! Which option that is [`crate::boot_option`] decides, or says why a person has to. A one-time override would not survive
//! the guest's own reboot. An order that the firmware takes over in its next POST is enough for a power-on: that is a POST.
//! It is looked at again afterwards. What was first before is remembered at the Hardware and put back at release.

use super::draft::Draft;
use super::medium;
use super::observed::Belongings;
use super::plan::{Action, Disruptive};
use super::prepare::{ATTEMPTS, Asked, fresh, remember, send};
use super::situation::{Host, Owned, is_bare, unread};
use crate::boot_option::{self, Choice, Learnt, Own, Refusal};
use crate::host::{BmcNeed, BootChange, BootConfiguration, BootMode, BootOption, BootSource, HostObserved, Lack, Post};
use crate::meta::{annotation, name};
use crate::reason::{Blocked, Failed, Reason, Waiting};
use api::machine::InstalledDisk;
use api::tinkerbell::Hardware;
use api::{labels, names};
use jiff::{SignedDuration, Timestamp};

/// The namespace that is presented in the boot slot, where the DPU's agent does not tell.
const BOOT_NSID: u32 = 1;

/// A BMC that refuses an order while its host runs is asked again after so long.
const REFUSED: SignedDuration = SignedDuration::from_mins(5);

/// What identifies the boot disk of the DPU. `learnt`: where it was found before.
fn own(host: Host<'_>, learnt: Option<String>) -> Own {
    let told = host.dpu.dpu.status.as_ref().and_then(|status| status.boot_controller.as_ref());
    let interfaces = host.hardware.spec.interfaces.iter();
    let macs = interfaces.filter_map(|interface| bytes(interface.dhcp.as_ref()?.mac.as_deref()?, ':'));
    Own {
        serial: Some(controller(host)),
        eui64: told.and_then(|told| u64::from_str_radix(told.eui64.as_deref()?, 16).ok()).map(u64::to_be_bytes),
        nsid: told.map_or(BOOT_NSID, |told| told.namespace_id),
        macs: macs.collect(),
        pci_address: told.and_then(|told| pci_address(told.pci_address.as_deref()?)),
        learnt,
    }
}

/// The serial number of the DPU's boot controller: as its agent reports it, or as agents make it.
fn controller(host: Host<'_>) -> String {
    let told = host.dpu.dpu.status.as_ref().and_then(|status| status.boot_controller.as_ref());
    told.map_or_else(|| names::boot_serial(host.dpu.name()), |told| told.serial_number.clone())
}

pub(super) fn bytes<const N: usize>(text: &str, separator: char) -> Option<[u8; N]> {
    let bytes: Option<Vec<u8>> = text.split(separator).map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    bytes?.try_into().ok()
}

/// `26:00.2`, with or without a domain before it.
fn pci_address(text: &str) -> Option<(u8, u8, u8)> {
    let (rest, function) = text.rsplit_once('.')?;
    let [bus, device] = bytes(rest.get(rest.len().checked_sub(5)?..)?, ':')?;
    Some((bus, device, function.parse().ok()?))
}

/// Whether the firmware could see the boot disk in a POST.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disk {
    NotPresented,
    Presented,
    /// It is presented, and the host may be started for that.
    MayBeShown,
    /// By a DPU that gets its power with the host: not before that is on. Whether nothing else forbids the power-on.
    ComesWithPower {
        starts: bool,
    },
}

/// Where the boot disk was found before, if that still counts.
fn learnt(host: Host<'_>, seen: &HostObserved) -> Option<Learnt> {
    let record = annotation(&host.hardware.metadata, labels::BOOT_PATH);
    record.and_then(Learnt::parse).filter(|learnt| learnt.holds(Some(&controller(host)), seen))
}

fn named(host: Host<'_>) -> Option<&str> {
    annotation(&host.hardware.metadata, labels::BOOT_OPTION)
}

/// The firmware lists the boot disk, or what may be the boot disk.
pub(super) fn is_listed(host: Host<'_>, seen: &HostObserved) -> bool {
    let own = own(host, learnt(host, seen).map(|learnt| learnt.path));
    boot_option::choose(named(host), &own, &seen.boot.options) != Err(Refusal::NotListed)
}

/// The firmware may list the boot disk once it has seen that in a POST: nobody names an option, and it lists devices, not classes of them.
pub(super) fn may_be_unseen(host: Host<'_>, seen: &HostObserved) -> bool {
    let helps = missing(seen).is_none() && named(host).is_none() && !boot_option::are_classes(&seen.boot.options);
    helps && !is_listed(host, seen)
}

/// The option of the boot disk. Where the disk was found stays on record.
fn chosen(host: Host<'_>, seen: &HostObserved, draft: &mut Draft) -> (Own, Result<Choice, Refusal>) {
    let record = annotation(&host.hardware.metadata, labels::BOOT_PATH);
    let learnt = learnt(host, seen);
    let own = own(host, learnt.as_ref().map(|learnt| learnt.path.clone()));
    let choice = boot_option::choose(named(host), &own, &seen.boot.options);
    let proven = match &choice {
        Ok(Choice::Option { path: Some(path), .. }) => Some(Learnt::new(path.clone(), Some(&controller(host)), seen)),
        _ => None,
    };
    let path = proven.or(learnt).map(|learnt| learnt.to_string());
    if path.as_deref() != record {
        draft.act(Action::RememberBootPath { name: host.name().to_owned(), path });
    }
    (own, choice)
}

/// What a look for the boot disk in the firmware's list finds.
pub(super) enum Found {
    Listed,
    /// It is not there, or not yet.
    Unlisted(Reason),
    /// No look at the list will find it.
    Nobody(Reason),
}

/// Looks for the boot disk, and keeps where it was found. Nothing is changed at the BMC.
pub(super) fn find(host: Host<'_>, seen: &HostObserved, draft: &mut Draft) -> Found {
    let (own, choice) = chosen(host, seen, draft);
    match choice {
        Ok(_) => Found::Listed,
        Err(Refusal::NotListed) => {
            Found::Unlisted(refused(host, Refusal::NotListed, named(host), &own, &seen.boot.options))
        }
        Err(refusal) => Found::Nobody(refused(host, refusal, named(host), &own, &seen.boot.options)),
    }
}

/// The next start is into the firmware's setup; `None`: it is so, as the BMC last showed.
pub(super) fn into_setup(o: &Owned<'_>, host: Host<'_>, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    made(o, host.hardware, BootChange::Next { source: BootSource::Setup, mode: BootMode::Uefi }, now, draft)
}

/// What makes the host boot from its DPU.
fn wanted(host: Host<'_>, seen: &HostObserved, disk: Disk, draft: &mut Draft) -> Result<BootChange, Reason> {
    let (hardware, boot) = (host.name().to_owned(), &seen.boot);
    let first = |reference: String| BootChange::First { reference };
    let named = named(host);
    if let Some(named) = named.filter(|named| boot.order.iter().any(|reference| reference == named)) {
        return Ok(first(named.to_owned()));
    }
    let (own, choice) = chosen(host, seen, draft);
    let lacks = |lacks: String| -> Result<BootChange, Reason> {
        Err(Blocked::BootOrderUnsupported { hardware: hardware.clone(), lacks }.into())
    };
    match choice {
        Ok(Choice::AnyDisk) if boot.allowed_always.contains(&BootSource::Hdd) => {
            Ok(BootChange::Always { source: BootSource::Hdd, mode: BootMode::Uefi })
        }
        Ok(Choice::AnyDisk) => lacks("continuous boot source override to Hdd".to_owned()),
        _ if missing(seen).is_some() => lacks(missing(seen).unwrap_or_default()),
        Ok(Choice::Option { reference, .. }) => Ok(first(reference)),
        Err(Refusal::NotListed) if disk == Disk::NotPresented => Err(Waiting::AttachmentsFirst {}.into()),
        Err(Refusal::NotListed) if disk == Disk::MayBeShown => {
            Ok(BootChange::Next { source: BootSource::Setup, mode: BootMode::Uefi })
        }
        Err(refusal) => Err(refused(host, refusal, named, &own, &boot.options)),
    }
}

/// Why the BMC cannot be told an order; `None`: it can.
pub(super) fn missing(seen: &HostObserved) -> Option<String> {
    let lacks = [Lack::BootOptions, Lack::BootOrder].into_iter().filter(|lack| seen.lacks(*lack));
    let lacks: Vec<&str> = lacks.map(Lack::noun).collect();
    (!lacks.is_empty()).then(|| lacks.join(" and no "))
}

fn refused(host: Host<'_>, refusal: Refusal, named: Option<&str>, own: &Own, options: &[BootOption]) -> Reason {
    let (hardware, dpu) = (host.name().to_owned(), host.dpu.name().to_owned());
    match (refusal, named) {
        (Refusal::Ambiguous(rule, options), _) => {
            Blocked::BootOptionAmbiguous { hardware, dpu, rule: rule.words(), options: list(&options) }.into()
        }
        (Refusal::NotListed, Some(named)) => {
            Blocked::BootOptionUnknown { hardware, named: named.to_owned(), options: list(options) }.into()
        }
        (Refusal::NotListed, None) => {
            Blocked::BootOptionNotListed { hardware, dpu, disk: disk(own), options: list(options) }.into()
        }
    }
}

/// What the firmware would have to show.
fn disk(own: &Own) -> String {
    let eui64 = own.eui64.map(|bytes| bytes.map(|byte| format!("{byte:02X}")).join("-"));
    let eui64 = eui64.map(|eui64| format!(", EUI-64 {eui64}")).unwrap_or_default();
    format!("serial number {}{eui64}, namespace {}", own.serial.as_deref().unwrap_or_default(), own.nsid)
}

fn list(options: &[BootOption]) -> String {
    if options.is_empty() {
        return "none".to_owned();
    }
    let option = |option: &BootOption| {
        let path = option.uefi_device_path.as_ref().map(|path| format!(" at {path}")).unwrap_or_default();
        let disabled = if option.enabled { "" } else { " (disabled)" };
        format!("{} \"{}\"{path}{disabled}", option.reference, option.display_name)
    };
    options.iter().map(option).collect::<Vec<_>>().join("; ")
}

pub(super) fn is_so(change: &BootChange, boot: &BootConfiguration) -> bool {
    match change {
        // Whoever asked for setup or a network boot once shall have it; a disk that the firmware chooses nobody shall.
        BootChange::First { reference } => {
            let other_disk = boot.next.is_some_and(|next| next.source == BootSource::Hdd);
            boot.coming().first() == Some(reference) && boot.always.is_none() && !other_disk
        }
        // Some BMCs accept an override and keep the mode that they had.
        BootChange::Next { source, mode } => {
            boot.next.is_some_and(|next| next.source == *source && next.mode.is_none_or(|shown| shown == *mode))
        }
        BootChange::Always { source, mode } => {
            boot.always.is_some_and(|always| always.source == *source && always.mode.is_none_or(|shown| shown == *mode))
        }
        // Options that are gone are left out; new ones come last.
        BootChange::Restore { order } => {
            let there = boot.coming();
            let known = order.iter().filter(|reference| there.contains(reference));
            let new = there.iter().filter(|reference| !order.contains(reference));
            let restored = order.is_empty() || known.chain(new).eq(there.iter());
            restored && boot.always.is_none()
        }
    }
}

/// How the next start boots, as the BMC last showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    FromDpu,
    /// The firmware's setup, and nothing is booted: the firmware does not list the disk.
    Setup,
    /// The firmware's setup, while the DPU comes up: in that POST there is no disk of the DPU to boot from.
    SetupFirst,
    Not(Reason),
}

/// Plans the boot order.
pub(super) fn plan(o: &Owned<'_>, host: Host<'_>, disk: Disk, now: Timestamp, draft: &mut Draft) -> Next {
    let Some(seen) = o.bmc.host.last() else {
        draft.need_bmc(BmcNeed::Now);
        return Next::Not(unread(o, host.name().to_owned()));
    };
    let change = match wanted(host, seen, disk, draft) {
        Ok(change) => change,
        Err(reason) => return Next::Not(reason),
    };
    let next = match change {
        BootChange::Next { .. } => Next::Setup,
        _ => Next::FromDpu,
    };
    let comes_with_power = matches!(disk, Disk::ComesWithPower { .. });
    // An override that we asked for, and that no start has used up.
    let stale = next == Next::FromDpu && o.record.setup_starts > 0 && goes_to_setup(seen) && !comes_with_power;
    let reason = match stale {
        true => changed(o, host.hardware, change, now, draft),
        false => made(o, host.hardware, change, now, draft),
    };
    match reason {
        Some(reason) => Next::Not(reason),
        None if disk == (Disk::ComesWithPower { starts: true }) => setup_first(o, host, seen, now, draft),
        None => next,
    }
}

/// Nothing else is booted where the BMC can see to that; where it says so and does not, the host is started as it is.
fn setup_first(o: &Owned<'_>, host: Host<'_>, seen: &HostObserved, now: Timestamp, draft: &mut Draft) -> Next {
    let given_up = o.bmc.boot_attempts >= ATTEMPTS && !goes_to_setup(seen);
    if given_up || !seen.boot.allowed_next.contains(&BootSource::Setup) {
        return Next::FromDpu;
    }
    into_setup(o, host, now, draft).map_or(Next::SetupFirst, Next::Not)
}

fn goes_to_setup(seen: &HostObserved) -> bool {
    seen.boot.next.is_some_and(|next| next.source == BootSource::Setup)
}

/// The installed disk is first where an administrator says which option that is, or the disk itself does; elsewhere the firmware's order
/// stands, and the network answers the server that it boots locally. `None`: it is so.
pub(super) fn local(
    o: &Belongings,
    hardware: &Hardware,
    disk: Option<&InstalledDisk>,
    now: Timestamp,
    draft: &mut Draft,
) -> Option<Reason> {
    match annotation(&hardware.metadata, labels::BOOT_OPTION) {
        Some(named) => administrators(o, hardware, named, now, draft),
        None => installed(o, hardware, disk, now, draft),
    }
}

fn installed(
    o: &Belongings,
    hardware: &Hardware,
    disk: Option<&InstalledDisk>,
    now: Timestamp,
    draft: &mut Draft,
) -> Option<Reason> {
    let by_itself = |draft: &mut Draft| {
        draft.falls_through = true;
        None
    };
    let Some(disk) = disk else { return by_itself(draft) };
    let Some(seen) = o.bmc.host.last() else {
        draft.need_bmc(BmcNeed::Now);
        return Some(unread(o, name(&hardware.metadata).to_owned()));
    };
    if missing(seen).is_some() {
        return by_itself(draft);
    }
    // An entry that the system made of itself stays where it put that: some make it anew at each start from the disk's own.
    let first = seen.boot.coming().first().and_then(|first| seen.boot.options.iter().find(|o| o.reference == *first));
    let own = first.filter(|option| boot_option::installed::is_system_of(disk, option));
    let Some(option) = own.or_else(|| boot_option::installed::of_disk(disk, &seen.boot.options)) else {
        return by_itself(draft);
    };
    let change = BootChange::First { reference: option.reference.clone() };
    if is_so(&change, &seen.boot) {
        return None;
    }
    // A BMC that does not take it, or takes it and does not show it.
    if o.bmc.boot_attempts >= ATTEMPTS {
        return by_itself(draft);
    }
    // A refusal in POST passes with POST. One of a BMC that takes orders only while its host is off does not hold the machine up.
    if o.bmc.boot_refused.is_some() && seen.post != Post::Running {
        match o.bmc.boot_sent_at.map(|sent| sent + REFUSED).filter(|again| now < *again) {
            Some(again) => draft.wake(again),
            None => drop(changed(o, hardware, change, now, draft)),
        }
        return by_itself(draft);
    }
    changed(o, hardware, change, now, draft)
}

fn administrators(
    o: &Belongings,
    hardware: &Hardware,
    named: &str,
    now: Timestamp,
    draft: &mut Draft,
) -> Option<Reason> {
    let hardware_name = name(&hardware.metadata).to_owned();
    let Some(seen) = o.bmc.host.last() else {
        draft.need_bmc(BmcNeed::Now);
        return Some(unread(o, hardware_name));
    };
    let change = match boot_option::choose(Some(named), &Own::default(), &seen.boot.options) {
        Ok(Choice::AnyDisk) if seen.boot.allowed_always.contains(&BootSource::Hdd) => {
            BootChange::Always { source: BootSource::Hdd, mode: BootMode::Uefi }
        }
        Ok(Choice::Option { reference, .. }) if missing(seen).is_none() => BootChange::First { reference },
        Ok(_) => {
            draft.falls_through = true;
            return None;
        }
        Err(_) => {
            let (named, options) = (named.to_owned(), list(&seen.boot.options));
            return Some(Blocked::BootOptionUnknown { hardware: hardware_name, named, options }.into());
        }
    };
    made(o, hardware, change, now, draft)
}

/// `None`: it is so, as the BMC last showed.
pub(super) fn made(
    o: &Belongings,
    hardware: &Hardware,
    change: BootChange,
    now: Timestamp,
    draft: &mut Draft,
) -> Option<Reason> {
    if o.bmc.host.last().is_some_and(|seen| is_so(&change, &seen.boot)) {
        return None;
    }
    changed(o, hardware, change, now, draft)
}

/// What was there before is remembered before the first change.
fn changed(
    o: &Belongings,
    hardware: &Hardware,
    change: BootChange,
    now: Timestamp,
    draft: &mut Draft,
) -> Option<Reason> {
    let asked = order(change, name(&hardware.metadata).to_owned());
    remember(o, hardware, draft).or_else(|| Some(send(o, asked, now, draft)))
}

/// What was remembered of the boot order.
pub(super) fn before(remembered: &str) -> BootChange {
    BootChange::Restore { order: remembered.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect() }
}

/// Puts back what was before; `None`: it is so, nothing was changed, or this BMC cannot be brought to it.
pub(super) fn restore(o: &Belongings, hardware: &Hardware, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    let before = annotation(&hardware.metadata, labels::BOOT_ORDER_BEFORE)?;
    if let Some(reason) = medium::ejected(o, hardware, medium::has_worked(hardware), now, draft) {
        return Some(reason);
    }
    let hardware_name = name(&hardware.metadata).to_owned();
    let change = self::before(before);
    let Some(host) = fresh(o, draft) else {
        return Some(unread(o, hardware_name));
    };
    // An override that no boot has used up would send the next machine's server to the network, or into its setup.
    let left = match is_bare(hardware) {
        true => host.boot.next.is_some_and(|next| [BootSource::Pxe, BootSource::Cd].contains(&next.source)),
        false => goes_to_setup(host),
    };
    if is_so(&change, &host.boot) && !left || o.bmc.boot_attempts >= ATTEMPTS {
        return None;
    }
    Some(send(o, order(change, hardware_name), now, draft))
}

fn order(change: BootChange, hardware: String) -> Asked {
    let waits = Waiting::BootOrderSetting { hardware: hardware.clone() }.into();
    let fails = Failed::BootOrderNotTaken { hardware: hardware.clone() }.into();
    Asked { hardware, change: Disruptive::ConfigureBoot(change), waits, fails }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pci_address_with_or_without_a_domain() {
        assert_eq!(pci_address("26:00.2"), Some((0x26, 0, 2)));
        assert_eq!(pci_address("0000:af:00.2"), Some((0xaf, 0, 2)));
        assert_eq!(pci_address("26"), None);
    }
}
