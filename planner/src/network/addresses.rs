//! The addresses of one VNic: never given twice, and released last.
//!
//! *AddressIsHeld* (docs/design/fencing.md). The Subnet gets its finalizer, then the VNic, then each address and the MAC address
//! that is asked for an [`AddressHold`], which only one VNic can have; then `VNic.status.addresses` says so, once. Only by that an
//! attachment is made. Release goes the other way: the attachment is deleted, then the holds, then the VNic's finalizer.
//!
//! At an upgrade VNics run that have no hold. Each asks for its own: of two with one address one that a machine holds comes before
//! one that no machine holds, then the older. Who comes too late keeps running, and says so.

use super::judge::{self, Verdict};
use super::user_of;
use crate::machine::OrphanOn;
use crate::machine::observed::{has_finalizer, name, uid};
use crate::reason::{Blocked, Reason, Waiting};
use api::conditions::{self, ADDRESSES_ASSIGNED, ConditionStatus, DELETABLE};
use api::network::{AddressHoldSpec, AddressOwner, SubnetReference, canonical};
use api::{AddressHold, NicAttachment, Subnet, VNic, labels, names};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use std::sync::Arc;

/// Nobody tells a VNic what becomes of another DPU's orphans.
const EVERY: SignedDuration = SignedDuration::from_secs(5);
/// How many MAC addresses are tried for a VNic that asks for none.
const ATTEMPTS: u32 = 4;

#[derive(Debug, Clone)]
pub struct Observed {
    pub vnic: Arc<VNic>,
    /// The one that the VNic names.
    pub subnet: Option<Arc<Subnet>>,
    /// Of this VNic, and of its [`interests`], whoever has them.
    pub holds: Vec<Arc<AddressHold>>,
    /// Other VNics of the Subnet that have or ask for one of its [`interests`].
    pub rivals: Vec<Arc<VNic>>,
    /// Of this VNic.
    pub attachments: Vec<Arc<NicAttachment>>,
    /// NICs that hosts have and no attachment explains.
    pub orphans: Vec<OrphanOn>,
}

/// Each may be carried out again and ends in the same state.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// The Subnet's finalizer: from now on its deletion waits.
    ProtectSubnet,
    /// The VNic's finalizer.
    Protect,
    /// Once the Subnet was read from quorum: it has its finalizer, and is not being deleted. The one of that name counts, whoever
    /// created it.
    CreateAddressHold(Box<AddressHold>),
    /// Once quorum reads show that the VNic is being deleted and that nothing of it is attached.
    DeleteAddressHold(Arc<AddressHold>),
    /// The holds are deleted: the VNic's finalizer goes.
    Unprotect,
}

/// What the controller says of a VNic beside who holds it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Status {
    pub addresses: Vec<String>,
    pub mac_address: Option<String>,
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Clone)]
pub struct Plan {
    pub actions: Vec<Action>,
    /// None: it is so already.
    pub status: Option<Status>,
    /// What the VNic waits for.
    pub reason: Option<Reason>,
    pub wake_at: Option<Timestamp>,
}

/// The addresses that a VNic asks for, each once, as RFC 5952 writes them.
pub fn asked(vnic: &VNic) -> Vec<String> {
    let mut all = Vec::new();
    for address in vnic.spec.addresses.iter().map(|address| canonical(address)) {
        if !all.contains(&address) {
            all.push(address);
        }
    }
    all
}

/// Every address and MAC address that the VNic may have.
pub fn interests(vnic: &VNic) -> Vec<String> {
    let mut all = asked(vnic);
    all.extend(macs(vnic));
    all
}

/// The MAC address that it has or asks for, or else those that it may get, the first one first.
pub(super) fn macs(vnic: &VNic) -> Vec<String> {
    let has = vnic.status.as_ref().and_then(|status| status.mac_address.as_deref());
    match has.or(vnic.spec.mac_address.as_deref()) {
        Some(mac) => vec![canonical(mac)],
        None => (0..ATTEMPTS).map(|attempt| names::mac(uid(&vnic.metadata), attempt)).collect(),
    }
}

