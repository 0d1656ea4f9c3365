//! The NICs of one pod: a VNic and a NicAttachment for each that its annotations ask for ([`request`]), and their way back.
//!
//! The protocol is that of a machine's interface (`crate::machine::nics`): VNic → addresses → attachment in the namespace of the
//! pod's node → holder of the VNic → port in OVN → grant. A VNic is made for one UID, or exists and is named by the pod: then the pod
//! marks it first, as a machine does, and the holder says whose it is. What was begun for a pod is released when the pod has ended,
//! in the other direction, and a pod that comes again under its name is another one, with VNics of its own.
//!
//! | file | what |
//! |---|---|
//! | `request.rs` | what our own annotations ask for |
//! | `multus.rs` | what NetworkAttachmentDefinitions ask for that the pod names |
//! | `worker.rs` | pods on a worker that is a machine |
//! | `release.rs` | the way back |

mod multus;
mod release;
mod request;
#[cfg(test)]
mod tests;
pub mod worker;

use super::{addresses, admission, cidr, desired, port};
use crate::machine::observed::{DpuSeen, annotation, in_use_by, name, uid};
use crate::machine::plan::Target;
use crate::machine::target;
use crate::reason::{Blocked, Reason, Waiting};
use api::attachment::{FunctionKind, NicAttachmentSpec, NicConsumer, OwnerReference, PodInterface, PodRoute};
use api::conditions::{self, READY};
use api::dpu::DpuType;
use api::hold::Holder;
use api::network::VNicSpec;
use api::{BareMetalMachine, NicAttachment, Subnet, VNic, Vpc, labels, names};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference as Owner};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

pub use multus::{Definitions, Named, Selection, named_by, selections};
pub use release::{is_pods_mark, marked_pod};
pub use request::{Request, requests};
pub use worker::Workers;

/// What is waited for passes within a moment, nearly always, and is told if it does not. Where somebody has to change something that is told at once.
pub fn passes(reason: &Reason) -> bool {
    matches!(reason, Reason::Waiting(_))
}

