//! How a disk is presented, and many at once: those that wait for their turn at the same time share one look at the target.
//!
//! Each would look at all that the target has, which grows with what it presents, and a target answers every few milliseconds. So who has the
//! turn takes along all that wait: looks once, makes the bdevs beside each other, adds the namespaces one after the other, for a
//! subsystem refuses a change while another one is under way, and opens the door once. Disks that have something in common (a UID, a UUID, what they
//! stand on) are never in one batch: each is judged by what the target has.

use crate::observed::Observed;
use crate::places::Places;
use crate::rpc::methods::nvmf::{AddNamespace, NewNamespace};
use crate::{Inner, State, backing, explain, names};
use futures::future::join_all;
use planner::exposure::Slot;
use ports::emulation::DiskFunction;
use ports::{ErrorClass, PortError};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tokio::sync::oneshot;

/// So many bdevs are made at the same time.
const BESIDE: usize = 8;

type Told = Result<(), PortError>;

/// A disk that is to be presented, and who waits for that.
struct Asked {
    disk: DiskFunction,
    told: oneshot::Sender<Told>,
}

impl Asked {
    fn tell(self, told: Told) {
        // Whoever asked has given up.
        let _ = self.told.send(told);
    }

    fn has_in_common(&self, other: &DiskFunction) -> bool {
        let own = &self.disk;
        own.id.uid == other.id.uid || own.uuid.eq_ignore_ascii_case(&other.uuid) || own.backend == other.backend
    }
}

/// Disks that wait for their turn.
#[derive(Default)]
pub(crate) struct Waiting(Mutex<Vec<Asked>>);

impl Waiting {
    pub(crate) fn ask(&self, disk: &DiskFunction) -> oneshot::Receiver<Told> {
        let (told, answer) = oneshot::channel();
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push(Asked { disk: disk.clone(), told });
        answer
    }

    /// Those that are next, and have nothing in common. What nobody waits for any more is not presented: its `hide` may be the next verb.
    fn batch(&self) -> Vec<Asked> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut batch, mut later): (Vec<Asked>, Vec<Asked>) = (Vec::new(), Vec::new());
        for asked in waiting.drain(..).filter(|asked| !asked.told.is_closed()) {
            let others = batch.iter().chain(&later);
            match others.into_iter().any(|other| other.has_in_common(&asked.disk)) {
                true => later.push(asked),
                false => batch.push(asked),
            }
        }
        *waiting = later;
        batch
    }
}

/// What is missing of a disk.
enum Missing {
    /// The host has its namespace; an interrupted call may have left out the last step.
    Door,
    /// All of it: this is its namespace.
    Namespace(u32),
}

impl Inner {
    /// Presents all that wait.
    pub(crate) async fn present(&self, state: &mut State) {
        loop {
            let batch = self.waiting.batch();
            if batch.is_empty() {
                return;
            }
            self.present_batch(state, batch).await;
        }
    }

    async fn present_batch(&self, state: &mut State, batch: Vec<Asked>) {
        let observed = match Observed::read(&self.rpc, &self.host).await {
            Ok(observed) => observed,
            Err(error) => {
                for asked in batch {
                    let object = names::bdev(&asked.disk.id);
                    asked.tell(Err(error.clone().at(&object)));
                }
                return;
            }
        };
        state.saw(observed.subsystem().is_some(), observed.connected);
        let (mut given, mut placed) = (BTreeMap::new(), Vec::new());
        for asked in batch {
            match self.place(state, &observed, &mut given, &asked.disk) {
                Ok(missing) => placed.push((asked, missing)),
                Err(error) => asked.tell(Err(error)),
            }
        }
        let mut backed = Vec::new();
        while !placed.is_empty() {
            let some: Vec<_> = placed.drain(..placed.len().min(BESIDE)).collect();
            let made = some.iter().map(|(asked, missing)| self.back(&observed, &asked.disk, missing));
            let made = join_all(made).await;
            for ((asked, missing), made) in some.into_iter().zip(made) {
                match made {
                    Ok(()) => backed.push((asked, missing)),
                    Err(error) => asked.tell(Err(error)),
                }
            }
        }
        let is_new = backed.iter().any(|(_, missing)| matches!(missing, Missing::Namespace(_)));
        let created = if is_new { self.host.create(&self.rpc, &observed.subsystems).await } else { Ok(()) };
        let mut shown = Vec::new();
        for (asked, missing) in backed {
            match self.show(&created, &asked.disk, &missing).await {
                Ok(()) => shown.push(asked),
                Err(error) => asked.tell(Err(error)),
            }
        }
        if shown.is_empty() {
            return;
        }
        let opened = self.host.listen(&self.rpc, &observed.subsystems).await;
        shown.into_iter().for_each(|asked| asked.tell(opened.clone()));
    }

