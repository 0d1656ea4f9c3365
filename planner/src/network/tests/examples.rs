//! What a VNic is told, by example; and VNics that run since before there were holds.

use super::world::{NOW, World};
use crate::machine::OrphanOn;
use crate::machine::observed::DpuSeen;
use crate::network::addresses::{is_assigned, seniority};
use crate::reason::Reason;
use api::conditions::{self, DELETABLE};
use api::dpu::{Orphan, OrphanKind};
use api::{Dpu, names};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::sync::Arc;

fn told(world: &World, name: &str) -> Option<Reason> {
    world.plan(&world.observe(name).expect("there")).reason
}

#[test]
fn a_vnic_is_told_why_it_gets_no_address_and_what_to_do() {
    let cases = [
        ("10.20.1.7", "AddressOutsideSubnet", "10.20.0.0/24"),
        ("fd00::7", "AddressOutsideSubnet", "10.20.0.0/24"),
        ("10.20.0.0", "AddressReserved", "network address"),
        ("10.20.0.255", "AddressReserved", "broadcast address"),
        ("10.20.0.1", "AddressReserved", "gateway"),
        ("10.20.0.7", "AddressTaken", "kubectl delete vnic first"),
    ];
    for (address, reason, word) in cases {
        let mut world = World::new();
        world.create("first", &["10.20.0.7"], None);
        world.settle();
        world.create("second", &[address], None);
        world.settle();
        let said = world.said("second");
        assert!(said.starts_with(reason) && said.contains(word), "{address}: {said}");
        assert!(!is_assigned(&world.vnics["second"]) && is_assigned(&world.vnics["first"]));
        world.delete("first");
        world.settle();
        assert_eq!(is_assigned(&world.vnics["second"]), reason == "AddressTaken", "{}", world.said("second"));
    }
}

/// Of the ports that the Subnet has itself.
#[test]
fn the_mac_address_of_its_router_or_metadata_port_no_vnic_has() {
    for (port, what) in [(0, "router"), (1, "metadata port")] {
        let mut world = World::new();
        let subnet = world.subnet.as_ref().and_then(|subnet| subnet.metadata.uid.clone()).expect("a UID");
        let mac = names::mac(&subnet, port);
        world.create("first", &["10.20.0.7"], Some(&mac));
        world.settle();
        let said = world.said("first");
        assert!(said.starts_with("AddressReserved") && said.contains(&format!("MAC address of the {what}")), "{said}");
    }
}

/// What it can have of what it asks for nobody else gets: it may run with that already.
#[test]
fn of_several_addresses_the_free_ones_are_held() {
    let mut world = World::new();
    world.create("first", &["10.20.0.7"], None);
    world.settle();
    world.create("second", &["10.20.0.7", "10.20.0.8"], None);
    world.settle();
    world.create("third", &["10.20.0.8"], None);
    world.settle();
    assert!(world.said("third").contains("belongs to VNic 'second'"), "{}", world.said("third"));
    assert!(world.vnics["second"].status.as_ref().is_some_and(|status| status.addresses.is_empty()));
}

#[test]
fn a_mac_address_that_was_made_is_nobody_elses_and_one_that_is_taken_is_not_made() {
    let mut world = World::new();
    world.create("first", &["10.20.0.7"], None);
    world.settle();
    let made = world.vnics["first"].status.as_ref().and_then(|status| status.mac_address.clone()).expect("set");
    assert_eq!(Some(&made), world.vnics["first"].metadata.uid.as_ref().map(|uid| names::mac(uid, 0)).as_ref());
    world.create("second", &["10.20.0.8"], Some(&made));
    world.settle();
    assert!(world.said("second").starts_with("MacTaken"), "{}", world.said("second"));
    // The other way round: the next one is made.
    let mut world = World::new();
    world.create("asks", &["10.20.0.8"], None);
    world.create("made", &["10.20.0.7"], None);
    let first = world.vnics["made"].metadata.uid.as_ref().map(|uid| names::mac(uid, 0)).expect("a UID");
    world.change("asks", |vnic| vnic.spec.mac_address = Some(first.clone()));
    world.settle();
    let got = world.vnics["made"].status.as_ref().and_then(|status| status.mac_address.clone()).expect("set");
    assert!(is_assigned(&world.vnics["asks"]) && is_assigned(&world.vnics["made"]));
    assert_ne!(got, first);
}

#[test]
fn a_vnic_that_is_deleted_in_use_says_by_whom_and_keeps_its_address() {
    let mut world = World::new();
    world.create("first", &["10.20.0.7"], None);
    world.settle();
    world.attach("first");
    world.delete("first");
    world.settle();
    let status = world.vnics["first"].status.clone().unwrap_or_default();
    let said = conditions::get(&status.conditions, DELETABLE).expect("told");
    assert_eq!(said.reason, "VNicInUse");
    assert!(said.message.contains("BareMetalMachine 'bm-first'"), "{}", said.message);
    world.create("second", &["10.20.0.7"], None);
    world.settle();
    assert!(world.said("second").starts_with("AddressReleasing"), "{}", world.said("second"));
    world.detach("first");
    world.settle();
    assert!(!world.vnics.contains_key("first") && is_assigned(&world.vnics["second"]));
}

