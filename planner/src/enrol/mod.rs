//! What is made for an agent that has reported what its server is: a Hardware, where the inventory has none of it (discovery), and a
//! Workflow, where a WorkflowRuleSet asks for one (enrolment). Both as upstream's Tink server makes them; here the controller does, from
//! the HardwareReport, so that the boot service, which strangers talk to, writes no inventory.
//!
//! | file | what |
//! |---|---|
//! | `discovered.rs` | the Hardware of a server that nobody has written down |
//! | `enrolled.rs` | the Workflow of an agent that has none |
//! | `unserved.rs` | fields of a Hardware that nothing serves |
//! | `rules.rs` | which WorkflowRuleSet is for a server |
//! | `summary.rs` | a server in a few words |
//!
//! A Hardware that was discovered is nobody's to claim before it was approved (the label `metalplane.io/unapproved`), and counts for
//! nothing beside one of the same server that somebody has written down. Whatever a stranger
//! reports: no Hardware is made that has a MAC address of another one, for two with one address would both be answered no more; and not
//! more than [`MOST_UNAPPROVED`] are.

mod discovered;
mod enrolled;
mod rules;
mod summary;
#[cfg(test)]
mod tests;
mod unserved;

pub use discovered::{is_unapproved, local_disks, report_name};
pub use enrolled::workflow_name;
pub use summary::summary;

use crate::event::{self, Event};
use crate::meta::name;
use crate::netboot::reason_since;
use crate::netboot::report::is_of;
use crate::reason::{Blocked, Reason};
use api::conditions::{self, APPROVED, ConditionStatus, DHCP_SERVED, ENROLLED, FIELDS_SERVED};
use api::report::HardwareReportStatus;
use api::tinkerbell::attributes::AgentAttributes;
use api::tinkerbell::{Hardware, Workflow, WorkflowRuleSet};
use api::{HardwareReport, labels};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use std::sync::Arc;

/// Whoever has a cable to the provisioning network can make this many Hardware and no more.
pub const MOST_UNAPPROVED: usize = 256;
/// The report of a server that is in no inventory, and has not booted since, is deleted after this.
const FORGOTTEN: SignedDuration = SignedDuration::from_hours(7 * 24);
/// What the annotation with the agent's attributes may have at most, as upstream.
const LONGEST: usize = 64 << 10;

/// What is known of the server of one report.
#[derive(Debug)]
pub struct Observed {
    pub report: Arc<HardwareReport>,
    /// All Hardware with the identifier of the agent, or with a MAC address that the agent reports.
    pub hardware: Vec<Arc<Hardware>>,
    /// Of the Hardware that the report is of: why nobody who asks by the MAC address is answered by which it boots from the network.
    pub same_mac: Option<Reason>,
    pub rule_sets: Vec<Arc<WorkflowRuleSet>>,
    /// Of that Hardware, and those that have a task for the agent.
    pub workflows: Vec<Arc<Workflow>>,
    /// The namespace of the inventory.
    pub namespace: String,
    /// Whether Hardware is made of servers that nobody has written down.
    pub discovers: bool,
    /// How many Hardware wait to be approved.
    pub unapproved: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Act {
    CreateHardware(Box<Hardware>),
    /// The report goes with that Hardware.
    Adopt(Box<Hardware>),
    /// The agent's attributes, for who reads the Hardware.
    Annotate {
        name: String,
        uid: String,
        resource_version: Option<String>,
        attributes: String,
    },
    CreateWorkflow(Box<Workflow>),
    /// Of a server that is in no inventory.
    DeleteReport,
}

#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    pub act: Option<Act>,
    /// `None`: it is as it is to be.
    pub status: Option<HardwareReportStatus>,
    /// Of the Hardware, once the status is written, which says so too.
    pub tell: Option<event::Told>,
    pub wake_at: Option<Timestamp>,
}

pub fn plan(o: &Observed, now: Timestamp) -> Plan {
    let status = o.report.status.clone().unwrap_or_default();
    let mut told = Told { conditions: status.conditions.clone(), now };
    tell_unserved(o, &mut told);
    tell_dhcp(o, &mut told);
    let (Some(agent), Some(attributes)) = (&status.agent_id, &status.attributes) else {
        return Plan { status: told.status(o), ..Plan::default() };
    };
    let (agent, attributes) = (agent.clone(), attributes.clone());
    let is_strangers = o.report.metadata.owner_references.iter().flatten().next().is_none();
    let booted = status.netboot.as_ref().map(|seen| seen.at.0).filter(|_| is_strangers);
    let wake_at = booted.and_then(|at| at.checked_add(FORGOTTEN).ok());
    if wake_at.is_some_and(|at| at <= now) {
        return Plan { act: Some(Act::DeleteReport), ..Plan::default() };
    }
    let act = decide(o, &agent, &attributes, &mut told);
    let is_news = told.has_approved() && !conditions::is_true(&status.conditions, APPROVED);
    let tell = is_news.then(|| Event::Approved.told("a machine may claim the server from now on"));
    Plan { act, status: told.status(o), tell, wake_at }
}

/// The Hardware that the report is of.
fn own(o: &Observed) -> Option<&Arc<Hardware>> {
    o.hardware.iter().find(|hardware| name(&hardware.metadata) == name(&o.report.metadata))
}

