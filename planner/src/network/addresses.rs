//! The addresses of one VNic: never given twice, and released last.
//!
//! *AddressIsHeld* (docs/design/fencing.md). The Subnet gets its finalizer, then the VNic, then each address and the MAC address
//! that is asked for an [`AddressHold`], which only one VNic can have; then `VNic.status.addresses` says so, once. Only by that an
//! attachment is made. A VNic that asks for no address is offered one of each family by the [`Pool`]: the hold decides here too. Two
//! leaders may both make it one; `status.addresses` says which counts, and the other hold is deleted. A hold is of one Subnet (of one on a
//! ProviderNetwork it is of the VLAN, [`hold_name`]), and Subnets may overlap: one that its Vpc has not admitted gives no address. Release goes the other way: the attachment is deleted, then the holds, then the VNic's finalizer.
//!
//! At an upgrade VNics run that have no hold. Each asks for its own: of two with one address one that a machine holds comes before
//! one that no machine holds, then the older. Who comes too late keeps running, and says so.

pub(crate) use super::asked::is_held;
pub use super::asked::{
    Observed, asked, chooses, fixed, interests, is_assigned, is_marked, runs_unassigned, seniority,
};

use super::asked::{held_by_name, macs};
use super::judge::{self, Verdict};
use super::pool::Pool;
use super::provider::{hold_name, without_closed};
use super::{cidr, user_of};
use crate::machine::observed::{has_finalizer, name, uid};
use crate::reason::{Blocked, Reason, Waiting};
use api::conditions::{self, ADDRESSES_ASSIGNED, ConditionStatus, DELETABLE};
use api::network::{AddressHoldSpec, AddressOwner, SubnetReference};
use api::{AddressHold, ProviderNetwork, Subnet, labels};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use std::net::IpAddr;
use std::sync::Arc;

/// For what no event of an orphan's Dpu tells: that the DPU is off, by its BMC.
const EVERY: SignedDuration = SignedDuration::from_secs(5);

