//! What keeps a Subnet: it is deleted when no VNic has an address of it any more.
//!
//! The finalizer is put on by the first VNic that gets an address (`addresses.rs`). A VNic that has none yet does not keep the
//! Subnet: it gets none while that is being deleted.

use super::user_of;
use crate::machine::observed::{has_finalizer, name, uid};
use crate::reason::{Reason, Waiting};
use api::conditions::{self, ConditionStatus, DELETABLE};
use api::{AddressHold, NicAttachment, Subnet, VNic, labels};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub struct Observed {
    pub subnet: Arc<Subnet>,
    /// That name it.
    pub vnics: Vec<Arc<VNic>>,
    /// Of the Subnet's UID.
    pub holds: Vec<Arc<AddressHold>>,
    /// Of those VNics.
    pub attachments: Vec<Arc<NicAttachment>>,
}

#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The Subnet's finalizer goes, once a list from quorum shows that no VNic keeps it.
    pub release: bool,
    /// None: they are so already.
    pub conditions: Option<Vec<Condition>>,
    /// What its deletion waits for.
    pub reason: Option<Reason>,
}

/// The VNic has, or is about to have, addresses of the Subnet that it names.
pub fn keeps(vnic: &VNic) -> bool {
    has_finalizer(&vnic.metadata, labels::FINALIZER_IN_USE) || super::addresses::is_held(vnic)
}

pub fn plan(o: &Observed, now: Timestamp) -> Plan {
    let meta = &o.subnet.metadata;
    if meta.deletion_timestamp.is_none() || !has_finalizer(meta, labels::FINALIZER_IN_USE) {
        return Plan::default();
    }
    let mut users: Vec<String> = o.vnics.iter().filter(|vnic| keeps(vnic)).map(|vnic| user(vnic, o)).collect();
    let gone = |hold: &&Arc<AddressHold>| !o.vnics.iter().any(|vnic| uid(&vnic.metadata) == hold.spec.owner.uid);
    users.extend(o.holds.iter().filter(gone).map(|hold| format!("AddressHold '{}'", name(&hold.metadata))));
    let Some(first) = users.first() else { return Plan { release: true, ..Plan::default() } };
    let by = match users.len() - 1 {
        0 => first.clone(),
        more => format!("{first} and {more} more"),
    };
    let reason: Reason = Waiting::SubnetInUse { subnet: name(meta).to_owned(), by }.into();
    let before = o.subnet.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    let mut said = before.clone();
    let (status, message) = (ConditionStatus::False, reason.told());
    conditions::set(&mut said, DELETABLE, status, reason.name(), &message, meta.generation, now);
    Plan { release: false, conditions: (said != before).then_some(said), reason: Some(reason) }
}

fn user(vnic: &VNic, o: &Observed) -> String {
    let own = format!("VNic '{}'", name(&vnic.metadata));
    user_of(vnic, &o.attachments).map_or(own.clone(), |machine| format!("{own} of {machine}"))
}
