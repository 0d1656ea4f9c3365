//! Addresses of a VLAN that somebody else holds: by the name that holds there have, or by the one that they had before an upgrade.

use super::world::World;
use crate::machine::observed::uid;
use crate::network::addresses::{Action, Observed};
use crate::network::provider::hold_name;
use api::network::{AddressHoldSpec, AddressOwner, SubnetReference};
use api::{AddressHold, ProviderNetwork, Subnet, labels, names};
use serde_json::json;
use std::sync::Arc;

const OTHER: &str = "another-network";

fn network() -> ProviderNetwork {
    let spec = json!({"physicalNetwork": "physnet1", "vlan": 7, "cidr": "10.20.0.0/24"});
    let mut network = ProviderNetwork::new("dc", serde_json::from_value(spec).expect("a spec"));
    network.metadata.uid = Some("dc".to_owned());
    network
}

/// Of another ProviderNetwork of the VLAN, made before addresses were of VLANs.
fn hold(address: &str, owner_kind: &str, owner_uid: &str) -> AddressHold {
    let (kind, uid) = (owner_kind.to_owned(), owner_uid.to_owned());
    let owner = AddressOwner { kind, namespace: "team-b".to_owned(), name: "first".to_owned(), uid };
    let subnet = SubnetReference { namespace: String::new(), name: "other".to_owned(), uid: OTHER.to_owned() };
    let spec = AddressHoldSpec { subnet, owner, address: Some(address.to_owned()), mac_address: None };
    AddressHold::new(&names::address_hold(OTHER, address), spec)
}

/// On the VLAN, with all finalizers.
fn observed(world: &mut World, name: &str, holds: Vec<AddressHold>) -> Observed {
    let kept = Some(vec![labels::FINALIZER_IN_USE.to_owned()]);
    world.change(name, |vnic| vnic.metadata.finalizers = kept.clone());
    let mut o = world.observe(name).expect("there");
    let mut subnet = Subnet::clone(o.subnet.as_ref().expect("there"));
    subnet.metadata.finalizers = kept;
    o.subnet = Some(Arc::new(subnet));
    o.provider = Some(Arc::new(network()));
    o.holds = holds.into_iter().map(Arc::new).collect();
    o
}

/// The names of the holds that are created, and why the VNic waits.
fn planned(world: &World, o: &Observed) -> (Vec<String>, Option<&'static str>) {
    let plan = world.plan(o);
    let created = plan.actions.iter().filter_map(|action| match action {
        Action::CreateAddressHold(hold) => hold.metadata.name.clone(),
        _ => None,
    });
    (created.collect(), plan.reason.map(|reason| reason.name()))
}

#[test]
fn an_address_that_another_holds_by_the_name_of_before_is_not_given() {
    let mut world = World::new();
    world.create("asks", &["10.20.0.9"], None);
    for (kind, reason) in [("FloatingIP", "ExternalAddressTaken"), ("VNic", "AddressTaken")] {
        let o = observed(&mut world, "asks", vec![hold("10.20.0.9", kind, "another")]);
        assert_eq!(planned(&world, &o), (vec![], Some(reason)));
    }
    let own = uid(&world.vnics["asks"].metadata).to_owned();
    let o = observed(&mut world, "asks", vec![hold("10.20.0.9", "VNic", &own)]);
    let subnet = &o.subnet.as_ref().expect("there").metadata;
    let now = hold_name(subnet, Some(&network()), "10.20.0.9");
    assert_eq!(planned(&world, &o), (vec![now], None), "one that it has itself gets its present name");
}

#[test]
fn an_address_that_another_holds_is_not_chosen() {
    // The only one beside the router's.
    let mut world = World::with("10.20.0.0/30");
    world.create("chooses", &[], None);
    let o = observed(&mut world, "chooses", vec![hold("10.20.0.2", "FloatingIP", "another")]);
    assert_eq!(planned(&world, &o), (vec![], None));
    assert_eq!(world.plan(&o).actions, [Action::ListAddressHolds], "before it is said that nothing is free");
    let o = observed(&mut world, "chooses", vec![]);
    assert_eq!(planned(&world, &o).0.len(), 1);
}
