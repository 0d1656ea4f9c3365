//! One pod from its first plan to its last, with everybody else in the test's place.

mod worker;

use super::*;
use api::Dpu;
use api::attachment::Grant;
use api::conditions::{ADDRESSES_ASSIGNED, ConditionStatus};
use api::dpu::{DpuSpec, DpuStatus};
use api::network::{AdmittedSubnet, Programmed, VpcSpec, VpcStatus};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

struct World {
    o: Observed,
}

fn named(name: &str, uid: &str) -> ObjectMeta {
    let (namespace, name, uid) = (Some("team".to_owned()), Some(name.to_owned()), Some(uid.to_owned()));
    ObjectMeta { namespace, name, uid, ..ObjectMeta::default() }
}

impl World {
    /// A pod on node-1 that asks for one NIC in `blue`, whose Vpc has another Subnet.
    fn new() -> Self {
        let mut pod = Pod { metadata: named("web", "pod-1"), ..Pod::default() };
        let asks = [(labels::SUBNET.to_owned(), "blue".to_owned())];
        pod.metadata.annotations = Some(asks.into());
        pod.spec = Some(PodSpec { node_name: Some("node-1".to_owned()), ..PodSpec::default() });
        let spec = json!({"cidr": "10.20.0.0/24", "ipv6Cidr": "fd00:20::/64", "gateway": "10.20.0.1"});
        let mut subnet = Subnet::new("blue", serde_json::from_value(spec).expect("a spec"));
        subnet.metadata = named("blue", "subnet-1");
        let mut vpc = Vpc::new("default", VpcSpec::default());
        let admitted = |name: &str, uid: &str, cidr: &str, ipv6_cidr: &str| AdmittedSubnet {
            name: name.to_owned(),
            uid: uid.to_owned(),
            cidr: cidr.to_owned(),
            ipv6_cidr: Some(ipv6_cidr.to_owned()),
        };
        let subnets = vec![
            admitted("blue", "subnet-1", "10.20.0.0/24", "fd00:20::/64"),
            admitted("green", "subnet-2", "10.21.0.0/24", "fd00:21::/64"),
        ];
        vpc.status = Some(VpcStatus { subnets, ..VpcStatus::default() });
        let o = Observed {
            uid: "pod-1".to_owned(),
            pod: Some(Arc::new(pod)),
            definitions: Definitions::new(),
            vnics: vec![],
            named: BTreeMap::new(),
            attachments: vec![],
            subnets: BTreeMap::from([("blue".to_owned(), Arc::new(subnet))]),
            vpcs: BTreeMap::from([("default".to_owned(), Arc::new(vpc))]),
            dpus: vec![],
            workers: Workers::default(),
        };
        let mut world = Self { o };
        world.node(DpuType::Nic);
        world
    }

    fn node(&mut self, type_: DpuType) {
        let mut dpu = Dpu::new("node-1", DpuSpec { type_, approved: type_ == DpuType::Dpu, ..DpuSpec::default() });
        dpu.metadata.uid = Some("dpu-1".to_owned());
        let mut status = DpuStatus { namespace: Some("metalplane-dpu-node-1".to_owned()), ..DpuStatus::default() };
        conditions::set(&mut status.conditions, READY, ConditionStatus::True, "AgentRunning", "", None, NOW);
        status.boot_id = Some("boot-1".to_owned());
        dpu.status = Some(status);
        let (heard_at, bmc, attached) = (None, Default::default(), BTreeMap::new());
        let seen = DpuSeen { dpu: Arc::new(dpu), heard_at, bmc, attached, ..DpuSeen::default() };
        self.o.dpus = vec![seen];
    }

    fn pod(&mut self, change: impl FnOnce(&mut Pod)) {
        change(Arc::make_mut(self.o.pod.as_mut().expect("there")));
    }

    fn vnic(&mut self, change: impl FnOnce(&mut VNic)) {
        change(Arc::make_mut(&mut self.o.vnics[0]));
        if let Some(named) = self.o.named.get_mut("mine") {
            *named = self.o.vnics[0].clone();
        }
    }

    fn nic(&mut self, change: impl FnOnce(&mut NicAttachment)) {
        change(Arc::make_mut(&mut self.o.attachments[0]));
    }

