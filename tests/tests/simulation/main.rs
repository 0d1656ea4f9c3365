//! The controller and the agent in simulated time, with one thing going wrong after the other.
//!
//! `SIM_SEED=<number>` runs with that seed, `SIM_AT=<k>` only the case with the kth effect, `SIM_ALL=1` every case;
//! `SIM_LOG=debug` shows what the programs log. A failure names the seed and the fault.

mod addresses;
mod bare;
mod bmc;
mod choice;
mod csi;
mod drawn;
mod fences;
mod jobs;
mod kinds;
mod lines;
mod looks;
mod network;
mod requests;
mod runs;
mod scenarios;
mod seeds;
mod stale;
mod unserved;
mod verbs;
mod workers;

use api::dpu::PowerDomain;
use kinds::{Kind, life_with, reference, reference_of, seed};
use std::sync::OnceLock;
use std::time::Duration;
use tests::sim::Simulation;
use tests::sim::api::store::Numbers;
use tests::sim::api::watch::Manners;
use tests::sim::faults::{Fault, Plan, Who};
use tests::sim::host;
use tests::sim::leftovers;
use tests::sim::life;
use tests::sim::lives;
use tests::sim::orphans;
use tests::sim::simulation::{SYSTEM, USER};
use tests::sim::upkeep;
use tokio::time::Instant;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// Runs in a runtime of its own with a paused clock.
fn simulate<T>(run: impl Future<Output = T>) -> T {
    static START: OnceLock<()> = OnceLock::new();
    START.get_or_init(|| {
        let filter = std::env::var("SIM_LOG").unwrap_or_else(|_| "off".to_owned());
        let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_filter(EnvFilter::new(filter));
        tracing_subscriber::registry().with(log).with(looks::layer()).with(lines::layer()).init();
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        tests::sim::begin(seed());
        run.await
    })
}

/// Which effects are tried: the one of `SIM_AT=<k>`, all with `SIM_ALL=1`, else one in `stride`, other ones with another
/// seed.
fn sample(all: usize, stride: usize) -> impl Iterator<Item = usize> {
    let stride = if std::env::var_os("SIM_ALL").is_some() { 1 } else { stride };
    let only: Option<usize> = std::env::var("SIM_AT").ok().and_then(|text| text.parse().ok());
    let (from, stride) = only.map_or((seed() as usize % stride, stride), |only| (only, all));
    (0..all).skip(from).step_by(stride)
}

/// Of what takes minutes of processor: the judge `simulation` takes the stride as it is.
fn wide(stride: usize) -> usize {
    if std::env::var_os("LONG_TESTS").is_some() { stride } else { stride * 3 }
}

/// Nothing goes wrong; then each of these with one in `stride` of the first `count` effects of the controller.
fn cases(faults: &[Fault], count: usize, stride: usize) -> impl Iterator<Item = Plan> {
    let at = move |fault: &Fault| {
        let fault = *fault;
        sample(count, stride).map(move |at| Plan::At { who: Who::Controller, at, fault }).collect::<Vec<_>>()
    };
    let all: Vec<Plan> = faults.iter().flat_map(at).collect();
    [Plan::None].into_iter().chain(all)
}

/// Of what takes twice as long: two replicas of the boot service and the installer run too.
fn wider(stride: usize) -> usize {
    if std::env::var_os("LONG_TESTS").is_some() { stride } else { stride * 6 }
}

/// Runs `one` for each, and fails with what was wrong and how to see it again.
fn each<T: std::fmt::Debug>(cases: impl Iterator<Item = T>, one: impl Fn(&T) -> Result<(), String>) {
    let mut wrong = Vec::new();
    let mut count = 0;
    for case in cases {
        count += 1;
        if let Err(message) = one(&case) {
            wrong.push(format!("{case:?}: {message}"));
        }
    }
    assert!(count > 0, "nothing was tried");
    let first = wrong.first().cloned().unwrap_or_default();
    let others: Vec<&str> = wrong.iter().skip(1).filter_map(|w| w.lines().next()).collect();
    assert!(
        wrong.is_empty(),
        "SIM_SEED={}: {} of {count} went wrong: {first}\n\nand: {}",
        seed(),
        wrong.len(),
        others.join("\n     ")
    );
}

