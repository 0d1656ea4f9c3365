//! What is presented, connected, plugged or remembered, and that no attachment explains.
//!
//! That an object is missing proves nothing of the host: after etcd was restored to an earlier revision, a Dpu was registered
//! anew or an agent was pointed at another cluster, the list is short of attachments whose disks and NICs a host is using. So
//! what the host was shown stays, is served and is reported (*OrphanIsKept* of docs/design/fencing.md), until
//!
//! - the agent has seen its release asked for, on this boot;
//! - the controller lists it as releasable: its host was reported powered off, or its hold passed on by proof;
//! - an administrator names it (`bmctl dpu forget`).
//!
//! What no host was shown is taken away. An attachment that is being deleted is not looked at here: with `release` it is
//! taken away, without it stays.

use super::bring::{self, Asked};
use super::nic;
use super::{Attachment, Entry, Function, Observed, Stage, Step};
use crate::exposure::{ExposureId, FunctionKind};
use api::dpu::{Orphan, OrphanKind, OrphanVolume};
use std::collections::{BTreeMap, BTreeSet};

/// What no attachment explains.
#[derive(Debug, Default)]
pub(super) struct Unexplained {
    /// Shown to the host, and not gone yet: those that are kept, and those that may go and are on their way.
    pub orphans: Vec<Orphan>,
    /// Keeps an orphan as it was claimed: at most one for each.
    pub serve: Vec<(Entry, Stage)>,
    /// Takes the rest away: at most one for each UID. The caller takes them only if the list was read in this round.
    pub clear: Vec<Step>,
}

pub(super) fn unexplained(observed: &Observed, attachments: &[Attachment]) -> Unexplained {
    let view = View { observed, known: attachments.iter().map(|a| (a.key.uid.as_str(), a)).collect() };
    let mut orphans: BTreeSet<&ExposureId> = BTreeSet::new();
    let mut others: BTreeSet<&str> = BTreeSet::new();
    for id in observed.present().filter(|id| !view.explains(id)) {
        // Told of for as long as anything of it is there: nobody else gets it before.
        if observed.is_shown(id) {
            orphans.insert(id);
        }
        if !view.is_kept(id) {
            others.insert(&id.uid);
        }
    }
    let unnamed = observed.seeds.iter().chain(observed.imports.keys()).map(String::as_str);
    others.extend(unnamed.filter(|uid| !view.known.contains_key(uid) && !orphans.iter().any(|id| id.uid == *uid)));
    Unexplained {
        serve: orphans.iter().filter(|id| view.is_kept(id)).filter_map(|id| serve(observed, id)).collect(),
        clear: others.into_iter().filter_map(|uid| view.clear(uid)).collect(),
        orphans: orphans.into_iter().map(|id| tell(observed, id)).collect(),
    }
}

struct View<'a> {
    observed: &'a Observed,
    known: BTreeMap<&'a str, &'a Attachment>,
}

impl View<'_> {
    fn explains(&self, id: &ExposureId) -> bool {
        let attachment = self.known.get(id.uid.as_str());
        attachment.is_some_and(|attachment| attachment.deleting || attachment.epoch == Some(id.epoch))
    }

    /// The host was shown it, and nobody who may has said that it goes.
    fn is_kept(&self, id: &ExposureId) -> bool {
        let observed = self.observed;
        let may_go = observed.released.contains(id)
            || observed.word.releasable.contains(id)
            || observed.word.forget.contains(&id.uid);
        !may_go && observed.is_shown(id)
    }

    fn stays(&self, id: &ExposureId) -> bool {
        self.explains(id) || self.is_kept(id)
    }

    /// `None`: only what is connected or plugged, or nothing, tells of it.
    fn kind(&self, uid: &str) -> Option<FunctionKind> {
        let recorded = self.observed.record.get(uid).map(|entry| entry.key.kind.into());
        recorded.or_else(|| self.observed.exposures_of(uid).next().map(|exposure| exposure.kind))
    }

    /// The next step to be rid of it, in the order of a release; `None` while the host or a reading is waited for.
    fn clear(&self, uid: &str) -> Option<Step> {
        let observed = self.observed;
        // Before anything is taken away: who said so may say otherwise of what comes later.
        if let Some(id) = observed.to_note(uid).filter(|id| !self.stays(id)) {
            return Some(Step::NoteRelease { id: id.clone() });
        }
        let gone = |id: &ExposureId| id.uid == uid && !self.stays(id);
        let is_known = match self.kind(uid) {
            Some(kind) => observed.exposures.tells(kind),
            None => observed.exposures.fresh().is_some(),
        };
        let exposed: Vec<_> = observed.exposures.last().filter(|_| is_known)?.iter().filter(|e| gone(&e.id)).collect();
        match nic::down(observed, gone) {
            Some(Stage::Act(step)) => return Some(step),
            Some(Stage::Stuck(_) | Stage::Done) => return None,
            None => {}
        }
        if !exposed.is_empty() {
            let shown = observed.to_hide(exposed.into_iter())?;
            return Some(Step::Hide { id: shown.id.clone(), kind: shown.kind });
        }
        if observed.imports.contains_key(uid)
            && let Some(entry) = observed.record.get(uid)
        {
            return Some(Step::StopImport { id: entry.id.clone() });
        }
        if let Some((driver, connection)) = observed.all_connections().find(|(_, c)| gone(&c.id)) {
            return Some(Step::Disconnect { id: connection.id.clone(), driver: driver.to_owned() });
        }
        if observed.ports.fresh().is_none() || observed.connections.values().any(|seen| seen.fresh().is_none()) {
            return None;
        }
        if observed.seeds.contains(uid) && observed.exposures_of(uid).next().is_none() {
            return Some(Step::RemoveSeed { uid: uid.to_owned() });
        }
        observed.record.get(uid).filter(|entry| gone(&entry.id)).map(|_| Step::Forget { uid: uid.to_owned() })
    }
}

/// What the record names is presented again if its process crashed, as without the API server. Limits stay as they were.
fn serve(observed: &Observed, id: &ExposureId) -> Option<(Entry, Stage)> {
    let entry = observed.entry(id)?;
    let asked = Asked { size_bytes: None, limits: entry.limits };
    Some((entry.clone(), bring::bring(observed, id, &entry.function, asked)))
}

/// What the API server is told of an orphan: all that the record knows.
fn tell(observed: &Observed, id: &ExposureId) -> Orphan {
    let entry = observed.entry(id);
    let is_nic = observed.exposure(id).map(|exposure| exposure.kind) == Some(FunctionKind::Nic);
    let mut orphan = Orphan {
        kind: if is_nic { OrphanKind::Nic } else { OrphanKind::Disk },
        uid: id.uid.clone(),
        epoch: id.epoch,
        attachment_name: entry.map(|entry| entry.key.name.clone()),
        ..Orphan::default()
    };
    match entry.map(|entry| &entry.function) {
        Some(Function::Disk { volume, .. }) => {
            orphan.volume = Some(OrphanVolume { driver: volume.driver.clone(), volume_handle: volume.handle.clone() });
        }
        Some(Function::Nic(nic)) => {
            orphan.kind = OrphanKind::Nic;
            orphan.logical_port = Some(nic.logical_port.clone());
            orphan.mac_address = Some(nic.mac.clone());
            orphan.addresses = nic.addresses.iter().map(ToString::to_string).collect();
        }
        Some(Function::Seed(_) | Function::Eraser(_) | Function::HoldDisk(_) | Function::Import(_)) | None => {}
    }
    orphan
}