    fn reason(&self) -> &'static str {
        plan(&self.o).reason.map_or("none", |reason| reason.name())
    }

    /// The controller's writes, and what the other controllers and the agent answer to them.
    fn round(&mut self) -> usize {
        let plan = plan(&self.o);
        for action in plan.actions.clone() {
            match action {
                Action::CreateVNic(mut vnic) => {
                    vnic.metadata.uid = Some("vnic-1".to_owned());
                    let status = vnic.status.get_or_insert_default();
                    status.addresses = vec!["10.20.0.7".to_owned(), "fd00:20::7".to_owned()];
                    status.mac_address = Some("02:00:00:00:00:07".to_owned());
                    let (all, done) = (&mut status.conditions, ConditionStatus::True);
                    conditions::set(all, ADDRESSES_ASSIGNED, done, "Assigned", "", None, NOW);
                    self.o.vnics.push(Arc::new(*vnic));
                }
                Action::CreateAttachment(mut attachment) => {
                    attachment.metadata.uid = Some("nic-1".to_owned());
                    self.o.attachments.push(Arc::new(*attachment));
                }
                Action::TakeVNic { holder, .. } => self.vnic(|vnic| {
                    let status = vnic.status.get_or_insert_default();
                    (status.holder, status.grant) = (Some(holder), Grant { epoch: status.grant.epoch + 1 });
                    status.programmed = Some(Programmed { epoch: Some(status.grant.epoch), ..Programmed::default() });
                }),
                Action::Tell { networks } => self.pod(|pod| {
                    let annotations = pod.metadata.annotations.get_or_insert_default();
                    annotations.insert(labels::NETWORK_STATUS.to_owned(), networks);
                }),
                Action::Grant { epoch, .. } | Action::GrantWorker { epoch, .. } => {
                    self.nic(|nic| nic.spec.grant = Some(Grant { epoch }))
                }
                Action::Release { .. } => self.nic(|nic| {
                    nic.spec.release = true;
                    nic.metadata.deletion_timestamp = Some(Time(NOW));
                }),
                Action::Abandon { .. } => self.o.attachments.clear(),
                Action::FreeVNic { .. } => self.vnic(|vnic| vnic.status.get_or_insert_default().holder = None),
                Action::DeleteVNic { .. } => self.vnic(|vnic| vnic.metadata.deletion_timestamp = Some(Time(NOW))),
                Action::ProtectVNic { mark, .. } => self.mark(Some(mark)),
                Action::UnprotectVNic { .. } => self.mark(None),
            }
        }
        // Its own plan releases one that is being deleted, after the last attachment.
        if self.o.attachments.is_empty() {
            self.o.vnics.retain(|vnic| vnic.metadata.deletion_timestamp.is_none());
        }
        plan.actions.len()
    }

    /// A pod's mark on the VNic that it names, by which the VNic is found.
    fn mark(&mut self, mark: Option<String>) {
        let own = self.o.named.get("mine").or(self.o.vnics.first()).expect("a VNic");
        let mut vnic = VNic::clone(own);
        let key = format!("{}pod-1", labels::IN_USE_BY);
        vnic.metadata.finalizers = Some(vec![labels::FINALIZER_IN_USE.to_owned()]);
        let annotations = vnic.metadata.annotations.get_or_insert_default();
        self.o.vnics.clear();
        match mark {
            Some(mark) => annotations.insert(key, mark),
            None => annotations.remove(&key),
        };
        let vnic = Arc::new(vnic);
        if vnic.metadata.annotations.as_ref().is_some_and(|marks| !marks.is_empty()) {
            self.o.vnics.push(vnic.clone());
        }
        self.o.named.insert("mine".to_owned(), vnic);
    }

    /// The pod names a VNic that is there, in place of a Subnet.
    fn names_one(&mut self, node: Option<&str>) {
        let asks = r#"[{"vnic": "mine", "configure": false}]"#.to_owned();
        self.pod(|pod| pod.metadata.annotations = Some([(labels::NETWORKS.to_owned(), asks)].into()));
        let spec = json!({"subnet": "blue", "nodeName": node});
        let mut vnic = VNic::new("mine", serde_json::from_value(spec).expect("a spec"));
        vnic.metadata = named("mine", "vnic-9");
        let status = vnic.status.get_or_insert_default();
        status.addresses = vec!["10.20.0.9".to_owned()];
        status.mac_address = Some("02:00:00:00:00:09".to_owned());
        let done = ConditionStatus::True;
        conditions::set(&mut status.conditions, ADDRESSES_ASSIGNED, done, "Assigned", "", None, NOW);
        self.o.named.insert("mine".to_owned(), Arc::new(vnic));
    }

    fn settle(&mut self) {
        for _ in 0..16 {
            if self.round() == 0 {
                return;
            }
        }
        panic!("it does not settle: {:?}", plan(&self.o));
    }
}