fn every(who: Who, fault: Fault, stride: usize) {
    every_of(Kind::Machine, who, fault, stride);
}

fn every_of(kind: Kind, who: Who, fault: Fault, stride: usize) {
    let plans = sample(reference_of(kind).effects(who), stride).map(|at| Plan::At { who, at, fault });
    each(plans, |plan| life_with(kind, plan.clone()));
}

/// Everything that goes wrong with an effect, one effect in so many.
fn everything(kind: Kind, stride: usize) {
    for who in [Who::Controller, Who::Agent] {
        for fault in [Fault::Crash, Fault::CrashBefore, Fault::LoseAnswer, Fault::Refuse, Fault::Late] {
            every_of(kind, who, fault, stride);
        }
    }
}

#[test]
fn a_life_without_faults_leaves_nothing() {
    let reference = reference();
    let (by_controller, by_agent) = (reference.effects(Who::Controller), reference.effects(Who::Agent));
    eprintln!("{by_controller} effects of the controller, {by_agent} of the agent, power {:?}", reference.record.power);
    assert!(by_controller > 40 && by_agent > 20);
}

#[test]
fn the_same_seed_gives_the_same_end() {
    life_with(Kind::Machine, Plan::None).unwrap_or_else(|e| panic!("SIM_SEED={}: {e}", seed()));
}

#[test]
fn the_controller_crashes_after_an_effect() {
    every(Who::Controller, Fault::Crash, wide(4));
}

#[test]
fn the_controller_crashes_before_an_effect() {
    every(Who::Controller, Fault::CrashBefore, wide(8));
}

#[test]
fn the_agent_crashes_after_an_effect() {
    every(Who::Agent, Fault::Crash, wide(3));
}

#[test]
fn the_agent_crashes_before_an_effect() {
    every(Who::Agent, Fault::CrashBefore, wide(6));
}

#[test]
fn an_answer_to_the_controller_is_lost() {
    every(Who::Controller, Fault::LoseAnswer, wide(4));
}

#[test]
fn an_answer_to_the_agent_is_lost() {
    every(Who::Agent, Fault::LoseAnswer, wide(3));
}

#[test]
fn one_write_meets_a_conflict() {
    every(Who::Controller, Fault::Refuse, wide(6));
    every(Who::Agent, Fault::Refuse, wide(6));
}

#[test]
fn every_write_meets_a_conflict_first() {
    let kinds = [Kind::Machine, Kind::SharedPower, Kind::Import];
    each(kinds.into_iter(), |kind| life_with(*kind, Plan::RefuseFirst(Default::default())));
}

#[test]
fn a_dead_controllers_request_arrives_late() {
    every(Who::Controller, Fault::Late, wide(5));
}

#[test]
fn a_dead_agents_request_arrives_late() {
    every(Who::Agent, Fault::Late, wide(4));
}

#[test]
fn everything_goes_wrong_with_a_dpu_that_shares_its_hosts_power() {
    everything(Kind::SharedPower, wide(23));
}

#[test]
fn everything_goes_wrong_with_an_import() {
    everything(Kind::Import, 7);
}

/// Of every kind: what it knows, and what it cannot know.
#[test]
fn a_dpu_says_what_its_host_and_its_storage_may_do() {
    simulate(async {
        let s = Simulation::start(1, seed(), Plan::None);
        let said = |s: &Simulation, type_: &str| {
            let dpu = s.scene.server.get("metalplane.io/dpus", "", "dpu-1").unwrap_or_default();
            life::condition(&dpu, type_).to_owned()
        };
        let all = [("Ready", "True"), ("HostRestricted", "Unknown"), ("SharedStorageCredential", "False")];
        let told = |s: &Simulation| all.iter().all(|(type_, status)| said(s, type_) == *status);
        s.until("the agent has told", told).await.unwrap_or_else(|error| panic!("{error}"));
    });
}

