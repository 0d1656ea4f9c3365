//! No address is in use by two, whatever is late; and everything comes to an end.

use super::world::{NOW, World};
use crate::network::addresses::{self, Observed, Plan, is_assigned};
use proptest::prelude::*;

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
                    let plan = addresses::plan(&o, NOW);
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