#[test]
fn a_pod_gets_its_nic_granted_and_configured() {
    let mut world = World::new();
    world.settle();
    assert_eq!(world.reason(), "none");
    let attachment = world.o.attachments[0].clone();
    let spec = &attachment.spec;
    assert_eq!(attachment.metadata.namespace.as_deref(), Some("metalplane-dpu-node-1"));
    assert_eq!(
        (spec.grant, spec.consumer, spec.interface_name.as_str()),
        (Some(Grant { epoch: 1 }), NicConsumer::Pod, "net1")
    );
    let route = |(destination, gateway): (&str, &str)| PodRoute {
        destination: destination.to_owned(),
        gateway: gateway.to_owned(),
    };
    let routes = [("10.21.0.0/24", "10.20.0.1"), ("fd00:21::/64", "fd00:20::1")].map(route).to_vec();
    let addresses = vec!["10.20.0.7/24".to_owned(), "fd00:20::7/64".to_owned()];
    assert_eq!(spec.pod, Some(PodInterface { addresses, routes }));
    let owner = world.o.vnics[0].metadata.owner_references.as_ref().expect("the pod")[0].clone();
    assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("Pod", "pod-1"));
}

#[test]
fn a_pod_of_one_family_gets_no_route_of_the_other() {
    let world = World::new();
    for (address, reached) in [("10.20.0.7", "10.21.0.0/24"), ("fd00:20::7", "fd00:21::/64")] {
        let pod = configured(&world.o, &world.o.subnets["blue"], &[address.to_owned()]);
        let destinations: Vec<&str> = pod.routes.iter().map(|route| route.destination.as_str()).collect();
        assert_eq!(destinations, [reached], "{address}");
    }
}

#[test]
fn an_ended_pod_gives_everything_back_in_order() {
    type End = fn(&mut World);
    let ends: [End; 2] = [
        |world| world.o.pod = None,
        |world| {
            let phase = Some("Succeeded".to_owned());
            world.pod(|pod| pod.status = Some(PodStatus { phase, ..PodStatus::default() }));
        },
    ];
    for end in ends {
        let mut world = World::new();
        world.settle();
        end(&mut world);
        world.settle();
        assert_eq!(world.o.vnics.len(), 1, "the agent has not let go");
        let vnic = &world.o.vnics[0];
        assert!(vnic.metadata.deletion_timestamp.is_some(), "no write follows the agent's last one");
        assert!(vnic.status.as_ref().is_some_and(|status| status.holder.is_some()));
        world.o.attachments.clear();
        world.settle();
        assert!(world.o.vnics.is_empty());
    }
}

#[test]
fn a_pod_has_a_vnic_that_is_there_and_gives_it_back() {
    let mut world = World::new();
    world.names_one(Some("node-1"));
    world.settle();
    assert_eq!(world.reason(), "none");
    let spec = world.o.attachments[0].spec.clone();
    assert_eq!((spec.grant, spec.vnic_uid.as_str()), (Some(Grant { epoch: 1 }), "vnic-9"));
    assert_eq!(spec.pod, Some(PodInterface::default()), "the pod configures it");
    world.o.pod = None;
    world.settle();
    world.o.attachments.clear();
    world.settle();
    let vnic = &world.o.named["mine"];
    assert!(vnic.status.as_ref().is_some_and(|status| status.holder.is_none()) && world.o.vnics.is_empty());

    let mut elsewhere = World::new();
    elsewhere.names_one(Some("node-2"));
    assert_eq!((plan(&elsewhere.o).actions, elsewhere.reason()), (vec![], "VNicOfNode"));
    elsewhere.o.named.clear();
    assert_eq!(elsewhere.reason(), "VNicMissing");

    // Somebody else has it: the pod waits, and takes nothing from whoever that is.
    let mut taken = World::new();
    taken.names_one(None);
    taken.round();
    taken.vnic(|vnic| {
        let holder = serde_json::json!({
            "attachmentUID": "nic-7", "attachmentNamespace": "n", "attachmentName": "other", "dpuUID": "d", "dpuName": "dpu-2",
        });
        let holder = serde_json::from_value(holder).expect("a holder");
        vnic.status.get_or_insert_default().holder = Some(holder);
    });
    taken.settle();
    assert_eq!(taken.reason(), "VNicHeld");
    taken.o.pod = None;
    taken.settle();
    assert_eq!(
        taken.o.named["mine"].status.as_ref().and_then(|s| s.holder.clone()).map(|h| h.dpu_name),
        Some("dpu-2".to_owned())
    );
    assert!(taken.o.vnics.is_empty(), "its own mark was taken off");
}

