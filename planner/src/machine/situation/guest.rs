//! Whether the guest answers.

use super::Situation;
use crate::host::PowerAction;
use api::report::GuestSeen;
use jiff::{SignedDuration, Timestamp};

/// An agent sees the start of its host earlier than this.
pub(in crate::machine) const UNDISTURBED: SignedDuration = SignedDuration::from_secs(20);

/// Interface and address that answered since the last start; of a server without a DPU those that the boot service heard of. A host
/// that was switched on and has answered all the time was on: its agent would have seen it start.
pub(in crate::machine) fn answered(o: &Situation<'_>, now: Timestamp) -> Option<(String, String)> {
    if o.owned.bare().is_some() {
        return heard_of(o).map(|guest| (guest.mac_address.clone(), guest.address.clone()));
    }
    let record = o.owned.record;
    let started = record.at;
    let undisturbed =
        record.action == Some(PowerAction::On) && started.is_none_or(|started| now >= started + UNDISTURBED);
    o.nic_attachments.iter().find_map(|attachment| {
        let guest = attachment.status.as_ref()?.guest.as_ref()?;
        let at = guest.answered_at.as_ref()?.0;
        let heard = o.dpus.iter().any(|dpu| dpu.name() == attachment.spec.dpu_name && !dpu.silent);
        ((undisturbed && heard) || started.is_none_or(|started| at > started)).then(|| {
            let address = guest.answered_address.clone().or_else(|| attachment.spec.addresses.first().cloned());
            (attachment.spec.interface_name.clone(), address.unwrap_or_default())
        })
    })
}

/// The system on a server's own disk, since the last start.
pub(in crate::machine) fn heard_of<'a>(o: &Situation<'a>) -> Option<&'a GuestSeen> {
    let guest = o.owned.seen()?.guest.as_ref()?;
    o.owned.record.at.is_none_or(|started| guest.at.0 > started).then_some(guest)
}
