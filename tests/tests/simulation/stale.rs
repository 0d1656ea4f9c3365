//! Servers without a DPU, and watches that are late, tell twice, are cut off, or stand still; and a conflict at every write.

use super::kinds::{Kind, life_with};
use super::{each, sample, simulate};
use std::time::Duration;
use tests::sim::Simulation;
use tests::sim::api::watch::Manners;
use tests::sim::faults::{Plan, Who};
use tokio::time::Instant;

const STANDS_STILL: Duration = Duration::from_mins(1);

/// Of those that have to do with network boot.
fn lives() -> impl Iterator<Item = (Kind, Who)> {
    [Kind::Bare, Kind::Jobs, Kind::Runs]
        .into_iter()
        .flat_map(|kind| [Who::Controller, Who::Boot].map(|who| (kind, who)))
}

/// One in so many, other ones with another seed.
fn some<T: Copy>(all: Vec<T>, stride: usize) -> impl Iterator<Item = T> {
    sample(all.len(), if std::env::var_os("LONG_TESTS").is_some() { 1 } else { stride }).map(move |at| all[at])
}

fn life_beside(kind: Kind, prepare: impl Fn(&Simulation)) -> Result<(), String> {
    simulate(async {
        let s = kind.start(Plan::None);
        prepare(&s);
        kind.live(&s).await.map(drop)
    })
}

#[test]
fn watches_are_late_or_tell_twice_or_are_cut_off() {
    let manners = [Manners::Late(Duration::from_secs(3)), Manners::Twice, Manners::Gone];
    let all = lives().flat_map(|(kind, who)| manners.map(|manners| (kind, who, manners))).collect();
    each(some(all, 2), |(kind, who, manners)| life_beside(*kind, |s| s.scene.watches(*who, *manners)));
}

/// Caches that have not heard anything for a while act on what was.
#[test]
fn caches_are_stale_for_a_minute() {
    let all = lives().flat_map(|(kind, who)| [2, 9, 25].map(|after| (kind, who, after))).collect();
    each(some(all, 2), |(kind, who, after)| {
        life_beside(*kind, |s| {
            let (scene, who, after) = (s.scene.clone(), *who, Duration::from_secs(*after));
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                scene.watches(who, Manners::Frozen(Instant::now() + STANDS_STILL));
                tokio::time::sleep(STANDS_STILL).await;
                scene.watches(who, Manners::Prompt);
            });
        })
    });
}

#[test]
fn every_write_of_an_installation_meets_a_conflict_first() {
    each([Kind::Bare, Kind::Runs].into_iter(), |kind| life_with(*kind, Plan::RefuseFirst(Default::default())));
}
