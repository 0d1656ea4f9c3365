//! Telling the user: applies an attachment's status when it differs from what was applied last.

use crate::act::{Actor, Server};
use crate::attachments::{self, Applied};
use crate::cluster::apply_status;
use api::attachment::{DiskAttachment, NicAttachment};
use jiff::Timestamp;
use planner::agent::{Attachment, Item, Kind, Report};
use ports::{ErrorClass, PortError};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What was applied last, by UID: what the API server has as long as the watch has not told. What the watch tells weighs
/// more: a request of this agent's life before may arrive late, and what it says has to be put right.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub disks: Applied<DiskAttachment>,
    pub nics: Applied<NicAttachment>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn note<T>(applied: &Mutex<BTreeMap<String, T>>, uid: &str, status: T) {
    lock(applied).insert(uid.to_owned(), status);
}

impl Written {
    pub(crate) fn forget(&self, uid: &str) {
        lock(&self.disks).remove(uid);
        lock(&self.nics).remove(uid);
    }

    /// Forgets what is no longer there.
    pub(crate) fn retain(&self, items: &[Item]) {
        let known = |uid: &String| items.iter().any(|item| item.key.uid == *uid);
        lock(&self.disks).retain(|uid, _| known(uid));
        lock(&self.nics).retain(|uid, _| known(uid));
    }
}

/// Whether all is well: told, or nothing new to tell.
pub(crate) async fn tell(
    actor: &Actor,
    server: Server<'_>,
    attachment: &Attachment,
    report: &Report,
    now: Timestamp,
) -> bool {
    let told = match attachment.key.kind {
        Kind::Disk => tell_one::<DiskAttachment>(&actor.written.disks, server, attachment, report, now).await,
        Kind::Nic => tell_one::<NicAttachment>(&actor.written.nics, server, attachment, report, now).await,
    };
    match told {
        Ok(()) => true,
        // Gone, or replaced by another of the same name: the watch will tell.
        Err(error) if matches!(error.class, ErrorClass::NotFound | ErrorClass::Conflict) => true,
        Err(error) => {
            tracing::warn!(%error, "will try again");
            false
        }
    }
}

/// As it is written: the API server keeps fewer digits of a time.
fn is_same<T: Serialize>(before: Option<&T>, now: &T) -> bool {
    before.is_some_and(|before| serde_json::to_value(before).ok() == serde_json::to_value(now).ok())
}

async fn tell_one<K: attachments::Kind>(
    applied: &Applied<K>,
    server: Server<'_>,
    attachment: &Attachment,
    report: &Report,
    now: Timestamp,
) -> Result<(), PortError> {
    let key = &attachment.key;
    let before = K::seen(server.desired).get(&key.uid).and_then(|object| object.status().cloned());
    let before = before.or_else(|| lock(applied).get(&key.uid).cloned());
    let status = K::report(before.as_ref().unwrap_or(&K::Status::default()), attachment, report, now);
    if !is_same(before.as_ref(), &status) {
        let what = format!("status of {} {}/{}", K::kind(&()), key.namespace, key.name);
        let told = apply_status(&K::api(server.cluster), &what, (&key.name, &key.uid), None, &status).await?;
        K::seen(server.desired).wrote(told);
    }
    note(applied, &key.uid, status);
    Ok(())
}
