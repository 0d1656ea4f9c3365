//! One writer per volume, when an agent falls silent with everything still presented.
//!
//! `SIM_SCHEDULES=<n>`: how many random schedules are run, `SIM_FIRST=<k>` from which on, `SIM_MINUTES=<m>` for how long at
//! most. How many it were is printed.

use super::{each, seed, simulate};
use serde_json::json;
use std::time::{Duration, Instant};
use tests::sim::Simulation;
use tests::sim::api::watch::Manners;
use tests::sim::faults::{Fault, Plan, Who};
use tests::sim::passing;
use tests::sim::random::Random;

/// Silent how: dead, or alive and cut off from the API server.
fn silence(s: &mut Simulation, cut: bool, silent: bool) {
    let host = s.scene.hosts[0].clone();
    match (cut, silent) {
        (true, _) => s.scene.cut(&host.dpu_name, silent),
        (false, true) => s.stop_agent(&host),
        (false, false) => s.start_agent(&host),
    }
}

/// The storage refuses the silent one, and then the other has the volume; late writes are looked for at every effect.
#[test]
fn a_silent_agents_volume_passes_on_once_the_storage_refuses_it() {
    each([true, false].into_iter(), |cut| {
        simulate(async {
            let mut s = Simulation::start(2, seed(), Plan::None);
            passing::start(&s, "fast").await?;
            silence(&mut s, *cut, true);
            passing::pass(&s, "bm-01", "bm-02");
            s.until("the other has it", |s| passing::has(s, "bm-02")).await?;
            if passing::proofs(&s) != ["StorageFenced"] {
                return Err(format!("on record: {:?}", passing::proofs(&s)));
            }
            silence(&mut s, *cut, false);
            let gone = |s: &Simulation| s.scene.hosts[0].dpu().disks().len() == 2;
            s.until("the first lets go of what it still shows", gone).await?;
            passing::end(&s).await
        })
    });
}

/// The storage is started anew under hosts that run, and remembers nothing, not even its fences: who holds a volume is let in again,
/// and who was fenced is not, by whatever leader.
#[test]
fn a_storage_that_was_started_anew_lets_in_who_holds_its_volumes() {
    each([false, true].into_iter(), |two_leaders| {
        simulate(async {
            let mut s = Simulation::start(2, seed(), Plan::None);
            if *two_leaders {
                s.start_controller("controller-2", "default");
            }
            passing::start(&s, "fast").await?;
            s.scene.storage.forget();
            if shut_out(&s).len() != 3 {
                return Err(format!("two boot disks and one more are shut out: {:?}", shut_out(&s)));
            }
            s.until("all are let in again", |s| shut_out(s).is_empty()).await?;
            silence(&mut s, true, true);
            passing::pass(&s, "bm-01", "bm-02");
            s.until("the other has it", |s| passing::has(s, "bm-02")).await?;
            s.scene.storage.forget();
            let fenced_only = |s: &Simulation| matches!(shut_out(s).as_slice(), [(host, 1)] if host == "dpu-1");
            s.until("all are let in again but one", fenced_only).await?;
            tokio::time::sleep(Duration::from_secs(600)).await;
            if !fenced_only(&s) {
                return Err(format!("ten minutes later: {:?}", shut_out(&s)));
            }
            silence(&mut s, true, false);
            passing::end(&s).await
        })
    });
}

/// Disks that a host could write to, and that their storage does not let in: the DPU and the epoch.
fn shut_out(s: &Simulation) -> Vec<(String, u64)> {
    let disks = s.scene.hosts.iter().flat_map(|host| {
        let writable = host.dpu().disks().into_iter().filter(|disk| !disk.read_only);
        writable.map(|disk| (host.dpu_name.clone(), disk))
    });
    let refused = disks.filter(|(_, disk)| !s.scene.storage.accepts(&disk.backend, disk.id.epoch));
    refused.map(|(dpu, disk)| (dpu, disk.id.epoch)).collect()
}

/// Nobody can fence a holder pod: the volume stays where it is until the agent is back.
#[test]
fn a_silent_agents_holder_pod_keeps_the_volume() {
    each([true, false].into_iter(), |cut| {
        simulate(async {
            let mut s = Simulation::start(2, seed(), Plan::None);
            passing::start(&s, "foreign").await?;
            silence(&mut s, *cut, true);
            passing::pass(&s, "bm-01", "bm-02");
            s.until("the other waits for the holder", |s| passing::says(s, "bm-02", "VolumeHeld")).await?;
            tokio::time::sleep(Duration::from_secs(3600)).await;
            if !passing::says(&s, "bm-02", "VolumeHeld") || !passing::says(&s, "bm-01", "DpuSilent") {
                return Err(format!("an hour later: {}", s.story()));
            }
            silence(&mut s, *cut, false);
            s.until("the other has it", |s| passing::has(s, "bm-02")).await?;
            passing::end(&s).await
        })
    });
}

