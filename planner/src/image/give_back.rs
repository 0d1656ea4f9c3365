//! What was lent for an import is given back, by the protocol of [`crate::writer`]. All of it carries the image's UID, so that it goes
//! when the image no longer exists, too.

use super::draft::{Draft, GiveBack};
use super::{Leftovers, Observed};
use crate::meta::name;
use crate::reason::Reason;
use crate::writer::{self, Owner, Sink};
use jiff::Timestamp;
use std::collections::BTreeSet;

/// What an image that no longer exists has left: a controller that did not know yet that it had been deposed, or a request of one that
/// arrived late, made it after the last look. Claim and snapshot are kept: the finalizer may have been taken away for them.
pub fn leftovers(left: &Leftovers, now: Timestamp) -> GiveBack {
    let owner = Owner::Image { uid: &left.uid, namespace: "" };
    let mut draft = Draft::default();
    let waits_for = all(&left.lent.writer(owner, now), &mut draft);
    draft.give_back(waits_for, now)
}

/// `None`: nothing is lent any more.
pub(super) fn give_back(o: &Observed, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    all(&o.writer(&[], now), draft)
}

fn all(w: &writer::Observed<'_>, sink: &mut dyn Sink) -> Option<Reason> {
    match w.attachments.first() {
        Some(attachment) => Some(writer::release(w, attachment, sink)),
        None => writer::sweep(w, &BTreeSet::new(), sink),
    }
}

/// What an import before had, but the protection of the claim; `None`: it is given back.
pub(super) fn free(o: &Observed, now: Timestamp, draft: &mut Draft) -> Option<Reason> {
    let claim = o.claim.as_ref().map(|claim| name(&claim.claim.metadata).to_owned());
    writer::sweep(&o.writer(&[], now), &claim.into_iter().collect(), draft)
}
