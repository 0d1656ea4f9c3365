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
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    counted: Option<Counted>,
    /// What was presented before this run, or has been counted before: it may have been read while nobody counted.
    before: BTreeSet<ExposureId>,
    /// No two counts of such a disk are the same: the most so far.
    most: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Counted {
    id: ExposureId,
    /// The emulation's own counter, which starts anew with what presents the disk; `None`: it was not read yet.
    raw: Option<u64>,
    count: u64,
    /// The last attempt to read the counter succeeded. A number that nobody could look at stands still as well.
    is_current: bool,
}

impl State {
    fn begin(&mut self, id: ExposureId, raw: Option<u64>) {
        let is_new = self.before.insert(id.clone());
        let count = if is_new && raw.is_some() { 0 } else { self.most + 1 };
        self.most = self.most.max(count);
        self.counted = Some(Counted { id, raw, count, is_current: raw.is_some() });
    }

    /// `now`: nothing if the counter could not be read.
    fn look(&mut self, id: &ExposureId, now: Option<u64>) {
        match now {
            Some(now) => self.read(id, now),
            None => {
                let counted = self.counted.iter_mut().find(|counted| counted.id == *id);
                counted.into_iter().for_each(|counted| counted.is_current = false);
            }
        }
    }

    fn read(&mut self, id: &ExposureId, now: u64) {
        let Some(counted) = self.counted.as_mut().filter(|counted| counted.id == *id) else { return };
        // One that starts anew has counted what it says.
        let more = counted.raw.map_or(1, |before| now.checked_sub(before).unwrap_or(now));
        (counted.raw, counted.count) = (Some(now), counted.count.saturating_add(more));
        counted.is_current = true;
        self.most = self.most.max(counted.count);
    }
}

impl BootDisk {
    pub(crate) fn new() -> Self {
        let run = format!("{:x}", clock::now().as_nanosecond());
        Self { run, state: Mutex::default(), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counted(&self) -> Option<ExposureId> {
        self.state().counted.as_ref().map(|counted| counted.id.clone())
    }

    pub(crate) fn adopt(&self, known: impl IntoIterator<Item = ExposureId>) {
        self.state().before.extend(known);
    }

    /// For the Lease; `None`: there is no such disk, or its counter cannot be read now.
    pub(crate) fn told(&self) -> Option<String> {
        let state = self.state();
        let counted = state.counted.as_ref().filter(|counted| counted.is_current)?;
        let reads = BootDiskReads { run: self.run.clone(), disk: counted.id.version(), count: counted.count };
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
        if self.counted().as_ref() == now {
            return;
        }
        match now {
            Some(id) => {
                let raw = reads(emulation, id).await;
                self.state().begin(id.clone(), raw);
            }
            None => self.state().counted = None,
        }
        self.changed.notify_one();
    }

    /// Counts for ever.
    pub(crate) async fn run(&self, emulation: Arc<dyn Emulation>) {
        loop {
            let Some(id) = self.counted() else {
                self.changed.notified().await;
                continue;
            };
            tokio::select! {
                biased;
                () = tokio::time::sleep(EVERY) => {}
                () = self.changed.notified() => continue,
            }
            let now = reads(&*emulation, &id).await;
            self.state().look(&id, now);
        }
    }
}

async fn reads(emulation: &dyn Emulation, id: &ExposureId) -> Option<u64> {
    let counted = tokio::time::timeout(LIMIT, emulation.reads(id)).await.ok()?;
    counted.inspect_err(|error| tracing::debug!(%error, "reading the counter of the boot disk")).ok()?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> ExposureId {
        ExposureId { uid: "u".to_owned(), epoch: 1 }
    }

    fn counted(state: &mut State, first: Option<u64>, then: &[u64]) -> u64 {
        state.begin(id(), first);
        then.iter().for_each(|now| state.read(&id(), *now));
        state.counted.as_ref().expect("counted").count
    }

    #[test]
    fn what_was_read_before_the_host_had_it_does_not_count() {
        let new = |then: &[u64]| counted(&mut State::default(), Some(12), then);
        assert_eq!(new(&[12, 12]), 0);
        assert_eq!(new(&[12, 15]), 3);
        // What presents it was started anew.
        assert_eq!(new(&[0, 0]), 0);
        assert_eq!(new(&[4, 5]), 5);
    }

    /// What is told stands still only while the counter is seen to.
    #[test]
    fn a_counter_that_cannot_be_read_is_not_told() {
        let disk = BootDisk::new();
        disk.state().begin(id(), Some(0));
        let told = || disk.told().and_then(|told| BootDiskReads::parse(&told)).map(|told| told.count);
        assert_eq!(told(), Some(0));
        disk.state().look(&id(), None);
        assert_eq!(told(), None);
        disk.state().look(&id(), Some(9));
        assert_eq!(told(), Some(9), "what was read meanwhile counts");
        disk.state().begin(ExposureId { epoch: 2, ..id() }, None);
        assert_eq!(told(), None);
    }

    /// It may have been read while nobody counted: never nothing, and never what was told before.
    #[test]
    fn a_disk_that_was_not_counted_from_the_start_was_read() {
        assert_eq!(counted(&mut State::default(), None, &[0, 0]), 2);
        let mut state = State::default();
        state.before.insert(id());
        let mut told = Vec::new();
        // It was gone each time: what presents it had crashed.
        for raw in [0, 0, 7, 0] {
            told.push(counted(&mut state, Some(raw), &[raw]));
        }
        assert!(told.is_sorted_by(|before, after| before < after) && told[0] > 0, "{told:?}");
        let mut state = State::default();
        assert_eq!(counted(&mut state, Some(0), &[0]), 0);
        assert_ne!(counted(&mut state, Some(0), &[0]), 0, "presented again under a host that runs");
    }
}
