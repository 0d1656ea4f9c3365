//! A VNic's port: what it rests on, and which grant can bind it.

use crate::network::port::{Observed, Plan, is_programmed, plan};
use crate::network::rows::Binding;
use api::conditions::{self, ADDRESSES_ASSIGNED, ConditionStatus, PROGRAMMED, READY};
use api::network::{DEFAULT, Programmed, default_vpc};
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
    }
}

fn group(name: &str, vpc: &str) -> SecurityGroup {
    of_uid(name, json!({"vpc": {"name": vpc}}))
}

impl World {
    fn plan(&self) -> Plan {
        let Self { vnic, subnet, vpc, dpu, attachments, groups } = self;
        let group = |name: &str| {
            groups.iter().find(|group| group.metadata.name.as_deref() == Some(name)).cloned().map(Arc::new)
        };
        plan(&Observed { vnic, subnet: Some(subnet), vpc: Some(vpc), attachments, dpu: Some(dpu) }, group)
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
