//! What is said of an object of the network: one condition, true or with a reason.

use crate::machine::observed::name;
use crate::reason::{Reason, Waiting};
use api::Vpc;
use api::conditions::{self, ConditionStatus, GATEWAY_NODES_USED, IN_FORCE, PROGRAMMED, READY};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};

/// Of a Subnet or SecurityGroup: OVN has its rows.
pub fn is_ready(said: Option<&[Condition]>) -> bool {
    said.is_some_and(|said| conditions::is_true(said, READY))
}

/// OVN has the rows of the Vpc, whatever may be wrong with one of its routes.
pub fn is_programmed(vpc: &Vpc) -> Result<(), Reason> {
    let said = vpc.status.as_ref().map_or(&[][..], |status| &status.conditions);
    if conditions::is_true(said, PROGRAMMED) {
        return Ok(());
    }
    let message = conditions::get(said, PROGRAMMED).map(|said| said.message.clone()).unwrap_or_default();
    Err(Waiting::VpcNotReady { vpc: name(&vpc.metadata).to_owned(), message }.into())
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
        None if [IN_FORCE, GATEWAY_NODES_USED].contains(&type_) => (ConditionStatus::True, type_, String::new()),
        None => (ConditionStatus::True, PROGRAMMED, String::new()),
        Some(reason) => (ConditionStatus::False, reason.name(), reason.told()),
    };
    let mut said = before.to_vec();
    conditions::set(&mut said, type_, status, name, &message, meta.generation, now);
    (said != before).then_some(said)
}
