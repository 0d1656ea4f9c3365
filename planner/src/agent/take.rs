//! Taking a released attachment away: note that, unplug a NIC, hide from the host, wait until it let go, disconnect, report.

use super::{Attachment, Kind, Observed, Stage, Step, Stuck, Waiting, nic};

pub(super) fn take(observed: &Observed, attachment: &Attachment) -> Stage {
    let uid = &attachment.key.uid;
    if !observed.exposures.tells(attachment.key.kind.into()) {
        return Stage::Stuck(Stuck::waiting(
            Waiting::EmulationUnknown,
            "the agent cannot read now which functions the host has",
        ));
    }
    // Before anything is taken away: should the object be gone before its end, this is no orphan.
    if let Some(id) = observed.to_note(uid) {
        return Stage::Act(Step::NoteRelease { id: id.clone() });
    }
    if let Some(stage) = nic::down(observed, |id| id.uid == *uid) {
        return stage;
    }
    if let Some(shown) = observed.to_hide(observed.exposures_of(uid)) {
        return Stage::Act(Step::Hide { id: shown.id.clone(), kind: shown.kind });
    }
    if observed.exposures_of(uid).next().is_some() {
        return Stage::Stuck(Stuck::waiting(Waiting::HostLettingGo, "the host has not released the function yet"));
    }
    if observed.imports.contains_key(uid) {
        let id = attachment.id().or_else(|| observed.record.get(uid).map(|e| e.id.clone()));
        if let Some(id) = id {
            return Stage::Act(Step::StopImport { id });
        }
    }
    if let Some(stage) = disconnect(observed, attachment) {
        return stage;
    }
    if attachment.key.kind == Kind::Nic && observed.ports.fresh().is_none() {
        return nic::switch_unknown();
    }
    if observed.seeds.contains(uid) {
        return Stage::Act(Step::RemoveSeed { uid: uid.clone() });
    }
    if !attachment.held && !observed.record.contains_key(uid) {
        return Stage::Done;
    }
    Stage::Act(Step::Finish { key: attachment.key.clone() })
}

/// `None`: nothing is connected for it.
fn disconnect(observed: &Observed, attachment: &Attachment) -> Option<Stage> {
    // Only the connector that serves it has to answer; if the spec cannot be read, all of them.
    let relevant = |driver: &str| match &attachment.function {
        Ok(function) => function.connector() == Some(driver),
        Err(_) => true,
    };
    let mut all = observed.all_connections().filter(|(_, c)| c.id.uid == attachment.key.uid);
    if let Some((driver, connection)) = all.next() {
        return Some(Stage::Act(Step::Disconnect { id: connection.id.clone(), driver: driver.to_owned() }));
    }
    let unread = observed.connections.iter().find(|(driver, seen)| relevant(driver) && seen.fresh().is_none())?;
    let message = format!("the agent cannot read connector {} now", unread.0);
    Some(Stage::Stuck(Stuck::waiting(Waiting::ConnectorUnknown, message)))
}
