//! Why a machine is not as it was asked to be, as a tree: `Ready` is the root, the steps are its branches, and below a
//! step are the objects that it is about.
//!
//! The status is enough for a tree: whoever may read the machine is told everything that the controller knows. The objects
//! make it finer where the reader may see them; where not, the machine's own rows stand in for them and a note says so.

use crate::machine::steps::Step;
use crate::netboot::report::told_now;
use crate::reason::{self, ReasonKind};
use api::conditions::{self, READY};
use api::machine::{AttachPhase, BareMetalMachineStatus};
use api::report::HardwareReportStatus;
use api::{BareMetalMachine, DiskAttachment, NicAttachment};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;

/// What is explained: the machine, and its objects as far as the reader may see them.
#[derive(Debug, Default)]
pub struct Explained {
    pub machine: BareMetalMachine,
    /// `None`: may not be read.
    pub claims: Option<Vec<PersistentVolumeClaim>>,
    pub disks: Option<Vec<DiskAttachment>>,
    pub nics: Option<Vec<NicAttachment>>,
    /// What network boot has seen of its server, and the moment; `None`: nothing, or it may not be read.
    pub seen: Option<(HardwareReportStatus, Timestamp)>,
}

/// One fact and what it rests on.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// A condition's type, or an object: `DiskAttachment bm-01-root-…`.
    pub subject: String,
    /// The condition's status, or the object's phase.
    pub status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Waiting: it goes on by itself. Blocked: somebody has to change something. Failed: it is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<ReasonKind>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What a person can do about it, of what is no condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// What this tree cannot show, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Node>,
}

impl Node {
    /// Nothing to look into here.
    pub fn is_good(&self) -> bool {
        matches!(self.status.as_str(), "True" | "Attached" | "Bound")
    }

    /// What can be done about it stands in the condition's own message.
    fn of(condition: &Condition) -> Self {
        let good = condition.status == "True";
        Self {
            subject: condition.type_.clone(),
            status: condition.status.clone(),
            reason: condition.reason.clone(),
            kind: if good { None } else { reason::kind_of(&condition.reason) },
            message: condition.message.clone(),
            ..Self::default()
        }
    }

    fn object(kind: &str, name: &str, status: &str, message: String) -> Self {
        Self { subject: format!("{kind} {name}"), status: status.to_owned(), message, ..Self::default() }
    }
}

/// The tree of one machine.
pub fn tree(seen: &Explained) -> Node {
    let Some(status) = &seen.machine.status else {
        return Node {
            subject: READY.to_owned(),
            status: "Unknown".to_owned(),
            message: "the controller has not looked at this machine yet".to_owned(),
            next: Some("kubectl get pods -A -l app.kubernetes.io/component=controller".to_owned()),
            ..Node::default()
        };
    };
    let mut root = match conditions::get(&status.conditions, READY) {
        Some(ready) => Node::of(ready),
        None => Node { subject: READY.to_owned(), status: "Unknown".to_owned(), ..Node::default() },
    };
    if status.observed_generation != seen.machine.metadata.generation {
        root.note = Some("the spec has changed since: the controller has not looked at the change yet".to_owned());
    }
    for step in Step::ALL {
        root.children.extend(conditions::get(&status.conditions, step.condition()).map(|condition| {
            let mut node = Node::of(condition);
            below(step, seen, status, &mut node);
            node
        }));
    }
    let limited = conditions::get(&status.conditions, conditions::DISKS_LIMITED).filter(|c| c.status == "False");
    root.children.extend(limited.map(Node::of));
    // Of these, true is the news.
    for type_ in [conditions::PAUSED, conditions::RESTART_REQUIRED] {
        if let Some(condition) = conditions::get(&status.conditions, type_).filter(|c| c.status == "True") {
            let kind = reason::kind_of(&condition.reason);
            root.children.push(Node { kind, ..Node::of(condition) });
        }
    }
    root
}

const HIDDEN: &str =
    "the attachments are in the DPU's namespace, which you may not read; these rows are the machine's own";

fn below(step: Step, seen: &Explained, status: &BareMetalMachineStatus, node: &mut Node) {
    match step {
        Step::VolumesReady => volumes(seen, status, node),
        Step::DisksAttached => match &seen.disks {
            Some(disks) => node.children.extend(disks.iter().map(disk)),
            None => {
                node.note = Some(HIDDEN.to_owned());
                let rows = status.disks.iter().map(|row| ("disk", &row.name, row.phase, &row.dpu_name));
                node.children.extend(rows.map(row));
            }
        },
        Step::NicsAttached => match &seen.nics {
            Some(nics) => node.children.extend(nics.iter().map(nic)),
            None => {
                node.note = Some(HIDDEN.to_owned());
                let rows = status.interfaces.iter().map(|row| ("interface", &row.name, row.phase, &row.dpu_name));
                node.children.extend(rows.map(row));
            }
        },
        Step::GuestReachable => node.children.extend(seen.nics.iter().flatten().filter_map(guest)),
        Step::Installed => node.children.extend(seen.seen.as_ref().map(|(report, now)| {
            let stage = report.netboot.as_ref().map_or_else(|| "Unseen".to_owned(), |seen| format!("{:?}", seen.stage));
            let name = status.hardware_name.as_deref().unwrap_or_default();
            Node::object("HardwareReport", name, &stage, told_now(report, *now))
        })),
        Step::HardwareClaimed | Step::BootConfigured | Step::PoweredOn => {}
    }
}

