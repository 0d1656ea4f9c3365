//! Pods on a worker that is a machine: their NICs are functions that the machine's DPU presents to its host. The plugin on that node takes
//! each by its MAC address ([`nics`] tells it), once it has a carrier, for the agent on the DPU gives it one when the port is in force.
//!
//! Machine and Node name each other: the machine's `spec.nodeName`, which its owner writes, and the Node's `spec.providerID`, which its
//! kubelet registers with. Were one enough, whoever writes it would have the NICs of another's pods.
//!
//! The NICs stay while the machine has its server. When it goes they are given back, and the machine's plan waits for that before it gives
//! the server back (`crate::machine::release`). So that neither misses the other, each reads from quorum after its own write: the grant
//! that the machine stays (`executor::nics::grant_worker`), after the attachment was made; the release of the server that no such
//! attachment is there (`executor::hosts::unclaim`), after the machine was marked as going.

use super::{Observed, seen};
use crate::about::About;
use crate::machine::observed::{DpuSeen, annotation, name, uid};
use crate::reason::{Blocked, Reason, Waiting};
use crate::verbs::{Verb, lock};
use api::attachment::{PodInterface, PodNic};
use api::machine::AttachPhase;
use api::tinkerbell::Hardware;
use api::{BareMetalMachine, NicAttachment, conditions, labels};
use std::sync::Arc;

/// The machines that concern a pod.
#[derive(Debug, Clone, Default)]
pub struct Workers {
    /// Those that say that they are the pod's node.
    pub of_node: Vec<Arc<BareMetalMachine>>,
    /// What the Node says it is; asked where a machine says so.
    pub provider_id: Option<String>,
    /// Those on which an attachment of the pod is, as far as they exist.
    pub of_attachments: Vec<Arc<BareMetalMachine>>,
    /// The servers that all of these have.
    pub hardware: Vec<Arc<Hardware>>,
}

impl Workers {
    fn servers<'a>(&'a self, machine: &'a BareMetalMachine) -> impl Iterator<Item = &'a Arc<Hardware>> {
        let of_it = |meta| annotation(meta, labels::CLAIMED_BY) == Some(uid(&machine.metadata));
        self.hardware.iter().filter(move |hardware| of_it(&hardware.metadata))
    }

    /// Its one server is the one that this DPU is in.
    fn is_on(&self, machine: &BareMetalMachine, dpu: &DpuSeen) -> bool {
        let mut servers = self.servers(machine);
        let server = servers.next().map(|hardware| name(&hardware.metadata));
        server.is_some() && server == dpu.hardware_name() && servers.next().is_none()
    }
}

/// As a Node has to call itself.
pub fn provider_id(machine: &BareMetalMachine) -> String {
    format!("metalplane://{}", full_name(machine))
}

pub(super) fn full_name(machine: &BareMetalMachine) -> String {
    format!("{}/{}", machine.metadata.namespace.as_deref().unwrap_or_default(), name(&machine.metadata))
}

/// It is on its way from its server, or may be any moment: nothing new comes to it.
pub fn leaves(machine: &BareMetalMachine) -> bool {
    let moves = lock(&machine.metadata).is_some_and(|lock| lock.verb == Verb::Migration);
    machine.metadata.deletion_timestamp.is_some() || moves
}

/// The machine that is the pod's node, and the DPU of its server; `None`: no machine says so. Of several that say so it is the one that the
/// Node names: what others say keeps nobody from it.
pub(super) fn of_node<'a>(o: &'a Observed, node: &str) -> Option<Result<(&'a BareMetalMachine, &'a DpuSeen), Reason>> {
    let said = o.workers.provider_id.as_deref().unwrap_or_default();
    let first = o.workers.of_node.iter().min_by_key(|machine| full_name(machine))?;
    let Some(machine) = o.workers.of_node.iter().find(|machine| provider_id(machine) == said) else {
        let (node, machine, expected) = (node.to_owned(), full_name(first), provider_id(first));
        return Some(Err(Blocked::NodeNotOfMachine { node, machine, expected, provider_id: said.to_owned() }.into()));
    };
    if leaves(machine) {
        return Some(Err(Waiting::WorkerLeaving { machine: full_name(machine) }.into()));
    }
    let dpu = o.dpus.iter().find(|dpu| o.workers.is_on(machine, dpu));
    let not_placed = || Waiting::WorkerNotPlaced { machine: full_name(machine) }.into();
    Some(dpu.map(|dpu| (machine.as_ref(), dpu)).ok_or_else(not_placed))
}