/// What must have a hold: the addresses, and a MAC address that was asked for.
fn held_by_name(vnic: &VNic) -> Vec<String> {
    let mut all = asked(vnic);
    all.extend(vnic.spec.mac_address.as_deref().map(canonical));
    all
}

/// Who comes first where nobody has a hold yet: one that a machine holds, then the oldest.
pub fn seniority(vnic: &VNic) -> (bool, Option<Timestamp>, String) {
    let meta = &vnic.metadata;
    (!is_held(vnic), meta.creation_timestamp.as_ref().map(|at| at.0), uid(meta).to_owned())
}

/// An attachment may use it now.
pub(crate) fn is_held(vnic: &VNic) -> bool {
    vnic.status.as_ref().is_some_and(|status| status.holder.is_some())
}

pub fn is_assigned(vnic: &VNic) -> bool {
    vnic.status.as_ref().is_some_and(|status| conditions::is_true(&status.conditions, ADDRESSES_ASSIGNED))
}

/// The machines that use it have not given it back: a mark without an attachment is about to become one.
pub fn is_marked(vnic: &VNic) -> bool {
    vnic.metadata.annotations.iter().flatten().any(|(key, _)| key.starts_with(labels::IN_USE_BY))
}

pub fn plan(o: &Observed, now: Timestamp) -> Plan {
    let deleting = o.vnic.metadata.deletion_timestamp.is_some();
    // Not by its holder: that may be an attachment which no longer exists, of a machine that could not say so.
    let attached = !o.attachments.is_empty();
    let mut plan = match deleting && !attached {
        true => release(o),
        // Also while it is being deleted: what is attached is in use.
        false => assign(o, now),
    };
    if deleting && (attached || is_marked(&o.vnic)) {
        let by = user_of(&o.vnic, &o.attachments).unwrap_or_else(|| "a machine".to_owned());
        let reason: Reason = Waiting::VNicInUse { vnic: name(&o.vnic.metadata).to_owned(), by }.into();
        say(&mut plan, o, (DELETABLE, ConditionStatus::False, reason.name(), &reason.told()), now);
        plan.reason = Some(reason);
    }
    let before = before(o);
    plan.status = plan.status.filter(|status| *status != before);
    plan
}

fn before(o: &Observed) -> Status {
    let status = o.vnic.status.clone().unwrap_or_default();
    Status { addresses: status.addresses, mac_address: status.mac_address, conditions: status.conditions }
}

fn say(plan: &mut Plan, o: &Observed, said: (&str, ConditionStatus, &str, &str), now: Timestamp) {
    let (type_, status, reason, message) = said;
    let conditions = &mut plan.status.get_or_insert_with(|| before(o)).conditions;
    conditions::set(conditions, type_, status, reason, message, o.vnic.metadata.generation, now);
}

/// It is being deleted, and nothing of it is attached.
fn release(o: &Observed) -> Plan {
    let own = || o.holds.iter().filter(|hold| hold.spec.owner.uid == uid(&o.vnic.metadata));
    let actions = match own().next() {
        _ if is_marked(&o.vnic) => vec![],
        Some(_) => own().cloned().map(Action::DeleteAddressHold).collect(),
        None if has_finalizer(&o.vnic.metadata, labels::FINALIZER_IN_USE) => vec![Action::Unprotect],
        None => vec![],
    };
    Plan { actions, status: None, reason: None, wake_at: None }
}