fn volumes(seen: &Explained, status: &BareMetalMachineStatus, node: &mut Node) {
    for row in &status.disks {
        let Some(name) = &row.claim_name else { continue };
        let child = match &seen.claims {
            None => {
                let message = format!("of disk '{}'; you may not read it", row.name);
                Node::object("PersistentVolumeClaim", name, "Unknown", message)
            }
            Some(claims) => match claims.iter().find(|claim| claim.metadata.name.as_ref() == Some(name)) {
                None => Node::object("PersistentVolumeClaim", name, "Missing", format!("of disk '{}'", row.name)),
                Some(claim) => {
                    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
                    let mut child =
                        Node::object("PersistentVolumeClaim", name, phase, format!("of disk '{}'", row.name));
                    if phase != "Bound" {
                        child.next = Some(format!("kubectl describe pvc {name}"));
                    }
                    child
                }
            },
        };
        node.children.push(child);
    }
}

fn disk(attachment: &DiskAttachment) -> Node {
    let status = attachment.status.clone().unwrap_or_default();
    let about = format!("disk '{}' by Dpu '{}'", attachment.spec.disk_name, attachment.spec.dpu_name);
    let leaving = attachment.metadata.deletion_timestamp.is_some();
    let phase = phase(status.phase, attachment.spec.grant.is_some(), leaving);
    let name = attachment.metadata.name.as_deref().unwrap_or_default();
    Node { children: not_true(&status.conditions), ..Node::object("DiskAttachment", name, phase, about) }
}

fn nic(attachment: &NicAttachment) -> Node {
    let status = attachment.status.clone().unwrap_or_default();
    let about = format!("interface '{}' by Dpu '{}'", attachment.spec.interface_name, attachment.spec.dpu_name);
    let leaving = attachment.metadata.deletion_timestamp.is_some();
    let phase = phase(status.phase, attachment.spec.grant.is_some(), leaving);
    let name = attachment.metadata.name.as_deref().unwrap_or_default();
    Node { children: not_true(&status.conditions), ..Node::object("NicAttachment", name, phase, about) }
}

/// What the DPU sees of the guest on one interface.
fn guest(attachment: &NicAttachment) -> Option<Node> {
    let guest = attachment.status.as_ref()?.guest.as_ref()?;
    let (status, message) = match (&guest.answered_at, &guest.first_packet_at) {
        (Some(at), _) => ("True", format!("answered at {}", at.0)),
        (None, Some(at)) => ("False", format!("its first packet came at {}, but it answers for no address", at.0)),
        (None, None) => ("False", "no packet of it was seen".to_owned()),
    };
    Some(Node::object("interface", &attachment.spec.interface_name, status, message))
}

fn row((kind, name, phase, dpu): (&str, &String, AttachPhase, &Option<String>)) -> Node {
    let about = dpu.as_ref().map(|dpu| format!("by Dpu '{dpu}'")).unwrap_or_default();
    Node::object(kind, name, phase_word(phase), about)
}

/// An agent that has not spoken leaves the phase at its default.
fn phase(said: AttachPhase, granted: bool, leaving: bool) -> &'static str {
    match said {
        _ if leaving => "Detaching",
        AttachPhase::Pending if granted => "Attaching",
        AttachPhase::Pending => "Waiting",
        said => phase_word(said),
    }
}

fn phase_word(phase: AttachPhase) -> &'static str {
    match phase {
        AttachPhase::Pending => "Pending",
        AttachPhase::Waiting => "Waiting",
        AttachPhase::Attaching => "Attaching",
        AttachPhase::Attached => "Attached",
        AttachPhase::Detaching => "Detaching",
        AttachPhase::Failed => "Failed",
    }
}

