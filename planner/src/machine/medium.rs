//! The installer's ISO in the virtual CD drive of a server's BMC: the last rung of the ladder of the next boot ([`super::netboot`]).
//!
//! What is in the drive is known by its address, in which the server's MAC address stands: whatever else is there is somebody else's, and is
//! ejected only where the installer is to be inserted. A BMC need not show its drive before it was asked for a change; there it counts whether the
//! server was started so.

use super::claim::strategy;
use super::draft::Draft;
use super::observed::Belongings;
use super::plan::Disruptive;
use super::prepare::{ATTEMPTS, Asked, remember, send};
use super::rung::Rung;
use crate::host::{HostObserved, Lack, MediaUrl, Medium, MediumChange};
use crate::meta::{annotation, name};
use crate::reason::{Failed, Reason, Waiting};
use api::labels;
use api::tinkerbell::Hardware;
use jiff::Timestamp;

/// Where the server's BMC reads it. `None`: boot serves none for that.
pub(super) fn image(o: &Belongings, hardware: &Hardware) -> Option<MediaUrl> {
    let mac = strategy::netboot(hardware)?.dhcp.as_ref()?.mac.as_deref()?;
    Some(o.installer_iso.as_ref()?.of(mac))
}

pub(super) fn is_inserted(o: &Belongings, hardware: &Hardware, seen: &HostObserved) -> bool {
    image(o, hardware).is_some_and(|image| MediumChange::Insert(image).is_shown(&seen.medium))
}

/// The installer is in the drive; `None`: it is so, as the BMC last showed.
pub(super) fn inserted(o: &Belongings, hardware: &Hardware, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    let (image, seen) = (image(o, hardware)?, o.bmc.host.last()?);
    if is_inserted(o, hardware, seen) {
        return None;
    }
    changed(o, hardware, MediumChange::Insert(image), now, draft)
}

/// The server was last booted so from the network.
pub(super) fn has_worked(hardware: &Hardware) -> bool {
    annotation(&hardware.metadata, labels::NETBOOT_BY).and_then(Rung::parse) == Some(Rung::Medium)
}

/// The installer is not in the drive. `None`: it is so, or this BMC cannot be brought to it. `was`: the server was started so.
pub(super) fn ejected(
    o: &Belongings,
    hardware: &Hardware,
    was: bool,
    now: Timestamp,
    draft: &mut Draft,
) -> Option<Reason> {
    let seen = o.bmc.host.last().filter(|seen| !seen.lacks(Lack::VirtualMedia))?;
    let is_ours = match seen.medium {
        Medium::Ejected => false,
        Medium::Inserted(Some(_)) => is_inserted(o, hardware, seen),
        Medium::Inserted(None) | Medium::Unknown => was && image(o, hardware).is_some(),
    };
    if !is_ours || o.bmc.boot_attempts >= ATTEMPTS {
        return None;
    }
    changed(o, hardware, MediumChange::Eject, now, draft)
}

/// For a controller that has just started, and to which the BMC tells nothing of its drive: the medium was most likely ejected long ago, so
/// that is asked for once, and nothing waits for it. `was`: the server was started so.
pub(super) fn eject_unseen(o: &Belongings, hardware: &Hardware, was: bool, draft: &mut Draft) {
    if was && image(o, hardware).is_some() && o.bmc.boot_sent_at.is_none() {
        draft.disrupt(Disruptive::ChangeMedium(MediumChange::Eject));
    }
}

fn changed(
    o: &Belongings,
    hardware: &Hardware,
    change: MediumChange,
    now: Timestamp,
    draft: &mut Draft,
) -> Option<Reason> {
    if let Some(reason) = remember(o, hardware, draft) {
        return Some(reason);
    }
    let (hardware, told) = (name(&hardware.metadata).to_owned(), change.to_string());
    let shown = o.bmc.host.last().map(|seen| seen.medium.to_string()).unwrap_or_default();
    let waits = Waiting::MediumChanging { hardware: hardware.clone(), change: told.clone() }.into();
    let fails = Failed::MediumNotTaken { hardware: hardware.clone(), change: told, shown }.into();
    Some(send(o, Asked { hardware, change: Disruptive::ChangeMedium(change), waits, fails }, now, draft))
}
