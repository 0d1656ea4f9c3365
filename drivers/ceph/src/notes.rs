//! What is noted at an image: names of attributes of its header object, whose values say nothing.
//!
//! Each note is one attribute of its own, so that whoever writes one never overwrites another's.

use planner::exposure::ExposureId;

const FENCED: &str = "metalplane.fenced.";
const WRITER: &str = "metalplane.writer.";
const IDENTITY: &str = "metalplane.";

/// As the storage knows a grant: `metalplane.<uid>.<epoch>`.
pub fn identity(id: &ExposureId) -> String {
    format!("{IDENTITY}{}.{}", id.uid, id.epoch)
}

pub(crate) fn parse_identity(identity: &str) -> Option<ExposureId> {
    parse_id(identity.strip_prefix(IDENTITY)?)
}

fn parse_id(text: &str) -> Option<ExposureId> {
    let (uid, epoch) = text.rsplit_once('.')?;
    let whole = is_valid_uid(uid);
    Some(ExposureId { uid: uid.to_owned(), epoch: epoch.parse().ok()? }).filter(|_| whole)
}

pub(crate) fn is_valid_uid(uid: &str) -> bool {
    !uid.is_empty() && uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

/// This epoch and all before it are refused, for ever.
pub(crate) fn fenced(epoch: u64) -> String {
    format!("{FENCED}{epoch}")
}

/// A session under which a grant may write: `127.0.0.1:0/3302528668`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Writer {
    pub id: ExposureId,
    pub address: String,
}

impl Writer {
    pub(crate) fn note(&self) -> String {
        format!("{WRITER}{}.{}@{}", self.id.uid, self.id.epoch, self.address)
    }

    fn parse(note: &str) -> Option<Writer> {
        let (id, address) = note.strip_prefix(WRITER)?.split_once('@')?;
        Some(Writer { id: parse_id(id)?, address: address.to_owned() })
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    /// The highest epoch that is refused.
    fenced: Option<u64>,
    writers: Vec<Writer>,
}

impl Notes {
    /// From the names of all attributes, others' too.
    pub(crate) fn read(names: &str) -> Notes {
        let names = || names.lines().map(str::trim);
        Notes {
            fenced: names().filter_map(|name| name.strip_prefix(FENCED)?.parse().ok()).max(),
            writers: names().filter_map(Writer::parse).collect(),
        }
    }

    pub(crate) fn refuse(&self, epoch: u64) -> bool {
        self.fenced.is_some_and(|fenced| fenced >= epoch)
    }

    /// The sessions of this epoch and all before it.
    pub(crate) fn until(&self, epoch: u64) -> impl Iterator<Item = &str> {
        self.writers.iter().filter(move |writer| writer.id.epoch <= epoch).map(|writer| writer.address.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(uid: &str, epoch: u64) -> ExposureId {
        ExposureId { uid: uid.to_owned(), epoch }
    }

    #[test]
    fn identities_are_read_back() {
        for id in [id("a", 1), id("0b5c9a4e-9f0e-4f8e-8a53-6a1c6f0f8b11", 30)] {
            assert_eq!(parse_identity(&identity(&id)), Some(id));
        }
        for foreign in ["nqn.2014-08.org.nvmexpress:uuid:x", "metalplane.a", "metalplane..1", "metalplane.a.b.1", "a.1"]
        {
            assert_eq!(parse_identity(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn notes_are_read_back_among_others() {
        let old = Writer { id: id("a", 3), address: "127.0.0.1:0/3302528668".to_owned() };
        let new = Writer { id: id("b", 9), address: "[2001:db8::1]:0/7".to_owned() };
        let text = format!(
            "lock.rbd_lock\n{}\n{}\n{}\n{}\n",
            fenced(3),
            old.note(),
            new.note(),
            fenced(12).replace("12", "x")
        );
        let notes = Notes::read(&text);
        assert_eq!(notes.until(3).collect::<Vec<_>>(), [old.address.as_str()]);
        assert_eq!(notes.until(9).count(), 2);
        assert!(notes.refuse(2) && notes.refuse(3) && !notes.refuse(4));
        assert!(!Notes::read("lock.rbd_lock\n").refuse(0));
    }
}
