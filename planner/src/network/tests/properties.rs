//! No address is in use by two, whatever is late; and everything comes to an end.

use super::world::{NOW, World};
use crate::machine::observed::uid;
use crate::network::addresses::{self, Action, Observed, Plan, is_assigned};
use crate::network::pool::Pool;
use proptest::prelude::*;
use std::collections::BTreeMap;

const NAMES: [&str; 3] = ["a", "b", "c"];
const ADDRESSES: [&[&str]; 3] = [&["10.20.0.7"], &["10.20.0.7", "10.20.0.8"], &["10.20.0.8"]];
const MAC: &str = "02:00:00:00:00:07";

#[derive(Debug, Clone, Copy)]
enum Event {
    Create(usize),
    Delete(usize),
    /// Plans on what is so now, and carries it out.
    Round(usize),
    /// Carries out what was planned earlier: a stale cache, a deposed leader.
    Late(usize),
    Attach(usize),
    Detach(usize),
    DeleteSubnet,
    CreateSubnet,
    Collect,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0..3usize).prop_map(Event::Create),
        2 => (0..3usize).prop_map(Event::Delete),
        12 => (0..3usize).prop_map(Event::Round),
        4 => (0..3usize).prop_map(Event::Late),
        4 => (0..3usize).prop_map(Event::Attach),
        2 => (0..3usize).prop_map(Event::Detach),
        1 => Just(Event::DeleteSubnet),
        2 => Just(Event::CreateSubnet),
        2 => Just(Event::Collect),
    ]
}

fn create(world: &mut World, n: usize) {
    // The third asks for the MAC address of the first.
    world.create(NAMES[n], ADDRESSES[n], (n != 1).then_some(MAC));
}

/// What is attached has a hold of its own for each of its addresses: so no two have one.
fn check(world: &World) {
    for nic in &world.nics {
        for address in &nic.spec.addresses {
            let held = world
                .holds
                .values()
                .any(|hold| hold.spec.owner.uid == nic.spec.vnic_uid && hold.spec.address.as_deref() == Some(address));
            assert!(held, "{address} of VNic '{}' is in use without a hold", nic.spec.vnic_name);
            let same = world.nics.iter().filter(|other| other.spec.addresses.contains(address)).count();
            assert_eq!(same, 1, "{address} is in use twice");
        }
    }
    assert!(world.nics.is_empty() || world.subnet.is_some(), "the Subnet is gone under what is attached");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn no_address_is_in_use_twice(events in proptest::collection::vec(event(), 0..80)) {
        let mut world = World::new();
        let mut late: [Option<(Observed, Plan)>; 3] = [None, None, None];
        for event in events {
            match event {
                Event::Create(n) => create(&mut world, n),
                Event::Delete(n) => world.delete(NAMES[n]),
                Event::Round(n) => {
                    let Some(o) = world.observe(NAMES[n]) else { continue };
                    let plan = world.plan(&o);
                    world.carry_out(&o, &plan);
                    late[n].get_or_insert((o, plan));
                }
                Event::Late(n) => {
                    if let Some((o, plan)) = late[n].take() {
                        world.carry_out(&o, &plan);
                    }
                }
                Event::Attach(n) => world.attach(NAMES[n]),
                Event::Detach(n) => world.detach(NAMES[n]),
                Event::DeleteSubnet => world.delete_subnet(),
                Event::CreateSubnet => world.create_subnet(),
                Event::Collect => world.collect(),
            }
            check(&world);
        }
        world.settle();
        check(&world);
        for name in NAMES {
            world.detach(name);
            world.delete(name);
            world.settle();
        }
        prop_assert!(world.vnics.is_empty(), "not deleted: {:?}", world.vnics.keys());
        prop_assert!(world.holds.is_empty(), "not released: {:?}", world.holds.keys());
        world.delete_subnet();
        world.settle();
        prop_assert!(world.subnet.is_none());
        // And a new one serves all of it again.
        world.create_subnet();
        create(&mut world, 0);
        world.settle();
        prop_assert!(is_assigned(&world.vnics["a"]), "{}", world.said("a"));
    }
}