fn tell_unserved(o: &Observed, told: &mut Told) {
    let hardware = own(o).filter(|hardware| is_of(&o.report, hardware));
    let fields = hardware.map(|hardware| unserved::fields(hardware)).unwrap_or_default();
    if fields.is_empty() {
        return conditions::remove(&mut told.conditions, FIELDS_SERVED);
    }
    let hardware = name(&o.report.metadata).to_owned();
    told.not(FIELDS_SERVED, Blocked::FieldsNotServed { hardware, fields: fields.join("; ") }.into());
}

/// Why DHCP does not serve the server.
fn tell_dhcp(o: &Observed, told: &mut Told) {
    let hardware = own(o).filter(|hardware| is_of(&o.report, hardware));
    let seen = |hardware: &Hardware| reason_since(hardware, o.report.status.as_ref(), None);
    match hardware.and_then(|hardware| o.same_mac.clone().or_else(|| seen(hardware))) {
        None => conditions::remove(&mut told.conditions, DHCP_SERVED),
        Some(reason) => told.not(DHCP_SERVED, reason),
    }
}

fn decide(o: &Observed, agent: &str, attributes: &AgentAttributes, told: &mut Told) -> Option<Act> {
    let report = name(&o.report.metadata);
    let Some(hardware) = own(o) else {
        if o.report.metadata.owner_references.iter().flatten().next().is_some() {
            // Its Hardware was deleted, and it goes with that.
            return None;
        }
        if let Some(other) = o.hardware.first() {
            let (agent, hardware) = (agent.to_owned(), name(&other.metadata).to_owned());
            told.not(APPROVED, Blocked::AgentOfOther { agent, hardware }.into());
            return None;
        }
        if o.discovers {
            if o.unapproved >= MOST_UNAPPROVED {
                told.not(APPROVED, Blocked::TooManyUnapproved { count: o.unapproved }.into());
                return None;
            }
            let made = discovered::hardware(&o.report, agent, attributes, &o.namespace);
            return Some(Act::CreateHardware(Box::new(made)));
        }
        return enrolled::enrol(o, None, agent, attributes, told);
    };
    if !is_of(&o.report, hardware) {
        return Some(Act::Adopt(Box::new(Hardware::clone(hardware))));
    }
    if let Some(other) = o.hardware.iter().find(|other| !Arc::ptr_eq(other, hardware) && is_unapproved(hardware)) {
        let (hardware, other) = (report.to_owned(), name(&other.metadata).to_owned());
        told.not(APPROVED, Blocked::HardwareWrittenDown { hardware, other }.into());
        return None;
    }
    let labels = hardware.metadata.labels.as_ref();
    if labels.is_some_and(|labels| labels.contains_key(labels::AUTO_DISCOVERED)) {
        match is_unapproved(hardware) {
            true => told.not(APPROVED, Blocked::HardwareNotApproved { hardware: report.to_owned() }.into()),
            false => told.is(APPROVED, "Approved", ""),
        }
    }
    annotate(hardware, attributes).or_else(|| enrolled::enrol(o, Some(hardware), agent, attributes, told))
}

/// Once, as upstream.
fn annotate(hardware: &Hardware, attributes: &AgentAttributes) -> Option<Act> {
    let meta = &hardware.metadata;
    if meta.annotations.as_ref().is_some_and(|all| all.contains_key(labels::AGENT_ATTRIBUTES)) {
        return None;
    }
    Some(Act::Annotate {
        name: name(meta).to_owned(),
        uid: meta.uid.clone().unwrap_or_default(),
        resource_version: meta.resource_version.clone(),
        attributes: text(attributes)?,
    })
}

/// `None`: it is longer than an annotation may be.
fn text(attributes: &AgentAttributes) -> Option<String> {
    serde_json::to_string(attributes).ok().filter(|text| text.len() <= LONGEST)
}

/// Conditions of the report.
struct Told {
    conditions: Vec<Condition>,
    now: Timestamp,
}

impl Told {
    /// `None`: it says that already.
    fn status(self, o: &Observed) -> Option<HardwareReportStatus> {
        let status = o.report.status.clone().unwrap_or_default();
        let after = HardwareReportStatus { conditions: self.conditions, ..status };
        Some(after).filter(|after| Some(after) != o.report.status.as_ref())
    }

    fn is(&mut self, type_: &str, reason: &str, message: &str) {
        conditions::set(&mut self.conditions, type_, ConditionStatus::True, reason, message, None, self.now);
    }

    fn not(&mut self, type_: &str, reason: Reason) {
        let (conditions, told) = (&mut self.conditions, reason.told());
        conditions::set(conditions, type_, ConditionStatus::False, reason.name(), &told, None, self.now);
    }

    fn has_approved(&self) -> bool {
        conditions::is_true(&self.conditions, APPROVED)
    }

    fn has_enrolled(&self) -> bool {
        conditions::is_true(&self.conditions, ENROLLED)
    }
}

/// What may stand in an object's name, as upstream makes it: `:` and whatever else may not becomes `-`.
fn valid_name(prefix: &str, id: &str) -> String {
    let mut made = String::new();
    for c in format!("{prefix}{}", id.trim()).chars() {
        match c {
            c if c.is_ascii_alphanumeric() => made.push(c.to_ascii_lowercase()),
            _ if made.ends_with('-') => {}
            _ => made.push('-'),
        }
    }
    made.truncate(63);
    made.trim_matches('-').to_owned()
}
