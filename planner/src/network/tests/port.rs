//! A VNic's port: what it rests on, and which grant can bind it.

use crate::network::port::{Observed, Parent, Plan, as_written, is_programmed, plan};
use crate::network::rows::{Binding, Found, Rates};
use crate::reason::{Blocked, Reason};
use api::conditions::{self, ADDRESSES_ASSIGNED, ConditionStatus, PROGRAMMED, READY};
use api::network::{DEFAULT, Programmed, Qos, default_vpc};
use api::{Dpu, NicAttachment, SecurityGroup, Subnet, VNic, Vpc};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::json;
use std::sync::Arc;

fn of_uid<K: serde::de::DeserializeOwned>(name: &str, spec: serde_json::Value) -> K {
    let meta = json!({"name": name, "namespace": "team-a", "uid": format!("uid-{name}")});
    serde_json::from_value(json!({"metadata": meta, "spec": spec})).expect("an object")
}

fn said(type_: &str, good: bool) -> Vec<Condition> {
    let mut said = Vec::new();
    let status = if good { ConditionStatus::True } else { ConditionStatus::False };
    conditions::set(&mut said, type_, status, "Because", "it is so", Some(1), jiff::Timestamp::UNIX_EPOCH);
    said
}

struct World {
    vnic: VNic,
    subnet: Subnet,
    vpc: Vpc,
    dpu: Dpu,
    attachments: Vec<Arc<NicAttachment>>,
    groups: Vec<SecurityGroup>,
    /// Others of its Subnet.
    others: Vec<VNic>,
    parents: Vec<Parent>,
    taken: Option<Reason>,
    lacked: Option<Reason>,
}

/// A VNic with an address, held for an attachment on dpu-1 by the third grant; all that it needs is there.
fn world() -> World {
    let mut vnic: VNic = of_uid("eth0", json!({"subnet": "blue", "addresses": ["10.20.0.7"]}));
    vnic.status = Some(
        serde_json::from_value(json!({
            "macAddress": "02:00:00:00:00:07", "addresses": ["10.20.0.7"], "grant": {"epoch": 3},
            "holder": {"attachmentNamespace": "metalplane-dpu-dpu-1", "attachmentName": "bm-01-eth0",
                "attachmentUID": "a", "dpuName": "dpu-1", "dpuUID": "uid-dpu-1"},
            "conditions": said(ADDRESSES_ASSIGNED, true),
        }))
        .expect("a status"),
    );
    let mut subnet: Subnet = of_uid("blue", json!({"cidr": "10.20.0.0/24"}));
    subnet.status = Some(serde_json::from_value(json!({"conditions": said(READY, true)})).expect("a status"));
    let mut dpu: Dpu = of_uid("dpu-1", json!({"hardwareRef": {"name": "server-1"}, "powerDomain": "Standby"}));
    dpu.status = Some(serde_json::from_value(json!({"network": {"chassis": "chassis-1"}})).expect("a status"));
    World {
        vnic,
        subnet,
        vpc: of_uid(DEFAULT, json!({"defaultSecurityGroups": [DEFAULT]})),
        dpu,
        attachments: Vec::new(),
        groups: vec![group(DEFAULT, DEFAULT), group("web", DEFAULT), group("red", "red")],
        others: Vec::new(),
        parents: Vec::new(),
        taken: None,
        lacked: None,
    }
}

fn group(name: &str, vpc: &str) -> SecurityGroup {
    of_uid(name, json!({"vpc": {"name": vpc}}))
}

impl World {
    fn plan(&self) -> Plan {
        let Self { vnic, subnet, vpc, dpu, attachments, groups, others, .. } = self;
        let group = |name: &str| {
            groups.iter().find(|group| group.metadata.name.as_deref() == Some(name)).cloned().map(Arc::new)
        };
        let o = Observed {
            vnic,
            subnet: Some(subnet),
            vpc: Some(vpc),
            attachments,
            dpu: Some(dpu),
            parents: self.parents.clone(),
            taken: self.taken.clone(),
            lacked: self.lacked.clone(),
        };
        let has = |other: &&VNic, address: &str| {
            other.status.iter().flat_map(|status| &status.addresses).any(|own| own == address)
        };
        plan(&o, group, |address| {
            let all = others.iter().chain([vnic]).filter(|other| has(other, address));
            all.cloned().map(Arc::new).collect()
        })
    }

    fn reason(&self) -> Option<&'static str> {
        self.plan().reason.map(|reason| reason.name())
    }

    fn groups(&self) -> Vec<String> {
        self.plan().port.expect("a port").groups
    }
}

