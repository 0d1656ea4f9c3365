//! Holder pods: made, and their end, seen from quorum (docs/design/fencing.md, *ConnectorClaimsFirst* and *PodEndIsSeen*).

use crate::verbs::what;
use crate::{Error, Shell, Verbs, disks, forget as forget_known, found, get, put, seen, writes};
use api::labels;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::Preconditions;
use planner::meta::{Target, label, name, uid};

pub fn is_one(meta: &ObjectMeta) -> bool {
    label(meta, labels::HOLDER_POD) == Some("true")
}

pub fn target(meta: &ObjectMeta) -> Target {
    let namespace = meta.namespace.clone().unwrap_or_default();
    Target { namespace, name: name(meta).to_owned(), uid: uid(meta).to_owned() }
}

/// Once so, for ever: kubelet gives up what it had.
pub fn is_ended(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).is_some_and(|p| p == "Failed" || p == "Succeeded")
}

pub async fn create(c: &impl Shell, pod: &Pod) -> Result<(), Error> {
    let own = label(&pod.metadata, labels::ATTACHMENT_UID).map(str::to_owned);
    let ours = |there: &Pod| {
        is_one(&there.metadata)
            && label(&there.metadata, labels::ATTACHMENT_UID) == own.as_deref()
            && there.metadata.deletion_timestamp.is_none()
    };
    writes::create(c, pod, ours).await.map(drop)
}

/// One that ended before it was granted, or that no attachment needs: that is read from quorum.
/// `node_is_down` is proven: nobody is there to say that it has ended.
pub async fn delete(c: &impl Shell, target: &Target, node_is_down: bool) -> Result<(), Error> {
    let there = found(get::<Pod>(c, &target.namespace, &target.name).await)?;
    let Some(pod) = there.filter(|pod| uid(&pod.metadata) == target.uid) else {
        forget(c, target);
        return Ok(());
    };
    if !is_ended(&pod) {
        let machine = label(&pod.metadata, labels::MACHINE_UID).unwrap_or_default();
        let attachment = label(&pod.metadata, labels::ATTACHMENT_UID).unwrap_or_default();
        disks::confirm_gone(c, machine, attachment).await?;
    }
    end(c, &pod, node_is_down).await
}

/// *PodEndIsSeen*: gone, as read from quorum. `recorded` is `namespace/name`; `node_is_down` is proven and on record: nobody is
/// there to say that the pod has ended.
pub async fn see_gone(c: &impl Shell, recorded: &str, attachment_uid: &str, node_is_down: bool) -> Result<(), Error> {
    let Some((namespace, name)) = recorded.split_once('/') else { return Ok(()) };
    let ours = |pod: &Pod| label(&pod.metadata, labels::ATTACHMENT_UID) == Some(attachment_uid);
    let Some(pod) = found(get::<Pod>(c, namespace, name).await)?.filter(ours) else { return Ok(()) };
    end(c, &pod, node_is_down).await?;
    match found(get::<Pod>(c, namespace, name).await)?.filter(|still| still.metadata.uid == pod.metadata.uid) {
        Some(still) => {
            put(c, still);
            let what = what::<Pod>("get", name);
            Err(Error::NotConfirmed { what, message: "it is still there".to_owned() })
        }
        None => {
            forget(c, &target(&pod.metadata));
            Ok(())
        }
    }
}

async fn end(c: &impl Shell, pod: &Pod, at_once: bool) -> Result<(), Error> {
    let rests_on = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
    let target = target(&pod.metadata);
    let answer = Verbs::<Pod>::delete(c, &target.namespace, &target.name, rests_on, at_once.then_some(0)).await;
    match found(answer)?.flatten() {
        // kubelet has to end it first: what the answer shows is being deleted.
        Some(pod) => put(c, pod),
        None => forget(c, &target),
    }
    Ok(())
}

fn forget(c: &impl Shell, target: &Target) {
    if let Ok(pod) = seen::<Pod>(c, target) {
        forget_known::<Pod>(c, &pod.metadata);
    }
}
