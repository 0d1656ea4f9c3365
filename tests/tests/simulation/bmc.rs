//! The simulated BMC keeps its port's promises; and how the controller treats one, whoever refers to it.

use super::kinds::seed;
use super::{cases, each, simulate, wide};
use api::dpu::PowerDomain;
use async_trait::async_trait;
use planner::host::{Lack, PowerAction};
use ports::Bmc;
use ports::conformance::Sleep;
use ports::conformance::bmc::{Abilities, Bench, run};
use std::sync::Arc;
use std::time::Duration;
use tests::sim::Simulation;
use tests::sim::faults::{Fault, Plan};
use tests::sim::host::{Host, HostBmc, Manners, Shared};
use tests::sim::random::Random;
use tests::sim::{bmc_objects, boot_discovery, elsewhere, erased, new_server, upkeep};

struct Rack {
    host: Arc<Host>,
    lacks: Vec<Lack>,
    order_is_pending: bool,
    dir: tempfile::TempDir,
}

impl Rack {
    fn host(&self, number: usize, manners: Manners) -> Box<dyn Bmc> {
        let host = Host::new(number, PowerDomain::Standby, self.dir.path(), &Shared::default(), Random::new(seed()));
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
        let lacks = self.lacks.iter().copied().collect();
        let order_is_pending = self.order_is_pending;
        Abilities { lacks, override_ends: true, order_is_pending, guest_obeys: false, settles_within }
    }