    /// `given`: the namespaces of those before it in the batch, with their bdevs.
    fn place(
        &self,
        state: &mut State,
        observed: &Observed,
        given: &mut BTreeMap<u32, String>,
        disk: &DiskFunction,
    ) -> Result<Missing, PortError> {
        let object = names::bdev(&disk.id);
        if let Some((present, ns)) = observed.disks().find(|(id, _)| id.uid == disk.id.uid) {
            if present.epoch != disk.id.epoch {
                let what = format!("{object}: the host has epoch {} of it as namespace {}", present.epoch, ns.nsid);
                return Err(PortError::new(ErrorClass::Conflict, what));
            }
            if state.leaving.contains(&disk.id) {
                return Err(PortError::new(ErrorClass::Busy, format!("{object}: it is still leaving")));
            }
            return Ok(Missing::Door);
        }
        if let Some(ns) = observed.namespaces().iter().find(|ns| ns.uuid.eq_ignore_ascii_case(&disk.uuid)) {
            // SPDK takes it, and the host refuses the second.
            let what = format!("{object}: the host has UUID {} already, as {}", ns.uuid, ns.bdev_name);
            return Err(PortError::new(ErrorClass::Conflict, what));
        }
        let nsid = self.free_nsid(observed, given, &state.places, disk)?;
        if disk.slot == Slot::HotPlug {
            let kept = state.places.keep(&disk.id, nsid);
            kept.map_err(|e| PortError::new(ErrorClass::Busy, format!("{object}: writing down its place: {e}")))?;
        }
        given.insert(nsid, object);
        Ok(Missing::Namespace(nsid))
    }

    fn free_nsid(
        &self,
        observed: &Observed,
        given: &BTreeMap<u32, String>,
        places: &Places,
        disk: &DiskFunction,
    ) -> Result<u32, PortError> {
        let object = names::bdev(&disk.id);
        let occupant = |nsid: u32| {
            let there = observed.namespaces().iter().find(|ns| ns.nsid == nsid).map(|ns| &ns.bdev_name);
            there.or_else(|| given.get(&nsid))
        };
        let busy = |what: String| PortError::new(ErrorClass::Busy, format!("{object}: {what}"));
        let fixed = match disk.slot {
            Slot::Boot => names::BOOT_NSID,
            Slot::Seed => names::SEED_NSID,
            Slot::HotPlug => {
                let all = names::FIRST_HOT_PLUG_NSID..=self.host.namespaces();
                let free = all.filter(|nsid| occupant(*nsid).is_none());
                // Its own, else one that no other will come back to.
                let first = free.min_by_key(|nsid| (places.of(&disk.id) != Some(*nsid), places.is_kept(*nsid), *nsid));
                return first.ok_or_else(|| busy(format!("all {} hot-plug places are taken", self.host.hot_plug)));
            }
        };
        match occupant(fixed) {
            None => Ok(fixed),
            Some(bdev) => Err(busy(format!("{bdev} has namespace {fixed}"))),
        }
    }

    /// The bdev that the namespace is to show.
    async fn back(&self, observed: &Observed, disk: &DiskFunction, missing: &Missing) -> Result<(), PortError> {
        if let Missing::Door = missing {
            return Ok(());
        }
        let object = names::bdev(&disk.id);
        backing::make(&self.rpc, &observed.bdevs, disk, &object).await?;
        backing::measure(&self.rpc, &object, disk.limits).await
    }

    /// `created`: whether there is a subsystem to show it in.
    async fn show(&self, created: &Told, disk: &DiskFunction, missing: &Missing) -> Told {
        let Missing::Namespace(nsid) = missing else { return Ok(()) };
        created.clone()?;
        self.add_namespace(disk, *nsid, &names::bdev(&disk.id)).await
    }

    async fn add_namespace(&self, disk: &DiskFunction, nsid: u32, bdev: &str) -> Result<(), PortError> {
        let eui64 = names::eui64(&self.host.nqn, disk.slot);
        let namespace = NewNamespace { nsid, bdev_name: bdev, uuid: &disk.uuid, eui64, no_auto_visible: false };
        let Err(error) = self.rpc.call(&AddNamespace { nqn: &self.host.nqn, namespace }).await else { return Ok(()) };
        let refused = error.at(bdev);
        if refused.class != ErrorClass::Invalid {
            return Err(refused);
        }
        // "Invalid parameters", whatever the reason: the state tells.
        let observed = Observed::read(&self.rpc, &self.host).await.map_err(|e| e.at(bdev))?;
        Err(explain::refused_namespace(&observed, nsid, bdev).unwrap_or(refused))
    }
}
