//! The way back of everything of a pod that is not wanted: attachment and VNic, or, of a VNic that stays, attachment, holder and mark.
//!
//! A VNic that was made for the pod is deleted with its attachment, not after it, as the garbage collector would do: its finalizer keeps its
//! port and its addresses until a list from quorum has no attachment of it (*AddressIsHeld*). So its holder is not emptied first: nobody
//! takes a VNic that is being deleted.

use super::{Action, Observed, Plan};
use crate::machine::observed::{DpuSeen, annotation, label, name, uid};
use crate::machine::target;
use crate::reason::Waiting;
use api::hold::Holder;
use api::{VNic, labels, names};
use std::collections::BTreeSet;

/// Names of what a pod asks for.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub attachments: BTreeSet<String>,
    pub vnics: BTreeSet<String>,
}

impl Wanted {
    /// Whatever the pod has.
    pub(super) fn keep_all(&mut self, o: &Observed) {
        self.attachments.extend(o.attachments.iter().map(|attachment| name(&attachment.metadata).to_owned()));
        self.vnics.extend(o.vnics.iter().map(|vnic| name(&vnic.metadata).to_owned()));
    }
}

/// Between the pod's name and the interface: no machine's mark has one, for it is the interface alone.
const SEPARATOR: char = '/';

/// What a pod's mark on a VNic says.
pub(super) fn mark(pod: &str, interface: &str) -> String {
    format!("{pod}{SEPARATOR}{interface}")
}

/// Whether a mark (`in-use.metalplane.io/UID`) with this value is a pod's.
pub fn is_pods_mark(value: &str) -> bool {
    value.contains(SEPARATOR)
}

/// The name of the pod with this UID, by its mark.
pub fn marked_pod<'a>(vnic: &'a VNic, pod_uid: &str) -> Option<&'a str> {
    marked(vnic, pod_uid).map(|(pod, _)| pod)
}

fn marked<'a>(vnic: &'a VNic, pod_uid: &str) -> Option<(&'a str, &'a str)> {
    annotation(&vnic.metadata, &format!("{}{pod_uid}", labels::IN_USE_BY))?.split_once(SEPARATOR)
}

pub(super) fn plan(o: &Observed, wanted: &Wanted, plan: &mut Plan) {
    for attachment in o.attachments.iter().filter(|a| !wanted.attachments.contains(name(&a.metadata))) {
        let meta = &attachment.metadata;
        let dpu = super::seen(o, &attachment.spec.dpu_name);
        if meta.deletion_timestamp.is_none() || !attachment.spec.release {
            plan.actions.push(Action::Release { target: target(meta) });
        } else if attachment.spec.grant.is_none() || dpu.is_some_and(DpuSeen::is_confirmed_down) {
            plan.actions.push(Action::Abandon { target: target(meta) });
        } else if dpu.is_some_and(|dpu| dpu.silent) {
            plan.wait(Waiting::DpuSilent { dpu: attachment.spec.dpu_name.clone() });
        }
    }
    for vnic in &o.vnics {
        let meta = &vnic.metadata;
        let made = label(meta, labels::POD_UID) == Some(&o.uid);
        if made && !wanted.vnics.contains(name(meta)) {
            if meta.deletion_timestamp.is_none() {
                plan.actions.push(Action::DeleteVNic { target: target(meta) });
            }
            continue;
        }
        if o.attachments.iter().any(|attachment| attachment.spec.vnic_uid == uid(meta)) {
            continue;
        }
        let held = vnic.status.as_ref().and_then(|status| status.holder.as_ref());
        let ours = |holder: &&Holder| made || is_of(o, vnic, holder);
        match held.filter(ours) {
            Some(holder) => plan.actions.push(Action::FreeVNic { target: target(meta), holder: holder.clone() }),
            None if wanted.vnics.contains(name(meta)) => {}
            None => plan.actions.push(Action::UnprotectVNic { target: target(meta) }),
        }
    }
}

/// The holder is the attachment of this pod for which the VNic was marked.
fn is_of(o: &Observed, vnic: &VNic, holder: &Holder) -> bool {
    marked(vnic, &o.uid)
        .is_some_and(|(pod, interface)| names::attachment(&o.uid, pod, interface) == holder.attachment_name)
}