/// Where its own BMC is known, the DPU's power settles what silence cannot: on, nothing moves; off, the volume does, pod and
/// all; and back with another boot it presents nothing of it.
#[test]
fn a_dpu_that_its_own_bmc_reads_off_gives_the_volume_up() {
    each([true, false].into_iter(), |cut| {
        simulate(async {
            let mut s = Simulation::start(2, seed(), Plan::None);
            s.name_dpu_bmcs();
            passing::start(&s, "foreign").await?;
            s.until("the BMCs are verified", |s| ["dpu-1", "dpu-2"].iter().all(|dpu| is_verified(s, dpu))).await?;
            silence(&mut s, *cut, true);
            passing::pass(&s, "bm-01", "bm-02");
            s.until("its BMC is asked", |s| passing::says(s, "bm-01", "DpuNotOff")).await?;
            tokio::time::sleep(Duration::from_secs(600)).await;
            if !passing::says(&s, "bm-02", "VolumeHeld") || !passing::proofs(&s).is_empty() {
                return Err(format!("silent and on for ten minutes: {}", s.story()));
            }
            s.scene.hosts[0].power_dpu(false);
            s.until("the other has it", |s| passing::has(s, "bm-02")).await?;
            if passing::proofs(&s) != ["DpuPoweredOff"] {
                return Err(format!("on record: {:?}", passing::proofs(&s)));
            }
            s.scene.hosts[0].power_dpu(true);
            silence(&mut s, *cut, false);
            s.until("the first is back, without it", |s| s.scene.hosts[0].dpu().disks().len() == 2).await?;
            passing::end(&s).await
        })
    });
}

/// What its BMC says may be of the time before a DPU came back: a renewal that the controller has not heard of keeps the volume.
#[test]
fn a_dpu_that_has_renewed_its_lease_is_not_taken_for_off() {
    let kept: Result<(), String> = simulate(async {
        let mut s = Simulation::start(2, seed(), Plan::None);
        s.name_dpu_bmcs();
        passing::start(&s, "foreign").await?;
        s.until("the BMCs are verified", |s| ["dpu-1", "dpu-2"].iter().all(|dpu| is_verified(s, dpu))).await?;
        silence(&mut s, false, true);
        s.scene.hosts[0].power_dpu(false);
        passing::pass(&s, "bm-01", "bm-02");
        s.until("its BMC is asked", |s| passing::says(s, "bm-01", "DpuNotOff")).await?;
        // Before the controller says so of the Dpu, it reads the Lease from quorum: it would hear of the renewal by that.
        s.until("it is said of the Dpu", |s| is(s, "dpu-1", "Ready", "Unknown")).await?;
        s.scene.watches(Who::Controller, Manners::Frozen(tokio::time::Instant::now() + Duration::from_secs(40)));
        s.change("coordination.k8s.io/leases", "metalplane-dpu-dpu-1", "agent", |lease| {
            lease["spec"]["renewTime"] = json!(runtime::clock::now());
        });
        // Counted from its last renewal that was heard, the BMC's word is good by now.
        tokio::time::sleep(Duration::from_secs(33)).await;
        if !passing::proofs(&s).is_empty() {
            return Err(format!("taken for off: {}", s.story()));
        }
        s.scene.watches(Who::Controller, Manners::Prompt);
        s.until("the other has it", |s| passing::has(s, "bm-02")).await?;
        if passing::proofs(&s) != ["DpuPoweredOff"] {
            return Err(format!("on record: {:?}", passing::proofs(&s)));
        }
        s.scene.hosts[0].power_dpu(true);
        silence(&mut s, false, false);
        s.until("the first is back, without it", |s| s.scene.hosts[0].dpu().disks().len() == 2).await?;
        passing::end(&s).await
    });
    assert_eq!(kept, Ok(()));
}

fn is_verified(s: &Simulation, dpu: &str) -> bool {
    is(s, dpu, "BmcVerified", "True")
}

fn is(s: &Simulation, dpu: &str, type_: &str, status: &str) -> bool {
    let dpu = s.scene.server.get("metalplane.io/dpus", "", dpu).unwrap_or_default();
    let all = dpu["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.iter().any(|condition| condition["type"] == type_ && condition["status"] == status)
}

fn asked(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text}: write a number")))
}

/// The numbers of the schedules; the next one only while there is time. How many it were is printed.
fn schedules() -> impl Iterator<Item = u64> {
    let (first, count) = (asked("SIM_FIRST").unwrap_or(0), asked("SIM_SCHEDULES").unwrap_or(9));
    let ends = asked("SIM_MINUTES").map(|minutes| Instant::now() + Duration::from_secs(60 * minutes));
    (first..=first + count).take_while(move |number| {
        let run = number - first;
        let over = run == count || ends.is_some_and(|ends| Instant::now() >= ends);
        if over || run.is_multiple_of(1000) {
            eprintln!("random schedules from {first} on: {run}");
        }
        !over
    })
}

/// Everything at once, by the dice; two leaders in every third.
#[test]
fn random_schedules() {
    each(schedules(), |number| {
        let dice = Random::new(seed() + 1_000 + number);
        let class = if number % 4 == 3 { "foreign" } else { "fast" };
        simulate(async {
            let until = runtime::clock::now() + jiff::SignedDuration::from_secs(240);
            let faults = vec![Fault::Crash, Fault::CrashBefore, Fault::LoseAnswer, Fault::Refuse, Fault::Late];
            let plan = Plan::Storm { per_mille: dice.below(40), faults, until };
            let mut s = Simulation::start(2, seed() + 1_000 + number, plan);
            if number % 3 == 0 {
                s.start_controller("controller-2", "default");
            }
            passing::schedule(&mut s, &dice, class).await
        })
    });
}
