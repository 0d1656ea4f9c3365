//! One change at a BMC by which its server boots: what was there is on record before the first one, each is read back, and one that is refused or
//! not shown is asked for again, rarely.

use super::draft::Draft;
use super::observed::Belongings;
use super::plan::{Action, Disruptive};
use crate::host::{BmcNeed, HostObserved};
use crate::meta::{annotation, name};
use crate::reason::{Reason, Waiting};
use api::labels;
use api::tinkerbell::Hardware;
use jiff::{SignedDuration, Timestamp};

/// After so many changes that the BMC does not show, ask rarely.
pub(super) const ATTEMPTS: u32 = 3;
const RETRY: SignedDuration = SignedDuration::from_secs(30);
/// What the BMC refuses for now is asked for again.
const LATER: SignedDuration = SignedDuration::from_secs(5);

/// One change by which a server boots.
pub(super) struct Asked {
    pub hardware: String,
    pub change: Disruptive,
    /// Until the BMC shows it.
    pub waits: Reason,
    /// The BMC accepted it so often, and does not.
    pub fails: Reason,
}

/// Before the first change of anything by which a server boots: what was there, by a reading of this moment. `None`: it is on record.
pub(super) fn remember(o: &Belongings, hardware: &Hardware, draft: &mut Draft) -> Option<Reason> {
    let setting = || Some(Waiting::BootOrderSetting { hardware: name(&hardware.metadata).to_owned() }.into());
    let Some(seen) = fresh(o, draft) else { return setting() };
    if annotation(&hardware.metadata, labels::BOOT_ORDER_BEFORE).is_some() {
        return None;
    }
    let order = seen.boot.coming().join(",");
    draft.act(Action::RememberBootOrder { name: name(&hardware.metadata).to_owned(), order });
    setting()
}

/// A reading of this moment that shows the last change, if it took effect.
pub(super) fn fresh<'a>(o: &'a Belongings, draft: &mut Draft) -> Option<&'a HostObserved> {
    let seen = o.bmc.host.fresh().filter(|_| o.bmc.boot_sent_at.is_none_or(|sent| o.bmc.read_at > Some(sent)));
    if seen.is_none() {
        draft.need_bmc(BmcNeed::Now);
    }
    seen
}

pub(super) fn send(o: &Belongings, asked: Asked, now: Timestamp, draft: &mut Draft) -> Reason {
    let since_sent = |wait| o.bmc.boot_sent_at.map_or(now, |sent| sent + wait);
    if let Some(message) = &o.bmc.boot_refused
        && now < since_sent(LATER)
    {
        draft.wake(since_sent(LATER));
        return Waiting::BootOrderRefused { hardware: asked.hardware, message: message.clone() }.into();
    }
    if o.bmc.boot_attempts >= ATTEMPTS && now < since_sent(RETRY) {
        draft.wake(since_sent(RETRY));
        return asked.fails;
    }
    draft.disrupt(asked.change);
    asked.waits
}
