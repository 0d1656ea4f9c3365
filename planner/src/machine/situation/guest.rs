//! Whether the guest answers.

use super::Situation;
use crate::host::PowerAction;
use jiff::{SignedDuration, Timestamp};

/// An agent sees the start of its host earlier than this.
pub(in crate::machine) const UNDISTURBED: SignedDuration = SignedDuration::from_secs(20);

/// Interface and address that answered since the last start. A host that was switched on and has answered all the time
/// was on: its agent would have seen it start.
pub(in crate::machine) fn answered(o: &Situation<'_>, now: Timestamp) -> Option<(String, String)> {
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
