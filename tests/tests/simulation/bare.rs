//! Machines on a server without a DPU: nothing is installed that was not asked for, whatever goes wrong, and nothing is left.

use super::kinds::{Kind, reference_of, seed};
use super::{cases, each, every_of, sample, simulate, wider};
use tests::sim::auto::{self, Unwell};
use tests::sim::bare::Cascade;
use tests::sim::faults::{Fault, Plan, Who};
use tests::sim::meddled::{self, Deleted};
use tests::sim::netboot::Servers;
use tests::sim::{Simulation, bare, runs};

fn mark(who: Who, at: usize) -> Plan {
    Plan::At { who, at, fault: Fault::Mark }
}

#[test]
fn everything_goes_wrong_with_an_installation() {
    for (fault, stride) in
        [(Fault::Crash, 3), (Fault::CrashBefore, 5), (Fault::LoseAnswer, 5), (Fault::Refuse, 5), (Fault::Late, 5)]
    {
        every_of(Kind::Bare, Who::Controller, fault, wider(stride));
    }
}

/// Whatever is under way when a replica of the boot service dies, is not heard, or meets another one's write.
#[test]
fn everything_goes_wrong_with_the_boot_service() {
    let by_boot = reference_of(Kind::Bare).effects(Who::Boot);
    assert!(by_boot > 15, "{by_boot}");
    for (fault, stride) in
        [(Fault::Crash, 2), (Fault::CrashBefore, 2), (Fault::LoseAnswer, 2), (Fault::Refuse, 2), (Fault::Late, 2)]
    {
        every_of(Kind::Bare, Who::Boot, fault, wider(stride));
    }
}

/// Whatever the agent was at: it starts anew, or the old system does; or there is no power, until the controller switches it on.
#[test]
fn its_server_restarts_or_loses_its_power_at_every_stage_of_its_installation() {
    let by_boot = reference_of(Kind::Bare).effects(Who::Boot);
    let stages = sample(by_boot, wider(2)).flat_map(|at| [(at, false), (at, true)]);
    each(stages, |(at, is_dark)| {
        simulate(async {
            let s = Kind::Bare.start(mark(Who::Boot, *at));
            let reached = s.scene.faults.reached.subscribe();
            let befalls = |s: &Simulation, _: &Servers| match is_dark {
                true => s.scene.hosts[0].goes_off(),
                false => s.scene.hosts[0].resets_itself(),
            };
            bare::life_befallen(&s, befalls, || *reached.borrow()).await
        })
    });
}

/// Whatever the agent was at: it finds neither replica, and the first that is back goes on with its session.
#[test]
fn both_replicas_of_the_boot_service_die_at_every_stage_of_its_installation() {
    let by_boot = reference_of(Kind::Bare).effects(Who::Boot);
    each(sample(by_boot, wider(1)), |at| {
        simulate(async {
            let s = Kind::Bare.start(mark(Who::Boot, *at));
            let reached = s.scene.faults.reached.subscribe();
            bare::life_befallen(&s, |_, servers| servers.lose_boot(), || *reached.borrow()).await
        })
    });
}

#[test]
fn the_api_server_is_away_for_five_minutes_at_every_stage_of_its_installation() {
    let of = |who: Who| sample(reference_of(Kind::Bare).effects(who), wider(2)).map(move |at| (who, at));
    each(of(Who::Boot).chain(of(Who::Controller)), |(who, at)| {
        simulate(async {
            let s = Kind::Bare.start(mark(*who, *at));
            let reached = s.scene.faults.reached.subscribe();
            bare::life_without_api_server(&s, || *reached.borrow()).await
        })
    });
}

