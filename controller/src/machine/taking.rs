//! A machine is about to claim a server.

use crate::index::IndexKey;
use crate::kinds::claimed_by;
use crate::world::World;
use runtime::queue::Key;
use std::sync::Arc;

/// No other machine tries that server before this is dropped.
pub(super) struct Taking {
    world: Arc<World>,
    hardware: String,
}

impl Taking {
    /// `None`: another machine is about to claim it.
    pub(super) fn begin(world: &Arc<World>, hardware: &str, machine: &Key) -> Option<Self> {
        let taken = world.placement.take(hardware, machine);
        taken.then(|| Self { world: world.clone(), hardware: hardware.to_owned() })
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        let stood_in_the_way = self.world.placement.give_up(&self.hardware);
        let there = self.world.hardware.by(&IndexKey::Server(self.hardware.clone()));
        if stood_in_the_way && there.iter().any(|hardware| claimed_by(hardware).is_none()) {
            // Whoever has passed it over may have it.
            self.world.machines_without_hardware();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::Work;
    use api::tinkerbell::Hardware;

    #[tokio::test(start_paused = true)]
    async fn who_passed_a_server_over_is_woken_if_it_is_not_claimed() {
        let (world, of) = (World::new(0), |name: &str| ("team-a".to_owned(), name.to_owned()));
        let mut hardware = Hardware::default();
        hardware.metadata.name = Some("server-1".to_owned());
        world.hardware.put(hardware);
        world.placement.looks(&of("bm-02"));
        let take = |machine| Taking::begin(&world, "server-1", &of(machine));
        let taking = take("bm-01").expect("nobody else tries it");
        assert_eq!(world.placement.taken_by_other("server-1", &of("bm-01")), None);
        drop(taking);
        assert_eq!(world.queue(Work::Machine).depth(), 0, "nobody was in the way");
        let taking = take("bm-01").expect("nobody else tries it");
        assert!(take("bm-02").is_none());
        assert_eq!(world.placement.taken_by_other("server-1", &of("bm-02")), Some(of("bm-01")));
        drop(taking);
        assert_eq!(world.queue(Work::Machine).next().await, of("bm-02"));
        assert!(take("bm-02").is_some());
    }
}
