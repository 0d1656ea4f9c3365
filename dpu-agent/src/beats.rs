//! What the agent remembers of its Lease for as long as the boot lasts: a number that grows with each renewal. A renewal that the
//! API server confirmed and does not have any more tells that its state went back, by a restore of etcd say, or that it is another
//! cluster's (docs/design/fencing.md, *TimeWentBack*). Resource versions do not tell: a restore may set them ahead.

use crate::boot_disk::BootDisk;
use crate::record::write_in_memory;
use planner::dpu::ready::Renewals;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// What a renewal says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Beat {
    pub number: u64,
    /// How often the API server was found to have gone back.
    pub went_back: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Known {
    boot_id: String,
    /// As which Dpu the agent was registered.
    dpu_uid: String,
    /// The last one that was confirmed.
    beat: Beat,
}

#[derive(Debug)]
pub(crate) struct Beats {
    path: PathBuf,
    boot_id: String,
    /// `None`: nothing was confirmed on this boot.
    known: Mutex<Option<Known>>,
    pub renewing: Renewing,
    /// What a renewal tells besides.
    pub boot_disk: BootDisk,
}

/// The renewals of this process.
#[derive(Debug, Default)]
pub(crate) struct Renewing {
    begun: AtomicU64,
    acknowledged: AtomicU64,
    /// Somebody waits for the next that is acknowledged.
    awaited: AtomicBool,
    came: Notify,
}

impl Renewing {
    pub fn begin(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    /// The last one that was begun: there is one at a time.
    pub fn acknowledge(&self) {
        self.acknowledged.store(self.begun.load(Ordering::SeqCst), Ordering::SeqCst);
        if self.awaited.swap(false, Ordering::SeqCst) {
            self.came.notify_one();
        }
    }

    pub fn so_far(&self) -> Renewals {
        let acknowledged = self.acknowledged.load(Ordering::SeqCst);
        Renewals { begun: self.begun.load(Ordering::SeqCst), acknowledged }
    }

    pub fn wait_for_next(&self) {
        self.awaited.store(true, Ordering::SeqCst);
    }

    /// The next one was acknowledged, after [`Renewing::wait_for_next`].
    pub async fn came(&self) {
        self.came.notified().await;
    }
}

impl Beats {
    pub fn open(run_dir: &Path, boot_id: &str) -> Self {
        let path = run_dir.join("beat");
        let known = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let known = known.filter(|known: &Known| known.boot_id == boot_id);
        let (known, renewing, boot_disk) = (Mutex::new(known), Renewing::default(), BootDisk::new());
        Self { path, boot_id: boot_id.to_owned(), known, renewing, boot_disk }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often the API server was found to have gone back, by what it has confirmed.
    pub fn went_back(&self) -> u64 {
        self.lock().as_ref().map(|known| known.beat.went_back).unwrap_or_default()
    }

    /// The renewal after the last one that was confirmed. `there`: what the Lease says, if that was read; nothing: there is no Lease.
    /// True: the API server went back.
    pub fn after(&self, dpu_uid: &str, there: Option<Beat>) -> (Beat, bool) {
        let there = there.unwrap_or_default();
        match self.lock().as_ref() {
            // One that was confirmed without our hearing of it is none that is missing; but it may have told that time went back.
            Some(known) if known.dpu_uid == dpu_uid && known.beat.number <= there.number => {
                let went_back = there.went_back.max(known.beat.went_back);
                (Beat { number: there.number + 1, went_back }, went_back > known.beat.went_back)
            }
            Some(known) => {
                let went_back = there.went_back.max(known.beat.went_back) + 1;
                (Beat { number: there.number.max(known.beat.number) + 1, went_back }, true)
            }
            None => (Beat { number: there.number + 1, ..there }, false),
        }
    }

    /// The renewal after the last one, where nothing speaks against that.
    pub fn next(&self, dpu_uid: &str) -> Option<Beat> {
        let known = self.lock();
        let known = known.as_ref().filter(|known| known.dpu_uid == dpu_uid)?;
        Some(Beat { number: known.beat.number + 1, ..known.beat })
    }

    pub fn confirmed(&self, dpu_uid: &str, beat: Beat) -> io::Result<()> {
        let known = Known { boot_id: self.boot_id.clone(), dpu_uid: dpu_uid.to_owned(), beat };
        write_in_memory(&self.path, &serde_json::to_vec(&known)?)?;
        *self.lock() = Some(known);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat(number: u64, went_back: u64) -> Beat {
        Beat { number, went_back }
    }

    #[test]
    fn a_confirmed_renewal_that_is_gone_tells_that_time_went_back() {
        let dir = tempfile::tempdir().expect("a folder");
        let beats = Beats::open(dir.path(), "b1");
        assert_eq!(beats.after("dpu", Some(beat(70, 1))), (beat(71, 1), false), "of a boot before");
        beats.confirmed("dpu", beat(71, 1)).expect("written");
        assert_eq!(beats.next("dpu"), Some(beat(72, 1)));
        assert_eq!(beats.after("dpu", Some(beat(71, 1))), (beat(72, 1), false), "somebody else wrote to the Lease");
        assert_eq!(beats.after("dpu", Some(beat(72, 1))), (beat(73, 1), false), "the answer was lost");
        assert_eq!(beats.after("dpu", Some(beat(70, 1))), (beat(72, 2), true));
        assert_eq!(beats.after("dpu", Some(beat(72, 2))), (beat(73, 2), true), "the answer to that was lost");
        assert_eq!(beats.after("dpu", None), (beat(72, 2), true), "the Lease itself was deleted");
        let again = Beats::open(dir.path(), "b1");
        assert_eq!(again.after("dpu", Some(beat(70, 0))), (beat(72, 2), true), "the agent was started anew");
        assert_eq!(Beats::open(dir.path(), "b2").after("dpu", Some(beat(70, 0))), (beat(71, 0), false), "another boot");
    }

    #[test]
    fn a_dpu_that_was_registered_anew_tells_it_too() {
        let dir = tempfile::tempdir().expect("a folder");
        let beats = Beats::open(dir.path(), "b1");
        beats.confirmed("dpu", beat(71, 0)).expect("written");
        assert_eq!(beats.next("another"), None);
        assert_eq!(beats.after("another", Some(beat(71, 0))), (beat(72, 1), true));
    }
}
