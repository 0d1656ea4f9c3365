//! What is said of an object of the network: one condition, true or with a reason.

use crate::reason::Reason;
use api::conditions::{self, ConditionStatus, READY};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};

/// Of a Vpc, Subnet or SecurityGroup: OVN has its rows.
pub fn is_ready(said: Option<&[Condition]>) -> bool {
    said.is_some_and(|said| conditions::is_true(said, READY))
}

/// `before` with this said; `None`: it says so already.
pub fn say(
    before: &[Condition],
    type_: &str,
    reason: Option<&Reason>,
    meta: &ObjectMeta,
    now: Timestamp,
) -> Option<Vec<Condition>> {
    let (status, name, message) = match reason {
        None => (ConditionStatus::True, "Programmed", String::new()),
        Some(reason) => (ConditionStatus::False, reason.name(), reason.told()),
    };
    let mut said = before.to_vec();
    conditions::set(&mut said, type_, status, name, &message, meta.generation, now);
    (said != before).then_some(said)
}
