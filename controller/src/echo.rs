//! Events that tell nobody but others what somebody wrote.
//!
//! What a write is answered with is in the caches at once, and who wrote it goes on until nothing is left to do, with that in view; or
//! fails, and looks again after its back-off. The event that brings the same version later is no news to it. All others that rest on
//! the object are woken by that event, as by any other. An event that is faster than the answer wakes the writer too: once too often.
//!
//! This holds for whoever ends only after a look in which it wrote nothing: [`writes_until_settled`] names them.

use crate::work::Work;
use runtime::queue::Key;

tokio::task_local! {
    static LOOKS: Looker;
    static WROTE: Option<Looker>;
}

/// Whose object is looked at.
pub type Looker = (Work, Key);

/// Its reconcile ends well only after it has found nothing to write, by all that is in the caches then.
fn writes_until_settled(work: Work) -> bool {
    matches!(work, Work::Machine | Work::VNic | Work::Contact)
}

/// Writes in this future are that one's.
pub async fn looking<T>(who: Looker, look: impl Future<Output = T>) -> T {
    match writes_until_settled(who.0) {
        true => LOOKS.scope(who, look).await,
        false => look.await,
    }
}

/// Who writes now.
pub fn writer() -> Option<Looker> {
    LOOKS.try_with(Clone::clone).ok()
}

/// Whoever is woken for what is told is woken, but for the one who wrote it.
pub fn telling(writer: Option<Looker>, tell: impl FnOnce()) {
    WROTE.sync_scope(writer, tell);
}

/// What is being told was written by that one.
pub fn is_told_its_own(work: Work, key: &Key) -> bool {
    let own = |writer: &Option<Looker>| writer.as_ref().is_some_and(|(of, whose)| *of == work && whose == key);
    WROTE.try_with(own).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Cache;
    use crate::world::World;
    use api::VNic;
    use kube::runtime::watcher::Event;

    fn vnic(version: &str) -> VNic {
        let mut vnic = VNic::new("nic", Default::default());
        vnic.metadata.namespace = Some("team-a".to_owned());
        (vnic.metadata.uid, vnic.metadata.resource_version) = (Some("u".to_owned()), Some(version.to_owned()));
        vnic
    }

    /// How many look after the event.
    fn woken(world: &World, cache: &Cache<VNic>, version: &str) -> (usize, usize) {
        let [own, other] = ["nic", "bm-01"].map(|name| ("team-a".to_owned(), name.to_owned()));
        cache.event(Event::Apply(vnic(version)), &|_| {
            world.look(Work::VNic, own.clone());
            world.look(Work::Machine, other.clone());
        });
        (world.queue(Work::VNic).depth(), world.queue(Work::Machine).depth())
    }

    #[tokio::test(start_paused = true)]
    async fn who_wrote_is_not_woken_by_that_and_others_are() {
        let (world, cache) = (World::new(0), Cache::new(|_: &VNic| Vec::new()));
        let who = (Work::VNic, ("team-a".to_owned(), "nic".to_owned()));
        looking(who, async { cache.put(vnic("7")) }).await;
        assert_eq!(woken(&world, &cache, "6"), (1, 1), "an event from before it is somebody else's");
        world.queue(Work::VNic).next().await;
        let world = World::new(0);
        assert_eq!(woken(&world, &cache, "7"), (0, 1), "its own");
        assert_eq!(woken(&world, &cache, "8"), (1, 1), "and what came after");
        let world = World::new(0);
        cache.put(vnic("9"));
        assert_eq!(woken(&world, &cache, "9"), (1, 1), "nobody looked when it was written");
        let world = World::new(0);
        let hold = (Work::Hold, ("team-a".to_owned(), "nic".to_owned()));
        looking(hold, async { cache.put(vnic("10")) }).await;
        assert_eq!(woken(&world, &cache, "10"), (1, 1), "one that may end with what it wrote");
    }
}