#[test]
fn the_port_is_bound_to_the_holders_chassis_and_grant() {
    let mut w = world();
    let plan = w.plan();
    assert_eq!((plan.epoch, plan.reason), (Some(3), None));
    let port = plan.port.expect("a port");
    assert_eq!((port.name.as_str(), port.mac.as_str()), ("mp-uid-eth0", "02:00:00:00:00:07"));
    assert_eq!(port.addresses, ["10.20.0.7".parse::<std::net::IpAddr>().expect("an address")]);
    let binding = Binding { chassis: "chassis-1".into(), attachment_uid: "a".into(), epoch: 3 };
    assert_eq!(port.binding, Some(binding));

    w.vnic.status.as_mut().expect("a status").holder = None;
    let plan = w.plan();
    assert_eq!((plan.epoch, plan.reason), (None, None));
    assert_eq!(plan.port.expect("its addresses are known").binding, None, "nobody may bind it");
}

#[test]
fn a_chassis_that_another_dpu_has_binds_nothing_more_and_one_without_the_network_nothing() {
    let (chassis, dpu, by) = ("chassis-1".to_owned(), "dpu-1".to_owned(), "dpu-0".to_owned());
    let mut w = world();
    w.taken = Some(Blocked::ChassisTaken { dpu: dpu.clone(), chassis, by }.into());
    assert_eq!((w.reason(), w.plan().port), (Some("ChassisTaken"), None));
    let programmed = |epoch: u64| serde_json::from_value(json!({"epoch": epoch})).expect("what was programmed");
    w.vnic.status.as_mut().expect("a status").programmed = Some(programmed(2));
    assert_eq!(w.reason(), Some("ChassisTaken"), "by another grant");
    w.vnic.status.as_mut().expect("a status").programmed = Some(programmed(3));
    assert_eq!(w.reason(), None);
    assert!(w.plan().port.is_some_and(|port| port.binding.is_some()), "a host uses it");
    let (physical_network, subnet) = ("physnet1".to_owned(), "blue".to_owned());
    w.lacked = Some(Blocked::PhysicalNetworkUnmapped { physical_network, subnet, dpu }.into());
    assert_eq!((w.reason(), w.plan().port), (Some("PhysicalNetworkUnmapped"), None), "it would carry nothing");
}

#[test]
fn a_port_of_before_keeps_its_name() {
    let mut w = world();
    let spec = json!({
        "owner": {"kind": "BareMetalMachine", "name": "bm-01", "namespace": "team-a", "uid": "m"}, "dpuName": "dpu-1",
        "interfaceName": "eth0", "vnicName": "eth0", "vnicUID": "uid-eth0", "logicalPort": "team-a.eth0",
        "macAddress": "02:00:00:00:00:07", "functionKind": "HotplugPF", "mtu": 1442, "release": false,
    });
    w.attachments.push(Arc::new(of_uid("bm-01-eth0", spec)));
    assert_eq!(w.plan().port.expect("a port").name, "team-a.eth0");
}

#[test]
fn a_chassis_that_is_not_known_binds_nothing() {
    let mut w = world();
    w.dpu.status.as_mut().expect("a status").network = None;
    assert_eq!(w.reason(), Some("ChassisUnknown"));
    assert_eq!(w.plan().epoch, None, "so nothing is granted");
    assert_eq!(w.plan().port.expect("the port stays").binding, None);

    let mut w = world();
    w.dpu.metadata.uid = Some("another".into());
    assert_eq!(w.reason(), Some("ChassisUnknown"), "another Dpu by the same name");
}

#[test]
fn groups_are_those_that_are_named_or_the_vpcs() {
    let mut w = world();
    assert_eq!(w.groups(), ["uid-default"]);
    w.vnic.spec.security_groups = Some(vec!["web".into(), "missing".into(), "red".into()]);
    assert_eq!(w.groups(), ["uid-web"], "and not the Vpc's in the place of those that are missing");
    assert_eq!(w.reason(), Some("SecurityGroupMissing"));
    assert_eq!(w.plan().epoch, Some(3), "the others are in force");
    w.vnic.spec.security_groups = Some(vec!["red".into()]);
    assert_eq!((w.groups(), w.reason()), (vec![], Some("GroupOfOtherVpc")));
    w.vnic.spec.security_groups = Some(vec![]);
    assert_eq!((w.groups(), w.reason()), (vec![], None));
}

