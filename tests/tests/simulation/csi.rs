//! Storage of others, whose CSI driver misbehaves.

use super::{each, sample, seed, simulate};
use std::time::Duration;
use tests::sim::Simulation;
use tests::sim::csi::Manners;
use tests::sim::faults::{Fault, Plan, Who};
use tests::sim::{limits, lives};

/// Slow, crashing, with the wrong errors, or answering twice: the machine gets there, says meanwhile what kubelet says, is
/// never power-cycled for a disk, and leaves nothing.
#[test]
fn a_csi_driver_misbehaves() {
    let cases = [
        (Manners::Good, None),
        (Manners::Slow(Duration::from_secs(90)), Some("kubelet has not said why")),
        (Manners::Crashes(12), Some("error reading from server: EOF")),
        (Manners::WrongErrors(12), Some("no such thing")),
        (Manners::Twice, None),
    ];
    each(cases.into_iter(), |(manners, said)| {
        simulate(async { lives::on_foreign_storage(&Simulation::start(1, seed(), Plan::None), *manners, *said).await })
    });
}

#[test]
fn a_volume_that_is_attached_elsewhere_is_waited_for() {
    each([false, true].into_iter(), |after_the_hold| {
        simulate(async { lives::attached_elsewhere(&Simulation::start(1, seed(), Plan::None), *after_the_hold).await })
    });
}

#[test]
fn a_disk_has_the_limits_of_its_class() {
    let plans = |who, count, stride| sample(count, stride).map(move |at| Plan::At { who, at, fault: Fault::Crash });
    let cases = [Plan::None].into_iter().chain(plans(Who::Controller, 60, 6)).chain(plans(Who::Agent, 50, 5));
    each(cases, |plan| simulate(async { limits::changed(&mut Simulation::start(1, seed(), plan.clone())).await }));
}
