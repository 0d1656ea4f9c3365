//! How often the host has read the disk in its boot slot, which each renewal of the Lease tells (`planner::dpu::boot_disk`): the controller
//! knows by it that a host was not started from that disk. Counted from before the disk is told to be presented, so that no read is missed.

use crate::clock;
use planner::agent::{Function, Observed};
use planner::dpu::boot_disk::BootDiskReads;
use planner::exposure::{ExposureId, Slot};
use ports::Emulation;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

const EVERY: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct BootDisk {
    /// What other runs of the agent counted is not known to this one.
    run: String,
    /// What was presented before this run.
    adopted: Mutex<BTreeSet<ExposureId>>,
    counted: Mutex<Option<Counted>>,
    changed: Notify,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Counted {
    id: ExposureId,
    /// The emulation's own counter, which starts anew with what presents the disk; `None`: it was not read yet.
    raw: Option<u64>,
    count: u64,
}

impl Counted {
    /// `is_known`: it was counted from its first operation on.
    fn new(id: ExposureId, raw: Option<u64>, is_known: bool) -> Self {
        Self { id, raw, count: u64::from(!is_known) }
    }

    fn read(&mut self, now: u64) {
        // One that starts anew has counted what it says.
        let more = self.raw.map_or(1, |before| now.checked_sub(before).unwrap_or(now));
        (self.raw, self.count) = (Some(now), self.count.saturating_add(more));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BootDisk {
    pub(crate) fn new() -> Self {
        Self {
            run: format!("{:x}", clock::now().as_nanosecond()),
            adopted: Mutex::default(),
            counted: Mutex::default(),
            changed: Notify::new(),
        }
    }

    pub(crate) fn adopt(&self, known: impl IntoIterator<Item = ExposureId>) {
        lock(&self.adopted).extend(known);
    }

    /// For the Lease; `None`: there is no such disk, or nobody counts.
    pub(crate) fn told(&self) -> Option<String> {
        let counted = lock(&self.counted);
        let counted = counted.as_ref().filter(|counted| counted.raw.is_some())?;
        let reads = BootDiskReads { run: self.run.clone(), attachment: counted.id.uid.clone(), count: counted.count };
        Some(reads.to_string())
    }

    /// Counts the disk that is in the boot slot now.
    pub(crate) async fn watch(&self, observed: &Observed, emulation: &dyn Emulation) {
        let Some(shown) = observed.exposures.last() else { return };
        let in_slot = |id: &&ExposureId| {
            let entry = observed.record.get(&id.uid).filter(|entry| entry.id == **id);
            matches!(entry.map(|entry| &entry.function),
                Some(Function::Disk { presentation, .. }) if presentation.slot == Slot::Boot)
        };
        let now = shown.iter().map(|exposure| &exposure.id).find(in_slot);
        if lock(&self.counted).as_ref().map(|counted| &counted.id) == now {
            return;
        }
        let counted = match now {
            Some(id) => {
                let raw = reads(emulation, id).await;
                let is_known = raw.is_some() && !lock(&self.adopted).contains(id);
                Some(Counted::new(id.clone(), raw, is_known))
            }
            None => None,
        };
        *lock(&self.counted) = counted;
        self.changed.notify_one();
    }

    /// Counts for ever.
    pub(crate) async fn run(&self, emulation: Arc<dyn Emulation>) {
        loop {
            let id = lock(&self.counted).as_ref().map(|counted| counted.id.clone());
            let Some(id) = id else {
                self.changed.notified().await;
                continue;
            };
            tokio::select! {
                biased;
                () = tokio::time::sleep(EVERY) => {}
                () = self.changed.notified() => continue,
            }
            let Some(now) = reads(&*emulation, &id).await else { continue };
            if let Some(counted) = lock(&self.counted).as_mut().filter(|counted| counted.id == id) {
                counted.read(now);
            }
        }
    }
}

async fn reads(emulation: &dyn Emulation, id: &ExposureId) -> Option<u64> {
    let all = tokio::time::timeout(LIMIT, emulation.statistics()).await.ok()?;
    let all = all.inspect_err(|error| tracing::debug!(%error, "reading the counters of the boot disk")).ok()?;
    all.iter().find(|disk| disk.id == *id).map(|disk| disk.read.operations)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> ExposureId {
        ExposureId { uid: "u".to_owned(), epoch: 1 }
    }

    fn counted(known: bool, first: Option<u64>, then: &[u64]) -> u64 {
        let mut counted = Counted::new(id(), first, known);
        then.iter().for_each(|now| counted.read(*now));
        counted.count
    }

    #[test]
    fn what_was_read_before_the_host_had_it_does_not_count() {
        assert_eq!(counted(true, Some(12), &[12, 12]), 0);
        assert_eq!(counted(true, Some(12), &[12, 15]), 3);
        // What presents it was started anew.
        assert_eq!(counted(true, Some(12), &[0, 0]), 0);
        assert_eq!(counted(true, Some(12), &[4, 5]), 5);
    }

    /// It may have been read while nobody counted: never nothing.
    #[test]
    fn a_disk_that_was_not_counted_from_the_start_was_read() {
        assert_eq!(counted(false, Some(0), &[0]), 1);
        assert_eq!(counted(false, None, &[0, 0]), 2);
    }
}