#[test]
fn nothing_is_written_before_its_addresses_and_its_subnet_are_there() {
    let mut w = world();
    w.subnet.status.as_mut().expect("a status").conditions = said(READY, false);
    assert_eq!((w.plan().port, w.reason()), (None, Some("SubnetNotReady")));
    w.vnic.status.as_mut().expect("a status").conditions = said(ADDRESSES_ASSIGNED, false);
    assert_eq!((w.plan().port, w.reason()), (None, None), "AddressesAssigned says why");
    assert_eq!(default_vpc().name, w.subnet.spec.vpc.name);
}

#[test]
fn a_grant_waits_for_the_port_of_just_this_grant() {
    let mut vnic = world().vnic;
    let programmed = |vnic: &mut VNic, epoch| {
        vnic.status.as_mut().expect("a status").programmed = Some(Programmed { epoch, ..Programmed::default() });
    };
    assert!(is_programmed(&vnic).is_err(), "nobody has said anything");
    for (epoch, good) in [(None, false), (Some(2), false), (Some(3), true)] {
        programmed(&mut vnic, epoch);
        assert_eq!(is_programmed(&vnic).is_ok(), good, "{epoch:?}");
    }
    programmed(&mut vnic, Some(2));
    vnic.status.as_mut().expect("a status").conditions.extend(said(PROGRAMMED, false));
    let why = is_programmed(&vnic).expect_err("an earlier grant's");
    assert_eq!(why.name(), "VNicNotReady");
    assert!(why.told().contains("is not ready: Because"), "{}", why.told());
}

/// Who grants does not wait for a status: OVN's own word is the first, and the one that outlives the controller.
#[test]
fn what_ovn_has_committed_for_a_grant_is_as_good_as_the_status() {
    let w = world();
    let rows_of = |epoch: u64| {
        let mut of = world();
        of.vnic.status.as_mut().expect("a status").grant.epoch = epoch;
        let rows = of.plan().port.expect("a port").rows("site").into_iter();
        rows.map(|row| Found { uuid: "u".to_owned(), row }).collect::<Vec<_>>()
    };
    let vnic = Arc::new(w.vnic.clone());
    assert!(is_programmed(&as_written(&vnic, &rows_of(3))).is_ok());
    assert!(is_programmed(&as_written(&vnic, &rows_of(2))).is_err(), "an earlier grant's");
    assert!(is_programmed(&as_written(&vnic, &[])).is_err(), "no port");
    let mut free = w.vnic.clone();
    free.status.as_mut().expect("a status").holder = None;
    let free = Arc::new(free);
    assert!(is_programmed(&as_written(&free, &rows_of(3))).is_err(), "nobody holds it");
}

/// A VNic of the same Subnet with this address that no host has.
fn idle(name: &str, address: &str) -> VNic {
    let mut vnic: VNic = of_uid(name, json!({"subnet": "blue", "addresses": [address]}));
    let status = json!({"addresses": [address], "conditions": said(ADDRESSES_ASSIGNED, true)});
    vnic.status = Some(serde_json::from_value(status).expect("a status"));
    vnic
}

/// With two Subnets in its Vpc.
fn in_vpc() -> World {
    let mut w = world();
    let subnets = json!([{"name": "blue", "uid": "uid-blue", "cidr": "10.20.0.0/24", "ipv6Cidr": "fd00:20::/64"},
        {"name": "green", "uid": "uid-green", "cidr": "10.21.0.0/24"}]);
    w.vpc.status = Some(serde_json::from_value(json!({"subnets": subnets})).expect("a status"));
    w.subnet.spec.ipv6_cidr = Some("fd00:20::/64".to_owned());
    w
}

fn allows(w: &mut World, asked: &[&str]) -> (Vec<String>, Option<&'static str>) {
    w.vnic.spec.allowed_addresses = asked.iter().map(|text| (*text).to_owned()).collect();
    (w.plan().port.expect("a port").allowed, w.reason())
}

#[test]
fn outside_every_subnet_a_guest_may_have_what_it_asks_for() {
    let mut w = in_vpc();
    let asked = ["10.90.0.0/16", "FD00:0090::/64", "192.0.2.7"];
    assert_eq!(
        allows(&mut w, &asked),
        (vec!["10.90.0.0/16".into(), "192.0.2.7".into(), "fd00:0090::/64".into()], None)
    );
    let refused = Some("AllowedAddressInSubnet");
    for bad in
        ["10.21.0.9", "10.20.0.0/25", "10.20.0.0/16", "10.0.0.0/8", "10.20.0.9", "10.20.0.1", "fd00:20::9", "fd00::/16"]
    {
        assert_eq!(allows(&mut w, &[bad, "192.0.2.7"]), (vec!["192.0.2.7".to_owned()], refused), "{bad}");
        let told = w.plan().reason.expect("a reason").told();
        assert!(told.contains(bad) && told.contains("spec.allowedAddresses"), "{told}");
    }
    assert_eq!(w.plan().epoch, Some(3), "what is refused does not keep it from being granted");
}