/// Nothing happens to its machine, and it is registered again.
#[test]
fn a_dpu_is_deleted_while_it_is_in_use() {
    let plans = |who, count, stride| sample(count, stride).map(move |at| Plan::At { who, at, fault: Fault::Crash });
    let cases = [Plan::None].into_iter().chain(plans(Who::Controller, 130, 26)).chain(plans(Who::Agent, 80, 27));
    each(cases, |plan| {
        simulate(async {
            let s = Simulation::start(1, seed(), plan.clone());
            lives::delete_dpu(&s).await
        })
    });
}

/// A life with something of its own going on; compared with the reference.
fn life_beside(plan: Plan, prepare: impl AsyncFn(&mut Simulation)) -> Result<(), String> {
    let expected = &reference().record;
    simulate(async {
        let mut s = Simulation::start(1, seed(), plan);
        prepare(&mut s).await;
        let record = life::whole(&s).await?;
        life::difference(expected, &record).map_or(Ok(()), |d| Err(format!("{d}\n{}", s.story())))
    })
}

/// [`life_beside`] of something that shows while it lasts.
fn life_through(plan: Plan, prepare: impl AsyncFn(&mut Simulation)) -> Result<(), String> {
    let expected = &reference().record;
    simulate(async {
        let mut s = Simulation::start(1, seed(), plan);
        prepare(&mut s).await;
        let record = life::whole(&s).await?;
        life::difference_at_end(expected, &record).map_or(Ok(()), |d| Err(format!("{d}\n{}", s.story())))
    })
}

#[test]
fn watches_are_late_each_by_itself() {
    let cases = [300, 2_000, 8_000].into_iter().flat_map(|most| [Who::Controller, Who::Agent].map(|who| (who, most)));
    each(cases, |(who, most)| {
        life_beside(Plan::None, async |s| s.scene.watches(*who, Manners::Late(Duration::from_millis(*most))))
    });
}

#[test]
fn watches_tell_twice_or_are_cut_off() {
    let cases = [Manners::Twice, Manners::Gone].into_iter().flat_map(|m| [Who::Controller, Who::Agent].map(|w| (w, m)));
    each(cases, |(who, manners)| life_beside(Plan::None, async |s| s.scene.watches(*who, *manners)));
}

/// Caches that have not heard anything for a while act on what was.
#[test]
fn caches_are_stale_for_a_minute() {
    let cases = [1, 3, 6, 14, 30].into_iter().flat_map(|after| [Who::Controller, Who::Agent].map(|who| (who, after)));
    each(cases, |(who, after)| {
        life_beside(Plan::None, async |s| {
            let (scene, who, after) = (s.scene.clone(), *who, Duration::from_secs(*after));
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                scene.watches(who, Manners::Frozen(Instant::now() + Duration::from_secs(60)));
                tokio::time::sleep(Duration::from_secs(60)).await;
                scene.watches(who, Manners::Prompt);
            });
        })
    });
}

/// Each has a Lease of its own, so both lead: what remains is compare-and-swap.
#[test]
fn two_controllers_lead_at_once() {
    let seeds = 0..4u64;
    let expected = &reference().record;
    each(seeds, |more| {
        simulate(async {
            let mut s = Simulation::start(1, seed() + more, Plan::None);
            s.start_controller("controller-2", "default");
            if more % 2 == 1 {
                s.scene.watches(Who::Controller, Manners::Late(Duration::from_secs(2)));
            }
            let record = life::whole(&s).await?;
            life::difference(expected, &record).map_or(Ok(()), |d| Err(format!("{d}\n{}", s.story())))
        })
    });
}

/// One waits for the other's Lease, and takes over when that dies.
#[test]
fn a_second_controller_takes_over() {
    each(sample(reference().effects(Who::Controller), wide(16)), |at| {
        let plan = Plan::At { who: Who::Controller, at: *at, fault: Fault::Late };
        life_beside(plan, async |s| s.start_controller("controller-2", SYSTEM))
    });
}

/// How many effects of the controller it takes until a machine runs.
fn made() -> usize {
    static MADE: OnceLock<usize> = OnceLock::new();
    *MADE.get_or_init(|| {
        simulate(async {
            let s = Simulation::start(1, seed(), Plan::None);
            life::create(&s, "bm-01", 7).await.unwrap_or_else(|error| panic!("SIM_SEED={}: {error}", seed()));
            s.scene.faults.count(Who::Controller)
        })
    })
}

