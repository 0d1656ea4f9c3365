//! A machine that is the node of a pod, with the controller or the agent dying in between.

use super::{each, sample, seed, simulate, wide};
use tests::sim::faults::{Fault, Plan, Who};
use tests::sim::{Simulation, workers};

async fn life(s: &Simulation) -> Result<(), String> {
    workers::create(s).await?;
    workers::moves_and_ends(s).await
}

#[test]
fn a_pods_nic_is_at_its_machines_server_and_at_no_others_whoever_dies() {
    for (who, stride) in [(Who::Controller, 8), (Who::Agent, 12)] {
        let all = simulate(async {
            let s = Simulation::start(2, seed(), Plan::None);
            life(&s).await.expect("it goes well without a fault");
            s.scene.faults.count(who)
        });
        let faults = [Fault::Crash, Fault::LoseAnswer, Fault::Late];
        let stride = wide(stride);
        let cases = sample(all, stride).map(|at| (at, faults[at / stride % faults.len()]));
        each(cases, |(at, fault)| {
            simulate(async {
                let s = Simulation::start(2, seed(), Plan::At { who, at: *at, fault: *fault });
                life(&s).await
            })
        });
    }
}
