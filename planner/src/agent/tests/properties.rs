//! Any record, exposure and attachment mix, any order of grants, releases, crashes, reboots and partitions: the checks
//! in [`World::round`] hold at each step, and when the trouble ends the DPU shows exactly what is granted.

use super::world::{Ovn, World, function, id};
use crate::agent::{Connected, Function};
use crate::exposure::{Exposure, ExposureId, FunctionKind, Limits, Presence};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Event {
    Create(u8),
    Grant(u8),
    Delete(u8),
    Release(u8),
    /// The finalizer was taken away, or etcd restored to an earlier revision.
    Vanish(u8),
    Sync,
    Api(bool),
    Emulation(bool),
    /// Of what presents NICs alone.
    Nics(bool),
    Storage(bool),
    Ovn(Ovn),
    /// Somebody took a port away by hand.
    Unplugged(u8),
    Round(Option<usize>),
    HostLetsGo,
    ImportEnds(u8),
    RestartAgent,
    RebootDpu(bool),
    TargetCrash,
    /// An exposure of somebody else's epoch, or of nobody.
    Stray(u8, u64),
    Grow,
    /// Another class for the volume; 0: none.
    Limit(u8, u64),
}

fn event() -> impl Strategy<Value = Event> {
    let which = 0u8..7;
    prop_oneof![
        2 => which.clone().prop_map(Event::Create),
        3 => which.clone().prop_map(Event::Grant),
        1 => which.clone().prop_map(Event::Delete),
        2 => which.clone().prop_map(Event::Release),
        1 => which.clone().prop_map(Event::Vanish),
        3 => Just(Event::Sync),
        2 => any::<bool>().prop_map(Event::Api),
        1 => any::<bool>().prop_map(Event::Emulation),
        1 => any::<bool>().prop_map(Event::Nics),
        1 => any::<bool>().prop_map(Event::Storage),
        2 => prop_oneof![Just(Ovn::Nothing), Just(Ovn::Installed), Just(Ovn::InForce)].prop_map(Event::Ovn),
        1 => which.clone().prop_map(Event::Unplugged),
        8 => proptest::option::weighted(0.2, 0usize..3).prop_map(Event::Round),
        1 => Just(Event::HostLetsGo),
        1 => which.clone().prop_map(Event::ImportEnds),
        1 => Just(Event::RestartAgent),
        1 => any::<bool>().prop_map(Event::RebootDpu),
        1 => Just(Event::TargetCrash),
        1 => (which, 1u64..4).prop_map(|(n, epoch)| Event::Stray(n, epoch)),
        1 => Just(Event::Grow),
        2 => (0u8..7, 0u64..4).prop_map(|(n, thousands)| Event::Limit(n, thousands)),
    ]
}

fn apply(world: &mut World, event: &Event, epoch: &mut u64) {
    let uid = |n: &u8| format!("uid-{n}");
    match event {
        Event::Create(n) => drop(world.add(&uid(n), function(*n)).generation),
        Event::Grant(n) => {
            if let Some(a) = world.attachments.get_mut(&uid(n)).filter(|a| a.epoch.is_none() && !a.deleting) {
                *epoch += 1;
                a.epoch = Some(*epoch);
            }
        }
        Event::Delete(n) => world.attachments.get_mut(&uid(n)).into_iter().for_each(|a| a.deleting = true),
        Event::Release(n) => world.attachments.get_mut(&uid(n)).into_iter().for_each(|a| {
            a.release = true;
            a.deleting = true;
        }),
        Event::Vanish(n) => drop(world.attachments.remove(&uid(n))),
        Event::Sync => world.sync(),
        Event::Api(down) => world.api_down = *down,
        Event::Emulation(down) => world.emulation_down = *down,
        Event::Nics(down) => world.nics_down = *down,
        Event::Storage(down) => world.storage_down = *down,
        Event::Ovn(ovn) => world.ovn = *ovn,
        Event::Unplugged(n) => world.ports.retain(|port| port.id.uid != uid(n)),
        Event::Round(crash_after) => drop(world.round(*crash_after)),
        Event::HostLetsGo => world.host_lets_go(),
        Event::ImportEnds(n) => world.import_ends(&uid(n)),
        Event::RestartAgent => world.restart_agent(),
        Event::RebootDpu(kept) => world.reboot_dpu(*kept),
        Event::TargetCrash => world.exposures.clear(),
        Event::Stray(n, epoch) => {
            // Only where nothing of that UID is: the ports themselves refuse a second epoch.
            let uid = uid(n);
            if !world.exposures.iter().any(|e| e.id.uid == uid) && !world.connections.iter().any(|c| c.id.uid == uid) {
                let is_nic = matches!(function(*n), Function::Nic(_));
                let kind = if is_nic { FunctionKind::Nic } else { FunctionKind::Disk };
                let presence = Presence::Present;
                let (id, limits) = (id(&uid, *epoch + 1000), Limits::default());
                world.ports.retain(|p| p.id.uid != uid);
                world.connections.push(Connected { id: id.clone(), size_bytes: 1 });
                world.plug(&id);
                let (size_bytes, link_up) = (Some(1), (kind == FunctionKind::Nic).then_some(true));
                world.exposures.push(Exposure {
                    id,
                    kind,
                    presence,
                    size_bytes,
                    limits,
                    representor: link_up.map(|_| "pf0hpf".to_owned()),
                    link_up,
                });
            }
        }
        Event::Grow => world.volume_bytes += 1 << 20,
        // A class bounds volumes, not NICs, seeds and imports.
        Event::Limit(n, thousands) if matches!(function(*n), Function::Disk { .. }) => {
            world.attachments.get_mut(&uid(n)).into_iter().for_each(|a| {
                a.limits.iops = (*thousands > 0).then_some(1000 * thousands);
            })
        }
        Event::Limit(..) => {}
    }
}