/// Deleted while it is being made: nothing is left. Made again at once under the same name: it runs.
#[test]
fn the_machine_is_deleted_at_every_stage_and_made_again() {
    each(sample(made(), wide(2)), |at| {
        let plan = Plan::At { who: Who::Controller, at: *at, fault: Fault::Mark };
        simulate(async {
            let s = Simulation::start(1, seed(), plan);
            let created = life::create(&s, "bm-01", 7);
            let mut reached = s.scene.faults.reached.subscribe();
            tokio::select! {
                biased;
                created = created => created?,
                _ = reached.wait_for(|reached| *reached) => {}
            }
            if at % 2 == 0 {
                life::delete(&s, "bm-01").await?;
            } else {
                s.delete("metalplane.io/baremetalmachines", USER, "bm-01");
                s.until("the name is free", |s| s.machine("bm-01").is_none()).await?;
            }
            life::create(&s, "bm-01", 7).await?;
            life::delete(&s, "bm-01").await
        })
    });
}

#[test]
fn the_dpu_reboots_while_the_machine_is_made() {
    each(sample(made(), wide(2)), |at| {
        let plan = Plan::At { who: Who::Controller, at: *at, fault: Fault::Mark };
        simulate(async {
            let s = Simulation::start(1, seed(), plan);
            s.create("metalplane.io/baremetalmachines", USER, life::machine("bm-01", 7));
            let mut reached = s.scene.faults.reached.subscribe();
            // Of what is written once it runs the order may differ: then it is there all the same.
            tokio::select! {
                biased;
                _ = reached.wait_for(|reached| *reached) => {}
                ran = s.until("the machine runs", |s| life::runs(s, "bm-01")) => ran?,
            }
            s.scene.hosts[0].reboot_dpu();
            // A guest whose disks went away under it needs a restart, which a user asks for.
            let shown = |s: &Simulation| s.scene.hosts[0].dpu().disks().len() == 2 && life::is_ready(s, "bm-01");
            s.until("all is presented again", shown).await?;
            life::stop(&s, "bm-01").await?;
            life::start(&s, "bm-01").await?;
            life::delete(&s, "bm-01").await
        })
    });
}

/// A claim that two machines on two servers want: one has it, the other waits, and gets it.
#[test]
fn a_volume_passes_from_one_dpu_to_the_other() {
    let plans = |who, count, stride| sample(count, stride).map(move |at| Plan::At { who, at, fault: Fault::Crash });
    let cases =
        [Plan::None].into_iter().chain(plans(Who::Controller, 150, wide(15))).chain(plans(Who::Agent, 80, wide(16)));
    let of_both = cases.flat_map(|plan| ["fast", "foreign"].map(|class| (plan.clone(), class)));
    each(of_both, |(plan, class)| {
        simulate(async {
            let s = Simulation::start(2, seed(), plan.clone());
            lives::hand_over(&s, class).await
        })
    });
}

#[test]
fn a_bmc_misbehaves_for_a_while() {
    use host::Manners::{Lies, Panics, Slow, Unauthorized, Unreachable};
    let cases = [Unreachable, Unauthorized, Slow(Duration::from_secs(8)), Lies, Panics];
    let cases = cases.into_iter().flat_map(|manners| [1, 20, 45].map(|after| (manners, after)));
    each(cases, |(manners, after)| {
        life_through(Plan::None, async |s| {
            let (host, manners, after) = (s.scene.hosts[0].clone(), *manners, Duration::from_secs(*after));
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                host.behave(manners);
                tokio::time::sleep(Duration::from_secs(40)).await;
                host.behave(host::Manners::Good);
            });
        })
    });
}

#[test]
fn a_bmc_answers_for_another_server() {
    each([seed()].into_iter(), |seed| {
        simulate(async { upkeep::wrong_server(&Simulation::start(1, *seed, Plan::None)).await })
    });
}

#[test]
fn volumes_wait_to_be_told_a_node() {
    let plans = |who, count, stride| sample(count, stride).map(move |at| Plan::At { who, at, fault: Fault::Crash });
    let cases = [Plan::None].into_iter().chain(plans(Who::Controller, 40, 8));
    each(cases, |plan| simulate(async { upkeep::late_binding(&Simulation::start(1, seed(), plan.clone())).await }));
}

