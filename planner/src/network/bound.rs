//! Whether the port of a VNic is in force for whoever holds the VNic (docs/design/network.md, 6).
//!
//! That a port works, with all its flows, is what the agent of its node says of the grant: it has seen OVN's word for the port, and a
//! number (`nb_cfg`) after that. What is changed under the same grant later the agent cannot tell from what was there before: then it is a number
//! that was asked for after the change, and that the chassis has reached ([`super::barrier`]). The status says that such a change is
//! being made (`NotInForce`) before the first row is written, so that a controller which starts knows to ask.
//!
//! Rows that are changed under a grant concern more than the VNic's own chassis: whether a packet of it may enter elsewhere is judged there, by
//! the groups that it is in ([`Observed::peers`]).
//!
//! Of a VNic with `spec.nodeName`, which whoever is root on that node plugs in, no agent says anything: a number is the proof.

use super::barrier::{self, Known, Verdict};
use crate::machine::observed::name;
use crate::reason::{Reason, Waiting};
use api::conditions::{self, CONNECTED, ConditionStatus, IN_FORCE, METADATA_SERVED, PROGRAMMED};
use api::{NicAttachment, VNic};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub struct Observed<'a> {
    pub vnic: &'a VNic,
    /// Of the VNic.
    pub attachments: &'a [Arc<NicAttachment>],
    /// Where its rows let it be bound.
    pub chassis: Option<&'a str>,
    /// Those on which a group has members that lets some group of its Vpc in.
    pub peers: BTreeSet<String>,
    pub known: Known,
    /// The north-bound database's own number.
    pub number: u64,
    /// Where it is asked for: the highest number of which each chassis has installed everything; else why that is not known.
    pub installed: Result<&'a BTreeMap<String, Option<u64>>, String>,
    /// Since the rows were committed.
    pub elapsed: Duration,
}

/// What messages call its rows.
pub fn what(vnic: &VNic) -> String {
    format!("the port of VNic '{}'", name(&vnic.metadata))
}

/// Rows are changed under the present grant: the agent's word is older than they are. Only these two are said before the agent has said
/// that the port works; whatever else is said waits for a number.
pub fn is_changing(vnic: &VNic) -> bool {
    let said = vnic.status.as_ref().and_then(|status| conditions::get(&status.conditions, IN_FORCE));
    let none = String::new;
    let of_agent = [
        Waiting::NotHeld { vnic: none() }.name(),
        Waiting::NotBound { vnic: none(), dpu: none(), attachment: none() }.name(),
    ];
    said.is_some_and(|said| said.status == "False" && !of_agent.contains(&said.reason.as_str()))
}

/// What is said next nearly always passes within a moment: the VNic is about to be held, its port to be in force, or the VNic to be released.
/// Nobody waits for that status; who grants asks OVN ([`super::port::as_written`]). That it is in force no more is said at once, unless the
/// VNic is being deleted; and so is that what was wrong is right.
pub fn passes(vnic: &VNic, in_force: Option<&Reason>) -> bool {
    let awaits = matches!(in_force, Some(Reason::Waiting(Waiting::NotHeld { .. } | Waiting::NotBound { .. })));
    let all = vnic.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let was_wrong = conditions::get(all, PROGRAMMED).is_some_and(|said| said.status == "False") || is_changing(vnic);
    let is_ending = vnic.metadata.deletion_timestamp.is_some();
    awaits && !was_wrong && (is_ending || !conditions::is_true(all, IN_FORCE))
}

pub fn changing(vnic: &VNic) -> Reason {
    Waiting::NotInForce { what: what(vnic) }.into()
}

/// How far its chassis is has a say in [`judge`]; else the agent's word is as new as its rows.
pub fn asks_chassis(vnic: &VNic, known: Known) -> bool {
    known != Known::Nothing || is_changing(vnic) || is_by_node(vnic) && !is_said(vnic)
}

fn is_by_node(vnic: &VNic) -> bool {
    vnic.spec.node_name.is_some() && vnic.status.as_ref().is_none_or(|status| status.holder.is_none())
}

fn is_said(vnic: &VNic) -> bool {
    let said = vnic.status.as_ref().map_or(&[][..], |status| &status.conditions);
    barrier::is_said(vnic.metadata.generation, said)
}

