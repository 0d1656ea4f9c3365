//! What was claimed on this boot: one file for each attachment, in memory that a reboot forgets.
//!
//! *RecordIsAdopted*, *RecordIsReplayed*, *RebootForgets* of docs/design/fencing.md: what the record names is adopted and replayed; what it does not name is not touched
//! until it has been claimed. An entry of another boot, or one that cannot be read, is as good as none.
//!
//! Beside it, for as long as the boot lasts: whose release was seen to be asked for, and which orphan may be detached. What is left of
//! those is not kept for the host, and none of them is claimed again.

use planner::agent::{Entry, ImportDone};
use planner::exposure::{ExposureId, Limits};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub struct Record {
    dir: PathBuf,
    released_dir: PathBuf,
    boot_id: String,
    entries: Mutex<BTreeMap<String, Entry>>,
    released: Mutex<BTreeSet<ExposureId>>,
}

impl Record {
    pub fn open(run_dir: &Path, boot_id: &str) -> io::Result<Self> {
        let (dir, released_dir) = (run_dir.join("record"), run_dir.join("released"));
        fs::create_dir_all(&dir)?;
        let mut entries = BTreeMap::new();
        for file in fs::read_dir(&dir)? {
            let path = file?.path();
            match read(&path) {
                Ok(entry) if entry.boot_id == boot_id && path == path_of(&dir, &entry.id.uid) => {
                    entries.insert(entry.id.uid.clone(), entry);
                }
                Ok(entry) => {
                    tracing::info!(uid = entry.id.uid, boot = entry.boot_id, "forgetting a claim of another boot");
                    fs::remove_file(&path)?;
                }
                Err(error) => {
                    tracing::warn!(file = %path.display(), %error, "forgetting a claim that cannot be read");
                    fs::remove_file(&path)?;
                }
            }
        }
        let released = Mutex::new(released(&released_dir, boot_id)?);
        Ok(Self { dir, released_dir, boot_id: boot_id.to_owned(), entries: Mutex::new(entries), released })
    }

    pub fn released(&self) -> BTreeSet<ExposureId> {
        self.released.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn note_release(&self, id: &ExposureId) -> io::Result<()> {
        write_atomically(&self.released_dir.join(format!("{}@{}", id.uid, id.epoch)), self.boot_id.as_bytes())?;
        self.released.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
        Ok(())
    }

    /// A panic elsewhere leaves the map as the files are: it changes after they do.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn all(&self) -> BTreeMap<String, Entry> {
        self.lock().clone()
    }

    pub fn get(&self, uid: &str) -> Option<Entry> {
        self.lock().get(uid).cloned()
    }

    pub fn insert(&self, entry: Entry) -> io::Result<()> {
        write_atomically(&path_of(&self.dir, &entry.id.uid), &serde_json::to_vec(&entry)?)?;
        self.lock().insert(entry.id.uid.clone(), entry);
        Ok(())
    }

    /// The host is about to be shown it.
    pub fn shown(&self, uid: &str) -> io::Result<()> {
        match self.get(uid) {
            Some(entry) if !entry.shown => self.insert(Entry { shown: true, ..entry }),
            _ => Ok(()),
        }
    }

    pub fn limits(&self, uid: &str, limits: Limits) -> io::Result<()> {
        match self.get(uid) {
            Some(entry) => self.insert(Entry { limits, ..entry }),
            None => Ok(()),
        }
    }

    pub fn import_done(&self, uid: &str, done: ImportDone) -> io::Result<()> {
        match self.get(uid) {
            Some(entry) => self.insert(Entry { import_done: Some(done), ..entry }),
            None => Ok(()),
        }
    }

    pub fn remove(&self, uid: &str) -> io::Result<()> {
        match fs::remove_file(path_of(&self.dir, uid)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.lock().remove(uid);
        Ok(())
    }
}

fn path_of(dir: &Path, uid: &str) -> PathBuf {
    dir.join(format!("{uid}.json"))
}

/// Whose release was noted on this boot; notes of another are removed.
fn released(dir: &Path, boot_id: &str) -> io::Result<BTreeSet<ExposureId>> {
    fs::create_dir_all(dir)?;
    let mut all = BTreeSet::new();
    for file in fs::read_dir(dir)? {
        let path = file?.path();
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.split_once('@'));
        let id = name.and_then(|(uid, epoch)| Some(ExposureId { uid: uid.to_owned(), epoch: epoch.parse().ok()? }));
        match id {
            Some(id) if fs::read(&path)? == boot_id.as_bytes() => drop(all.insert(id)),
            _ => fs::remove_file(&path)?,
        }
    }
    Ok(all)
}

fn read(path: &Path) -> io::Result<Entry> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// All of it or what was there before, whenever the process dies. Readable by the owner only.
pub(crate) fn write_atomically(path: &Path, content: &[u8]) -> io::Result<()> {
    replace(path, content, |file| file.sync_all())
}

/// The same for what is written often, and lost with the machine anyway.
pub(crate) fn write_in_memory(path: &Path, content: &[u8]) -> io::Result<()> {
    replace(path, content, |_| Ok(()))
}

