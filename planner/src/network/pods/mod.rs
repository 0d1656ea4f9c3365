//! The NICs of one pod: a VNic and a NicAttachment for each that its annotations ask for ([`request`]), and their way back.
//!
//! The protocol is that of a machine's interface (`crate::machine::nics`): VNic → addresses → attachment in the namespace of the
//! pod's node → holder of the VNic → port in OVN → grant. Nothing is shared between pods: each VNic is made for one UID. What
//! was begun for a pod is released when the pod has ended, in the other direction, and a pod that comes again under its name
//! is another one, with VNics of its own.

mod request;
#[cfg(test)]
mod tests;

use super::{addresses, admission, cidr, desired, port};
use crate::machine::observed::{DpuSeen, name, uid};
use crate::machine::plan::Target;
use crate::machine::target;
use crate::reason::{Blocked, Reason, Waiting};
use api::attachment::{FunctionKind, NicAttachmentSpec, NicConsumer, OwnerReference, PodInterface, PodRoute};
use api::conditions::{self, READY};
use api::dpu::DpuType;
use api::hold::Holder;
use api::network::VNicSpec;
use api::{NicAttachment, Subnet, VNic, Vpc, labels, names};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference as Owner};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

pub use request::{Request, requests};

pub struct Observed {
    /// `None`: no such pod exists any more.
    pub pod: Option<Arc<Pod>>,
    /// Made for it.
    pub vnics: Vec<Arc<VNic>>,
    pub attachments: Vec<Arc<NicAttachment>>,
    /// Those of the pod's namespace that it names, and the Vpcs of them, by name.
    pub subnets: BTreeMap<String, Arc<Subnet>>,
    pub vpcs: BTreeMap<String, Arc<Vpc>>,
    /// Of the pod's node, and of the attachments.
    pub dpus: Vec<DpuSeen>,
}

/// Each may be carried out again and ends in the same state.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    CreateVNic(Box<VNic>),
    CreateAttachment(Box<NicAttachment>),
    /// Empty → this holder, by compare-and-swap.
    TakeVNic {
        target: Target,
        holder: Holder,
        mac_address: String,
    },
    Grant {
        target: Target,
        epoch: u64,
    },
    Release {
        target: Target,
    },
    /// It was never granted, or its node is known to be down: the finalizer goes without the agent.
    Abandon {
        target: Target,
    },
    /// The attachment is deleted, as read from quorum: nobody holds the VNic.
    FreeVNic {
        target: Target,
        holder: Holder,
    },
    DeleteVNic {
        target: Target,
    },
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    pub actions: Vec<Action>,
    /// What the pod waits for.
    pub reason: Option<Reason>,
}

impl Plan {
    fn wait(&mut self, reason: impl Into<Reason>) {
        self.reason.get_or_insert(reason.into());
    }
}

/// The name of the VNic, and of the attachment, of one NIC of this very pod.
pub fn object_name(pod: &ObjectMeta, interface: &str) -> String {
    names::attachment(uid(pod), name(pod), interface)
}

/// Its containers have ended for good: kubelet has given up its sandbox, or will.
fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

pub fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|node| !node.is_empty())
}

pub fn plan(o: &Observed) -> Plan {
    let mut plan = Plan::default();
    let running = o.pod.as_deref().filter(|pod| !has_ended(pod));
    let mut wanted = BTreeSet::new();
    if let Some(pod) = running {
        match requests(&pod.metadata.annotations.clone().unwrap_or_default()) {
            Ok(all) => {
                for request in &all {
                    wanted.insert(object_name(&pod.metadata, &request.name));
                    interface(o, pod, request, &mut plan);
                }
            }
            Err(message) => {
                plan.wait(Blocked::PodNetworksInvalid { pod: name(&pod.metadata).to_owned(), message });
            }
        }
    }
    release(o, &wanted, &mut plan);
    plan
}

