//! Machines on a server without a DPU: nothing is installed that was not asked for, whatever goes wrong, and nothing is left.

use super::kinds::{Kind, reference_of};
use super::{cases, each, every_of, sample, simulate, wide};
use tests::sim::bare;
use tests::sim::faults::{Fault, Plan, Who};

#[test]
fn everything_goes_wrong_with_an_installation() {
    for (fault, stride) in
        [(Fault::Crash, 3), (Fault::CrashBefore, 5), (Fault::LoseAnswer, 5), (Fault::Refuse, 5), (Fault::Late, 5)]
    {
        every_of(Kind::Bare, Who::Controller, fault, wide(stride));
    }
}

#[test]
fn it_is_deleted_at_every_stage_of_its_installation() {
    let (_, by_controller, _) = reference_of(Kind::Bare);
    each(sample(*by_controller / 2, 3), |at| {
        let plan = Plan::At { who: Who::Controller, at: *at, fault: Fault::Mark };
        simulate(async {
            let s = Kind::Bare.start(plan);
            let reached = s.scene.faults.reached.subscribe();
            bare::life(&s, Some(&|| *reached.borrow())).await
        })
    });
}

#[test]
fn its_bmc_shows_an_override_for_once_and_its_firmware_boots_the_disk() {
    each(cases(&[Fault::Crash, Fault::LoseAnswer], 60, wide(11)), |plan| {
        simulate(async {
            let s = Kind::Bare.start(plan.clone());
            s.scene.hosts[0].ignores_once();
            bare::life_without_once(&s).await
        })
    });
}

#[test]
fn two_controllers_lead_while_it_is_installed() {
    each(sample(40, 13), |at| {
        simulate(async {
            let mut s = Kind::Bare.start(Plan::None);
            tokio::time::sleep(std::time::Duration::from_secs(*at as u64)).await;
            s.start_controller("controller-2", "default");
            bare::life(&s, None).await
        })
    });
}