/// The host has every orphan, also after what presented it has crashed, and the API server was told of each. Of two epochs
/// of one UID the host keeps the one that it has.
fn keeps_what_is_unexplained(world: &World) -> Result<(), TestCaseError> {
    let explained =
        |id: &ExposureId| world.attachments.get(&id.uid).is_some_and(|a| a.deleting || a.epoch == Some(id.epoch));
    let told = |id: &ExposureId| world.word.reported.iter().any(|one| (&one.uid, one.epoch) == (&id.uid, id.epoch));
    let served = |id: &ExposureId| world.exposures.iter().any(|e| e.id.uid == id.uid);
    for exposure in world.exposures.iter().filter(|e| !explained(&e.id)) {
        prop_assert!(told(&exposure.id), "an orphan is not reported: {:?}", exposure);
    }
    for entry in world.record.values().filter(|entry| !explained(&entry.id)) {
        prop_assert!(entry.shown && served(&entry.id), "an orphan is not served: {:?}", entry);
    }
    prop_assert!(world.word.reported.iter().all(|one| served(&id(&one.uid, one.epoch))), "reported, and not there");
    Ok(())
}

fn shows_exactly_what_is_granted(world: &World) -> Result<(), TestCaseError> {
    for (uid, attachment) in &world.attachments {
        if attachment.deleting {
            prop_assert!(!attachment.release, "{} is released and still there", uid);
            continue;
        }
        let exposed: Vec<_> = world.exposures.iter().filter(|e| e.id.uid == *uid).map(|e| e.id.epoch).collect();
        let is_import = matches!(attachment.function, Ok(Function::Import(_)));
        match attachment.epoch {
            Some(epoch) if is_import => {
                let entry = world.record.get(uid).filter(|entry| entry.id.epoch == epoch);
                prop_assert!(entry.is_some_and(|e| e.import_done.is_some()), "{} is not imported", uid);
            }
            Some(epoch) => {
                prop_assert_eq!(exposed, vec![epoch], "{} is granted", uid);
                let held = world.exposures.iter().find(|e| e.id.uid == *uid).map(|e| e.limits);
                let is_nic = matches!(attachment.function, Ok(Function::Nic(_)));
                let wanted = world.bounds.and(attachment.limits);
                prop_assert!(is_nic || held == Some(wanted), "{} is held to {:?}, not to {:?}", uid, held, wanted);
                let is_up = world.exposures.iter().any(|e| e.id.uid == *uid && e.link_up == Some(true));
                prop_assert_eq!(is_up, is_nic, "the link of {}", uid);
            }
            None => prop_assert!(exposed.is_empty(), "{} is not granted", uid),
        }
    }
    let known = |uid: &String| world.attachments.contains_key(uid);
    prop_assert!(world.exposures.iter().all(|e| known(&e.id.uid)), "an orphan is exposed: {:?}", world.exposures);
    prop_assert!(world.connections.iter().all(|c| known(&c.id.uid)), "an orphan is connected");
    prop_assert!(world.ports.iter().all(|p| known(&p.id.uid)), "an orphan is plugged");
    prop_assert!(world.record.keys().all(known), "an orphan is remembered");
    prop_assert!(world.seeds.iter().all(known), "an orphan's seed is left");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn keeps_the_protocol_and_converges(events in proptest::collection::vec(event(), 1..80)) {
        let mut world = World::new();
        world.bounds = Limits { iops: Some(2000), bandwidth_mib: Some(100), ..Limits::default() };
        let mut epoch = 0;
        for event in &events {
            apply(&mut world, event, &mut epoch);
        }
        (world.api_down, world.emulation_down, world.storage_down) = (false, false, false);
        world.nics_down = false;
        world.ovn = Ovn::InForce;
        world.settle();
        keeps_what_is_unexplained(&world)?;
        world.word.releasable = world.word.reported.iter().map(|one| id(&one.uid, one.epoch)).collect();
        world.settle();
        shows_exactly_what_is_granted(&world)?;

        // An adopting restart changes nothing.
        let before = (world.exposures.clone(), world.connections.clone(), world.ports.clone());
        world.restart_agent();
        world.api_down = true;
        // Without the API server the record is replayed even for what is being deleted without release.
        if world.attachments.values().all(|a| !a.deleting) {
            prop_assert!(!world.round(None), "a restart without the API server does something");
        }
        world.api_down = false;
        world.sync();
        prop_assert!(!world.round(None), "a restart does something");
        prop_assert_eq!(before, (world.exposures, world.connections, world.ports));
    }
}