/// One more than the Subnet has addresses.
const CHOOSERS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const SMALL: &str = "10.20.0.0/29";

#[derive(Debug, Clone, Copy)]
enum Choice {
    Create(usize),
    Delete(usize),
    /// A leader plans on what is so now, and on its pool.
    Round(usize, usize),
    Late(usize),
    Attach(usize),
    Detach(usize),
    /// The watch of a leader catches up.
    Told(usize),
    Collect,
}

fn choice() -> impl Strategy<Value = Choice> {
    let (vnic, leader) = (|| 0..CHOOSERS.len(), || 0..2usize);
    prop_oneof![
        4 => vnic().prop_map(Choice::Create),
        2 => vnic().prop_map(Choice::Delete),
        14 => (vnic(), leader()).prop_map(|(vnic, leader)| Choice::Round(vnic, leader)),
        5 => vnic().prop_map(Choice::Late),
        4 => vnic().prop_map(Choice::Attach),
        2 => vnic().prop_map(Choice::Detach),
        2 => leader().prop_map(Choice::Told),
        2 => Just(Choice::Collect),
    ]
}

/// Plans as a leader whose pool may be old, and carries it out.
fn round(world: &mut World, pool: &mut Pool, name: &str) -> Option<(Observed, Plan)> {
    let o = world.observe(name)?;
    let plan = addresses::plan(&o, pool, NOW);
    world.carry_out(&o, &plan);
    for action in &plan.actions {
        match action {
            Action::CreateAddressHold(hold) => pool.take(hold),
            Action::ListAddressHolds => *pool = world.pool(),
            _ => {}
        }
    }
    Some((o, plan))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    #[test]
    fn no_address_is_chosen_twice(events in proptest::collection::vec(choice(), 0..80)) {
        let mut world = World::with(SMALL);
        let mut pools = [Pool::default(), Pool::default()];
        let mut late: [Option<(Observed, Plan)>; CHOOSERS.len()] = Default::default();
        let mut had: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for event in events {
            match event {
                Choice::Create(n) => world.create(CHOOSERS[n], &[], None),
                Choice::Delete(n) => world.delete(CHOOSERS[n]),
                Choice::Round(n, leader) => {
                    if let Some(planned) = round(&mut world, &mut pools[leader], CHOOSERS[n]) {
                        late[n].get_or_insert(planned);
                    }
                }
                Choice::Late(n) => {
                    if let Some((o, plan)) = late[n].take() {
                        world.carry_out(&o, &plan);
                    }
                }
                Choice::Attach(n) => world.attach(CHOOSERS[n]),
                Choice::Detach(n) => world.detach(CHOOSERS[n]),
                Choice::Told(leader) => pools[leader] = world.pool(),
                Choice::Collect => world.collect(),
            }
            check(&world);
            for (name, vnic) in &world.vnics {
                let has = world.given(name);
                prop_assert!(has.len() <= 1, "{has:?}");
                let before = had.entry(uid(&vnic.metadata).to_owned()).or_insert_with(|| has.clone());
                prop_assert!(before.is_empty() || *before == has, "VNic '{name}' had {before:?} and has {has:?}");
                before.clone_from(&has);
            }
        }
        for name in CHOOSERS {
            world.detach(name);
        }
        world.settle();
        CHOOSERS.iter().for_each(|name| world.create(name, &[], None));
        world.settle();
        check(&world);
        let without: Vec<&str> = CHOOSERS.into_iter().filter(|name| !is_assigned(&world.vnics[*name])).collect();
        prop_assert_eq!(without.len(), 1, "all that the Subnet has is given");
        prop_assert!(world.said(without[0]).starts_with("SubnetFull"), "{}", world.said(without[0]));
        prop_assert_eq!(world.holds.len(), CHOOSERS.len() - 1, "no hold is left over");
        let other = CHOOSERS.into_iter().find(|name| *name != without[0]).expect("several");
        world.delete(other);
        world.settle();
        prop_assert!(is_assigned(&world.vnics[without[0]]), "{}", world.said(without[0]));
    }
}