pub struct Observed {
    /// The pod's.
    pub uid: String,
    /// `None`: no such pod exists any more.
    pub pod: Option<Arc<Pod>>,
    /// Of the NetworkAttachmentDefinitions that it names.
    pub definitions: Definitions,
    /// Made for it, or marked by it.
    pub vnics: Vec<Arc<VNic>>,
    /// Those of the pod's namespace that it names.
    pub named: BTreeMap<String, Arc<VNic>>,
    pub attachments: Vec<Arc<NicAttachment>>,
    /// Those of the pod's namespace that it names, and the Vpcs of them, by name.
    pub subnets: BTreeMap<String, Arc<Subnet>>,
    pub vpcs: BTreeMap<String, Arc<Vpc>>,
    /// Of the pod's node, of the machine that is the node, and of the attachments.
    pub dpus: Vec<DpuSeen>,
    pub workers: Workers,
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
    /// Of a NIC at a machine, which is read from quorum first: it has that server, and stays there.
    GrantWorker {
        target: Target,
        epoch: u64,
        worker: Worker,
    },
    /// The annotation by which the plugin on the pod's node knows its NICs.
    Tell {
        networks: String,
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
    /// One that was there before: its finalizer, and the mark of this pod with this value.
    ProtectVNic {
        target: Target,
        mark: String,
    },
    UnprotectVNic {
        target: Target,
    },
}

/// The machine that is the node of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub hardware: String,
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

/// Every NIC that the pod asks for, by our annotations and by NetworkAttachmentDefinitions; or what is wrong.
pub fn all_requests(pod: &ObjectMeta, definitions: &Definitions) -> Result<Vec<Request>, Blocked> {
    let annotations = pod.annotations.clone().unwrap_or_default();
    let invalid = |message| Blocked::PodNetworksInvalid { pod: name(pod).to_owned(), message };
    let mut all = requests(&annotations).map_err(invalid)?;
    for request in multus::requests(pod, definitions)? {
        if all.iter().any(|other| other.name == request.name) {
            return Err(invalid(format!(
                "annotation {}: interface '{}' is asked for twice: write another name",
                multus::NETWORKS,
                request.name
            )));
        }
        all.push(request);
    }
    Ok(all)
}

pub fn plan(o: &Observed) -> Plan {
    let mut plan = Plan::default();
    let running = o.pod.as_deref().filter(|pod| !has_ended(pod));
    let mut wanted = release::Wanted::default();
    if let Some(pod) = running {
        match all_requests(&pod.metadata, &o.definitions) {
            Ok(all) => {
                for request in &all {
                    let object = object_name(&pod.metadata, &request.name);
                    wanted.vnics.insert(request.vnic.clone().unwrap_or_else(|| object.clone()));
                    wanted.attachments.insert(object);
                    interface(o, pod, request, &mut plan);
                }
                tell(o, pod, &all, &mut plan);
            }
            // What it has stays: that something cannot be read is no request to take it away.
            Err(reason) => {
                plan.wait(reason);
                wanted.keep_all(o);
            }
        }
        // Nor is a definition that was changed since.
        if !o.definitions.is_empty() {
            wanted.keep_all(o);
        }
    }
    wanted.attachments.retain(|object| {
        let attachment = o.attachments.iter().find(|attachment| name(&attachment.metadata) == object);
        attachment.is_none_or(|attachment| worker::stays(o, attachment))
    });
    release::plan(o, &wanted, &mut plan);
    plan
}

/// What the plugin on a node that is a machine has no agent of that DPU to ask for.
fn tell(o: &Observed, pod: &Pod, all: &[Request], plan: &mut Plan) {
    let said = pod.metadata.annotations.as_ref().and_then(|all| all.get(labels::NETWORK_STATUS));
    let told = said.and_then(|said| worker::nics(said).ok()).unwrap_or_default();
    let one = |request: &Request| {
        let object = object_name(&pod.metadata, &request.name);
        let attachment = o.attachments.iter().find(|attachment| name(&attachment.metadata) == object)?;
        worker::of(attachment)?;
        let subnet = match &request.vnic {
            Some(vnic) => &o.named.get(vnic)?.spec.subnet,
            None => &request.subnet,
        };
        let interface = match request.configure {
            true => configured(o, o.subnets.get(subnet)?, &attachment.spec.addresses),
            false => PodInterface::default(),
        };
        worker::nic(attachment, &told, interface)
    };
    let nics: Vec<_> = all.iter().filter_map(one).collect();
    if !nics.is_empty() && nics != told {
        let networks = serde_json::to_string(&nics).unwrap_or_default();
        plan.actions.push(Action::Tell { networks });
    }
}

fn interface(o: &Observed, pod: &Pod, request: &Request, plan: &mut Plan) {
    let Some(node) = node(pod) else { return };
    let object = object_name(&pod.metadata, &request.name);
    let attachment = o.attachments.iter().find(|attachment| name(&attachment.metadata) == object);
    // What is left of one that is not there any more comes to `release`.
    let leaving = pod.metadata.deletion_timestamp.is_some();
    let vnic = match &request.vnic {
        Some(vnic) => o.named.get(vnic),
        None => o.vnics.iter().find(|vnic| name(&vnic.metadata) == object),
    };
    let Some(vnic) = vnic else {
        return match &request.vnic {
            Some(vnic) => plan.wait(Blocked::VNicMissing { vnic: vnic.clone() }),
            None if !leaving && attachment.is_none() => make_vnic(o, pod, request, object, plan),
            None => {}
        };
    };
    let vnic_name = || name(&vnic.metadata).to_owned();
    if vnic.metadata.deletion_timestamp.is_some() && attachment.is_none() {
        return plan.wait(Waiting::VNicBeingDeleted { vnic: vnic_name() });
    }
    if let (Some(_), Some(of)) = (&request.vnic, vnic.spec.node_name.as_deref().filter(|of| *of != node)) {
        return plan.wait(Blocked::VNicOfNode { vnic: vnic_name(), node: of.to_owned() });
    }
    if request.vnic.is_some() && attachment.is_none() && !in_use_by(&vnic.metadata, uid(&pod.metadata)) {
        if !leaving {
            let mark = release::mark(name(&pod.metadata), &request.name);
            plan.actions.push(Action::ProtectVNic { target: target(&vnic.metadata), mark });
        }
        return;
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
    if attachment.metadata.deletion_timestamp.is_some() || !worker::stays(o, attachment) {
        return;
    }
    if attachment.spec.grant.is_some() {
        plan.reason = plan.reason.take().or_else(|| worker::not_exposed(o, attachment));
        return;
    }
    if let Err(reason) = worker::may_grant(o, attachment) {
        return plan.wait(reason);
    }
    match &status.holder {
        Some(holder) if holder.attachment_uid == uid(&attachment.metadata) => match port::is_programmed(vnic) {
            Ok(()) => plan.actions.push(grant(o, attachment, status.grant.epoch)),
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

fn grant(o: &Observed, attachment: &NicAttachment, epoch: u64) -> Action {
    let target = target(&attachment.metadata);
    let worker = worker::of(attachment).zip(annotation(&attachment.metadata, labels::WORKER));
    let Some((uid, (namespace, name))) = worker.and_then(|(uid, name)| Some((uid, name.split_once('/')?))) else {
        return Action::Grant { target, epoch };
    };
    let dpu = seen(o, &attachment.spec.dpu_name);
    let hardware = dpu.and_then(DpuSeen::hardware_name).unwrap_or_default().to_owned();
    let (namespace, name, uid) = (namespace.to_owned(), name.to_owned(), uid.to_owned());
    Action::GrantWorker { target, epoch, worker: Worker { namespace, name, uid, hardware } }
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
    vnic.metadata.finalizers = Some(vec![labels::FINALIZER_IN_USE.to_owned()]);
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
    let (dpu, worker) = match gives_nics(o, node) {
        Ok(found) => found,
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
        dpu_name: dpu.name().to_owned(),
        interface_name: request.name.clone(),
        consumer: if worker.is_some() { NicConsumer::Host } else { NicConsumer::Pod },
        pod: match (worker, request.configure) {
            (Some(_), _) => None,
            (None, true) => Some(configured(o, subnet, &status.addresses)),
            (None, false) => Some(PodInterface::default()),
        },
        vnic_name: name(&vnic.metadata).to_owned(),
        vnic_uid: uid(&vnic.metadata).to_owned(),
        logical_port: port::logical_port(uid(&vnic.metadata)),
        mac_address: status.mac_address.clone().unwrap_or_default(),
        addresses: status.addresses.clone(),
        function_kind: match (worker, dpu.dpu.spec.type_) {
            (Some(_), _) => FunctionKind::HotplugPF,
            (None, DpuType::SmartNIC) => FunctionKind::VF,
            (None, _) => FunctionKind::Veth,
        },
        mtu: desired::mtu(subnet),
        metadata: None,
        grant: None,
        release: false,
    };
    let mut attachment = NicAttachment::new(&object, spec);
    attachment.metadata.namespace = dpu.namespace().map(str::to_owned);
    let labels = attachment.metadata.labels.insert(made_for(pod));
    if let Some(worker) = worker {
        labels.insert(labels::WORKER_UID.to_owned(), uid(&worker.metadata).to_owned());
        let named = (labels::WORKER.to_owned(), worker::full_name(worker));
        attachment.metadata.annotations = Some([named].into());
    }
    attachment.metadata.finalizers = Some(vec![labels::FINALIZER_EXPOSED.to_owned()]);
    plan.actions.push(Action::CreateAttachment(Box::new(attachment)));
}

/// The Dpu of this node, if its agent gives NICs to pods; or of the machine that is this node, with that machine. A node with an agent of
/// its own is no machine, whatever a machine says.
fn gives_nics<'a>(o: &'a Observed, node: &str) -> Result<(&'a DpuSeen, Option<&'a BareMetalMachine>), Reason> {
    let own = seen(o, node).filter(|dpu| dpu.dpu.spec.type_.is_node());
    let (dpu, worker) = match (own, worker::of_node(o, node)) {
        (Some(dpu), _) => (dpu, None),
        (None, Some(found)) => found.map(|(machine, dpu)| (dpu, Some(machine)))?,
        (None, None) => return Err(Blocked::NoAgentForPods { node: node.to_owned() }.into()),
    };
    let not_ready = |message: &str| Waiting::DpuNotReady { dpu: dpu.name().to_owned(), message: message.to_owned() };
    if dpu.dpu.metadata.deletion_timestamp.is_some() {
        return Err(not_ready("it is being deleted").into());
    }
    if dpu.silent || dpu.namespace().is_none() {
        return Err(Waiting::DpuSilent { dpu: dpu.name().to_owned() }.into());
    }
    let said = dpu.dpu.status.as_ref().and_then(|status| conditions::get(&status.conditions, READY));
    match said {
        Some(ready) if ready.status == "True" => Ok((dpu, worker)),
        Some(ready) => Err(not_ready(&format!("{}: {}", ready.reason, ready.message)).into()),
        None => Err(not_ready("its agent has not said anything yet").into()),
    }
}

/// Beside its own Subnet a pod reaches, by its NIC, the other Subnets of the Vpc.
fn configured(o: &Observed, subnet: &Subnet, addresses: &[String]) -> PodInterface {
    let with_prefix = addresses.iter().map(|address| match cidr::family_of(&subnet.spec, address) {
        Some(family) => format!("{address}/{}", family.network.prefix_len()),
        None => address.clone(),
    });
    // One that asks for an address of one family alone has no way to the router's address of the other.
    let has = |is_ipv6: bool| addresses.iter().any(|address| address.contains(':') == is_ipv6);
    let vpc = o.vpcs.get(admission::vpc_of(subnet));
    let others = vpc.into_iter().filter_map(|vpc| vpc.status.as_ref()).flat_map(|status| &status.subnets);
    let others = others.filter(|other| other.uid != uid(&subnet.metadata));
    let networks = others.flat_map(|other| [Some(&other.cidr), other.ipv6_cidr.as_ref()]).flatten();
    let networks = networks.filter(|network| has(network.contains(':')));
    let gateways: Vec<IpAddr> = cidr::families(&subnet.spec).into_iter().filter_map(|family| family.gateway).collect();
    let routes = networks.filter_map(|network| {
        // A router has no way from one family to the other.
        let gateway = gateways.iter().find(|gateway| gateway.is_ipv6() == network.contains(':'))?;
        Some(PodRoute { destination: network.clone(), gateway: gateway.to_string() })
    });
    PodInterface { addresses: with_prefix.collect(), routes: routes.collect() }
}