/// One of two that run is older; a third does not run, and is older than both.
#[test]
fn at_the_upgrade_who_runs_comes_before_who_does_not_and_then_the_older() {
    let mut world = World::new();
    for (name, age) in [("young", 10), ("old", 20), ("idle", 30)] {
        world.create(name, &["10.20.0.7"], None);
        world.change(name, |vnic| {
            vnic.metadata.creation_timestamp = Some(Time(NOW - SignedDuration::from_secs(age)));
        });
    }
    for name in ["young", "old"] {
        world.attach_with(name, vec!["10.20.0.7".to_owned()]);
    }
    let mut order: Vec<&str> = world.vnics.keys().map(String::as_str).collect();
    order.sort_by_key(|name| seniority(&world.vnics[*name]));
    assert_eq!(order, ["old", "young", "idle"]);
    // Whoever is looked at first.
    for name in ["idle", "young"] {
        for _ in 0..4 {
            let o = world.observe(name).expect("there");
            let plan = world.plan(&o);
            world.carry_out(&o, &plan);
        }
        assert!(world.said(name).contains("AddressTaken") && world.holds.is_empty(), "{name}: {}", world.said(name));
    }
    world.settle();
    assert!(is_assigned(&world.vnics["old"]));
    assert_eq!(world.nics.len(), 2, "the younger runs on");
    world.detach("old");
    world.delete("old");
    world.settle();
    assert!(is_assigned(&world.vnics["young"]), "{}", world.said("young"));
}

#[test]
fn what_an_orphaned_nic_has_is_taken_in_its_namespace() {
    let mut world = World::new();
    world.create("first", &["10.20.0.7"], Some("02:00:00:00:00:07"));
    world.settle();
    let fresh = |world: &mut World| {
        world.create("second", &["10.20.0.9"], Some("02:00:00:00:00:09"));
        let kept = Some(vec![api::labels::FINALIZER_IN_USE.to_owned()]);
        world.change("second", |vnic| vnic.metadata.finalizers = kept.clone());
        let mut o = world.observe("second").expect("there");
        let mut subnet = api::Subnet::clone(o.subnet.as_ref().expect("there"));
        subnet.metadata.finalizers = kept;
        o.subnet = Some(Arc::new(subnet));
        o
    };
    let judged = |port: Option<&str>, addresses: &[&str], mac: Option<&str>| {
        let mut o = fresh(&mut world.clone());
        let mut dpu = Dpu::new("dpu-1", Default::default());
        dpu.metadata.uid = Some("d".to_owned());
        let orphan = Orphan {
            kind: OrphanKind::Nic,
            uid: "gone".to_owned(),
            logical_port: port.map(str::to_owned),
            addresses: addresses.iter().map(|address| (*address).to_owned()).collect(),
            mac_address: mac.map(str::to_owned),
            ..Orphan::default()
        };
        o.orphans = vec![OrphanOn { dpu: DpuSeen { dpu: Arc::new(dpu), ..DpuSeen::default() }, orphan }];
        world.plan(&o).reason.map(|reason| reason.name())
    };
    let shown = Some("AddressShownElsewhere");
    assert_eq!(judged(Some("team.gone"), &["10.20.0.9"], None), shown);
    assert_eq!(judged(None, &["10.20.0.9"], None), shown, "an agent that does not remember the port");
    assert_eq!(judged(Some("team.gone"), &[], Some("02:00:00:00:00:09")), shown);
    assert_eq!(judged(Some("other.gone"), &["10.20.0.9"], None), None, "another namespace's Subnet");
    assert_eq!(judged(Some("team.second"), &["10.20.0.9"], None), None, "its own: VNicShownElsewhere says it");
}

/// After a restore of etcd the hold may come before the report.
#[test]
fn an_address_that_an_orphan_is_found_to_have_is_assigned_no_longer() {
    let mut world = World::new();
    world.create("first", &["10.20.0.7"], None);
    world.settle();
    let mut o = world.observe("first").expect("there");
    assert_eq!(world.plan(&o).status, None, "it is assigned");
    let addresses = vec!["10.20.0.7".to_owned()];
    let orphan = Orphan { kind: OrphanKind::Nic, uid: "gone".to_owned(), addresses, ..Orphan::default() };
    let dpu = DpuSeen { dpu: Arc::new(Dpu::new("dpu-1", Default::default())), ..DpuSeen::default() };
    o.orphans = vec![OrphanOn { dpu, orphan }];
    let plan = world.plan(&o);
    let said = plan.status.map(|status| status.conditions).unwrap_or_default();
    assert!(!conditions::is_true(&said, conditions::ADDRESSES_ASSIGNED));
    assert_eq!(plan.reason.map(|reason| reason.name()), Some("AddressShownElsewhere"));
    assert!(plan.actions.is_empty(), "the hold stays: nobody else gets it either");
}

#[test]
fn a_subnet_that_is_deleted_lets_nobody_in_and_names_who_keeps_it() {
    let mut world = World::new();
    world.create("first", &["10.20.0.7"], None);
    world.settle();
    world.attach("first");
    world.delete_subnet();
    world.create("late", &["10.20.0.9"], None);
    world.settle();
    assert!(world.said("late").starts_with("SubnetBeingDeleted"), "{}", world.said("late"));
    assert!(is_assigned(&world.vnics["first"]) && world.subnet.is_some());
    assert_eq!(told(&world, "first"), None);
    world.detach("first");
    world.delete("first");
    world.settle();
    assert!(world.subnet.is_none(), "a VNic without addresses keeps it");
    assert!(world.said("late").starts_with("SubnetMissing"), "{}", world.said("late"));
}