#[test]
fn what_was_made_for_a_machine_too_late_is_given_back() {
    simulate(async { leftovers::made_too_late(&Simulation::start(1, seed(), Plan::None)).await })
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn a_protection_that_comes_too_late_is_taken_back() {
    simulate(async { leftovers::protected_too_late(&Simulation::start(1, seed(), Plan::None)).await })
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn what_was_made_for_an_image_too_late_is_given_back() {
    simulate(async { leftovers::image_made_too_late(&Simulation::start(1, seed(), Plan::None)).await })
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn a_machine_that_is_let_go_by_force_keeps_its_host_as_it_is() {
    each([PowerDomain::Standby, PowerDomain::Host].into_iter(), |domain| {
        simulate(async { leftovers::let_go_by_force(&Simulation::start_on(*domain, 1, seed(), Plan::None)).await })
    });
}

#[test]
fn etcd_is_restored_to_a_time_before_a_machine_that_runs() {
    simulate(async { orphans::restored(&mut Simulation::start(1, seed(), Plan::None)).await })
        .unwrap_or_else(|e| panic!("{e}"));
}

/// With later resource versions, and with those of before once more.
#[test]
fn etcd_is_restored_while_a_dpu_does_not_answer() {
    each([Numbers::Later, Numbers::Again].into_iter(), |numbers| {
        simulate(async {
            orphans::shown_by_an_unresponsive_dpu(&mut Simulation::start(2, seed(), Plan::None), *numbers).await
        })
    });
}

#[test]
fn an_administrator_takes_one_orphan_from_a_running_host() {
    simulate(async { orphans::forgotten_by_an_administrator(&mut Simulation::start(1, seed(), Plan::None)).await })
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn a_dpu_is_registered_anew_under_a_running_host() {
    simulate(async { orphans::registered_anew(&mut Simulation::start(1, seed(), Plan::None)).await })
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn an_agent_is_pointed_at_another_cluster_under_a_running_host() {
    simulate(async { orphans::in_another_cluster(&mut Simulation::start(1, seed(), Plan::None)).await })
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn a_disk_comes_back_by_the_name_of_one_that_is_going() {
    simulate(async { upkeep::same_name_again(&Simulation::start(1, seed(), Plan::None)).await })
        .unwrap_or_else(|e| panic!("{e}"));
}

/// Its user deletes a claim, or a VNic, that a controller with an old view of the machine still thinks is asked for.
#[test]
fn what_its_user_deleted_is_not_made_anew_from_an_old_view() {
    let disk = serde_json::json!({"name": "data", "bus": "VirtioBlk", "size": "1Gi", "source": {"blank": {}}});
    let nic = serde_json::json!({"name": "eth1", "subnet": "blue", "addresses": ["10.20.0.201"]});
    let cases = [("persistentvolumeclaims", "disks", disk), ("metalplane.io/vnics", "interfaces", nic)];
    each(cases.into_iter(), |(kind, list, part)| {
        simulate(async {
            upkeep::deleted_unheard(&Simulation::start(1, seed(), Plan::None), kind, list, part.clone()).await
        })
    });
}

/// Many things at once, for two minutes.
#[test]
fn a_storm_of_faults() {
    each(0..6u64, |more| {
        let expected = &reference().record;
        simulate(async {
            let until = runtime::clock::now() + jiff::SignedDuration::from_secs(150);
            let faults = vec![Fault::Crash, Fault::LoseAnswer, Fault::Refuse, Fault::CrashBefore, Fault::Late];
            let plan = Plan::Storm { per_mille: 60, faults, until };
            let mut s = Simulation::start(1, seed() + 100 + more, plan);
            s.start_controller("controller-2", SYSTEM);
            let record = life::whole(&s).await?;
            life::difference_at_end(expected, &record).map_or(Ok(()), |d| Err(format!("{d}\n{}", s.story())))
        })
    });
}

#[test]
fn an_agent_that_was_cut_off_and_the_controller_do_not_write_against_each_other() {
    each(0..4u64, |number| {
        simulate(async { upkeep::cut_off_for_a_while(&Simulation::start(1, seed() + number, Plan::None)).await })
    });
}
