//! Holder pods: what kubelet says of them. How they are made and ended is [`executor::holder_pods`].

use api::labels;
pub use executor::holder_pods::is_one;
use executor::holder_pods::{is_ended, target};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use planner::machine::observed::{HolderPodSeen, label};

/// Selects them in a watch.
pub fn selector() -> String {
    format!("{}=true", labels::HOLDER_POD)
}

/// `event`: what was last told of it, for one that does not run.
pub fn seen(pod: &Pod, event: Option<String>) -> HolderPodSeen {
    let status = pod.status.clone().unwrap_or_default();
    let phase = status.phase.as_deref().unwrap_or_default();
    HolderPodSeen {
        target: target(&pod.metadata),
        attachment_uid: label(&pod.metadata, labels::ATTACHMENT_UID).unwrap_or_default().to_owned(),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
        running: phase == "Running",
        ended: is_ended(pod),
        deleting: pod.metadata.deletion_timestamp.is_some(),
        message: event.or_else(|| waits_for(&status)).unwrap_or_else(|| "kubelet has not said why".to_owned()),
    }
}

fn waits_for(status: &PodStatus) -> Option<String> {
    let waiting = status.container_statuses.iter().flatten().find_map(|c| c.state.as_ref()?.waiting.as_ref());
    let said = |reason: &Option<String>, message: &Option<String>| {
        let parts: Vec<&str> = [reason, message].into_iter().filter_map(|part| part.as_deref()).collect();
        (!parts.is_empty()).then(|| parts.join(": "))
    };
    said(&status.reason, &status.message).or_else(|| waiting.and_then(|w| said(&w.reason, &w.message)))
}