fn interface(o: &Observed, pod: &Pod, request: &Request, plan: &mut Plan) {
    let Some(node) = node(pod) else { return };
    let object = object_name(&pod.metadata, &request.name);
    let attachment = o.attachments.iter().find(|attachment| name(&attachment.metadata) == object);
    // What is left of one that is not there any more comes to `release`.
    let leaving = pod.metadata.deletion_timestamp.is_some();
    let Some(vnic) = o.vnics.iter().find(|vnic| name(&vnic.metadata) == object) else {
        if !leaving && attachment.is_none() {
            make_vnic(o, pod, request, object, plan);
        }
        return;
    };
    let vnic_name = || name(&vnic.metadata).to_owned();
    if vnic.metadata.deletion_timestamp.is_some() && attachment.is_none() {
        return plan.wait(Waiting::VNicBeingDeleted { vnic: vnic_name() });
    }
    let status = vnic.status.clone().unwrap_or_default();
    if !addresses::is_assigned(vnic) {
        let said = conditions::get(&status.conditions, conditions::ADDRESSES_ASSIGNED);
        let why = said.map(|said| said.reason.clone());
        let why = why.unwrap_or_else(|| "the controller is assigning the addresses of the VNic".to_owned());
        return plan.wait(Waiting::VNicNotReady { vnic: vnic_name(), why });
    }
    let Some(attachment) = attachment else {
        if !leaving {
            make_attachment(o, pod, request, (node, object), vnic, plan);
        }
        return;
    };
    if attachment.metadata.deletion_timestamp.is_some() || attachment.spec.grant.is_some() {
        return;
    }
    match &status.holder {
        Some(holder) if holder.attachment_uid == uid(&attachment.metadata) => match port::is_programmed(vnic) {
            Ok(()) => {
                plan.actions.push(Action::Grant { target: target(&attachment.metadata), epoch: status.grant.epoch });
            }
            Err(reason) => plan.wait(reason),
        },
        Some(holder) => {
            let by = format!("attachment '{}' on Dpu '{}'", holder.attachment_name, holder.dpu_name);
            plan.wait(Waiting::VNicHeld { vnic: vnic_name(), by });
        }
        None => match seen(o, &attachment.spec.dpu_name) {
            Some(dpu) => plan.actions.push(Action::TakeVNic {
                target: target(&vnic.metadata),
                holder: holder(attachment, dpu),
                mac_address: attachment.spec.mac_address.clone(),
            }),
            None => plan.wait(Blocked::NoAgentForPods { node: node.to_owned() }),
        },
    }
}

fn seen<'a>(o: &'a Observed, dpu: &str) -> Option<&'a DpuSeen> {
    o.dpus.iter().find(|seen| seen.name() == dpu)
}

fn holder(attachment: &NicAttachment, dpu: &DpuSeen) -> Holder {
    Holder {
        attachment_uid: uid(&attachment.metadata).to_owned(),
        attachment_namespace: attachment.metadata.namespace.clone().unwrap_or_default(),
        attachment_name: name(&attachment.metadata).to_owned(),
        dpu_uid: dpu.uid().to_owned(),
        dpu_name: dpu.name().to_owned(),
    }
}

fn made_for(pod: &Pod) -> BTreeMap<String, String> {
    let all = [
        (labels::MANAGED_BY, labels::MANAGED_BY_VALUE),
        (labels::POD, name(&pod.metadata)),
        (labels::POD_UID, uid(&pod.metadata)),
    ];
    // A pod's name may be longer than a label's value.
    let short = |value: &str| value.chars().take(63).collect::<String>().trim_end_matches(['-', '.']).to_owned();
    all.map(|(key, value)| (key.to_owned(), short(value))).into()
}

fn make_vnic(o: &Observed, pod: &Pod, request: &Request, object: String, plan: &mut Plan) {
    let Some(subnet) = o.subnets.get(&request.subnet) else {
        return plan.wait(Blocked::SubnetMissing { subnet: request.subnet.clone() });
    };
    if subnet.metadata.deletion_timestamp.is_some() {
        return plan.wait(Blocked::SubnetBeingDeleted { subnet: request.subnet.clone() });
    }
    let spec = VNicSpec {
        subnet: request.subnet.clone(),
        addresses: request.addresses.clone(),
        mac_address: request.mac_address.clone(),
        security_groups: request.security_groups.clone(),
        ..VNicSpec::default()
    };
    let mut vnic = VNic::new(&object, spec);
    vnic.metadata.namespace = pod.metadata.namespace.clone();
    vnic.metadata.labels = Some(made_for(pod));
    vnic.metadata.owner_references = Some(vec![Owner {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: name(&pod.metadata).to_owned(),
        uid: uid(&pod.metadata).to_owned(),
        ..Owner::default()
    }]);
    plan.actions.push(Action::CreateVNic(Box::new(vnic)));
}

fn make_attachment(
    o: &Observed,
    pod: &Pod,
    request: &Request,
    (node, object): (&str, String),
    vnic: &VNic,
    plan: &mut Plan,
) {
    let dpu = match gives_nics(o, node) {
        Ok(dpu) => dpu,
        Err(reason) => return plan.wait(reason),
    };
    let Some(subnet) = o.subnets.get(&vnic.spec.subnet) else {
        return plan.wait(Blocked::SubnetMissing { subnet: vnic.spec.subnet.clone() });
    };
    let status = vnic.status.clone().unwrap_or_default();
    let spec = NicAttachmentSpec {
        owner: OwnerReference {
            kind: "Pod".to_owned(),
            namespace: pod.metadata.namespace.clone(),
            name: name(&pod.metadata).to_owned(),
            uid: uid(&pod.metadata).to_owned(),
        },
        dpu_name: node.to_owned(),
        interface_name: request.name.clone(),
        consumer: NicConsumer::Pod,
        pod: Some(configured(o, subnet, &status.addresses)),
        vnic_name: name(&vnic.metadata).to_owned(),
        vnic_uid: uid(&vnic.metadata).to_owned(),
        logical_port: port::logical_port(uid(&vnic.metadata)),
        mac_address: status.mac_address.clone().unwrap_or_default(),
        addresses: status.addresses.clone(),
        function_kind: FunctionKind::Veth,
        mtu: desired::mtu(subnet),
        metadata: None,
        grant: None,
        release: false,
    };
    let mut attachment = NicAttachment::new(&object, spec);
    attachment.metadata.namespace = dpu.namespace().map(str::to_owned);
    attachment.metadata.labels = Some(made_for(pod));
    attachment.metadata.finalizers = Some(vec![labels::FINALIZER_EXPOSED.to_owned()]);
    plan.actions.push(Action::CreateAttachment(Box::new(attachment)));
}

