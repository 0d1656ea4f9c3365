//! Holder pods: what kubelet says of them, and their end, seen from quorum (docs/design/fencing.md, steps 6 and 10).

use crate::Controller;
use crate::cache::key;
use crate::error::{Error, call, found};
use crate::machine::disks;
use crate::objects;
use api::labels;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use planner::machine::observed::{HolderPodSeen, label, name, uid};
use planner::machine::plan::Target;
use runtime::queue::{Key, Next};
use std::time::Duration;

/// How often a pod is looked at whose machine is there.
const LOOK: Duration = Duration::from_secs(60);

/// Selects them in a watch.
pub fn selector() -> String {
    format!("{}=true", labels::HOLDER_POD)
}

pub fn is_one(meta: &ObjectMeta) -> bool {
    label(meta, labels::HOLDER_POD) == Some("true")
}

fn target(meta: &ObjectMeta) -> Target {
    let (namespace, name) = key(meta);
    Target { namespace, name, uid: uid(meta).to_owned() }
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

/// Once so, for ever: kubelet gives up what it had.
fn is_ended(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).is_some_and(|p| p == "Failed" || p == "Succeeded")
}

fn waits_for(status: &PodStatus) -> Option<String> {
    let waiting = status.container_statuses.iter().flatten().find_map(|c| c.state.as_ref()?.waiting.as_ref());
    let said = |reason: &Option<String>, message: &Option<String>| {
        let parts: Vec<&str> = [reason, message].into_iter().filter_map(|part| part.as_deref()).collect();
        (!parts.is_empty()).then(|| parts.join(": "))
    };
    said(&status.reason, &status.message).or_else(|| waiting.and_then(|w| said(&w.reason, &w.message)))
}

pub async fn create(c: &Controller, pod: &Pod) -> Result<(), Error> {
    let (namespace, _) = key(&pod.metadata);
    let own = label(&pod.metadata, labels::ATTACHMENT_UID).map(str::to_owned);
    let ours = |there: &Pod| {
        is_one(&there.metadata)
            && label(&there.metadata, labels::ATTACHMENT_UID) == own.as_deref()
            && there.metadata.deletion_timestamp.is_none()
    };
    objects::create(&c.objects.namespaced(&namespace), &c.world.holder_pods, pod, ours).await.map(drop)
}

/// One that ended before it was granted, or that no attachment needs: that is read from quorum.
/// `node_is_down` is proven: nobody is there to say that it has ended.
pub async fn delete(c: &Controller, target: &Target, node_is_down: bool) -> Result<(), Error> {
    let api = c.objects.namespaced::<Pod>(&target.namespace);
    let what = format!("get Pod '{}'", target.name);
    let Some(pod) = found(call(&what, api.get(&target.name)).await)?.filter(|pod| uid(&pod.metadata) == target.uid)
    else {
        forget(c, target);
        return Ok(());
    };
    if !is_ended(&pod) {
        let machine = label(&pod.metadata, labels::MACHINE_UID).unwrap_or_default();
        let attachment = label(&pod.metadata, labels::ATTACHMENT_UID).unwrap_or_default();
        disks::confirm_gone(c, machine, attachment).await?;
    }
    end(c, &api, &pod, node_is_down).await
}

/// Step 10: gone, as read from quorum. `recorded` is `namespace/name`; `node_is_down` is proven and on record: nobody is
/// there to say that the pod has ended.
pub async fn see_gone(c: &Controller, recorded: &str, attachment_uid: &str, node_is_down: bool) -> Result<(), Error> {
    let Some((namespace, name)) = recorded.split_once('/') else { return Ok(()) };
    let api = c.objects.namespaced::<Pod>(namespace);
    let what = format!("get Pod '{name}'");
    let ours = |pod: &Pod| label(&pod.metadata, labels::ATTACHMENT_UID) == Some(attachment_uid);
    let Some(pod) = found(call(&what, api.get(name)).await)?.filter(ours) else { return Ok(()) };
    end(c, &api, &pod, node_is_down).await?;
    match found(call(&what, api.get(name)).await)?.filter(|still| still.metadata.uid == pod.metadata.uid) {
        Some(still) => {
            c.world.holder_pods.put(still);
            Err(Error::NotConfirmed { what, message: "it is still there".to_owned() })
        }
        None => {
            forget(c, &target(&pod.metadata));
            Ok(())
        }
    }
}

async fn end(c: &Controller, api: &Api<Pod>, pod: &Pod, at_once: bool) -> Result<(), Error> {
    let preconditions = Some(Preconditions { uid: pod.metadata.uid.clone(), resource_version: None });
    let grace_period_seconds = at_once.then_some(0);
    let params = DeleteParams { preconditions, grace_period_seconds, ..DeleteParams::default() };
    let name = name(&pod.metadata);
    match found(call(&format!("delete Pod '{name}'"), api.delete(name, &params)).await)? {
        // kubelet has to end it first: what the answer shows is being deleted.
        Some(answer) => {
            if let Some(pod) = answer.left() {
                c.world.holder_pods.put(pod);
            }
        }
        None => forget(c, &target(&pod.metadata)),
    }
    Ok(())
}

fn forget(c: &Controller, target: &Target) {
    let there = c.world.holder_pods.get(&target.namespace, &target.name);
    if let Some(pod) = there.filter(|pod| uid(&pod.metadata) == target.uid) {
        c.world.holder_pods.forget(&pod.metadata);
    }
}

/// Ends a pod whose machine does not exist: a create that came late, from a leader before this one.
pub async fn reconcile(c: &Controller, key: &Key) -> Result<Next, Error> {
    let Some(pod) = c.world.holder_pods.get(&key.0, &key.1) else { return Ok(Next::Wait) };
    if c.world.has_machine(label(&pod.metadata, labels::MACHINE_UID).unwrap_or_default()) {
        return Ok(Next::After(LOOK));
    }
    delete(c, &target(&pod.metadata), false).await?;
    Ok(Next::BackOff)
}