#[test]
fn an_address_of_a_vnic_that_no_host_has_may_be_shared() {
    let mut w = in_vpc();
    w.others = vec![idle("vip", "10.20.0.200"), idle("vip6", "fd00:20::200")];
    let both = ["10.20.0.200", "fd00:20:0::200"];
    assert_eq!(allows(&mut w, &both), (vec!["10.20.0.200".into(), "fd00:20::200".into()], None));
    assert_eq!(allows(&mut w, &["10.20.0.7"]), (vec!["10.20.0.7".to_owned()], None), "its own");

    let held = json!({"attachmentNamespace": "d", "attachmentName": "a", "attachmentUID": "b", "dpuName": "dpu-2", "dpuUID": "d"});
    w.others[0].status.as_mut().expect("a status").holder = Some(serde_json::from_value(held).expect("a holder"));
    assert_eq!(allows(&mut w, &both), (vec!["fd00:20::200".to_owned()], Some("AllowedAddressTaken")));
    assert!(w.plan().reason.expect("a reason").told().contains("Dpu 'dpu-2'"));
    // Root on that node may plug it at any time, with or without a chassis by now.
    w.others[1].spec.node_name = Some("dpu-3".to_owned());
    assert_eq!(allows(&mut w, &["fd00:20::200"]), (vec![], Some("AllowedAddressTaken")));
    assert!(w.plan().reason.expect("a reason").told().contains("Dpu 'dpu-3'"));
    w.others[0].status.as_mut().expect("a status").holder = None;
    w.others[0].spec.node_name = Some("dpu-3".to_owned());
    assert_eq!(allows(&mut w, &["10.20.0.200"]), (vec![], Some("AllowedAddressTaken")));

    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH);
    w.others[1].metadata.deletion_timestamp = Some(now);
    assert_eq!(
        allows(&mut w, &["fd00:20::200"]),
        (vec![], Some("AllowedAddressInSubnet")),
        "it is about to be released"
    );
}

#[test]
fn an_address_that_another_guest_may_still_have_is_bound_after_that() {
    let mut w = world();
    let (port, vnic, address) = ("mp-uid-a".to_owned(), "a".to_owned(), "10.20.0.7".to_owned());
    w.parents = vec![Parent { port, vnic, address }];
    let plan = w.plan();
    assert_eq!((plan.epoch, w.reason()), (None, Some("AddressStillShared")), "so nothing is granted");
    let port = plan.port.expect("it stays virtual");
    assert_eq!((port.binding, port.parents), (None, vec!["mp-uid-a".to_owned()]));
    assert!(plan.reason.expect("a reason").told().contains("VNic 'a' may still send from 10.20.0.7"));
    // Of before that was so.
    let programmed = Programmed { epoch: Some(3), ..Programmed::default() };
    w.vnic.status.as_mut().expect("a status").programmed = Some(programmed);
    assert_eq!((w.plan().epoch, w.reason()), (Some(3), None), "a host uses it");
    w.vnic.status.as_mut().expect("a status").programmed = None;
    w.parents.clear();
    assert_eq!((w.plan().epoch, w.reason()), (Some(3), None));
}

#[test]
fn a_rate_is_said_in_kilobits() {
    let mut w = world();
    assert_eq!(w.plan().port.expect("a port").rates, Rates::default());
    w.vnic.spec.qos = Some(Qos { ingress_mbps: Some(1000), egress_mbps: None });
    assert_eq!(w.plan().port.expect("a port").rates, Rates { ingress: Some(1_000_000), egress: None });
}

#[test]
fn a_vnic_of_a_node_is_bound_there_at_a_version_that_no_grant_has() {
    let mut world = world();
    world.vnic.spec.node_name = Some("dpu-1".to_owned());
    let holder = world.vnic.status.as_mut().and_then(|status| status.holder.take());
    let binding = world.plan().port.and_then(|port| port.binding).expect("bound");
    assert_eq!((binding.chassis.as_str(), binding.version().as_str()), ("chassis-1", "uid-eth0.0"));
    world.vnic.spec.node_name = Some("dpu-2".to_owned());
    assert_eq!((world.plan().port.and_then(|port| port.binding), world.reason()), (None, Some("ChassisUnknown")));
    // Whoever has it by an attachment has it alone.
    world.vnic.status.as_mut().expect("a status").holder = holder;
    let binding = world.plan().port.and_then(|port| port.binding).expect("bound");
    assert_eq!(binding.version(), "a.3");
}