fn assign(o: &Observed, now: Timestamp) -> Plan {
    let mut plan = Plan { actions: vec![], status: None, reason: None, wake_at: None };
    let Some(subnet) = &o.subnet else {
        // What it has it keeps: its holds are there.
        if !is_assigned(&o.vnic) {
            fail(&mut plan, o, Blocked::SubnetMissing { subnet: o.vnic.spec.subnet.clone() }.into(), now);
        }
        return plan;
    };
    let leaving = subnet.metadata.deletion_timestamp.is_some();
    if !leaving && !has_finalizer(&subnet.metadata, labels::FINALIZER_IN_USE) {
        plan.actions.push(Action::ProtectSubnet);
        return plan;
    }
    let verdicts: Vec<(String, Verdict)> = held_by_name(&o.vnic)
        .into_iter()
        .map(|address| (address.clone(), judge::address(o, subnet, &address)))
        .collect();
    let free = || verdicts.iter().filter(|(_, verdict)| *verdict == Verdict::Free);
    if free().count() > 0 && leaving {
        let subnet = name(&subnet.metadata).to_owned();
        fail(&mut plan, o, Blocked::SubnetBeingDeleted { subnet }.into(), now);
        return plan;
    }
    let meta = &o.vnic.metadata;
    let has_some = verdicts.iter().any(|(_, verdict)| matches!(verdict, Verdict::Own | Verdict::Free));
    if has_some && meta.deletion_timestamp.is_none() && !has_finalizer(meta, labels::FINALIZER_IN_USE) {
        plan.actions.push(Action::Protect);
        return plan;
    }
    plan.actions.extend(free().map(|(address, _)| Action::CreateAddressHold(Box::new(hold(o, subnet, address)))));
    let reason = verdicts.iter().find_map(|(_, verdict)| match verdict {
        Verdict::Not(reason) => Some(reason.clone()),
        Verdict::Own | Verdict::Free => None,
    });
    match reason {
        Some(reason) => fail(&mut plan, o, reason, now),
        None if plan.actions.is_empty() => done(&mut plan, o, subnet, now),
        None => {}
    }
    plan
}

fn fail(plan: &mut Plan, o: &Observed, reason: Reason, now: Timestamp) {
    if matches!(reason, Reason::Waiting(Waiting::AddressShownElsewhere { .. })) {
        plan.wake_at = Some(now + EVERY);
    }
    say(plan, o, (ADDRESSES_ASSIGNED, ConditionStatus::False, reason.name(), &reason.told()), now);
    plan.reason = Some(reason);
}

/// Every hold is there. What is set is set once.
fn done(plan: &mut Plan, o: &Observed, subnet: &Subnet, now: Timestamp) {
    let Some(mac) = macs(&o.vnic).into_iter().find(|mac| judge::mac_is_free(o, subnet, mac)) else {
        let mac = macs(&o.vnic).pop().unwrap_or_default();
        let vnic = o.rivals.first().map(|rival| name(&rival.metadata).to_owned()).unwrap_or_default();
        let subnet = name(&subnet.metadata).to_owned();
        return fail(plan, o, Blocked::MacTaken { mac, subnet, vnic }.into(), now);
    };
    say(plan, o, (ADDRESSES_ASSIGNED, ConditionStatus::True, "Assigned", ""), now);
    if let Some(status) = &mut plan.status {
        if status.addresses.is_empty() {
            status.addresses = asked(&o.vnic);
        }
        status.mac_address.get_or_insert(mac);
    }
}

fn hold(o: &Observed, subnet: &Subnet, held: &str) -> AddressHold {
    let (vnic, of) = (&o.vnic.metadata, &subnet.metadata);
    let is_address = asked(&o.vnic).iter().any(|address| address == held);
    let spec = AddressHoldSpec {
        subnet: SubnetReference {
            namespace: of.namespace.clone().unwrap_or_default(),
            name: name(of).to_owned(),
            uid: uid(of).to_owned(),
        },
        address: is_address.then(|| held.to_owned()),
        mac_address: (!is_address).then(|| held.to_owned()),
        owner: AddressOwner {
            kind: "VNic".to_owned(),
            namespace: vnic.namespace.clone().unwrap_or_default(),
            name: name(vnic).to_owned(),
            uid: uid(vnic).to_owned(),
        },
    };
    let mut hold = AddressHold::new(&names::address_hold(uid(of), held), spec);
    let labels = [(labels::MANAGED_BY, labels::MANAGED_BY_VALUE)];
    hold.metadata.labels = Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    hold
}
