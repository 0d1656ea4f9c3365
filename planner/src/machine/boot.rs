//! The boot order: the DPU's boot slot first, persistently, read back, and again before every start.
//!
//! A one-time override would not survive the guest's own reboot. What was first before is remembered at the Hardware and
//! put back at release.

use super::draft::Draft;
use super::observed::{Observed, annotation, name};
use super::plan::{Action, BmcNeed, Disruptive};
use crate::host::{BootChange, BootConfiguration, BootSource, HostObserved, Lack};
use crate::reason::{Blocked, Failed, Reason, Waiting};
use api::labels;
use api::tinkerbell::Hardware;
use jiff::{SignedDuration, Timestamp};

/// After so many changes that the BMC does not show, ask rarely.
const ATTEMPTS: u32 = 3;
const RETRY: SignedDuration = SignedDuration::from_secs(30);

/// What would make the DPU's boot slot first.
fn wanted(hardware: &Hardware, host: &HostObserved) -> Option<BootChange> {
    let (boot, has_order) = (&host.boot, !host.lacks(Lack::BootOrder));
    let first = |reference: &str| has_order.then(|| BootChange::First { reference: reference.to_owned() });
    if let Some(named) = annotation(&hardware.metadata, labels::BOOT_OPTION) {
        let option = boot.options.iter().find(|o| o.reference == named || o.display_name == named)?;
        return first(&option.reference);
    }
    let is_slot = |path: &Option<String>| path.as_deref().is_some_and(|path| path.contains("NVMe(0x1"));
    let names = |display: &str, word: &str| display.to_lowercase().contains(word);
    let mut slots: Vec<_> = boot.options.iter().filter(|option| is_slot(&option.uefi_device_path)).collect();
    if slots.len() > 1 {
        slots.retain(|option| !names(&option.display_name, "local"));
    }
    if slots.iter().any(|option| names(&option.display_name, "dpu")) {
        slots.retain(|option| names(&option.display_name, "dpu"));
    }
    if let ([slot], true) = (slots.as_slice(), has_order) {
        return first(&slot.reference);
    }
    boot.allowable_overrides.contains(&BootSource::Hdd).then_some(BootChange::ContinuousHdd)
}

/// Why nothing makes the DPU's boot slot first.
fn unnamed(hardware: String, host: &HostObserved) -> Blocked {
    let lacks = [Lack::BootOptions, Lack::BootOrder].into_iter().filter(|lack| host.lacks(*lack));
    match lacks.map(Lack::noun).collect::<Vec<_>>().join(" and no ") {
        none if none.is_empty() => Blocked::NoBootOption { hardware },
        lacks => Blocked::BootOrderUnsupported { hardware, lacks },
    }
}

fn is_so(change: &BootChange, boot: &BootConfiguration) -> bool {
    match change {
        BootChange::First { reference } => boot.order.first() == Some(reference),
        BootChange::ContinuousHdd => boot.continuous_override == Some(BootSource::Hdd),
        // Options that are gone are left out; new ones come last.
        BootChange::Restore { order } => {
            let known = order.iter().filter(|reference| boot.order.contains(reference));
            let new = boot.order.iter().filter(|reference| !order.contains(reference));
            let restored = order.is_empty() || known.chain(new).eq(boot.order.iter());
            restored && boot.continuous_override.is_none()
        }
    }
}

/// Plans the boot order; `None`: the boot slot is first, as the BMC last showed.
pub(super) fn plan(o: &Observed, hardware: &Hardware, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    let hardware_name = name(&hardware.metadata).to_owned();
    let Some(host) = o.bmc.host.last() else {
        draft.need_bmc(BmcNeed::Now);
        return Some(super::power::unread(o, hardware_name));
    };
    let Some(change) = wanted(hardware, host) else {
        return Some(unnamed(hardware_name, host).into());
    };
    if is_so(&change, &host.boot) {
        return None;
    }
    let Some(host) = fresh(o, draft) else {
        return Some(Waiting::BootOrderSetting { hardware: hardware_name }.into());
    };
    if annotation(&hardware.metadata, labels::BOOT_ORDER_BEFORE).is_none() {
        draft.act(Action::RememberBootOrder { name: hardware_name.clone(), order: host.boot.order.join(",") });
        return Some(Waiting::BootOrderSetting { hardware: hardware_name }.into());
    }
    Some(send(o, change, hardware_name, now, draft))
}

/// Puts back what was before; `None`: it is so, nothing was changed, or this BMC cannot be brought to it.
pub(super) fn restore(o: &Observed, hardware: &Hardware, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    let before = annotation(&hardware.metadata, labels::BOOT_ORDER_BEFORE)?;
    let order: Vec<String> = before.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let hardware_name = name(&hardware.metadata).to_owned();
    let change = BootChange::Restore { order };
    let Some(host) = fresh(o, draft) else {
        return Some(super::power::unread(o, hardware_name));
    };
    if is_so(&change, &host.boot) || o.bmc.boot_attempts >= ATTEMPTS {
        return None;
    }
    Some(send(o, change, hardware_name, now, draft))
}

/// A reading of this moment that shows the last change, if it took effect.
fn fresh<'a>(o: &'a Observed, draft: &mut Draft) -> Option<&'a HostObserved> {
    let seen = o.bmc.host.fresh().filter(|_| o.bmc.boot_sent_at.is_none_or(|sent| o.bmc.read_at > Some(sent)));
    if seen.is_none() {
        draft.need_bmc(BmcNeed::Now);
    }
    seen
}

fn send(o: &Observed, change: BootChange, hardware: String, now: Timestamp, draft: &mut Draft) -> Reason {
    if o.bmc.boot_attempts >= ATTEMPTS {
        let due = o.bmc.boot_sent_at.map_or(now, |sent| sent + RETRY);
        if now < due {
            draft.wake(due);
            return Failed::BootOrderNotTaken { hardware }.into();
        }
    }
    draft.disrupt(Disruptive::ConfigureBoot(change));
    Waiting::BootOrderSetting { hardware }.into()
}
