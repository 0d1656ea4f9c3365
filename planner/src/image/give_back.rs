//! What was lent for an import is given back, by the protocol of [`crate::writer`]. All of it carries the image's UID, so that it goes
//! when the image no longer exists, too.

use super::Observed;
use super::draft::{Draft, Plan};
use crate::meta::name;
use crate::reason::Reason;
use crate::writer;
use jiff::Timestamp;
use std::collections::BTreeSet;

/// What an image that no longer exists has left: a controller that did not know yet that it had been deposed, or a request of one that
/// arrived late, made it after the last look. Claim and snapshot are kept: the finalizer may have been taken away for them.
pub fn leftovers(o: &Observed, now: Timestamp) -> Plan {
    let mut draft = Draft::default();
    let result = give_back(o, now, &mut draft).map_or(Ok(()), |reason| Err(Some(reason)));
    draft.finish(o, result, now)
}

/// `None`: nothing is lent any more.
pub(super) fn give_back(o: &Observed, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    let w = o.writer(&[], now);
    match o.attachments.first() {
        Some(attachment) => Some(writer::release(&w, attachment, draft)),
        None => writer::sweep(&w, &BTreeSet::new(), draft),
    }
}

/// What an import before had, but the protection of the claim; `None`: it is given back.
pub(super) fn free(o: &Observed, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    let claim = o.claim.as_ref().map(|claim| name(&claim.claim.metadata).to_owned());
    writer::sweep(&o.writer(&[], now), &claim.into_iter().collect(), draft)
}
