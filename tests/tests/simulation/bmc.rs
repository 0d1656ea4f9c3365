//! The simulated BMC keeps its port's promises.

use super::kinds::seed;
use super::{each, simulate};
use api::dpu::PowerDomain;
use async_trait::async_trait;
use ports::conformance::Sleep;
use ports::conformance::bmc::{Abilities, Bench, run};
use ports::{Bmc, conformance::memory::MemoryStorage};
use std::sync::Arc;
use std::time::Duration;
use tests::sim::Simulation;
use tests::sim::faults::Plan;
use tests::sim::host::{Host, HostBmc, Manners};
use tests::sim::random::Random;
use tests::sim::upkeep;

struct Rack(Arc<Host>, tempfile::TempDir);

impl Rack {
    fn host(&self, number: usize, manners: Manners) -> Box<dyn Bmc> {
        let host =
            Host::new(number, PowerDomain::Standby, self.1.path(), &MemoryStorage::default(), Random::new(seed()));
        host.behave(manners);
        Box::new(HostBmc(host))
    }
}

#[async_trait]
impl Sleep for Rack {
    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

#[async_trait]
impl Bench for Rack {
    fn abilities(&self) -> Abilities {
        let settles_within = Duration::from_secs(3);
        Abilities { boot_order: true, override_ends: true, guest_obeys: false, settles_within }
    }

    async fn connect(&self) -> Box<dyn Bmc> {
        Box::new(HostBmc(self.0.clone()))
    }

    async fn with_wrong_password(&self) -> Option<(Box<dyn Bmc>, String)> {
        Some((self.host(2, Manners::Unauthorized), "secret".to_owned()))
    }

    async fn absent(&self) -> Option<Box<dyn Bmc>> {
        Some(self.host(3, Manners::Unreachable))
    }
}

#[test]
fn keeps_the_ports_promises() {
    simulate(async {
        let dir = tempfile::tempdir().expect("a folder");
        let host = Host::new(1, PowerDomain::Standby, dir.path(), &MemoryStorage::default(), Random::new(seed()));
        run(&Rack(host, dir)).await;
    });
}

#[test]
fn a_host_that_comes_on_late_is_not_left_on_by_a_deletion() {
    each([3, 12, 25].into_iter(), |late| {
        simulate(async {
            let s = Simulation::start(1, seed(), Plan::None);
            upkeep::deleted_before_it_is_on(&s, Duration::from_secs(*late)).await
        })
    });
}