/// Rows for the grant with this epoch were written before: to change them now is to change them under it. `vnic`: as OVN has it
/// ([`super::port::as_written`]); where OVN has lost it, the grant tells that they were written.
pub fn is_granted(vnic: &VNic, attachments: &[Arc<NicAttachment>], epoch: Option<u64>) -> bool {
    let programmed = vnic.status.as_ref().and_then(|status| status.programmed.as_ref());
    let granted = held(vnic, attachments).and_then(|attachment| attachment.spec.grant).map(|grant| grant.epoch);
    epoch.is_some() && (granted == epoch || programmed.is_some_and(|programmed| programmed.epoch == epoch))
}

/// That of its holder.
pub fn held<'a>(vnic: &VNic, attachments: &'a [Arc<NicAttachment>]) -> Option<&'a NicAttachment> {
    let holder = vnic.status.as_ref()?.holder.as_ref()?;
    attachments.iter().find(|one| one.metadata.uid.as_ref() == Some(&holder.attachment_uid)).map(|one| &**one)
}

/// What is said of it, and whether a number has to be asked for or waited for.
pub fn judge(o: &Observed<'_>) -> (Result<(), Reason>, Option<Verdict>) {
    let (vnic, status) = (name(&o.vnic.metadata).to_owned(), o.vnic.status.clone().unwrap_or_default());
    let Some(holder) = &status.holder else {
        return match (&o.vnic.spec.node_name, o.chassis) {
            (None, _) => (Err(Waiting::NotHeld { vnic }.into()), None),
            (Some(node), None) => (Err(Waiting::ChassisUnknown { dpu: node.clone() }.into()), None),
            (Some(_), Some(_)) if asks_chassis(o.vnic, o.known) => by_number(o),
            (Some(_), Some(_)) => (Ok(()), None),
        };
    };
    let works = |attachment: &NicAttachment| {
        let said = attachment.status.as_ref();
        let epoch = said.and_then(|said| said.fence.as_ref()).map(|fence| fence.epoch);
        epoch == Some(status.grant.epoch) && said.is_some_and(|said| conditions::is_true(&said.conditions, CONNECTED))
    };
    let is_new = asks_chassis(o.vnic, o.known);
    if !held(o.vnic, o.attachments).is_some_and(works) {
        if is_new {
            return (Err(changing(o.vnic)), None);
        }
        let (dpu, attachment) =
            (holder.dpu_name.clone(), format!("{} -n {}", holder.attachment_name, holder.attachment_namespace));
        return (Err(Waiting::NotBound { vnic, dpu, attachment }.into()), None);
    }
    if !is_new {
        return (Ok(()), None);
    }
    by_number(o)
}

/// All that have to have installed it.
pub fn concerned(chassis: Option<&str>, peers: &BTreeSet<String>) -> BTreeSet<String> {
    chassis.map(str::to_owned).into_iter().chain(peers.iter().cloned()).collect()
}

fn by_number(o: &Observed<'_>) -> (Result<(), Reason>, Option<Verdict>) {
    let concerned = concerned(o.chassis, &o.peers);
    let verdict = barrier::judge(&barrier::Observed {
        what: &what(o.vnic),
        generation: o.vnic.metadata.generation,
        programmed: None,
        conditions: &[],
        known: o.known,
        number: o.number,
        concerned: &concerned,
        installed: o.installed.clone(),
        elapsed: o.elapsed,
    });
    let said = match &verdict {
        Verdict::Ask(reason) | Verdict::Lags { reason, .. } => Err(reason.clone()),
        Verdict::InForce { .. } => Ok(()),
    };
    (said, Some(verdict))
}

/// What the agent says of the guest that asks for its metadata, for whom the VNic is: nobody else can see the attachment.
pub fn tell_metadata(said: &mut Vec<Condition>, vnic: &VNic, attachments: &[Arc<NicAttachment>], now: Timestamp) {
    let told = held(vnic, attachments).and_then(|attachment| attachment.status.as_ref());
    match told.and_then(|status| conditions::get(&status.conditions, METADATA_SERVED)) {
        None => conditions::remove(said, METADATA_SERVED),
        Some(told) => {
            let generation = vnic.metadata.generation;
            conditions::set(
                said,
                METADATA_SERVED,
                ConditionStatus::False,
                &told.reason,
                &told.message,
                generation,
                now,
            );
        }
    }
}
