//! Servers that DHCP does not serve.

use super::{each, seed, simulate};
use tests::sim::Simulation;
use tests::sim::faults::Plan;
use tests::sim::unserved::{self, Choice};

#[test]
fn a_workflow_whose_server_is_refused_an_address_says_so_until_it_is_served() {
    simulate(async { unserved::without_address(&Simulation::start(1, seed(), Plan::None)).await })
        .unwrap_or_else(|e| panic!("SIM_SEED={}: {e}", seed()));
}

#[test]
fn an_edit_of_a_claimed_server_cures_whoever_waits_for_its_mac_address() {
    each([Choice::Label, Choice::Name].into_iter(), |choice| {
        simulate(async { unserved::with_a_mac_of_another(&Simulation::start(2, seed(), Plan::None), *choice).await })
    });
}