/// The Dpu of this node, if its agent gives NICs to pods.
fn gives_nics<'a>(o: &'a Observed, node: &str) -> Result<&'a DpuSeen, Reason> {
    let dpu = seen(o, node).filter(|dpu| dpu.dpu.spec.type_ == DpuType::Nic);
    let dpu = dpu.ok_or_else(|| Blocked::NoAgentForPods { node: node.to_owned() })?;
    let not_ready = |message: &str| Waiting::DpuNotReady { dpu: node.to_owned(), message: message.to_owned() };
    if dpu.dpu.metadata.deletion_timestamp.is_some() {
        return Err(not_ready("it is being deleted").into());
    }
    if dpu.silent || dpu.namespace().is_none() {
        return Err(Waiting::DpuSilent { dpu: node.to_owned() }.into());
    }
    let said = dpu.dpu.status.as_ref().and_then(|status| conditions::get(&status.conditions, READY));
    match said {
        Some(ready) if ready.status == "True" => Ok(dpu),
        Some(ready) => Err(not_ready(&format!("{}: {}", ready.reason, ready.message)).into()),
        None => Err(not_ready("its agent has not said anything yet").into()),
    }
}

/// Beside its own Subnet a pod reaches, by its NIC, the other Subnets of the Vpc.
fn configured(o: &Observed, subnet: &Subnet, addresses: &[String]) -> PodInterface {
    let addresses = addresses.iter().map(|address| match cidr::family_of(&subnet.spec, address) {
        Some(family) => format!("{address}/{}", family.network.prefix_len()),
        None => address.clone(),
    });
    let vpc = o.vpcs.get(admission::vpc_of(subnet));
    let others = vpc.into_iter().filter_map(|vpc| vpc.status.as_ref()).flat_map(|status| &status.subnets);
    let others = others.filter(|other| other.uid != uid(&subnet.metadata));
    let networks = others.flat_map(|other| [Some(&other.cidr), other.ipv6_cidr.as_ref()]).flatten();
    let gateways: Vec<IpAddr> = cidr::families(&subnet.spec).into_iter().filter_map(|family| family.gateway).collect();
    let routes = networks.filter_map(|network| {
        // A router has no way from one family to the other.
        let gateway = gateways.iter().find(|gateway| gateway.is_ipv6() == network.contains(':'))?;
        Some(PodRoute { destination: network.clone(), gateway: gateway.to_string() })
    });
    PodInterface { addresses: addresses.collect(), routes: routes.collect() }
}

/// The way back of everything that is not wanted.
fn release(o: &Observed, wanted: &BTreeSet<String>, plan: &mut Plan) {
    for attachment in o.attachments.iter().filter(|attachment| !wanted.contains(name(&attachment.metadata))) {
        let meta = &attachment.metadata;
        let dpu = seen(o, &attachment.spec.dpu_name);
        if meta.deletion_timestamp.is_none() || !attachment.spec.release {
            plan.actions.push(Action::Release { target: target(meta) });
        } else if attachment.spec.grant.is_none() || dpu.is_some_and(DpuSeen::is_confirmed_down) {
            plan.actions.push(Action::Abandon { target: target(meta) });
        } else if dpu.is_some_and(|dpu| dpu.silent) {
            plan.wait(Waiting::DpuSilent { dpu: attachment.spec.dpu_name.clone() });
        }
    }
    for vnic in &o.vnics {
        let meta = &vnic.metadata;
        if o.attachments.iter().any(|attachment| attachment.spec.vnic_uid == uid(meta)) {
            continue;
        }
        let held = vnic.status.as_ref().and_then(|status| status.holder.clone());
        match held {
            Some(holder) => plan.actions.push(Action::FreeVNic { target: target(meta), holder }),
            None if wanted.contains(name(meta)) || meta.deletion_timestamp.is_some() => {}
            None => plan.actions.push(Action::DeleteVNic { target: target(meta) }),
        }
    }
}
