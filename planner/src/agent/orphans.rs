//! What is presented, connected, plugged or remembered, and that no attachment explains.
//!
//! An attachment that is being deleted is not looked at here: with `release` it is taken away, without it stays.

use super::{Attachment, Observed, Step};
use crate::exposure::ExposureId;
use std::collections::{BTreeMap, BTreeSet};

/// At most one step per UID. The caller takes them only if the list was read in this round.
pub(super) fn strays(observed: &Observed, attachments: &[Attachment]) -> Vec<Step> {
    let known: BTreeMap<&str, &Attachment> = attachments.iter().map(|a| (a.key.uid.as_str(), a)).collect();
    let mut unexplained: BTreeSet<&str> = BTreeSet::new();
    let explained = |id: &ExposureId| match known.get(id.uid.as_str()) {
        Some(attachment) => attachment.deleting || attachment.epoch == Some(id.epoch),
        None => false,
    };
    let exposed = observed.exposures.last().into_iter().flatten().map(|e| &e.id);
    let connected = observed.all_connections().map(|(_, c)| &c.id);
    let plugged = observed.all_ports().map(|p| &p.id);
    let recorded = observed.record.values().map(|e| &e.id);
    for id in exposed.chain(connected).chain(plugged).chain(recorded) {
        if !explained(id) {
            unexplained.insert(&id.uid);
        }
    }
    unexplained.extend(observed.seeds.iter().map(String::as_str).filter(|uid| !known.contains_key(uid)));
    unexplained.extend(observed.imports.keys().map(String::as_str).filter(|uid| !known.contains_key(uid)));
    unexplained.into_iter().filter_map(|uid| remove(observed, uid, &explained)).collect()
}

/// The next step to be rid of it, in the order of a release; `None` while the host or a reading is waited for.
fn remove(observed: &Observed, uid: &str, explained: &impl Fn(&ExposureId) -> bool) -> Option<Step> {
    let exposed = observed.exposures.fresh()?.iter().filter(|e| e.id.uid == uid && !explained(&e.id));
    let exposed: Vec<_> = exposed.collect();
    if !exposed.is_empty() {
        let shown = observed.to_hide(exposed.into_iter())?;
        return Some(Step::Hide { id: shown.id.clone(), kind: shown.kind });
    }
    if observed.imports.contains_key(uid)
        && let Some(entry) = observed.record.get(uid)
    {
        return Some(Step::StopImport { id: entry.id.clone() });
    }
    if let Some((driver, connection)) = observed.all_connections().find(|(_, c)| c.id.uid == uid && !explained(&c.id)) {
        return Some(Step::Disconnect { id: connection.id.clone(), driver: driver.to_owned() });
    }
    if let Some(port) = observed.all_ports().find(|p| p.id.uid == uid && !explained(&p.id)) {
        return Some(Step::Unplug { id: port.id.clone() });
    }
    if observed.ports.fresh().is_none() || observed.connections.values().any(|seen| seen.fresh().is_none()) {
        return None;
    }
    if observed.seeds.contains(uid) && observed.exposures_of(uid).next().is_none() {
        return Some(Step::RemoveSeed { uid: uid.to_owned() });
    }
    observed.record.get(uid).filter(|entry| !explained(&entry.id)).map(|_| Step::Forget { uid: uid.to_owned() })
}