#[test]
fn what_a_definition_asked_for_stays_while_the_pod_runs() {
    let mut world = World::new();
    let asks = [("k8s.v1.cni.cncf.io/networks".to_owned(), "blue".to_owned())];
    world.pod(|pod| pod.metadata.annotations = Some(asks.into()));
    let key = ("team".to_owned(), "blue".to_owned());
    world.o.definitions.insert(key.clone(), None);
    assert_eq!(world.reason(), "NetworkDefinitionMissing");
    let config = r#"{"type": "metalplane", "subnet": "blue"}"#.to_owned();
    world.o.definitions.insert(key.clone(), Some(config));
    world.settle();
    assert!(world.o.attachments[0].spec.grant.is_some());
    for gone in [None, Some(r#"{"type": "macvlan"}"#.to_owned()), Some("{".to_owned())] {
        world.o.definitions.insert(key.clone(), gone);
        assert_eq!(plan(&world.o).actions, vec![]);
    }
    world.o.pod = None;
    world.settle();
    assert!(world.o.attachments[0].spec.release);
}

#[test]
fn a_pod_keeps_its_nic_while_it_is_being_deleted_and_gets_none_then() {
    let mut world = World::new();
    world.settle();
    world.pod(|pod| pod.metadata.deletion_timestamp = Some(Time(NOW)));
    assert_eq!(plan(&world.o).actions, vec![]);
    let mut late = World::new();
    late.pod(|pod| pod.metadata.deletion_timestamp = Some(Time(NOW)));
    assert_eq!(plan(&late.o).actions, vec![]);
}

#[test]
fn one_that_was_never_granted_or_whose_node_is_down_needs_no_agent() {
    let mut world = World::new();
    world.round();
    world.round();
    assert!(world.o.attachments[0].spec.grant.is_none());
    world.o.pod = None;
    world.settle();
    assert!(world.o.vnics.is_empty() && world.o.attachments.is_empty());

    let mut world = World::new();
    world.settle();
    world.o.pod = None;
    world.o.dpus[0].silent = true;
    world.settle();
    assert_eq!(world.reason(), "DpuSilent");
    world.o.dpus[0].out_of_service = true;
    let down = api::dpu::ConfirmedDown { boot_id: "boot-1".to_owned() };
    Arc::make_mut(&mut world.o.dpus[0].dpu).spec.confirmed_down = Some(down);
    world.settle();
    assert!(world.o.vnics.is_empty() && world.o.attachments.is_empty());
}

#[test]
fn what_a_pod_waits_for_is_said() {
    type Change = fn(&mut World);
    let cases: [(Change, &str); 7] = [
        (|world| world.o.subnets.clear(), "SubnetMissing"),
        (|world| world.node(DpuType::Dpu), "NoAgentForPods"),
        (|world| world.o.dpus.clear(), "NoAgentForPods"),
        (|world| world.o.dpus[0].silent = true, "DpuSilent"),
        (
            |world| {
                let status = Arc::make_mut(&mut world.o.dpus[0].dpu).status.as_mut().expect("told");
                let no = ConditionStatus::False;
                conditions::set(&mut status.conditions, READY, no, "SwitchFailed", "br-int is missing", None, NOW);
            },
            "DpuNotReady",
        ),
        (
            |world| {
                let wrong = [(labels::NETWORKS.to_owned(), "blue".to_owned())];
                world.pod(|pod| pod.metadata.annotations = Some(wrong.into()));
            },
            "PodNetworksInvalid",
        ),
        (|world| world.pod(|pod| pod.spec = None), "none"),
    ];
    for (change, reason) in cases {
        let mut world = World::new();
        change(&mut world);
        world.settle();
        assert_eq!(world.reason(), reason);
        assert!(world.o.attachments.is_empty(), "{reason}");
    }
    let mut unassigned = World::new();
    unassigned.round();
    unassigned.vnic(|vnic| vnic.status = None);
    assert_eq!(unassigned.reason(), "VNicNotReady");
}