/// The agent's conditions that say something: the others are good. (Of `Fenced` true is bad.)
fn not_true(all: &[Condition]) -> Vec<Node> {
    let telling = |c: &&Condition| (c.status == "True") == (c.type_ == conditions::FENCED);
    all.iter().filter(telling).map(Node::of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::{Blocked, Reason, Waiting};
    use api::attachment::{DiskAttachmentStatus, OwnerReference};
    use api::conditions::ConditionStatus;
    use api::machine::DiskStatus;
    use jiff::Timestamp;

    fn machine(conditions: &[(&str, ConditionStatus, &str, &str)]) -> BareMetalMachine {
        let mut machine = BareMetalMachine::new("bm-01", Default::default());
        let status = machine.status.get_or_insert_default();
        for (type_, is, reason, message) in conditions {
            conditions::set(&mut status.conditions, type_, *is, reason, message, None, Timestamp::UNIX_EPOCH);
        }
        let claim_name = Some("bm-01-root".to_owned());
        status.disks.push(DiskStatus { name: "root".to_owned(), claim_name, ..DiskStatus::default() });
        machine
    }

    fn waiting_for_a_claim() -> BareMetalMachine {
        let reason = Waiting::ClaimPending {
            claim: "bm-01-root".to_owned(),
            class: "fast".to_owned(),
            message: "no such class: 'fast'".to_owned(),
        };
        let reason = Reason::from(reason);
        let (name, message) = (reason.name(), reason.told());
        machine(&[
            (READY, ConditionStatus::False, name, &message),
            (conditions::HARDWARE_CLAIMED, ConditionStatus::True, "Claimed", ""),
            (conditions::VOLUMES_READY, ConditionStatus::False, name, &message),
        ])
    }

    #[test]
    fn the_next_command_is_the_reasons_own() {
        let seen = Explained { machine: waiting_for_a_claim(), claims: Some(Vec::new()), ..Explained::default() };
        let root = tree(&seen);
        assert_eq!(root.kind, Some(ReasonKind::Waiting));
        assert!(root.message.ends_with(". Next: kubectl describe pvc bm-01-root"), "{}", root.message);
        assert_eq!(
            root.children.iter().map(|c| c.subject.as_str()).collect::<Vec<_>>(),
            ["HardwareClaimed", "VolumesReady"]
        );
        let claim = &root.children[1].children[0];
        assert_eq!((claim.subject.as_str(), claim.status.as_str()), ("PersistentVolumeClaim bm-01-root", "Missing"));
    }

    #[test]
    fn what_may_not_be_read_is_told_from_the_machine_and_said() {
        let mut machine = waiting_for_a_claim();
        conditions::set(
            &mut machine.status.get_or_insert_default().conditions,
            conditions::DISKS_ATTACHED,
            ConditionStatus::False,
            "EarlierStepFirst",
            "",
            None,
            Timestamp::UNIX_EPOCH,
        );
        let root = tree(&Explained { machine, ..Explained::default() });
        let disks = &root.children[2];
        assert!(disks.note.as_ref().is_some_and(|note| note.contains("may not read")), "{disks:?}");
        assert_eq!(disks.children[0].subject, "disk root");
    }

    #[test]
    fn the_agents_own_words_hang_below_the_attachment() {
        let mut attachment: DiskAttachment = DiskAttachment::new(
            "bm-01-root-x",
            serde_json::from_value(serde_json::json!({
                "owner": OwnerReference::default(), "dpuName": "dpu-1", "diskName": "root", "slot": "Boot",
                "serial": "s", "uuid": "u", "grant": {"epoch": 1},
            }))
            .expect("a spec"),
        );
        let mut status = DiskAttachmentStatus { phase: AttachPhase::Failed, ..DiskAttachmentStatus::default() };
        let at = Timestamp::UNIX_EPOCH;
        conditions::set(&mut status.conditions, "Connected", ConditionStatus::False, "Gone", "no file", None, at);
        conditions::set(&mut status.conditions, "Fenced", ConditionStatus::False, "NotFenced", "", None, at);
        attachment.status = Some(status);
        let node = disk(&attachment);
        assert_eq!(node.status, "Failed");
        assert_eq!(node.children.len(), 1);
        assert_eq!(node.children[0].message, "no file");
    }

    #[test]
    fn paused_and_restart_required_are_told_when_they_are_so() {
        let reason = Reason::from(Blocked::Paused {});
        let machine = machine(&[
            (READY, ConditionStatus::True, "Running", ""),
            (conditions::PAUSED, ConditionStatus::True, reason.name(), &reason.told_of("bm-01")),
            (conditions::RESTART_REQUIRED, ConditionStatus::False, "NotRequired", ""),
        ]);
        let root = tree(&Explained { machine, ..Explained::default() });
        assert_eq!(root.children.len(), 1);
        let message = &root.children[0].message;
        assert!(message.ends_with(". Next: kubectl annotate bmm bm-01 metalplane.io/paused-"), "{message}");
    }

    #[test]
    fn a_machine_that_nobody_looked_at_names_who_should() {
        let root = tree(&Explained { machine: BareMetalMachine::new("new", Default::default()), ..Default::default() });
        assert!(root.next.as_ref().is_some_and(|next| next.contains("component=controller")));
    }
}