/// What runs was rendered when it began. The user's Template has another text, or none, from some moment on; and so the copy of it.
#[test]
fn its_template_is_edited_or_deleted_while_it_is_installed() {
    let by_boot = reference_of(Kind::Bare).effects(Who::Boot);
    each(sample(by_boot, wider(2)).flat_map(|at| [(at, false), (at, true)]), |(at, is_deleted)| {
        simulate(async {
            let s = Kind::Bare.start(mark(Who::Boot, *at));
            let reached = s.scene.faults.reached.subscribe();
            bare::life_befallen(&s, |s, _| runs::change_templates(s, *is_deleted), || *reached.borrow()).await
        })
    });
}

#[test]
fn it_is_deleted_at_every_stage_of_its_installation() {
    let by_controller = reference_of(Kind::Bare).effects(Who::Controller);
    let stages = sample(by_controller / 2, 3).zip([Cascade::Background, Cascade::Foreground].into_iter().cycle());
    each(stages, |(at, cascade)| {
        simulate(async {
            let s = Kind::Bare.start(mark(Who::Controller, *at));
            let reached = s.scene.faults.reached.subscribe();
            bare::life_deleted(&s, &|| *reached.borrow(), *cascade).await
        })
    });
}

#[test]
fn its_bmc_shows_an_override_for_once_and_its_firmware_boots_the_disk() {
    each(cases(&[Fault::Crash, Fault::LoseAnswer], 60, wider(11)), |plan| {
        simulate(async {
            let s = Kind::Bare.start(plan.clone());
            s.scene.hosts[0].ignores_once();
            bare::life_without_once(&s).await
        })
    });
}

#[test]
fn nothing_leads_it_to_the_network_and_its_bmc_has_a_virtual_drive() {
    each(cases(&[Fault::Crash, Fault::LoseAnswer], 90, wider(13)), |plan| {
        simulate(async { bare::life_by_medium(&mut Kind::Bare.start(plan.clone())).await })
    });
}

#[test]
fn nothing_is_sent_to_its_bmc_while_it_is_paused_at_every_stage() {
    let of = |who: Who, stride| sample(reference_of(Kind::Bare).effects(who), wider(stride)).map(move |at| (who, at));
    each(of(Who::Boot, 1).chain(of(Who::Controller, 2)), |(who, at)| {
        simulate(async {
            let s = Kind::Bare.start(mark(*who, *at));
            let reached = s.scene.faults.reached.subscribe();
            bare::life_paused(&s, || *reached.borrow()).await
        })
    });
}

#[test]
fn what_it_rests_on_is_deleted_at_every_stage() {
    let by_controller = reference_of(Kind::Bare).effects(Who::Controller);
    let stages = sample(by_controller, wider(1)).zip(Deleted::ALL.into_iter().cycle());
    each(stages, |(at, deleted)| {
        simulate(async {
            let s = Kind::Bare.start(mark(Who::Controller, *at));
            let reached = s.scene.faults.reached.subscribe();
            meddled::life(&s, *deleted, || *reached.borrow()).await
        })
    });
}

#[test]
fn what_its_system_shall_read_is_deleted_before_its_installer_has_it_and_after() {
    each([2, 6, 9].into_iter(), |at| {
        simulate(async {
            let s = Kind::Bare.start(mark(Who::Boot, *at));
            let reached = s.scene.faults.reached.subscribe();
            meddled::without_its_seed(&s, || *reached.borrow()).await
        })
    });
}

#[test]
fn nothing_is_installed_by_auto_on_a_server_whose_dpu_is_unwell() {
    each(Unwell::ALL.into_iter(), |unwell| {
        simulate(async { auto::waits_for_its_dpu(&Simulation::start(2, seed(), Plan::None), *unwell).await })
    });
}

#[test]
fn two_controllers_lead_while_it_is_installed() {
    each(sample(40, 13), |at| {
        simulate(async {
            let mut s = Kind::Bare.start(Plan::None);
            tokio::time::sleep(std::time::Duration::from_secs(*at as u64)).await;
            s.start_controller("controller-2", "default");
            bare::life(&s).await
        })
    });
}
