//! Claims of a StorageClass with `volumeBindingMode: WaitForFirstConsumer`: their volume is made once somebody says on
//! which node its first consumer will be.
//!
//! For a pod kube-scheduler says so, by the annotation `volume.kubernetes.io/selected-node`. For a disk the consumer is the
//! DPU, so it is said once a server is claimed. A provisioner that cannot make the volume there takes the annotation away
//! again; it is set anew after a while, for a full pool may have room by then.

use crate::meta::{Target, annotation, name, target};
use crate::observed::ClaimSeen;
use crate::reason::{Reason, Waiting};
use api::labels::{NODE_SELECTED_AT, SELECTED_NODE};
use jiff::{SignedDuration, Timestamp};

/// Between two attempts.
const AGAIN: SignedDuration = SignedDuration::from_secs(20);

/// What the scheduler does for a pod: names the node of the claim's first consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectNode {
    pub target: Target,
    pub node: String,
    pub at: Timestamp,
}

/// What a pending claim waits for, and what is to be said to its provisioner.
#[derive(Debug, Clone, PartialEq)]
pub struct Pending {
    pub reason: Reason,
    pub select: Option<SelectNode>,
}

/// `node`: where the consumer will be. `made_by_us`: a node that was selected for it earlier was ours to select.
pub fn pending(seen: &ClaimSeen, node: &str, made_by_us: bool, now: Timestamp) -> Option<Pending> {
    seen.binds_late.as_ref()?;
    let meta = &seen.claim.metadata;
    let selected = selected(seen);
    let last: Option<Timestamp> = annotation(meta, NODE_SELECTED_AT).and_then(|at| at.parse().ok());
    let rests = selected.is_none() && last.is_some_and(|last| now < last + AGAIN);
    let foreign = selected.filter(|selected| *selected != node && !made_by_us);
    let message = match foreign {
        Some(_) => "somebody else selected that node".to_owned(),
        None => seen.event.clone().unwrap_or_else(|| "its provisioner has not answered yet".to_owned()),
    };
    let wanted = selected != Some(node) && foreign.is_none() && !rests;
    Some(Pending {
        reason: Waiting::ClaimBindsLate {
            claim: name(meta).to_owned(),
            node: foreign.unwrap_or(node).to_owned(),
            message,
        }
        .into(),
        select: wanted.then(|| SelectNode { target: target(meta), node: node.to_owned(), at: now }),
    })
}

/// The node that was selected for it.
pub fn selected(seen: &ClaimSeen) -> Option<&str> {
    annotation(&seen.claim.metadata, SELECTED_NODE).filter(|node| !node.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;
    use std::sync::Arc;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn claim(late: bool, annotations: &[(&str, &str)]) -> ClaimSeen {
        let mut claim = PersistentVolumeClaim::default();
        claim.metadata.name = Some("data".into());
        claim.metadata.annotations =
            Some(annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect());
        let binds_late = late.then(|| "csi.example.org".to_owned());
        ClaimSeen { claim: Arc::new(claim), binds_late, ..ClaimSeen::default() }
    }

    fn node(pending: Option<Pending>) -> Option<String> {
        pending.expect("it waits").select.map(|select| select.node)
    }

    #[test]
    fn only_a_late_class_is_told_a_node_and_only_once() {
        assert_eq!(pending(&claim(false, &[]), "dpu-1", true, NOW), None);
        assert_eq!(node(pending(&claim(true, &[]), "dpu-1", true, NOW)).as_deref(), Some("dpu-1"));
        assert_eq!(node(pending(&claim(true, &[(SELECTED_NODE, "dpu-1")]), "dpu-1", false, NOW)), None);
    }

    #[test]
    fn a_node_that_somebody_else_selected_stays_and_is_named() {
        let seen = claim(true, &[(SELECTED_NODE, "worker")]);
        let waits = pending(&seen, "dpu-1", false, NOW).expect("it waits");
        assert_eq!(waits.select, None);
        assert!(waits.reason.message().contains("'worker': somebody else"), "{}", waits.reason);
        let ours = pending(&seen, "dpu-1", true, NOW);
        assert_eq!(node(ours).as_deref(), Some("dpu-1"), "it was ours: the machine has another server by now");
    }

    #[test]
    fn a_node_that_was_taken_away_is_selected_again_after_a_while() {
        let at = NOW.to_string();
        let seen = claim(true, &[(NODE_SELECTED_AT, at.as_str())]);
        assert_eq!(node(pending(&seen, "dpu-1", true, NOW + SignedDuration::from_secs(5))), None);
        assert_eq!(node(pending(&seen, "dpu-1", true, NOW + AGAIN)).as_deref(), Some("dpu-1"));
    }
}