/// What is waited for passes within a moment, nearly always, and is told if it does not: whoever uses a VNic that is being deleted releases it at
/// the same time.
pub fn passes(reason: &Reason) -> bool {
    matches!(reason, Reason::Waiting(Waiting::VNicInUse { .. }))
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
    /// From quorum, before it is said that nothing is free.
    ListAddressHolds,
    /// Once the VNic was read from quorum: it has other addresses.
    DropAddressHold(Arc<AddressHold>),
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

/// `pool`: of its Subnet.
pub fn plan(o: &Observed, pool: &Pool, now: Timestamp) -> Plan {
    let deleting = o.vnic.metadata.deletion_timestamp.is_some();
    // Not by its holder: that may be an attachment which no longer exists, of a machine that could not say so.
    let attached = !o.attachments.is_empty();
    let mut plan = match deleting && !attached {
        true => release(o),
        // Also while it is being deleted: what is attached is in use.
        false => assign(o, pool, now),
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

fn assign(o: &Observed, pool: &Pool, now: Timestamp) -> Plan {
    let mut plan = Plan { actions: vec![], status: None, reason: None, wake_at: None };
    let Some(subnet) = &o.subnet else {
        // What it has it keeps: its holds are there.
        if !is_assigned(&o.vnic) {
            fail(&mut plan, o, Blocked::SubnetMissing { subnet: o.vnic.spec.subnet.clone() }.into(), now);
        }
        return plan;
    };
    if let Some(reason) = o.refused.clone().filter(|_| !is_assigned(&o.vnic)) {
        fail(&mut plan, o, reason, now);
        return plan;
    }
    let leaving = subnet.metadata.deletion_timestamp.is_some();
    if !leaving && !has_finalizer(&subnet.metadata, labels::FINALIZER_IN_USE) {
        plan.actions.push(Action::ProtectSubnet);
        return plan;
    }
    let (chosen, full) = choose(o, subnet, pool);
    let fixed = held_by_name(&o.vnic).into_iter().map(|address| (judge::address(o, subnet, &address), address));
    let verdicts: Vec<(String, Verdict)> =
        fixed.map(|(verdict, address)| (address, verdict)).chain(chosen.iter().cloned()).collect();
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
    plan.actions.extend(free().map(|(address, _)| Action::CreateAddressHold(Box::new(hold_of(o, subnet, address)))));
    let reason = verdicts.iter().find_map(|(_, verdict)| match verdict {
        Verdict::Not(reason) => Some(reason.clone()),
        Verdict::Own | Verdict::Free => None,
    });
    plan.actions.extend(surplus(o).map(Action::DropAddressHold));
    match reason.or(full) {
        Some(Reason::Blocked(Blocked::SubnetFull { .. })) if !o.is_listed && !says_full(o) => {
            plan.actions.push(Action::ListAddressHolds);
        }
        Some(reason) => fail(&mut plan, o, reason, now),
        None if plan.actions.is_empty() => {
            done(&mut plan, o, subnet, chosen.into_iter().map(|(address, _)| address).collect(), now);
        }
        None => {}
    }
    plan
}

/// One address of each family for a VNic that asks for none: one that it has the hold of, else the one that the pool offers; and
/// which range has none.
fn choose(o: &Observed, subnet: &Subnet, pool: &Pool) -> (Vec<(String, Verdict)>, Option<Reason>) {
    let (mut chosen, mut full) = (Vec::new(), None);
    if !chooses(&o.vnic) {
        return (chosen, full);
    }
    let own = uid(&o.vnic.metadata);
    let mac = macs(&o.vnic).into_iter().find(|mac| judge::mac_is_free(o, subnet, mac)).unwrap_or_default();
    // Others of its VLAN hold what the pool of its Subnet does not know of.
    let beside = o.holds.iter().filter(|hold| o.provider.is_some() && hold.spec.owner.uid != own);
    let held = beside.filter_map(|hold| hold.spec.address.clone());
    let closed: Vec<IpAddr> = judge::without_hold(o).chain(held).filter_map(|address| address.parse().ok()).collect();
    let on_vlan = o.provider.as_ref().map(|provider| without_closed(&subnet.spec, &provider.spec));
    let spec = on_vlan.as_ref().unwrap_or(&subnet.spec);
    for network in cidr::networks(&subnet.spec) {
        let has =
            o.holds.iter().filter(|hold| hold.spec.owner.uid == own && hold.spec.subnet.uid == uid(&subnet.metadata));
        let has = has.filter_map(|hold| hold.spec.address.as_deref()?.parse::<IpAddr>().ok());
        if let Some(address) = has.filter(|address| network.contains(address)).min() {
            chosen.push((address.to_string(), judge::address(o, subnet, &address.to_string())));
        } else if let Some(address) = pool.offer(spec, network, &cidr::preferred(network, &mac, own), &closed) {
            chosen.push((address.to_string(), Verdict::Free));
        } else {
            let (subnet, cidr) = (name(&subnet.metadata).to_owned(), network.to_string());
            full.get_or_insert(Blocked::SubnetFull { subnet, cidr }.into());
        }
    }
    (chosen, full)
}

/// Holds of addresses that it does not have: `status.addresses` is set once.
fn surplus(o: &Observed) -> impl Iterator<Item = Arc<AddressHold>> {
    let fixed = fixed(&o.vnic);
    let is_surplus = move |hold: &&Arc<AddressHold>| {
        let other = !fixed.is_empty() && !fixed.iter().any(|has| has == hold.spec.held());
        hold.spec.owner.uid == uid(&o.vnic.metadata) && hold.spec.address.is_some() && other
    };
    o.holds.iter().filter(is_surplus).cloned()
}

fn says_full(o: &Observed) -> bool {
    let said = o.vnic.status.as_ref().and_then(|status| conditions::get(&status.conditions, ADDRESSES_ASSIGNED));
    said.is_some_and(|said| Blocked::SubnetFull { subnet: String::new(), cidr: String::new() }.name() == said.reason)
}

fn fail(plan: &mut Plan, o: &Observed, reason: Reason, now: Timestamp) {
    let is_full = matches!(reason, Reason::Blocked(Blocked::SubnetFull { .. }));
    let is_shown = matches!(reason, Reason::Waiting(Waiting::AddressShownElsewhere { .. }));
    if is_shown || (is_full && judge::without_hold(o).next().is_some()) {
        plan.wake_at = Some(now + EVERY);
    }
    say(plan, o, (ADDRESSES_ASSIGNED, ConditionStatus::False, reason.name(), &reason.told()), now);
    plan.reason = Some(reason);
}

/// Every hold is there. What is set is set once.
fn done(plan: &mut Plan, o: &Observed, subnet: &Subnet, chosen: Vec<String>, now: Timestamp) {
    let Some(mac) = macs(&o.vnic).into_iter().find(|mac| judge::mac_is_free(o, subnet, mac)) else {
        let mac = macs(&o.vnic).pop().unwrap_or_default();
        let vnic = o.rivals.first().map(|rival| name(&rival.metadata).to_owned()).unwrap_or_default();
        let subnet = name(&subnet.metadata).to_owned();
        return fail(plan, o, Blocked::MacTaken { mac, subnet, vnic }.into(), now);
    };
    say(plan, o, (ADDRESSES_ASSIGNED, ConditionStatus::True, "Assigned", ""), now);
    if let Some(status) = &mut plan.status {
        if status.addresses.is_empty() {
            status.addresses = if chosen.is_empty() { asked(&o.vnic) } else { chosen };
        }
        status.mac_address.get_or_insert(mac);
    }
}

fn hold_of(o: &Observed, subnet: &Subnet, held: &str) -> AddressHold {
    let meta = &o.vnic.metadata;
    let owner = AddressOwner {
        kind: "VNic".to_owned(),
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: name(meta).to_owned(),
        uid: uid(meta).to_owned(),
    };
    hold_in(&subnet.metadata, o.provider.as_deref(), owner, held)
}

/// Of an address or a MAC address, in a Subnet or a ProviderNetwork. `network`: the ProviderNetwork itself, or the one that the Subnet is on.
pub(super) fn hold_in(
    of: &ObjectMeta,
    network: Option<&ProviderNetwork>,
    owner: AddressOwner,
    held: &str,
) -> AddressHold {
    let is_address = held.parse::<IpAddr>().is_ok();
    let spec = AddressHoldSpec {
        subnet: SubnetReference {
            namespace: of.namespace.clone().unwrap_or_default(),
            name: name(of).to_owned(),
            uid: uid(of).to_owned(),
        },
        address: is_address.then(|| held.to_owned()),
        mac_address: (!is_address).then(|| held.to_owned()),
        owner,
    };
    let mut hold = AddressHold::new(&hold_name(of, network, held), spec);
    let labels = [(labels::MANAGED_BY, labels::MANAGED_BY_VALUE)];
    hold.metadata.labels = Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    hold
}