fn replace(path: &Path, content: &[u8], settle: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let new = path.with_extension("new");
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(content)?;
    settle(&file)?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use planner::agent::{Function, Key, Kind, Nic};

    fn entry(uid: &str, boot_id: &str) -> Entry {
        Entry {
            key: Key { kind: Kind::Nic, namespace: "ns".into(), name: "n".into(), uid: uid.into() },
            id: ExposureId { uid: uid.into(), epoch: 3 },
            boot_id: boot_id.into(),
            identity: "port.p.3".into(),
            function: Function::Nic(Nic {
                mac: "02:00:00:00:00:01".into(),
                mtu: 1400,
                logical_port: "p".into(),
                representor: "mp0".into(),
                addresses: vec!["10.0.0.1".parse().expect("an address")],
            }),
            limits: Limits::default(),
            import_done: None,
            shown: false,
        }
    }

    fn files(dir: &Path) -> usize {
        fs::read_dir(dir).expect("read").count()
    }

    #[test]
    fn a_restart_remembers_and_another_boot_forgets() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("record");
        let record = Record::open(dir.path(), "boot-1").expect("open");
        record.insert(entry("a", "boot-1")).expect("insert");
        record.insert(entry("b", "boot-1")).expect("insert");
        record.remove("b").expect("remove");
        let limits = Limits { iops: Some(5000), ..Limits::default() };
        record.limits("a", limits).expect("change");
        record.limits("b", limits).expect("change what is not there");
        record.shown("a").expect("change");
        record.shown("b").expect("change what is not there");
        let released = ExposureId { uid: "b".into(), epoch: 3 };
        record.note_release(&released).expect("note");
        record.remove("never").expect("remove what is not there");
        fs::write(path.join("c.json"), b"{half").expect("write");
        fs::write(path.join("a.new"), b"{half").expect("write");

        let again = Record::open(dir.path(), "boot-1").expect("open again");
        assert_eq!(
            again.all(),
            BTreeMap::from([("a".to_owned(), Entry { limits, shown: true, ..entry("a", "boot-1") })])
        );
        assert_eq!(again.released(), BTreeSet::from([released]));
        assert_eq!(files(&path), 1, "what cannot be read is removed");

        let rebooted = Record::open(dir.path(), "boot-2").expect("open on another boot");
        assert_eq!(rebooted.all(), BTreeMap::new());
        assert_eq!(rebooted.released(), BTreeSet::new());
        assert_eq!((files(&path), files(&dir.path().join("released"))), (0, 0));
    }

    /// As the agent of 2026-11-22 wrote entries, before there were limits, authorities and formats of images, and `shown`.
    const EARLIER: [&str; 4] = [
        r#"{"key": {"kind": "Disk", "namespace": "ns", "name": "bm-01-root", "uid": "disk"}, "id": {"uid": "disk", "epoch": 3},
            "boot_id": "boot-1", "identity": "dpu-1@3", "function": {"Disk": {
                "volume": {"driver": "d", "handle": "h", "attributes": {"pool": "default"}, "read_only": false},
                "presentation": {"bus": "NVMe", "slot": "Boot", "serial": "MP1", "uuid": "u", "read_only": false}}}}"#,
        r#"{"key": {"kind": "Disk", "namespace": "ns", "name": "bm-01-seed", "uid": "seed"}, "id": {"uid": "seed", "epoch": 1},
            "boot_id": "boot-1", "identity": "dpu-1@1", "function": {"Seed": {"secret": "bm-01-seed",
                "presentation": {"bus": "VirtioBlk", "slot": "Seed", "serial": "MP2", "uuid": "v", "read_only": true}}}}"#,
        r#"{"key": {"kind": "Disk", "namespace": "ns", "name": "image", "uid": "import"}, "id": {"uid": "import", "epoch": 1},
            "boot_id": "boot-1", "identity": "dpu-1@1", "function": {"Import": {"url": "http://x/i.raw", "sha256": "00",
                "volume": {"driver": "d", "handle": "i", "attributes": {}, "read_only": false}}},
            "import_done": {"bytes": 4096, "checksum": "sha256:00"}}"#,
        r#"{"key": {"kind": "Nic", "namespace": "ns", "name": "n", "uid": "nic"}, "id": {"uid": "nic", "epoch": 3},
            "boot_id": "boot-1", "identity": "port.p.3", "function": {"Nic": {"mac": "02:00:00:00:00:01", "mtu": 1400,
                "logical_port": "p", "representor": "mp0", "addresses": ["10.0.0.1"]}}}"#,
    ];

    fn opened(texts: impl IntoIterator<Item = String>) -> BTreeMap<String, Entry> {
        let dir = tempfile::tempdir().expect("a folder");
        fs::create_dir(dir.path().join("record")).expect("make");
        for text in texts {
            let uid = serde_json::from_str::<serde_json::Value>(&text).expect("JSON")["id"]["uid"].clone();
            fs::write(path_of(&dir.path().join("record"), uid.as_str().expect("a UID")), text).expect("write");
        }
        Record::open(dir.path(), "boot-1").expect("open").all()
    }

    /// An agent that is upgraded, or rolled back, adopts what the host has by the record of the agent before it.
    #[test]
    fn entries_of_an_earlier_and_of_a_later_release_are_adopted() {
        let earlier = opened(EARLIER.map(str::to_owned));
        assert_eq!(earlier.keys().collect::<Vec<_>>(), ["disk", "import", "nic", "seed"]);
        assert_eq!(earlier["nic"], entry("nic", "boot-1"));
        assert!(earlier.values().all(|entry| !entry.shown && entry.limits == Limits::default()));
        let Function::Import(import) = &earlier["import"].function else { panic!("{:?}", earlier["import"]) };
        assert_eq!((import.ca_bundle.as_deref(), import.format), (None, api::image::ImageFormat::Raw));

        let later = EARLIER.map(|text| {
            text.replacen('{', r#"{"unheard": {"of": [1]}, "#, 1)
                .replace(r#""read_only""#, r#""unheard": 1, "read_only""#)
        });
        assert_eq!(opened(later), earlier, "what is not known is left out of account");
        // What an entry is about is not guessed: without it nothing is claimed, presented or taken away.
        assert_eq!(opened([EARLIER[3].replace(r#""Nic": {"#, r#""Tape": {"#)]), BTreeMap::new());
    }
}