/// Its machine is not on the way from the server that the attachment is on. What nobody says any more (a Node, a Hardware that was deleted)
/// takes no NIC from a pod that runs.
pub(super) fn stays(o: &Observed, attachment: &NicAttachment) -> bool {
    let Some(worker) = of(attachment) else { return true };
    let Some(machine) = o.workers.of_attachments.iter().find(|machine| uid(&machine.metadata) == worker) else {
        return false;
    };
    let has_none = o.workers.servers(machine).next().is_none();
    let is_there = || seen(o, &attachment.spec.dpu_name).is_none_or(|dpu| o.workers.is_on(machine, dpu));
    machine.metadata.deletion_timestamp.is_none() && (has_none || is_there())
}

/// The UID of the machine that is the node of the attachment's pod.
pub fn of(attachment: &NicAttachment) -> Option<&str> {
    attachment.metadata.labels.as_ref()?.get(labels::WORKER_UID).map(String::as_str)
}

/// Nothing is granted that would have to be taken back at once.
pub(super) fn may_grant(o: &Observed, attachment: &NicAttachment) -> Result<(), Reason> {
    let Some(worker) = of(attachment) else { return Ok(()) };
    let machine = o.workers.of_attachments.iter().find(|machine| uid(&machine.metadata) == worker);
    match machine.filter(|machine| !leaves(machine)) {
        Some(_) => Ok(()),
        None => {
            let machine = annotation(&attachment.metadata, labels::WORKER).unwrap_or_default().to_owned();
            Err(Waiting::WorkerLeaving { machine }.into())
        }
    }
}

/// Why the machine's host cannot see the function of a granted NIC; an agent on the pod's node would say that itself.
pub(super) fn not_exposed(o: &Observed, attachment: &NicAttachment) -> Option<Reason> {
    of(attachment)?;
    let status = attachment.status.clone().unwrap_or_default();
    if status.phase == AttachPhase::Attached {
        return None;
    }
    let dpu = attachment.spec.dpu_name.clone();
    if seen(o, &dpu).is_some_and(|dpu| dpu.silent) {
        return Some(Waiting::DpuSilent { dpu }.into());
    }
    let said = [conditions::CONNECTED, conditions::EXPOSED].into_iter();
    let said = said.filter_map(|type_| conditions::get(&status.conditions, type_));
    let said = said.filter(|said| said.status != "True" && !said.message.is_empty()).map(|said| said.message.as_str());
    let message = said.take(1).map(|said| format!(" ({said})")).collect();
    Some(Waiting::Attaching { what: About::Interface(attachment.spec.interface_name.clone()), dpu, message }.into())
}

/// What the plugin on the node is told of this NIC; `None`: its function is not in force yet. What was told once is told on: that a function
/// lost its carrier the node sees itself.
pub(super) fn nic(attachment: &NicAttachment, told: &[PodNic], interface: PodInterface) -> Option<PodNic> {
    let spec = &attachment.spec;
    let nic =
        PodNic { name: spec.interface_name.clone(), mac_address: spec.mac_address.clone(), mtu: spec.mtu, interface };
    let works = attachment.status.as_ref().is_some_and(|status| status.phase == AttachPhase::Attached);
    (works || told.contains(&nic)).then_some(nic)
}

/// What the pod's annotation says.
pub fn nics(text: &str) -> Result<Vec<PodNic>, String> {
    serde_json::from_str(text).map_err(|error| format!("annotation {}: {error}", labels::NETWORK_STATUS))
}
