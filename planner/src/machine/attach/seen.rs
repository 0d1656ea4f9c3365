//! What is seen of an attachment, a disk's or a NIC's.

use crate::about::About;
use crate::machine::situation::Host;
use crate::meta::name;
use crate::network::addresses;
use crate::reason::{Failed, Reason, Waiting};
use api::attachment::DiskAttachmentStatus;
use api::conditions;
use api::machine::AttachPhase;
use api::{DiskAttachment, VNic};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};

/// What an attachment's status says, of either kind.
#[derive(Debug, Clone, Copy)]
pub(in crate::machine) struct Seen<'a> {
    phase: AttachPhase,
    boot_id: Option<&'a str>,
    conditions: &'a [Condition],
}

impl<'a> Seen<'a> {
    pub fn disk(attachment: &'a DiskAttachment) -> Self {
        let status: Option<&'a DiskAttachmentStatus> = attachment.status.as_ref();
        Self {
            phase: status.map(|s| s.phase).unwrap_or_default(),
            boot_id: status.and_then(|s| s.exposed_boot_id.as_deref()),
            conditions: status.map(|s| s.conditions.as_slice()).unwrap_or_default(),
        }
    }

    pub fn nic(attachment: &'a api::NicAttachment) -> Self {
        let status = attachment.status.as_ref();
        Self {
            phase: status.map(|s| s.phase).unwrap_or_default(),
            boot_id: status.and_then(|s| s.exposed_boot_id.as_deref()),
            conditions: status.map(|s| s.conditions.as_slice()).unwrap_or_default(),
        }
    }

    /// What the first condition that is not true says.
    fn message(&self) -> Option<String> {
        [conditions::CONNECTED, conditions::EXPOSED]
            .iter()
            .filter_map(|type_| conditions::get(self.conditions, type_))
            .find(|condition| condition.status != "True" && !condition.message.is_empty())
            .map(|condition| format!("{}: {}", condition.reason, condition.message))
    }
}

/// Why the host cannot see it on this boot of the DPU; `None`: it can.
pub(in crate::machine) fn not_exposed(host: Host<'_>, what: About, seen: Seen<'_>) -> Option<Reason> {
    let dpu = host.dpu.name().to_owned();
    let Some(boot_id) = host.boot_id() else {
        return Some(match host.shares_power() {
            true => Waiting::DpuStarting { dpu }.into(),
            false => Waiting::DpuSilent { dpu }.into(),
        });
    };
    if seen.phase == AttachPhase::Failed {
        let message = seen.message().unwrap_or_else(|| "no reason was given".to_owned());
        return Some(Failed::AttachFailed { what, dpu, message }.into());
    }
    if seen.phase == AttachPhase::Attached && seen.boot_id == Some(boot_id) {
        return None;
    }
    let message = seen.message().map(|message| format!(" ({message})")).unwrap_or_default();
    Some(Waiting::Attaching { what, dpu, message }.into())
}

pub(in crate::machine) fn phase(attachment: Option<(&ObjectMeta, bool)>, reason: Option<&Reason>) -> AttachPhase {
    match (attachment, reason) {
        (Some((meta, _)), _) if meta.deletion_timestamp.is_some() => AttachPhase::Detaching,
        (_, Some(Reason::Failed(_))) => AttachPhase::Failed,
        (None, _) => AttachPhase::Pending,
        (Some((_, false)), _) => AttachPhase::Waiting,
        (Some((_, true)), Some(_)) => AttachPhase::Attaching,
        (Some((_, true)), None) => AttachPhase::Attached,
    }
}

pub(in crate::machine) fn detaching(what: About, dpu: &str) -> Reason {
    Waiting::Detaching { what, dpu: dpu.to_owned() }.into()
}

/// The addresses that are assigned to the VNic, or why none are: its condition says it, and nobody judges it a second time.
pub(in crate::machine) fn assigned(vnic: &VNic) -> Result<&[String], Reason> {
    let status = vnic.status.as_ref();
    if let Some(status) = status.filter(|_| addresses::is_assigned(vnic)) {
        return Ok(&status.addresses);
    }
    let said = status.and_then(|status| conditions::get(&status.conditions, conditions::ADDRESSES_ASSIGNED));
    let why = said.map(|said| said.reason.clone());
    let why = why.unwrap_or_else(|| "the controller is assigning the addresses of the VNic".to_owned());
    Err(Waiting::VNicNotReady { vnic: name(&vnic.metadata).to_owned(), why }.into())
}