    async fn connect(&self) -> Box<dyn Bmc> {
        Box::new(HostBmc(self.host.clone()))
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
    let all = [PowerAction::SoftOff, PowerAction::WarmReset].map(Lack::Power);
    let all = all.into_iter().chain([Lack::BootOptions, Lack::BootOrder, Lack::VirtualMedia]).collect();
    for (lacks, order_is_pending) in
        [(Vec::new(), false), (Vec::new(), true), (vec![Lack::BootOptions], false), (all, false)]
    {
        simulate(async {
            let dir = tempfile::tempdir().expect("a folder");
            let host = Host::new(1, PowerDomain::Standby, dir.path(), &Shared::default(), Random::new(seed()));
            host.lacks(&lacks);
            if order_is_pending {
                host.takes_orders_in_post();
            }
            run(&Rack { host, lacks, order_is_pending, dir }).await;
        });
    }
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

fn seen(scenario: impl AsyncFnOnce(&Simulation) -> Result<(), String>) {
    seen_on(2, scenario);
}

/// At the only host: of several the machine's UID would choose one.
fn seen_alone(scenario: impl AsyncFnOnce(&Simulation) -> Result<(), String>) {
    seen_on(1, scenario);
}

fn seen_on(hosts: usize, scenario: impl AsyncFnOnce(&Simulation) -> Result<(), String>) {
    simulate(async {
        let s = Simulation::start(hosts, seed(), Plan::None);
        scenario(&s).await?;
        match s.scene.violations().as_slice() {
            [] => Ok(()),
            violations => Err(violations.join("\n")),
        }
    })
    .unwrap_or_else(|error: String| panic!("{error}"));
}

#[test]
fn a_server_with_a_dpu_is_erased_before_it_is_free() {
    seen_alone(async |s| erased::exact(s, &[PowerAction::On]).await);
    seen_alone(erased::fails);
    seen_alone(erased::diskless);
    simulate(async { erased::interrupted(&mut Simulation::start(1, seed(), Plan::None)).await })
        .unwrap_or_else(|error: String| panic!("{error}"));
    each(cases(&[Fault::Crash, Fault::CrashBefore, Fault::LoseAnswer], 110, wide(9)), |plan| {
        simulate(async { erased::lives(&Simulation::start(1, seed(), plan.clone()), 1).await })
    });
}

#[test]
fn so_is_one_whose_dpu_shares_its_power() {
    simulate(async { erased::exact(&shares_power(Plan::None), &[PowerAction::On, PowerAction::WarmReset]).await })
        .unwrap_or_else(|error: String| panic!("{error}"));
    each(cases(&[Fault::Crash, Fault::LoseAnswer], 110, wide(13)), |plan| {
        simulate(async { erased::lives(&shares_power(plan.clone()), 1).await })
    });
}

#[test]
fn a_host_that_does_not_read_its_boot_disk_is_powered_off_until_its_user_asks() {
    seen_alone(elsewhere::silent);
}

#[test]
fn a_host_that_answers_without_having_read_its_boot_disk_is_told_of_and_left_on() {
    seen_alone(elsewhere::answers);
}

#[test]
fn a_host_whose_reads_nobody_has_counted_is_left_on() {
    for counts in [true, false] {
        let ended = simulate(async {
            let mut s = Simulation::start(1, seed(), Plan::None);
            elsewhere::unknown(&mut s, counts).await
        });
        ended.unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn a_host_that_boots_is_left_on() {
    seen_alone(elsewhere::boots);
}

#[test]
fn a_new_server_is_started_into_its_setup_once_and_boots() {
    each(cases(&[Fault::Crash, Fault::LoseAnswer], 60, wide(3)), |plan| {
        simulate(async { new_server::listed(&mut Simulation::start(1, seed(), plan.clone())).await })
    });
}

#[test]
fn a_new_server_whose_dpu_shares_its_power_boots_nothing_else() {
    each(cases(&[Fault::Crash, Fault::LoseAnswer], 60, wide(3)), |plan| {
        simulate(async { new_server::shared(&shares_power(plan.clone())).await })
    });
    for scenario in [0, 1, 2] {
        let ended = simulate(async {
            let s = shares_power(Plan::None);
            match scenario {
                0 => new_server::forgotten(&s).await,
                1 => new_server::on_before(&s).await,
                _ => new_server::never_shared(&s).await,
            }
        });
        ended.unwrap_or_else(|error| panic!("{scenario}: {error}"));
    }
}

#[test]
fn the_boot_option_of_a_server_that_joins_is_found_before_there_is_a_machine() {
    each(cases(&[Fault::Crash, Fault::LoseAnswer], 60, wide(3)), |plan| {
        simulate(async { boot_discovery::listed(&mut Simulation::start(1, seed(), plan.clone())).await })
    });
}

#[test]
fn a_boot_option_is_looked_for_without_harm() {
    each(cases(&[Fault::Crash, Fault::LoseAnswer], 60, wide(3)), |plan| {
        simulate(async { boot_discovery::shared(&mut shares_power(plan.clone())).await })
    });
    for scenario in 0..5 {
        let ended = simulate(async {
            let mut s = Simulation::start(1, seed(), Plan::None);
            match scenario {
                0 => boot_discovery::on_before(&mut s).await,
                1 => boot_discovery::never(&mut s).await,
                2 => boot_discovery::awaited(&mut s).await,
                3 => boot_discovery::abandoned(&mut s).await,
                _ => boot_discovery::silent(&mut s).await,
            }
        });
        ended.unwrap_or_else(|error| panic!("{scenario}: {error}"));
    }
}

fn shares_power(plan: Plan) -> Simulation {
    Simulation::start_on(PowerDomain::Host, 1, seed(), plan)
}

#[test]
fn a_firmware_that_never_lists_the_disk_is_asked_twice() {
    seen_alone(new_server::never);
}

#[test]
fn a_guest_that_answers_although_setup_was_asked_for_was_started() {
    seen_alone(new_server::ignored);
}

#[test]
fn without_an_override_to_the_setup_a_person_is_asked() {
    seen_alone(new_server::refused);
}

#[test]
fn a_hardware_and_a_dpu_share_one_session() {
    seen(bmc_objects::shared);
}

#[test]
fn a_machine_object_that_is_made_anew_or_changed_is_another_bmc() {
    seen(bmc_objects::made_anew);
}

#[test]
fn a_hardware_that_names_another_bmc_is_not_commanded_by_the_old_one() {
    seen(bmc_objects::named_anew);
}

#[test]
fn ipmi_is_refused_by_name() {
    seen(bmc_objects::by_ipmi);
}

#[test]
fn a_guest_is_not_asked_where_its_bmc_cannot_ask() {
    seen(bmc_objects::without_shutdown);
}
